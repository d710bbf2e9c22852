"""One task of a session, from its submission to its end."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.core.errors import CommandError, TaskError, TaskTimeoutError
from flightlog.engines.contract import Outcome, Work
from flightlog.events import (
    Failure,
    TaskCancelled,
    TaskCompleted,
    TaskEnded,
    TaskFailed,
    TaskRetried,
    usage_of,
)
from flightlog.events import TaskQueued as Queued
from flightlog.events import TaskSubmitted as Submitted
from flightlog.record.failure import describe
from flightlog.record.task import is_cancellation
from flightlog.session.call_wrapper import Preparation
from flightlog.session.futures import TaskFuture


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


_WORDS = {"lost": "WorkerLost", "timed_out": "TimeoutError"}


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


def as_recorded(outcome: Outcome, error: BaseException | None) -> Outcome:
    """The outcome as it is recorded: that of a command is told by its exit, not by the exception that carries
    it.
    """
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


def submitted_event(task: Task) -> Submitted:
    """The task was handed over."""
    return Submitted(
        args=task.work.args, args_digest=task.args_digest, depends_on=task.depends_on, **task.ids()
    )


def queued_event(task: Task, attempt: int) -> Queued:
    """Its engine holds it until a worker is free."""
    return Queued(attempt=attempt, **task.ids())


def retried_event(task: Task, work: Work, outcome: Outcome, delay_s: float) -> TaskRetried:
    """An attempt failed, and there will be another one."""
    kind, message = error_type_of(outcome), message_of(work, outcome)
    return TaskRetried(
        timestamp=outcome.ended or "",
        attempt=work.attempt,
        reason=": ".join(part for part in (kind, message) if part) or None,
        delay_s=delay_s,
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
        **task.ids(),
        "timestamp": outcome.ended or "",
        "attempt": task.work.attempt,
        "args": task.work.args,
        "args_digest": task.args_digest,
        "worker": outcome.worker,
        "duration_s": outcome.duration_s,
        "queue_s": outcome.queue_s,
        **usage_of(outcome),
        "tags": outcome.tags,
        "metrics": outcome.metrics,
        "nonfinite": outcome.nonfinite,
    }
    if outcome.end == "completed":
        return TaskCompleted(result_bytes=outcome.result_bytes, **facts)
    if outcome.end == "cancelled":
        return TaskCancelled(reason=outcome.reason, **facts)
    return TaskFailed(
        error_type=error_type_of(outcome),
        error_message=message_of(task.work, outcome),
        exit_code=outcome.exit_code,
        fingerprint=outcome.fingerprint,
        **facts,
    )
