"""The kernel's small text files: kept open, read whole, parsed strictly; and counters turned into rates.

Every parser takes the file's bytes and raises `ValueError` on anything it cannot understand; whoever reads
decides what an unknown value means.

psutil is asked where there is no `/proc`, and not here, for two reasons. It opens each file anew, at the
lowest free number: a program that closes all descriptors meanwhile, and opens files of its own, would have
one of those read and closed. And it takes about four times as long for the node, and more for each process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from flightlog.core.descriptors import Descriptor
from flightlog.samplers.limits import SamplerLimits

PROC = Path("/proc")
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
"""Units of CPU time in a second, in `/proc`."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SECTOR_BYTES = 512
"""Unit of `/proc/diskstats`, whatever the disk's own sectors are."""

# Devices that stand on other disks of the list, or on none: counting them counts bytes twice, or memory as
# disk.
_STACKED_DISK = re.compile(
    r"loop\d|ram\d|zram\d|dm-\d|md\d|md_|sr\d|fd\d|bcache\d|drbd\d|zd\d|nvme\d+c\d+n\d"
)
# Interfaces whose traffic passes through another of the list as well, or stays on this node.
_STACKED_INTERFACE = re.compile(
    r"lo$|ifb\d|veth|docker\d|br-|virbr|cni|flannel|cali|bond\d|team\d|dummy\d|tun\d|tap\d|wg\d|.+\.\d+$"
)


def read_whole(fd: int, size: int, *, records: bool = False) -> bytes:
    """Everything behind a descriptor, from its start; `size` is more than it mostly says.

    `records` is for files the kernel writes record by record (a line for each disk, a word for each child):
    it hands them out a page at a time, so that only an empty read tells the end.
    """
    return _with_rest(os.pread(fd, size, 0), fd, size, records)


def _with_rest(data: bytes, fd: int, size: int, records: bool) -> bytes:
    if data and (records or len(data) >= size):
        while len(data) < SamplerLimits.max_kernel_file_bytes and (more := os.pread(fd, 65536, len(data))):
            data += more
    return data


def read_once(path: str, size: int = 4096, *, records: bool = False) -> bytes:
    """The content of a file, without keeping it open; raises `OSError`."""
    file = Descriptor.open(path)
    try:
        return read_whole(file.number, size, records=records)
    finally:
        file.close(just_opened=True)


class OpenFile:
    """A file the kernel makes up at each read, kept open between reads unless it is not to be `kept`.

    `read` gives the whole content or raises `OSError`: `FileNotFoundError` or `ProcessLookupError` where what
    the file told of is gone, anything else where it cannot be read now. Threads may share it.

    `unmistakable` is for files whose content no other file has that Flightlog keeps: a check of the
    descriptor that hands over the interpreter once less is enough for them.
    """

    __slots__ = ("_descriptor", "_kept", "_path", "_records", "_size", "_unmistakable")

    def __init__(
        self,
        path: str | Path,
        *,
        size: int = 4096,
        records: bool = False,
        unmistakable: bool = False,
        kept: bool = True,
    ) -> None:
        self._path, self._size, self._records = str(path), size, records
        self._unmistakable, self._kept = unmistakable, kept
        self._descriptor: Descriptor | None = None

    def read(self) -> bytes:
        """What the file says now."""
        kept = self._descriptor
        if kept is not None:
            try:
                if self._unmistakable:
                    return _with_rest(kept.read_start(self._size), kept.number, self._size, self._records)
                return read_whole(kept.fd, self._size, records=self._records)
            except ProcessLookupError:
                self.close()
                raise
            except OSError:
                self.close()  # closed by the program, perhaps: open it again
        if not self._kept:
            return read_once(self._path, self._size, records=self._records)
        kept = Descriptor.open(self._path)
        data = read_whole(kept.fd, self._size, records=self._records)
        self._descriptor = kept
        return data

    def close(self) -> None:
        """Let the descriptor go; the next `read` opens the file again."""
        kept, self._descriptor = self._descriptor, None
        if kept is not None:
            kept.close()


class ProcessStat(NamedTuple):
    """`/proc/<pid>/stat`, as far as we need it. CPU times are in clock ticks."""

    pid: int
    state: bytes
    ppid: int
    own_ticks: int
    """User and system time of all its threads, ended ones included."""
    waited_ticks: int
    """The same of the children it has waited for, and of those they had waited for."""
    threads: int
    start_ticks: int
    """When it started, since boot: with the pid, its identity."""


