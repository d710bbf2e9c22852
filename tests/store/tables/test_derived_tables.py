from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from builders.examples import FEW
from builders.runs import at, make_run
from hypothesis import given, settings
from hypothesis import strategies as st
from lives_of_tasks import attempts_of, concurrency_of, spans_of, tasks_of

from flightlog.events import (
    Event,
    SpanEvent,
    SpanOpened,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskQueued,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
)
from flightlog.store.run import Run
from flightlog.store.tables.parquet import snapshot_run
from flightlog.store.tables.run_tables import open_tables

SECONDS = st.none() | st.integers(0, 3_000_000).map(lambda us: us / 1e6)
BYTES = st.none() | st.integers(0, 2**40)
TEXTS = st.none() | st.sampled_from(["a", "b"])


@st.composite
def task_events(draw) -> list[Event]:
    """Events of a few attempts, some missing, some twice, in any order; no two at the same moment."""
    moments = iter(draw(st.permutations(range(1, 121))))
    events: list[Event] = []
    for _ in range(draw(st.integers(0, 20))):
        who: dict[str, Any] = {
            "task": draw(st.sampled_from(["sim", "fit"])),
            "task_id": draw(st.sampled_from(["t1", "t2", "t3"])),
            "attempt": draw(st.integers(1, 3)),
            "component": draw(TEXTS),
            "span_id": draw(TEXTS),
            "parent_id": draw(TEXTS),
            "timestamp": draw(st.sampled_from([at(next(moments) / 7)] * 9 + ["soon"])),
        }
        use: dict[str, Any] = {
            "args": {"seed": draw(st.integers(0, 3))},
            "worker": draw(TEXTS),
            "duration_s": draw(SECONDS),
            "queue_s": draw(SECONDS),
            "cpu_s": draw(SECONDS),
            "thread_cpu_s": draw(SECONDS),
            "cpu_wait_s": draw(SECONDS),
            "rss_before_bytes": draw(BYTES),
            "call_bytes": draw(BYTES),
            "serialize_s": draw(SECONDS),
            "peak_rss_bytes": draw(BYTES),
            "metrics": draw(st.sampled_from([{}, {"loss": 0.5}])),
            "args_digest": draw(TEXTS),
            "gpu_peak_bytes": draw(BYTES),
            "gpu_memory_scope": draw(st.sampled_from([None, "allocator", "device"])),
            "gpu_s": draw(SECONDS),
            "gpu_scope": draw(st.sampled_from([None, "process", "device"])),
            "scheduler_s": draw(SECONDS),
            "transfer_s": draw(SECONDS),
            "spill_s": draw(SECONDS),
            "requests": draw(st.sampled_from([None, 1, 4])),
        }
        reason = draw(st.sampled_from([None, "OSError: gone", "worker lost: no", "a.b.BadThing", "timeout"]))
        events.append(
            draw(
                st.sampled_from(
                    [
                        TaskSubmitted(args={"seed": 1}, depends_on=["t0"], **who),
                        TaskQueued(**who),
                        TaskStarted(worker=draw(TEXTS), queue_s=draw(SECONDS), **who),
                        TaskCompleted(result_bytes=draw(BYTES), **use, **who),
                        TaskFailed(
                            error_type=draw(TEXTS), error_message=draw(TEXTS), exit_code=3, **use, **who
                        ),
                        TaskCancelled(reason=reason, **use, **who),
                        TaskRetried(reason=reason, **who),
                    ]
                )
            )
        )
    unreadable = [event for event in events if event.timestamp == "soon"]
    return events if len(unreadable) < 2 else [e for e in events if e not in unreadable[1:]]


@st.composite
def span_events(draw) -> list[Event]:
    ids = ["", "s1", "s2", "s3", "s4", "s5"]
    events: list[Event] = []
    for span_id in draw(st.lists(st.sampled_from(ids), max_size=8)):
        if span_id and span_id in {event.span_id for event in events}:
            continue
        parent = draw(st.sampled_from([None, "root", *ids[1:]]))
        start = at(draw(st.integers(0, 20)) / 10)
        for elapsed in draw(st.sampled_from([[], [], [1.0], [1.0, 2.0]])) if span_id else []:
            events.append(
                SpanOpened(
                    name="n",
                    tags={"x": elapsed},
                    trace_id="t",
                    span_id=span_id,
                    parent_id=parent,
                    elapsed_s=elapsed,
                    timestamp=start,
                )
            )
        if not events or events[-1].span_id != span_id or draw(st.booleans()):
            events.append(
                SpanEvent(
                    name="n",
                    tags={"x": 9},
                    metrics={"y": 1},
                    status=draw(st.sampled_from(["ok", "error", None])),
                    duration_s=draw(SECONDS),
                    span_id=span_id,
                    parent_id=parent,
                    thread=7,
                    timestamp=start,
                )
            )
    return draw(st.permutations(events))


