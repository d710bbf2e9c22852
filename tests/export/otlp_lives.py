"""Runs whose tasks complete, fail, are retried and cancelled, for tests of what goes out by OpenTelemetry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builders.runs import at, make_run

from flightlog.events import (
    Event,
    Failure,
    Metric,
    ResourceSample,
    SpanEvent,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    UserEvent,
    WorkerLost,
)
from flightlog.store.run import Run

TRACE = "0af7651916cd43dd8448eb211c80319c"
ROOT = "b7ad6b7169203331"
START_NS = 1779249120 * 10**9
"""03:52:00 on 20 May 2026."""


def ns(seconds: float) -> int:
    return START_NS + round(seconds * 10**9)


def ids(number: int, parent: str | None = ROOT) -> dict[str, Any]:
    return {"trace_id": TRACE, "span_id": f"{number:016x}", "parent_id": parent}


def completed(task_id: str, number: int, start: float, end: float, **more: Any) -> list[Event]:
    """A task that ran from `start` to `end`, all its events."""
    same = {"task": "simulate", "task_id": task_id, **ids(number)}
    ended = {"args": {"seed": number}, "worker": "w1", "duration_s": end - start, "queue_s": 0.5, **more}
    depends = ended.pop("depends_on", [])
    return [
        TaskSubmitted(timestamp=at(start - 0.5), args={"seed": number}, depends_on=depends, **same),
        TaskStarted(timestamp=at(start), worker="w1", queue_s=0.5, **same),
        TaskCompleted(timestamp=at(end), **ended, **same),
    ]


def retried_then_failed(task_id: str, first: int, second: int) -> list[Event]:
    same = {"task": "fit", "task_id": task_id}
    error = {"error_type": "ValueError", "fingerprint": "f1"}
    trace = "Traceback (most recent call last):\nValueError: no"
    return [
        TaskSubmitted(timestamp=at(1), args={}, **same, **ids(first)),
        Failure(
            timestamp=at(2.5),
            scope="task",
            message="no",
            traceback=trace,
            task="fit",
            task_id=task_id,
            attempt=1,
            span_id=f"{first:016x}",
            **error,
        ),
        TaskRetried(timestamp=at(2.5), reason="ValueError: no", delay_s=0.5, **same, **ids(first)),
        TaskStarted(timestamp=at(2), worker="w1", queue_s=1.0, **same, **ids(first)),
        TaskStarted(timestamp=at(3), worker="w2", queue_s=0.0, attempt=2, **same, **ids(second)),
        TaskFailed(
            timestamp=at(4),
            args={},
            worker="w2",
            duration_s=1.0,
            error_type="ValueError",
            error_message="no",
            attempt=2,
            **same,
            **ids(second),
        ),
    ]


def cancelled(task_id: str, number: int) -> list[Event]:
    same = {"task": "wait", "task_id": task_id, **ids(number)}
    return [
        TaskSubmitted(timestamp=at(1), args={}, **same),
        TaskCancelled(
            timestamp=at(5), args={}, worker=None, duration_s=None, reason="the session was closed", **same
        ),
    ]


def beside() -> list[Event]:
    """Spans, samples, a lost worker, an event and a series of the user's."""
    return [
        SpanEvent(
            timestamp=at(0.25),
            name="setup",
            tags={"step": 1},
            metrics={"loss": 0.5},
            status="ok",
            duration_s=0.5,
            thread=7,
            **ids(90),
        ),
        SpanEvent(
            timestamp=at(0.5),
            name="load",
            status="error",
            duration_s=0.125,
            error_type="OSError",
            error_message="gone",
            **ids(91, f"{90:016x}"),
        ),
        ResourceSample(
            timestamp=at(1),
            scope="node",
            host="node-1",
            cpu_percent=50.0,
            memory_used_bytes=1000,
            net_recv_bytes_per_s=20.0,
        ),
        ResourceSample(timestamp=at(1), scope="node", host="node-2", cpu_percent=25.0),
        ResourceSample(timestamp=at(1), scope="task", host="node-1", cpu_percent=99.0, task_id="t1"),
        ResourceSample(
            timestamp=at(1),
            scope="gpu",
            host="node-1",
            cpu_percent=None,
            gpu_index=0,
            gpu_uuid="GPU-1",
            gpu_name="H200",
            gpu_percent=80.0,
            gpu_memory_used_bytes=5,
        ),
        WorkerLost(timestamp=at(6), worker="w1", host="node-1", pid=5, reason="killed", signal="SIGKILL"),
        UserEvent(
            timestamp=at(7), name="converged", fields={"level": "warning", "steps": 3}, span_id=f"{90:016x}"
        ),
        Metric(timestamp=at(7), name="train loss", value=0.25, step=3),
    ]


def everything() -> list[Event]:
    return [
        *completed("t1", 1, 1.0, 2.0),
        *completed("t2", 2, 3.0, 5.0, depends_on=["t1"], peak_rss_bytes=100),
        *retried_then_failed("t3", 3, 4),
        *cancelled("t4", 5),
        *beside(),
    ]


def a_run(folder: Path, events: list[Event] | None = None, **info: Any) -> Run:
    """A closed run with these events, or with everything."""
    known = {"trace_id": TRACE, "span_id": ROOT, "python": "3.11.7", "flightlog_version": "0.1.0", **info}
    return Run(make_run(folder, everything() if events is None else events, **known))
