"""The events of a task's life, from what the session knows and what its engine reported."""

from __future__ import annotations

from typing import Any

from flightlog.core.errors import CommandError
from flightlog.engines.contract import Outcome
from flightlog.events import Failure, TaskCancelled, TaskCompleted, TaskEnded, TaskFailed, TaskRetried
from flightlog.events import TaskQueued as Queued
from flightlog.events import TaskSubmitted as Submitted
from flightlog.session.outcomes import error_type_of, message_of
from flightlog.session.task import Task


def submitted(task: Task, trace_id: str) -> Submitted:
    """The task was handed over."""
    return Submitted(
        task=task.name,
        task_id=task.task_id,
        component=task.component,
        trace_id=trace_id,
        span_id=task.span_id,
        parent_id=task.parent_id,
        args=task.args,
        args_digest=task.args_digest,
        depends_on=task.depends_on,
    )


def queued(task: Task, attempt: int, trace_id: str) -> Queued:
    """Its engine holds it until a worker is free."""
    return Queued(
        task=task.name,
        task_id=task.task_id,
        attempt=attempt,
        component=task.component,
        trace_id=trace_id,
        span_id=task.span_id,
        parent_id=task.parent_id,
    )


def retried(
    task: Task, attempt: int, span_id: str, outcome: Outcome, delay_s: float, trace_id: str
) -> TaskRetried:
    """An attempt failed, and there will be another one."""
    kind, message = error_type_of(outcome), message_of(task, outcome)
    return TaskRetried(
        timestamp=outcome.ended or "",
        task=task.name,
        task_id=task.task_id,
        attempt=attempt,
        component=task.component,
        trace_id=trace_id,
        span_id=span_id,
        parent_id=task.parent_id,
        reason=": ".join(part for part in (kind, message) if part) or None,
        delay_s=delay_s,
    )


def failure(task: Task, attempt: int, span_id: str, outcome: Outcome, error: BaseException | None) -> Failure:
    """What an attempt failed of, traceback included."""
    command = error if isinstance(error, CommandError) else None
    return Failure(
        timestamp=outcome.ended or "",
        scope="task" if command is None else "command",
        error_type=error_type_of(outcome),
        message=message_of(task, outcome),
        traceback=outcome.traceback,
        fingerprint=outcome.fingerprint,
        task=task.name,
        task_id=task.task_id,
        attempt=attempt,
        worker=outcome.worker,
        span_id=span_id,
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        output_tail=None if command is None else command.stderr or command.stdout or None,
    )


def ended(task: Task, outcome: Outcome, trace_id: str) -> TaskEnded:
    """The task is over: the one end it has."""
    facts: dict[str, Any] = {
        "timestamp": outcome.ended or "",
        "task": task.name,
        "task_id": task.task_id,
        "attempt": task.attempt,
        "component": task.component,
        "trace_id": trace_id,
        "span_id": task.span_id,
        "parent_id": task.parent_id,
        "args": task.args,
        "args_digest": task.args_digest,
        "worker": outcome.worker,
        "duration_s": outcome.duration_s,
        "queue_s": outcome.queue_s,
        "cpu_s": outcome.cpu_s,
        "cpu_scope": outcome.cpu_scope,
        "peak_rss_bytes": outcome.peak_rss_bytes,
        "rss_scope": outcome.rss_scope,
        "read_bytes": outcome.read_bytes,
        "write_bytes": outcome.write_bytes,
        "gpu_peak_bytes": outcome.gpu_peak_bytes,
        "gpu_memory_scope": outcome.gpu_memory_scope,
        "gpu_s": outcome.gpu_s,
        "gpu_scope": outcome.gpu_scope,
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
        error_message=message_of(task, outcome),
        exit_code=outcome.exit_code,
        fingerprint=outcome.fingerprint,
        **facts,
    )
