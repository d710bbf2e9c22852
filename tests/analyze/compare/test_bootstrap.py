"""Ratios and their intervals."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.compare.durations import Block, Sample, estimate, ratio_of_runs
from flightlog.analyze.compare.results import Interval
from flightlog.core.stats import stand_out, student_quantile, student_tail


def blocks(values):
    return [Block(1, math.log(value), value, 1) for value in values]


def sample(before, after, **options):
    return Sample(paired=False, before=blocks(before), after=blocks(after), **options)


def noise(seed, count=40, spread=0.2, typical=1.0):
    chance = random.Random(seed)
    return [typical * math.exp(chance.gauss(0, spread)) for _ in range(count)]


def width(interval):
    return math.log(interval.high / interval.low)


def test_blocks_that_resemble_each_other_in_spells_make_the_intervals_wider():
    """The same values, shuffled and in spells of eight blocks: what chance puts together once is one
    accident."""
    slow = [1.5 if n // 8 % 2 else 1.0 for n in range(40)]
    before, after = ([a * b for a, b in zip(noise(seed, spread=0.05), slow, strict=True)] for seed in (1, 2))
    together = estimate(sample(before, after))
    apart = []
    for values in (before, after):
        random.Random(3).shuffle(values)
        apart.append(values)
    shuffled = estimate(sample(*apart))
    assert shuffled.typical.ratio == pytest.approx(together.typical.ratio)
    assert width(together.typical) > 1.5 * width(shuffled.typical)
    assert width(together.mean) > 1.5 * width(shuffled.mean)


@pytest.mark.parametrize(("df", "t"), [(5, 2.571), (10, 2.228), (30, 2.042), (1e6, 1.960)])
def test_the_quantiles_of_students_t_are_those_of_the_tables(df, t):
    assert student_quantile(0.975, df) == pytest.approx(t, rel=0.005)


@given(t=st.floats(0.01, 30), df=st.floats(2, 1e6))
def test_the_quantile_and_the_tail_are_each_others_inverse(t, df):
    tail = student_tail(t, df)
    if 1e-12 < tail < 1:
        assert student_quantile(1 - tail / 2, df) == pytest.approx(t, rel=1e-3)


def test_a_ratio_is_that_of_geometric_and_of_plain_means():
    before, after = [1.0, 2.0, 4.0, 8.0], [2.0, 2.0, 8.0, 8.0]
    found = estimate(sample(before, after))
    logs = [sum(map(math.log, values)) / 4 for values in (before, after)]
    assert found.typical.ratio == pytest.approx(math.exp(logs[1] - logs[0]))
    assert found.mean.ratio == pytest.approx(20 / 15)
    assert found.p95 is None


def test_the_interval_holds_the_ratio_and_shrinks_with_more_tasks():
    few, many = (estimate(sample(noise(1, n), noise(2, n, typical=1.3))).typical for n in (10, 40))
    for found in (few, many):
        assert found.low < found.ratio < found.high
    assert few.high / few.low > many.high / many.low


def test_the_standard_error_is_that_of_the_textbook():
    before, after = noise(3), noise(4)
    variances = []
    for values in (before, after):
        logs = [math.log(value) for value in values]
        mean = sum(logs) / 40
        variances.append(sum((value - mean) ** 2 for value in logs) / 39 / 40)
    found = estimate(sample(before, after), draws=4000).typical
    reach = student_quantile(0.975, 78) * math.sqrt(sum(variances) + 2 * 0.01**2)
    assert math.log(found.high / found.ratio) == pytest.approx(reach, rel=0.05)


def test_the_same_sample_gives_the_same_result():
    assert estimate(sample(noise(5), noise(6))) == estimate(sample(noise(5), noise(6)))


def test_three_values_are_too_few_for_an_interval():
    found = estimate(sample([1.0, 1.1, 0.9], [2.0, 2.2, 1.8]))
    assert found.typical == Interval(ratio=pytest.approx(2.0))


def test_a_busy_minute_counts_as_one_accident():
    """Twenty slow tasks in a row widen the interval more than twenty that are strewn about."""
    chance = random.Random(7)
    calm = [math.exp(chance.gauss(0, 0.05)) for _ in range(200)]
    slow = [value * 1.5 for value in calm[:20]]

    def in_blocks(values):
        return [
            Block(5, sum(map(math.log, values[i : i + 5])), sum(values[i : i + 5]), 5)
            for i in range(0, 200, 5)
        ]

    in_a_row = slow + calm[20:]
    strewn = in_a_row[:]
    chance.shuffle(strewn)
    widths = []
    for after in (in_a_row, strewn):
        found = estimate(Sample(paired=False, before=in_blocks(calm), after=in_blocks(after))).typical
        widths.append(found.high / found.low)
    assert math.log(widths[0]) > 1.3 * math.log(widths[1])


def test_pairs_take_out_what_both_sides_share():
    sizes = [math.exp(i / 5) for i in range(40)]
    took = [size * value for size, value in zip(sizes, noise(8, spread=0.05), strict=True)]
    again = [size * value * 1.2 for size, value in zip(sizes, noise(9, spread=0.05), strict=True)]
    apart = estimate(sample(took, again)).typical
    paired = estimate(
        Sample(
            paired=True,
            before=[Block(1, 0.0, value, 1) for value in took],
            after=[Block(1, math.log(b / a), b, 1) for a, b in zip(took, again, strict=True)],
        )
    ).typical
    assert apart.ratio == pytest.approx(paired.ratio)
    assert apart.low < 1 < apart.high
    assert 1.1 < paired.low < paired.high < 1.3


def test_runs_that_differ_by_themselves_widen_the_interval():
    calm = sample(noise(1), noise(2), runs=(5, 5), run_offsets=([0.0, 0.001, 0.002, 0.001, 0.0], [0.0] * 5))
    wild = sample(
        noise(1), noise(2), runs=(5, 5), run_offsets=([0.0, 0.3, -0.3, 0.1, -0.1], [0.0, 0.2, -0.2, 0.3, 0.0])
    )
    narrow, wide = estimate(calm).typical, estimate(wild).typical
    assert math.log(wide.high / wide.low) > 2 * math.log(narrow.high / narrow.low)
    between = (0.2 + 0.152) / 8 * 2 / 5  # the squares around the means 0 and 0.06, eight degrees of freedom
    assert math.log(wide.high / wide.ratio) == pytest.approx(
        student_quantile(0.975, 8) * math.sqrt(between), rel=0.01
    )


def test_single_runs_are_taken_to_differ_by_one_percent():
    same = sample([1.0] * 40, [1.02] * 40)
    found = estimate(same).typical
    assert math.log(found.high / found.ratio) == pytest.approx(1.96 * 0.01 * math.sqrt(2), rel=1e-3)


def test_figures_that_a_run_has_once_have_an_interval_from_four_runs_on():
    assert ratio_of_runs([10.0], [12.0]) == Interval(ratio=pytest.approx(1.2))
    found = ratio_of_runs([10.0, 11.0], [20.0, 22.0])
    assert found.ratio == pytest.approx(2.0)
    assert found.low < 2 < found.high
    assert ratio_of_runs([], [1.0]) is None
    assert ratio_of_runs([0.0], [1.0]) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.sampled_from([0.01, 0.05, 0.2]))
def test_what_stands_out_is_what_benjamini_and_hochberg_say(p_values, rate):
    ordered = sorted(p_values)
    ranks = [k for k in range(1, len(ordered) + 1) if ordered[k - 1] <= rate * k / len(ordered)]
    called = ordered[: ranks[-1]] if ranks else []
    assert sorted(p for p, out in zip(p_values, stand_out(p_values, rate), strict=True) if out) == called
