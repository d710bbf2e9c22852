"""The parts that keep the figures of a run as it happens: bounded, exact, and the same in any order of
arrival."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.live import tasks as durations_module
from flightlog.analyze.live.levels import KEPT, KEPT_S, POINTS, WIDTH, Level, Sampled
from flightlog.analyze.live.results import args_text
from flightlog.analyze.live.tasks import EXACT, NAMES, DurationSketch, TaskNames
from flightlog.analyze.tallies import Newest
from flightlog.core.stats import distribution
from flightlog.core.text import cut, cut_end, first_line
from flightlog.core.time import SECOND

SECONDS = st.floats(0, 1e6, allow_nan=False)


@given(st.lists(SECONDS, min_size=1, max_size=200))
def test_few_durations_are_known_exactly(values: list[float]) -> None:
    found, known = DurationSketch(), distribution(values)
    for value in values:
        found.add(value)
    assert (found.count, found.min, found.max) == (known.count, known.min, known.max)
    assert found.total == pytest.approx(known.total, rel=1e-9, abs=1e-9 * len(values))
    assert found.mean == pytest.approx(known.mean, rel=1e-9, abs=1e-9)
    assert [found.quantile(q) for q in (0.5, 0.95, 0.99)] == [known.p50, known.p95, known.p99]


def test_quantiles_of_very_many_durations_are_within_a_percent_and_the_rest_is_exact() -> None:
    dice = Random(1)
    values = [dice.lognormvariate(0, 2) for _ in range(EXACT + 5_000)]
    found, known = DurationSketch(), distribution(values)
    for value in values:
        found.add(value)
    assert (found.count, found.max) == (known.count, known.max)
    assert (found.total, found.mean) == (
        pytest.approx(known.total, rel=1e-9),
        pytest.approx(known.mean, rel=1e-9),
    )
    assert found.quantile(0.5) == pytest.approx(known.p50, rel=0.01)
    assert found.quantile(0.95) == pytest.approx(known.p95, rel=0.01)
    assert len(found.sample()) == durations_module.SAMPLE
    assert found.sample()[durations_module.SAMPLE // 2] == pytest.approx(known.p50, rel=0.05)


def test_very_many_durations_of_nothing_take_nothing() -> None:
    found = DurationSketch()
    for _ in range(EXACT + 1):
        found.add(0.0)
    assert (found.quantile(0.95), found.mean, found.max) == (0.0, 0.0, 0.0)


@given(st.lists(st.integers(0, 99), max_size=300), st.integers(1, 20))
def test_the_newest_are_kept_in_any_order_of_arrival(numbers: list[int], limit: int) -> None:
    kept: Newest[int] = Newest(limit)
    for place, number in enumerate(numbers):
        kept.add((f"{number:03d}", "w", place, ""), place)
    newest = sorted(((f"{number:03d}", place) for place, number in enumerate(numbers)), reverse=True)
    assert kept.items() == [place for _, place in newest[:limit]]


@given(
    st.lists(st.tuples(st.integers(0, 60 * SECOND), st.integers(0, 20 * SECOND)), max_size=30), st.randoms()
)
def test_a_level_is_the_average_of_how_many_there_were(stays: list[tuple[int, int]], dice) -> None:
    steps = [step for begin, length in stays for step in ((begin, 1), (begin + length, -1))]
    dice.shuffle(steps)
    level = Level()
    for at, change in steps:
        level.add(at, change)
    at_s, values = level.points(0, 80 * SECOND)
    assert at_s == [round(n * 2 * WIDTH / SECOND, 3) for n in range(200)]
    for n, value in enumerate(values):
        begin, end = n * 2 * WIDTH, (n + 1) * 2 * WIDTH
        there = sum(max(0, min(end, since + length) - max(begin, since)) for since, length in stays)
        assert value == pytest.approx(there / (end - begin), abs=0.001)


def test_what_goes_on_counts_from_its_start() -> None:
    assert Level().points(0, SECOND, [SECOND // 2])[1] == [0.0, 0.0, 0.5, 1.0, 1.0]


def test_what_lies_before_and_behind_does_not_count() -> None:
    level = Level()
    level.add(SECOND // 2, 2)
    level.add(SECOND, -2)
    assert level.points(SECOND // 2, SECOND)[1] == [2.0, 2.0, 2.0]


def test_a_level_keeps_the_last_minutes_and_remembers_what_was_there_before() -> None:
    level = Level()
    for n in range(5 * KEPT):
        level.add(n * WIDTH, 1)
    until = 5 * KEPT * WIDTH
    at_s, values = level.points(until - 600 * SECOND, until)
    assert len(level._bins) <= 2 * KEPT
    assert (len(at_s), values[-1]) == (POINTS, pytest.approx(5 * KEPT - 4.5))


def test_what_claims_to_be_of_another_time_does_not_push_the_present_out() -> None:
    level = Level()
    level.limit = 10 * SECOND
    for n in range(5 * KEPT):
        level.add((1_000_000 + n) * SECOND, 1)
    level.add(SECOND, 1)
    assert level.points(0, 2 * SECOND)[1] == [0.0] * 5 + [1.0] * 5
    assert len(level._bins) <= 2 * KEPT + 1


def test_samples_are_drawn_by_the_second_and_not_across_a_gap() -> None:
    mean, most = Sampled("mean"), Sampled("most")
    for at, value in ((2.5, 4.0), (0.1, 1.0), (0.6, 2.0), (60.0, 8.0), (61.0, None)):
        for sampled in (mean, most):
            sampled.add(round(at * SECOND), value)
    assert mean.points(0, 100 * SECOND) == ([0.0, 2.0, 31.0, 60.0], [1.5, 4.0, None, 8.0])
    assert most.points(0, 100 * SECOND) == ([0.0, 2.0, 31.0, 60.0], [2.0, 4.0, None, 8.0])


def test_samples_of_days_take_the_memory_of_minutes() -> None:
    sampled = Sampled("most")
    for second in range(10 * KEPT_S):
        sampled.add(second * SECOND, float(second))
    at_s, values = sampled.points((10 * KEPT_S - 600) * SECOND, 10 * KEPT_S * SECOND)
    assert len(sampled._seconds) <= 2 * KEPT_S
    assert (len(at_s) <= POINTS, values[-1]) == (True, 10 * KEPT_S - 1)


def test_names_beyond_all_bounds_count_together_and_long_ones_stay_apart() -> None:
    names = TaskNames()
    for n in range(NAMES + 10):
        names.of(f"name {n}").counts["submitted"] += 1
    assert (len(names), names.totals()["submitted"], names.all()[-1].counts["submitted"]) == (
        NAMES,
        NAMES + 10,
        10,
    )
    long = TaskNames()
    for tail in "ab":
        long.of("x" * 1_000_000 + tail).counts["submitted"] += 1
    assert ([len(one.name) for one in long.all()], len(long.results()[0].name)) == ([393, 393], 200)


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
