"""The arithmetic behind predictions: features, baseline, trees, conformal corrections, schedules."""

from __future__ import annotations

import math
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.analyze.limits import PredictLimits
from flightlog.analyze.predict.baseline import Estimate, Logs, baseline
from flightlog.analyze.predict.eta import mean_of, simulate
from flightlog.analyze.predict.features import Column, Example, flatten, make_columns, row
from flightlog.analyze.predict.training import (
    LEAF,
    Correction,
    JudgedPrediction,
    Tree,
    Trees,
    correction,
    drift,
    pinball,
    weighted_quantile,
)

FINITE = st.floats(-50, 50)
SECONDS = st.floats(1e-3, 1e4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=40,
)


def example(name: str = "sim", log: float = 0.0, *, host: str | None = None, **args: object) -> Example:
    return Example(name, None, host, flatten(args), 0, log)


# --- features


def test_arguments_become_numbers_sizes_and_words():
    assert flatten(
        {
            "n": 100,
            "fast": True,
            "method": "rk4",
            "text_number": "12.5",
            "nothing": None,
            "grid": [3, 4],
            "data": "<ndarray float64 (1000, 50)>",
            "blob": "<bytes, 2048 bytes: 00ff…>",
            "nested": {"a": {"b": 2}},
            "cut": [*range(9), "… [+91 items]"],
        }
    ) == {
        "args.n": 100.0,
        "args.fast": 1.0,
        "args.method": "rk4",
        "args.text_number": 12.5,
        "args.grid.length": 2.0,
        "args.grid.0": 3.0,
        "args.grid.1": 4.0,
        "args.data.size": 50_000.0,
        "args.blob.length": 2048.0,
        "args.nested.a.b": 2.0,
        "args.cut.length": 100.0,
        **{f"args.cut.{n}": float(n) for n in range(8)},
    }


@settings(max_examples=20)
@given(st.dictionaries(st.text(max_size=8), JSON, max_size=60))
def test_whatever_was_recorded_gives_finite_numbers_and_words(args):
    found = flatten(args)
    assert len(found) <= PredictLimits.max_argument_values + 8
    assert all(
        isinstance(value, str) or (type(value) is float and math.isfinite(value)) for value in found.values()
    )


def test_only_what_differs_becomes_a_column_and_rare_words_get_none():
    examples = [
        example(n=n, tol=1e-6, method="rk4" if n % 2 else "euler", path=f"/data/{n}") for n in range(20)
    ]
    columns = make_columns(examples)
    assert columns == [Column("args.n"), Column("args.method", "euler"), Column("args.method", "rk4")]
    assert row(columns, examples[3]) == [3.0, 0.0, 1.0]
    never_seen = row(columns, example(method="leapfrog"))
    assert math.isnan(never_seen[0])
    assert never_seen[1:] == [0.0, 0.0]


# --- the baseline


def test_too_few_values_have_no_baseline():
    assert baseline([0.0] * (PredictLimits.min_attempts - 1)) is None


@given(st.lists(FINITE, min_size=PredictLimits.min_attempts, max_size=60))
def test_a_baseline_is_in_order_and_a_small_one_holds_all_that_was_seen(logs):
    low, mid, high = baseline(logs)
    assert low <= mid <= high
    if len(logs) < PredictLimits.min_attempts_for_ranks:
        assert low <= min(logs)
        assert high >= max(logs)


def test_only_the_newest_values_count():
    assert baseline([100.0] * 50 + [1.0] * PredictLimits.max_recent_attempts) == Logs(1.0, 1.0, 1.0)


@pytest.mark.parametrize("size", [8, 15, 20, 50, 200])
def test_the_next_value_lies_in_the_baseline_in_nine_of_ten_cases(size):
    dice = random.Random(size)
    inside = 0
    for _ in range(2000):
        made = baseline([dice.gauss(0, 1) for _ in range(size)])
        inside += made.low <= dice.gauss(0, 1) <= made.high
    assert 0.88 <= inside / 2000 <= (0.96 if size < PredictLimits.min_attempts_for_ranks else 0.93)


# --- trees


STUMP = Tree([0, LEAF, LEAF], [1.5, 0.0, 0.0], [1, 0, 0], [2, 0, 0], [False, False, False], [0.0, 10.0, 20.0])


def test_trees_add_up_and_missing_numbers_go_their_own_way():
    trees = Trees(1.0, [STUMP, STUMP])
    assert [trees.evaluate([x]) for x in (1.5, 1.6, math.nan)] == [21.0, 41.0, 41.0]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"left": [0, 0, 0]}, "a tree that points outside itself"),
        ({"right": [3, 0, 0]}, "a tree that points outside itself"),
        ({"column": [7, LEAF, LEAF]}, "a tree that points outside itself"),
        ({"value": [0.0]}, "a tree whose lists differ in length"),
    ],
)
def test_a_tree_that_would_not_end_is_refused(changes, problem):
    assert Trees(0.0, [msgspec.structs.replace(STUMP, **changes)]).problem(columns=1) == problem


