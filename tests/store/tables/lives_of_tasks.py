"""The derived tables reckoned in plain Python, one event at a time, for the tables to be held against."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from builders.runs import at
from rows_of_runs import time_of

from flightlog.events import (
    Event,
    SpanEvent,
    SpanOpened,
    TaskCancelled,
    TaskCompleted,
    TaskEnded,
    TaskEvent,
    TaskFailed,
    TaskQueued,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    Usage,
)

ENDS = {TaskCompleted: "completed", TaskFailed: "failed", TaskCancelled: "cancelled"}


def latest(events: Iterable[Event], name: str) -> Any:
    """What the latest of these events says that says anything."""
    known = [(time_of(e.timestamp) or datetime.min, getattr(e, name, None)) for e in events]
    return max(
        (pair for pair in known if pair[1] is not None), key=lambda pair: pair[0], default=(None, None)
    )[1]


def greatest(events: Iterable[Event], name: str) -> Any:
    """What these events say, who all should say the same."""
    return max((value for event in events if (value := getattr(event, name, None)) is not None), default=None)


def times(events: Iterable[Event]) -> datetime | None:
    return max((at for e in events if (at := time_of(e.timestamp))), default=None)


def attempts_of(run_id: str, events: Iterable[Event]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, int], list[TaskEvent]] = defaultdict(list)
    for event in events:
        if isinstance(event, TaskEvent):
            groups[event.task_id, event.attempt].append(event)
    return [_attempt(run_id, *key, group) for key, group in groups.items()]


def _attempt(run_id: str, task_id: str, number: int, group: list[TaskEvent]) -> dict[str, Any]:
    def of(*kinds: type) -> list[TaskEvent]:
        return [event for event in group if isinstance(event, kinds)]

    ends, starts, retries = of(TaskEnded), of(TaskStarted), of(TaskRetried)
    end = max(ends, key=lambda e: time_of(e.timestamp) or datetime.min, default=None)
    reason = latest(group, "reason")
    only_retried = end is None and bool(retries)
    named = re.match(r"((?:\w+\.)*[A-Z]\w*)(?:: |$)", reason or "", re.ASCII)
    row = {
        "run_id": run_id,
        "task": greatest(group, "task"),
        "task_id": task_id,
        "attempt": number,
        "component": greatest(group, "component"),
        "state": ENDS[type(end)] if end else "failed" if retries else "running" if starts else "pending",
        "retried": bool(retries),
        "worker": latest(ends, "worker") or latest(starts, "worker"),
        "submitted_at": times(of(TaskSubmitted)),
        "queued_at": times(of(TaskQueued)),
        "started_at": times(starts),
        "ended_at": times(ends) if end else times(retries),
        "queue_s": latest(starts, "queue_s") if latest(ends, "queue_s") is None else latest(ends, "queue_s"),
        "error_type": (named[1] if named else None) if only_retried else latest(group, "error_type"),
        "error_message": reason if only_retried else latest(group, "error_message"),
        "span_id": latest(ends, "span_id") or latest(starts, "span_id") or latest(group, "span_id"),
        "depends_on": latest(of(TaskSubmitted), "depends_on"),
        "parent_id": greatest(group, "parent_id"),
        "reason": reason,
    }
    for name in (
        "duration_s",
        *Usage.__struct_fields__,
        "scheduler_s",
        "transfer_s",
        "spill_s",
        "requests",
        "result_bytes",
        "args",
        "args_digest",
        "metrics",
        "exit_code",
        "fingerprint",
        "tags",
    ):
        row[name] = latest(
            ends if name.startswith("args") and latest(ends, name) is not None else group, name
        )
    return row


def tasks_of(attempts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda row: row["attempt"]):
        groups[attempt["task_id"]].append(attempt)
    return [_task(group) for group in groups.values()]


def _task(group: list[dict[str, Any]]) -> dict[str, Any]:
    first, last = group[0], group[-1]
    waits = last["retried"] and last["state"] != "completed"

    def known(name: str) -> list[Any]:
        return [row[name] for row in group if row[name] is not None]

    fullest = max(
        group,
        key=lambda row: (-1 if row["gpu_peak_bytes"] is None else row["gpu_peak_bytes"], row["attempt"]),
    )
    return {
        "run_id": last["run_id"],
        "task": last["task"],
        "task_id": last["task_id"],
        "component": (known("component") or [None])[-1],
        "state": "pending" if waits else last["state"],
        "attempts": sum(row["state"] != "pending" for row in group),
        "submitted_at": min(known("submitted_at"), default=None),
        "first_started_at": min(known("started_at"), default=None),
        "ended_at": None if waits else last["ended_at"],
        "queue_s": first["queue_s"],
        "duration_s": last["duration_s"],
        "total_s": sum(known("duration_s")) if known("duration_s") else None,
        "cpu_s": sum(known("cpu_s")) if known("cpu_s") else None,
        "peak_rss_bytes": max(known("peak_rss_bytes"), default=None),
        "gpu_peak_bytes": max(known("gpu_peak_bytes"), default=None),
        "gpu_memory_scope": fullest["gpu_memory_scope"] if fullest["gpu_peak_bytes"] is not None else None,
        "gpu_s": sum(known("gpu_s")) if known("gpu_s") else None,
        "gpu_scope": min(known("gpu_scope"), default=None),  # `device` comes before `process`
        **{
            name: sum(known(name)) if known(name) else None
            for name in ("scheduler_s", "transfer_s", "spill_s")
        },
        "requests": last["requests"],
        "args": (known("args") or [None])[-1],
        "args_digest": (known("args_digest") or [None])[-1],
        "error_type": last["error_type"],
        "error_message": last["error_message"],
        "worker": last["worker"],
    }


def concurrency_of(run_id: str, attempts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    steps: dict[datetime, int] = defaultdict(int)
    for row in attempts:
        began, ended = row["started_at"], row["ended_at"]
        if row["duration_s"] is not None and ended is not None:
            began = ended - timedelta(microseconds=round(max(0.0, row["duration_s"]) * 1e6))
        if began is None or row["state"] == "pending" or (ended is None and row["state"] != "running"):
            continue
        steps[began] += 1
        if ended is not None:
            steps[max(began, ended)] -= 1
    running, rows = 0, []
    for since in sorted(steps):
        running += steps[since]
        rows.append({"run_id": run_id, "since": since, "running": running})
    return rows


def spans_of(run_id: str, events: Iterable[Event]) -> list[dict[str, Any]]:
    groups: dict[str, list[Event]] = defaultdict(list)
    nameless = 0
    for event in events:
        if isinstance(event, SpanEvent | SpanOpened):
            nameless += not event.span_id
            groups[event.span_id or f"nameless {nameless}"].append(event)
    rows = {key: _span(run_id, group) for key, group in groups.items()}
    for row in rows.values():
        inside = [
            _time(child)
            for child in rows.values()
            if child["parent_id"] == row["span_id"] and child is not row
        ]
        row["self_s"] = _own(row, [time for time in inside if time is not None] if row["span_id"] else [])
        row["depth"] = _depth(row, rows)
    return list(rows.values())


def _age(opened: list[SpanOpened]) -> float:
    """Up to the end of the run, which `make_run` puts at its tenth second."""
    started = times(opened)
    return max(opened[-1].elapsed_s, (time_of(at(10)) - started).total_seconds())


def _span(run_id: str, group: list[Event]) -> dict[str, Any]:
    ended = [event for event in group if isinstance(event, SpanEvent)]
    opened = sorted((e for e in group if isinstance(e, SpanOpened)), key=lambda e: e.elapsed_s)
    row = {
        "run_id": run_id,
        "span_id": group[0].span_id or None,
        "open": not ended,
        "parent_id": latest(group, "parent_id"),
        "started_at": times(ended) or times(group),
        "duration_s": latest(ended, "duration_s") if ended else _age(opened),
        "name": latest(ended, "name") if ended else opened[-1].name,
        "tags": latest(ended, "tags") if ended else opened[-1].tags,
    }
    for name in ("status", "metrics", "error_type", "error_message", "thread"):
        row[name] = latest(ended, name)
    return row


def _time(row: dict[str, Any]) -> tuple[int, int] | None:
    """When a span was open, in nanoseconds."""
    if row["started_at"] is None or row["duration_s"] is None:
        return None
    since = (row["started_at"] - datetime(1970, 1, 1)) // timedelta(microseconds=1) * 1000
    return since, since + round(max(0.0, row["duration_s"]) * 1e9)


def _own(row: dict[str, Any], inside: list[tuple[int, int]]) -> float | None:
    """The span's time less every moment in which a span inside was open."""
    if row["duration_s"] is None:
        return None
    own = _time(row)
    covered = 0
    if own is not None:
        edges = sorted(
            {own[0], own[1], *(edge for pair in inside for edge in pair if own[0] < edge < own[1])}
        )
        for since, until in pairwise(edges):
            if any(one[0] <= since and until <= one[1] for one in inside):
                covered += until - since
    return max(0.0, max(0.0, row["duration_s"]) - covered / 1e9)


def _depth(row: dict[str, Any], rows: dict[str, dict[str, Any]]) -> int | None:
    if row["span_id"] is None:
        return None
    depth, seen, parent = 0, {row["span_id"]}, row["parent_id"]
    while parent in rows:
        if parent in seen:
            return None
        seen.add(parent)
        depth, parent = depth + 1, rows[parent]["parent_id"]
    return depth
