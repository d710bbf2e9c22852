"""What processes that left a tree had used, and nobody who is still there has taken over.

A parent that waits for a child takes the child's counters over: the kernel adds the child's CPU time to the
parent's `cutime` and its I/O to the parent's own. A child whose parent ignores its death, or died before it,
hands its counters to nobody in the tree, and a sum over the living would fall. The kernel does not say which
of the two happened, so it is worked out from sums:

- a child that left *claims* what it was last seen to have used, from its nearest surviving ancestor;
- that ancestor's counter has *gained* something since the previous look;
- what the gain does not cover was taken over by nobody, and is kept here.

Parents are read before their children, so a child may be gone although its parent, read a moment earlier, had
not yet waited for it. A claim therefore stays open for one more look before it is settled for good. The
oldest claims are met first; a gain that in truth came from a child never seen can only make the kept sum too
small. The result never counts a second twice, never falls, and is exact where every child is either waited
for or not.
"""

from __future__ import annotations

from collections.abc import Mapping


class Departed:
    """The ledger of one quantity (CPU time, bytes read, bytes written), in whole units; not thread-safe."""

    __slots__ = ("_open", "_settled")

    def __init__(self) -> None:
        self._settled = 0
        self._open: dict[int, int] = {}

    @property
    def total(self) -> int:
        """What is kept, open claims included."""
        return self._settled + sum(self._open.values())

    @property
    def has_open(self) -> bool:
        """Whether a claim waits for the next look."""
        return bool(self._open)

    def look(
        self,
        heirs: Mapping[int, int | None],
        claims: Mapping[int | None, int],
        gains: Mapping[int, int | None],
    ) -> None:
        """One look at the tree.

        `heirs` names for each process that left its nearest surviving ancestor, None where there is none in
        the tree. `claims` sums by surviving ancestor what those who left had used; claims on None are settled
        at once. `gains` holds the growth of every survivor's counter since the previous look. An unknown gain
        is taken to cover everything, so that nothing counts twice; claims on a survivor that is missing,
        because it could not be read this time, stay open.
        """
        fresh: dict[int, int] = {}
        bequests = [(heirs[left], self._open.pop(left)) for left in heirs if left in self._open]
        for heir, amount in [*claims.items(), *bequests]:
            if heir is None:
                self._settled += amount
            else:
                fresh[heir] = fresh.get(heir, 0) + amount
        still_open: dict[int, int] = {}
        for parent in self._open.keys() | fresh.keys():
            old, new = self._open.get(parent, 0), fresh.get(parent, 0)
            if parent not in gains:
                still_open[parent] = old + new
                continue
            gained = gains[parent]
            if gained is None:
                continue
            self._settled += max(0, old - gained)
            uncovered = new - max(0, gained - old)
            if uncovered > 0:
                still_open[parent] = uncovered
        self._open = still_open
