"""The host's memory as an allocator: what a framework uses that computes on the CPU, where none of them
counts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flightlog.samplers.frameworks.allocator import HOST, AllocatorReading, Capabilities
from flightlog.samplers.procfs import PROC, keyed_value, read_once

HOST_S = 1.0
"""How old the host's figures may be: they take the kernel longer than this process's own."""


class HostMemory:
    """Resident memory of this process as what is allocated; the host's memory, up to a second old, as the
    device's.
    """

    def __init__(
        self, framework: str, *, proc: Path = PROC, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = f"{framework}.cpu"
        self.capabilities = Capabilities(
            backend="cpu", source="process resident memory", reserved=False, active=False, inactive=False
        )
        self._proc = proc
        self._clock = clock
        self._host: tuple[int | None, int | None] = (None, None)
        self._host_until = float("-inf")

    def devices(self) -> Sequence[int]:
        """The host alone."""
        return (HOST,)

    def read(self, _device: int) -> AllocatorReading:
        """Resident memory and its high-water mark, and the host's memory in use by everyone."""
        if not sys.platform.startswith("linux"):
            return _portable()
        own = read_once(f"{self._proc}/self/status", 8192)
        now = self._clock()
        if now >= self._host_until:
            self._host, self._host_until = _host(self._proc), now + HOST_S
        total, free = self._host
        return AllocatorReading(
            allocated_bytes=keyed_value(own, b"VmRSS"),
            peak_allocated_bytes=keyed_value(own, b"VmHWM"),
            device_used_bytes=None if total is None or free is None else max(total - free, 0),
            device_free_bytes=free,
            device_total_bytes=total,
        )

    def snapshot(self) -> None:
        """None: there is no list of blocks."""


def _host(proc: Path) -> tuple[int | None, int | None]:
    try:
        data = read_once(f"{proc}/meminfo", 8192)
        return keyed_value(data, b"MemTotal"), keyed_value(data, b"MemAvailable")
    except (OSError, ValueError):
        return None, None


def _portable() -> AllocatorReading:
    import psutil

    host = psutil.virtual_memory()
    return AllocatorReading(
        allocated_bytes=psutil.Process().memory_info().rss,
        device_used_bytes=max(host.total - host.available, 0),
        device_free_bytes=host.available,
        device_total_bytes=host.total,
    )
