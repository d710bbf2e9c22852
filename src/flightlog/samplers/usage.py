"""What one task used, measured around its execution in this process."""

from __future__ import annotations

import os
import re
import resource
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from threading import get_native_id
from weakref import ref

from flightlog.core import threads
from flightlog.events import Usage
from flightlog.samplers.gpu.task import TaskWatch, begin
from flightlog.samplers.limits import SamplerLimits
from flightlog.samplers.procfs import (
    PROC,
    Blocked,
    OpenFile,
    keyed_value,
    parse_blocked,
    parse_process_io,
    parse_waited_s,
    read_once,
)

_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)
_MAX_RSS_UNIT = 1 if sys.platform == "darwin" else 1024

_MEMORY = re.compile(rb"\nVmHWM:\s+(\d+) kB\nVmRSS:\s+(\d+) kB\n")


class UsageMeter:
    """Measures one task, from `start()` to `stop()`, once; never raises, and costs some 10 µs.

    A process counts for all its threads together, so its CPU time and bytes are a task's only while no other
    meter runs in it. Then `cpu_s` is the process's, with the children waited for meanwhile (`tree`, if they
    used any). If another meter ran at any moment, `cpu_s` is the executing thread's, or None where the task
    ended on another thread than it began on, and bytes are None.

    `thread_cpu_s` and `cpu_wait_s` (ready to run, and waiting for a CPU) are those of the executing thread,
    whatever else runs; what they leave of the duration it was blocked: asleep, or waiting for data, locks or
    the interpreter. So are its switches and faults. They are None where another meter ran on that thread
    meanwhile, inside of this one or beside it: nobody can tell then whose time it was.

    The peak is exact (`process`) if the process's high-water mark rose meanwhile; else the larger of the
    resident sizes at both ends (`process_at_least`). It is that of the largest child that was waited for
    meanwhile, alone (`tree_at_least`), where that had more than this process and all earlier children ever
    did: of a smaller one the kernel does not tell.

    What the blocked time was spent on is told by samples, one at each `look_at_meters`.

    GPUs are measured where there are any: `gpu` begins that, and gives None, at no cost, where there are
    none.

    Any number of meters may run at once in any threads. A meter stopped in a forked child, twice, or without
    a start gives all None.
    """

    _blocked: dict[Blocked, int] | None

    def __init__(self, proc: Path = PROC, gpu: Callable[[], TaskWatch | None] = begin) -> None:
        self._proc, self._begin_gpu = proc, gpu
        self._pid = -1

    def start(self) -> None:
        """The task begins, on this thread."""
        with _lock:
            # Before it is known as running: a signal handler's exception may end the start at any line.
            self._thread, self._native, self._blocked = threads.get_ident(), get_native_id(), None
            # Of two or more running meters each knows already that it is not alone.
            self._shared = _others_of(_running, "_shared", True)
            _running[id(self)] = ref(self)
            here = _on_thread.setdefault(self._thread, {})
            self._alone = not _others_of(here, "_alone", False)
            here[id(self)] = ref(self)
        self._gpu = self._begin_gpu()
        files = _own_files(self._proc)
        process, reads = resource.getrusage(resource.RUSAGE_SELF), files.reads
        self._rss, self._high = files.memory(process)
        self._io = None if self._shared else files.io(process)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._children_s = children.ru_utime + children.ru_stime
        self._children_peak = max_rss_bytes(children)
        self._switches = _thread_counts()
        self._waited_s = files.waited_s(self._switches)
        if files.reads != reads:  # reading is not the task's
            process = resource.getrusage(resource.RUSAGE_SELF)
        self._process_s = process.ru_utime + process.ru_stime
        self._thread_s, self._began = time.thread_time(), time.perf_counter()
        self._pid = os.getpid()  # last: a start that an exception of a signal handler ends is none

    def stop(self) -> Usage:
        """The task is over: what it used."""
        thread_s, ended, switches = time.thread_time(), time.perf_counter(), _thread_counts()
        pid, self._pid = self._pid, -1
        if pid != os.getpid():
            if id(self) in _running:
                self._leave()
            return Usage()
        process = resource.getrusage(resource.RUSAGE_SELF)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        files = _own_files(self._proc)
        same = on_its_thread = self._thread == threads.get_ident()
        waited_s = files.waited_s(switches) if same and self._waited_s is not None else None
        io = None if self._io is None else files.io(process)
        with _lock:  # after the readings: a meter that starts during them still makes this one share
            self._leave()
            shared, same = self._shared, same and self._alone
        rss, high = files.memory(process)
        usage = Usage() if self._gpu is None else self._gpu.stop(shared)
        usage.rss_before_bytes = self._rss
        if same:
            usage.thread_cpu_s = thread_s - self._thread_s
            if switches is not None and (before := self._switches) is not None:
                usage.voluntary_switches = switches[0] - before[0]
                usage.involuntary_switches = switches[1] - before[1]
                usage.major_faults = switches[2] - before[2]
        if same and waited_s is not None and self._waited_s is not None:
            usage.cpu_wait_s = waited_s - self._waited_s
        if same and (seen := self._blocked) is not None:
            busy_s = (usage.thread_cpu_s or 0.0) + (usage.cpu_wait_s or 0.0)
            each_s = max(0.0, ended - self._began - busy_s) / sum(seen.values())
            usage.sleep_s, usage.lock_wait_s = each_s * seen["sleep"], each_s * seen["lock"]
            usage.io_wait_s = each_s * seen["io"]
        if not shared:
            children_s = children.ru_utime + children.ru_stime - self._children_s
            usage.cpu_s = process.ru_utime + process.ru_stime - self._process_s + children_s
            usage.cpu_scope = "tree" if children_s > 0 else "process"
            if io is not None and self._io is not None:
                usage.read_bytes, usage.write_bytes = io[0] - self._io[0], io[1] - self._io[1]
        elif on_its_thread:
            usage.cpu_s, usage.cpu_scope = thread_s - self._thread_s, "thread"
        if high is not None and self._high is not None and high > self._high:
            usage.peak_rss_bytes, usage.rss_scope = high, "process"
        elif sizes := [size for size in (self._rss, rss) if size is not None]:
            usage.peak_rss_bytes, usage.rss_scope = max(sizes), "process_at_least"
        child = max_rss_bytes(children)
        if not shared and high is not None and child > max(high, self._children_peak):
            usage.peak_rss_bytes, usage.rss_scope = child, "tree_at_least"
        return usage

    def look(self) -> None:
        """Take a sample of what the executing thread waits for; from another thread, at any time."""
        if self._pid != os.getpid() or not self._alone:
            return
        try:
            kind = parse_blocked(read_once(f"{self._proc}/self/task/{self._native}/syscall", 256))
        except (OSError, ValueError):
            return
        if kind is not None:
            self._blocked = self._blocked or {"sleep": 0, "lock": 0, "io": 0}
            self._blocked[kind] += 1

    def _leave(self) -> None:
        _running.pop(id(self), None)
        here = _on_thread.get(self._thread)
        if here is not None and here.pop(id(self), None) is not None and not here:
            _on_thread.pop(self._thread, None)

    def __del__(self) -> None:
        # A meter dropped without a stop must not make every later one share.
        if id(self) in _running:
            self._leave()


