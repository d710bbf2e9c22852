"""Steps are found where they are, and noise, outliers and drifts are no steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.analyze.history import change_points as module
from flightlog.analyze.history.change_points import ChangePoints, chance_of, change_points, outliers
from flightlog.analyze.limits import HistoryLimits

HISTORIES = 300
FIFTH = math.log(1.2)

Draw = Callable[[Random], float]


def gauss(draw: Random) -> float:
    return draw.gauss(0.0, 0.1)


def heavy(draw: Random) -> float:
    """Student's t with two degrees of freedom: without variance."""
    return 0.1 * draw.gauss(0.0, 1.0) / math.sqrt(draw.expovariate(1.0))


def skewed(draw: Random) -> float:
    """One run in ten is twice as slow as the others."""
    return draw.gauss(0.0, 0.1) + (0.7 if draw.random() < 0.1 else 0.0)


def equal(_draw: Random) -> float:
    return 1.0


def rare(draw: Random) -> float:
    """As a count of failures: mostly none."""
    return float(draw.random() < 0.03)


def histories(
    length: int, noise: Draw, level: Callable[[int], float] = lambda _number: 0.0, count: int = HISTORIES
):
    for seed in range(count):
        draw = Random(seed)
        yield change_points([level(number) + noise(draw) for number in range(length)])


def share(found, holds: Callable[[ChangePoints], bool]) -> float:
    results = [holds(one) for one in found]
    return sum(results) / len(results)


def has_steps(found: ChangePoints) -> bool:
    return bool(found.steps)


def one_step_at(number: int, within: int) -> Callable[[ChangePoints], bool]:
    return lambda found: len(found.steps) == 1 and abs(found.steps[0].at - number) <= within


@pytest.mark.parametrize("noise", [gauss, heavy, skewed, equal, rare])
@pytest.mark.parametrize("length", [10, 30, 100])
def test_noise_shows_a_step_in_at_most_one_history_of_twenty(length, noise):
    assert share(histories(length, noise), has_steps) <= 0.05


def test_waves_in_which_runs_resemble_the_one_before_are_hardly_ever_steps():
    def waves(seed: int) -> list[float]:
        draw, at, values = Random(seed), 0.0, []
        for _ in range(200):
            at = 0.4 * at + draw.gauss(0.0, 0.1)
            values.append(at)
        return values

    assert sum(has_steps(change_points(waves(seed))) for seed in range(200)) / 200 <= 0.1


@pytest.mark.parametrize(("length", "most"), [(20, 0.18), (40, 0.13), (60, 0.1), (100, 0.1)])
@pytest.mark.parametrize("likeness", [0.4, 0.6])
def test_so_they_are_in_short_histories(length, most, likeness):
    def waves(seed: int) -> list[float]:
        draw, value, found = Random(seed), 0.0, []
        for _ in range(length + 20):
            value = likeness * value + draw.gauss(0.0, 1.0)
            found.append(value)
        return found[20:]

    assert share((change_points(waves(seed)) for seed in range(1000, 1000 + HISTORIES)), has_steps) <= most


def test_a_fifth_more_in_noise_of_a_tenth_is_found_with_fifteen_runs_on_each_side():
    found = list(histories(30, gauss, lambda number: FIFTH * (number >= 15)))
    assert share(found, has_steps) >= 0.85
    assert share(found, one_step_at(15, 2)) >= 0.75
    known = [one.steps[0] for one in found if len(one.steps) == 1]
    covered = sum(step.earliest <= 15 <= step.latest for step in known)
    assert covered / len(known) >= 0.93


@pytest.mark.parametrize(
    ("before", "after", "size"), [(100, 15, FIFTH), (30, 30, FIFTH), (30, 5, 0.4), (100, 4, 0.5)]
)
def test_steps_are_found_early_and_late(before, after, size):
    found = histories(before + after, gauss, lambda number: size * (number >= before), 150)
    assert share(found, one_step_at(before, 2)) >= 0.8


def test_two_steps_up_are_two_steps_and_no_drift():
    found = histories(90, gauss, lambda number: FIFTH * (number >= 30) + FIFTH * (number >= 60), 150)
    assert share(found, lambda one: [round(step.at / 30) for step in one.steps] == [1, 2]) >= 0.75


