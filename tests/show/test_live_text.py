"""The texts of a run at a moment: rows, their order, and what is known of one of them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.charts.results import Chart, ChartSeries
from flightlog.analyze.live.results import Failed, Progress
from flightlog.show.live import (
    TABLES,
    LiveCell,
    LiveColumn,
    LiveRow,
    Pane,
    arranged,
    details_lines,
    latest_of,
    progress_line,
    widths,
)
from flightlog.show.terminal import ascii_text, brief, width_of

NONE = Progress(
    submitted=0,
    completed=0,
    failed=0,
    cancelled=0,
    running=0,
    waiting=0,
    retried=0,
    done=None,
    per_s=None,
    left_s=None,
    left_low_s=None,
    left_high_s=None,
)


def pane(*rows: tuple[str, float | None]) -> Pane:
    return Pane(
        table=TABLES["tasks"],
        title="P",
        columns=(LiveColumn("Name", wide=True), LiveColumn("Number", right=True)),
        rows=tuple(
            LiveRow(name, (LiveCell(name, name.casefold()), LiveCell(str(number), number)), NONE)
            for name, number in rows
        ),
    )


def names(rows: list[LiveRow]) -> list[str]:
    return [row.key for row in rows]


def test_rows_come_as_they_are_or_by_a_column_the_unknown_last() -> None:
    some = pane(("b", 2.0), ("C", None), ("a", 10.0))
    assert names(arranged(some)) == ["b", "C", "a"]
    assert names(arranged(some, by=0)) == ["a", "b", "C"]
    assert names(arranged(some, by=1)) == ["b", "a", "C"]
    assert names(arranged(some, by=1, reverse=True)) == ["a", "b", "C"]
    assert names(arranged(some, having="1")) == ["a"]
    assert names(arranged(some, having="c")) == ["C"]


@given(
    st.lists(st.tuples(st.text(max_size=40), st.none() | st.floats(allow_nan=False)), max_size=8),
    st.integers(30, 200),
)
def test_the_columns_of_any_table_fit_into_its_room(rows, room) -> None:
    some = pane(*((brief(name), number) for name, number in rows))
    sizes = widths(some, arranged(some), room, 2)
    fixed = max([6, *(width_of(str(number)) for _, number in rows)])
    assert sizes[1] == fixed
    assert sum(sizes) + 4 <= max(room, fixed + 12 + 4)


def test_a_text_of_megabytes_is_cut_before_it_is_cleaned() -> None:
    assert brief("\x1b" * 10_000_000, 10) == "\\x1b\\x1b\\…"


def test_the_progress_says_what_matters_most_first_and_leaves_out_what_does_not_fit() -> None:
    some = msgspec.structs.replace(
        NONE, submitted=200, completed=117, failed=3, running=4, waiting=76, done=0.6, per_s=1.25, left_s=64.0
    )
    assert ascii_text(progress_line(some, 120)) == (
        "[############........] 120 of 200 (60%) - 3 failed - about 64 s left - 4 running - 76 waiting - "
        "1.25 tasks/s"
    )
    assert (
        ascii_text(progress_line(some, 60)) == "[#######.....] 120 of 200 (60%) - 3 failed - about 64 s left"
    )
    assert progress_line(NONE, 60) == "no task has been submitted"


def test_tasks_whose_submission_was_not_recorded_are_counted_as_they_are_met() -> None:
    some = msgspec.structs.replace(NONE, completed=3, running=1, done=0.75)
    assert ascii_text(progress_line(some, 40)) == "[#########...] 3 of 4 (75%) - 1 running"


def test_tasks_that_wait_are_not_taken_for_tasks_that_run() -> None:
    waiting = ChartSeries(label="waiting", at_s=[0.0], value=[7.0])
    chart = Chart(since="", length_s=1.0, unit="count", series=[waiting], notes=[])
    assert latest_of(chart, only="running") is None
    assert latest_of(chart, cells=1) == ([7.0], "7")


def test_a_sum_of_which_some_lines_are_missing_says_so() -> None:
    lines = [ChartSeries(label=name, at_s=[0.0], value=[1024.0]) for name in "ab"]
    chart = Chart(since="", length_s=1.0, unit="bytes", series=lines, notes=["3 more are not drawn"])
    assert latest_of(chart, cells=1) == ([2048.0], "at least 2.0 KiB")


@pytest.mark.parametrize("done", [0.0, 1.0, 1.5, -1.0])
def test_a_bar_is_never_longer_than_itself(done) -> None:
    line = progress_line(msgspec.structs.replace(NONE, submitted=1, done=done), 60)
    assert line.index("]") == 13


def test_a_long_traceback_ends_where_it_is_cut_and_says_so() -> None:
    failed = Failed(
        at="2026-05-20T03:52:00.000000Z",
        task="sim",
        task_id=None,
        attempt=1,
        args="",
        worker=None,
        error_type=None,
        message="m",
        traceback="line\n" * 1000,
        retried=False,
        fingerprint=None,
    )
    lines = details_lines(failed)
    assert lines[2] == "Id:           unknown"
    assert lines.count("line") == 400
    assert lines[-1] == "… the rest is in the run's files"