def running_meters() -> int:
    """How many tasks are being measured in this process."""
    return len(_running)


def look_at_meters() -> None:
    """Take a sample of what the executing thread of each running meter waits for, some where there are many;
    never raises.
    """
    for meter in [other() for other in islice(tuple(_running.values()), SamplerLimits.max_meters_searched)]:
        if meter is not None:
            meter.look()


def _thread_counts() -> tuple[int, int, int] | None:
    """Voluntary and involuntary switches and major faults of this thread; None where nobody tells."""
    if _THREAD is None:
        return None
    counted = resource.getrusage(_THREAD)
    return counted.ru_nvcsw, counted.ru_nivcsw, counted.ru_majflt


def max_rss_bytes(usage: resource.struct_rusage | None = None) -> int:
    """The largest resident memory this process ever had, or the one it was launched from had then; or that a
    process had by the kernel's account of it.
    """
    return (usage or resource.getrusage(resource.RUSAGE_SELF)).ru_maxrss * _MAX_RSS_UNIT


def reset_peak(proc: Path) -> bool:
    """Let the peak of this process's memory start again from what is resident now; whether that is so."""
    return _own_files(proc).reset_peak()


def own_peak_rss_bytes() -> int:
    """The largest resident memory of this program alone: what the kernel's mark of a child begins with."""
    _, high = _own_files(PROC).memory(resource.getrusage(resource.RUSAGE_SELF))
    return max_rss_bytes() if high is None else high


