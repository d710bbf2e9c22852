"""The one authority over a session's tasks: what the engine reports becomes events, next attempts and
results.

Every task that was submitted gets exactly one of `task_completed`, `task_failed` and `task_cancelled`,
written before its future says so.
"""

from __future__ import annotations

import logging
import os
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.core.errors import CommandError, TaskError, TaskTimeoutError, UsageError
from flightlog.core.retry import delay_s
from flightlog.core.text import cut
from flightlog.engines.contract import Engine, Outcome, Work, refused
from flightlog.engines.event_loop import TimerThread
from flightlog.engines.execute import plain_dumps
from flightlog.events import (
    DEPENDENCY_FAILED,
    Failure,
    TaskCancelled,
    TaskCompleted,
    TaskEnded,
    TaskFailed,
    TaskQueued,
    TaskRetried,
    TaskSubmitted,
    WorkerEvent,
    WorkerLost,
    WorkerRemoved,
    usage_of,
)
from flightlog.record.failure import describe
from flightlog.record.recorder import Recorder
from flightlog.record.task import is_cancellation
from flightlog.record.worker_costs import WorkerCosts
from flightlog.session.call_wrapper import Preparation, as_sent
from flightlog.session.futures import TaskFuture
from flightlog.session.limits import SessionLimits
from flightlog.session.progress import TaskPace


class Task(Struct, kw_only=True, eq=False):
    """What the session knows of one task. `waiting` and `met` change under the tracker's lock alone."""

    work: Work
    """The present attempt."""
    trace_id: str
    parent_id: str | None
    args_digest: str | None
    retries: int
    future: TaskFuture
    depends_on: list[str]
    waits_for: tuple[TaskFuture, ...]
    preparation: Preparation | None
    serialize_s: float = 0.0
    """How long this process took to pickle its call and to read its result, so far."""
    met: int = 0
    """How many of `waits_for` have completed."""
    waiting: bool = True
    """The session has it, not the engine: it waits for other tasks, or for its next attempt."""
    given_up: str | None = None
    """Why it was cancelled, once its engine has agreed to end it."""

    def ids(self, work: Work | None = None) -> dict[str, Any]:
        """What all events of an attempt say of it, by default of the present one."""
        work = work or self.work
        return {
            "task": work.task,
            "task_id": work.task_id,
            "component": work.component,
            "trace_id": self.trace_id,
            "span_id": work.span_id,
            "parent_id": self.parent_id,
        }

    def arguments(self) -> dict[str, Any]:
        """What events say of its arguments."""
        return {"args": self.work.args, "args_digest": self.args_digest}


_WORDS = {"lost": "WorkerLost", "timed_out": "TimeoutError"}
_OF_OUTCOME = [name for name in TaskEnded.__struct_fields__ if name in Outcome.__struct_fields__]
"""What the end of a task says as the outcome of its last attempt does."""
_told = attrgetter(*_OF_OUTCOME)


def failed_by_itself(outcome: Outcome) -> Outcome:
    """The outcome of an attempt that nobody asked to end: what it raised is its failure, also if it means
    giving up.

    An attempt that its engine ended carries no exception, and stays as it is.
    """
    if outcome.end != "cancelled" or outcome.error_type is None:
        return outcome
    return msgspec.structs.replace(outcome, end="failed", reason=None)


def value_of(work: Work, outcome: Outcome) -> tuple[Any, Outcome, BaseException | None]:
    """Result, outcome and error of an attempt that ended; a result that cannot be read here makes it a failed
    one.

    An attempt that said of itself that it failed, and returned, has a result and no error to raise.
    """
    if outcome.result is None:
        return None, outcome, None if outcome.end == "completed" else error_of(work, outcome)
    try:
        return pickle.loads(outcome.result), outcome, None  # noqa: S301 - from a worker of this session
    except Exception as error:  # noqa: BLE001 - the user's own `__setstate__` or `__init__` runs here
        text = describe(error)
        failed = msgspec.structs.replace(
            outcome,
            end="failed",
            result=None,
            error_type=text.error_type,
            traceback=text.traceback,
            error_message=f"the result of {work.task} cannot be unpickled here: {text.message}",
            fingerprint=text.fingerprint,
        )
        return None, failed, _task_error(failed)


