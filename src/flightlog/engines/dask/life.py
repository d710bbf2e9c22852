"""One watched Dask task, and what Dask says that a worker did for it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from dask.utils import key_split

_PURE = re.compile(r"-[0-9a-f]{32}\b")
_STAMP = re.compile(r"-?\d+(\.\d+)?$")


@lru_cache(maxsize=10_000)
def _is_pure(key: str) -> bool:
    return _PURE.search(key) is not None


class Life:
    """One task from submission to end. Times are Unix seconds: of the scheduler, but `started` of the
    worker.
    """

    __slots__ = (
        "args",
        "assigned",
        "attempt",
        "digest",
        "key",
        "lost",
        "parent",
        "queue_s",
        "queued",
        "run_id",
        "started",
        "submitted",
        "task",
        "task_id",
        "worker",
    )

    def __init__(self, key: str, task_id: str, submitted: float | None) -> None:
        self.key, self.task_id, self.submitted = key, task_id, submitted
        # Of the tasks of one `client.map` all but the number at the end of the key is the same.
        head, _, number = key.rpartition("-")
        kind = key if not head or not number.isdecimal() else head
        self.task: str = key_split(kind)
        self.digest: str | None = key if _is_pure(kind) else None
        """Of a pure call Dask's key is a digest of function and arguments."""
        self.args: dict[str, Any] = {}
        self.parent: str | None = None
        self.lost: list[str] = []
        """The workers that died while they had it."""
        self.attempt = 1
        self.begin()

    def begin(self) -> None:
        """An attempt begins, of which nothing is known yet."""
        self.queued: float | None = None
        self.assigned: float | None = None
        self.started: float | None = None
        self.queue_s: float | None = None
        self.worker: str | None = None
        self.run_id: int | None = None


class Steps:
    """What Dask says that a worker did for a task, on the worker's own clock; None where it says nothing.

    `delay` is what the worker had added to bring its times to the scheduler's clock. That is an estimate, off
    by milliseconds, and would put a task beside the spans inside it.
    """

    def __init__(self, steps: Any, delay: float | None) -> None:
        self.delay = delay or 0.0
        self.start: float | None = None
        self.stop: float | None = None
        self.compute_s: float | None = None
        self.transfer_s: float | None = None
        self.spill_s: float | None = None
        self.fetched: list[float] = []
        """When its transfers began, as Dask has it."""
        for action, start, stop, _ in steps or ():
            if action == "compute" and start is not None and stop is not None:
                self.start, self.stop, self.compute_s = (
                    start - self.delay,
                    stop - self.delay,
                    max(stop - start, 0.0),
                )
            elif action == "transfer":
                self.transfer_s = (self.transfer_s or 0.0) + max(stop - start, 0.0)
                self.fetched.append(start)
            elif action in ("disk-read", "disk-write"):
                self.spill_s = (self.spill_s or 0.0) + max(stop - start, 0.0)


def plain_stimulus(stimulus: str) -> str:
    """What set Dask going, without the time at its end."""
    return _STAMP.sub("", stimulus) or "unknown"


def is_given_up(stimulus: str) -> bool:
    """Whether a task that is released for this will not be tried again."""
    return stimulus.startswith(("cancel-key", "client-releases", "remove-client"))


def why_forgotten(stimulus: str) -> str:
    """Why a task ended before it was done."""
    if stimulus.startswith("cancel-key"):
        return "cancelled by the client"
    if stimulus.startswith("client-releases"):
        return "released: nobody wanted its result any more"
    if stimulus.startswith("remove-client"):
        return "its client went away"
    return f"Dask: {plain_stimulus(stimulus)}"


def since(earlier: float | None, later: float | None) -> float | None:
    """Seconds between two times; None where one is unknown."""
    return None if earlier is None or later is None else max(later - earlier, 0.0)