class _OwnFiles:
    """Counters of this process under `/proc`, kept open; threads may share it.

    A file is not read again while a count that the kernel gives at a tenth of the cost says that it reads as
    before. Memory grows by page faults alone; what is freed shows a little later. Bytes are counted in
    blocks, too, and a thread waits for a CPU only after a switch. A kernel that counts no faults is not
    trusted with that.
    """

    __slots__ = (
        *("_io", "_is_real", "_known_io", "_known_memory", "_schedules", "_status", "_threads"),
        "reads",
    )

    def __init__(self, proc: Path) -> None:
        folder = proc / str(os.getpid())
        self.reads = 0
        """How often a file was read."""
        self._is_real = proc == PROC
        self._status = OpenFile(folder / "status", size=8192, unmistakable=True)
        self._known_memory: tuple[tuple[int, int], float, tuple[int | None, int | None]] | None = None
        """What was read, at which numbers of faults, and how long it holds."""
        self._io = OpenFile(folder / "io", size=512, unmistakable=True)
        self._known_io: tuple[tuple[int, int], tuple[int, int]] | None = None
        """What was read, at which numbers of blocks."""
        self._threads = folder / "task"
        self._schedules: dict[int, tuple[OpenFile, tuple[int, int, int] | None, float]] = {}
        """Of each thread its file, and what was read at which counts."""

    def memory(self, process: resource.struct_rusage) -> tuple[int | None, int | None]:
        """Resident memory now, and the most there ever was; `process` is what the kernel counts of it.

        The kernel's `VmHWM`, where it is to be had: `ru_maxrss` also knows the memory of the process that
        this one was launched from.
        """
        known = self._still_known(process)
        if known is not None:
            return known
        self.reads += 1
        try:
            data = self._status.read()
        except OSError:
            return None, max_rss_bytes()
        found = _MEMORY.search(data)
        if found is None:  # another kernel
            return keyed_value(data, b"VmRSS"), keyed_value(data, b"VmHWM")
        made = 1024 * int(found[2]), 1024 * int(found[1])
        if self._is_real and process.ru_minflt:
            until = time.monotonic() + SamplerLimits.memory_reading_holds_s
            self._known_memory = (process.ru_minflt, process.ru_majflt), until, made
        return made

    def _still_known(self, process: resource.struct_rusage) -> tuple[int | None, int | None] | None:
        known = self._known_memory
        if known is None or known[0] != (process.ru_minflt, process.ru_majflt) or time.monotonic() > known[1]:
            return None
        return known[2]

    def reset_peak(self) -> bool:
        """Let the kernel's high-water mark start again from what is resident now; whether that is so."""
        if self._still_known(resource.getrusage(resource.RUSAGE_SELF)) is not None:
            return True  # nothing has grown since it was read
        self._known_memory = None
        try:
            # Never kept: it must not come to mean another file.
            fd = os.open(self._threads.parent / "clear_refs", os.O_WRONLY)
            try:
                return os.write(fd, b"5") == 1
            finally:
                os.close(fd)
        except OSError:
            return False

    def io(self, process: resource.struct_rusage) -> tuple[int, int] | None:
        blocks, known = (process.ru_inblock, process.ru_oublock), self._known_io
        if known is not None and known[0] == blocks:
            return known[1]
        self.reads += 1
        try:
            made = parse_process_io(self._io.read())
        except (OSError, ValueError):
            return None
        if self._is_real and process.ru_minflt:
            self._known_io = blocks, made
        return made

    def waited_s(self, counts: tuple[int, int, int] | None) -> float | None:
        """How long this thread has been ready and waited for a CPU, so far; None where nobody tells. `counts`
        are its switches and faults.
        """
        thread = get_native_id()
        known = self._schedules.get(thread)
        if known is None:
            if len(self._schedules) >= SamplerLimits.max_metered_threads:
                self._schedules = {}  # another thread may be in the middle of it: it keeps what it has
            path = self._threads / str(thread) / "schedstat"
            schedule = OpenFile(path, size=128, unmistakable=True)
        else:
            schedule, before, waited_s = known
            if counts is not None and before == counts and self._is_real:
                return waited_s
        self.reads += 1
        try:
            waited_s = parse_waited_s(schedule.read())
        except (OSError, ValueError):
            self._schedules.pop(thread, None)  # of an earlier thread of this number, perhaps
            return None
        self._schedules[thread] = schedule, counts, waited_s
        return waited_s


def _others_of(meters: dict[int, ref[UsageMeter]], name: str, value: bool) -> bool:
    """Whether there are others, of which a first one learns now that it is not alone.

    Forgets those that an exception of a signal handler cut off, which nobody holds any more; not among many,
    of which each start would look at all.
    """
    if not meters:
        return False
    if len(meters) <= SamplerLimits.max_meters_searched:
        for key in [key for key, other in tuple(meters.items()) if other() is None]:
            meters.pop(key, None)
    if len(meters) == 1:
        for meter in [other() for other in tuple(meters.values())]:
            if meter is not None:
                setattr(meter, name, value)
    return bool(meters)


_lock = threads.Lock()
_running: dict[int, ref[UsageMeter]] = {}
_on_thread: dict[int, dict[int, ref[UsageMeter]]] = {}
_files: dict[Path, _OwnFiles] = {}


def _own_files(proc: Path) -> _OwnFiles:
    """The kept files; made anew after a fork."""
    # Two threads may both make one: the one that loses is closed when its last user lets it go.
    return _files.get(proc) or _files.setdefault(proc, _OwnFiles(proc))


def _start_afresh() -> None:
    """In a forked child: nothing that ran or was open in the parent counts here."""
    global _lock
    _lock = threads.Lock()
    _running.clear()
    _on_thread.clear()
    _files.clear()


os.register_at_fork(after_in_child=_start_afresh)
