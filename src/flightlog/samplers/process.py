"""A worker: one process and everything it started, children that have exited included."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flightlog.core import threads
from flightlog.events.declarations import ResourceSample
from flightlog.samplers.process_table import ProcessReading, ProcTable
from flightlog.samplers.procfs import PROC, long_enough, percent, rate, thread_waited_s

if TYPE_CHECKING:
    from flightlog.samplers.without_proc import PsutilTable

    ProcessTable = ProcTable | PsutilTable

Members = dict[int, ProcessReading]


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
    ) -> None:
        self._given_pid = pid
        self._worker = worker
        self._proc = proc
        self._clock = clock
        self._host = host if host is not None else os.uname().nodename
        self._max_descriptors = max_descriptors
        self._besides = besides
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._own_pid = os.getpid()
        self._root = self._own_pid if self._given_pid is None else self._given_pid
        self._table: ProcessTable | None = None
        self._members: Members = {}
        self._cpus = usable_cpus(self._root)
        self._departed = (Departed(), Departed(), Departed())
        self._peak_rss_bytes = 0
        self._before: tuple[int, int | None, int | None] | None = None
        self._at: float | None = None

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
        if self._before is None and not self._members:
            return []
        at = self._clock()
        members = self._members.values()
        cpu = self._departed[0].total + sum(one.own_cpu + one.waited_cpu for one in members)
        read = _sum([one.read_bytes for one in members], self._departed[1].total)
        written = _sum([one.write_bytes for one in members], self._departed[2].total)
        living = [one for one in members if one.threads > 0]
        rss = sum(one.rss_bytes for one in living) if living else None
        self._peak_rss_bytes = max(self._peak_rss_bytes, rss or 0, self._peak_of_one(table))
        cpu_before, read_before, written_before = self._before or (None, None, None)
        interval = None if self._at is None else at - self._at
        self._before, self._at = (cpu, read, written), at
        cores = rate(cpu, cpu_before, long_enough(interval))
        cores = None if cores is None else cores / table.cpu_units_per_s
        return [
            ResourceSample(
                scope="worker",
                host=self._host,
                worker=self._worker,
                pid=self._root,
                interval_s=interval,
                cpu_percent=percent(cores, self._cpus),
                cpu_cores=cores,
                cpus=self._cpus,
                cpu_s=cpu / table.cpu_units_per_s,
                interpreter_wait_s=waited_s,
                rss_bytes=rss,
                peak_rss_bytes=self._peak_rss_bytes or None,
                processes=len(living),
                threads=sum(one.threads for one in members),
                read_bytes=read,
                write_bytes=written,
                disk_read_bytes_per_s=rate(read, read_before, interval),
                disk_write_bytes_per_s=rate(written, written_before, interval),
            )
        ]

    def _open(self) -> ProcessTable:
        if (self._proc / "stat").exists() or (self._proc / str(self._root)).exists():
            return ProcTable(self._proc, self._max_descriptors)
        from flightlog.samplers.without_proc import PsutilTable

        return PsutilTable(self._root)

    def _look(self, table: ProcessTable) -> None:
        """Bring the members up to date, parents before children; the ledgers rely on this order."""
        apart = set(self._besides())
        before = self._members = _without(self._members, apart, table)
        if not before and self._before is None:
            first = _read(table, self._root, None)
            before = {} if first is None else {self._root: first}
        now: Members = {}
        for pid, last in before.items():
            reading = _read(table, pid, last)
            if reading is not None:
                now[pid] = reading
        if len(now) < len(before) or any(ledger.has_open for ledger in self._departed):
            self._settle(before, now)
        if now:
            now.update(_without(dict(table.newcomers(now)), apart, table))
        self._members = now

    def _settle(self, before: Members, now: Members) -> None:
        heirs = {pid: _heir(pid, before, now) for pid in before if pid not in now}
        used = (
            {pid: before[pid].own_cpu + before[pid].waited_cpu for pid in heirs},
            {pid: before[pid].read_bytes or 0 for pid in heirs},
            {pid: before[pid].write_bytes or 0 for pid in heirs},
        )
        fresh = [(pid, one, before[pid]) for pid, one in now.items() if one is not before[pid]]
        gains: tuple[dict[int, int | None], ...] = (
            {pid: one.waited_cpu - last.waited_cpu for pid, one, last in fresh},
            {pid: _gain(one.read_bytes, last.read_bytes) for pid, one, last in fresh},
            {pid: _gain(one.write_bytes, last.write_bytes) for pid, one, last in fresh},
        )
        for ledger, amounts, gained in zip(self._departed, used, gains, strict=True):
            claims: dict[int | None, int] = {}
            for pid, heir in heirs.items():
                claims[heir] = claims.get(heir, 0) + amounts[pid]
            ledger.look(heirs, claims, gained)

    def _peak_of_one(self, table: ProcessTable) -> int:
        if len(self._members) != 1 or self._root not in self._members:
            return 0
        return table.peak_rss_bytes(self._root) or 0

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


PROBES, PROBE_S = 3, 0.0005


def interpreter_wait_s() -> float | None:
    """How long this thread waits for the interpreter when it wakes up, on average of a few tries.

    A thread that computes in Python gives the interpreter up after the switch interval of 5 ms, so that this
    is some milliseconds for each of them, and next to nothing where threads wait or compute outside of
    Python. What was waiting for a CPU is not counted; None where the kernel does not tell it.
    """
    found = 0.0
    for _ in range(PROBES):
        queued, at = thread_waited_s(), time.perf_counter()
        threads.sleep(PROBE_S)
        passed, still_queued = time.perf_counter() - at, thread_waited_s()
        if queued is None or still_queued is None:
            return None
        found += max(0.0, passed - PROBE_S - (still_queued - queued))
    return found / PROBES


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
