"""The node: CPU, memory, swap, disks, network, and energy by the processors' own counters (RAPL), of
everything that runs on it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from flightlog.core.descriptors import folder_names
from flightlog.events.declarations import ResourceSample
from flightlog.samplers.procfs import (
    CLOCK_TICKS,
    PROC,
    OpenFile,
    growth,
    keyed_value,
    long_enough,
    parse_diskstats,
    parse_net_dev,
    parse_node_stat,
    parse_pressure_s,
    percent,
    rate_over,
)

if TYPE_CHECKING:
    from flightlog.samplers.without_proc import PsutilCounters

SYS = Path("/sys")
_ZONES = "intel-rapl:"
"""AMD's processors have theirs under the same name. `intel-rapl-mmio:*` shows the same counters another
way."""
_COUNTED = (b"package", b"dram")
"""Zones that do not overlap: `core` and `uncore` are parts of a package, and `psys` holds packages and
more."""


_PRESSURES = ("cpu", "memory", "io")
T = TypeVar("T")
ByDevice = Mapping[str, int]


class ProcessorEnergy:
    """Adds up the energy counters of all processors of the node; one thread.

    Most kernels let root alone read them. A counter wraps around within minutes to hours of full load: read
    it more often than that, once a minute at least.
    """

    def __init__(self, sys: Path = SYS) -> None:
        folder = sys / "class" / "powercap"
        try:
            paths = sorted(folder / name for name in folder_names(folder) if name.startswith(_ZONES))
        except OSError:
            paths = []
        names = {path: _parsed(OpenFile(path / "name"), bytes.strip) or b"" for path in paths}
        self._zones = [_Zone(path) for path, name in names.items() if name.startswith(_COUNTED)]

    def joules(self) -> float | None:
        """A sum that only grows, from an arbitrary start; None where there is no counter, or one cannot be
        read.
        """
        read = [zone.microjoules() for zone in self._zones]
        known = [one for one in read if one is not None]
        return sum(known) / 1e6 if known and len(known) == len(read) else None

    def close(self) -> None:
        """Let descriptors go; the next reading opens them again."""
        for zone in self._zones:
            zone.file.close()


class _Zone:
    """One counter, unwrapped."""

    def __init__(self, path: Path) -> None:
        self.file = OpenFile(path / "energy_uj")
        self._range_uj = _parsed(OpenFile(path / "max_energy_range_uj"), _whole)
        self._last: int | None = None
        self._sum = 0

    def microjoules(self) -> int | None:
        """The counter as if it never wrapped; None where it cannot be read now."""
        now = _parsed(self.file, _whole)
        if now is None:
            return None
        if self._last is None or now >= self._last:
            self._sum += now - (self._last or 0)
        elif self._range_uj is not None and self._range_uj >= self._last:
            self._sum += now + self._range_uj - self._last
        else:  # set back to 0, not wrapped: what it says it has counted since
            self._sum += now
        self._last = now
        return self._sum


def _whole(data: bytes) -> int:
    text = data.strip()
    if not text.isdigit() or len(text) > 20:
        raise ValueError(f"no counter: {data[:40]!r}")
    return int(text)


class HostSampler:
    """Samples the node, in scope `node`: one sample a call, none where nothing at all can be read.

    `cpu_percent` is of all cores together, 0 to 100, since the previous sample. Disks are whole disks,
    partitions and stacked devices left out, and the network is without loopback, so that no byte counts
    twice. A counter that went down makes its rate None. `energy_j` is None where the kernel keeps the
    processors' counters to root, as most do. Where there is no `/proc`, psutil is asked. One thread at a
    time; after a fork the child starts afresh.
    """

    def __init__(
        self,
        proc: Path = PROC,
        clock: Callable[[], float] = time.monotonic,
        host: str | None = None,
        sys: Path = SYS,
    ) -> None:
        self._proc, self._sys = proc, sys
        self._clock = clock
        self._host = host if host is not None else os.uname().nodename
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._counters: ProcCounters | PsutilCounters | None = None
        self._energy: ProcessorEnergy | None = None
        self._before = NodeReading()
        self._at: float | None = None

    def sample(self) -> Sequence[ResourceSample]:
        """The node since the previous call."""
        if self._pid != os.getpid():
            self._start_afresh()
        if self._counters is None:
            self._counters = self._open()
        if self._energy is None:
            self._energy = ProcessorEnergy(self._sys)
        now, energy_j, at = self._counters.read(), self._energy.joules(), self._clock()
        if now == NodeReading():
            return []
        before = self._before
        interval = None if self._at is None else at - self._at
        self._before, self._at = now, at
        busy = growth(now.cpu_busy, before.cpu_busy) if long_enough(interval) else None
        share = percent(busy, growth(now.cpu_total, before.cpu_total))
        return [
            ResourceSample(
                scope="node",
                host=self._host,
                interval_s=interval,
                cpu_percent=share,
                cpu_cores=None if share is None or now.cpus is None else share / 100 * now.cpus,
                energy_j=energy_j,
                disk_read_bytes_per_s=rate_over(now.disk_read, before.disk_read, interval),
                disk_write_bytes_per_s=rate_over(now.disk_written, before.disk_written, interval),
                net_recv_bytes_per_s=rate_over(now.net_received, before.net_received, interval),
                net_sent_bytes_per_s=rate_over(now.net_sent, before.net_sent, interval),
                **{name: getattr(now, name) for name in _SAME},
            )
        ]

    def _open(self) -> ProcCounters | PsutilCounters:
        if (self._proc / "stat").exists():
            return ProcCounters(self._proc)
        from flightlog.samplers.without_proc import PsutilCounters

        return PsutilCounters()

    def close(self) -> None:
        """Let descriptors go; the next sample opens them again."""
        if self._counters is not None:
            self._counters.close()
        if self._energy is not None:
            self._energy.close()


class NodeReading(Struct, frozen=True, kw_only=True):
    """What the node's counters say at one moment; None is unknown."""

    cpu_busy: float | None = None
    cpu_total: float | None = None
    cpus: int | None = None
    load_1m: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    steal_s: float | None = None
    cpu_pressure_s: float | None = None
    memory_pressure_s: float | None = None
    io_pressure_s: float | None = None
    disk_read: ByDevice | None = None
    disk_written: ByDevice | None = None
    net_received: ByDevice | None = None
    net_sent: ByDevice | None = None


