"""What the memory allocators of machine-learning frameworks (PyTorch, JAX, TensorFlow) say of themselves, and
which framework a program uses.

Reading never imports a framework, never starts one up, never makes a device context and never waits for a
device.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.samplers.gpu.driver import may_have_gpu
from flightlog.samplers.limits import SamplerLimits
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
    device_source: str | None = None
    """`driver`, or None where nobody but the allocator can tell."""
    device_uuid: str | None = None


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
            **self._counters(),
            "supports_native_allocator_history": self.snapshot,
        }

    def unknown(self) -> dict[str, bool]:
        """Of those, the counters that are unknown; empty where all are known."""
        return {name: known for name, known in self._counters().items() if not known}

    def _counters(self) -> dict[str, bool]:
        names = ("allocated", "reserved", "active", "inactive")
        return {f"supports_allocator_{name}": getattr(self, name) for name in names}


class Allocator(ABC):
    """A framework's allocator on one kind of device. A method may raise what the framework raises."""

    name: str
    """Framework and kind of device, such as `torch.cuda`."""
    capabilities: Capabilities
    """Which figures there are."""

    @abstractmethod
    def devices(self) -> Sequence[int]:
        """The devices that the program has used so far, as the framework numbers them; `HOST` is the host."""

    @abstractmethod
    def read(self, device: int) -> AllocatorReading:
        """The figures of one of those devices now; cheap, and without waiting for the device."""

    def snapshot(self) -> Mapping[str, Any] | None:
        """Every block the allocator holds, where the framework can tell; costs as much as there are
        blocks.
        """
        return None


