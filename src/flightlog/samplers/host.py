"""The node: CPU, memory, swap, disks and network, of everything that runs on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flightlog.events.resources import ResourceSample
from flightlog.samplers.counters import growth, long_enough, percent, rate_over
from flightlog.samplers.node import NodeCounters, NodeReading, ProcCounters
from flightlog.samplers.procfs import PROC
from flightlog.samplers.rapl import SYS, ProcessorEnergy


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
        self._counters: NodeCounters | None = None
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
                cpus=now.cpus,
                load_1m=now.load_1m,
                memory_used_bytes=now.memory_used_bytes,
                memory_total_bytes=now.memory_total_bytes,
                swap_used_bytes=now.swap_used_bytes,
                energy_j=energy_j,
                disk_read_bytes_per_s=rate_over(now.disk_read, before.disk_read, interval),
                disk_write_bytes_per_s=rate_over(now.disk_written, before.disk_written, interval),
                net_recv_bytes_per_s=rate_over(now.net_received, before.net_received, interval),
                net_sent_bytes_per_s=rate_over(now.net_sent, before.net_sent, interval),
            )
        ]

    def _open(self) -> NodeCounters:
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
