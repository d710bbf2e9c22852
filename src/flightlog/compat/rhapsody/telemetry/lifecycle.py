"""What a session says of its tasks, as events."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from flightlog.compat.rhapsody.telemetry.events import (
    BaseEvent,
    TaskCanceled,
    TaskCompleted,
    TaskCreated,
    TaskFailed,
    TaskQueued,
    TaskStarted,
    TaskSubmitted,
    make_event,
)

_ENDS: dict[str, type[BaseEvent]] = {"DONE": TaskCompleted, "FAILED": TaskFailed, "CANCELED": TaskCanceled}
_STEPS: dict[str, type[BaseEvent]] = {
    "CREATED": TaskCreated,
    "SUBMITTED": TaskSubmitted,
    "QUEUED": TaskQueued,
    "RUNNING": TaskStarted,
}


class Lifecycle:
    """Makes the events of one session's tasks; for one thread.

    Times are those that a backend has measured, where it has; else now. A task that ends without a start that
    anybody saw has `incomplete_lifecycle`, and no duration. `start_times` is kept as the starts of those that
    run.
    """

    def __init__(self, session_id: str, start_times: dict[str, float]) -> None:
        self._session_id, self._start_times = session_id, start_times

    def event(self, task: Mapping[str, Any], state: str, measured: Mapping[str, Any]) -> BaseEvent | None:
        """The event of a task that is in this state; None for a state that is nobody's business."""
        if state in _ENDS:
            return self._end(task, state, measured)
        kind = _STEPS.get(state)
        if kind is None:
            return None
        at = time.time()
        if state == "RUNNING":
            at = measured.get("started_at") or at
            self._start_times[task["uid"]] = at
        return self._make(kind, task, _about(task), event_time=at, node_id=_node(measured))

    def _end(self, task: Mapping[str, Any], state: str, measured: Mapping[str, Any]) -> BaseEvent:
        began = self._start_times.pop(task["uid"], None)
        ended = measured.get("ended_at") or time.time()
        duration = measured.get("duration_s")
        attributes = _about(task)
        more: dict[str, Any] = {}
        if state == "FAILED":
            error = task.get("exception")
            more["error_type"] = attributes["error_type"] = _error_type(error, task.get("exit_code"))
        if task.get("executable") is not None and task.get("exit_code") is not None:
            attributes["exit_code"] = task["exit_code"]
        if began is None:
            attributes["incomplete_lifecycle"] = True
            duration = 0.0
        elif duration is None:
            duration = max(0.0, ended - began)
        return self._make(
            _ENDS[state],
            task,
            attributes,
            event_time=ended,
            node_id=_node(measured),
            duration_seconds=duration,
            **more,
        )

    def _make(
        self, kind: type[BaseEvent], task: Mapping[str, Any], attributes: dict[str, Any], **more: Any
    ) -> BaseEvent:
        return make_event(
            kind,
            session_id=self._session_id,
            backend=task.get("backend") or "",
            task_id=task["uid"],
            attributes=attributes,
            **more,
        )


def arguments(task: Mapping[str, Any]) -> dict[str, Any]:
    """What a task was called with."""
    if task.get("function") is not None:
        positional = {str(number): value for number, value in enumerate(task.get("args") or ())}
        return {**positional, **(task.get("kwargs") or {})}
    return {"arguments": task["arguments"]} if task.get("arguments") else {}


def _node(measured: Mapping[str, Any]) -> str | None:
    """The host of the worker that ran a task, where that is known."""
    worker = measured.get("worker")
    return worker.partition(":")[0] if isinstance(worker, str) else None


def _about(task: Mapping[str, Any]) -> dict[str, Any]:
    return {"executable": _executable(task), "task_type": task.get("task_type", "")}


def _executable(task: Mapping[str, Any]) -> str:
    """What a task runs: a command, a function's name, or a model."""
    function = task.get("function") or task.get("func")
    if function is not None:
        return str(getattr(function, "__name__", function))
    for name in ("executable", "model", "model_name"):
        if task.get(name):
            return str(task[name])
    return ""


def _error_type(error: object, exit_code: object) -> str:
    if error is not None:
        return type(error).__name__
    return "TaskExecutionError" if exit_code else "unknown"
