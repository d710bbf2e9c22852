"""Processes as the kernel shows them under `/proc`: one reading of one process, and who its children are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from flightlog.core.descriptors import folder_names
from flightlog.samplers.procfs import (
    CLOCK_TICKS,
    DescriptorBudget,
    OpenFile,
    ProcessStat,
    keyed_value,
    parse_process_io,
    parse_process_stat,
    parse_statm_rss,
    read_once,
)

MOST_THREADS_TO_WALK = 256
"""A tree with more threads costs more to walk, thread by thread, than listing all processes does."""

GONE = (FileNotFoundError, ProcessLookupError, NotADirectoryError)


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
        self._budget = DescriptorBudget.for_this_process(max_descriptors)
        self._files: dict[int, tuple[OpenFile, OpenFile, OpenFile]] = {}
        self._loadavg = OpenFile(proc / "loadavg", self._budget, size=256)
        self._newest: bytes | None = None
        self._listed: set[int] = set()
        self._lists_children = True

    def read(self, pid: int) -> ProcessReading | None:
        """The process now, None if there is none. Raises `OSError` or `ValueError` where that is unknown."""
        files = self._files.get(pid)
        if files is None:
            files = self._files[pid] = (
                OpenFile(f"{self._proc}/{pid}/stat", self._budget, size=1024),
                OpenFile(f"{self._proc}/{pid}/statm", self._budget, size=256),
                OpenFile(f"{self._proc}/{pid}/io", self._budget, size=512),
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
        return ProcessReading(
            stat.ppid, stat.start_ticks, stat.own_ticks, stat.waited_ticks, _threads(stat), rss, read, written
        )

    def newcomers(self, members: Mapping[int, ProcessReading]) -> Iterator[tuple[int, ProcessReading]]:
        """Descendants of the members that are no members yet, parents before children."""
        newest = self._newest_number()
        if newest is not None and newest == self._newest:
            return
        self._newest = newest
        listed: Mapping[int, Sequence[int]] | None = None
        if not self._lists_children or sum(one.threads for one in members.values()) > MOST_THREADS_TO_WALK:
            listed = self._children_by_parent()
        known = set(members)
        queue = [(pid, reading.threads) for pid, reading in members.items()]
        for pid, threads in queue:
            for child in self._children(pid, threads) if listed is None else listed.get(pid, ()):
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
                queue.append((pid, threads))

    def _newest_number(self) -> bytes | None:
        try:
            return self._loadavg.read().split()[-1]
        except (OSError, IndexError):
            return None

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


def _threads(stat: ProcessStat) -> int:
    # A process whose first thread has ended may live on in others; one without others is waiting to be
    # reaped.
    return 0 if stat.state in (b"Z", b"X") and stat.threads <= 1 else stat.threads
