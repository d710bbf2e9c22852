"""What is said of how long a run still takes holds: in nine of ten cases or so, and never with more
confidence than is due."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.analyze.limits import PredictLimits
from flightlog.analyze.predict import eta as eta_module
from flightlog.analyze.predict.eta import (
    Eta,
    KnownDurations,
    from_durations,
    from_earlier,
    of_mean,
    remaining,
)
from flightlog.core.stats import Distribution

SECONDS = st.floats(0.001, 10_000)
ENDS = st.lists(st.tuples(SECONDS, SECONDS), min_size=3, max_size=30)
AGES = st.lists(SECONDS, max_size=8)


def known(ends: list[tuple[float, float]]) -> KnownDurations:
    found = from_durations(ends)
    assert found is not None
    return found


def steady(seconds: float, count: int = 100) -> KnownDurations:
    return known([(seconds * n, seconds) for n in range(count)])


def told(count: int, what: KnownDurations, ages: list[float], running: float) -> Eta:
    found = remaining({"sim": count}, {"sim": what}, {"sim": ages}, running)
    assert found is not None
    return found


# --- the arithmetic


def test_tasks_of_one_length_take_their_number_over_the_workers() -> None:
    eta = told(40, steady(6.0), [0.0] * 4, 4)
    assert eta.low <= 60.0 <= eta.high
    assert (eta.expected, eta.high - eta.low) == (pytest.approx(60.0, rel=0.02), pytest.approx(5.0, abs=2.5))


def test_what_has_run_for_a_while_takes_less() -> None:
    eta = told(2, steady(6.0), [2.0, 5.0], 2)
    assert eta.expected == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("ago", [60.0, 600.0, 6_000.0])
def test_one_that_has_run_far_longer_than_any_before_may_run_as_long_again(ago: float) -> None:
    eta = told(1, steady(6.0), [ago], 1)
    assert eta.high > ago
    assert eta.expected > 0.5 * ago


def test_the_longer_nothing_has_ended_the_more_time_may_be_left() -> None:
    highs = [told(20, steady(6.0), [since] * 4, 4).high for since in (5.0, 10.0, 100.0, 1_000.0)]
    assert highs == sorted(highs)
    assert highs[-1] > 100 * highs[0]


@pytest.mark.parametrize(
    ("left", "what", "running"),
    [
        ({}, {"sim": steady(1.0)}, 3),
        ({"sim": 3}, {}, 3),
        ({"sim": 3}, {"sim": steady(1.0)}, 0),
        ({"sim": 0}, {"sim": steady(1.0)}, 1),
    ],
)
def test_where_nothing_is_left_known_or_running_nothing_is_said(
    left: dict[str, int], what: dict[str, KnownDurations], running: int
) -> None:
    assert remaining(left, what, {}, running) is None


def test_two_durations_say_nothing_and_three_say_little() -> None:
    assert from_durations([(1.0, 5.0), (2.0, 5.0)]) is None
    few, many = (told(40, steady(5.0, count), [0.0] * 4, 4) for count in (3, 100))
    assert few.high - few.low > 2 * (many.high - many.low)


@pytest.mark.parametrize("absurd", [1e300, 1.7e308, math.inf, math.nan])
def test_a_duration_that_cannot_be_says_nothing(absurd: float) -> None:
    ends = [(1.0, absurd)] * 4
    assert from_durations(ends) is None
    before = Distribution(count=9, p50=absurd, p95=absurd, max=absurd)
    assert from_earlier(before) is None
    among = from_durations([*[(1.0, 2.0)] * 4, *ends], spread=[2.0, absurd])
    assert among is not None
    assert math.isfinite(told(1_000, among, [1.0], 1.0).high)
    assert math.isfinite(told(1_000, of_mean(1.7e308), [1.0], 1.0).high)


def test_earlier_runs_say_less_than_this_one_and_two_tasks_of_them_nothing() -> None:
    before = from_earlier(Distribution(count=100, p50=10.0, p95=10.0, max=10.0))
    assert before is not None
    then, now = told(40, before, [], 4), told(40, steady(10.0), [], 4)
    assert (then.expected, now.expected) == (pytest.approx(100.0, rel=0.1), pytest.approx(100.0, rel=0.02))
    assert then.high - then.low > 3 * (now.high - now.low)
    assert from_earlier(Distribution(count=2, p50=10.0, p95=10.0)) is None
    assert from_earlier(Distribution()) is None


@given(st.integers(1, 500), ENDS, AGES, st.floats(0.1, 8))
@settings(max_examples=25)
def test_the_expected_time_lies_in_its_interval_and_nothing_is_below_zero(
    count: int, ends: list[tuple[float, float]], ages: list[float], running: float
) -> None:
    eta = told(count, known(ends), ages, running)
    assert 0 <= eta.low <= eta.expected <= eta.high < math.inf


@given(st.integers(8, 2_000), st.integers(1, 2_000), ENDS, AGES, st.floats(0.1, 20))
@settings(max_examples=25)
def test_more_tasks_never_end_sooner(
    count: int, more: int, ends: list[tuple[float, float]], ages: list[float], running: float
) -> None:
    what = known(ends)
    few, many = told(count, what, ages, running), told(count + more, what, ages, running)
    for less, greater in zip(
        (few.low, few.expected, few.high), (many.low, many.expected, many.high), strict=True
    ):
        assert greater >= less * (1 - 1e-9)


def test_many_that_run_are_stood_for_by_some_and_many_names_by_their_means() -> None:
    eta = told(
        20 * PredictLimits.max_running_tasks,
        steady(6.0),
        [0.0] * (2 * PredictLimits.max_running_tasks),
        2 * PredictLimits.max_running_tasks,
    )
    assert eta.expected == pytest.approx(60.0, rel=0.05)
    names = {f"name {n}": 10 for n in range(100)}
    eta_of_names = remaining(names, {name: of_mean(6.0) for name in names}, {}, 10)
    assert eta_of_names is not None
    assert eta_of_names.expected == pytest.approx(600.0, rel=0.3)


def test_the_work_of_an_answer_is_bounded_by_a_number_of_things_and_not_by_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[int] = []

    class Counting(eta_module.Guess):
        def __init__(self, observed: eta_module.Ordered, dice: Random, off: float) -> None:
            heard.append(len(observed.marks))
            super().__init__(observed, dice, off)

    monkeypatch.setattr(eta_module, "Guess", Counting)
    names = {f"name {n}": 1_000 for n in range(100)}
    assert remaining(names, {name: steady(6.0, 400) for name in names}, {}, 10) is not None
    assert sum(heard) <= PredictLimits.eta_draws * PredictLimits.max_ended_tasks


# --- what is said, held against what comes

Plan = list[tuple[str, float]]


def _executed(plan: Plan, workers: int) -> list[tuple[str, float, float]]:
    free = [0.0] * workers
    done = []
    for name, took in plan:
        began = heapq.heappop(free)
        heapq.heappush(free, began + took)
        done.append((name, began, began + took))
    return done


def _said_and_true(plan: Plan, workers: int, share: float) -> tuple[Eta | None, float]:
    """What is said when so much of a plan was executed, and how long the rest took."""
    done = _executed(plan, workers)
    ends = sorted(end for _, _, end in done)
    now = ends[int(share * len(plan)) - 1] + 1e-6
    left: dict[str, int] = {}
    since: dict[str, list[float]] = {}
    ended: dict[str, list[tuple[float, float]]] = {}
    for name, began, end in done:
        if end <= now:
            ended.setdefault(name, []).append((now - end, end - began))
        else:
            left[name] = left.get(name, 0) + 1
            if began <= now:
                since.setdefault(name, []).append(now - began)
    what = {
        name: found
        for name, seen in ended.items()
        if (found := from_durations(sorted(seen)[:100], whole=len(seen) <= 100)) is not None
    }
    return remaining(left, what, since, workers), ends[-1] - now


def _constant(dice: Random, place: float) -> tuple[str, float]:
    return "sim", 10.0


def _lognormal(dice: Random, place: float) -> tuple[str, float]:
    return "sim", dice.lognormvariate(2.3, 1.0)


def _names(dice: Random, place: float) -> tuple[str, float]:
    name, middle = dice.choice([("load", 2.0), ("fit", 10.0), ("draw", 40.0)])
    return name, middle * dice.lognormvariate(0.0, 0.3)


def _changed(dice: Random, place: float) -> tuple[str, float]:
    return "sim", (10.0 if place < 0.5 else 30.0) * dice.lognormvariate(0.0, 0.2)


@pytest.mark.parametrize(
    ("one", "share", "least"),
    [
        (_constant, 0.05, 25),
        (_constant, 0.2, 25),
        (_constant, 0.5, 25),
        (_lognormal, 0.05, 18),
        (_lognormal, 0.2, 20),
        (_lognormal, 0.5, 20),
        (_names, 0.2, 20),
        (_names, 0.5, 20),
        (_changed, 0.75, 20),
    ],
)
def test_the_interval_holds(
    one: Callable[[Random, float], tuple[str, float]], share: float, least: int
) -> None:
    held = 0
    for seed in range(25):
        dice = Random(seed)
        eta, true = _said_and_true([one(dice, n / 160) for n in range(160)], 8, share)
        held += eta is not None and eta.low <= true <= eta.high
    assert held >= least
