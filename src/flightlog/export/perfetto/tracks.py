"""The rows of a trace: processes and threads with their names and their order."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any

from flightlog.export.perfetto.lanes import Lanes

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
