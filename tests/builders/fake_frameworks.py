"""Stand-ins for frameworks: the attributes that the real ones have, and errors where a device would be woken
up."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

GIB = 1 << 30


class Woken(AssertionError):
    """A framework was started up, or a context made, by looking at it."""


def stat(current: int, peak: int | None = None, allocated: int | None = None) -> dict[str, Any]:
    figures = {
        "current": current,
        "peak": current if peak is None else peak,
        "allocated": current if allocated is None else allocated,
        "freed": 0,
    }
    return {"all": figures, "small_pool": dict.fromkeys(figures, 0), "large_pool": figures}


def cuda_stats(
    allocated: int,
    reserved: int,
    *,
    peak: int | None = None,
    active: int | None = None,
    split: int = 0,
    ooms: int = 0,
) -> dict[str, Any]:
    """As `torch.cuda.memory_stats_as_nested_dict` has them."""
    return {
        "num_alloc_retries": ooms,
        "num_ooms": ooms,
        "max_split_size": -1,
        "allocated_bytes": stat(allocated, peak),
        "reserved_bytes": stat(reserved),
        "active_bytes": stat(allocated if active is None else active),
        "inactive_split_bytes": stat(split),
        "requested_bytes": stat(allocated),
    }


def flat(stats: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in stats.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


class OutOfMemoryError(RuntimeError):
    """CUDA out of memory, as torch has it."""


OutOfMemoryError.__module__ = "torch"


class FakeCuda:
    def __init__(self, devices: int) -> None:
        self.started = False
        self.stats = {number: cuda_stats(0, 0) for number in range(devices)}
        self.calls = 0
        self.memory = SimpleNamespace(_snapshot=lambda: self.blocks)
        self.blocks: Any = {"segments": [], "device_traces": []}
        self.OutOfMemoryError = OutOfMemoryError

    def is_initialized(self) -> bool:
        return self.started

    def device_count(self) -> int:
        return len(self.stats)

    def is_available(self) -> bool:
        raise Woken("is_available may start the driver up")

    def current_device(self) -> int:
        raise Woken("current_device starts CUDA up")

    def synchronize(self, *_: object) -> None:
        raise Woken("the device was waited for")

    def memory_stats_as_nested_dict(self, device: int) -> dict[str, Any]:
        self.calls += 1
        return self.stats[device] if self.started else {}

    def memory_stats(self, device: int) -> dict[str, Any]:
        return flat(self.memory_stats_as_nested_dict(device))

    def mem_get_info(self, device: int) -> tuple[int, int]:
        if not self.stats[device]["reserved_bytes"]["all"]["current"]:
            raise Woken(f"a context was made on device {device}")
        return 60 * GIB, 80 * GIB


class FakeTorch(ModuleType):
    """PyTorch with so many CUDA devices; `cuda=None` is a build for the CPU alone."""

    def __init__(
        self, devices: int = 2, *, cuda: str | None = "12.8", hip: str | None = None, mps: bool = False
    ) -> None:
        super().__init__("torch")
        self.__version__ = "2.13.0"
        self.version = SimpleNamespace(cuda=cuda, hip=hip)
        self.cuda = FakeCuda(devices)
        self.backends = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: mps))
        self.mps = SimpleNamespace(
            current_allocated_memory=lambda: 5,
            driver_allocated_memory=lambda: 9,
            recommended_max_memory=lambda: 100,
        )
        self.observers: list[Any] = []
        self._C = SimpleNamespace(_cuda_attach_out_of_memory_observer=self._attach)

    def _attach(self, observer: Any) -> None:
        if not self.cuda.started:
            raise Woken("attaching an observer starts CUDA up")
        self.observers.append(observer)


class FakeJax(ModuleType):
    """JAX with devices of these platforms and statistics; `started` says whether its backends are there."""

    def __init__(self, *devices: tuple[str, dict[str, int] | None], started: bool = True) -> None:
        super().__init__("jax")
        self.bridge = SimpleNamespace(backends_are_initialized=lambda: self.started)
        self.started = started
        self._devices = [
            SimpleNamespace(
                id=8 + number,  # ids count over all hosts of a job
                local_hardware_id=number,
                platform=platform,
                memory_stats=lambda stats=stats: stats,
            )
            for number, (platform, stats) in enumerate(devices)
        ]

    def local_devices(self) -> list[Any]:
        if not self.started:
            raise Woken("listing its devices starts JAX up")
        return self._devices

    def modules(self) -> dict[str, Any]:
        return {"jax": self, "jax._src.xla_bridge": self.bridge}


class FakeTensorFlow(ModuleType):
    """TensorFlow with logical GPUs of these figures."""

    def __init__(self, *gpus: dict[str, int], started: bool = True) -> None:
        super().__init__("tensorflow")
        self.started = started
        self.config = SimpleNamespace(
            list_logical_devices=self._list,
            experimental=SimpleNamespace(get_memory_info=lambda name: gpus[int(name.removeprefix("GPU:"))]),
        )
        self._gpus = gpus

    def _list(self, kind: str) -> list[str]:
        if not self.started:
            raise Woken("listing its devices starts TensorFlow up")
        return [f"/device:{kind}:{number}" for number in range(len(self._gpus))]

    def modules(self) -> dict[str, Any]:
        context = SimpleNamespace(_initialized=self.started)
        return {"tensorflow": self, "tensorflow.python.eager.context": SimpleNamespace(_context=context)}
