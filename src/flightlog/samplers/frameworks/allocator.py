"""The one protocol of all framework allocators, and what a reading holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

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
