"""The calls that a plan would run: those of an earlier run, or those of a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.analyze.history.attempts import base_name
from flightlog.core.errors import UsageError
from flightlog.events import TaskEnded, TaskSubmitted
from flightlog.store.liveness import unix_time
from flightlog.store.run import Run

MOST = 100_000
"""So many calls are looked at."""


class Call(Struct, frozen=True, kw_only=True):
    """One task to run."""

    task: str
    args: dict[str, Any] = {}
    component: str | None = None


class Workload(Struct, frozen=True, kw_only=True):
    """Calls, and what is known of an earlier time that they were run."""

    source: str
    """Where they come from, in words."""
    calls: list[Call]
    after: list[list[int]] = []
    """For each call the places of those that it waits for; empty where none waits."""
    cut: int = 0
    """Calls that were too many to be looked at."""
    durations: list[float | None] = []
    """Seconds that each took then; empty where they were not run."""
    workers: int = 0
    """Tasks that ran at once then, at most; 0 where they were not run."""
    span_s: float | None = None
    """From the first start to the last end then."""
    around_s: float | None = None
    """What that run took before and after."""


def calls_of_run(run: Run, *, most: int = MOST) -> Workload:
    """The first `most` calls that a run submitted, in their order, each once however often it was tried."""
    places: dict[str, int] = {}
    calls: list[Call] = []
    waits: list[list[str]] = []
    took: dict[str, float] = {}
    ends: list[tuple[str, float, float]] = []
    first, last = math.inf, -math.inf
    cut = 0
    for event in run.events("tasks"):
        if isinstance(event, TaskSubmitted):
            if event.task_id in places:
                continue
            if len(calls) == most:
                cut += 1
                continue
            places[event.task_id] = len(calls)
            calls.append(Call(task=base_name(event.task), args=event.args, component=event.component))
            waits.append(list(event.depends_on))
        elif isinstance(event, TaskEnded) and event.duration_s is not None:
            ended = unix_time(event.timestamp)
            if ended is None or not 0 <= event.duration_s < math.inf:
                continue
            first, last = min(first, ended - event.duration_s), max(last, ended)
            # A worker's file may be read before that of the submissions.
            if event.task_id in places or len(calls) < most:
                took[event.task_id] = event.duration_s
                ends.append((event.task_id, ended - event.duration_s, ended))
    after = [[places[other] for other in before if other in places] for before in waits]
    # Of a run with too many calls, what is compared with the calls that are looked at are these alone.
    moments = [
        moment
        for task_id, began, ended in ends
        if not cut or task_id in places
        for moment in ((began, 1), (ended, -1))
    ]
    span = max(when for when, _ in moments) - min(when for when, _ in moments) if moments else None
    whole = run.info.duration_s
    return Workload(
        source=f"the {len(calls):,} calls of {run.run_id}",
        calls=calls,
        after=after if any(after) else [],
        cut=cut,
        durations=[took.get(task_id) for task_id in places],
        workers=_at_once(moments),
        span_s=span,
        around_s=max(0.0, whole - (last - first)) if whole is not None and first <= last else None,
    )


def calls_of_file(file: Path) -> Workload:
    """The calls of a file with a JSON object a line: `{"task": "simulate", "args": {"n": 100}}`."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from None
    calls: list[Call] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                call = msgspec.json.decode(line, type=Call)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise UsageError(
                    f'{file}, line {number}: not a call ({error}); write {{"task": "simulate", "args": {{"n": 100}}}}'
                ) from None
            calls.append(msgspec.structs.replace(call, task=base_name(call.task)))
    if not calls:
        raise UsageError(f"{file} holds no calls: write a JSON object a line, with a task and its args")
    return Workload(
        source=f"the {min(len(calls), MOST):,} calls of {file.name}",
        calls=calls[:MOST],
        cut=max(0, len(calls) - MOST),
    )


def _at_once(moments: list[tuple[float, int]]) -> int:
    """How many ran at once, at most; an end comes before a start at the same moment."""
    most = now = 0
    for _, step in sorted(moments):
        now += step
        most = max(most, now)
    return most
