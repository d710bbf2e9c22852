"""A count over time, such as tasks that run, from ups and downs that come in any order; of the last minutes
alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from flightlog.analyze.moments import SECOND

WIDTH = SECOND // 5
"""Ups and downs are kept by fifths of a second."""
WINDOW = 600 * SECOND
"""What is drawn at most."""
KEPT = (WINDOW + 60 * SECOND) // WIDTH
POINTS = 300


class Level:
    """How many there are, over the last minutes, on average over each stretch. `limit` is a moment near now:
    what claims to be later does not push the past out.
    """

    __slots__ = ("_before", "_bins", "_floor", "limit")

    def __init__(self) -> None:
        self.limit = 1 << 62
        self._bins: dict[int, tuple[int, int]] = {}
        self._before = 0
        self._floor = -(1 << 62)

    def add(self, at: int | None, change: int) -> None:
        """There are so many more, or fewer, from this moment on; nothing where the moment is unknown."""
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
        """By how much it changed between two moments, to the fifth of a second."""
        first, last = since // WIDTH, until // WIDTH
        return sum(change for where, (change, _) in self._bins.items() if first < where <= last)
