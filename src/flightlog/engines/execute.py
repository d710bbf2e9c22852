"""One attempt of a task, executed here and now: the truth is measured where the task runs.

Every engine calls `execute`, in whatever process or thread it runs tasks in.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NoReturn, cast

from msgspec import Struct

from flightlog.engines.contract import Outcome, Work
from flightlog.engines.limits import EngineLimits
from flightlog.events import TaskStarted
from flightlog.record.clock import Clock, monotonic_ns
from flightlog.record.context import RUN, attach, run_of
from flightlog.record.failure import describe, is_clean_exit, is_out_of_memory
from flightlog.record.span import Span, current
from flightlog.record.task import AttemptSpan, is_cancellation
from flightlog.record.values import bounded, type_name
from flightlog.samplers.procfs import PROC
from flightlog.samplers.usage import reset_peak
from flightlog.store.liveness import this_host

if TYPE_CHECKING:
    from flightlog.record.recorder import Recorder

_clock = Clock()
_last: tuple[dict[str, str], Span | None] = ({}, None)


class Started(Struct, frozen=True, array_like=True):
    """When an attempt began, for those who wait for it elsewhere."""

    timestamp: str
    monotonic_ns: int
    """On the clock that all processes of this host share."""
    queue_s: float | None


def plain_dumps(value: Any) -> bytes:
    """The value as plain pickle."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


Dumps = Callable[[Any], bytes]
OnStart = Callable[[Started], None]


def execute(
    work: Work,
    *,
    worker: str,
    alone: bool,
    started: OnStart | None = None,
    dumps: Dumps = plain_dumps,
    proc: Path = PROC,
) -> Outcome:
    """Run an attempt on this thread and say what became of it; never raises, whatever the task does.

    The run that `work.place` names is joined; `task_started` is recorded, and `started` called, before the
    function is even unpickled. The end is not recorded: that is for whoever gets the outcome. `alone` says
    that this process executes one task at a time: then its peak memory is the task's.

    `duration_s` and what was used are the function's alone, without unpickling it and pickling its result. A
    result that does not pickle is a failure; an exception that does not pickle, or not unpickle again,
    travels as text. An attempt that marked itself with `set_status("error")` is failed, and its result is
    there all the same. What a coroutine function gives is awaited, in an event loop of its own. `dumps`
    pickles results and exceptions. A child that the task forked, and that comes back from the function, ends
    here.
    """
    # In a context of its own: what a task leaves behind there, open spans too, is gone with it.
    return copy_context().run(_execute, work, worker, alone, started, dumps, proc)


def _execute(
    work: Work, worker: str, alone: bool, started: OnStart | None, dumps: Dumps, proc: Path
) -> Outcome:
    pid = os.getpid()
    returned: Any = None
    error: BaseException | None = None
    peak_is_exact, serializing = False, 0
    span = AttemptSpan(work.task)
    span.task_id = work.task_id
    start, clock = _begin(work, worker, span)
    try:
        if started is not None:
            started(start)
        reading = monotonic_ns()
        function, args, kwargs = unpickled(work.call)
        serializing = monotonic_ns() - reading
        peak_is_exact = alone and reset_peak(proc)
        span.measure()
        returned = awaited(function(*args, **kwargs))
    # Whatever a task ends with is its outcome, not the worker's end.
    except BaseException as raised:  # noqa: BLE001
        error = raised
    end = monotonic_ns()
    if os.getpid() != pid:
        _leave_forked(error)
    sink = span._sink
    measured = span.close(end)
    if peak_is_exact and measured["rss_scope"] == "process_at_least":
        measured["rss_scope"] = "process"  # memory never rose above where it stood at the ends
    outcome = Outcome(
        end="completed",
        worker=worker,
        host=this_host(),
        pid=pid,
        thread=threading.get_ident(),
        started=start.timestamp,
        ended=clock.iso(end),
        queue_s=start.queue_s,
        **measured,
    )
    if error is None or is_clean_exit(error):
        writing = monotonic_ns()
        _add_result(outcome, work.task, returned, dumps)
        serializing += monotonic_ns() - writing
        if span.status == "error" and outcome.end == "completed":
            outcome.end = "failed"
            outcome.error_message = None if span.error_message is None else bounded(span.error_message, 2000)
    else:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            error.__traceback__ = error.__traceback__.tb_next  # the task's own frames, without this one
        _add_error(outcome, error, dumps)
        if sink is not None and is_out_of_memory(error):
            from flightlog.record.device.oom import dump_error

            dump_error(cast("Recorder", sink), error, task=work.task, task_id=work.task_id)
        if is_cancellation(type(error)):
            outcome.end, outcome.reason = "cancelled", type(error).__name__
    outcome.call_bytes, outcome.serialize_s = len(work.call), serializing / 1e9
    return outcome


