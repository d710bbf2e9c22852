"""The protocol of all framework allocators, what a reading holds, and host memory as an allocator."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from flightlog.samplers.procfs import PROC, keyed_value, read_once

HOST = -1
"""The number of the host's own memory among devices."""


class AllocatorReading(Struct, frozen=True, kw_only=True):
    """An allocator on one device at one moment. None is unknown: the framework does not count it."""

    allocated_bytes: int | None = None
    """Handed out to the program and not yet given back."""
    reserved_bytes: int | None = None
    """Held by the allocator, handed out or not."""
    active_bytes: int | None = None
    """In blocks that are in use, or that wait for a stream to be done with them."""
    inactive_bytes: int | None = None
    """In blocks that are held and free for the next allocation."""
    inactive_split_bytes: int | None = None
    """Of those, in parts of larger blocks: they cannot be given back to the device."""
    largest_free_bytes: int | None = None
    """The largest allocation that fits into what is held."""
    peak_allocated_bytes: int | None = None
    """Most that was ever handed out at once, by the framework's own count: between two readings too."""
    peak_reserved_bytes: int | None = None
    limit_bytes: int | None = None
    """What the allocator may take at most, where it has a limit of its own."""
    ooms: int | None = None
    """How often it ran out of memory so far."""
    device_used_bytes: int | None = None
    device_free_bytes: int | None = None
    device_total_bytes: int | None = None
    """Of the device, by everyone, where the framework can tell; the GPU's driver is the better source."""


class Capabilities(Struct, frozen=True, kw_only=True):
    """Which figures a framework has on this kind of device."""

    backend: str
    source: str
    """Where the figures are from, in a word or two."""
    allocated: bool = True
    reserved: bool = True
    active: bool = True
    inactive: bool = True
    snapshot: bool = False

    def as_metadata(self) -> dict[str, Any]:
        """As `metadata.memory_capabilities` of a device-memory event has it."""
        return {
            "backend": self.backend,
            "sampling_source": self.source,
            "supports_allocator_allocated": self.allocated,
            "supports_allocator_reserved": self.reserved,
            "supports_allocator_active": self.active,
            "supports_allocator_inactive": self.inactive,
            "supports_native_allocator_history": self.snapshot,
        }

    def unknown(self) -> dict[str, Any]:
        """Of those, the counters that are unknown; empty where all are known."""
        return {
            name: value
            for name, value in self.as_metadata().items()
            if value is False and name.startswith("supports_allocator_")
        }


class Allocator(Protocol):
    """A framework's allocator on one kind of device. A method may raise what the framework raises."""

    @property
    def name(self) -> str:
        """Framework and kind of device, such as `torch.cuda`."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Which figures there are."""
        ...

    def devices(self) -> Sequence[int]:
        """The devices that the program has used so far, as the framework numbers them; `HOST` is the host."""
        ...

    def read(self, device: int) -> AllocatorReading:
        """The figures of one of those devices now; cheap, and without waiting for the device."""
        ...

    def snapshot(self) -> Mapping[str, Any] | None:
        """Every block the allocator holds, where the framework can tell; costs as much as there are
        blocks.
        """
        ...


def whole(value: object) -> int | None:
    """A counter as a number that can be recorded; None for what is none, or negative, which means unknown."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 63:
        return None
    return int(value)


def is_imported(module: Any) -> bool:
    """Whether a module is there in full, and not in the middle of its import on another thread."""
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


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
