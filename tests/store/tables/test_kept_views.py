"""The derived views of one run, made from its lines once and kept: the same rows as when each use makes them
anew."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders.drawn_runs import a_task, events_of
from builders.examples import FEW
from builders.large_runs import with_usage
from builders.runs import at, make_run
from hypothesis import given
from hypothesis import strategies as st

from flightlog.events import (
    Event,
    SpanEvent,
    SpanOpened,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
)
from flightlog.store.limits import StoreLimits
from flightlog.store.run import Run
from flightlog.store.tables.parquet import snapshot_run
from flightlog.store.tables.run_tables import open_tables, open_views
from flightlog.store.tables.sources import Sources

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


def rows_of(run: Run, kept: bool) -> dict[str, list[tuple[object, ...]]]:
    with open_tables([run]) if kept else open_views([run], VIEWS) as tables:
        asked = tables if kept else tables.connection
        return {view: asked.execute(f"SELECT * FROM {view} ORDER BY ALL").fetchall() for view in VIEWS}


@pytest.mark.parametrize("compacted", [False, True], ids=["lines", "snapshots"])
@pytest.mark.parametrize("large_bytes", [0, 1 << 60], ids=["on disk", "in memory"])
def test_views_that_are_kept_have_the_rows_of_those_that_are_not(
    tmp_path: Path, compacted: bool, large_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreLimits, "large_stream_bytes", large_bytes)
    run = Run(make_run(tmp_path, events()))
    if compacted:
        snapshot_run(run)
    found = rows_of(run, kept=True)
    assert found == rows_of(run, kept=False)
    assert {view: len(rows) for view, rows in found.items()} == {"attempts": 65, "tasks": 60, "spans": 127}


def test_columns_that_no_sampled_line_has_are_kept_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(make_run(tmp_path, events()))
    expected = rows_of(run, kept=False)
    monkeypatch.setattr(StoreLimits, "large_stream_bytes", 0)
    monkeypatch.setattr(Sources, "sampled_fields", lambda *_: {"duration_s"})
    assert rows_of(run, kept=True) == expected


def test_a_sample_knows_the_fields_of_whole_lines_and_passes_over_others(tmp_path: Path) -> None:
    run = make_run(tmp_path, events())
    file = run / "tasks.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([lines[0], b"no event\n", b'{"odd":1}\n', *lines[1:], b'{"torn":']))
    found = Sources(Run(run), tmp_path).sampled_fields("tasks")
    assert {"event", "timestamp", "task_id", "odd"} <= found
    assert "torn" not in found
    assert Sources(Run(run), tmp_path).sampled_fields("nothing") == set()


def test_so_have_those_of_attempts_whose_lines_disagree(tmp_path: Path) -> None:
    ids = {"task": "sim", "task_id": "t1"}
    end = {"args": {}, "worker": "w1", "duration_s": 1.0}
    run = Run(
        make_run(
            tmp_path,
            [
                TaskStarted(timestamp=at(1), worker="w1", queue_s=None, parent_id="zz", **ids),
                TaskRetried(timestamp=at(2), reason="first", **ids),
                TaskCancelled(timestamp=at(3), reason="second", parent_id="aa", **end, **ids),
                TaskCompleted(timestamp=at(4), attempt=2, parent_id="aa", **end, **ids),
            ],
        )
    )
    before = rows_of(run, kept=False)
    assert rows_of(run, kept=True) == before
    snapshot_run(run)
    assert rows_of(Run(run.path), kept=False) == before


@FEW
@given(st.lists(a_task(), min_size=1, max_size=9), st.integers(0, 1 << 30))
def test_so_have_those_of_runs_of_any_shape(tasks: list, seed: int) -> None:
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        run = Run(make_run(Path(folder), with_usage(list(events_of(tasks, [])), seed)))
        assert rows_of(run, kept=True) == rows_of(run, kept=False)
