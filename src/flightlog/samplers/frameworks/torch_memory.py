"""PyTorch's allocators: CUDA and ROCm, which share an interface, and MPS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flightlog.samplers.frameworks.allocator import AllocatorReading, Capabilities, is_imported, whole

RESCAN = 10
"""Devices that were not in use are looked at again every so many times."""


class TorchCuda:
    """The caching allocator of CUDA and ROCm devices.

    Only devices on which the program has ever reserved memory are read: their counters are plain numbers in
    the allocator, so that asking for them makes no context. Before the program starts CUDA up there are no
    devices.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._backend = "rocm" if getattr(getattr(torch, "version", None), "hip", None) else "cuda"
        self._used: list[int] = []
        self._asked = 0
        self.name = "torch.cuda" if self._backend == "cuda" else "torch.rocm"
        self.capabilities = Capabilities(
            backend=self._backend, source="torch.cuda.memory_stats", snapshot=True
        )

    def devices(self) -> Sequence[int]:
        """Those with memory reserved now or earlier."""
        cuda = self._torch.cuda
        if not cuda.is_initialized():  # False in a child forked after CUDA was started, too
            return ()
        if self._asked % RESCAN == 0 or not self._used:
            found = range(cuda.device_count())
            self._used = [n for n in found if n in self._used or self._is_used(n)]
        self._asked += 1
        return tuple(self._used)

    def read(self, device: int) -> AllocatorReading:
        """One call: the nested counters, 23 µs against 117 µs for the flat ones (H200, PyTorch 2.11)."""
        stats = statistics(self._torch.cuda, device)
        reserved, active = _current(stats, "reserved_bytes"), _current(stats, "active_bytes")
        return AllocatorReading(
            allocated_bytes=_current(stats, "allocated_bytes"),
            reserved_bytes=reserved,
            active_bytes=active,
            inactive_bytes=None if reserved is None or active is None else max(reserved - active, 0),
            inactive_split_bytes=_current(stats, "inactive_split_bytes"),
            peak_allocated_bytes=figure(stats, "allocated_bytes", "peak"),
            peak_reserved_bytes=figure(stats, "reserved_bytes", "peak"),
            ooms=whole(stats.get("num_ooms")),
        )

    def device_memory(self, device: int) -> tuple[int, int]:
        """Free and total bytes of a device that is in use, as the CUDA runtime knows them."""
        free, total = self._torch.cuda.mem_get_info(device)
        return int(free), int(total)

    def snapshot(self) -> Mapping[str, Any] | None:
        """All segments and blocks, and the history of allocations where the program has it recorded."""
        if not self._torch.cuda.is_initialized():
            return None
        taken = self._torch.cuda.memory._snapshot()
        return taken if isinstance(taken, Mapping) else None

    def _is_used(self, device: int) -> bool:
        stats = statistics(self._torch.cuda, device)
        return any(
            (figure(stats, "reserved_bytes", which) or 0) > 0 for which in ("current", "peak", "allocated")
        )


class TorchMps:
    """The allocator of Apple's GPUs."""

    name = "torch.mps"
    capabilities = Capabilities(backend="mps", source="torch.mps", active=False, inactive=False)

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def devices(self) -> Sequence[int]:
        """The one there is, if any."""
        return (0,) if self._torch.backends.mps.is_available() else ()

    def read(self, _device: int) -> AllocatorReading:
        """What tensors hold, and what Metal holds for this process."""
        mps = self._torch.mps
        most = getattr(mps, "recommended_max_memory", None)
        return AllocatorReading(
            allocated_bytes=whole(mps.current_allocated_memory()),
            reserved_bytes=whole(mps.driver_allocated_memory()),
            limit_bytes=whole(most()) if most is not None else None,
        )

    def snapshot(self) -> None:
        """None: there is no list of blocks."""


def torch_allocator(torch: Any, kind: str | None, *, may_have_gpu: bool) -> Any:
    """The allocator that a program with PyTorch uses, of the kind that is named; None while that is open.

    Where a GPU could be used, it is CUDA's as soon as the program starts CUDA up, and none before.
    """
    from flightlog.samplers.frameworks.allocator import HostMemory

    if not is_imported(torch) or not hasattr(torch, "cuda"):
        return None
    if kind == "cpu":
        return HostMemory("torch")
    if kind in ("cuda", "rocm"):
        return TorchCuda(torch)
    if kind == "mps":
        return TorchMps(torch)
    version = getattr(torch, "version", None)
    if getattr(version, "cuda", None) or getattr(version, "hip", None):
        if torch.cuda.is_initialized():
            return TorchCuda(torch)
        return None if may_have_gpu else HostMemory("torch")
    mps = getattr(getattr(torch, "backends", None), "mps", None)
    if mps is not None and mps.is_available():
        return TorchMps(torch)
    return HostMemory("torch")


def statistics(cuda: Any, device: int) -> Mapping[str, Any]:
    """The counters of one device, nested where this PyTorch has them so: `figure` reads both."""
    nested = getattr(cuda, "memory_stats_as_nested_dict", None)
    stats = nested(device) if nested is not None else cuda.memory_stats(device)
    if not isinstance(stats, Mapping):
        raise TypeError(f"torch.cuda.memory_stats gave {type(stats).__name__}, not a mapping")
    return stats


def figure(stats: Mapping[str, Any], name: str, which: str) -> int | None:
    """A counter of all pools, of nested or of flat statistics; None where it is not there."""
    group = stats.get(name)
    if isinstance(group, Mapping):
        pools = group.get("all")
        return whole(pools.get(which)) if isinstance(pools, Mapping) else None
    return whole(stats.get(f"{name}.all.{which}"))


def _current(stats: Mapping[str, Any], name: str) -> int | None:
    return figure(stats, name, "current")
