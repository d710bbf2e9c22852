"""What a need depends on, and what still holds of a history."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.advice.needs import Growth, Recent, argument_of, find_growth, what_is_recent
from flightlog.analyze.limits import AdviceLimits

Args = dict[str, Any]


def drawn(need: Callable[[Args], float], count: int = 120, noise: float = 0.05) -> Growth | None:
    draw = Random(8)
    args = [
        {
            "n": draw.randrange(100, 5000),
            "m": draw.randrange(1, 50),
            "seed": draw.randrange(10**6),
            "method": draw.choice(["rk4", "euler"]),
            "label": f"case {n}",
        }
        for n in range(count)
    ]
    return find_growth([need(one) * draw.lognormvariate(0, noise) for one in args], args)


def test_memory_that_grows_with_an_argument_is_seen_with_its_base_and_slope() -> None:
    found = drawn(lambda args: 150e6 + 1.6e6 * args["n"])
    assert found is not None
    assert (found.argument, found.shape) == ("n", "linear")
    assert found.base == pytest.approx(150e6, rel=0.2)
    assert found.slope == pytest.approx(1.6e6, rel=0.05)
    assert found.at({"n": 4000}) == pytest.approx(6.55e9, rel=0.05)


def test_a_square_is_told_from_a_line_and_a_product_from_its_factors() -> None:
    square, product = (
        drawn(lambda args: 1e6 + args["n"] ** 2),
        drawn(lambda args: args["n"] * args["m"] * 8.0),
    )
    assert square is not None
    assert product is not None
    assert (square.argument, square.shape) == ("n", "squared")
    assert (product.argument, product.shape) == ("m * n", "linear")
    assert product.at({"n": 10, "m": 5}) == pytest.approx(400, rel=0.3)


def test_a_category_that_decides_is_seen() -> None:
    found = drawn(lambda args: 9e8 if args["method"] == "rk4" else 3e8)
    assert found is not None
    assert (found.argument, found.shape) == ("method", "category")
    assert found.levels == {"rk4": pytest.approx(9e8, rel=0.05), "euler": pytest.approx(3e8, rel=0.05)}
    assert found.at({"method": "other"}) is None


@pytest.mark.parametrize("noise", [0.02, 0.3, 1.0])
def test_what_depends_on_nothing_is_not_explained(noise: float) -> None:
    assert drawn(lambda args: 5e8, noise=noise) is None


def test_a_need_that_hardly_grows_is_no_growth() -> None:
    assert drawn(lambda args: 62e6 + 400.0 * args["n"], noise=0.001) is None
    assert drawn(lambda args: 62e6 if args["method"] == "rk4" else 64e6, noise=0.001) is None


def test_too_few_values_explain_nothing() -> None:
    assert drawn(lambda args: 1e6 * args["n"], count=AdviceLimits.min_values_for_growth - 1) is None
    assert drawn(lambda args: 1e6 * args["n"], count=AdviceLimits.min_values_for_growth) is not None


def test_a_need_that_falls_with_an_argument_is_no_growth() -> None:
    found = drawn(lambda args: 1e12 / args["n"])
    assert found is None


def test_arguments_are_numbers_or_products_of_two() -> None:
    args: Args = {"n": 3, "m": 2.5, "flag": True, "text": "7", "huge": 10**400, "a * b": 5}
    assert [argument_of(args, name) for name in ("n", "m * n", "a * b")] == [3.0, 7.5, 5.0]
    assert [argument_of(args, name) for name in ("flag", "text", "huge", "missing", "n * text")] == [None] * 5


ARGS = st.dictionaries(
    st.sampled_from("abc"),
    st.one_of(
        st.integers(), st.floats(), st.text(max_size=3), st.booleans(), st.none(), st.lists(st.integers())
    ),
)


@given(st.lists(st.tuples(st.floats(1e-6, 1e15), ARGS), max_size=40))
def test_any_arguments_are_taken_and_a_fit_is_positive_where_it_says_something(
    pairs: list[tuple[float, Args]],
) -> None:
    found = find_growth([value for value, _ in pairs], [args for _, args in pairs])
    if found is not None:
        said = [found.at(args) for _, args in pairs]
        assert all(value is None or (value > 0 and math.isfinite(value)) for value in said)


def runs_of(levels: list[float], tasks: int = 30, noise: float = 0.05) -> list[list[float]]:
    draw = Random(4)
    return [[level * draw.lognormvariate(0, noise) for _ in range(tasks)] for level in levels]


def test_a_steady_history_counts_as_a_whole() -> None:
    assert what_is_recent(runs_of([1.0] * 20), least=30) == Recent(runs=20)
    assert what_is_recent([[], *runs_of([1.0] * 3), []], least=30) == Recent(runs=5)


def test_after_a_step_only_later_runs_count() -> None:
    found = what_is_recent(runs_of([1.0] * 12 + [1.5] * 8), least=30)
    assert (found.since, found.drift) == (12, None)
    assert found.change == pytest.approx(0.5, abs=0.05)
    assert found.factor(15) == 1.0


def test_a_step_that_leaves_too_little_history_is_not_taken() -> None:
    assert what_is_recent(runs_of([1.0] * 12 + [1.5] * 8, tasks=3), least=30).since == 0


@pytest.mark.parametrize("count", [6, 12, 20, 40])
def test_a_slow_drift_brings_older_runs_up_to_the_next_ones(count: int) -> None:
    found = what_is_recent(runs_of([1.03**n for n in range(count)], noise=0.01), least=30)
    assert found.since == 0
    assert found.drift == pytest.approx(0.03, abs=0.005)
    ahead = min(5, count // 2)
    assert found.factor(count - 1) == pytest.approx(1.03**ahead, rel=0.03)
    assert found.factor(0) == pytest.approx(1.03 ** (count - 1 + ahead), rel=0.2)


def test_a_need_that_falls_is_not_extrapolated() -> None:
    found = what_is_recent(runs_of([0.97**n for n in range(20)], noise=0.01), least=30)
    assert found.factor(19) == 1.0
    assert found.factor(0) < 0.7


def test_five_runs_show_no_drift() -> None:
    assert what_is_recent(runs_of([1.1**n for n in range(5)]), least=30) == Recent(runs=5)
