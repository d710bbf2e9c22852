"""The processes below a worker: what its tasks started, which end with it when it is ended by force."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

from flightlog.core.descriptors import folder_names, read_bytes
from flightlog.samplers.procfs import PROC


def descendants(pid: int | None = None) -> list[Any]:
    """The processes below a process, this one by default; each knows by its start whether a number is still
    its own.
    """
    import psutil

    if pid is not None and not _has_children(pid):
        return []
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return []


def end_all(processes: list[Any], deed: Literal["terminate", "kill"]) -> None:
    """Send SIGTERM or SIGKILL to those that are still there."""
    import psutil

    for process in processes:
        with suppress(psutil.Error):
            getattr(process, deed)()


class Leftovers:
    """Processes that outlived the worker they ran below, and when each lot is to be killed."""

    def __init__(self) -> None:
        self._lots: list[tuple[float, list[Any]]] = []

    def __len__(self) -> int:
        return len(self._lots)

    def add(self, by: float, processes: list[Any]) -> None:
        """Let those that still run have until then, on the monotonic clock."""
        if processes:
            self._lots.append((by, processes))

    def review(self, now: float) -> None:
        """Forget those that are gone, and kill those whose time has come."""
        lots = [(by, [process for process in lot if is_running(process)]) for by, lot in self._lots]
        for by, lot in lots:
            if by <= now:
                end_all(lot, "kill")
        self._lots = [(by, lot) for by, lot in lots if lot and by > now]


def process_of(pid: int) -> Any:
    """A process that knows by its start whether the number is still its own; None where it is gone."""
    import psutil

    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def is_running(process: Any) -> bool:
    """Whether a process of `process_of` or `descendants` still runs."""
    import psutil

    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _has_children(pid: int) -> bool:
    """Whether a process may have children: looking through all processes of the machine takes long."""
    try:
        tasks = PROC / str(pid) / "task"
        return any(read_bytes(tasks / thread / "children") for thread in folder_names(tasks))
    except OSError:
        return True  # this kernel does not tell