def error_of(work: Work, outcome: Outcome) -> BaseException:
    """The exception that the task's future raises: the original, with the worker's traceback as a note, or a
    stand-in.

    What would end this program were it raised here (SystemExit, KeyboardInterrupt), or seem to cancel whoever
    waits, is never the original.
    """
    if outcome.error is not None:
        try:
            error = pickle.loads(outcome.error)  # noqa: S301 - from a worker of this session
            if isinstance(error, Exception) and not is_cancellation(type(error)):
                if outcome.traceback:
                    where = f" on {outcome.worker}" if outcome.worker else ""
                    error.add_note(f"In the worker{where}:\n{outcome.traceback.rstrip()}")
                return error
        except Exception as problem:  # noqa: BLE001 - exceptions that pickle and do not unpickle are common
            stand_in = _task_error(outcome)
            stand_in.add_note(f"The exception itself could not be unpickled here: {problem!r}")
            return stand_in
    if outcome.end in _WORDS:
        outcome = msgspec.structs.replace(
            outcome, error_type=error_type_of(outcome), error_message=message_of(work, outcome)
        )
    return _task_error(outcome)


def error_type_of(outcome: Outcome) -> str | None:
    """What an attempt ended with, in a word."""
    return outcome.error_type or _WORDS.get(outcome.end)


def message_of(work: Work, outcome: Outcome) -> str | None:
    """What there is to say of how an attempt failed."""
    if outcome.error_message is not None:
        return outcome.error_message
    if outcome.reason is not None:
        return outcome.reason
    if outcome.end == "timed_out":
        limit = f" within {work.timeout_s:g} s" if work.timeout_s is not None else " in time"
        return f"{work.task} did not end{limit}"
    if outcome.end == "lost":
        return f"the worker that executed {work.task} went away"
    return None


class CommandOutput(Struct, frozen=True, kw_only=True):
    """What a command that ended with 0 leaves: the result of its task."""

    exit_code: int
    stdout: str
    """Its last lines, some 8,000 characters at most, with secrets redacted."""
    stderr: str
    stdout_bytes: int
    """How much it wrote in all."""
    stderr_bytes: int
    cpu_s: float
    """CPU time of the command and of the processes it waited for."""
    peak_rss_bytes: int | None
    """Resident memory of the largest of these processes; null where that was less than the worker's own."""


def as_recorded(outcome: Outcome, value: Any, error: BaseException | None) -> Outcome:
    """The outcome as it is recorded: that of a command is told by its exit, not by the exception that carries
    it.
    """
    if isinstance(value, CommandOutput):
        outcome.exit_code = value.exit_code
    if not isinstance(error, CommandError):
        return outcome
    return msgspec.structs.replace(
        outcome, error_type=error.error_type, exit_code=error.exit_code, signal=error.signal, traceback=None
    )


def _task_error(outcome: Outcome) -> TaskError:
    kind, message = outcome.error_type, outcome.error_message
    make = TaskTimeoutError if outcome.end == "timed_out" else TaskError
    error = make(": ".join(part for part in (kind, message) if part) or "the task failed")
    error.error_type, error.remote_traceback = kind, outcome.traceback
    if outcome.traceback:
        error.add_note(f"In the worker:\n{outcome.traceback.rstrip()}")
    return error


def retried_event(task: Task, work: Work, outcome: Outcome, delay_s: float) -> TaskRetried:
    """An attempt failed, and there will be another one."""
    why = error_type_of(outcome), message_of(work, outcome)
    return TaskRetried(
        timestamp=outcome.ended or "",
        attempt=work.attempt,
        reason=": ".join(part for part in why if part) or None,
        delay_s=delay_s,
        worker=outcome.worker,
        duration_s=outcome.duration_s,
        queue_s=outcome.queue_s,
        **usage_of(outcome),
        **task.ids(work),
    )


def failure_event(work: Work, outcome: Outcome, error: BaseException | None) -> Failure:
    """What an attempt failed of, traceback included."""
    command = error if isinstance(error, CommandError) else None
    return Failure(
        timestamp=outcome.ended or "",
        scope="task" if command is None else "command",
        error_type=error_type_of(outcome),
        message=message_of(work, outcome),
        traceback=outcome.traceback,
        fingerprint=outcome.fingerprint,
        task=work.task,
        task_id=work.task_id,
        attempt=work.attempt,
        worker=outcome.worker,
        span_id=work.span_id,
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        output_tail=None if command is None else command.stderr or command.stdout or None,
    )


