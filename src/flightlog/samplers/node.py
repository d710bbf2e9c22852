"""What a node's counters say at one moment, and where they are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import Struct

from flightlog.samplers.procfs import (
    KeptFile,
    keyed_value,
    parse_diskstats,
    parse_net_dev,
    parse_node_stat,
)

T = TypeVar("T")
ByDevice = Mapping[str, int]


class NodeReading(Struct, frozen=True, kw_only=True):
    """What the node's counters say at one moment; None is unknown."""

    cpu_busy: float | None = None
    cpu_total: float | None = None
    cpus: int | None = None
    load_1m: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    disk_read: ByDevice | None = None
    disk_written: ByDevice | None = None
    net_received: ByDevice | None = None
    net_sent: ByDevice | None = None


class NodeCounters(Protocol):
    """Where a node's counters are read."""

    def read(self) -> NodeReading:
        """All of them, now."""
        ...

    def close(self) -> None:
        """Let descriptors go."""
        ...


class ProcCounters:
    """The node's counters from `/proc`, through five kept descriptors."""

    def __init__(self, proc: Path) -> None:
        self._stat = KeptFile(proc / "stat", size=16384)
        self._meminfo = KeptFile(proc / "meminfo")
        self._loadavg = KeptFile(proc / "loadavg", size=256)
        self._diskstats = KeptFile(proc / "diskstats", records=True)
        self._net = KeptFile(proc / "net" / "dev", records=True)

    def read(self) -> NodeReading:
        """All counters; one that cannot be read or understood is None."""
        cpu = _parsed(self._stat, parse_node_stat)
        memory = _parsed(self._meminfo, _memory) or {}
        disks = _parsed(self._diskstats, parse_diskstats)
        network = _parsed(self._net, parse_net_dev)
        total, available = memory.get(b"MemTotal"), memory.get(b"MemAvailable")
        swap, swap_free = memory.get(b"SwapTotal"), memory.get(b"SwapFree")
        return NodeReading(
            cpu_busy=cpu.busy if cpu else None,
            cpu_total=cpu.total if cpu else None,
            cpus=(cpu.cpus or None) if cpu else None,
            load_1m=_parsed(self._loadavg, _first_number),
            memory_used_bytes=None if total is None or available is None else max(0, total - available),
            memory_total_bytes=total,
            swap_used_bytes=None if swap is None or swap_free is None else max(0, swap - swap_free),
            disk_read=disks[0] if disks else None,
            disk_written=disks[1] if disks else None,
            net_received=network[0] if network else None,
            net_sent=network[1] if network else None,
        )

    def close(self) -> None:
        """Let all five go."""
        for kept in (self._stat, self._meminfo, self._loadavg, self._diskstats, self._net):
            kept.close()


def _parsed(kept: KeptFile, parse: Callable[[bytes], T]) -> T | None:
    try:
        return parse(kept.read())
    except OSError:
        return None
    except ValueError:
        kept.close()  # somebody closed our descriptor, perhaps, and its number means another file now
        return None


def _memory(data: bytes) -> dict[bytes, int | None]:
    return {
        name: keyed_value(data, name) for name in (b"MemTotal", b"MemAvailable", b"SwapTotal", b"SwapFree")
    }


def _first_number(data: bytes) -> float:
    number = float(data.partition(b" ")[0])
    if not math.isfinite(number):
        raise ValueError(f"no number: {data[:80]!r}")
    return number
