"""A run in ModelOps' shape: what its own storage gives back equals what the run holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import flightlog
from flightlog.adopt import adopt_path
from flightlog.adopt.run_maker import AdoptOptions
from flightlog.compat.modelops import TelemetryStorage
from flightlog.export.base import ExportOptions
from flightlog.export.modelops import exporter
from flightlog.store.run import Run


def exported(run: Path, tmp_path: Path) -> tuple[dict, list[dict]]:
    exporter.export(Run(run), tmp_path / "out", ExportOptions())
    [folder] = (tmp_path / "out/telemetry/jobs").iterdir()
    lines = [json.loads(line) for line in (folder / "spans.jsonl").read_text().splitlines()]
    return json.loads((folder / "summary.json").read_text()), lines


def test_spans_and_tasks_come_out_with_parents_times_tags_and_metrics(tmp_path):
    with flightlog.record("job", runs_dir=tmp_path / "runs") as run:
        with flightlog.span("algorithm.ask") as ask:
            ask.metrics["n_params"] = 4
            with flightlog.span("inner", param_id="p10"):
                pass
        with run.task("simulate", n=3):
            pass
    summary, lines = exported(run.path, tmp_path)
    assert [(line["name"], line["tags"], line["metrics"]) for line in lines] == [
        ("algorithm.ask", {}, {"n_params": 4}),
        ("inner", {"param_id": "p10"}, {}),
        ("simulate", {"n": 3}, {}),
    ]
    rows = dict(Run(run.path).sql("SELECT name, duration_s FROM spans").rows())
    assert {line["name"]: line["duration"] for line in lines[:2]} == rows
    assert lines[1]["parent_id"] == lines[0]["span_id"]
    assert (summary["job_type"], summary["total_spans"], summary["open_spans"]) == ("calibration", 3, 0)
    assert summary["by_name"]["algorithm.ask"]["metrics"] == {"n_params": {"mean": 4, "sum": 4, "count": 1}}


def test_times_count_from_the_first_span_and_dates_stand_beside_them(tmp_path):
    with flightlog.record("job", runs_dir=tmp_path / "runs") as run:
        for name in ("first", "second"):
            with flightlog.span(name):
                pass
    _, (first, second) = exported(run.path, tmp_path)
    starts = Run(run.path).sql("SELECT epoch_us(started_at) FROM spans ORDER BY started_at").rows()
    assert [round(line["started_at"] * 1e6) for line in (first, second)] == [start for (start,) in starts]
    assert first["start_time"] == 0
    assert second["start_time"] == (starts[1][0] - starts[0][0]) / 1e6


def test_adopting_what_was_exported_gives_the_times_parents_and_errors_of_the_run(tmp_path):
    with flightlog.record("job", runs_dir=tmp_path / "runs") as run, flightlog.span("outer"):
        try:
            with flightlog.span("inner", param_id="p10"):
                raise ValueError("no")
        except ValueError:
            pass
    exported(run.path, tmp_path)
    [adoption] = adopt_path(tmp_path / "out", tmp_path / "runs", options=AdoptOptions())
    query = (
        "SELECT name, span_id, started_at, duration_s, status, error_type, error_message FROM spans ORDER "
        "BY name"
    )
    assert Run(Path(adoption.path)).sql(query).rows() == Run(run.path).sql(query).rows()


def test_storage_opens_what_was_exported(tmp_path):
    with flightlog.record("job", runs_dir=tmp_path / "runs") as run, flightlog.span("simulation.execute"):
        pass
    summary, _ = exported(run.path, tmp_path)
    loaded = TelemetryStorage(tmp_path / "out").load_summary(run.path.name)
    assert loaded is not None
    assert loaded == summary
    assert (loaded["job_id"], loaded["total_spans"]) == (run.path.name, 1)


def test_a_failed_task_counts_as_an_error_of_its_name_and_says_why(tmp_path):
    with flightlog.record("job", runs_dir=tmp_path / "runs") as run:
        try:
            with run.task("simulate", n=1):
                raise ValueError("no")
        except ValueError:
            pass
    summary, [line] = exported(run.path, tmp_path)
    assert summary["by_name"]["simulate"]["errors"] == 1
    assert line["tags"] == {"n": 1, "error": "ValueError", "error_msg": "no"}


def test_values_that_are_no_numbers_are_null_and_named(tmp_path):
    with flightlog.record("job", runs_dir=tmp_path / "runs") as run:
        with flightlog.span("algorithm.tell", bound=float("inf")) as tell:
            tell.metrics["min_loss"] = float("nan")
        with run.task("simulate") as task:
            task.metrics["loss"] = float("-inf")
    _, lines = exported(run.path, tmp_path)
    assert [(line["tags"], line["metrics"], line["nonfinite"]) for line in lines] == [
        ({"bound": None}, {"min_loss": None}, {"bound": "inf", "min_loss": "nan"}),
        ({}, {"loss": None}, {"loss": "-inf"}),
    ]


def test_a_span_that_never_ended_has_no_end(tmp_path):
    program = (
        "import flightlog\n"
        "flightlog.record('job', runs_dir='runs').__enter__()\n"
        "flightlog.span('calibration.job', job_id='j').__enter__()\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    [path] = (tmp_path / "runs").glob("run-*")
    summary, [line] = exported(path, tmp_path)
    assert (line["name"], line["end_time"], line["duration"]) == ("calibration.job", None, None)
    assert (summary["total_spans"], summary["open_spans"], summary["total_duration"]) == (1, 1, 0)
