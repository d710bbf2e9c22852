"""What a timeline shows: every attempt once, where it ran and when, one by one or by stretches of time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from builders.charts import drawn, timeline
from builders.examples import FEW
from builders.pictures import SECONDS, Piece, Row, drawn_run, pictures, pieces
from builders.runs import at, make_run
from builders.task_events import completed, failed, started, submitted
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.charts.layout import in_order, merge_lanes, pack
from flightlog.analyze.charts.results import Bars, TimelineMark, TimelineRow
from flightlog.events import (
    Event,
    Failure,
    SpanEvent,
    SpanOpened,
    TaskCancelled,
    TaskRetried,
    WorkerLost,
    WorkerReady,
)
from flightlog.store import layout


def ready(worker: str) -> Event:
    return WorkerReady(timestamp=at(0), worker=worker, host=None, pid=None)


def at_once(of: list[Piece]) -> int:
    """How many ran side by side at most."""
    return max(sum(other.since <= one.since < other.until for other in of) for one in of)


@st.composite
def side_by_side(draw: st.DrawFn) -> list[Row]:
    """Pictures of which some rows are of one worker that runs tasks side by side."""
    rows = draw(pictures(workers=6))
    several = [Row(f"w{number // 2}", row.signs) for number, row in enumerate(rows[:-1])]
    return [*several, Row("last", "r".ljust(SECONDS, "."))]


@FEW
@given(side_by_side(), st.booleans())
def test_one_by_one_every_attempt_is_drawn_once_where_it_ran(rows: list[Row], closed: bool) -> None:
    with TemporaryDirectory() as folder:
        found, want = timeline(drawn_run(Path(folder), *rows, closed=closed)), pieces(rows)
    bars = found.bars
    assert found.cells is None
    assert bars is not None
    columns = (bars.task_id, bars.attempt, bars.lane, bars.start_s, bars.length_s, bars.name, bars.state)
    drawn_bars = [
        (task_id, attempt, found.lanes[lane].worker, start_s, start_s + length_s, found.names[name], state)
        for task_id, attempt, lane, start_s, length_s, name, state in zip(*columns, strict=True)
    ]
    assert sorted(drawn_bars) == sorted(one[:7] for one in want)
    by_lane: dict[int, list[tuple[float, float]]] = {}
    for lane, start_s, length_s in zip(bars.lane, bars.start_s, bars.length_s, strict=True):
        by_lane.setdefault(lane, []).append((start_s, start_s + length_s))
    for on_it in by_lane.values():
        assert all(before[1] <= after[0] for before, after in pairwise(on_it))
    for worker in {one.worker for one in want}:
        lanes = [lane for lane in found.lanes if lane.worker == worker]
        assert len(lanes) == at_once([one for one in want if one.worker == worker])


@FEW
@given(side_by_side(), st.integers(2, 4))
def test_by_stretches_no_time_and_no_attempt_is_lost(rows: list[Row], lanes: int) -> None:
    with TemporaryDirectory() as folder:
        found = timeline(drawn_run(Path(folder), *rows), max_drawn_attempts=0, max_rows=lanes)
    want = pieces(rows)
    assert (found.bars, found.attempts) == (None, len(want))
    cells = found.cells
    assert cells is not None
    assert len(found.lanes) <= lanes
    drawn_s = sum(
        busy * length_s * found.lanes[lane].merged
        for lane, length_s, busy in zip(cells.lane, cells.length_s, cells.busy, strict=True)
    )
    assert drawn_s == pytest.approx(sum(one.until - one.since for one in want), abs=1e-6)
    for number, lane in enumerate(found.lanes):
        of = [one for one in want if one.worker == lane.worker]
        shown = [n for n in range(len(cells.lane)) if cells.lane[n] == number and lane.merged == 1]
        for n in shown:
            since, until = cells.start_s[n], cells.start_s[n] + cells.length_s[n]
            within = [min(one.until, until) - max(one.since, since) for one in of]
            assert cells.attempts[n] == sum(ran > 1e-9 for ran in within)
            assert cells.busy[n] == pytest.approx(sum(ran for ran in within if ran > 0) / (until - since))
        assert lane.merged > 1 or bool(shown) == bool(of)


def test_a_stretch_has_the_name_that_held_it_longest(tmp_path: Path) -> None:
    events = [
        completed("a", 4, 4, task="long"),
        completed("b", 5, 1, task="short"),
        completed("c", 10, 5, task="short"),
        completed("d", 10, 1, worker="w2", task="long"),
    ]
    found = timeline(make_run(tmp_path, events), max_drawn_attempts=0)
    assert found.names == ["short", "long"]
    cells = found.cells
    assert cells is not None
    assert (cells.lane, cells.start_s, cells.length_s, cells.name, cells.attempts, cells.busy) == (
        [0, 0, 1],
        [0.0, 4.0, 9.0],
        [4.0, 6.0, 1.0],
        [1, 0, 1],
        [1, 2, 1],
        [1.0, 1.0, 1.0],
    )
    assert found.notes == [
        "This shows density and not single attempts: 4 attempts are drawn by stretches of time; a stretch "
        "has the colour of the name that held it longest."
    ]


def test_tasks_side_by_side_on_one_worker_have_rows_of_their_own(tmp_path: Path) -> None:
    events = [
        completed("a", 5, 5),
        completed("b", 3, 2),
        completed("c", 6, 2),
        completed("d", 6, 1, worker="w2"),
    ]
    found = timeline(make_run(tmp_path, events))
    assert found.lanes == [
        TimelineRow(label="w1 · 1", worker="w1"),
        TimelineRow(label="w1 · 2", worker="w1"),
        TimelineRow(label="w2", worker="w2"),
    ]
    assert found.bars == Bars(
        lane=[0, 1, 1, 2],
        start_s=[0.0, 1.0, 4.0, 5.0],
        length_s=[5.0, 2.0, 2.0, 1.0],
        name=[0, 0, 0, 0],
        state=["completed"] * 4,
        task_id=["a", "b", "c", "d"],
        attempt=[1, 1, 1, 1],
    )


def test_a_retry_that_was_told_a_moment_late_takes_no_row_of_its_own(tmp_path: Path) -> None:
    def rows(told: float, number: int) -> list[str]:
        again = TaskRetried(timestamp=at(told), task="sim", task_id="a", reason="OSError: gone")
        events = [started("a", 3), again, completed("b", 5, 1.9)]  # from 3.1 s on
        return [lane.label for lane in timeline(make_run(tmp_path / str(number), events)).lanes]

    assert rows(3.105, 1) == ["w1"]
    assert rows(3.2, 2) == ["w1 · 1", "w1 · 2"]


def test_what_runs_is_drawn_to_the_end_and_what_waits_is_not_drawn(tmp_path: Path) -> None:
    found = timeline(make_run(tmp_path, [submitted("a"), started("a", 4), submitted("b", 1)]))
    assert found.bars == Bars(
        lane=[0], start_s=[4.0], length_s=[6.0], name=[0], state=["running"], task_id=["a"], attempt=[1]
    )
    assert found.notes == ["1 attempt is not drawn: not begun."]


def test_without_workers_tasks_are_packed_into_rows(tmp_path: Path) -> None:
    found = timeline(
        make_run(tmp_path, [completed("a", 5, 5, worker=None), completed("b", 3, 2, worker=None)])
    )
    assert [lane.label for lane in found.lanes] == ["tasks · 1", "tasks · 2"]
    assert found.workers == 0


def test_attempts_of_unknown_time_are_counted_and_not_drawn(tmp_path: Path) -> None:
    found = timeline(make_run(tmp_path, [completed("a", 5, None), completed("b", 6, None)]))
    assert (found.bars, found.cells, found.attempts, found.lanes) == (None, None, 2, [])
    assert found.notes == ["2 attempts are not drawn: it is not known when they ran."]


def test_what_clocks_put_outside_of_the_run_is_cut_off_and_said(tmp_path: Path) -> None:
    events = [completed("a", 2, 5), completed("b", 15, 6), completed("c", 40, 1)]
    for bounds in ({}, {"max_drawn_attempts": 0}):
        found = timeline(make_run(tmp_path / str(len(bounds)), events), **bounds)
        assert found.notes[-1] == (
            "3 attempts are cut off: by their clocks they began before the run or ended after it."
        )
        if found.bars is not None:
            assert (found.bars.start_s, found.bars.length_s) == ([0.0, 9.0, 10.0], [2.0, 1.0, 0.0])
        if found.cells is not None:
            assert found.cells.attempts[-1] == 2


def test_without_a_start_of_the_run_the_first_attempt_is_the_start(tmp_path: Path) -> None:
    path = make_run(
        tmp_path / "one", [completed("a", 4, 2), completed("b", 9, 1)], start_time="garbage", end_time=None
    )
    found = timeline(path)
    assert (found.since, found.length_s) == (at(2), 7.0)
    endless = completed("a", 4, 1e300)
    endless.timestamp = "1980-01-01T00:00:00.000000Z"
    centuries = make_run(tmp_path / "two", [endless], start_time="garbage", end_time=None)
    assert timeline(centuries).since == "1971-01-01T00:00:00.000000Z"


def test_a_run_of_spans_alone_is_drawn_by_its_outermost_spans(tmp_path: Path) -> None:
    spans: list[Event] = [
        SpanEvent(
            timestamp=at(when),
            name=name,
            span_id=span_id,
            parent_id=parent,
            status=status,
            duration_s=lasts,
            error_type="KeyError" if status == "error" else None,
            error_message="'x'" if status == "error" else None,
        )
        for when, name, span_id, parent, status, lasts in (
            (1.0, "load", "1", "0", "ok", 2.0),
            (3.0, "fit", "2", "0", "error", 4.0),
            (4.0, "step", "3", "2", "ok", 1.0),
        )
    ]
    spans.append(
        SpanOpened(
            timestamp=at(8), name="save", span_id="4", parent_id="0", elapsed_s=1.5, tags={}, trace_id=""
        )
    )
    found = timeline(make_run(tmp_path, spans))
    assert found.names == ["fit", "load", "save"]
    assert [lane.label for lane in found.lanes] == ["spans"]
    assert found.bars is not None
    assert found.bars.task_id == ["1", "2", "4"]
    assert found.bars.state == ["completed", "failed", "running"]
    assert found.bars.start_s == [1.0, 3.0, 8.0]
    assert found.marks == [
        TimelineMark(lane=0, at_s=7.0, kind="failed", task="fit", task_id="2", text="KeyError: 'x'")
    ]
    assert drawn(make_run(tmp_path / "again", spans)).concurrency is None


def test_spans_of_several_processes_have_rows_by_process(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    names = ("w0000001", "w0000002")
    for number, writer in enumerate(names):
        with (path / "spans.jsonl").open("ab") as out:
            for seq in range(2):
                span = SpanEvent(
                    timestamp=at(1 + seq),
                    name="step",
                    span_id=f"{number}{seq}",
                    parent_id="0",
                    duration_s=1.5,
                )
                span.writer, span.seq = writer, seq
                out.write(msgspec.json.encode(span) + b"\n")
    wrote = [
        layout.WriterInfo(writer=writer, pid=7 + number, host="node-1", closed=True, lines={"spans": 2})
        for number, writer in enumerate(names)
    ]
    (path / layout.RECORDER).write_bytes(msgspec.json.encode({"writers": wrote}))
    found = timeline(path)
    assert [lane.label for lane in found.lanes] == [
        "node-1:7 · 1",
        "node-1:7 · 2",
        "node-1:8 · 1",
        "node-1:8 · 2",
    ]
    assert found.bars is not None
    assert found.bars.task_id == ["00", "01", "10", "11"]


def test_where_one_span_holds_all_others_those_inside_are_drawn_too(tmp_path: Path) -> None:
    spans = [
        SpanEvent(timestamp=at(when), name=name, span_id=span_id, parent_id=parent, duration_s=lasts)
        for when, name, span_id, parent, lasts in (
            (0.0, "main", "1", "0", 9.0),
            (1.0, "load", "2", "1", 2.0),
            (3.0, "fit", "3", "1", 4.0),
            (3.0, "step", "4", "3", 1.0),
        )
    ]
    found = timeline(make_run(tmp_path, spans))
    assert found.bars is not None
    assert (found.bars.task_id, found.bars.lane) == (["1", "2", "3"], [0, 1, 1])


def test_an_empty_run_has_no_timeline(tmp_path: Path) -> None:
    found = drawn(make_run(tmp_path))
    assert [getattr(found, field) for field in found.__struct_fields__ if field != "durations"] == [None] * 11
    assert found.durations == []


def test_failures_retries_cancellations_and_lost_workers_are_marked_with_their_errors(tmp_path: Path) -> None:
    ids: dict[str, Any] = {"task": "sim"}
    events: list[Event] = [
        ready("w1"),
        ready("w2"),
        failed("a", 2, 1),
        Failure(
            timestamp=at(2),
            scope="task",
            error_type="ValueError",
            message="bad\nseed",
            task_id="a",
            traceback=None,
            fingerprint=None,
        ),
        started("b", 3),
        TaskRetried(timestamp=at(4), task_id="b", reason="OSError: gone", **ids),
        TaskCancelled(timestamp=at(5), task_id="c", args={}, worker="w2", duration_s=1.0, **ids),
        WorkerLost(timestamp=at(6), worker="w2", host=None, pid=None, reason="walltime"),
    ]
    found = timeline(make_run(tmp_path, events))
    assert found.marks == [
        TimelineMark(lane=0, at_s=2.0, kind="failed", task="sim", task_id="a", text="ValueError: bad seed"),
        TimelineMark(lane=0, at_s=4.0, kind="retried", task="sim", task_id="b", text="OSError"),
        TimelineMark(lane=1, at_s=5.0, kind="cancelled", task="sim", task_id="c", text=""),
        TimelineMark(lane=1, at_s=6.0, kind="lost", task="", task_id=None, text="walltime"),
    ]
    assert found.failures == 2
    assert timeline(make_run(tmp_path / "again", events), max_drawn_attempts=0).marks == found.marks


def test_a_burst_of_failures_does_not_hide_the_ones_after_it(tmp_path: Path) -> None:
    events = [failed(f"t{n}", 1 + n / 1000, 0.0001) for n in range(700)]
    events += [failed("late", 8, 1), failed("later", 9, 1)]
    found = timeline(make_run(tmp_path, events))
    assert len(found.marks) == 500
    assert [mark.task_id for mark in found.marks[-2:]] == ["late", "later"]
    assert (found.failures, found.notes[0]) == (
        702,
        "500 of 702 failures, retries, cancellations and lost workers are marked.",
    )


def test_names_beyond_a_dozen_share_a_colour_and_are_counted(tmp_path: Path) -> None:
    events = [completed(f"t{n}", n + 1, 0.5 + n / 100, task=f"name {n:02d}") for n in range(40)]
    found = timeline(make_run(tmp_path, events, end_time=at(50)))
    assert found.names == [f"name {n}" for n in range(39, 27, -1)]
    assert found.bars is not None
    assert found.bars.name == [-1] * 28 + list(range(11, -1, -1))
    assert found.notes == ["28 names are drawn in one colour: those that took the least time."]


def test_long_names_are_cut(tmp_path: Path) -> None:
    long = "n" * 100_000
    found = drawn(make_run(tmp_path, [completed(long, 1, 1, worker=long, task=long)]))
    assert found.timeline is not None
    assert found.timeline.bars is not None
    shown = [
        found.timeline.names[0],
        found.timeline.lanes[0].label,
        found.timeline.bars.task_id[0],
        found.durations[0].name,
    ]
    assert shown == ["n" * 199 + "…"] * 4


def test_more_workers_than_rows_share_rows_with_their_neighbours() -> None:
    workers = in_order({f"w{n}": None for n in range(100)})
    assert workers[:12] == [f"w{n}" for n in range(12)]
    merged = merge_lanes(workers, dict.fromkeys(workers, "node-1"), "no known worker")
    assert len(merged.lanes) == 64
    assert sum(lane.merged for lane in merged.lanes[:-1]) == 100
    assert merged.lanes[1] == TimelineRow(label="w1 to w2", worker=None, host="node-1", merged=2)
    assert merged.lanes[-1] == TimelineRow(label="no known worker", worker=None)
    assert merged.of_place == sorted(merged.of_place)
    assert len(merged.of_place) == 101


def test_workers_that_never_worked_take_no_row_where_rows_are_few(tmp_path: Path) -> None:
    crew: list[Event] = [ready(f"w{n}") for n in range(80)]
    found = timeline(make_run(tmp_path, [*crew, completed("a", 2, 1, worker="w7")]))
    assert found.lanes == [TimelineRow(label="w7", worker="w7")]
    assert found.notes == ["79 workers are not drawn: nothing ran there."]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=30))
def test_packing_takes_no_more_rows_than_run_at_once(intervals: list[tuple[int, int]]) -> None:
    placed = [(0, since, since + lasts) for since, lasts in sorted(intervals)]
    packed = pack(placed, ["w"], {}, "none")
    at_once = max(
        (sum(s <= since < max(u, s + 1) for _, s, u in placed) for _, since, _ in placed), default=1
    )
    assert len(packed.lanes) == at_once
    for row in range(len(packed.lanes)):
        on_it = [piece for piece, lane in zip(placed, packed.lane, strict=True) if lane == row]
        assert all(before[2] <= after[1] for before, after in pairwise(on_it))


def test_rows_of_many_bars_too_short_to_be_seen_are_said_to_look_busier_than_they_were(
    tmp_path: Path,
) -> None:
    def notes(number: int, token: str) -> list[str]:
        events = [completed(f"t{n}", (n + 1) / 50, 0.002) for n in range(number)]
        return timeline(make_run(tmp_path, events, token=token)).notes

    said = "Bars of less than 10 ms are drawn wider than they are: rows look busier than the workers were."
    assert notes(100, "a" * 8) == []
    assert notes(101, "b" * 8) == [said]
