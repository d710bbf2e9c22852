"""The rows that a table of tasks or spans is shown by: those that began first, every time."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path

import pytest
from builders.examples import FEW
from builders.runs import at, make_run
from hypothesis import given
from hypothesis import strategies as st

from flightlog.events import SpanEvent, TaskCompleted, TaskRetried, TaskStarted, TaskSubmitted
from flightlog.store.run import Run
from flightlog.store.tables.parquet import snapshot_run

starts = st.lists(st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=1, max_size=40), max_size=12)
"""When each attempt of each task began; None did not."""


def lives(tasks):
    for n, attempts in enumerate(tasks):
        ids = {"task": "simulate", "task_id": f"t{(n * 7) % 12:02d}"}
        yield TaskSubmitted(timestamp=at(0), args={}, **ids)
        for attempt, start in enumerate(attempts, 1):
            if start is not None:
                yield TaskStarted(timestamp=at(start), worker="w", queue_s=None, attempt=attempt, **ids)
            if attempt < len(attempts):
                yield TaskRetried(timestamp=at(6), attempt=attempt, reason="again", **ids)


def began(row) -> tuple[datetime, str]:
    return row["first_started_at"] or datetime.max, row["task_id"]


@pytest.mark.parametrize("compacted", [False, True])
@FEW
@given(tasks=starts, rows=st.integers(1, 6))
def test_tasks_are_shown_in_the_order_of_their_start_and_their_id(compacted, tasks, rows):
    with tempfile.TemporaryDirectory() as folder:
        run = Run(make_run(Path(folder), lives(tasks)))
        if compacted:
            snapshot_run(run)
        columns = run.tasks.columns
        every = sorted((dict(zip(columns, row, strict=True)) for row in run.tasks.rows()), key=began)
        found = run.tasks.peek(rows)
        assert [dict(zip(columns, row, strict=True)) for row in found.rows] == every[:rows]
        assert found.total == len(tasks)


def test_spans_are_shown_in_the_order_of_their_start(tmp_path):
    spans = [
        SpanEvent(
            timestamp=at(t), name="step", span_id=f"{n:016x}", trace_id="1" * 32, duration_s=0.1, status="ok"
        )
        for n, t in enumerate([4, 2, 2, 9, 1])
    ]
    run = Run(make_run(tmp_path, spans))
    found = run.spans.peek(4)
    at_id = found.columns.index("span_id")
    assert [int(row[at_id], 16) for row in found.rows] == [4, 1, 2, 0]


def test_the_order_of_any_other_query_is_its_own(tmp_path):
    tasks = [
        TaskCompleted(
            timestamp=at(n), task="a", task_id=f"t{n}", worker="w", duration_s=0.5, queue_s=0.0, args={}
        )
        for n in range(5)
    ]
    run = Run(make_run(tmp_path, tasks))
    found = run.sql("SELECT task_id FROM tasks ORDER BY task_id DESC").peek(2)
    assert found.rows == [("t4",), ("t3",)]