def test_a_bump_in_a_long_history_has_two_ends():
    found = histories(200, gauss, lambda number: 0.26 * (90 <= number < 110), 100)
    assert share(found, lambda one: [round(step.at / 10) for step in one.steps] == [9, 11]) >= 0.85


@pytest.mark.parametrize(("length", "rise"), [(200, 0.3), (200, 0.5), (400, 1.0)])
def test_a_slow_drift_is_no_step_and_is_called_a_drift(length, rise):
    found = list(histories(length, gauss, lambda number: rise * number / length, 100))
    assert share(found, has_steps) <= 0.05
    drifts = [one.drift for one in found if one.drift is not None]
    assert len(drifts) >= 95
    assert sum(drifts) / len(drifts) == pytest.approx(rise, rel=0.1)


@pytest.mark.parametrize("outliers", [1, 2])
def test_single_outliers_are_no_steps(outliers):
    def history(seed: int) -> list[float]:
        draw = Random(seed)
        values = [gauss(draw) for _ in range(40)]
        for at in draw.sample(range(40), outliers):
            values[at] = 3.0
        return values

    assert sum(has_steps(change_points(history(seed))) for seed in range(HISTORIES)) / HISTORIES <= 0.05


def test_a_step_without_noise_is_found_where_it_is():
    [step] = change_points([1.0] * 20 + [2.0] * 20).steps
    assert step.at == 20
    assert step.chance < 1e-6


