"""A worker: one process and everything it started, children that have exited included; and the table of
processes that the kernel shows under `/proc`.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from flightlog.core import threads
from flightlog.core.descriptors import folder_names
from flightlog.events.declarations import ResourceSample
from flightlog.samplers.limits import SamplerLimits
from flightlog.samplers.procfs import (
    CLOCK_TICKS,
    PROC,
    OpenFile,
    keyed_value,
    long_enough,
    parse_process_io,
    parse_process_stat,
    parse_statm_rss,
    parse_waited_s,
    percent,
    rate,
    read_once,
    thread_waited_s,
)

if TYPE_CHECKING:
    from flightlog.samplers.without_proc import PsutilTable

ProcessTable: TypeAlias = "ProcTable | PsutilTable"

GONE = (FileNotFoundError, ProcessLookupError, NotADirectoryError)
_FILES = {"stat": 1024, "statm": 256, "io": 512, "schedstat": 128}
"""What is read of each process, and how long that is at most."""


class ProcessReading(NamedTuple):
    """One process at one moment. CPU times are in the table's units; None is unknown."""

    ppid: int
    start: float
    """With the pid, its identity: a later process of the same number started at another time."""
    own_cpu: int
    waited_cpu: int
    """CPU time of the descendants it has waited for."""
    threads: int
    """0 for a process that has ended and waits to be waited for."""
    rss_bytes: int
    read_bytes: int | None
    write_bytes: int | None