def ended_event(task: Task, outcome: Outcome) -> TaskEnded:
    """The task is over: the one end it has."""
    facts: dict[str, Any] = {
        **dict(zip(_OF_OUTCOME, _told(outcome), strict=True)),
        **task.ids(),
        **task.arguments(),
        "timestamp": outcome.ended or "",
        "attempt": task.work.attempt,
        "session_serialize_s": task.serialize_s,
    }
    if outcome.end == "completed":
        return TaskCompleted(result_bytes=outcome.result_bytes, exit_code=outcome.exit_code, **facts)
    if outcome.end == "cancelled":
        return TaskCancelled(reason=outcome.reason, **facts)
    return TaskFailed(
        error_type=error_type_of(outcome),
        error_message=message_of(task.work, outcome),
        exit_code=outcome.exit_code,
        fingerprint=outcome.fingerprint,
        **facts,
    )


log = logging.getLogger("flightlog")

_RETRIED = frozenset({"failed", "lost", "timed_out"})


class Counts(Struct):
    """How a session's tasks stand."""

    submitted: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0

    @property
    def ended(self) -> int:
        """Tasks that are over."""
        return self.completed + self.failed + self.cancelled


class Tracker:
    """Follows every task of a session to its end; implements `Reports`. Thread-safe; no method of it raises
    but `add`.

    `recorder` is None where nothing is recorded: everything works the same and leaves no events. No lock is
    held while events are written, futures resolved or the engine called.
    """

    def __init__(
        self,
        engine: Engine,
        recorder: Recorder | None,
        next_id: Callable[[], str],
        costs: WorkerCosts | None = None,
    ) -> None:
        self.counts = Counts()
        self.failures: list[str] = []
        """A line for each of the first tasks that failed for good."""
        self.dependents_failed = 0
        """Tasks that failed because one that they depend on did: `failures` has none of these."""
        self.pace = TaskPace()
        self._costs = costs or WorkerCosts()
        self._engine, self._recorder, self._next_id = engine, recorder, next_id
        self.dumps: Callable[[Any], bytes] = getattr(engine, "dumps", plain_dumps)
        """How calls and results are pickled for the engine's workers."""
        self._tasks: dict[str, Task] = {}
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._ending = 0
        self._closing: str | None = None
        self._left: list[tuple[Task, Outcome]] = []
        self._delays = TimerThread("flightlog-retries")

    # --- what the client asks for

    def add(self, tasks: Sequence[Task]) -> None:
        """Take new tasks on, and hand those that wait for no others to the engine.

        After the close, and in a child that was forked, it is a `UsageError`.
        """
        if os.getpid() != self._pid:
            raise UsageError(
                f"the session belongs to process {self._pid}, which this one was forked from: make a "
                "session here"
            )
        with self._lock:
            if self._closing is not None:
                raise UsageError("the session is closed: submit tasks while it is open")
            self._tasks.update((task.work.task_id, task) for task in tasks)
            self.counts.submitted += len(tasks)
            self.pace.submitted(task.work.task for task in tasks)
        if self._recorder is not None:
            self._recorder.emit_all(
                TaskSubmitted(depends_on=one.depends_on, **one.arguments(), **one.ids()) for one in tasks
            )
        for task in tasks:
            if not task.waits_for:
                self._dispatch(task)
                continue
            for future in task.waits_for:
                future.add_done_callback(partial(self._dependency_ended, task))

    def cancel(self, task_id: str, reason: str) -> bool:
        """Give a task up; whether that is what became, or will become, of it."""
        if os.getpid() != self._pid:
            return False
        with self._lock:
            task = self._tasks.get(task_id)
            if task is None:
                return False
            waiting = task.waiting and self._claim(task)
        if waiting:
            self._end(task, Outcome(end="cancelled", reason=reason))
            return True
        task.given_up = reason
        if not self._engine.cancel(task_id, reason):
            task.given_up = None
            return False
        task.future.end_cancelled()
        return True

    # --- what the engine reports

    def queued(self, task_id: str, attempt: int) -> None:
        """The attempt waits for a worker."""
        task = self._tasks.get(task_id)
        if task is not None and self._recorder is not None:
            self._recorder.emit(TaskQueued(attempt=attempt, **task.ids()))

    def started(self, task_id: str, attempt: int, worker: str) -> None:
        """A worker executes the attempt."""
        task = self._tasks.get(task_id)
        if task is not None and task.work.attempt == attempt:
            task.future.note_started(True, worker)
            self.pace.started(task_id, task.work.task)

    def ended(self, task_id: str, attempt: int, outcome: Outcome) -> None:
        """The attempt is over; what is reported of an attempt a second time is passed over."""
        with self._lock:
            task = self._tasks.get(task_id)
            if task is None or task.work.attempt != attempt or task.waiting:
                return
            work = task.work
            wanted = task.given_up is None and self._closing is None
            if wanted:
                outcome = failed_by_itself(outcome)
            again = wanted and outcome.end in _RETRIED and attempt <= task.retries
            if again:
                task.work, task.waiting = replace(work, attempt=attempt + 1, span_id=self._next_id()), True
                self.counts.retried += 1
                self.pace.stopped(task_id)
            else:
                self._claim(task)
        if again:
            self._retry(task, work, outcome)
        else:
            # How it ended is how it was cancelled.
            if task.given_up is not None and outcome.end in _RETRIED:
                outcome.end, outcome.reason = "cancelled", task.given_up
            elif outcome.end == "cancelled" and task.given_up is None and self._closing is not None:
                outcome.reason = self._closing
            self._end(task, outcome)

    def worker(self, event: WorkerEvent) -> None:
        """Something happened to a worker."""
        if self._recorder is not None:
            self._note_process(self._recorder, event)
            self._recorder.emit(event)
            for estimate in self._costs.add(event):
                self._recorder.emit(estimate)

    def _note_process(self, recorder: Recorder, event: WorkerEvent) -> None:
        """Have worker processes of this host sampled under their own names, while they live."""
        pid = event.pid
        if pid is None or pid == os.getpid() or event.host != recorder.host:
            return
        if isinstance(event, WorkerLost | WorkerRemoved):
            recorder.worker_processes.pop(pid, None)
        elif recorder.worker_processes.setdefault(pid, event.worker) != event.worker:
            recorder.worker_processes[pid] = f"{event.host}:{pid}"  # several workers are threads of it

    # --- the end of it all

    def close(self, reason: str, timeout_s: float) -> None:
        """Take nothing on any more, end the engine, and give every task that is left its end: cancelled, and
        why.

        What had finished is recorded as such: the engine reports it before its own close returns.
        """
        with self._lock:
            self._closing = reason
        self._delays.close()
        try:
            self._engine.close(timeout_s)
        except Exception:
            log.warning("the engine could not be closed in good order", exc_info=True)
        finally:
            self._end_all(reason)

    def _end_all(self, reason: str) -> None:
        with self._lock:
            for task in self._tasks.values():
                self._left.append((task, Outcome(end="cancelled", reason=reason)))
                self._ending += 1
            self._tasks.clear()
        until = time.monotonic() + 10.0
        while self._ending and time.monotonic() < until:
            self._write_left()
            # A report that began before the engine's close may be in the middle of its work.
            with self._changed:
                self._changed.wait_for(lambda: self._left or not self._ending, timeout=1.0)

    def _write_left(self) -> None:
        """Write the ends of cancelled tasks in large steps: there may be a hundred thousand of them."""
        with self._lock:
            left, self._left = self._left, []
        if self._recorder is not None:
            self._recorder.emit_all(ended_event(task, outcome) for task, outcome in left)
        for task, _ in left:
            task.future.end_cancelled()
        with self._lock:
            self.counts.cancelled += len(left)
            for task, _ in left:
                self.pace.ended(task.work.task_id, task.work.task, None)
            self._ending -= len(left)
            self._changed.notify_all()

    # --- one task's way

    def _claim(self, task: Task) -> bool:
        """Under the lock: whether nobody else has ended this task; from now on nobody else does."""
        mine = self._tasks.pop(task.work.task_id, None) is not None
        self._ending += mine
        return mine

    def _dispatch(self, task: Task) -> None:
        with self._lock:
            if task.work.task_id not in self._tasks:  # cancelled meanwhile
                return
            task.waiting = False
        try:
            self._engine.submit(task.work)
        except Exception as error:  # noqa: BLE001 - an engine that refuses a task has failed it
            self.ended(task.work.task_id, task.work.attempt, refused(error, "the engine refused it"))

    def _dependency_ended(self, task: Task, future: Future[Any]) -> None:
        failed = future.cancelled() or future.exception(0) is not None
        with self._lock:
            task.met += not failed
            ended = failed and self._claim(task)
            ready = task.met == len(task.waits_for) and task.work.task_id in self._tasks
        if ended:
            self._end_with_dependency(task, future)
        if not ready:
            return
        try:
            began = time.perf_counter()
            results = {one.task_id: self.dumps(one.result(0)) for one in task.waits_for}
            call = as_sent(task.work.call, task.preparation, results)
            task.serialize_s += time.perf_counter() - began
            task.work = replace(task.work, call=call, args_bytes=len(call))
            task.waits_for = ()
        except Exception as error:  # noqa: BLE001 - the user's own `__reduce__` runs here
            with self._lock:
                mine = self._claim(task)
            why = f"{type(error).__name__}: {error}"
            text = f"a result that {task.work.task} depends on cannot be pickled: {why}"
            if mine:
                self._end(task, Outcome(end="failed", error_type=DEPENDENCY_FAILED, error_message=text))
            return
        self._dispatch(task)

    def _end_with_dependency(self, task: Task, future: Future[Any]) -> None:
        name, key = getattr(future, "task", "?"), getattr(future, "task_id", "?")
        if future.cancelled():
            self._end(
                task, Outcome(end="cancelled", reason=f"{name} ({key}), which it depends on, was cancelled")
            )
            return
        cause = future.exception(0)
        text = f"{name} ({key}), which {task.work.task} depends on, failed: {type(cause).__name__}: {cause}"
        outcome = Outcome(end="failed", error_type=DEPENDENCY_FAILED, error_message=text)
        error = TaskError(text)
        error.error_type = outcome.error_type
        error.__cause__ = cause
        self._end(task, outcome, error)

    def _retry(self, task: Task, work: Work, outcome: Outcome) -> None:
        pause_s = delay_s(work.attempt, SessionLimits.first_retry_pause_s, SessionLimits.max_retry_pause_s)
        task.future.note_started(False)
        if self._recorder is not None:
            value, outcome, error = value_of(work, outcome)
            outcome = as_recorded(outcome, value, error)
            self._recorder.emit(failure_event(work, outcome, error))
            self._recorder.emit(retried_event(task, work, outcome, pause_s))
        self._delays.after(pause_s, partial(self._submit_again, task))

    def _submit_again(self, task: Task) -> None:
        task.work = replace(task.work, submitted=time.time())
        self._dispatch(task)

    def _end(self, task: Task, outcome: Outcome, error: BaseException | None = None) -> None:
        """The end of a task that was claimed: written first, then told."""
        if outcome.end == "cancelled":
            with self._lock:
                self._left.append((task, outcome))
                self._changed.notify_all()
                wait_for_more = (
                    self._closing is not None and len(self._left) < SessionLimits.max_ends_written_together
                )
            if not wait_for_more:
                self._write_left()
            return
        value: Any = None
        if error is None:
            began = time.perf_counter()
            value, outcome, error = value_of(task.work, outcome)
            task.serialize_s += time.perf_counter() - began
            outcome = as_recorded(outcome, value, error)
        if self._recorder is not None:
            self._recorder.emit(ended_event(task, outcome))
            if outcome.end != "completed":
                self._recorder.emit(failure_event(task.work, outcome, error))
        with self._lock:
            completed = outcome.end == "completed"
            self.pace.ended(task.work.task_id, task.work.task, outcome.duration_s if completed else None)
            if completed:
                self.counts.completed += 1
            else:
                self.counts.failed += 1
                if outcome.error_type == DEPENDENCY_FAILED:
                    self.dependents_failed += 1
                elif len(self.failures) < SessionLimits.max_named_failures:
                    self.failures.append(_line(task.work, outcome))
        task.future.note_end(outcome.worker, outcome.duration_s)
        with suppress(InvalidStateError):  # cancelled just now
            if error is None:
                task.future.set_result(value)
            else:
                task.future.set_exception(error)
        with self._lock:
            self._ending -= 1
            if self._closing is not None:
                self._changed.notify_all()


def _line(work: Work, outcome: Outcome) -> str:
    """A failed task in a line."""
    args = ", ".join(f"{name}={value!r}" for name, value in work.args.items())
    call = f"{work.task}({cut(args, 60)})"
    text = (message_of(work, outcome) or "").partition("\n")[0]
    attempts = f", attempt {work.attempt}" if work.attempt > 1 else ""
    return f"{call}{attempts}: {error_type_of(outcome)}: {text[:200]}"