# --- conformal corrections


def seen(
    actual: float, *, run: int = 0, low: float = -1.0, high: float = 1.0, above: bool = False
) -> JudgedPrediction:
    predicted = Logs(low, (low + high) / 2, high)
    return JudgedPrediction("sim", None, None, {}, run, actual, above, predicted=predicted)


@given(st.lists(st.tuples(FINITE, st.integers(0, 6)), min_size=30, max_size=200))
def test_a_corrected_interval_holds_nine_of_ten_of_what_it_was_corrected_by(pairs):
    last = max(run for _, run in pairs)
    all_seen = [seen(actual, run=last) for actual, _ in pairs]
    made = correction(all_seen)
    inside = [low <= each.log <= high for each in all_seen for low, _, high in [made.apply(each.predicted)]]
    assert sum(inside) >= 0.9 * len(inside)


@given(FINITE, st.floats(0, 20), st.floats(0, 20), FINITE, FINITE)
def test_a_correction_never_pushes_the_expected_value_out(mid, below, above, shift, margin):
    low, expected, high = Correction(shift, margin).apply(Logs(mid - below, mid, mid + above))
    assert low <= expected <= high
    assert expected == mid + shift


def test_a_steady_rise_is_carried_on_to_the_next_run():
    rising = [seen(0.1 * run + wiggle, run=run) for run in range(8) for wiggle in (-0.01, 0.0, 0.01)]
    assert drift([(each.run, each.log) for each in rising]) == pytest.approx(0.1)
    made = correction(rising)
    assert made.shift == pytest.approx(0.8)
    assert made.margin == pytest.approx(-0.99 + 0.1)


def test_of_few_runs_those_that_were_learnt_from_tell_of_a_rise_too():
    rising = [seen(0.1 * run + wiggle, run=run) for run in range(8) for wiggle in (-0.01, 0.0, 0.01)]
    learnt, newer = rising[:15], rising[15:]
    assert correction(newer).shift == pytest.approx(0.6, abs=0.11)
    assert correction(newer, learnt).shift == pytest.approx(0.8)


def test_noise_is_no_rise():
    dice = random.Random(3)
    assert drift([(run, dice.gauss(0, 1)) for run in range(10) for _ in range(20)]) == 0.0
    assert drift([(run, float(run)) for run in range(4)]) == 0.0


def test_an_attempt_that_ended_at_its_limit_widens_only_where_the_limit_lies_outside():
    plain = [seen(x / 10) for x in range(-10, 11)]
    inside = correction([*plain, seen(0.5, above=True)])
    outside = correction([*plain, *(seen(3.0, above=True) for _ in range(5))])
    assert inside == correction(plain)
    assert outside.margin == pytest.approx(2.0)


@given(st.lists(st.tuples(FINITE, st.floats(0.01, 1)), min_size=1), st.floats(0, 50))
def test_a_weighted_quantile_is_one_of_the_values_and_rises_with_its_share(pairs, enough):
    value = weighted_quantile(pairs, enough)
    assert value in [each for each, _ in pairs]
    assert value <= weighted_quantile(pairs, enough + 1)


@given(FINITE, FINITE)
def test_the_loss_is_least_for_what_came(guess, actual):
    assert pinball(Logs(actual, actual, actual), actual) == 0.0
    assert pinball(Logs(guess, guess, guess), actual) >= 0.0


# --- many tasks together


def estimate_of(low: float, expected: float, high: float) -> Estimate:
    return Estimate(expected=expected, low=low, high=high, method="baseline", reason="", examples=9, runs=1)


@given(SECONDS, st.floats(1, 50), st.floats(1, 50))
def test_a_mean_is_above_the_median_where_the_interval_reaches_further_up(mid, down, up):
    mean = mean_of(estimate_of(mid / down, mid, mid * up))
    assert mid / down * 0.1 < mean
    assert mean >= mid * (1 - 1e-9) or up < down


def test_what_slows_a_whole_run_down_does_not_cancel_out():
    tasks = [estimate_of(0.9, 1.0, 1.1)] * 400
    alone, together = simulate(tasks, 4), simulate(tasks, 4, between_runs=0.1)
    assert alone.low <= alone.expected <= alone.high
    assert alone.expected == pytest.approx(100, rel=0.02)
    assert alone.high - alone.low < 2
    assert 25 < together.high - together.low < 40
    assert simulate(tasks, 4) == alone
