"""The rows of a trace: processes and threads, and lanes on which slices overlap only when nested."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import Any, NamedTuple

Emit = Callable[[dict[str, Any]], None]


class Tracks:
    """Numbers processes and threads when they are first asked for, and emits how they are called.

    Every number is given out once: viewers mix up threads of different processes that share one.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._last = 0
        self._processes: dict[Hashable, int] = {}
        self._threads: dict[tuple[int, str], int] = {}
        self._lanes: dict[tuple[int, str], Lanes] = {}
        self.open_spans: dict[str, tuple[Lanes, int]] = {}
        """Where each span that is open was put."""

    def process(self, key: Hashable, name: str, order: int) -> int:
        """The process of this key; processes are shown in this order."""
        pid = self._processes.get(key)
        if pid is None:
            pid = self._processes[key] = self._number()
            self._describe("process_name", pid, pid, name=name)
            self._describe("process_sort_index", pid, pid, sort_index=order)
        return pid

    def thread(self, pid: int, name: str) -> int:
        """The thread of this name, in the order of their first use."""
        tid = self._threads.get((pid, name))
        if tid is None:
            tid = self._threads[pid, name] = self._number()
            self._describe("thread_name", pid, tid, name=name)
            self._describe("thread_sort_index", pid, tid, sort_index=tid)
        return tid

    def lanes(self, pid: int, name: str, most: int | None = None) -> Lanes:
        """The group of lanes of this name in a process."""
        found = self._lanes.get((pid, name))
        if found is None:
            found = self._lanes[pid, name] = Lanes(self.open_spans, process=pid, name=name, most=most)
        return found

    def lane(self, lanes: Lanes, lane: int) -> int:
        """The thread of a lane: `tasks`, `tasks (2)`, `tasks (3)`."""
        return self.thread(lanes.process, lanes.name if lane == 0 else f"{lanes.name} ({lane + 1})")

    def _number(self) -> int:
        self._last += 1
        return self._last

    def _describe(self, what: str, pid: int, tid: int, **args: Any) -> None:
        self._emit({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args})


def natural(name: str) -> list[Any]:
    """A key that sorts `worker-2` before `worker-10`."""
    return [int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", name)]


ROUNDING_US = 1
"""Slices that overlap by so little followed each other: moments are whole microseconds."""


class Placed(NamedTuple):
    """Where a slice goes, and its times, which rounding may have moved by a microsecond."""

    lane: int
    since: int
    until: int


class _Open:
    """A slice that may have others inside."""

    __slots__ = ("reached", "span_id", "thread", "until")

    def __init__(self, placed: Placed, span_id: str | None, thread: int | None) -> None:
        self.until, self.reached = placed.until, placed.since
        self.span_id, self.thread = span_id, thread


class Lanes:
    """The lanes of one group. Slices come in order of their start, and parents before what is inside them.

    Times are whole microseconds. Holds what is open at the moment, and no more. `open_spans` says of every
    open span in which lane of which group it is; several groups share it. With `most`, there are never more
    lanes than that.
    """

    def __init__(
        self,
        open_spans: dict[str, tuple[Lanes, int]],
        *,
        process: int = 0,
        name: str = "",
        most: int | None = None,
    ) -> None:
        self.process, self.name = process, name
        self._open_spans, self._most = open_spans, most
        self._stacks: list[list[_Open]] = []
        self._ends: list[int] = []
        self._busy: list[tuple[int, int]] = []
        self._free: list[int] = []

    def beside(
        self, since: int, until: int, span_id: str | None = None, thread: int | None = None
    ) -> Placed | None:
        """Put a slice on the first lane that is free; None where there are as many lanes as there may be."""
        while self._busy and self._busy[0][0] <= since + ROUNDING_US:
            heappush(self._free, heappop(self._busy)[1])
        if self._free:
            lane = heappop(self._free)
        elif self._most is not None and len(self._stacks) >= self._most:
            return None
        else:
            lane = len(self._stacks)
            self._stacks.append([])
            self._ends.append(since)
        begun = max(since, self._ends[lane])
        placed = Placed(lane, begun, max(begun, until))
        while self._stacks[lane]:
            self._forget(lane)
        self._ends[lane] = placed.until
        heappush(self._busy, (placed.until, lane))
        self._remember(placed, span_id, thread)
        return placed

    def inside(
        self,
        lane: int,
        parent_id: str,
        since: int,
        until: int,
        span_id: str | None = None,
        thread: int | None = None,
    ) -> Placed | None:
        """Put a slice into its parent's, on the same lane; None where the parent does not enclose it there.

        That is so where another slice is open between them, where it ends after its parent, or where it is
        known that the two were on different threads.
        """
        stack = self._stacks[lane]
        while stack and stack[-1].span_id != parent_id and stack[-1].until <= since + ROUNDING_US:
            self._forget(lane)
        if not stack or stack[-1].span_id != parent_id:
            return None
        parent = stack[-1]
        apart = None not in {thread, parent.thread} and thread != parent.thread
        begun = max(since, parent.reached)
        if apart or until > parent.until + ROUNDING_US or begun > parent.until:
            return None
        placed = Placed(lane, begun, max(begun, min(until, parent.until)))
        parent.reached = placed.until
        self._remember(placed, span_id, thread)
        return placed

    def _remember(self, placed: Placed, span_id: str | None, thread: int | None) -> None:
        self._stacks[placed.lane].append(_Open(placed, span_id, thread))
        if span_id:
            self._open_spans[span_id] = (self, placed.lane)

    def _forget(self, lane: int) -> None:
        gone = self._stacks[lane].pop()
        if gone.span_id and self._open_spans.get(gone.span_id) == (self, lane):
            del self._open_spans[gone.span_id]
