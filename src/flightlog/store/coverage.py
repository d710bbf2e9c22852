"""Which numbers of a sequence were seen, in memory that grows with the gaps and not with the numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence


class Coverage:
    """A set of whole numbers kept as intervals; numbers that come mostly in order cost next to nothing."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # one past the last number of each interval

    @classmethod
    def up_to(cls, end: int) -> Coverage:
        """All numbers from 0 to below `end`."""
        made = cls()
        if end > 0:
            made._starts, made._ends = [0], [end]
        return made

    @classmethod
    def of(cls, ranges: Iterable[Sequence[int]]) -> Coverage:
        """What `ranges` gave; intervals that are none, or stand out of order, are left out."""
        made, reached = cls(), -1
        for found in ranges:
            if len(found) == 2 and reached < found[0] < found[1]:
                made._starts.append(found[0])
                made._ends.append(found[1])
                reached = found[1]
        return made

    def ranges(self) -> list[tuple[int, int]]:
        """The stretches that were seen, in order: first number, and one past the last."""
        return list(zip(self._starts, self._ends, strict=True))

    def add(self, number: int) -> bool:
        """Put a number in; False if it was there already."""
        ends = self._ends
        if ends and number == ends[-1]:
            ends[-1] = number + 1
            return True
        return self._insert(number)

    def _insert(self, number: int) -> bool:
        starts, ends = self._starts, self._ends
        after = bisect_right(starts, number)
        if after and number < ends[after - 1]:
            return False
        joins_left = after > 0 and ends[after - 1] == number
        joins_right = after < len(starts) and starts[after] == number + 1
        if joins_left and joins_right:
            ends[after - 1] = ends[after]
            del starts[after], ends[after]
        elif joins_left:
            ends[after - 1] = number + 1
        elif joins_right:
            starts[after] = number
        else:
            starts.insert(after, number)
            ends.insert(after, number + 1)
        return True

    def __contains__(self, number: int) -> bool:
        after = bisect_right(self._starts, number)
        return after > 0 and number < self._ends[after - 1]

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)

    @property
    def upper(self) -> int:
        """One more than the highest number seen; 0 if there is none."""
        return self._ends[-1] if self._ends else 0

    def gaps(self, known: int = 0) -> Iterator[range]:
        """The stretches missing between 0 and the higher of `known` and `upper`, in order."""
        expected = 0
        for start, end in zip(self._starts, self._ends, strict=True):
            if expected < start:
                yield range(expected, start)
            expected = end
        if expected < known:
            yield range(expected, known)

    def missing(self, known: int = 0) -> int:
        """How many numbers are missing between 0 and the higher of `known` and `upper`."""
        return max(known, self.upper) - len(self)
