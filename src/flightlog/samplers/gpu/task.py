"""GPU usage of one task, measured while it executes in this process, or in a process tree below it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple
from weakref import WeakValueDictionary

from flightlog.core import threads
from flightlog.events import Usage
from flightlog.samplers.frameworks import figure, statistics
from flightlog.samplers.gpu.driver import (
    Depth,
    DriverFound,
    GpuDriver,
    find_driver,
    may_have_gpu,
    tree_memory,
)
from flightlog.samplers.limits import SamplerLimits
from flightlog.samplers.procfs import PROC


class GpuWatch:
    """Looks at the GPUs up to ten times a second while any task runs, on a thread of its own; asleep between
    tasks.

    Any number of tasks may run at once, in any threads. The driver is opened on the watching thread and asked
    there alone: one that hangs holds no task up. Starting a task costs no question to it; the end of a task
    of 50 ms and more waits for a last look, 50 ms at most, and no other one for a driver that took longer
    until it answers. `modules` are the modules that the program has imported: PyTorch's allocator is asked if
    it is among them and has a GPU open, and is never reset. `spawn` runs the watching elsewhere than on a
    daemon thread, or not at all: the end of a task then looks by itself.
    """

    def __init__(
        self,
        find: Callable[[], DriverFound] = find_driver,
        clock: Callable[[], float] = time.monotonic,
        modules: Mapping[str, Any] | None = None,
        proc: Path = PROC,
        spawn: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._find, self.clock, self._proc = find, clock, proc
        self._modules: Mapping[str, Any] = sys.modules if modules is None else modules
        self._driver: GpuDriver | None = None
        self._running: WeakValueDictionary[int, TaskWatch] = WeakValueDictionary()
        self._wanted = threads.Condition()
        self._looking = threads.Lock()
        self._spawn = spawn or (lambda watch: threads.Thread(target=watch, name="flightlog-gpu-task").start())
        self._spawned = False
        self._looks_itself = spawn is None
        self._hurry = threads.Event()
        self._hangs = False
        self._looked = -inf

    def begin(self, root: int | None = None) -> TaskWatch:
        """A task begins: in this process, or in the tree of the process `root`. Never raises."""
        marks = allocator_marks(self._modules) if root is None else None
        task = TaskWatch(self, os.getpid() if root is None else root, marks, root is None)
        with self._wanted:
            self._running[id(task)] = task
            if not self._spawned:
                with suppress(RuntimeError):  # no more threads, or the interpreter is about to end
                    self._spawn(self._watch)
                    self._spawned = True
            elif len(self._running) == 1:
                self._wanted.notify()
        return task

    def finish(self, task: TaskWatch) -> Marks | None:
        """The task is over: look a last time, and give the allocator's marks."""
        wait_s = SamplerLimits.min_duration_for_last_reading_s
        if self._driver is not None and self.clock() - task.began >= wait_s:
            if self._looks_itself:
                task.seen.clear()
                self._hurry.set()
                if not self._hangs:
                    self._hangs = not task.seen.wait(wait_s)
            else:
                self.look()
        with self._wanted:
            self._running.pop(id(task), None)
        return allocator_marks(self._modules) if task.own else None

    def open(self) -> None:
        """Open the driver; the watching thread does this first."""
        self._driver = self._find().driver

    def look(self) -> None:
        """Look now, for all tasks that run."""
        with self._wanted:
            tasks = list(self._running.values())
        with self._looking:
            driver = self._driver
            if driver is None or not tasks:
                return
            at = self.clock()
            rare = at - self._looked >= SamplerLimits.min_interval_for_task_gpu_history_s
            depth = Depth.BUSY | Depth.HISTORY if rare else Depth.BUSY
            self._looked = at
            readings = [driver.read(device, depth) for device in driver.devices()]
            self._hangs = False
            for task in tasks:
                task.see(at, readings, self._proc)

    def _watch(self) -> None:
        self.open()
        while self._driver is not None:
            with self._wanted:
                while not self._running:
                    self._wanted.wait()
            began = time.monotonic()
            self.look()
            rest_s = SamplerLimits.task_gpu_rest_factor * (time.monotonic() - began)
            self._hurry.wait(max(SamplerLimits.task_gpu_interval_s, rest_s))
            self._hurry.clear()


