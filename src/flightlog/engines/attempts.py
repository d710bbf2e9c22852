"""The attempts an engine was given: which wait, which run, until when, and that each ends exactly once."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Literal

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.engines.contract import Outcome, Reports, Work
from flightlog.engines.event_loop import Timer
from flightlog.engines.execute import Started
from flightlog.engines.limits import EngineLimits
from flightlog.engines.processes import ExitReason
from flightlog.events import WorkerEvent, WorkerLost, WorkerRemoved
from flightlog.record.clock import Clock, monotonic_ns

log = logging.getLogger("flightlog")

End = Literal["cancelled", "lost", "timed_out"]
"""The ends that an engine decides on; the others are the task's own."""

Home = tuple[str | None, int | None]
"""Host and process of a worker; None is unknown."""
NOWHERE: Home = (None, None)

CLOSED = "the engine was closed"
STUCK = "its thread cannot be ended and is written off"
"""What is said of an attempt whose end is reported although it goes on."""


class Attempt(Struct, eq=False):
    """One attempt on its way through an engine; every field but `work` and `serial` changes under the
    registry's lock.
    """

    work: Work
    serial: int
    """Its number in this engine."""
    waiting: bool = True
    over: bool = False
    mishaps: int = 0
    """How often a worker that was given it died before it began."""
    holder: object | None = None
    """What was given it, for the engine's own use."""
    recallable: bool = False
    """Whether it could be had back from there while it is unread."""
    timer: Timer | None = None
    """When it has to be over."""
    worker: str | None = None
    begun: Started | None = None
    verdict: tuple[End, str] | None = None
    """How it will be reported, whatever it still does itself."""

    @property
    def may_be_retried(self) -> bool:
        """Whether it may be handed out again when its worker dies: it has not begun, as far as is known."""
        return self.begun is None and self.mishaps < EngineLimits.max_handouts and self.verdict is None

    @property
    def overrun(self) -> str:
        """What is said of it when it runs longer than it may."""
        return f"{self.work.task} ran over its timeout of {self.work.timeout_s:g} s"