class ProcTable:
    """The table under `/proc`, with at most `max_descriptors` kept open; the rest is opened for each reading.

    Every method copes with processes that vanish at any moment.

    New processes are looked for only when the kernel has given out a process number since the last look.
    Where the kernel lists the children of each thread, the tree is walked, otherwise, or where it has very
    many threads, all processes are listed and the new ones asked for their parent.
    """

    cpu_units_per_s = CLOCK_TICKS

    def __init__(self, proc: Path, max_descriptors: int) -> None:
        self._proc = str(proc)
        # Never so many that the user's program runs out of its own.
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = max_descriptors if soft == resource.RLIM_INFINITY else min(max_descriptors, soft // 8)
        self._max_kept_processes = (most - 1) // len(_FILES)
        self._files: dict[int, tuple[OpenFile, ...]] = {}
        self._loadavg = OpenFile(proc / "loadavg", size=256, kept=most > 0)
        self._newest: bytes | None = None
        self._listed: set[int] = set()
        self._lists_children = True

    def read(self, pid: int) -> ProcessReading | None:
        """The process now, None if there is none. Raises `OSError` or `ValueError` where that is unknown."""
        files = self._files.get(pid)
        if files is None:
            kept = len(self._files) < self._max_kept_processes
            files = self._files[pid] = tuple(
                OpenFile(f"{self._proc}/{pid}/{name}", size=size, kept=kept) for name, size in _FILES.items()
            )
        try:
            stat = parse_process_stat(files[0].read())
            rss = parse_statm_rss(files[1].read())
        except GONE:
            self.forget(pid)
            return None
        except ValueError:
            self.forget(pid)  # somebody closed our descriptors and the numbers mean other files now
            raise
        if stat.pid != pid:
            self.forget(pid)
            raise ValueError(f"the stat line of process {pid} tells of process {stat.pid}")
        read: int | None = None
        written: int | None = None
        try:
            read, written = parse_process_io(files[2].read())
        except ProcessLookupError:
            self.forget(pid)
            return None
        except (OSError, ValueError):
            pass  # another user's process, or a kernel that does not count I/O: unknown
        # A process whose first thread has ended may live on in others; one without others is waiting to be
        # reaped.
        threads = 0 if stat.state in (b"Z", b"X") and stat.threads <= 1 else stat.threads
        return ProcessReading(
            stat.ppid, stat.start_ticks, stat.own_ticks, stat.waited_ticks, threads, rss, read, written
        )

    def newcomers(self, members: Mapping[int, ProcessReading]) -> Iterator[tuple[int, ProcessReading]]:
        """Descendants of the members that are no members yet, parents before children."""
        try:
            newest = self._loadavg.read().split()[-1]
        except (OSError, IndexError):
            newest = None
        if newest is not None and newest == self._newest:
            return
        self._newest = newest
        listed: Mapping[int, Sequence[int]] | None = None
        threads_of_all = sum(one.threads for one in members.values())
        if not self._lists_children or threads_of_all > SamplerLimits.max_walked_threads:
            listed = self._children_by_parent()
        known = set(members)
        queue = [(pid, reading.threads) for pid, reading in members.items()]
        for pid, running in queue:
            for child in self._children(pid, running) if listed is None else listed.get(pid, ()):
                if child in known:
                    continue
                try:
                    reading = self.read(child)
                except (OSError, ValueError):
                    self._newest = None  # not now: look for it again next time
                    continue
                # Between the list and the reading the number may have passed to a stranger.
                if reading is None or reading.ppid not in known:
                    self.forget(child)
                    continue
                known.add(child)
                queue.append((child, reading.threads))
                yield child, reading
            if listed is None and not self._lists_children:
                listed = self._children_by_parent()
                queue.append((pid, running))

    def _children(self, pid: int, threads: int) -> list[int]:
        """From the kernel's lists, one of each thread: children belong to the thread that started them."""
        task = f"{self._proc}/{pid}/task"
        try:
            names = [str(pid)] if threads <= 1 else folder_names(task)
        except GONE:
            return []
        except OSError:
            self._newest = None
            return []
        found: list[int] = []
        for name in names:
            try:
                found += map(int, read_once(f"{task}/{name}/children", records=True).split())
            except ProcessLookupError:
                continue
            except FileNotFoundError:
                # Either the thread has ended or this kernel keeps no such lists.
                # Called for every process.
                is_there = os.path.isdir(f"{task}/{name}")  # noqa: PTH112
                self._lists_children = self._lists_children and not is_there
            except (OSError, ValueError):
                self._newest = None
        return found

    def _children_by_parent(self) -> dict[int, list[int]]:
        """The processes that were not there at the last listing, by parent."""
        children: dict[int, list[int]] = {}
        try:
            names = folder_names(self._proc)
        except OSError:
            self._newest = None
            return children
        present = {int(name) for name in names if name.isdecimal()}
        for pid in sorted(present - self._listed):
            try:
                ppid = parse_process_stat(read_once(f"{self._proc}/{pid}/stat", 1024)).ppid
            except GONE:
                continue
            except (OSError, ValueError):
                present.discard(pid)
                self._newest = None
                continue
            children.setdefault(ppid, []).append(pid)
        self._listed = present
        return children

    def peak_rss_bytes(self, pid: int) -> int | None:
        """`VmHWM` of one process."""
        try:
            return keyed_value(read_once(f"{self._proc}/{pid}/status"), b"VmHWM")
        except (OSError, ValueError):
            return None

    def cpu_wait_s(self, pid: int) -> float | None:
        """How long the main thread of one process was ready to run and waited for a CPU, so far."""
        try:
            return parse_waited_s(self._files[pid][-1].read())
        except (KeyError, OSError, ValueError):
            return None

    def forget(self, pid: int) -> None:
        """The process left: let its descriptors go."""
        for kept in self._files.pop(pid, ()):
            kept.close()

    def close(self) -> None:
        """Let all descriptors go; the next reading opens them again."""
        self._loadavg.close()
        for files in self._files.values():
            for kept in files:
                kept.close()


Members = dict[int, ProcessReading]
_Amount = Callable[[ProcessReading], int | None]
_LEDGERS: tuple[tuple[_Amount, _Amount], ...] = (
    (lambda one: one.own_cpu + one.waited_cpu, lambda one: one.waited_cpu),
    (lambda one: one.read_bytes, lambda one: one.read_bytes),
    (lambda one: one.write_bytes, lambda one: one.write_bytes),
)
"""Of CPU time, and of bytes read and written: what a process used, and where a parent's grows by it."""
_NEVER = ResourceSample(scope="worker", host=None, cpu_percent=None)
"""In the place of an earlier sample, where there is none."""


class ProcessSampler:
    """Samples the process tree of `pid`, in scope `worker`; by default of the process that calls `sample`.

    `cpu_percent` is of the cores that the root process may run on. `cpu_s` is the CPU time of every process
    of the tree so far: of those that live, of those they waited for, and of those that left unwaited for (see
    `departed`). A descendant whose parent died stays in the tree as long as it lives. `rss_bytes` sums
    resident memory, in which pages that processes share count in each. `peak_rss_bytes` is the largest sum
    seen, or the kernel's own mark where the tree is one process. Bytes are what reached storage; they are
    None while any process of the tree hides its counters. A tree that is gone altogether is sampled as 0
    processes of unknown memory, with its totals; a pid that was never there gives no sample.

    `besides` names processes that are no part of the tree, with all they start, though the kernel made them
    children of a member: what was started beside the run becomes a child of the program that is process 1 of
    its container.

    `workers` names worker processes by pid: of each that is in the tree follows a sample in scope
    `worker_process`, of it and the living processes below it, which is a part of the first sample.

    At most `max_descriptors` are kept open, and never more than an eighth of the process's limit. Where there
    is no `/proc`, psutil is asked. One thread at a time; after a fork the child starts afresh.
    """

    def __init__(
        self,
        pid: int | None = None,
        *,
        worker: str | None = None,
        proc: Path = PROC,
        clock: Callable[[], float] = time.monotonic,
        host: str | None = None,
        max_descriptors: int = 128,
        besides: Callable[[], Collection[int]] = tuple,
        workers: Callable[[], Mapping[int, str]] = dict,
    ) -> None:
        self._given_pid, self._worker, self._proc, self._clock = pid, worker, proc, clock
        self._host = host if host is not None else os.uname().nodename
        self._max_descriptors, self._besides, self._workers = max_descriptors, besides, workers
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._own_pid = os.getpid()
        self._root = self._own_pid if self._given_pid is None else self._given_pid
        self._table: ProcessTable | None = None
        self._members: Members = {}
        self._cpus = usable_cpus(self._root)
        self._departed = (Departed(), Departed(), Departed())
        self._before: dict[int, ResourceSample] = {}
        """The last sample of the tree, and those of worker processes, by the process at the root."""
        self._at: float | None = None
        self._waits: dict[int, float] = {}
        """What each process of the tree has waited for a CPU, but for the root."""
        self._children_waited: float | None = None

    def sample(self) -> Sequence[ResourceSample]:
        """The tree since the previous call."""
        return self._sampled(interpreter_wait_s() if self._given_pid in {None, os.getpid()} else None)

    def last_sample(self) -> Sequence[ResourceSample]:
        """The tree since the previous call, without a look at the interpreter: the program waits for it."""
        return self._sampled(None)

    def _sampled(self, waited_s: float | None) -> Sequence[ResourceSample]:
        if self._own_pid != os.getpid():
            self._start_afresh()
        if self._table is None:
            self._table = self._open()
        table = self._table
        self._look(table)
        if not self._before and not self._members:
            return []
        at = self._clock()
        interval = None if self._at is None else at - self._at
        last = self._before.get(self._root) or _NEVER
        departed = [ledger.total for ledger in self._departed]
        whole = self._sample_of(table, self._root, list(self._members.values()), interval, *departed)
        whole.scope, whole.worker, whole.interpreter_wait_s = "worker", self._worker, waited_s
        whole.children_cpu_wait_s = self._wait_of_children(table)
        if list(self._members) == [self._root]:
            whole.peak_rss_bytes = (
                max(whole.peak_rss_bytes or 0, table.peak_rss_bytes(self._root) or 0) or None
            )
        whole.disk_read_bytes_per_s = rate(whole.read_bytes, last.read_bytes, interval)
        whole.disk_write_bytes_per_s = rate(whole.write_bytes, last.write_bytes, interval)
        samples = [whole, *self._worker_samples(table, interval)]
        self._before, self._at = {one.pid or 0: one for one in samples}, at
        return samples

    def _wait_of_children(self, table: ProcessTable) -> float | None:
        """How long processes below the root have waited for a CPU since the first sample, those that are gone
        included up to the sample before; None where there was none, or nobody tells.
        """
        waits: dict[int, float] = {}
        for pid in self._members:
            waited = table.cpu_wait_s(pid) if pid != self._root else None
            if waited is not None:
                waits[pid] = waited
                before = self._waits.get(pid, waited if self._at is None else 0.0)
                self._children_waited = (self._children_waited or 0.0) + max(0.0, waited - before)
        self._waits = waits
        return self._children_waited

    def _worker_samples(self, table: ProcessTable, interval: float | None) -> Iterator[ResourceSample]:
        """Each worker process of the tree with the processes below it, some of them where there are many."""
        names = dict(islice(self._workers().items(), SamplerLimits.max_sampled_workers))
        home: dict[int, int] = {}
        parts: dict[int, list[ProcessReading]] = {}
        for pid, one in self._members.items() if names else ():  # parents stand before children
            worker = pid if pid in names and pid != self._root else home.get(one.ppid)
            if worker is not None:
                home[pid] = worker
                parts.setdefault(worker, []).append(one)
        for pid, members in parts.items():
            sample = self._sample_of(table, pid, members, interval if pid in self._before else None)
            sample.worker = names[pid]
            yield sample

    def _sample_of(
        self,
        table: ProcessTable,
        pid: int,
        members: Sequence[ProcessReading],
        interval: float | None,
        cpu: int = 0,
        read: int = 0,
        written: int = 0,
    ) -> ResourceSample:
        """These processes and what others have left behind: CPU time in the table's units, and bytes."""
        last = self._before.get(pid) or _NEVER
        cpu_s = (cpu + sum(one.own_cpu + one.waited_cpu for one in members)) / table.cpu_units_per_s
        cores = rate(cpu_s, last.cpu_s, long_enough(interval))
        living = [one for one in members if one.threads > 0]
        rss = sum(one.rss_bytes for one in living) if living else None
        return ResourceSample(
            scope="worker_process",
            host=self._host,
            pid=pid,
            interval_s=interval,
            cpu_percent=percent(cores, self._cpus),
            cpu_cores=cores,
            cpus=self._cpus,
            cpu_s=cpu_s,
            cpu_wait_s=table.cpu_wait_s(pid),
            rss_bytes=rss,
            peak_rss_bytes=max(rss or 0, last.peak_rss_bytes or 0) or None,
            processes=len(living),
            threads=sum(one.threads for one in members),
            read_bytes=_sum([one.read_bytes for one in members], read),
            write_bytes=_sum([one.write_bytes for one in members], written),
        )

    def _open(self) -> ProcessTable:
        if (self._proc / "stat").exists() or (self._proc / str(self._root)).exists():
            return ProcTable(self._proc, self._max_descriptors)
        from flightlog.samplers.without_proc import PsutilTable

        return PsutilTable(self._root)

    def _look(self, table: ProcessTable) -> None:
        """Bring the members up to date, parents before children; the ledgers rely on this order."""
        apart = set(self._besides())
        before = self._members = _without(self._members, apart, table)
        if not before and not self._before:
            first = _read(table, self._root, None)
            before = {} if first is None else {self._root: first}
        readings = ((pid, _read(table, pid, last)) for pid, last in before.items())
        now: Members = {pid: reading for pid, reading in readings if reading is not None}
        if len(now) < len(before) or any(ledger.open_claims for ledger in self._departed):
            self._settle(before, now)
        if now:
            now.update(_without(dict(table.newcomers(now)), apart, table))
        self._members = now

    def _settle(self, before: Members, now: Members) -> None:
        heirs = {pid: _heir(pid, before, now) for pid in before if pid not in now}
        fresh = [(pid, one, before[pid]) for pid, one in now.items() if one is not before[pid]]
        for ledger, (used, taken_over) in zip(self._departed, _LEDGERS, strict=True):
            claims: dict[int | None, int] = {}
            for pid, heir in heirs.items():
                claims[heir] = claims.get(heir, 0) + (used(before[pid]) or 0)
            gains = {pid: _gain(taken_over(one), taken_over(last)) for pid, one, last in fresh}
            ledger.look(heirs, claims, gains)

    def close(self) -> None:
        """Let descriptors go; the next sample opens them again."""
        if self._table is not None:
            self._table.close()


def _without(members: Members, apart: set[int], table: ProcessTable) -> Members:
    """The members less these and all that came from them; parents stand before children."""
    if not apart:
        return members
    apart, found = set(apart), {}
    for pid, reading in members.items():
        if pid in apart or reading.ppid in apart:
            apart.add(pid)
            table.forget(pid)
        else:
            found[pid] = reading
    return found


def _read(table: ProcessTable, pid: int, last: ProcessReading | None) -> ProcessReading | None:
    """The process now; its last reading where it cannot be told now; None where it is gone or another's."""
    try:
        reading = table.read(pid)
    except (OSError, ValueError):
        return last  # out of descriptors, say: taking it for gone would count it again when it comes back
    if reading is not None and last is not None and reading.start != last.start:
        table.forget(pid)
        return None
    return reading


def _heir(pid: int, before: Members, now: Members) -> int | None:
    """The nearest ancestor that is still there; None where the chain leaves the tree."""
    for _ in before:  # as many steps as there are members: stale readings might go round in a circle
        if pid in now or pid not in before:
            break
        pid = before[pid].ppid
    return pid if pid in now else None


def _gain(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before


def _sum(values: Sequence[int | None], departed: int) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) + departed if len(known) == len(values) else None


def interpreter_wait_s() -> float | None:
    """How long this thread waits for the interpreter when it wakes up, on average of a few tries.

    A thread that computes in Python gives the interpreter up after the switch interval of 5 ms, so that this
    is some milliseconds for each of them, and next to nothing where threads wait or compute outside of
    Python. What was waiting for a CPU is not counted; None where the kernel does not tell it, and while the
    switch interval is shorter than that, as where a run begins or ends.
    """
    if sys.getswitchinterval() < SamplerLimits.min_switch_interval_s:
        return None
    found = 0.0
    for _ in range(SamplerLimits.interpreter_probes):
        queued, at = thread_waited_s(), time.perf_counter()
        threads.sleep(SamplerLimits.interpreter_probe_s)
        passed, still_queued = time.perf_counter() - at, thread_waited_s()
        if queued is None or still_queued is None:
            return None
        found += max(0.0, passed - SamplerLimits.interpreter_probe_s - (still_queued - queued))
    return found / SamplerLimits.interpreter_probes


def usable_cpus(pid: int) -> int | None:
    """The cores that a process may run on; the machine's where nobody tells."""
    try:
        return len(os.sched_getaffinity(pid))
    except (AttributeError, OSError):  # not on this system, or gone
        return os.cpu_count()


class Departed:
    """What processes that left a tree had used, and no survivor has taken over: one quantity (CPU time, bytes
    read, bytes written), in whole units; not thread-safe.

    A parent that waits for a child takes the child's counters over: the kernel adds the child's CPU time to
    the parent's `cutime` and its I/O to the parent's own. A child whose parent ignores its death, or died
    before it, hands its counters to nobody in the tree, and a sum over the living would fall. The kernel does
    not say which of the two happened, so it is worked out from sums:

    - a child that left *claims* what it was last seen to have used, from its nearest surviving ancestor;
    - that ancestor's counter has *gained* something since the previous look;
    - what the gain does not cover was taken over by nobody, and is kept here.

    Parents are read before their children, so a child may be gone although its parent, read a moment earlier,
    had not yet waited for it. A claim therefore stays open for one more look before it is settled for good.
    The oldest claims are met first; a gain that in truth came from a child never seen can only make the kept
    sum too small. The result never counts a second twice, never falls, and is exact where every child is
    either waited for or not.
    """

    __slots__ = ("_settled", "open_claims")

    def __init__(self) -> None:
        self._settled = 0
        self.open_claims: dict[int, int] = {}
        """Claims that wait for the next look, by the process they are on."""

    @property
    def total(self) -> int:
        """What is kept, open claims included."""
        return self._settled + sum(self.open_claims.values())

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
        bequests = [(heirs[left], self.open_claims.pop(left)) for left in heirs if left in self.open_claims]
        for heir, amount in [*claims.items(), *bequests]:
            if heir is None:
                self._settled += amount
            else:
                fresh[heir] = fresh.get(heir, 0) + amount
        still_open: dict[int, int] = {}
        for parent in self.open_claims.keys() | fresh.keys():
            old, new = self.open_claims.get(parent, 0), fresh.get(parent, 0)
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
        self.open_claims = still_open
