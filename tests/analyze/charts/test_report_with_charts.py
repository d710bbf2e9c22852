"""A look at a run is its report, unchanged, and what is drawn of the same reading."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from builders.charts import drawn
from builders.hostile_run import hostile_run
from builders.runs import at, make_run
from builders.task_events import completed, started

from flightlog.analyze.charts.report_with_charts import (
    ReportWithCharts,
    TimelineWithSummary,
    report_with_charts,
    timeline_of,
)
from flightlog.analyze.charts.results import (
    Bars,
    DurationSpread,
    Nested,
    RunCharts,
    Timeline,
    TimelineRow,
    Waits,
)
from flightlog.analyze.report.report import report_bytes, report_on
from flightlog.analyze.report.summary import Summary
from flightlog.store.integrity import write_checksums
from flightlog.store.limits import StoreLimits
from flightlog.store.run import Run

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.mark.parametrize("run", [*sorted((GOLDEN / "run-v1").iterdir()), GOLDEN / "killed-for-memory"])
def test_the_report_of_a_look_is_the_report(run: Path) -> None:
    assert report_bytes(report_with_charts(Run(run)).report) == report_bytes(report_on(Run(run)))


def line_of(look: ReportWithCharts) -> TimelineWithSummary:
    report = look.report
    return TimelineWithSummary(
        summary=Summary(**{name: getattr(report, name) for name in Summary.__struct_fields__}),
        time=report.time,
        timeline=look.drawn.timeline,
    )


@pytest.mark.parametrize("run", [*sorted((GOLDEN / "run-v1").iterdir()), GOLDEN / "killed-for-memory"])
def test_a_timeline_alone_is_that_of_the_whole_look(run: Path) -> None:
    assert msgspec.json.encode(timeline_of(Run(run))) == msgspec.json.encode(
        line_of(report_with_charts(Run(run)))
    )


def test_a_timeline_alone_of_a_hostile_run_is_that_of_the_whole_look(tmp_path: Path) -> None:
    run = Run(hostile_run(tmp_path))
    assert msgspec.json.encode(timeline_of(run)) == msgspec.json.encode(line_of(report_with_charts(run)))


def test_what_is_drawn_of_the_golden_demo_run() -> None:
    [run] = (GOLDEN / "run-v1").glob("*-demo-*")
    found = report_with_charts(Run(run)).drawn
    assert found.timeline == Timeline(
        since="2026-05-20T03:52:00.000000Z",
        length_s=12.5,
        names=["simulate"],
        lanes=[TimelineRow(label="w1", worker="w1")],
        bars=Bars(
            lane=[0],
            start_s=[1.25],
            length_s=[2.0],
            name=[0],
            state=["completed"],
            task_id=["t1"],
            attempt=[1],
            args=["seed=42"],
        ),
        cells=None,
        marks=[],
        attempts=1,
        workers=1,
        failures=0,
        notes=[],
        outside=Nested(
            lane=[0],
            row=[0],
            start_s=[1.3],
            length_s=[1.5],
            name=[0],
            state=["completed"],
            names=["solve"],
            rows=[1],
        ),
    )
    assert found.durations == [
        DurationSpread(
            name="simulate",
            count=1,
            total_s=2.0,
            edges_s=[1.77828, 2.05353],
            counts=[1],
            least_s=2.0,
            p25_s=2.0,
            median_s=2.0,
            p75_s=2.0,
            p95_s=2.0,
            most_s=2.0,
        )
    ]
    assert found.waits is None or isinstance(found.waits, Waits)


def test_runs_whose_rows_wait_on_disk_are_drawn_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [completed(f"t{n}", 1 + n / 10, 0.3, worker=f"w{n % 3}", queue_s=n / 100) for n in range(40)]
    path = make_run(tmp_path, [*events, started("last", 9)])
    write_checksums(path)
    whole = report_with_charts(Run(path))
    assert timeline_of(Run(path)) == line_of(whole)
    monkeypatch.setattr(StoreLimits, "large_stream_bytes", 0)
    assert report_with_charts(Run(path)).drawn == whole.drawn
    assert timeline_of(Run(path)) == line_of(whole)


def test_a_run_that_is_being_written_is_drawn_up_to_its_last_event(tmp_path: Path) -> None:
    path = make_run(
        tmp_path,
        [completed("a", 2, 1), started("b", 3), started("c", 6)],
        status="running",
        end_time=None,
        duration_s=None,
        heartbeat=at(8),
    )
    found = drawn(path).timeline
    assert found is not None
    assert found.bars is not None
    assert (found.length_s, found.bars.state) == (8.0, ["completed", "running", "running"])
    assert found.bars.length_s == [1.0, 5.0, 2.0]


def test_of_a_hostile_run_little_is_drawn_and_nothing_of_it_is_long(tmp_path: Path) -> None:
    found = report_with_charts(Run(hostile_run(tmp_path, name_bytes=100_000))).drawn
    encoded = msgspec.json.encode(found)
    assert len(encoded) < 300_000
    assert msgspec.json.decode(encoded, type=RunCharts) == found
