"""Runs that hypothesis draws: tasks and workers as plain dicts, and their events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from builders.runs import at
from hypothesis import strategies as st

from flightlog.events import (
    Event,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskQueued,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
)


class Clock:
    """Tenths of a second, and no moment twice: of two at one moment nobody can say which came first."""

    def __init__(self) -> None:
        self.ticks = 0

    def __call__(self, tenths: int) -> str:
        self.ticks += 1
        return at(tenths / 10 + self.ticks / 1e6)


WORKERS = ("w1", "w2", "w3")


tenths = st.integers(0, 80)


@st.composite
def a_task(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "name": draw(st.sampled_from(["load", "sim", "sum"])),
        "worker": draw(st.sampled_from([*WORKERS, None])),
        "component": draw(st.sampled_from([None, None, "cpu", "gpu"])),
        "submitted": draw(tenths),
        "queued": draw(st.booleans()),
        "waits": draw(st.integers(0, 20)),
        "lasts": draw(st.integers(0, 30)),
        "ends": draw(
            st.sampled_from(["completed", "completed", "failed", "cancelled", "running", "pending"])
        ),
        "retried": draw(st.booleans()),
        "measured": draw(st.booleans()),
        "needs": draw(st.integers(0, 3)),
    }


@st.composite
def a_worker(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "launched": draw(st.none() | tenths),
        "ready": draw(st.none() | st.integers(0, 20)),
        "ends": draw(st.sampled_from(["removed", "lost", None])),
        "gone": draw(st.integers(0, 60)),
        "component": draw(st.sampled_from([None, None, "cpu", "gpu"])),
    }


def events_of(tasks: list[dict[str, Any]], crew: list[dict[str, Any]]) -> Iterator[Event]:
    clock = Clock()
    for n, task in enumerate(tasks):
        ids = {"task": task["name"], "task_id": f"t{n}", "component": task["component"], "span_id": f"s{n}"}
        needs = [f"t{other}" for other in range(max(0, n - task["needs"]), n)] if task["needs"] else []
        moment = task["submitted"]
        yield TaskSubmitted(timestamp=clock(moment), args={"n": n}, depends_on=needs, **ids)
        if task["queued"]:
            yield TaskQueued(timestamp=clock(moment), **ids)
        if task["ends"] == "pending":
            continue
        attempt = 1
        if task["retried"]:
            moment += task["waits"]
            yield TaskStarted(timestamp=clock(moment), worker=task["worker"], queue_s=None, **ids)
            moment += task["lasts"]
            yield TaskRetried(timestamp=clock(moment), reason="OSError", **ids)
            attempt = 2
            if task["queued"]:
                yield TaskQueued(timestamp=clock(moment + 1), attempt=attempt, **ids)
        moment += task["waits"]
        queue_s = None if task["queued"] else task["waits"] / 10
        yield TaskStarted(
            timestamp=clock(moment), worker=task["worker"], queue_s=queue_s, attempt=attempt, **ids
        )
        if task["ends"] == "running":
            continue
        ended = {
            "timestamp": clock(moment + task["lasts"]),
            "args": {"n": n},
            "worker": task["worker"],
            "attempt": attempt,
            "duration_s": task["lasts"] / 10 if task["measured"] else None,
            **ids,
        }
        if task["ends"] == "completed":
            yield TaskCompleted(**ended)
        elif task["ends"] == "cancelled":
            yield TaskCancelled(**ended)
        else:
            yield TaskFailed(error_type="ValueError", error_message="bad", **ended)
    for name, worker in zip(WORKERS, crew, strict=False):
        who = {"worker": name, "host": "n1", "pid": 1, "component": worker["component"]}
        moment = worker["launched"] or 0
        if worker["launched"] is not None:
            yield WorkerLaunched(timestamp=clock(moment), **who)
        if worker["ready"] is not None:
            moment += worker["ready"]
            yield WorkerReady(timestamp=clock(moment), **who)
        if worker["ends"] == "removed":
            yield WorkerRemoved(timestamp=clock(moment + worker["gone"]), reason=None, **who)
        elif worker["ends"] == "lost":
            yield WorkerLost(timestamp=clock(moment + worker["gone"]), reason="killed", **who)
