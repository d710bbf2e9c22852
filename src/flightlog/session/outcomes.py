"""What an outcome means to whoever waits for the task: a result, or an exception to raise."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec

from flightlog.core.errors import CommandError, TaskError, TaskTimeoutError
from flightlog.engines.contract import Outcome
from flightlog.record.failure import describe
from flightlog.record.task import is_cancellation
from flightlog.session.task import Task

_WORDS = {"lost": "WorkerLost", "timed_out": "TimeoutError"}


def failed_by_itself(outcome: Outcome) -> Outcome:
    """The outcome of an attempt that nobody asked to end: what it raised is its failure, also if it means
    giving up.

    An attempt that its engine ended carries no exception, and stays as it is.
    """
    if outcome.end != "cancelled" or outcome.error_type is None:
        return outcome
    return msgspec.structs.replace(outcome, end="failed", reason=None)


def value_of(task: Task, outcome: Outcome) -> tuple[Any, Outcome, BaseException | None]:
    """Result, outcome and error of an attempt that ended; a result that cannot be read here makes it a failed
    one.

    An attempt that said of itself that it failed, and returned, has a result and no error to raise.
    """
    if outcome.result is None:
        return None, outcome, None if outcome.end == "completed" else error_of(task, outcome)
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
            error_message=f"the result of {task.name} cannot be unpickled here: {text.message}",
            fingerprint=text.fingerprint,
        )
        return None, failed, _task_error(failed)


def error_of(task: Task, outcome: Outcome) -> BaseException:
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
            outcome, error_type=error_type_of(outcome), error_message=message_of(task, outcome)
        )
    return _task_error(outcome)


def error_type_of(outcome: Outcome) -> str | None:
    """What an attempt ended with, in a word."""
    return outcome.error_type or _WORDS.get(outcome.end)


def message_of(task: Task, outcome: Outcome) -> str | None:
    """What there is to say of how an attempt failed."""
    if outcome.error_message is not None:
        return outcome.error_message
    if outcome.reason is not None:
        return outcome.reason
    if outcome.end == "timed_out":
        limit = f" within {task.timeout_s:g} s" if task.timeout_s is not None else " in time"
        return f"{task.name} did not end{limit}"
    if outcome.end == "lost":
        return f"the worker that executed {task.name} went away"
    return None


def told(outcome: Outcome, error: BaseException | None) -> Outcome:
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