def held(run: Run, **orders: tuple[str, ...]) -> list[list[dict[str, Any]]]:
    """The rows of each view in the order of these columns."""
    tables = []
    with open_tables([run]) as connection:
        for view, order in orders.items():
            found = connection.execute(f"SELECT * FROM {view}")
            names = [column[0] for column in found.description]
            rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
            for row in rows:
                row.update(
                    (name, json.loads(row[name])) for name in ("args", "metrics", "tags") if row.get(name)
                )
            tables.append(sorted(rows, key=lambda row: [str(row[name]) for name in order]))
    return tables


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]], order: tuple[str, ...]) -> None:
    expected = sorted(expected, key=lambda row: [str(row[name]) for name in order])
    assert [row.keys() for row in found] == [row.keys() for row in expected]
    for one, other in zip(found, expected, strict=True):
        assert one == {
            name: pytest.approx(value, abs=2e-9) if isinstance(value, float) else value
            for name, value in other.items()
        }


ATTEMPTS, TASKS, STEPS = ("task_id", "attempt"), ("task_id",), ("since",)
SPANS = ("span_id", "started_at", "duration_s", "status", "parent_id")


@FEW
@given(task_events())
def test_attempts_tasks_and_concurrency_are_what_plain_python_makes_of_the_events(events):
    with tempfile.TemporaryDirectory() as folder:
        run = Run(make_run(Path(folder), events))
        attempts = attempts_of(run.run_id, run.events("tasks"))
        found, tasks, steps = held(run, attempts=ATTEMPTS, tasks=TASKS, concurrency=STEPS)
        same(found, attempts, ATTEMPTS)
        same(tasks, tasks_of(attempts), TASKS)
        same(steps, concurrency_of(run.run_id, attempts), STEPS)


@FEW
@given(span_events())
def test_spans_are_what_plain_python_makes_of_the_events(events):
    with tempfile.TemporaryDirectory() as folder:
        run = Run(make_run(Path(folder), events))
        same(held(run, spans=SPANS)[0], spans_of(run.run_id, run.events("spans")), SPANS)


@settings(max_examples=5)
@given(task_events(), span_events())
def test_they_are_the_same_of_a_compacted_run(tasks, spans):
    with tempfile.TemporaryDirectory() as folder:
        run = Run(make_run(Path(folder), [*tasks, *spans]))
        orders = {"attempts": ATTEMPTS, "tasks": TASKS, "concurrency": STEPS, "spans": SPANS}
        before = held(run, **orders)
        snapshot_run(run)
        for order, found, expected in zip(orders.values(), held(run, **orders), before, strict=True):
            same(found, expected, order)


def test_the_life_of_a_task_with_a_retry_reads_well(tmp_path):
    who = {"task": "sim", "task_id": "t1"}
    run = Run(
        make_run(
            tmp_path,
            [
                TaskSubmitted(timestamp=at(0), args={"seed": 1}, **who),
                TaskStarted(timestamp=at(1), worker="w1", queue_s=1.0, **who),
                TaskRetried(timestamp=at(2), reason="OSError: gone", **who),
                TaskStarted(timestamp=at(3), worker="w2", queue_s=0.5, attempt=2, **who),
                TaskCompleted(
                    timestamp=at(5), worker="w2", args={"seed": 1}, duration_s=1.5, attempt=2, **who
                ),
                TaskSubmitted(timestamp=at(0), args={}, task="fit", task_id="t2"),
            ],
        )
    )
    assert run.sql(
        "SELECT attempt, state, retried, worker, queue_s, duration_s, error_type "
        "FROM attempts ORDER BY task_id, attempt"
    ).rows() == [
        (1, "failed", True, "w1", 1.0, None, "OSError"),
        (2, "completed", False, "w2", 0.5, 1.5, None),
        (1, "pending", False, None, None, None, None),
    ]
    assert run.sql(
        "SELECT task, state, attempts, queue_s, duration_s, worker, args FROM tasks ORDER BY task"
    ).rows() == [
        ("fit", "pending", 0, None, None, None, "{}"),
        ("sim", "completed", 2, 1.0, 1.5, "w2", '{"seed":1}'),
    ]
    assert run.sql("SELECT running FROM concurrency ORDER BY since").rows() == [(1,), (0,), (1,), (0,)]


def test_durations_beyond_reason_do_not_fail_the_query(tmp_path):
    run = Run(
        make_run(
            tmp_path,
            [
                TaskCompleted(timestamp=at(5), task="t", task_id="1", worker=None, args={}, duration_s=1e300),
                SpanEvent(name="n", span_id="a", duration_s=1e300, timestamp=at(1)),
            ],
        )
    )
    assert run.sql("SELECT max(running) FROM concurrency").rows() == [(1,)]
    assert run.sql("SELECT self_s FROM spans").rows() == [(1e300,)]