@pytest.mark.parametrize("count", range(HistoryLimits.min_values_for_step))
def test_too_few_values_show_no_step(count):
    values = [
        float(number >= min(count // 2, HistoryLimits.min_values_beside_clear_step_of_few - 1))
        for number in range(count)
    ]
    assert change_points(values) == ChangePoints(steps=[], drift=None)


runs = st.integers(HistoryLimits.min_values_beside_clear_step_of_few, 40)


@given(
    st.integers(0, 10**6),
    runs,
    runs,
    st.floats(3.0, 1000.0),
    st.booleans(),
    st.sampled_from([0.0, 0.01, 0.1]),
)
@settings(max_examples=200, deadline=None)
def test_a_clean_step_of_three_times_is_found_where_it_is_with_four_runs_on_each_side(
    seed, before, after, times, up, noise
):
    draw = Random(seed)
    factors = [1.0] * before + [times if up else 1.0 / times] * after
    found = change_points([math.log(one * draw.uniform(1.0 - noise, 1.0 + noise)) for one in factors])
    [step] = [one for one in found.steps if one.at == before]
    assert (step.earliest, step.latest) == (before, before)


def slower(before: int, after: int, times: float = 3.0) -> Callable[[int], float]:
    return lambda number: math.log(times) if before <= number < before + after else 0.0


def twentieth(draw: Random) -> float:
    return draw.gauss(0.0, 0.05)


@pytest.mark.parametrize(("before", "after"), [(12, 3), (30, 2), (40, 3)])
def test_a_few_bad_runs_at_the_end_are_a_step_at_the_first_of_them(before, after):
    found = histories(before + after, twentieth, slower(before, after))
    assert share(found, one_step_at(before, 0)) >= 0.95


def test_one_bad_run_is_an_outlier_and_no_step():
    alone = 0
    for seed in range(HISTORIES):
        draw = Random(seed)
        values = [slower(30, 1)(number) + twentieth(draw) for number in range(31)]
        steps = change_points(values).steps
        alone += not steps and outliers(values, steps) == [30]
    assert alone / HISTORIES >= 0.95


@pytest.mark.parametrize("length", [15, 31])
def test_good_runs_alone_raise_an_alarm_in_at_most_two_histories_of_a_hundred(length):
    """Neither a step nor an outlier, where a run is as long as the others but for a twentieth."""
    alarms, draws = 0, 10_000
    for seed in range(draws):
        draw = Random(seed)
        values = [twentieth(draw) for _ in range(length)]
        steps = change_points(values).steps
        alarms += bool(steps or outliers(values, steps))
    assert alarms / draws <= 0.02


@pytest.mark.parametrize("noise", [gauss, equal])
def test_noise_has_no_outliers(noise):
    series = [[noise(draw) for _ in range(40)] for draw in map(Random, range(HISTORIES))]
    assert not any(outliers(values, []) for values in series)


def test_equal_values_that_were_reckoned_in_another_order_are_no_step():
    assert not has_steps(change_points([0.1 + 0.2] * 4 + [0.3] * 4))


@pytest.mark.parametrize("length", [8, 9, 12, 20])
@pytest.mark.parametrize("noise", [gauss, heavy, skewed])
def test_few_values_in_noise_hardly_ever_have_a_step_that_stands_out(length, noise):
    found = histories(length, noise, count=1000)
    assert share(found, lambda one: any(step.earliest == step.latest for step in one.steps)) <= 0.02


@given(st.integers(0, 10**6), st.integers(10, 60))
@settings(max_examples=50, deadline=None)
def test_a_monotone_change_of_units_or_of_direction_moves_no_step(seed, length):
    """Ranks decide: what is a step in seconds is one in milliseconds, and in reverse order of size."""
    draw = Random(seed)
    values = [gauss(draw) + 0.3 * (number >= length // 2) for number in range(length)]
    at = [step.at for step in change_points(values).steps]
    assert [step.at for step in change_points([1000.0 * value + 5.0 for value in values]).steps] == at


@given(st.lists(st.floats(-1e6, 1e6), max_size=80))
@settings(max_examples=100, deadline=None)
def test_any_values_give_steps_in_order_within_the_series(values):
    found = change_points(values)
    assert found == change_points(list(values))
    at = [step.at for step in found.steps]
    assert at == sorted(set(at))
    for step in found.steps:
        assert 0 < step.earliest <= step.at <= step.latest < len(values)
        assert 0 <= step.chance <= HistoryLimits.false_alarm_rate


def largest_statistic(values: list[float]) -> float:
    """The statistic by its definition: the correlation of normal scores with each split, as Student's t has
    it."""
    n = len(values)
    order = sorted(range(n), key=values.__getitem__)
    scores = [0.0] * n
    for rank, number in enumerate(order):
        scores[number] = module._NORMAL.inv_cdf((rank + 0.5) / n)
    best = 0.0
    for k in range(3, n - 2):
        a, b = scores[:k], scores[k:]
        mean, mean_a, mean_b = sum(scores) / n, sum(a) / len(a), sum(b) / len(b)
        between = len(a) * (mean_a - mean) ** 2 + len(b) * (mean_b - mean) ** 2
        best = max(best, between / sum((score - mean) ** 2 for score in scores))
    return module._deviate(best, n)


@given(st.lists(st.floats(-1e3, 1e3), min_size=10, max_size=40, unique=True))
def test_the_statistic_is_the_one_of_the_definition(values):
    series = module._Series(values, [0.0] * len(values), worth=1.0)
    assert series.peak(0, len(values)).statistic == pytest.approx(largest_statistic(values), rel=1e-9)


@pytest.mark.parametrize("length", [10, 16, 30, 100])
def test_chances_are_what_shuffling_shows(length):
    draw = Random(1)
    chances = []
    for _ in range(2000):
        values = [draw.random() for _ in range(length)]
        series = module._Series(values, values, worth=1.0)
        chances.append(chance_of(series.peak(0, length).statistic, length))
    for level in (0.05, 0.03, 0.01):
        assert sum(chance <= level for chance in chances) / 2000 <= 1.25 * level + 0.005


def test_work_grows_hardly_faster_than_the_number_of_values():
    """Counted in values that are ranked, which is all that takes time."""

    class Counting(module._Series):
        ranked = 0

        def scores(self, start: int, end: int) -> list[float]:
            Counting.ranked += end - start
            return super().scores(start, end)

    def work(length: int) -> int:
        draw = Random(length)
        Counting.ranked = 0
        values = [gauss(draw) + 0.3 * (number // (length // 8) % 2) for number in range(length)]
        module._search(Counting(values, values, worth=1.0), 0.03)
        return Counting.ranked

    for length in (500, 4000):
        assert work(length) <= 2 * length * math.log2(length)