_SAME = [name for name in NodeReading.__struct_fields__ if name in ResourceSample.__struct_fields__]
"""What a sample holds as it was read."""


class ProcCounters:
    """The node's counters from `/proc`, through eight kept descriptors at most."""

    def __init__(self, proc: Path) -> None:
        kept = partial(OpenFile, unmistakable=True)
        self._stat = kept(proc / "stat", size=16384)
        self._meminfo = kept(proc / "meminfo")
        self._loadavg = kept(proc / "loadavg", size=256)
        self._diskstats = kept(proc / "diskstats", records=True)
        self._net = kept(proc / "net" / "dev", records=True)
        self._pressures = {
            f"{name}_pressure_s": OpenFile(proc / "pressure" / name, size=256) for name in _PRESSURES
        }

    def read(self) -> NodeReading:
        """All counters; one that cannot be read or understood is None."""
        cpu = _parsed(self._stat, parse_node_stat)
        memory = _parsed(self._meminfo, lambda data: partial(keyed_value, data)) or (lambda _name: None)
        disk_read, disk_written = _parsed(self._diskstats, parse_diskstats) or (None, None)
        net_received, net_sent = _parsed(self._net, parse_net_dev) or (None, None)
        total = memory(b"MemTotal")
        return NodeReading(
            cpu_busy=cpu.busy if cpu else None,
            cpu_total=cpu.total if cpu else None,
            cpus=(cpu.cpus or None) if cpu else None,
            load_1m=_parsed(self._loadavg, _first_number),
            memory_used_bytes=_difference(total, memory(b"MemAvailable")),
            memory_total_bytes=total,
            swap_used_bytes=_difference(memory(b"SwapTotal"), memory(b"SwapFree")),
            steal_s=cpu.stolen / CLOCK_TICKS if cpu and cpu.stolen is not None else None,
            disk_read=disk_read,
            disk_written=disk_written,
            net_received=net_received,
            net_sent=net_sent,
            **{name: _parsed(file, parse_pressure_s) for name, file in self._pressures.items()},
        )

    def close(self) -> None:
        """Let all of them go."""
        files = (self._stat, self._meminfo, self._loadavg, self._diskstats, self._net)
        for kept in (*files, *self._pressures.values()):
            kept.close()


def _parsed(kept: OpenFile, parse: Callable[[bytes], T]) -> T | None:
    try:
        return parse(kept.read())
    except OSError:
        return None
    except ValueError:
        kept.close()  # somebody closed our descriptor, perhaps, and its number means another file now
        return None


def _difference(whole: int | None, free: int | None) -> int | None:
    return None if whole is None or free is None else max(0, whole - free)


def _first_number(data: bytes) -> float:
    number = float(data.partition(b" ")[0])
    if not math.isfinite(number):
        raise ValueError(f"no number: {data[:80]!r}")
    return number