def whole(value: object) -> int | None:
    """A counter as a number that can be recorded; None for what is none, or negative, which means unknown."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 63:
        return None
    return int(value)


class HostMemory(Allocator):
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
            self._host, self._host_until = _host(self._proc), now + SamplerLimits.max_host_figures_age_s
        total, free = self._host
        return AllocatorReading(
            allocated_bytes=keyed_value(own, b"VmRSS"),
            peak_allocated_bytes=keyed_value(own, b"VmHWM"),
            device_used_bytes=None if total is None or free is None else max(total - free, 0),
            device_free_bytes=free,
            device_total_bytes=total,
        )


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


class TorchCuda(Allocator):
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
        if self._asked % SamplerLimits.unused_devices_interval == 0 or not self._used:
            self._used = [n for n in range(cuda.device_count()) if n in self._used or _is_used(cuda, n)]
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


class TorchMps(Allocator):
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


def torch_allocator(torch: Any, kind: str, *, may_have_gpu: bool) -> Allocator | None:
    """The allocator that a program with PyTorch uses, of the kind that is named, if any; None while that is
    open.

    Where a GPU could be used, it is CUDA's as soon as the program starts CUDA up, and none before.
    """
    if not hasattr(torch, "cuda"):
        return None
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


def _is_used(cuda: Any, device: int) -> bool:
    stats = statistics(cuda, device)
    return any(figure(stats, "reserved_bytes", which) for which in ("current", "peak", "allocated"))


class StartedFramework(Allocator):
    """A framework that must not be asked before the program has started it up: asking would start it up."""

    def __init__(self, framework: Any, modules: Mapping[str, Any] | None = None) -> None:
        self._framework = framework
        self._modules = sys.modules if modules is None else modules
        self._found: dict[int, Any] = {}

    @abstractmethod
    def has_started(self) -> bool:
        """Whether the program has made the framework take its devices."""

    @abstractmethod
    def _accelerators(self) -> dict[int, Any]:
        """The accelerators of this process by their numbers; listing them starts the framework up."""

    def devices(self) -> Sequence[int]:
        """The accelerators of this process, once the framework has started."""
        if not self._found and self.has_started():
            self._found = self._accelerators()
        return tuple(self._found)


class JaxMemory(StartedFramework):
    """The allocators of the accelerators that JAX has started up on this host; JAX itself is never started
    up.
    """

    name = "jax"
    capabilities = Capabilities(backend="jax", source="jax.Device.memory_stats", active=False, inactive=False)

    def has_started(self) -> bool:
        """Whether the program has made JAX look for its devices."""
        bridge = self._modules.get("jax._src.xla_bridge")
        asked = getattr(bridge, "backends_are_initialized", None)
        return bool(asked()) if asked is not None else bool(getattr(bridge, "_backends", None))

    def _accelerators(self) -> dict[int, Any]:
        found = self._framework.local_devices()
        return {_number(device): device for device in found if device.platform != "cpu"}

    def read(self, device: int) -> AllocatorReading:
        """What is in use of the pool, and the pool; a backend that counts nothing gives nothing."""
        stats = self._found[device].memory_stats() or {}
        return AllocatorReading(
            allocated_bytes=whole(stats.get("bytes_in_use")),
            reserved_bytes=whole(stats.get("pool_bytes")) or whole(stats.get("bytes_reserved")) or None,
            largest_free_bytes=whole(stats.get("largest_free_block_bytes")) or None,
            peak_allocated_bytes=whole(stats.get("peak_bytes_in_use")),
            peak_reserved_bytes=whole(stats.get("peak_pool_bytes")),
            limit_bytes=whole(stats.get("bytes_limit")),
        )


def _number(device: Any) -> int:
    """A device's number on this host, as the driver's order has it; its id counts over all hosts of a job."""
    local = getattr(device, "local_hardware_id", None)
    return int(device.id if local is None else local)


class TensorFlowMemory(StartedFramework):
    """The GPU allocators of a program whose TensorFlow has started up; it is never started up from here."""

    name = "tensorflow"
    capabilities = Capabilities(
        backend="tensorflow",
        source="tf.config.experimental.get_memory_info",
        reserved=False,
        active=False,
        inactive=False,
    )

    def has_started(self) -> bool:
        """Whether the program has made TensorFlow take its devices."""
        eager = getattr(self._modules.get("tensorflow.python.eager.context"), "_context", None)
        return bool(getattr(eager, "_initialized", False))

    def _accelerators(self) -> dict[int, Any]:
        return dict(enumerate(self._framework.config.list_logical_devices("GPU")))

    def read(self, device: int) -> AllocatorReading:
        """What is in use, and the most that was."""
        found = self._framework.config.experimental.get_memory_info(f"GPU:{device}")
        return AllocatorReading(
            allocated_bytes=whole(found.get("current")), peak_allocated_bytes=whole(found.get("peak"))
        )


AUTO = "auto"
FRAMEWORKS = ("torch", "jax", "tensorflow")
NAMES = (
    AUTO,
    *("torch", "torch.cuda", "torch.rocm", "torch.mps", "torch.cpu"),
    *("jax", "jax.cpu"),
    *("tensorflow", "tensorflow.cpu"),
)
"""What may be asked for. A framework alone means the kind of device that the program turns out to use."""


def find_allocator(
    wanted: str = AUTO, *, modules: Mapping[str, Any] | None = None, gpu: bool | None = None
) -> Allocator | None:
    """The allocator of the framework that is wanted; None while the program has not imported it, or not
    started it up.

    `auto` takes whichever framework is there, and one on an accelerator before one on the host. `gpu` says
    whether a GPU could be used here. May raise what the framework raises.
    """
    modules = sys.modules if modules is None else modules
    wanted_framework, _, kind = wanted.partition(".")
    names = FRAMEWORKS if wanted == AUTO else (wanted_framework,)
    gpu = may_have_gpu() if gpu is None else gpu
    on_host: Allocator | None = None
    for name in names:
        module = modules.get(name)
        # In the middle of its import on another thread it is not there in full.
        if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
            continue
        found: Allocator | None = HostMemory(name)
        if kind != "cpu" and name == "torch":
            found = torch_allocator(module, kind, may_have_gpu=gpu)
        elif kind != "cpu":
            framework = (JaxMemory if name == "jax" else TensorFlowMemory)(module, modules)
            found = None if not framework.has_started() else framework if framework.devices() else found
        if found is not None and not found.name.endswith(".cpu"):
            return found
        on_host = on_host or found
    return on_host
