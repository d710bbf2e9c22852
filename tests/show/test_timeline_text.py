"""The timeline in a terminal: lanes, an axis, a legend, and never more rows than asked."""

from __future__ import annotations

from pathlib import Path

import drawn_values as values
import pytest
from builders.runs import at, make_run
from msgspec.structs import replace

from flightlog.analyze.charts.report_with_charts import TimelineWithSummary
from flightlog.analyze.charts.results import Bars, Timeline, TimelineRow
from flightlog.analyze.report.report import Report, report_on
from flightlog.events import TaskSubmitted
from flightlog.show.plot import headline, timeline_text
from flightlog.show.terminal import ascii_text, width_of
from flightlog.store.completing import open_run


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return report_on(open_run(make_run(tmp_path_factory.mktemp("runs"))))


def look(timeline: Timeline | None, report: Report) -> TimelineWithSummary:
    return TimelineWithSummary(summary=report, time=report.time, timeline=timeline)


def test_names_are_letters_and_marks_are_signs_where_there_is_no_colour(report: Report):
    assert timeline_text(look(values.timeline(), report), width=60).splitlines() == [
        "run-20260520T035200Z-demo-a1b2c3d4 · completed in 10.0s · 3",
        "outermost spans on 2 workers · 1 failed or retried",
        "",
        "  w-1 │AAAAAAAAAAAAAAAAAAAAAa    BBBBBBBBBBBBBBBBb",
        "  w-2 │     AAAAAAAAAAAAAAAAAAAAAAAAAA✕",
        "      └┴───────────────────────────────┴────────────────────",
        "       0:00                            1:00",
        "",
        "  A simulate  B collect  ✕ failed",
        "  Lower-case letters, and + for *: busy for less than half",
        "  of the time step.",
    ]


def test_spans_are_said_to_be_drawn_elsewhere(report: Report):
    drawn = values.timeline(outside=values.nested(rows=[2]), notes_on_spans=["7 spans are not drawn."])
    text = timeline_text(look(drawn, report))
    assert text.endswith("\n  Spans inside of these are drawn with --png or --svg only.\n")
    assert "7 spans" not in text


def test_where_no_task_is_drawn_it_says_why_and_where_spans_are(tmp_path: Path):
    report = report_on(
        open_run(make_run(tmp_path, [TaskSubmitted(timestamp=at(0), task="sim", task_id="t1", args={})]))
    )
    nothing = values.timeline(
        lanes=[],
        bars=None,
        marks=[],
        outside=values.nested(rows=[2]),
        notes=["1 attempt is not drawn: not begun."],
    )
    assert timeline_text(look(nothing, report)).splitlines()[-3:] == [
        "  No task is drawn.",
        "  1 attempt is not drawn: not begun.",
        "  Spans are drawn with --png or --svg only.",
    ]


def test_in_plain_ascii_nothing_else_is_used(report: Report):
    text = ascii_text(timeline_text(look(values.dense(), report), width=60))
    assert text.isascii()
    assert "  w-1 |AAAA" in text


def test_in_colour_shades_tell_how_busy_a_lane_was(report: Report):
    text = timeline_text(look(values.dense(), report), width=60, color=True)
    assert {shade for shade in "░▒▓█" if shade in text} >= {"░", "▒", "█"}
    assert "\x1b[38;5;25m" in text
    for line in text.splitlines():
        assert line.count("\x1b[38") <= line.count("\x1b[")
        assert "\x1b[" not in line or line.endswith(("\x1b[0m", "simulate", "collect", "others", "failed"))


def test_there_are_no_more_rows_than_asked_and_the_rest_is_counted(report: Report):
    many = values.timeline(lanes=values.lanes(*(f"w-{n}" for n in range(100))))
    lines = timeline_text(look(many, report), lanes=5).splitlines()
    assert sum("│" in line for line in lines) == 5
    assert "  95 more lanes not shown: --png or --svg draws all." in lines


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("w-1 to w-12", "w-1 to 12 │"),
        ("a:w-9 to b:w-10", "a:w-9 +11 more │"),
        ("w-1 to w-x", "w-1 +11 more │"),
        ("w-1", "w-1 +11 more │"),
    ],
)
def test_a_lane_of_many_workers_says_which_or_how_many(report: Report, label: str, shown: str):
    merged = values.timeline(
        lanes=[TimelineRow(label=label, worker=None, merged=12), TimelineRow(label="w-13", worker="w-13")]
    )
    assert shown in timeline_text(look(merged, report))


@pytest.mark.parametrize("width", [40, 60, 100, 140])
def test_no_line_of_the_lanes_is_wider_than_the_terminal(report: Report, width: int):
    hostile = values.timeline(names=["模" * 500, "\x1b[2J"], lanes=values.lanes("模" * 90, "\n"))
    lines = timeline_text(look(hostile, report), width=width).splitlines()
    assert max(width_of(line) for line in lines if "│" in line or "└" in line) <= width
    assert "\x1b" not in "".join(lines)


def test_a_run_in_which_nothing_ran_says_so(report: Report):
    assert (
        timeline_text(look(None, report)).splitlines()[-1]
        == "  No task or span was recorded: there is no timeline."
    )


def test_the_headline_has_the_answer(report: Report):
    assert headline(look(None, report)) == "run-20260520T035200Z-demo-a1b2c3d4 · completed in 10.0s"


@pytest.mark.parametrize(
    ("status", "took"),
    [
        ("crashed", "crashed after 10.0s"),
        ("running", "running for 10.0s"),
        ("completed", "completed in 10.0s"),
    ],
)
def test_the_headline_says_how_long_it_took_to_come_to_this(report: Report, status: str, took: str):
    changed = replace(report, run=replace(report.run, status=status))
    assert headline(look(None, changed)) == f"run-20260520T035200Z-demo-a1b2c3d4 · {took}"


def test_where_all_was_busy_nothing_is_said_of_shades(report: Report):
    one = values.timeline(
        lanes=values.lanes("w"),
        bars=Bars(
            lane=[0],
            start_s=[0.0],
            length_s=[100.0],
            name=[0],
            state=["completed"],
            task_id=["t"],
            attempt=[1],
        ),
        marks=[],
    )
    assert timeline_text(look(one, report), width=60).splitlines()[-1] == "  A simulate"


def test_the_headline_of_a_picture_says_how_many_spans_are_drawn_and_that_of_a_terminal_does_not(
    report: Report,
):
    drawn = look(values.timeline(nested=values.nested()), report)
    assert "3 outermost spans on 2 workers · 3 spans inside · 1 failed or retried" in headline(drawn)
    assert "inside" not in headline(drawn, nested=False)
