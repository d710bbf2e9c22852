"""TensorFlow's allocators, by `tf.config.experimental.get_memory_info`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from flightlog.samplers.frameworks.allocator import AllocatorReading, Capabilities, is_imported, whole


class TensorFlowMemory:
    """The GPU allocators of a program whose TensorFlow has started up; it is never started up from here."""

    name = "tensorflow"
    capabilities = Capabilities(
        backend="tensorflow",
        source="tf.config.experimental.get_memory_info",
        reserved=False,
        active=False,
        inactive=False,
    )

    def __init__(self, tensorflow: Any, modules: Mapping[str, Any] | None = None) -> None:
        self._tensorflow = tensorflow
        self._modules = sys.modules if modules is None else modules
        self._found: tuple[int, ...] = ()

    def devices(self) -> Sequence[int]:
        """The logical GPUs of this process."""
        if not self._found and has_started(self._modules):
            self._found = tuple(range(len(self._tensorflow.config.list_logical_devices("GPU"))))
        return self._found

    def read(self, device: int) -> AllocatorReading:
        """What is in use, and the most that was."""
        found = self._tensorflow.config.experimental.get_memory_info(f"GPU:{device}")
        return AllocatorReading(
            allocated_bytes=whole(found.get("current")), peak_allocated_bytes=whole(found.get("peak"))
        )

    def snapshot(self) -> None:
        """None: there is no list of blocks."""


def tensorflow_allocator(tensorflow: Any, kind: str | None, modules: Mapping[str, Any] | None = None) -> Any:
    """The allocator that a program with TensorFlow uses; None while TensorFlow has not started up."""
    from flightlog.samplers.frameworks.allocator import HostMemory

    modules = sys.modules if modules is None else modules
    if kind == "cpu":
        return HostMemory("tensorflow")
    if not is_imported(tensorflow) or not has_started(modules):
        return None
    found = TensorFlowMemory(tensorflow, modules)
    return found if found.devices() else HostMemory("tensorflow")


def has_started(modules: Mapping[str, Any]) -> bool:
    """Whether the program has made TensorFlow take its devices; listing them would do so."""
    eager = getattr(modules.get("tensorflow.python.eager.context"), "_context", None)
    return eager is not None and bool(getattr(eager, "_initialized", False))
