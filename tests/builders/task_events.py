"""Events of tasks and spans, shortly."""

from __future__ import annotations

from typing import Any

from builders.runs import at

from flightlog.events import Event, SpanEvent, TaskCompleted, TaskFailed, TaskStarted, TaskSubmitted


def submitted(task_id: str, when: float = 0.0, task: str = "sim", **args: Any) -> Event:
    return TaskSubmitted(timestamp=at(when), task=task, task_id=task_id, args=args)


def started(task_id: str, when: float, worker: str | None = "w1", task: str = "sim", **more: Any) -> Event:
    return TaskStarted(
        timestamp=at(when), task=task, task_id=task_id, worker=worker, **{"queue_s": None, **more}
    )


def completed(
    task_id: str, when: float, duration_s: float | None, worker: str | None = "w1", **more: Any
) -> Event:
    fields = {"task": "sim", "args": {}, **more}
    return TaskCompleted(timestamp=at(when), task_id=task_id, duration_s=duration_s, worker=worker, **fields)


def failed(
    task_id: str, when: float, duration_s: float | None, worker: str | None = "w1", **more: Any
) -> Event:
    fields = {"task": "sim", "args": {}, "error_type": "ValueError", "error_message": "bad seed", **more}
    return TaskFailed(timestamp=at(when), task_id=task_id, duration_s=duration_s, worker=worker, **fields)


def span(
    name: str, start: float, length: float, identity: str, parent: str | None = None, **more: Any
) -> Event:
    return SpanEvent(
        timestamp=at(start),
        name=name,
        span_id=identity,
        parent_id=parent,
        trace_id="1" * 32,
        duration_s=length,
        **more,
    )
