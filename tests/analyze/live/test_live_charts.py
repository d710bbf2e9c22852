"""The charts of a run that goes on show its last minutes, the same in any order of arrival."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from builders.examples import FEW
from builders.runs import START, at, make_run
from builders.task_events import completed, started, submitted
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.limits import LiveLimits
from flightlog.analyze.live.follow import FollowedRun
from flightlog.analyze.live.results import LiveState, args_text
from flightlog.analyze.tallies import Newest
from flightlog.core.text import cut, cut_end, first_line
from flightlog.core.time import SECOND, moment
from flightlog.events import Event, ResourceSample, WorkerReady, WorkerRemoved

RUNNING = {"status": "running", "end_time": None, "duration_s": None, "host": "elsewhere"}


def state_at(seconds: float, events: Sequence[Event]) -> LiveState:
    """The state of a run that goes on, so many seconds after its start."""
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        path = make_run(Path(folder), events, **RUNNING, heartbeat=at(seconds))
        return FollowedRun(path, now=lambda: (moment(START) or 0) / SECOND + seconds).update()


def line(state: LiveState, label: str) -> tuple[list[float], list[float | None]]:
    assert state.concurrency is not None
    [found] = [one for one in state.concurrency.series if one.label == label]
    return found.at_s, found.value


@given(
    st.lists(st.tuples(st.integers(0, 600), st.integers(0, 200)), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
@FEW
def test_how_many_ran_is_the_average_over_each_stretch(stays: list[tuple[int, int]], dice: Random) -> None:
    events: list[Event] = [
        completed(f"t{n}", (begin + length) / 10, length / 10, "w1")
        for n, (begin, length) in enumerate(stays)
    ]
    events.append(started("on", 70, "w1"))
    dice.shuffle(events)
    at_s, values = line(state_at(80, events), "running")
    assert at_s == [pytest.approx((n + 0.5) * 80 / 300) for n in range(300)]
    for n, value in enumerate(values):
        begin, end = n * 80 / 300, (n + 1) * 80 / 300
        there = sum(max(0, min(end, (b + length) / 10) - max(begin, b / 10)) for b, length in stays)
        there += max(0, end - max(begin, 70))
        assert value == pytest.approx(there / (end - begin), abs=0.002)


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 400)), min_size=1, max_size=12))
@FEW
def test_how_many_workers_were_up_is_the_average_over_each_stretch(stays: list[tuple[int, int]]) -> None:
    events: list[Event] = []
    for number, (since, lasted) in enumerate(stays):
        about = {"worker": f"w{number}", "host": "h", "pid": 1}
        events.append(WorkerReady(timestamp=at(since), **about))
        events.append(WorkerRemoved(timestamp=at(since + lasted), reason=None, **about))
    state = state_at(1000, [submitted("a", 0), *events])
    start = 1000 - LiveLimits.chart_window_s
    assert state.concurrency is not None
    lines = [one for one in state.concurrency.series if one.label == "workers"]
    up_s = sum(max(0, min(since + lasted, 1000) - max(since, start)) for since, lasted in stays)
    drawn = [
        (value or 0.0) * state.concurrency.length_s / len(one.value) for one in lines for value in one.value
    ]
    assert sum(drawn) == pytest.approx(up_s, abs=0.5)


def test_a_task_waits_from_its_submission_to_its_begin() -> None:
    events = [submitted("a", 0), started("a", 5, "w1"), submitted("b", 2)]
    at_s, values = line(state_at(10, events), "waiting")
    at_once = dict(zip([round(one, 1) for one in at_s], values, strict=True))
    assert (at_once[0.0], at_once[3.0], at_once[6.0]) == (1.0, 2.0, 1.0)


def test_charts_are_of_the_last_minutes_and_remember_what_began_before() -> None:
    events = [started("old", 1, "w1"), *(completed(f"t{n}", n, 0.5, "w2") for n in range(2, 1_000))]
    state = state_at(1_800, events)
    assert state.concurrency is not None
    assert (state.concurrency.since, state.concurrency.length_s) == (at(1_200), LiveLimits.chart_window_s)
    at_s, values = line(state, "running")
    assert (len(at_s), values[0], values[-1]) == (LiveLimits.max_chart_points, 1.0, 1.0)


def test_what_claims_to_be_of_another_time_does_not_push_the_present_out() -> None:
    events = [started("now", 5, "w1"), *(completed(f"t{n}", 3_000, 1.0, "w2") for n in range(20))]
    _, values = line(state_at(10, events), "running")
    assert (values[0], values[-1]) == (0.0, 1.0)


def test_samples_are_drawn_by_the_second_and_not_across_a_gap() -> None:
    taken = ((2.5, 4.0), (0.1, 1.0), (0.6, 2.0), (60.0, 8.0), (61.0, None))
    samples = [
        ResourceSample(
            timestamp=at(when),
            scope="node",
            host="n1",
            cpu_percent=value,
            memory_used_bytes=None if value is None else round(value),
        )
        for when, value in taken
    ]
    state = state_at(100, samples)
    assert state.cpu is not None
    assert state.memory is not None
    assert [(one.at_s, one.value) for one in state.cpu.series] == [
        ([0.0, 2.0, 31.0, 60.0], [1.5, 4.0, None, 8.0])
    ]
    assert [one.value for one in state.memory.series] == [[2, 4, None, 8]]


@given(st.lists(st.integers(0, 99), max_size=300), st.integers(1, 20))
def test_the_newest_are_kept_in_any_order_of_arrival(numbers: list[int], limit: int) -> None:
    kept: Newest[int] = Newest(limit)
    for place, number in enumerate(numbers):
        kept.add((f"{number:03d}", "w", place, ""), place)
    newest = sorted(((f"{number:03d}", place) for place, number in enumerate(numbers)), reverse=True)
    assert kept.items() == [place for _, place in newest[:limit]]


@given(st.dictionaries(st.text(max_size=300), st.recursive(st.none() | st.text(), st.lists, max_leaves=5)))
def test_arguments_are_told_in_few_words(args: dict[str, object]) -> None:
    assert len(args_text(args, 50)) <= 50


def test_texts_are_cut_where_they_say_least() -> None:
    assert (cut("abcdef", 4), cut_end("abcdef", 4), first_line("\n one\ntwo"), first_line(None)) == (
        "abc…",
        "…def",
        "one",
        "",
    )
    assert args_text({"n": 1, "name": "base", "deep": {"a": [1]}}) == 'n=1, name=base, deep={"a":[1]}'
