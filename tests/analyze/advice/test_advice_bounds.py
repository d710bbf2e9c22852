"""Bounds on a share of later values, from few or many, some known only in part."""

from __future__ import annotations

import math
from random import Random
from statistics import NormalDist, fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.advice.needs import Bound, enough_for, upper_bound
from flightlog.analyze.limits import AdviceLimits
from flightlog.core.stats import (
    Observation,
    censored_quantile,
    effective_count,
    fit_lognormal,
    order_rank,
    tolerance_factor,
)

VALUES = st.lists(st.floats(0.001, 1e12), min_size=AdviceLimits.min_values, max_size=60)


def exact(*values: float) -> list[Observation]:
    return [Observation(value) for value in values]


def test_as_many_values_as_wilks_asks_for_make_the_largest_one_the_bound() -> None:
    assert [enough_for(share) for share in (0.95, 0.99)] == [32, 161]
    assert [order_rank(n, 0.95, 0.95) for n in (58, 59, 92, 93)] == [None, 59, 92, 92]


@given(st.integers(1, 3000), st.sampled_from([0.5, 0.9, 0.95, 0.99]), st.sampled_from([0.5, 0.8, 0.95]))
def test_the_rank_is_the_smallest_with_the_wanted_assurance(n: int, share: float, sure: float) -> None:
    rank = order_rank(n, share, sure)
    below = [
        math.exp(
            math.lgamma(n + 1)
            - math.lgamma(k + 1)
            - math.lgamma(n - k + 1)
            + k * math.log(share)
            + (n - k) * math.log1p(-share)
        )
        for k in range(n + 1)
    ]
    if rank is None:
        assert math.fsum(below[:n]) < sure + 1e-9
    else:
        assert math.fsum(below[:rank]) >= sure - 1e-9
        assert math.fsum(below[: rank - 1]) < sure + 1e-9


def test_factors_agree_with_the_tables_of_one_sided_normal_tolerance_bounds() -> None:
    assert [round(tolerance_factor(n, 0.95, 0.95), 1) for n in (5, 10, 20, 50)] == [4.2, 2.9, 2.4, 2.1]
    assert tolerance_factor(1e6, 0.95, AdviceLimits.assurance) == pytest.approx(1.645, abs=0.01)


def test_without_values_known_in_part_the_quantile_is_that_of_the_values() -> None:
    values = exact(*range(1, 101))
    assert [censored_quantile(values, share) for share in (0.01, 0.5, 0.95, 1.0)] == [1, 50, 95, 100]


def test_a_value_known_in_part_passes_its_weight_on_to_larger_ones() -> None:
    assert (
        censored_quantile([Observation(1), Observation(2, exact=False), Observation(3), Observation(4)], 0.6)
        == 3
    )
    assert censored_quantile([Observation(1), Observation(2), Observation(3), Observation(4)], 0.6) == 3
    assert (
        censored_quantile(
            [Observation(1), Observation(1, exact=False), Observation(1, exact=False), Observation(4)], 0.3
        )
        == 4
    )


def test_where_the_largest_values_are_known_in_part_there_is_no_such_quantile() -> None:
    assert censored_quantile([Observation(1), Observation(2), Observation(3, exact=False)], 0.9) is None


def test_fewer_than_five_exact_values_give_no_bound() -> None:
    assert upper_bound([*exact(1, 2, 3, 4), *[Observation(5, exact=False)] * 100], 0.95) is None


def test_few_values_give_a_wider_bound_than_many_of_the_same_spread() -> None:
    draw = Random(3)
    values = exact(*(draw.lognormvariate(0, 0.3) for _ in range(2000)))
    true = math.exp(0.3 * NormalDist().inv_cdf(0.95))
    many, few = upper_bound(values, 0.95), upper_bound(values[:8], 0.95)
    assert many is not None
    assert few is not None
    assert (many.method, few.method) == ("order statistic", "lognormal")
    assert true * 0.98 < many.value < true * 1.05
    assert few.value > max(one.value for one in values[:8])


@pytest.mark.parametrize("count", [5, 10, 20, 32, 60, 200])
@pytest.mark.parametrize("spread", [0.03, 0.3])
def test_on_average_the_bound_covers_the_share_and_not_nearly_everything(count: int, spread: float) -> None:
    draw, normal, shares = Random(count), NormalDist(), []
    for _ in range(150):
        bound = upper_bound([Observation(draw.lognormvariate(0, spread)) for _ in range(count)], 0.95)
        assert bound is not None
        shares.append(normal.cdf(math.log(bound.value) / spread))
    assert 0.945 < fmean(shares) < 0.985


def test_what_lies_beyond_a_limit_is_estimated_from_what_lies_below() -> None:
    draw = Random(9)
    needs = [draw.lognormvariate(1.0, 0.4) for _ in range(400)]
    limit = sorted(needs)[340]  # 15 % are killed there
    seen = [Observation(need) if need < limit else Observation(limit, exact=False) for need in needs]
    mean, spread = fit_lognormal(seen)
    assert (mean, spread) == (pytest.approx(1.0, abs=0.05), pytest.approx(0.4, abs=0.05))
    bound = upper_bound(seen, 0.95)
    assert bound is not None
    assert bound.method == "censored lognormal"
    assert 0.93 < sum(need <= bound.value for need in needs) / 400 < 0.99


def test_values_that_are_all_the_same_are_given_a_little_room() -> None:
    assert upper_bound(exact(*[100.0] * 40), 0.95) == Bound(100.0, "order statistic")
    few = upper_bound(exact(*[100.0] * 5), 0.95)
    assert few is not None
    assert 100 < few.value < 104


@given(VALUES, st.sampled_from([0.5, 0.8, 0.95, 0.99]))
def test_few_values_never_give_a_bound_below_the_largest_nor_more_than_twice_it(
    values: list[float], share: float
) -> None:
    bound = upper_bound(exact(*values), share)
    assert bound is not None
    if bound.method == "lognormal":
        assert max(values) <= bound.value <= 2 * max(values) * (1 + 1e-9)
    else:
        assert bound.value in values


@given(VALUES, st.lists(st.floats(0.001, 1e12), max_size=20))
def test_a_bound_is_finite_and_not_below_what_was_killed_where_that_was_largest(
    values: list[float], killed: list[float]
) -> None:
    bound = upper_bound([*exact(*values), *(Observation(limit, exact=False) for limit in killed)], 0.95)
    assert bound is not None
    assert math.isfinite(bound.value)
    if bound.method == "censored lognormal":
        assert bound.value >= max(killed)


def test_values_that_resemble_each_other_in_groups_are_worth_less() -> None:
    draw = Random(2)
    alike = [[level + draw.gauss(0, 0.01) for _ in range(50)] for level in (0.0, 0.4, 0.9, 1.3)]
    mixed = [[draw.gauss(0, 0.3) for _ in range(50)] for _ in range(4)]
    assert effective_count(alike) == pytest.approx(4, abs=0.2)
    assert effective_count(mixed) == 200
    assert effective_count([[1.0], [2.0], [3.0]]) == 3
    assert effective_count([[1.0, 1.0], [1.0, 1.0]]) == 4
    assert effective_count([[1.0, 1.0], [2.0, 2.0]]) == 2