class TaskWatch:
    """One task, from `GpuWatch.begin` to `stop`."""

    def __init__(self, watch: GpuWatch, root: int, marks: Marks | None, own: bool) -> None:
        self._watch, self.root, self._marks, self.own = watch, root, marks, own
        self.began = self._at = watch.clock()
        self._process_bytes: int | None = None
        self._device_bytes: int | None = None
        self._busy_s: float | None = None
        self._there, self._others = False, False
        self._lock = threads.Lock()
        self.seen = threads.Event()

    def see(self, at: float, readings: list[Any], proc: Path) -> None:
        """Take what the driver says at this moment."""
        with self._lock:
            passed, self._at = max(0.0, at - self._at), at
            for reading in readings:
                tree = tree_memory(reading.processes, self.root, proc)
                self._process_bytes = _larger(self._process_bytes, tree.used_bytes)
                self._device_bytes = _larger(self._device_bytes, reading.memory_used_bytes)
                percent = reading.utilization_over(passed)
                if percent is not None:
                    self._busy_s = (self._busy_s or 0.0) + percent / 100 * passed
                    if percent > 0:
                        self._others |= tree.others
                self._there |= tree.there
        self.seen.set()

    def stop(self, shared: bool = False) -> Usage:
        """What the task used of the GPUs, and nothing else. `shared` says that other tasks ran in this
        process meanwhile: then whose kernels ran cannot be told, and `gpu_s` is None.
        """
        used = Usage()
        peak = peak_between(self._marks, self._watch.finish(self))
        if peak is not None:
            used.gpu_peak_bytes, used.gpu_memory_scope = peak
        elif self._process_bytes is not None:
            used.gpu_peak_bytes, used.gpu_memory_scope = self._process_bytes, "process"
        elif self._device_bytes is not None:
            used.gpu_peak_bytes, used.gpu_memory_scope = self._device_bytes, "device"
        is_short = self._at - self.began < SamplerLimits.min_duration_for_utilization_s
        if not shared and not is_short and self._busy_s is not None:
            used.gpu_s = self._busy_s
            used.gpu_scope = "process" if self._there and not self._others else "device"
        return used


def _larger(one: int | None, other: int | None) -> int | None:
    return max((size for size in (one, other) if size is not None), default=None)


_watch: GpuWatch | None = None
_looked = False


def begin(root: int | None = None) -> TaskWatch | None:
    """Measure a task from now on; None, at no cost, where this process has no GPU. Never raises."""
    global _looked, _watch
    if not _looked:
        _watch, _looked = (GpuWatch() if may_have_gpu() else None), True
    return None if _watch is None else _watch.begin(root)


def _start_afresh() -> None:
    """In a forked child: the parent's watch has no thread here; a child finds a GPU for itself."""
    global _looked, _watch
    _watch, _looked = None, False


os.register_at_fork(after_in_child=_start_afresh)


class Mark(NamedTuple):
    """Memory handed out on one device: now, and at most since the mark was last reset."""

    current: int
    peak: int


Marks = tuple[Mark, ...]
"""By the ordinal of the device."""


def allocator_marks(modules: Mapping[str, Any]) -> Marks | None:
    """The marks of each device; None where the program has not imported PyTorch or opened a GPU with it.

    Costs some 20 µs a device. Never raises, imports nothing and opens no device.
    """
    torch = modules.get("torch")
    if torch is None:
        return None
    try:
        cuda = torch.cuda
        if not cuda.is_initialized():
            return None
        found = []
        for ordinal in range(cuda.device_count()):
            stats = statistics(cuda, ordinal)
            held, peak = (figure(stats, "allocated_bytes", which) for which in ("current", "peak"))
            if held is None or peak is None:
                return None
            found.append(Mark(held, peak))
        return tuple(found)
    except Exception:  # noqa: BLE001 - half imported, or with an allocator that keeps no figures
        return None


def peak_between(
    before: Marks | None, after: Marks | None
) -> tuple[int, Literal["allocator", "allocator_at_least"]] | None:
    """The largest memory handed out on one device between two looks, and whether it was at least this, as the
    mark was higher already; None where nothing is known to have been handed out.

    No mark before means that PyTorch had no GPU open yet. A mark that rose is the peak itself. One that did
    not is an upper bound, and what was held at the ends a lower one. One that fell was reset in between.
    """
    if after is None:
        return None
    largest = highest_possible = 0
    for place, end in enumerate(after):
        start = before[place] if before is not None and place < len(before) else Mark(0, 0)
        if end.peak > start.peak:
            least, most = end.peak, end.peak
        elif end.peak < start.peak:
            least, most = max(start.current, end.peak), start.peak
        else:
            least, most = max(start.current, end.current), end.peak
        largest, highest_possible = max(largest, least), max(highest_possible, most)
    if largest <= 0:
        return None
    return largest, "allocator" if largest >= highest_possible else "allocator_at_least"
