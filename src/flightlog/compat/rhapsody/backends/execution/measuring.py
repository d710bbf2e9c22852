"""A call, and what it took: measured where it runs, in a thread of this process or in another one."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from datetime import datetime
from typing import Any, NamedTuple

from flightlog.engines.contract import Outcome, Work
from flightlog.engines.execute import awaited, execute
from flightlog.engines.pickling import dumps
from flightlog.errors import TaskError
from flightlog.record.carrier import RUN, TRACEPARENT, format_traceparent
from flightlog.record.clock import monotonic_ns
from flightlog.record.run import LiveRun
from flightlog.record.task import AttemptSpan
from flightlog.store.liveness import this_host

_FACTS = (
    "worker",
    "duration_s",
    "queue_s",
    "cpu_s",
    "cpu_scope",
    "peak_rss_bytes",
    "rss_scope",
    "read_bytes",
    "write_bytes",
    "gpu_peak_bytes",
    "gpu_memory_scope",
    "gpu_s",
    "gpu_scope",
    "tags",
    "metrics",
    "nonfinite",
)
"""What an outcome says that an end of a task has too."""


class Place(NamedTuple):
    """Where in a run a task is to be recorded."""

    run: LiveRun
    task: str
    span_id: str
    parent_id: str
    submitted: float

    def carrier(self) -> dict[str, str]:
        """The run and the parent, for another process."""
        trace = format_traceparent(self.run.info.trace_id, self.parent_id)
        return {TRACEPARENT: trace, RUN: str(self.run.path)}


class Called(NamedTuple):
    """What a call gave, or raised, and what it took."""

    value: Any
    error: BaseException | None
    facts: dict[str, Any]


def call_here(
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    place: Place | None,
    began: Callable[[float, str | None], None],
) -> Called:
    """Call a function, or run a coroutine function to its end, on this thread; spans inside it belong to the
    task.
    """
    return copy_context().run(_call_here, function, args, kwargs, place, began)


def _call_here(
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    place: Place | None,
    began: Callable[[float, str | None], None],
) -> Called:
    span = AttemptSpan(place.task if place is not None else "task")
    worker = None
    if place is not None:
        run = place.run
        worker = run.lane()
        span.open_in(run.recorder.open.get(place.parent_id, run.root), place.span_id)
    value: Any = None
    error: BaseException | None = None
    started_at = time.time()
    began(started_at, worker)
    span.measure()
    try:
        value = awaited(function(*args, **kwargs))
    except BaseException as raised:  # noqa: BLE001 - whatever a task ends with is its outcome, not the worker's end
        error = raised
        if raised.__traceback__ is not None and raised.__traceback__.tb_next is not None:
            raised.__traceback__ = raised.__traceback__.tb_next  # the task's own frames, without this one
    measured = span.close(monotonic_ns())
    ended_at = started_at + (measured["duration_s"] or 0.0)
    return Called(
        value, error, {**measured, "worker": worker, "started_at": started_at, "ended_at": ended_at}
    )


def pack(function: Callable[..., Any], args: Any, kwargs: Any, place: Place | None, uid: str) -> Work:
    """A call that can travel; raises what pickling raises."""
    return Work(
        task_id=uid,
        task=place.task if place is not None else "task",
        attempt=1,
        call=dumps((function, tuple(args), dict(kwargs))),
        args={},
        args_bytes=0,
        submitted=place.submitted if place is not None else time.time(),
        place=place.carrier() if place is not None else {},
        span_id=place.span_id if place is not None else "0" * 16,
    )


def call_there(work: Work, alone: bool = True) -> Outcome:
    """Run a call that has travelled; this is what another process is asked to do."""
    thread = threading.current_thread()
    name = "" if thread is threading.main_thread() else f"/{thread.name}"
    return execute(work, worker=f"{this_host()}:{os.getpid()}{name}", alone=alone, dumps=dumps)


def unpack(outcome: Outcome) -> Called:
    """What a call elsewhere gave, or raised, and what it took."""
    facts = {name: getattr(outcome, name) for name in _FACTS}
    facts |= {"started_at": unix(outcome.started), "ended_at": unix(outcome.ended)}
    if outcome.end == "completed" and outcome.result is not None:
        return Called(pickle.loads(outcome.result), None, facts)  # noqa: S301 - from a worker of ours
    if outcome.error is not None:
        return Called(None, pickle.loads(outcome.error), facts)  # noqa: S301 - from a worker of ours
    error = TaskError(": ".join(text for text in (outcome.error_type, outcome.error_message) if text))
    error.error_type, error.remote_traceback = outcome.error_type, outcome.traceback
    return Called(None, error, facts)


def unix(timestamp: str | None) -> float | None:
    """A timestamp of an event as Unix seconds."""
    return None if timestamp is None else datetime.fromisoformat(timestamp).timestamp()
