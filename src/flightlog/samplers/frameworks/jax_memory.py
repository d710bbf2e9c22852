"""JAX's allocators, by `Device.memory_stats`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from flightlog.samplers.frameworks.allocator import AllocatorReading, Capabilities, is_imported, whole


class JaxMemory:
    """The allocators of the accelerators that JAX has started up on this host; JAX itself is never started
    up.
    """

    name = "jax"
    capabilities = Capabilities(backend="jax", source="jax.Device.memory_stats", active=False, inactive=False)

    def __init__(self, jax: Any, modules: Mapping[str, Any] | None = None) -> None:
        self._jax = jax
        self._modules = sys.modules if modules is None else modules
        self._found: dict[int, Any] = {}

    def devices(self) -> Sequence[int]:
        """Those of this process that count their memory."""
        if not self._found and has_started(self._modules):
            self._found = {
                _number(device): device for device in self._jax.local_devices() if device.platform != "cpu"
            }
        return tuple(self._found)

    def read(self, device: int) -> AllocatorReading:
        """What is in use of the pool, and the pool; a backend that counts nothing gives nothing."""
        stats = self._found[device].memory_stats() or {}
        limit = whole(stats.get("bytes_limit"))
        return AllocatorReading(
            allocated_bytes=whole(stats.get("bytes_in_use")),
            reserved_bytes=whole(stats.get("pool_bytes")) or whole(stats.get("bytes_reserved")) or None,
            largest_free_bytes=whole(stats.get("largest_free_block_bytes")) or None,
            peak_allocated_bytes=whole(stats.get("peak_bytes_in_use")),
            peak_reserved_bytes=whole(stats.get("peak_pool_bytes")),
            limit_bytes=limit,
        )

    def snapshot(self) -> None:
        """None: JAX's own profile of memory has to be asked for by the program."""


def _number(device: Any) -> int:
    """A device's number on this host, as the driver's order has it; its id counts over all hosts of a job."""
    local = getattr(device, "local_hardware_id", None)
    return int(device.id if local is None else local)


def jax_allocator(jax: Any, kind: str | None, modules: Mapping[str, Any] | None = None) -> Any:
    """The allocator that a program with JAX uses; None while JAX has not started up."""
    from flightlog.samplers.frameworks.allocator import HostMemory

    modules = sys.modules if modules is None else modules
    if kind == "cpu":
        return HostMemory("jax")
    if not is_imported(jax) or not has_started(modules):
        return None
    if all(device.platform == "cpu" for device in jax.local_devices()):
        return HostMemory("jax")
    return JaxMemory(jax, modules)


def has_started(modules: Mapping[str, Any]) -> bool:
    """Whether the program has made JAX look for its devices; asking JAX for them would do so."""
    bridge = modules.get("jax._src.xla_bridge")
    if bridge is None:
        return False
    asked = getattr(bridge, "backends_are_initialized", None)
    return bool(asked()) if asked is not None else bool(getattr(bridge, "_backends", None))
