"""Values that no column can hold, and names that collide, cost no answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.runs import at, make_run

from flightlog.analyze.advice.advise import advise
from flightlog.analyze.compare.compare import compare
from flightlog.analyze.diagnosis.diagnose import diagnose
from flightlog.analyze.report.report import report_on
from flightlog.events import SpanEvent, SpanOpened, TaskCompleted, TaskFailed, WorkerLaunched
from flightlog.store.limits import StoreLimits
from flightlog.store.run import Run
from flightlog.store.tables.parquet import HistoryFolder, add_to_history
from flightlog.store.tables.run_tables import open_tables

BEYOND = 1 << 70


def test_memory_beyond_64_bits_is_unknown_and_no_error(tmp_path: Path) -> None:
    failed = TaskFailed(
        timestamp=at(2),
        task="sim",
        task_id="t",
        args={},
        worker="w",
        duration_s=1.0,
        error_type="KeyError",
        error_message="'x'",
    )
    path = make_run(
        tmp_path, [WorkerLaunched(timestamp=at(0), worker="w", host="h", pid=1, memory_bytes=BEYOND), failed]
    )
    plan = {"components": {"c": {"memory_bytes": BEYOND}}, "tasks": {"sim": {"component": "c"}}}
    (path / "plan.json").write_text(json.dumps(plan))
    assert report_on(Run(path)).workers.count == 1
    assert diagnose(Run(path)).causes
    assert not [one for one in advise(runs_dir=tmp_path).problems if "cannot be read" in one]


@pytest.mark.parametrize("beat", ["20260520T035204Z", "2026-W21-3T03:52:04Z", "2026-05-20T03:52:04,5Z"])
def test_a_heartbeat_in_any_form_that_python_reads_is_one(tmp_path: Path, beat: str) -> None:
    opened = SpanOpened(
        timestamp=at(1), name="a", span_id="s", parent_id=None, trace_id="t", tags={}, elapsed_s=1.0
    )
    path = make_run(tmp_path, [opened], status="crashed", end_time=None, duration_s=None, heartbeat=beat)
    [(lasted,)] = Run(path).sql("SELECT duration_s FROM spans").rows()
    assert lasted in {3.0, 3.5}
    assert report_on(Run(path)).spans.open_in_flight == 1


def test_without_heartbeats_the_last_line_is_the_last_sign_of_life(tmp_path: Path) -> None:
    events = [
        SpanOpened(
            timestamp=at(1), name="a", span_id="s", parent_id=None, trace_id="t", tags={}, elapsed_s=1.0
        ),
        SpanEvent(timestamp=at(50), name="b", span_id="u", parent_id="s", duration_s=0.1),
    ]
    path = make_run(tmp_path, events, status="crashed", end_time=None, duration_s=None, recorder=False)
    assert Run(path).sql("SELECT duration_s FROM spans WHERE open").rows() == [(49.0,)]


def test_streams_with_capital_letters_and_dashes_go_into_a_history(tmp_path: Path) -> None:
    path = make_run(tmp_path / "runs")
    for stream in ("user.Train", "user.my-thing"):
        (path / f"{stream}.jsonl").write_text('{"event":"x","value":1}\n')
    rows = add_to_history(Run(path), HistoryFolder(tmp_path / "history"))
    assert (rows["user_Train"], rows["user_my-thing"]) == (1, 1)


def test_a_file_called_as_a_table_of_a_comparison_is_in_nobodys_way(tmp_path: Path) -> None:
    done = TaskCompleted(timestamp=at(2), task="sim", task_id="t", args={}, worker="w", duration_s=1.0)
    runs = [make_run(tmp_path, [done], token=token) for token in ("aaaaaaaa", "bbbbbbbb")]
    for path in runs:
        for name in ("compared_spans", "compared", "sides", "lookups", "transfers", "failed_tasks"):
            (path / f"{name}.jsonl").write_text('{"event":"x"}\n')
    assert compare(*runs).tasks["completed"].after == 1


def test_lines_too_long_for_the_memory_of_a_large_run_are_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreLimits, "large_stream_bytes", 1)
    monkeypatch.setattr(StoreLimits, "large_run_memory", "24MB")
    said = {"duration_s": 1.0, "worker": "w", "error_type": "E", "fingerprint": "f"}
    events = [
        TaskFailed(
            timestamp=at(n), task="sim", task_id=f"t{n}", args={}, error_message=str(n) * 4_000_000, **said
        )
        for n in range(8)
    ]
    with open_tables([Run(make_run(tmp_path, events))]) as tables:
        found = tables.scalar("SELECT count(*) FROM attempt_intervals WHERE state = 'failed'")
    assert found == 8
