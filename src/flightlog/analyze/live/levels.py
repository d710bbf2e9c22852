"""A count or a measured value over the last minutes, from events that come in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from flightlog.analyze.tallies import grouped
from flightlog.core.time import SECOND

WIDTH = SECOND // 5
"""Changes are kept in bins of 0.2 seconds, in nanoseconds."""
WINDOW = 600 * SECOND
"""The longest time that is drawn, in nanoseconds."""
KEPT = (WINDOW + 60 * SECOND) // WIDTH
POINTS = 300


class Level:
    """A count over the last minutes, averaged over each interval. `limit` is a moment near now:
    what claims to be later does not push the past out.
    """

    __slots__ = ("_before", "_bins", "_floor", "limit")

    def __init__(self) -> None:
        self.limit = 1 << 62
        self._bins: dict[int, tuple[int, int]] = {}
        self._before = 0
        self._floor = -(1 << 62)

    def add(self, at: int | None, change: int) -> None:
        """Change the count by `change` from this moment on; ignored where the moment is unknown."""
        if at is None:
            return
        where = at // WIDTH
        if where < self._floor:
            self._before += change
            return
        rest = change * (WIDTH - at % WIDTH)
        known = self._bins.get(where)
        self._bins[where] = (change, rest) if known is None else (known[0] + change, known[1] + rest)
        if known is None and len(self._bins) > 2 * KEPT:
            self._trim()

    def _trim(self) -> None:
        ordered = sorted(self._bins)
        newest = min(ordered[-1], self.limit // WIDTH)
        floor = newest - KEPT
        for where in ordered:
            if where >= floor:
                break
            self._before += self._bins.pop(where)[0]
        if len(self._bins) > 2 * KEPT:  # noise of another time
            for where in sorted(self._bins)[KEPT:]:
                del self._bins[where]
        self._floor = max(self._floor, floor)

    def points(
        self, since: int, until: int, ongoing: Iterable[int] = ()
    ) -> tuple[list[float], list[float | None]]:
        """Seconds after `since`, and how many there were on average from there to the next.

        `ongoing` are moments from which one more counts, and which are not put in.
        """
        first, last = since // WIDTH, max(since, until - 1) // WIDTH
        bins, level = self._bins, self._before
        more = Counter(min(began, until) for began in ongoing)
        if more:
            bins = dict(bins)
            for since_when, change in more.items():
                where, into = divmod(since_when, WIDTH)
                known = bins.get(where, (0, 0))
                bins[where] = (known[0] + change, known[1] + change * (WIDTH - into))
        level += sum(change for where, (change, _) in bins.items() if where < first)
        step = -(-(last - first + 1) // POINTS)
        at: list[float] = []
        value: list[float | None] = []
        for begin in range(first, last + 1, step):
            end = min(begin + step, last + 1)
            # What lies before and behind is not counted in.
            early, late = max(0, since - begin * WIDTH), max(0, end * WIDTH - until)
            area, length = -early * level, (end - begin) * WIDTH - early - late
            for where in range(begin, end):
                area += level * WIDTH
                found = bins.get(where)
                if found is not None:
                    area += found[1]
                    level += found[0]
            at.append(round(max(0, begin * WIDTH - since) / SECOND, 3))
            area -= late * level
            value.append(round(max(0.0, area / length if length > 0 else float(level)), 3))
        return at, value

    def changed(self, since: int, until: int) -> int:
        """The change between two moments, to 0.2 seconds."""
        first, last = since // WIDTH, until // WIDTH
        return sum(change for where, (change, _) in self._bins.items() if first < where <= last)


KEPT_S = KEPT * WIDTH // SECOND
GAP_S = 15
"""A line is interrupted at gaps longer than this."""


class Sampled:
    """A measured series. Takes values in any order."""

    __slots__ = ("_of", "_seconds", "limit")

    def __init__(self, of: Literal["mean", "most"]) -> None:
        self.limit = 1 << 62
        self._of = of
        self._seconds: dict[int, tuple[float, int, float]] = {}

    def add(self, at: int | None, value: float | None) -> None:
        """Take a value; one that is unknown, or of an unknown moment, is left out."""
        if at is None or value is None:
            return
        second = at // SECOND
        known = self._seconds.get(second)
        if known is not None:
            self._seconds[second] = (known[0] + value, known[1] + 1, max(known[2], value))
            return
        self._seconds[second] = (value, 1, value)
        if len(self._seconds) > 2 * KEPT_S:
            ordered = sorted(self._seconds)
            newest = min(ordered[-1], self.limit // SECOND)
            kept = {one: self._seconds[one] for one in ordered if one >= newest - KEPT_S}
            self._seconds = dict(list(kept.items())[: 2 * KEPT_S - 1])

    def points(self, since: int, until: int) -> tuple[list[float], list[float | None]]:
        """Seconds after `since` and values; null in the middle of a gap."""
        first, last = since // SECOND, max(since, until) // SECOND
        step = -(-(last - first + 1) // POINTS)
        groups = grouped(
            ((second - first) // step, found)
            for second, found in self._seconds.items()
            if first <= second <= last
        )
        at: list[float] = []
        value: list[float | None] = []
        for group in sorted(groups):
            found_at = float(group * step)
            if at and found_at - at[-1] > max(GAP_S, 3 * step):
                at.append((at[-1] + found_at) / 2)
                value.append(None)
            at.append(found_at)
            parts = groups[group]
            if self._of == "most":
                value.append(max(most for _, _, most in parts))
            else:
                value.append(
                    round(sum(total for total, _, _ in parts) / sum(count for _, count, _ in parts), 3)
                )
        return at, value
