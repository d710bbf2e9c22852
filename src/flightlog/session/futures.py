"""Futures of tasks: those of `concurrent.futures`, which can be awaited and handed to other tasks as well."""

from __future__ import annotations

import functools
import os
import pickle
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures._base import PENDING
from typing import Any, Literal

from msgspec import Struct

from flightlog.core.displayed import Displayed
from flightlog.core.errors import UsageError
from flightlog.engines.execute import plain_dumps, unpickled


class FutureCondition:
    """As `threading.Condition`, as far as futures use it: one lock for all of them, held for a moment at a
    time, and what is waited by only where somebody waits.

    The standard one is ten objects. Of a hundred thousand futures, the garbage collector would look at a
    million again and again, and let the program wait meanwhile.
    """

    __slots__ = ("_waiting",)
    lock = threading.RLock()

    def __init__(self) -> None:
        self._waiting: threading.Condition | None = None

    def acquire(self) -> bool:
        """Take the lock."""
        return FutureCondition.lock.acquire()

    def release(self) -> None:
        """Let the lock go."""
        FutureCondition.lock.release()

    def __enter__(self) -> bool:
        return FutureCondition.lock.__enter__()

    def __exit__(self, *error: Any) -> None:
        FutureCondition.lock.__exit__(*error)

    def wait(self, timeout: float | None = None) -> bool:
        """Let the lock go until notified, for so many seconds at most; whether it was notified."""
        if self._waiting is None:
            self._waiting = threading.Condition(FutureCondition.lock)
        return self._waiting.wait(timeout)

    def notify_all(self) -> None:
        """Wake everybody who waits."""
        if self._waiting is not None:
            self._waiting.notify_all()


def _after_fork() -> None:
    FutureCondition.lock = threading.RLock()  # a thread that is not in the child may have held it


os.register_at_fork(after_in_child=_after_fork)


class TaskFuture(Displayed, Future[Any]):
    """What will become of one task.

    `result`, `exception`, `done`, `add_done_callback` and so on are those of `concurrent.futures.Future`, and
    `concurrent.futures.wait` works. In any event loop `await future` works, and so do `asyncio.wait`,
    `asyncio.gather` and all else that takes awaitables; cancelling what awaits it cancels the task, unless
    that is behind `asyncio.shield`. Handed to another task as an argument, at any depth of it, it stands for
    its result.
    """

    def __init__(self, task_id: str, task: str, cancel: Callable[[TaskFuture], bool]) -> None:
        # As of the class above, whose own condition costs much.
        self._condition: Any = FutureCondition()
        self._state, self._result, self._exception = PENDING, None, None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Callable[[Any], object]] = []
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

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Have it called with this future when the task is over: at once if it is, else on the thread that
        ends it. The callbacks of `asyncio.wait` are called on their loop.
        """
        if getattr(fn, "__module__", None) == "asyncio.tasks":
            from flightlog.session.asynchronous import loop_calls

            fn = functools.partial(loop_calls().post, fn)
        super().add_done_callback(fn)

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Do not call it; gives how often it would have been called."""
        with self._condition:
            before = self._done_callbacks
            left = [one for one in before if fn not in (one, *getattr(one, "args", ()))]
            self._done_callbacks = left
            return len(before) - len(left)

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        if not self.done():
            from flightlog.session.asynchronous import Signal

            over = Signal()
            self.add_done_callback(over)
            try:
                yield from over.happened
            except asyncio.CancelledError:
                self.remove_done_callback(over)
                self.cancel()
                raise
        if self.cancelled():
            raise asyncio.CancelledError
        return self.result(0)

    def __reduce__(self) -> tuple[Any, ...]:
        return leave_placeholder(self)

    def __repr__(self) -> str:
        return f"<future of {self.task}>"  # as an argument it is recorded so: the same in every run


def on_last_end(
    number: int, tell: Callable[[], object], errors: Literal["raise", "return"]
) -> Callable[[Future[Any]], None]:
    """A callback for so many futures, which tells when all are done. Where errors are raised it also tells
    when one of them is done without a result: it failed, or was cancelled.

    Whoever waits for one after the other is woken at each. `concurrent.futures.wait` does not return for one
    that is cancelled.
    """
    left = number
    lock = threading.Lock()

    def ended(future: Future[Any]) -> None:
        nonlocal left
        with lock:
            left -= 1
        if left == 0 or (errors == "raise" and (future.cancelled() or future.exception(0) is not None)):
            tell()

    return ended


class Completions:
    """Futures, each when it is done: for `for`, and for `async for` in an event loop."""

    def __init__(self, futures: list[TaskFuture], timeout: float | None) -> None:
        # What goes in comes out.
        self._each: Iterator[Any] = as_completed(futures, timeout)
        self._given = futures, timeout

    def __iter__(self) -> Iterator[TaskFuture]:
        return self

    def __next__(self) -> TaskFuture:
        future: TaskFuture = next(self._each)
        return future

    def __aiter__(self) -> AsyncIterator[TaskFuture]:
        from flightlog.session.asynchronous import each_when_done

        return each_when_done(*self._given)


class Packed(Struct):
    """A call as bytes, and the tasks whose results it needs."""

    call: bytes
    """Pickled (function, args, kwargs); futures that are not done are placeholders."""
    futures: list[TaskFuture]
    """Every future in it, in order of appearance, once each."""
    awaited: list[TaskFuture]
    """Those of them that are placeholders."""


class _Here(threading.local):
    found: dict[str, tuple[TaskFuture, bool]] | None = None
    """While a call is pickled: the futures met so far, and whether each is a placeholder."""
    values: Mapping[str, bytes] | None = None
    """While a call is unpickled: the results that its placeholders stand for."""


_here = _Here()


def pack(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    of: Callable[..., Any] | None = None,
    dumps: Callable[[Any], bytes] = plain_dumps,
) -> Packed:
    """The call as it is now: what is changed in its arguments later does not change it.

    A `UsageError` says what cannot be pickled, and of which call; `of` is the function, where another one
    calls it. A call without futures costs nothing more than its pickling, by `dumps`.
    """
    _here.found = {}
    try:
        call = dumps((function, tuple(args), dict(kwargs)))
        met = _here.found.values()
        return Packed(call, [one for one, _ in met], [one for one, left in met if left])
    except Exception as error:
        raise UsageError(_refusal(of or function, error)) from error
    finally:
        _here.found = None


def unpack(call: bytes, results: Mapping[str, bytes]) -> Any:
    """In the worker: function, arguments and keywords of a call, with results in place of placeholders."""
    _here.values = results
    try:
        return unpickled(call)
    finally:
        _here.values = None


def leave_placeholder(future: TaskFuture) -> tuple[Any, ...]:
    """How a future is pickled: as its result, where it is there, else as a placeholder for it."""
    if _here.found is None:
        raise TypeError(
            "a future of a task is pickled only as an argument of another task: take its result()"
        )
    there = future.done() and not future.cancelled() and future.exception(0) is None
    _here.found[future.task_id] = future, not there
    if there:
        return _same, (future.result(0),)
    return _result_of, (future.task_id,)


def _same(value: Any) -> Any:
    return value


def _result_of(task_id: str) -> Any:
    assert _here.values is not None, "a call with placeholders is read by `unpack`"
    return pickle.loads(_here.values[task_id])  # noqa: S301 - from the session that this worker belongs to


def _refusal(function: Callable[..., Any], error: Exception) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or type(function).__name__
    text = f"the call of {name} cannot be sent to a worker: {type(error).__name__}: {error}."
    if "<locals>" in name or "<lambda>" in name:
        text += " Define the function at the top of a module, where workers can import it."
    return text
