"""What an engine is: something that runs attempts of tasks elsewhere and says what became of each.

An engine knows nothing of futures, retries, caches or manifests. It is handed one attempt after another, runs
each where it runs things, and reports: queued, started, and exactly one end. The session decides everything
else.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.events import Usage, WorkerEvent
from flightlog.events.base import doc


class Resources(Struct, frozen=True, kw_only=True):
    """What a worker of a component needs; None is "not said"."""

    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: float | None = None
    walltime_s: float | None = None


class Work(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One attempt of one task, ready to travel: everything in it is bytes, text or a number."""

    task_id: str
    task: Annotated[str, doc("name of the task")]
    attempt: int
    call: Annotated[bytes, doc("pickled (function, args, kwargs)")]
    args: Annotated[dict[str, Any], doc("arguments by name, bounded and redacted, as recorded")]
    args_bytes: int
    submitted: Annotated[float, doc("Unix time of the submission, for queue_s on the same host")]
    place: Annotated[dict[str, str], doc("carrier of the run and of the span that submitted it")]
    span_id: Annotated[str, doc("W3C span id of the attempt")]
    component: str | None = None
    timeout_s: float | None = None


class Outcome(Usage, kw_only=True, omit_defaults=True):
    """What became of an attempt and what it used, measured where it ran; None is unknown."""

    end: Literal["completed", "failed", "cancelled", "lost", "timed_out"]
    result: Annotated[bytes | None, doc("pickled result of a completed attempt")] = None
    error: Annotated[bytes | None, doc("pickled exception of a failed attempt, where it can be pickled")] = (
        None
    )
    error_type: str | None = None
    error_message: str | None = None
    traceback: str | None = None
    fingerprint: str | None = None
    reason: Annotated[str | None, doc("why it was cancelled, lost or timed out")] = None
    exit_code: int | None = None
    signal: str | None = None
    worker: str | None = None
    host: str | None = None
    pid: int | None = None
    thread: int | None = None
    started: Annotated[str | None, doc("timestamp of the start")] = None
    ended: Annotated[str | None, doc("timestamp of the end")] = None
    duration_s: float | None = None
    queue_s: float | None = None
    result_bytes: int | None = None
    tags: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    nonfinite: dict[str, str] = {}


def refused(error: BaseException, why: str) -> Outcome:
    """The outcome of an attempt that could not even begin."""
    return Outcome(end="failed", error_type=type(error).__name__, error_message=f"{why}: {error}")


class WorkerView(Struct, frozen=True, kw_only=True):
    """A worker as its engine sees it now."""

    worker: str
    host: str | None
    pid: int | None
    running: Annotated[tuple[str, ...], doc("ids of the tasks it executes")] = ()


class Reports(Protocol):
    """Where an engine says what happens; callable from any thread, never raises, never blocks for long."""

    def queued(self, task_id: str, attempt: int) -> None:
        """The attempt waits for a worker."""

    def started(self, task_id: str, attempt: int, worker: str) -> None:
        """A worker executes the attempt; the event `task_started` was written where it runs."""

    def ended(self, task_id: str, attempt: int, outcome: Outcome) -> None:
        """The attempt is over: exactly once for each attempt that was submitted."""

    def worker(self, event: WorkerEvent) -> None:
        """Something happened to a worker."""


class Engine(Protocol):
    """Runs attempts. Every method is safe to call from any thread; none waits but `start` and `close`.

    An engine may have a function `dumps`: then calls are pickled by it, for workers that do not import the
    program. It may have a name, `provider`, that is recorded where it takes the place of the target's own.
    """

    def start(self, run_path: str | None, reports: Reports) -> None:
        """Begin; workers may be launched now or when there is work. `run_path` is the run they record
        into.
        """

    def submit(self, work: Work) -> None:
        """Take an attempt; its end will be reported."""

    def cancel(self, task_id: str, reason: str) -> bool:
        """Give an attempt up, also one that runs where that is possible; whether it will be reported as
        cancelled.
        """

    def workers(self) -> Sequence[WorkerView]:
        """The workers there are."""

    def close(self, timeout_s: float = 10.0) -> None:
        """End all workers; whatever had not ended by then is reported as cancelled or lost."""


class PooledEngine:
    """An engine over a pool, which does the work: most often a `Dispatcher`. `_make_pool` is the engine's."""

    _pool: Any = None

    def __init__(self) -> None:
        self._pid: int | None = None
        self._lock = threading.Lock()

    def start(self, run_path: str | None, reports: Reports) -> None:
        """Begin; workers are launched when there is work."""
        with self._lock:
            if self._pid is not None:
                raise UsageError("the engine has been started already")
            self._pid = os.getpid()
        self._pool = self._make_pool(run_path)
        self._pool.start(reports)
        # After `multiprocessing` has registered its own, which would wait for workers that nobody has told to
        # end.
        atexit.register(self._at_exit)

    def submit(self, work: Work) -> None:
        """Take an attempt; its end will be reported, in whatever thread it comes about."""
        if self._pool is None:
            raise UsageError("the engine has not been started")
        self._pool.submit(work)

    def cancel(self, task_id: str, reason: str) -> bool:
        """Give an attempt up; whether it will be reported as cancelled."""
        return self._pool is not None and bool(self._pool.cancel(task_id, reason))

    def workers(self) -> Sequence[WorkerView]:
        """The workers there are."""
        found: Sequence[WorkerView] = self._pool.workers() if self._pool is not None else ()
        return found

    def close(self, timeout_s: float = 10.0) -> None:
        """End all workers; what still runs after `timeout_s` is ended, or written off, and reported as
        cancelled.

        May be called twice. In a forked child it does nothing: the workers are its parent's.
        """
        if self._pid != os.getpid() or self._pool is None:
            return
        self._pool.close(timeout_s)
        atexit.unregister(self._at_exit)
        self._closed()

    def _make_pool(self, run_path: str | None) -> Any:
        """What has `start`, `submit`, `cancel`, `workers` and `close`. A `UsageError` where there can be
        none.
        """
        raise NotImplementedError

    def _closed(self) -> None:
        """What is to do after the pool has closed."""

    def _at_exit(self) -> None:
        self.close(timeout_s=0.0)


def check_counts(**counts: int | None) -> None:
    """A `UsageError` unless each is a whole number, 1 or more; None is "not said"."""
    for name, value in counts.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise UsageError(f"{name} is {value!r}; it must be a whole number, 1 or more")
