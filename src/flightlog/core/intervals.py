"""Intervals of time, half-open and in nanoseconds: their union, their overlap, how many run at once, and
lanes on which they lie side by side.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

Spans = Sequence[tuple[int, int]]
"""Intervals in order that neither touch nor overlap."""

COMPACT_FROM = 1 << 16


class Intervals:
    """A growing set of intervals in 16 bytes each; overlapping ones are merged as they pile up."""

    __slots__ = ("_compact_at", "_compact_from", "_ends", "_starts")

    def __init__(self, compact_from: int = COMPACT_FROM) -> None:
        self._starts, self._ends = array("q"), array("q")
        self._compact_at = self._compact_from = compact_from

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int, end: int) -> None:
        """Take an interval; one that ends before it starts counts as empty, at its start."""
        self._starts.append(start)
        self._ends.append(max(start, end))
        if len(self._starts) >= self._compact_at:
            whole = self.union()
            self._starts = array("q", (start for start, _ in whole))
            self._ends = array("q", (end for _, end in whole))
            self._compact_at = max(self._compact_from, 2 * len(whole))

    def union(self) -> list[tuple[int, int]]:
        """What at least one of them covers."""
        return union(zip(self._starts, self._ends, strict=True))

    def bounds(self) -> tuple[int, int] | None:
        """The first start and the last end; None where there is no interval."""
        return (min(self._starts), max(self._ends)) if self._starts else None


def union(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What at least one interval covers, in order; touching ones become one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def length(spans: Spans) -> int:
    """Time covered."""
    return sum(end - start for start, end in spans)


def overlap(left: Spans, right: Spans) -> list[tuple[int, int]]:
    """What both cover."""
    common: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            common.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return common


def peak(intervals: Iterable[tuple[int, int]]) -> int:
    """How many run at once at most. An empty interval counts for its moment; touching ones do not overlap."""
    steps: list[tuple[int, int]] = []
    for start, end in intervals:
        steps.append((start, 1))
        steps.append((max(end, start + 1), -1))
    steps.sort()
    highest = running = 0
    for _, step in steps:
        running += step
        highest = max(highest, running)
    return highest


class Lanes:
    """Lanes on which no two intervals overlap; each interval takes the first lane that is free.

    Intervals come in order of their starts. `number` counts the lanes there are.
    """

    __slots__ = ("_busy", "_free", "number")

    def __init__(self) -> None:
        self.number = 0
        self._busy: list[tuple[int, int]] = []
        self._free: list[int] = []

    def first_free(self, start: int, most: int | None = None) -> int | None:
        """The lane for what starts now, which `occupy` has to follow; None where there would be more than
        `most` lanes.
        """
        while self._busy and self._busy[0][0] <= start:
            heappush(self._free, heappop(self._busy)[1])
        if self._free:
            return heappop(self._free)
        if most is not None and self.number >= most:
            return None
        self.number += 1
        return self.number - 1

    def occupy(self, lane: int, end: int) -> None:
        """Keep a lane until then."""
        heappush(self._busy, (end, lane))

    def take(self, start: int, end: int) -> int:
        """The lane of an interval; one without a length has it for a moment, too."""
        lane = self.first_free(start)
        assert lane is not None
        self.occupy(lane, max(end, start + 1))
        return lane
