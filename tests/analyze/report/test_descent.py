"""What the critical path consists of inside, in a time that grows with what is there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from builders.runs import make_run
from builders.task_events import completed, span, started, submitted

from flightlog.analyze.report import descent
from flightlog.analyze.report.report import Report, report_on
from flightlog.events import Event
from flightlog.store.run import Run


def loop(turns: int) -> Iterator[Event]:
    """A program that does four things by itself, and then one task, in each turn of 10 s in all."""
    turn = 10 / turns
    yield span("loop", 0, 10, "root")
    for n in range(turns):
        since = n * turn
        for part in range(4):
            yield span("prepare", since + part * turn / 10, turn / 10, f"p{n}-{part}", "root")
        yield submitted(f"t{n}", since + turn / 2)
        yield started(f"t{n}", since + turn / 2, queue_s=0.0)
        yield completed(f"t{n}", since + turn, turn / 2)


def traced(tmp_path: Path, turns: int) -> tuple[Report, int]:
    """The report, and how many calls were made to find what is inside of the path."""
    run = Run(make_run(tmp_path / str(turns), loop(turns)))
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event.endswith("call") and frame.f_code.co_filename == descent.__file__

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        return report_on(run, details=False), calls
    finally:
        sys.setprofile(before)


def test_twice_as_many_stretches_and_spans_take_twice_the_work(tmp_path: Path) -> None:
    (few, calls_of_few), (many, calls_of_many) = traced(tmp_path, 50), traced(tmp_path, 200)
    assert calls_of_few < calls_of_many < 5 * calls_of_few
    for report in (few, many):
        assert report.critical_path is not None
        places = {tuple(place.names): round(place.seconds, 6) for place in report.critical_path.inside}
        assert places == {("sim",): 5.0, ("loop",): 5.0, ("loop", "prepare"): 4.0}


def test_a_span_around_a_stretch_counts_as_far_as_the_stretch_goes(tmp_path: Path) -> None:
    events = [
        span("early", 0, 1, "a"),
        span("around", 2, 7, "b"),
        span("late", 9, 1, "c"),
        span("short", 2.5, 0.5, "d"),
    ]
    for n, (since, until) in enumerate(((1.0, 3.0), (4.0, 9.5))):
        events += [
            submitted(f"t{n}", since),
            started(f"t{n}", since, queue_s=0.0),
            completed(f"t{n}", until, until - since),
        ]
    path = report_on(Run(make_run(tmp_path, events)), details=False).critical_path
    assert path is not None
    assert {tuple(place.names): place.seconds for place in path.inside} == {
        ("sim",): 7.5,
        ("around",): 1.0,
        ("early",): 1.0,
        ("late",): 0.5,
    }
