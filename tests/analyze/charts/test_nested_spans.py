"""Spans below what they ran in: each once, on the row of its task, within what fits."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from builders.charts import timeline
from builders.examples import FEW
from builders.runs import at, make_run
from builders.task_events import completed, span
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.charts.results import Nested
from flightlog.analyze.limits import ChartLimits
from flightlog.events import SpanOpened, WorkerReady

RUN_SPAN = "f" * 16


def inside(path: Path) -> Nested:
    found = timeline(path).nested
    assert found is not None
    return found


def test_spans_are_drawn_level_by_level_below_the_task_they_are_inside_of(tmp_path: Path) -> None:
    events = [
        completed("a", 5, 5, span_id="a1"),
        completed("b", 9, 3, worker="w2", span_id="b1"),
        span("load", 0, 2, "s1", "a1"),
        span("read", 1, 1, "s2", "s1"),
        span("solve", 2, 3, "s3", "a1", status="error"),
        span("solve", 7, 1, "s4", "b1"),
        span("apart", 1, 1, "s5", None),
    ]
    found = timeline(make_run(tmp_path, events))
    assert found.nested == Nested(
        lane=[0, 0, 1, 0],
        row=[0, 0, 0, 1],
        start_s=[0.0, 2.0, 7.0, 1.0],
        length_s=[2.0, 3.0, 1.0, 1.0],
        name=[1, 0, 0, 2],
        state=["completed", "failed", "completed", "completed"],
        names=["solve", "load", "read"],
        rows=[2, 1],
    )
    assert (found.notes, found.notes_on_spans) == ([], [])


def not_drawn(spans: str) -> str:
    return f"{spans} not drawn, for want of room, of a known parent or of a time within the run."


def test_spans_outside_of_tasks_are_drawn_apart_with_what_is_inside_of_them_but_tasks(tmp_path: Path) -> None:
    events = [
        span("load", 0, 2, "s1", RUN_SPAN),
        span("read", 1, 1, "s2", "s1"),
        span("sweep", 2, 7, "s3", None),
        completed("a", 5, 3, span_id="a1", parent_id="s3"),
        span("solve", 3, 1, "s4", "a1"),
        span("lost", 3, 1, "s5", "gone"),
        span("task", 2, 3, "a1", "s3"),
    ]
    found = timeline(make_run(tmp_path, events, span_id=RUN_SPAN))
    assert found.outside == Nested(
        lane=[0, 0, 0],
        row=[0, 0, 1],
        start_s=[0.0, 2.0, 1.0],
        length_s=[2.0, 7.0, 1.0],
        name=[1, 0, 2],
        state=["completed"] * 3,
        names=["sweep", "load", "read"],
        rows=[2],
    )
    assert found.nested is not None
    assert (found.nested.names, len(found.lanes)) == (["solve"], 1)
    assert (found.notes, found.notes_on_spans) == ([], [not_drawn("1 span is")])


def test_spans_outside_of_tasks_are_drawn_where_tasks_are_too_many_to_be(tmp_path: Path) -> None:
    events = [completed("a", 5, 3, span_id="a1"), completed("b", 9, 3), span("load", 0, 2, "s1", None)]
    found = timeline(make_run(tmp_path, events), max_drawn_attempts=1)
    assert (found.bars, found.nested) == (None, None)
    assert found.outside is not None
    assert (found.outside.names, found.outside.rows) == (["load"], [1])


def test_more_spans_side_by_side_than_there_are_rows_for_are_told(tmp_path: Path) -> None:
    events = [
        completed("a", 5, 3),
        *(span(f"n{n}", n / 10, 5, f"s{n}", None) for n in range(ChartLimits.max_outside_rows + 3)),
    ]
    found = timeline(make_run(tmp_path, events))
    assert found.outside is not None
    assert found.outside.names == [f"n{n}" for n in range(ChartLimits.max_outside_rows)]
    assert found.notes_on_spans == [not_drawn("3 spans are")]


def test_of_spans_side_by_side_the_longest_are_drawn_however_late_they_begin(tmp_path: Path) -> None:
    events = [
        completed("a", 1, 1),
        *(span(f"n{n}", 2, 0.5 + n / 100, f"s{n}", None) for n in range(ChartLimits.max_outside_rows)),
        span("train", 2.2, 5, "t", None),
        span("epoch", 3, 2, "e", "t"),
        span("inside of n1", 2.1, 0.1, "i", "s1"),
    ]
    found = timeline(make_run(tmp_path, events))
    assert found.outside is not None
    assert found.outside.names == [
        "train",
        "epoch",
        *(f"n{n}" for n in range(ChartLimits.max_outside_rows - 1, 1, -1)),
    ]
    assert found.outside.rows == [ChartLimits.max_outside_rows]
    assert found.notes_on_spans == [not_drawn("3 spans are")]


def test_a_crowd_on_one_level_leaves_a_row_to_each_level_below(tmp_path: Path) -> None:
    events = [
        completed("a", 1, 1),
        span("main", 0, 9, "m", None),
        span("fit", 6, 3, "f", "m"),
        span("step", 7, 1, "s", "f"),
        *(span("thread", 2, 1 + n / 10, f"t{n}", "m") for n in range(20)),
    ]
    found = timeline(make_run(tmp_path, events))
    assert found.outside is not None
    drawn = [found.outside.names[name] for name in found.outside.name]
    assert {name: drawn.count(name) for name in drawn} == {"main": 1, "thread": 6, "fit": 1, "step": 1}


def test_a_span_that_had_to_go_leaves_its_row_to_others(tmp_path: Path) -> None:
    events = [
        completed("a", 1, 1),
        *(span("request", 1 + n / 10, 1 + n / 100, f"s{n}", None) for n in range(60)),
    ]
    found = timeline(make_run(tmp_path, events))
    assert found.outside is not None
    assert found.outside.rows == [ChartLimits.max_outside_rows]
    none_overlaps(found.outside)
    covered = 0.0
    for start, length in sorted(zip(found.outside.start_s, found.outside.length_s, strict=True)):
        assert start - max(covered, 1) < 1.5  # no longer than one of them
        covered = max(covered, start + length)
    assert len(found.outside.lane) > 30


def test_spans_before_and_after_the_run_by_their_clocks_take_no_row(tmp_path: Path) -> None:
    events = [
        completed("a", 5, 3),
        span("load", 0, 2, "s", None),
        span("inner", 999, 2, "i", "s"),
        *(span("early", -9, 2, f"e{n}", None) for n in range(9)),
        *(span("late", 999, 2, f"l{n}", None) for n in range(9)),
    ]
    found = timeline(make_run(tmp_path, events))
    assert found.outside is not None
    assert (found.outside.names, found.outside.rows) == (["load"], [1])
    assert found.notes_on_spans == [not_drawn("19 spans are")]


def test_a_run_of_spans_alone_has_none_outside_of_tasks(tmp_path: Path) -> None:
    assert timeline(make_run(tmp_path, [span("one", 0, 4, "s1", None)])).outside is None


def test_spans_of_one_level_that_overlap_have_rows_of_their_own(tmp_path: Path) -> None:
    events = [
        completed("a", 5, 5, span_id="a1"),
        span("one", 0, 3, "s1", "a1"),
        span("two", 1, 3, "s2", "a1"),
        span("three", 3, 1, "s3", "a1"),
    ]
    found = inside(make_run(tmp_path, events))
    assert (found.row, found.rows) == ([0, 1, 0], [2])


def test_a_span_that_never_ended_is_drawn_as_long_as_it_was_seen_open(tmp_path: Path) -> None:
    opened = SpanOpened(
        timestamp=at(4), name="hang", span_id="s1", parent_id="a1", trace_id="1" * 32, tags={}, elapsed_s=5.0
    )
    found = inside(make_run(tmp_path, [completed("a", 9, 9, span_id="a1"), opened]))
    assert (found.state, found.start_s, found.length_s) == (["running"], [4.0], [5.0])


def test_a_run_of_spans_alone_shows_what_is_inside_of_the_outermost(tmp_path: Path) -> None:
    events = [span("one", 0, 4, "s1", None), span("two", 5, 4, "s2", None), span("in", 1, 2, "s3", "s1")]
    found = inside(make_run(tmp_path, events))
    assert (found.names, found.lane, found.start_s) == (["in"], [0], [1.0])


def test_where_levels_would_take_too_many_rows_the_deeper_ones_are_left_out(tmp_path: Path) -> None:
    events = []
    for n in range(ChartLimits.max_rows_with_spans // 2):
        events += [
            completed(f"t{n}", 9, 9, worker=f"w{n}", span_id=f"a{n}"),
            span("outer", 0, 9, f"o{n}", f"a{n}"),
            span("inner", 1, 7, f"i{n}", f"o{n}"),
        ]
    found = inside(make_run(tmp_path, events))
    assert (found.names, set(found.rows)) == (["outer"], {1})


def test_many_short_spans_do_not_hide_what_is_inside_of_long_ones(tmp_path: Path) -> None:
    events = [
        completed("a", 10, 10, span_id="a1"),
        span("long", 0, 5, "l1", "a1"),
        span("deep", 1, 3, "d1", "l1"),
    ]
    events += [
        span("short", 5 + n / 1000, 0.0005, f"s{n}", "a1") for n in range(ChartLimits.max_nested_spans)
    ]
    found = timeline(make_run(tmp_path, events))
    assert found.nested is not None
    assert "deep" in found.nested.names
    assert len(found.nested.lane) == ChartLimits.max_nested_spans * 3 // 4 + 1
    assert found.notes_on_spans == [not_drawn("501 spans are")]


def test_rows_on_which_nothing_ran_are_told(tmp_path: Path) -> None:
    events = [
        completed("a", 5, 5),
        *(WorkerReady(timestamp=at(0), worker=f"w{n}", host=None, pid=None) for n in (2, 3)),
    ]
    assert timeline(make_run(tmp_path, events)).notes == ["2 rows are empty: nothing ran on those workers."]


def test_arguments_are_told_in_a_line_and_cut_where_they_are_long(tmp_path: Path) -> None:
    events = [
        completed("a", 2, 1, args={"seed": 3, "name": "base", "x": [1, 2]}),
        completed("b", 4, 1, args={"x": "y" * 5000}),
        completed("c", 6, 1),
    ]
    bars = timeline(make_run(tmp_path, events)).bars
    assert bars is not None
    first, long, none = bars.args
    assert (first, none, len(long)) == ("seed=3, name=base, x=[1,2]", "", 120)
    assert long.startswith('{"x":"yyy')


trees = st.lists(
    st.tuples(st.integers(-2, 8), st.integers(0, 90), st.integers(0, 50)),
    max_size=ChartLimits.max_outside_rows,
)


@FEW
@given(trees)
def test_every_span_is_drawn_once_inside_or_outside_of_tasks_and_none_overlaps_another_on_its_row(
    tree: list[Any],
) -> None:
    """A parent is a span before it; -2 and -1 are two tasks; all others are inside of nothing."""
    tasks = [completed(f"t{n}", 9, 9, worker=f"w{n}", span_id=f"{-1 - n}") for n in range(2)]
    spans = [
        span(f"n{n}", start / 10, length / 10, str(n), str(parent) if parent < n else None)
        for n, (parent, start, length) in enumerate(tree)
    ]
    within, apart = {-1: 0, -2: 0}, {}
    for n, (parent, _, _) in enumerate(tree):
        if parent >= n:
            apart[n] = 1
        else:
            of = within if parent in within else apart
            of[n] = of[parent] + 1
    with TemporaryDirectory() as folder:
        found = timeline(make_run(Path(folder), [*tasks, *spans]))
    for drawn, depth in ((found.nested, within), (found.outside, apart)):
        want = sorted(f"n{n}" for n, at_ in depth.items() if 0 < at_ <= ChartLimits.max_span_levels)
        assert sorted([] if drawn is None else (drawn.names[name] for name in drawn.name)) == want
        if drawn is not None:
            none_overlaps(drawn)


def none_overlaps(found: Nested) -> None:
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for lane, row, start_s, length_s in zip(
        found.lane, found.row, found.start_s, found.length_s, strict=True
    ):
        assert row < found.rows[lane]
        rows.setdefault((lane, row), []).append((start_s, start_s + length_s))
    for on_it in rows.values():
        assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(sorted(on_it)))


@pytest.mark.parametrize("parent", ["s1", "gone"])
def test_spans_that_hold_themselves_or_nothing_known_are_not_followed(tmp_path: Path, parent: str) -> None:
    events = [completed("a", 5, 5, span_id="a1"), span("odd", 0, 2, "s1", parent)]
    found = timeline(make_run(tmp_path, events))
    assert (found.nested, found.outside, found.notes_on_spans) == (None, None, [not_drawn("1 span is")])
