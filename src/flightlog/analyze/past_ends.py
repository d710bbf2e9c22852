"""How an attempt ended: whether for its memory, or at its time limit, as far as the record says."""

from __future__ import annotations

import re

MORE_THAN_KILLED = 1.5
"""What was ended at a limit needed more, nobody knows how much: so many times the limit is asked for."""
_HOST_MEMORY = frozenset({"MemoryError", "ArrayMemoryError", "_ArrayMemoryError", "OUT_OF_MEMORY"})
_DEVICE_LIBRARIES = ("torch.", "tensorflow.", "jax.", "jaxlib.", "cupy.", "cupy_backends.")
_SAYS_MEMORY = re.compile(
    r"kernel's OOM killer|oom_kill of its cgroup|ended (?:it )?for (?:its )?memory|OUT_OF_MEMORY",
    re.IGNORECASE,
)
_SAYS_DEVICE = re.compile(
    r"(?:CUDA|HIP)(?: error:)? out of memory|MPS backend out of memory|RESOURCE_EXHAUSTED"
)
_SAYS_TIME = re.compile(
    r"(?:ran over its timeout of|did not end within) ([0-9.]+(?:e[+-]?\d+)?) s|did not end in time"
    r"|ended at its time limit"
)
_WORDLESS = frozenset({"WorkerLost", "SIGKILL", "KilledWorker", "RayActorError", "NODE_FAIL"})


def memory_killed(
    error_type: str | None, message: str | None, signal: str | None, lost_reason: str | None
) -> bool | None:
    """Whether the host's memory ended a failed attempt: by MemoryError, kernel, cgroup, engine or batch
    system.

    None where something killed it and nobody says why. Memory of a device is another matter: False.
    """
    said = f"{message or ''}\n{lost_reason or ''}"
    kind = (error_type or "").rpartition(".")[2]
    if kind in _HOST_MEMORY or _SAYS_MEMORY.search(said):
        return True
    if kind == "OutOfMemoryError" and not gpu_memory_killed(error_type, message):
        return True
    return None if signal == "SIGKILL" or kind in _WORDLESS or "SIGKILL" in said else False


def gpu_memory_killed(error_type: str | None, message: str | None) -> bool:
    """Whether a failed attempt ran out of a device's memory, by its exception."""
    if (error_type or "").endswith(("OutOfMemoryError", "ResourceExhaustedError")):
        framework = (error_type or "").startswith(_DEVICE_LIBRARIES)
        return framework or bool(_SAYS_DEVICE.search(message or ""))
    return bool(_SAYS_DEVICE.search(message or ""))


def timed_out(error_type: str | None, message: str | None, lost_reason: str | None) -> bool:
    """Whether a failed attempt was ended at its timeout or at the time limit of its job.

    A TimeoutError of the user's own, as of a connection, is no such end.
    """
    if error_type == "TIMEOUT":
        return True
    if error_type not in {None, "TimeoutError", "TaskTimeoutError", "WorkerLost"}:
        return False
    return bool(_SAYS_TIME.search(message or "") or _SAYS_TIME.search(lost_reason or ""))


def timeout_of(message: str | None) -> float | None:
    """The timeout in seconds that a message of ours names; None where it names none."""
    found = _SAYS_TIME.search(message or "")
    return float(found[1]) if found and found[1] else None