class AttemptRegistry:
    """Every attempt from `add` to its end, and the reports of both; thread-safe.

    Reports are made without holding the lock, so whoever gets one may call the engine again. A report that
    raises against its contract is logged, and changes nothing.
    """

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._lock = threading.Lock()
        self._queue: deque[Attempt] = deque()
        self._live: dict[str, Attempt] = {}
        self._waiting = 0
        self._serials = count(1)
        self._shut: tuple[End, str] | None = None
        self._clock = Clock()

    @property
    def waiting(self) -> int:
        """How many attempts wait for a worker."""
        return self._waiting

    @property
    def live(self) -> int:
        """How many attempts have not ended."""
        return len(self._live)

    def add(self, work: Work) -> None:
        """Take an attempt in, as the last that waits; one that comes too late ends at once."""
        attempt = Attempt(work, next(self._serials))
        with self._lock:
            if work.task_id in self._live:
                raise UsageError(
                    f"an attempt of the task {work.task_id!r} has not ended yet: cannot take another one"
                )
            self._live[work.task_id] = attempt
        self._tell(self._reports.queued, work.task_id, work.attempt)
        with self._lock:
            shut = self._shut
            if shut is None:
                self._waiting += 1
                self._queue.append(attempt)
                return
            attempt.waiting = False
        self.end(attempt, Outcome(end=shut[0], reason=shut[1]))

    def next(self, *, longest: int | None = None) -> Attempt | None:
        """The attempt that has waited longest; it waits no more. None if its call has more bytes than
        `longest`.
        """
        with self._lock:
            while self._queue:
                attempt = self._queue[0]
                if attempt.waiting and longest is not None and len(attempt.work.call) > longest:
                    return None
                self._queue.popleft()
                if attempt.waiting:
                    attempt.waiting = False
                    self._waiting -= 1
                    return attempt
        return None

    def put_back(self, attempt: Attempt) -> None:
        """Let an attempt wait again, before all others; or end, if that was decided meanwhile."""
        with self._lock:
            verdict = attempt.verdict or self._shut
            if verdict is None:
                attempt.waiting, attempt.worker = True, None
                self._waiting += 1
                self._queue.appendleft(attempt)
                return
        self.end(attempt, Outcome(end=verdict[0], reason=verdict[1]))

    def cancel(
        self, task_id: str, reason: str, *, running: Callable[[Attempt], bool]
    ) -> tuple[bool, Attempt | None]:
        """Whether the attempt will be reported as cancelled, and the attempt if that has still to be brought
        about.

        One that waits ends here. One that a worker has is judged, if `running` says that it can be ended.
        """
        with self._lock:
            attempt = self._live.get(task_id)
            if attempt is None or attempt.over:
                return False, None
            if attempt.verdict is not None:
                return attempt.verdict[0] == "cancelled", None
            if not attempt.waiting:
                if not running(attempt):
                    return False, None
                attempt.verdict = ("cancelled", reason)
                return True, attempt
            attempt.waiting = False
            self._waiting -= 1
        self.end(attempt, Outcome(end="cancelled", reason=reason))
        return True, None

    def judge(self, attempt: Attempt, end: End, reason: str) -> bool:
        """Decide how an attempt that runs will be reported; False if it is over or was judged before."""
        with self._lock:
            if attempt.over or attempt.verdict is not None:
                return False
            attempt.verdict = (end, reason)
            return True

    def start(self, attempt: Attempt, worker: str, begun: Started) -> None:
        """A worker executes it."""
        with self._lock:
            if attempt.over:
                return
            attempt.worker, attempt.begun = worker, begun
        self._tell(self._reports.started, attempt.work.task_id, attempt.work.attempt, worker)

    def end(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Report the end of an attempt, as its verdict has it if there is one; False if it had ended
        before.
        """
        with self._lock:
            if attempt.over:
                return False
            attempt.over = True
            self._live.pop(attempt.work.task_id, None)
        if attempt.verdict is not None:
            outcome.end, outcome.reason = attempt.verdict
            outcome.result = outcome.error = outcome.error_type = outcome.error_message = None
            outcome.traceback = outcome.fingerprint = None
        self._tell(self._reports.ended, attempt.work.task_id, attempt.work.attempt, outcome)
        return True

    def lose(
        self, attempt: Attempt, death: ExitReason, home: Home = NOWHERE, at_ns: int | None = None
    ) -> None:
        """End an attempt as lost with its worker, which died of this; or as its verdict has it."""
        outcome = self.cut_short(attempt, "lost", death.reason, home, at_ns)
        if attempt.verdict is None:
            outcome.exit_code, outcome.signal = death.exit_code, death.signal
        self.end(attempt, outcome)

    def cut_short(
        self, attempt: Attempt, end: End, reason: str, home: Home = NOWHERE, at_ns: int | None = None
    ) -> Outcome:
        """The outcome of an attempt that was ended from outside, at this moment or one before: what is known
        of it here.

        `home` is where it was, `at_ns` on this host's monotonic clock.
        """
        now = monotonic_ns() if at_ns is None else at_ns
        begun = attempt.begun
        return Outcome(
            end=end,
            reason=reason,
            worker=attempt.worker,
            host=home[0],
            pid=home[1],
            started=begun.timestamp if begun is not None else None,
            ended=self._clock.iso(now),
            duration_s=(now - begun.monotonic_ns) / 1e9 if begun is not None else None,
            queue_s=begun.queue_s if begun is not None else None,
        )

    def shut(self, end: End, reason: str) -> None:
        """End everything that waits, and all that is added from now on, in this way."""
        with self._lock:
            self._shut = self._shut or (end, reason)
            left = [attempt for attempt in self._queue if attempt.waiting]
            for attempt in left:
                attempt.waiting = False
            self._queue.clear()
            self._waiting = 0
        for attempt in left:
            self.end(attempt, Outcome(end=end, reason=reason))

    def timestamp(self, monotonic_s: float) -> str:
        """A moment on this host's monotonic clock as a timestamp."""
        return self._clock.iso(int(monotonic_s * 1e9))

    def worker(self, event: WorkerEvent) -> None:
        """Report something that happened to a worker."""
        self._tell(self._reports.worker, event)

    def worker_ended(
        self, facts: dict[str, Any], death: ExitReason, *, expected: bool, uptime_s: float | None
    ) -> None:
        """Report the end of the worker of this name, host and process: that it was ended, or lost."""
        self.worker(
            WorkerRemoved(reason=death.reason, uptime_s=uptime_s, **facts)
            if expected
            else WorkerLost(reason=death.reason, exit_code=death.exit_code, signal=death.signal, **facts)
        )

    def _tell(self, report: Callable[..., None], *facts: object) -> None:
        try:
            report(*facts)
        except Exception:
            log.exception("a report of the engine was not taken")
