"""Runs drawn as text: a row per worker, a sign per second. What came of the time can be counted in the text.

`s` is worker start-up (`S` that of a worker that never says that it is ready), `r` a task that completes, `f`
one that fails, `c` one that is cancelled, `t` an attempt that is retried, `u` a task without an end, `q` idle
with the next task of this row queued, `.` idle. Blanks are before and after the worker's life. Capital
letters are tasks of another name.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from builders.runs import at, make_run
from hypothesis import strategies as st

from flightlog.events import (
    Event,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    WorkerLaunched,
    WorkerReady,
    WorkerRemoved,
)

STATES = {"r": "completed", "f": "failed", "c": "cancelled", "t": "retried", "u": "running"}
HELD = {"r": "run", "f": "failed", "c": "failed", "t": "retried", "u": "unfinished", "s": "startup"}


class Row(NamedTuple):
    """The time of one worker, which takes tasks of this component."""

    worker: str
    signs: str
    component: str | None = None


class Piece(NamedTuple):
    """An attempt, and when it ran, in seconds after the start."""

    task_id: str
    attempt: int
    worker: str
    since: int
    until: int
    name: str
    state: str
    component: str | None
    queued: int
    """When it was queued."""


def pieces(rows: list[Row]) -> list[Piece]:
    """The attempts that are drawn; what follows a `t` in its row is the next attempt of the task."""
    found = []
    for place, row in enumerate(rows):
        second, queued, task_id, attempt = 0, None, "", 1
        for sign, group in groupby(row.signs):
            since, second = second, second + len(list(group))
            if sign == "q":
                queued = since
            elif sign.lower() in STATES:
                goes_on = bool(found) and found[-1].task_id == task_id and found[-1].state == "retried"
                attempt = attempt + 1 if goes_on else 1
                task_id = task_id if goes_on else f"t{place}-{since}"
                name = found[-1].name if goes_on else "sim" if sign.islower() else "load"
                began = since if queued is None else queued
                state = STATES[sign.lower()]
                found.append(
                    Piece(task_id, attempt, row.worker, since, second, name, state, row.component, began)
                )
                queued = None
    return found


def counted(rows: list[Row]) -> dict[str, dict[str, int]]:
    """The seconds of each worker by what they went to, which is what stands in its row and in the others."""
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        parts = found.setdefault(row.worker, {})
        for second, sign in enumerate(row.signs):
            beside = [(other.signs + " " * second)[second] for other in rows]
            waiting = [other.component for other, drawn in zip(rows, beside, strict=True) if drawn == "q"]
            queued = any(wanted is None or row.component in {None, wanted} for wanted in waiting)
            busy = any(drawn.lower() in STATES for drawn in beside)
            free = "scheduler" if queued else "behind" if busy else "alone"
            if sign != " ":
                part = HELD.get(sign.lower(), free)
                parts[part] = parts.get(part, 0) + 1
    return found


def events_of(rows: list[Row], *, measured: bool = True) -> list[Event]:
    """What is recorded of it; without `measured`, no durations."""
    found: list[Event] = []
    for one in pieces(rows):
        ids: dict[str, Any] = {"task": one.name, "task_id": one.task_id, "component": one.component}
        if one.attempt == 1:
            found.append(TaskSubmitted(timestamp=at(one.queued), args={}, **ids))
        ids["attempt"] = one.attempt
        queue_s = float(one.since - one.queued)
        found.append(TaskStarted(timestamp=at(one.since), worker=one.worker, queue_s=queue_s, **ids))
        lasted = float(one.until - one.since) if measured else None
        ended = {"args": {}, "worker": one.worker, "duration_s": lasted, "timestamp": at(one.until), **ids}
        if one.state == "completed":
            found.append(TaskCompleted(**ended))
        elif one.state == "failed":
            found.append(TaskFailed(error_type="ValueError", error_message="bad", **ended))
        elif one.state == "cancelled":
            found.append(TaskCancelled(**ended))
        elif one.state == "retried":
            found.append(TaskRetried(timestamp=at(one.until), reason="OSError", **ids))
    for worker, lines in groupby(rows, key=lambda row: row.worker):
        row = next(lines)
        who: dict[str, Any] = {"worker": worker, "host": "n1", "pid": 1, "component": row.component}
        life = row.signs.rstrip()
        up = len(life) - len(life.lstrip())
        ready = len(life) - len(life.lstrip(" s"))
        if life[up : up + 1].lower() == "s":
            found.append(WorkerLaunched(timestamp=at(up), **who))
        if life[up : up + 1] != "S":
            found.append(WorkerReady(timestamp=at(ready), **who))
        if len(life) < max(len(other.signs) for other in rows):
            found.append(WorkerRemoved(timestamp=at(len(life)), reason=None, **who))
    return found


def drawn_run(folder: Path, *rows: Row, closed: bool = True, more: Any = (), **options: Any) -> Path:
    """Write the run. It ends with the longest row; one that is not `closed` was killed then."""
    end = max(len(row.signs) for row in rows)
    facts: dict[str, Any] = {"end_time": at(end), "duration_s": float(end)}
    if not closed:
        facts = {"status": "crashed", "end_time": None, "duration_s": None, "heartbeat": at(end)}
    return make_run(folder, [*more, *events_of(list(rows), **options)], **facts)


SECONDS = 20
"""The length of drawn pictures: every one of the 60 stretches of a report is inside of one sign."""


WORK = ("r", "R", "f", "c", "t", "qr", "qR", "qf", "qt", ".", ".")


@st.composite
def pictures(draw: st.DrawFn, workers: int = 3) -> list[Row]:
    """Rows with any signs, for workers of any component."""
    found = []
    for number in range(draw(st.integers(1, workers))):
        start = draw(st.sampled_from(["", "s", "  ss", "SSS", "."]))
        work = "".join(
            sign * length
            for signs, length in draw(
                st.lists(st.tuples(st.sampled_from(WORK), st.integers(1, 4)), max_size=6)
            )
            for sign in signs
        )
        signs = (start + work)[:SECONDS].rstrip("q")
        signs += draw(st.sampled_from(["", "...", "u" * SECONDS, "." * SECONDS]))
        signs = (signs or ".")[:SECONDS]
        if start == "SSS":  # one that never says that it is ready starts up to its first task
            signs = signs.lstrip("S.q").rjust(len(signs), "S")
        component = draw(st.sampled_from([None, None, "cpu", "gpu"]))
        found.append(Row(f"w{number}", signs, component))
    return [*found, Row("last", "." * SECONDS)]