def parse_process_stat(data: bytes) -> ProcessStat:
    """The fields of a stat line. The program's name may hold spaces and parentheses: the last one ends it."""
    name_end = data.rfind(b")")
    fields = data[name_end + 1 :].split(None, 20)
    if name_end < 0 or len(fields) < 20:
        raise ValueError(f"no process stat line: {data[:80]!r}")
    own, waited = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    pid, ppid = int(data.split(None, 1)[0]), int(fields[1])
    return ProcessStat(pid, fields[0], ppid, own, waited, int(fields[17]), int(fields[19]))


def parse_statm_rss(data: bytes) -> int:
    """Resident memory in bytes, from `/proc/<pid>/statm`."""
    fields = data.split(None, 2)
    if len(fields) < 2:
        raise ValueError(f"no statm line: {data[:80]!r}")
    return int(fields[1]) * PAGE_BYTES


def parse_process_io(data: bytes) -> tuple[int, int]:
    """Bytes read from and written to storage so far, from `/proc/<pid>/io`."""
    read = data.find(b"\nread_bytes:")
    write = data.find(b"\nwrite_bytes:")
    if read < 0 or write < 0:
        raise ValueError(f"no process I/O counters: {data[:80]!r}")
    return int(data[read + 12 :].split(None, 1)[0]), int(data[write + 13 :].split(None, 1)[0])


def thread_waited_s() -> float | None:
    """How long this thread has been ready to run and waited for a CPU, so far; None where nobody tells."""
    try:
        return parse_waited_s(read_once("/proc/thread-self/schedstat", 128))
    except (OSError, ValueError):
        return None


def parse_waited_s(data: bytes) -> float:
    """How long a thread was ready to run and waited for a CPU, from its `schedstat`."""
    fields = data.split()
    if len(fields) < 2:
        raise ValueError(f"no schedstat line: {data[:80]!r}")
    return int(fields[1]) / 1e9


def keyed_value(data: bytes, name: bytes) -> int | None:
    """The whole number after a name at the start of a line (`MemFree:  12 kB`, `nr_periods 7`); `kB` is 1024.

    None where there is no such line, or no number on it. The line is sought and the others, of which some
    files have very many, are not looked at.
    """
    at = 0 if data.startswith(name) else data.find(b"\n" + name) + 1 or -1
    while at >= 0:
        end = data.find(b"\n", at)
        words = data[at + len(name) : end if end >= 0 else len(data)]
        if words[:1] in (b":", b" ", b"\t"):
            number, *unit = words.lstrip(b":").split() or [b""]
            return int(number) * (1024 if unit == [b"kB"] else 1) if number.isdigit() else None
        at = data.find(b"\n" + name, at) + 1 or -1
    return None


Blocked = Literal["sleep", "lock", "io"]
_WAITS: dict[str, dict[int, Blocked]] = {
    "x86_64": {35: "sleep", 230: "sleep", 202: "lock", 449: "lock"},
    "aarch64": {101: "sleep", 115: "sleep", 98: "lock", 449: "lock"},
}
"""Calls of the kernel by which a thread sleeps (`nanosleep`, `clock_nanosleep`) or waits for others
(`futex`, `futex_waitv`), by machine."""
_SELECTS = {"x86_64": (23, 270), "aarch64": (72,)}
"""Calls that only sleep where they are given no descriptor: `select` and `pselect6`."""
_MACHINE = os.uname().machine


def parse_blocked(data: bytes, machine: str = _MACHINE) -> Blocked | None:
    """What a thread waits for, from its `syscall` file; None where it runs.

    Whatever is neither sleep nor a lock is taken for input or output: so is a page of memory that has to be
    fetched, which is no call at all.
    """
    if data.startswith(b"running"):
        return None
    fields, known = data.split(None, 2), _WAITS.get(machine)
    if known is None or not fields:
        raise ValueError(f"no blocked call: {data[:80]!r}")
    number = int(fields[0])
    if number in _SELECTS[machine] and fields[1:2] == [b"0x0"]:
        return "sleep"
    return known.get(number, "io")