def unpickled(call: bytes) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Function, arguments and keywords of a call; the error where they cannot be had says what to do, if that
    is known.
    """
    try:
        function, args, kwargs = pickle.loads(call)  # noqa: S301 - from the session that this worker is of
    except AttributeError as error:
        if "'__main__'" not in str(error):
            raise
        text = (
            f"{error}: a worker process does not know what was typed in at a prompt or into a notebook. "
            "Put it into a module and import that, or use threads (`processes: false`)"
        )
        raise AttributeError(text) from None
    return function, args, kwargs


def awaited(returned: Any) -> Any:
    """What a coroutine gives, run to its end in an event loop of its own; anything else as it is."""
    if type(returned) is not CoroutineType:
        return returned
    import asyncio

    return asyncio.run(returned)


def _begin(work: Work, worker: str, span: AttemptSpan) -> tuple[Started, Clock]:
    """Make the attempt's span the current one, and record that it started."""
    here = _parent(work.place) if work.place else None
    run = run_of(here)
    clock = run.recorder.clock if run is not None else _clock
    now = monotonic_ns()
    start = Started(clock.iso(now), now, _waited_s((now + clock.anchor_ns) / 1e9 - work.submitted))
    if run is not None and here is not None:
        span.open_in(here, work.span_id)
        run.emit(
            TaskStarted(
                timestamp=start.timestamp,
                task=work.task,
                task_id=work.task_id,
                attempt=work.attempt,
                component=work.component,
                trace_id=here.trace_id,
                span_id=work.span_id,
                parent_id=here.span_id,
                worker=worker,
                queue_s=start.queue_s,
            )
        )
    return start, clock


def _parent(place: dict[str, str]) -> Span | None:
    """The span that an attempt is inside of, in the run that its place names; None if there is no such run.

    A session's attempts mostly come from one place, so the last one is remembered. Attaching is for good: the
    context is the attempt's own.
    """
    global _last
    known, here = _last
    if known != place or run_of(here) is None:
        attach(place)
        here = current.get()
        run = run_of(here)
        if here is None or run is None or str(run.path) != place.get(RUN):
            return None
        _last = (place, here)
    return here


def _waited_s(seconds: float) -> float | None:
    """Time in the queue; unknown where the clock of the submitting host says that it is still to come."""
    if seconds >= 0:
        return seconds
    return 0.0 if seconds > -EngineLimits.max_clock_difference_s else None


def _add_result(outcome: Outcome, task: str, result: object, dumps: Dumps) -> None:
    try:
        outcome.result = dumps(result)
        outcome.result_bytes = len(outcome.result)
    except BaseException as error:  # noqa: BLE001 - the result's own `__reduce__` may raise anything
        kind = type_name(type(result))
        text = (
            f"the result of {task}, a {kind}, cannot be pickled: {type(error).__name__}: "
            f"{describe(error).message}"
        )
        failure = pickle.PicklingError(text)
        failure.__cause__ = error
        _add_error(outcome, failure, dumps)


def _add_error(outcome: Outcome, error: BaseException, dumps: Dumps) -> None:
    text = describe(error)
    outcome.end = "failed"
    outcome.error_type, outcome.error_message = text.error_type, text.message
    outcome.traceback, outcome.fingerprint = text.traceback, text.fingerprint
    try:
        pickled = dumps(error)
        again = pickle.loads(pickled)  # noqa: S301 - our own bytes
    # The exception's own code may raise anything; its text has been taken.
    except BaseException:  # noqa: BLE001
        return
    if type(again) is type(error):
        outcome.error = pickled


def _leave_forked(error: BaseException | None) -> NoReturn:
    """End a child that a task forked, as Python ends a program: it has no way back into the worker."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        code = 1
        with suppress(Exception):
            sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)
