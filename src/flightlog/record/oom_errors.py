"""Which exceptions mean that a device ran out of memory, told without importing any framework."""

from __future__ import annotations

from flightlog.record.values import bases_of, class_name, module_of, text_of

_BY_NAME = frozenset({"OutOfMemoryError", "ResourceExhaustedError"})
_BY_TEXT = frozenset({"RuntimeError", "XlaRuntimeError", "JaxRuntimeError", "AcceleratorError"})
_FROM = ("torch", "jax", "jaxlib", "tensorflow", "builtins")
_TEXTS = (
    "RESOURCE_EXHAUSTED",
    "CUDA out of memory",
    "HIP out of memory",
    "MPS backend out of memory",
    "CUDA error: out of memory",
    "HIP error: out of memory",
)
_LOOKED_AT = 4000


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an exception is a framework's out of memory on a device. Never raises; a microsecond for the
    others.

    Python's own MemoryError is not: that is the host's memory, and no allocator of a device has more to say
    on it.
    """
    if error is None:
        return False
    for kind in bases_of(type(error)):
        name = class_name(kind)
        if name not in _BY_NAME and name not in _BY_TEXT:
            continue
        if module_of(kind).partition(".")[0] not in _FROM:
            continue
        if name in _BY_NAME:
            return True
        return _says_so(error)
    return False


def _says_so(error: BaseException) -> bool:
    text = text_of(error)[:_LOOKED_AT]
    return any(said in text for said in _TEXTS)
