"""`flightlog.figures`: a run in, a Plotly figure out, worked out once while nothing changes."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path

import plotly.graph_objects as go
import plotly.io as pio
import pytest
from builders.hostile_run import hostile_run
from builders.runs import at, make_run

import flightlog
from flightlog import figures
from flightlog.analyze.charts import report_with_charts
from flightlog.core.errors import RunNotFound, UsageError
from flightlog.events import (
    CacheLookup,
    Metric,
    ResourceSample,
    SpanEvent,
    TaskCompleted,
    TaskStarted,
    TaskSubmitted,
    WorkerReady,
)
from flightlog.store.run import Run

OF_A_RUN = [name for name in figures.__all__ if name not in {"compare", "ratios", "trends"}]


def lives(number: int = 12, length_s: float = 0.5):
    yield WorkerReady(timestamp=at(0), worker="w1", host="node-1", pid=7)
    for n in range(number):
        ids = {"task": "simulate", "task_id": f"t{n}", "span_id": f"s{n}"}
        start = n * 0.7
        yield TaskSubmitted(timestamp=at(0), args={"seed": n}, **ids)
        yield TaskStarted(timestamp=at(start), worker="w1", queue_s=start, **ids)
        yield SpanEvent(
            timestamp=at(start),
            name="step",
            span_id=f"x{n}",
            parent_id=f"s{n}",
            trace_id="1" * 32,
            duration_s=length_s,
            status="ok",
        )
        yield CacheLookup(timestamp=at(start), task="simulate", result="miss", key="k", reason="no entry")
        yield ResourceSample(
            timestamp=at(start), scope="node", host="node-1", cpu_percent=50.0, memory_used_bytes=1 << 30
        )
        yield ResourceSample(
            timestamp=at(start),
            scope="worker",
            host="node-1",
            worker="w1",
            cpu_percent=50.0,
            rss_bytes=1 << 28,
        )
        yield TaskCompleted(
            timestamp=at(start + length_s),
            worker="w1",
            duration_s=length_s,
            queue_s=start,
            args={"seed": n},
            **ids,
        )


def test_every_figure_takes_a_run_and_the_latest_one_by_itself():
    for name in OF_A_RUN:
        assert inspect.signature(getattr(figures, name)).parameters["run"].default == "latest"


@pytest.mark.parametrize(
    "name",
    [
        "timeline",
        "concurrency",
        "durations",
        "waits",
        "critical_path",
        "spans",
        "shares",
        "host_cpu",
        "host_memory",
        "cache",
    ],
)
def test_what_was_recorded_is_drawn_as_a_plotly_figure(tmp_path, name):
    path = make_run(tmp_path, lives())
    figure = getattr(figures, name)(path)
    assert isinstance(figure, go.Figure)
    assert len(figure.data) >= 1
    assert figure.layout.paper_bgcolor == "#ffffff"
    assert figure.to_json()


@pytest.mark.parametrize("name", OF_A_RUN)
def test_where_nothing_was_recorded_it_says_what_is_missing(tmp_path, name):
    run = Run(make_run(tmp_path))
    with pytest.raises(UsageError, match=rf"there is nothing to draw: {run.run_id} recorded no"):
        getattr(figures, name)(run)


def test_a_metric_is_drawn_by_its_name_and_the_one_with_most_values_without(tmp_path):
    counts = {"loss": 5, "accuracy": 3}
    path = make_run(
        tmp_path,
        [
            Metric(timestamp=at(n), name=name, value=float(n), step=n)
            for name, many in counts.items()
            for n in range(many)
        ],
    )
    assert figures.metric(path).layout.title.text == "<b>loss</b>"
    assert figures.metric(path, "accuracy").layout.title.text == "<b>accuracy</b>"
    with pytest.raises(UsageError, match=r"no curve of a metric 'f1' in .*; there is one of loss, accuracy"):
        figures.metric(path, "f1")


def test_names_in_an_error_cannot_move_the_cursor(tmp_path):
    path = make_run(tmp_path, [Metric(timestamp=at(n), name="\x1b[2J", value=1.0, step=n) for n in range(3)])
    with pytest.raises(UsageError, match=r"there is one of \\x1b\[2J$"):
        figures.metric(path, "f1")


def test_the_figure_of_a_machine_is_named_where_that_of_workers_is_missing(tmp_path):
    path = make_run(
        tmp_path,
        [
            ResourceSample(timestamp=at(n), scope="node", host="n1", cpu_percent=5.0, memory_used_bytes=9)
            for n in range(5)
        ],
    )
    with pytest.raises(UsageError, match=r"figures\.host_cpu draws that of the machine"):
        figures.cpu(path)


def test_a_run_is_worked_out_once_for_all_its_figures_and_again_when_it_has_changed(tmp_path, monkeypatch):
    path, seen = make_run(tmp_path, lives()), []
    real = report_with_charts.report_with_charts
    monkeypatch.setattr(
        report_with_charts,
        "report_with_charts",
        lambda run, **more: (seen.append(run.path), real(run, **more))[1],
    )
    figures.timeline(path)
    figures.durations(str(path))
    figures.waits(Run(path))
    assert seen == [path]
    with (path / "tasks.jsonl").open("ab") as out:
        out.write(
            b'{"event":"task_submitted","timestamp":"2026-05-20T03:52:01.000000Z","task":"x","task_id":"y"}\n'
        )
    figures.timeline(path)
    assert seen == [path, path]


def test_no_more_than_a_few_runs_are_kept(tmp_path):
    for n in range(figures.MAX_CACHED_RUNS + 2):
        figures.timeline(make_run(tmp_path, lives(2), token=f"{n:08d}"))
    assert len(figures._looks) == figures.MAX_CACHED_RUNS


def test_figures_are_dark_where_plotlys_default_is(tmp_path, monkeypatch):
    monkeypatch.setattr(pio.templates, "default", "plotly_dark")
    figure = figures.timeline(make_run(tmp_path, lives()))
    assert (figure.layout.paper_bgcolor, figure.layout.font.color) == ("#111111", "#e6e6e6")


def test_two_runs_and_a_history_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(tmp_path))
    before = make_run(tmp_path, lives(), token="00000001")
    after = make_run(tmp_path, lives(length_s=0.6), token="00000002", duration_s=12.0, end_time=at(12))
    comparison = flightlog.compare(str(before), str(after))
    assert figures.compare(comparison) == figures.compare(before, Run(after))
    assert len(figures.ratios(comparison).data) >= 1
    assert len(figures.trends("demo").data) >= 1
    assert figures.trends("demo") == figures.trends(flightlog.trends("demo"))


def test_a_run_that_is_being_recorded_can_be_drawn(tmp_path):
    with flightlog.record("demo", runs_dir=tmp_path, sample_interval_s=None) as run:
        with run.task("first"):
            pass
        assert isinstance(figures.timeline(run), go.Figure)


def test_what_is_no_run_is_said(tmp_path):
    with pytest.raises(RunNotFound):
        figures.timeline(tmp_path / "nothing")


def test_texts_of_a_hostile_run_are_no_markup_in_figures(tmp_path):
    path = hostile_run(tmp_path / "runs")
    drawn = 0
    for name in OF_A_RUN:
        try:
            text = getattr(figures, name)(path).to_json()
        except UsageError:
            continue
        drawn += 1
        assert "<script" not in text
        assert "<img" not in text
        assert "<a href" not in text
    assert drawn > 5


def test_the_public_names_are_what_stands_in_the_module():
    defined = {
        name
        for name, value in vars(figures).items()
        if inspect.isfunction(value) and not name.startswith("_") and value.__module__ == figures.__name__
    }
    assert defined == set(figures.__all__)
    assert Path(figures.__file__).name == "figures.py"


def test_a_run_whose_folder_is_gone_is_said_to_be_gone(tmp_path):
    run = Run(make_run(tmp_path))
    shutil.rmtree(run.path)
    with pytest.raises(RunNotFound):
        figures.timeline(run)


def test_what_cannot_be_a_run_is_no_run():
    with pytest.raises(UsageError, match=r"^float is no run: "):
        figures.timeline(3.5)