def parse_pressure_s(data: bytes) -> float:
    """How long at least one thread waited so far, from a file of the kernel's pressure stall information."""
    some, found, total = data.partition(b"\n")[0].partition(b" total=")
    if not some.startswith(b"some ") or not found:
        raise ValueError(f"no pressure: {data[:80]!r}")
    return int(total) / 1e6


class CpuTimes(NamedTuple):
    """The node's CPU time so far, over all cores, in clock ticks."""

    busy: int
    """Everything but idle and waiting for I/O; time stolen by the hypervisor was not there to use either."""
    total: int
    cpus: int
    stolen: int | None
    """Part of `busy` that the hypervisor gave to others; None where the kernel does not know it."""


def parse_node_stat(data: bytes) -> CpuTimes:
    """The CPU lines of `/proc/stat`. Guest time is part of user time already."""
    if not data.startswith(b"cpu "):
        raise ValueError(f"no node stat: {data[:80]!r}")
    ticks = [int(field) for field in data.split(b"\n", 1)[0].split()[1:9]]
    if len(ticks) < 4:
        raise ValueError(f"no node CPU times: {data[:80]!r}")
    total = sum(ticks)
    stolen = ticks[7] if len(ticks) > 7 else None
    return CpuTimes(total - ticks[3] - sum(ticks[4:5]), total, data.count(b"\ncpu"), stolen)


def parse_diskstats(data: bytes) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes read and written so far by each whole disk; partitions and stacked devices left out."""
    lines = (line.split() for line in data.decode("utf-8", "replace").splitlines())
    disks = {line[2]: line for line in lines if len(line) >= 10 and not _STACKED_DISK.match(line[2])}
    whole = {name: line for name, line in disks.items() if _partition_of(name) not in disks}
    read = {name: int(line[5]) * SECTOR_BYTES for name, line in whole.items()}
    return read, {name: int(line[9]) * SECTOR_BYTES for name, line in whole.items()}


def _partition_of(name: str) -> str | None:
    # The kernel puts a `p` before the number where the disk's own name ends in a digit.
    disk = name.rstrip("0123456789")
    if disk == name:
        return None
    return disk[:-1] if disk.endswith("p") and disk[-2:-1].isdigit() else disk


def parse_net_dev(data: bytes) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes received and sent so far by each interface, loopback and stacked ones left out.

    Where nothing but stacked interfaces is there, as in some containers, they are the way out and count.
    """
    received: dict[str, int] = {}
    sent: dict[str, int] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, colon, rest = line.rpartition(":")
        fields = rest.split()
        name = name.strip()
        if colon and len(fields) >= 9 and name != "lo":
            received[name], sent[name] = int(fields[0]), int(fields[8])
    outer = [name for name in received if not _STACKED_INTERFACE.match(name)] or list(received)
    return {name: received[name] for name in outer}, {name: sent[name] for name in outer}


def growth(now: float | None, before: float | None) -> float | None:
    """How much a counter grew; None where a reading is missing, or where it went down: wrapped or reset."""
    if now is None or before is None or now < before:
        return None
    return now - before


def rate(now: float | None, before: float | None, interval_s: float | None) -> float | None:
    """Growth a second; None where the growth is unknown or no time passed."""
    grown = growth(now, before)
    if grown is None or interval_s is None or interval_s <= 0:
        return None
    return grown / interval_s


def long_enough(interval_s: float | None) -> float | None:
    """The interval, if the kernel's CPU ticks of 10 ms can tell a share of it; None if it is too short for
    that.
    """
    return interval_s if interval_s is not None and interval_s >= SamplerLimits.min_cpu_interval_s else None


def percent(part: float | None, whole: float | None) -> float | None:
    """A share in percent; None where either is unknown or there is nothing to have a share of."""
    if part is None or whole is None or whole <= 0:
        return None
    return 100.0 * part / whole


def rate_over(
    now: Mapping[str, int] | None, before: Mapping[str, int] | None, interval_s: float | None
) -> float | None:
    """Growth a second of the counters both readings hold, summed.

    A counter that came or went in between says nothing of the interval and is left out. One that went down
    makes the sum unknown, and so does having none in common.
    """
    if now is None or before is None or interval_s is None or interval_s <= 0:
        return None
    grown = [value - before[name] for name, value in now.items() if name in before]
    return sum(grown) / interval_s if grown and min(grown) >= 0 else None
