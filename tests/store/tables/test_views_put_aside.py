"""The derived views of a large run, made part by part: the same rows as in one go."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.runs import at, make_run

from flightlog.events import (
    Event,
    SpanEvent,
    SpanOpened,
    TaskCompleted,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
)
from flightlog.store.run import Run
from flightlog.store.tables.large import put_aside
from flightlog.store.tables.parquet import snapshot_run
from flightlog.store.tables.run_tables import open_all

VIEWS = ("attempts", "tasks", "spans")


def events() -> list[Event]:
    found: list[Event] = []
    for n in range(60):
        ids = {"task": f"sim{n % 3}", "task_id": f"t{n}", "span_id": f"{n:x}"}
        found.append(
            TaskSubmitted(timestamp=at(n / 10), args={"n": n}, depends_on=[f"t{n - 1}"] * (n % 2), **ids)
        )
        found.append(TaskStarted(timestamp=at(n / 10 + 0.01), worker=f"w{n % 4}", queue_s=0.01, **ids))
        if n % 10 == 0:
            found.append(TaskRetried(timestamp=at(n / 10 + 0.5), reason="ValueError: no", **ids))
            ids["attempt"] = 2
        if n % 7:
            end = TaskFailed if n % 5 == 0 else TaskCompleted
            more = {"error_type": "KeyError", "error_message": "k"} if end is TaskFailed else {}
            found.append(
                end(timestamp=at(n / 10 + 1), args={}, worker=f"w{n % 4}", duration_s=0.9, **ids, **more)
            )
        found.append(
            SpanEvent(
                timestamp=at(n / 10 + 0.1),
                name="s",
                span_id=f"s{n}",
                parent_id=f"s{n // 2}",
                duration_s=0.5,
                status="ok",
            )
        )
        found.append(SpanEvent(timestamp=at(n / 10), name="nameless", duration_s=0.1))
        if n % 9 == 0:
            found.append(
                SpanOpened(
                    timestamp=at(n / 10),
                    name="open",
                    tags={},
                    trace_id="",
                    span_id=f"o{n}",
                    parent_id=f"s{n}",
                    elapsed_s=1.0,
                )
            )
    return found


def rows_of(run: Run, aside: bool, views: tuple[str, ...] = VIEWS) -> dict[str, list[tuple[object, ...]]]:
    with open_all([run], only=set(VIEWS)) as tables:
        if aside:
            put_aside(run, tables, views, from_bytes=1, part_bytes=2000)
        return {
            view: tables.connection.execute(f"SELECT * FROM {view} ORDER BY ALL").fetchall() for view in VIEWS
        }


@pytest.mark.parametrize("compacted", [False, True], ids=["lines", "snapshots"])
def test_views_made_part_by_part_have_the_rows_of_views_made_in_one_go(
    tmp_path: Path, compacted: bool
) -> None:
    run = Run(make_run(tmp_path, events()))
    if compacted:
        snapshot_run(run)
    found = rows_of(run, aside=True)
    assert found == rows_of(run, aside=False)
    assert {view: len(rows) for view, rows in found.items()} == {"attempts": 65, "tasks": 60, "spans": 127}


def test_only_the_columns_asked_for_are_kept_of_attempts(tmp_path: Path) -> None:
    run = Run(make_run(tmp_path, events()))
    with open_all([run], only={"attempts"}) as tables:
        put_aside(run, tables, {"attempts"}, attempts="task_id, state", from_bytes=1, part_bytes=2000)
        found = tables.connection.execute("SELECT * FROM attempts ORDER BY ALL LIMIT 1")
        assert [name for name, *_ in found.description or ()] == ["task_id", "state"]


def test_small_runs_are_left_as_they_are(tmp_path: Path) -> None:
    run = Run(make_run(tmp_path, events()))
    with open_all([run], only=set(VIEWS)) as tables:
        before = tables.connection.execute("SELECT sql FROM duckdb_views() ORDER BY 1").fetchall()
        put_aside(run, tables, VIEWS)
        assert tables.connection.execute("SELECT sql FROM duckdb_views() ORDER BY 1").fetchall() == before
