from __future__ import annotations

import math
import random
import statistics

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.core.stats import Distribution, distribution, exact_sum, quantile

numbers = st.floats(min_value=-1e9, max_value=1e9, allow_nan=False)


@given(st.lists(numbers, min_size=1, max_size=60))
def test_quantiles_are_those_of_pandas(values: list[float]) -> None:
    spread = distribution(values)
    expected = pd.Series(values).quantile([0.5, 0.95, 0.99])
    assert [spread.p50, spread.p95, spread.p99] == pytest.approx(list(expected), rel=1e-12, abs=1e-6)


@given(st.lists(numbers, min_size=1, max_size=60))
def test_mean_and_median_are_those_of_the_statistics_module(values: list[float]) -> None:
    spread = distribution(values)
    assert spread.mean == pytest.approx(statistics.fmean(values), rel=1e-12, abs=1e-6)
    assert spread.p50 == pytest.approx(statistics.median(values), rel=1e-12, abs=1e-6)


@given(st.lists(numbers, min_size=1, max_size=60))
def test_figures_stand_in_order_and_never_leave_the_values(values: list[float]) -> None:
    spread = distribution(values)
    figures = [spread.min, spread.p50, spread.p95, spread.p99, spread.max]
    assert figures == sorted(figures)  # type: ignore[type-var]
    assert min(values) <= spread.mean <= max(values)  # type: ignore[operator]


@given(st.lists(numbers, max_size=60), st.randoms(use_true_random=False))
def test_order_changes_nothing_not_even_the_last_digit(values: list[float], chance: random.Random) -> None:
    mixed = list(values)
    chance.shuffle(mixed)
    assert distribution(mixed) == distribution(values)


def test_of_no_values_everything_but_count_and_total_is_unknown() -> None:
    assert distribution([]) == Distribution(count=0, total=0.0)


def test_one_value_is_all_its_figures() -> None:
    assert distribution([2.5]) == Distribution(
        count=1, total=2.5, mean=2.5, min=2.5, p50=2.5, p95=2.5, p99=2.5, max=2.5
    )


def test_a_quantile_interpolates_between_neighbours() -> None:
    assert quantile([1.0, 2.0, 4.0], 0.75) == 3.0


def test_a_sum_beyond_the_range_of_floats_is_infinite_and_no_error() -> None:
    assert exact_sum([1.7e308, 1.7e308]) == math.inf
