"""Futures of tasks: those of `concurrent.futures`, which can be awaited and handed to other tasks as well."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Any, Literal

from flightlog.core.displayed import Displayed
from flightlog.session.dependencies import leave_placeholder


class TaskFuture(Displayed, Future[Any]):
    """What will become of one task.

    `result`, `exception`, `done`, `add_done_callback` and so on are those of `concurrent.futures.Future`, and
    `concurrent.futures.wait` works. `await future` works in any event loop; cancelling what awaits it cancels
    the task. Handed to another task as an argument, at any depth of it, it stands for its result.
    """

    def __init__(self, task_id: str, task: str, cancel: Callable[[TaskFuture], bool]) -> None:
        super().__init__()
        self.task_id = task_id
        self.task = task
        """Name of the task."""
        self.worker: str | None = None
        """Where it runs or ran; None while it waits, and where nobody knows."""
        self.duration_s: float | None = None
        """Execution of its last attempt, in seconds; None before its end, and where nobody knows."""
        self._started = self._notified = False
        self._give_up = cancel

    def running(self) -> bool:
        """Whether a worker executes it now."""
        return self._started and not self.done()

    def state(self) -> Literal["waiting", "running", "completed", "failed", "cancelled"]:
        """How it stands. Waits for nothing."""
        if not self.done():
            return "running" if self._started else "waiting"
        if self.cancelled():
            return "cancelled"
        return "completed" if self.exception(0) is None else "failed"

    def cancel(self) -> bool:
        """Give the task up, also one that runs where its engine can end it; whether that is what will
        happen.
        """
        return self.cancelled() or (not self.done() and self._give_up(self))

    def note_started(self, started: bool, worker: str | None = None) -> None:
        """For the session: an attempt runs on a worker, or is over and the task is not."""
        self._started, self.worker = started, worker

    def note_end(self, worker: str | None, duration_s: float | None) -> None:
        """For the session: the last attempt is over."""
        self.worker, self.duration_s = worker or self.worker, duration_s

    def end_cancelled(self) -> None:
        """For the session: the task was given up."""
        # The future itself never leaves the state in which it can be cancelled: `running` has a flag of its
        # own.
        if super().cancel() and not self._notified:
            self._notified = True
            self.set_running_or_notify_cancel()

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        return asyncio.wrap_future(self).__await__()

    def __reduce__(self) -> tuple[Any, ...]:
        return leave_placeholder(self)

    def __repr__(self) -> str:
        return f"<future of {self.task}>"  # as an argument it is recorded so: the same in every run


def wait_together(futures: Sequence[Future[Any]]) -> None:
    """Wait until all are done, or one of them without a result.

    Whoever waits for one after the other is woken at each, and takes turns with the thread that tells of the
    ends.
    """
    over = threading.Event()
    left = len(futures)
    lock = threading.Lock()

    def ended(future: Future[Any]) -> None:
        nonlocal left
        with lock:
            left -= 1
        if left == 0 or future.cancelled() or future.exception(0) is not None:
            over.set()

    for future in futures:
        future.add_done_callback(ended)
    if futures:
        over.wait()
