"""Tasks of two sides, matched and put into blocks; every figure has its slow twin in plain Python."""

from __future__ import annotations

import math
import random

import pytest
from builders.compared_durations import tables
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.analyze.compare.durations import MatchKey, estimate, match
from flightlog.core.stats import quantile


def matched(rows, runs=(1, 1), spared=()):
    with tables(rows, spared) as connection:
        return match(connection, runs)


def side(number, name, times, digests=None):
    return [(number, 0, name, None if digests is None else digests[i], time) for i, time in enumerate(times)]


def clipped_means(*sides):
    """The means with outliers drawn in to two standard deviations from the median, as the quartiles of a side
    tell them.

    Of both sides the wider bounds hold for both.
    """
    bounds = []
    for values in sides:
        low, middle, high = (quantile(sorted(values), q) for q in (0.25, 0.5, 0.75))
        bounds.append((middle - 2 * (high - low) / 1.349, middle + 2 * (high - low) / 1.349))
    low, high = min(a for a, _ in bounds), max(b for _, b in bounds)
    return [sum(min(max(value, low), high) for value in values) / len(values) for values in sides]


times = st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=60)


@settings(max_examples=20, deadline=None)
@given(before=times, after=times)
def test_ratios_and_spreads_are_those_of_plain_arithmetic(before, after):
    [(key, found)] = matched(side(0, "fit", before) + side(1, "fit", after)).items()
    assert key == MatchKey("task", "fit", False)
    for spread, values in ((found.before, before), (found.after, after)):
        assert spread.count == len(values)
        assert spread.total_s == pytest.approx(sum(values), rel=1e-6, abs=1e-8)
        assert spread.p50_s == pytest.approx(quantile(sorted(values), 0.5))
        assert spread.p95_s == pytest.approx(quantile(sorted(values), 0.95))
        assert spread.max_s == max(values)
    estimates = estimate(found.sample)
    logs = clipped_means(*([math.log(value) for value in values] for values in (before, after)))
    assert math.log(estimates.typical.ratio) == pytest.approx(logs[1] - logs[0], abs=1e-6)
    means = [sum(values) / len(values) for values in (before, after)]
    assert estimates.mean.ratio == pytest.approx(means[1] / means[0], rel=1e-3)


@settings(max_examples=20, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=2, max_size=50),
    data=st.data(),
)
def test_tasks_with_the_same_arguments_are_compared_with_each_other_in_whatever_order_they_ran(pairs, data):
    digests = [f"d{i}" for i in range(len(pairs))]
    order = data.draw(st.permutations(range(len(pairs))))
    rows = side(0, "fit", [a for a, _ in pairs], digests)
    rows += side(1, "fit", [pairs[i][1] for i in order], [digests[i] for i in order])
    found = matched(rows)[MatchKey("task", "fit", False)]
    assert found.pairs == len(pairs)
    ratios = [math.log(b / a) for a, b in pairs]
    estimates = estimate(found.sample)
    assert math.log(estimates.typical.ratio) == pytest.approx(clipped_means(ratios)[0], abs=1e-6)
    assert estimates.mean.ratio == pytest.approx(
        sum(b for _, b in pairs) / sum(a for a, _ in pairs), rel=1e-6
    )


def test_repetitions_of_one_set_of_arguments_pair_in_order_and_what_is_over_is_left_out():
    rows = side(0, "fit", [1.0, 2.0, 10.0, 99.0], ["a", "a", "b", "a"])
    rows += side(1, "fit", [2.0, 4.0, 20.0], ["a", "a", "b"])
    found = matched(rows)[MatchKey("task", "fit", False)]
    assert found.pairs == 3
    assert estimate(found.sample).typical.ratio == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["a"] * 4, ["a"] * 4),  # one set of arguments: there is no spread to take out
        ([None] * 4, [None] * 4),
        (["a", "b", "c", "d"], ["a", "x", "y", "z"]),  # one in four has a partner
    ],
)
def test_names_whose_arguments_do_not_serve_are_compared_as_they_are(before, after):
    found = matched(
        side(0, "fit", [1.0, 2.0, 3.0, 4.0], before) + side(1, "fit", [1.0, 2.0, 3.0, 4.0], after)
    )
    assert found[MatchKey("task", "fit", False)].pairs is None
    assert sum(block.tasks for block in found[MatchKey("task", "fit", False)].sample.after) == 4


def test_names_of_one_side_have_nothing_to_be_compared_with():
    found = matched(side(0, "old", [1.0]) + side(1, "new", [2.0]))
    assert [(key.name, value.sample) for key, value in found.items()] == [("new", None), ("old", None)]


def test_tasks_that_found_all_in_a_cache_are_compared_among_themselves():
    rows = side(0, "fit", [1.0]) + side(1, "fit", [1.0]) + side(0, "hit", [0.1]) + side(1, "hit", [0.2])
    assert list(matched(rows, spared=["hit"])) == [
        MatchKey("task", "fit", False),
        MatchKey("task", "hit", True),
    ]


def test_the_arguments_that_both_sides_have_are_those_of_the_tasks_that_are_compared():
    names = [f"d{i}" for i in range(4)]
    rows = side(0, "fit", [1.0] * 4, names) + side(1, "fit", [1.0] * 4, [*names[1:], "d9"])
    rows += side(0, "plot", [1.0] * 2, ["a", "b"]) + side(1, "plot", [1.0] * 2)
    rows += side(0, "load", [1.0], ["a"]) + side(1, "load", [1.0], ["b"])
    found = matched(rows)
    shared = {key.name: value.shared for key, value in found.items()}
    assert shared == {"fit": 3 / 5, "load": 0.0, "plot": None}


def test_many_tasks_make_no_more_than_forty_blocks_and_lose_none():
    found = matched(side(0, "fit", [1.0] * 1003) + side(1, "fit", [2.0] * 57))[
        MatchKey("task", "fit", False)
    ].sample
    assert (len(found.before), len(found.after)) == (40, 40)
    assert (sum(b.tasks for b in found.before), sum(b.tasks for b in found.after)) == (1003, 57)


def test_the_order_in_which_rows_are_read_changes_nothing():
    chance = random.Random(3)
    rows = [(s, 0, "fit", f"d{i}", math.exp(chance.gauss(0, 1))) for s in (0, 1) for i in range(300)]
    stamped = list(enumerate(rows))
    chance.shuffle(stamped)
    once = matched(rows)
    with tables(rows) as connection:
        connection.execute("CREATE TABLE shuffled AS FROM compared ORDER BY hash(task_id)")
        connection.execute("DROP TABLE compared; ALTER TABLE shuffled RENAME TO compared")
        again = match(connection, (1, 1))
    assert once == again


def test_each_run_of_a_group_tells_how_far_it_is_off():
    rows = [
        (0, run, "fit", f"d{i}", (i + 1.0) * off) for run, off in enumerate([1.0, 2.0]) for i in range(8)
    ] + [(1, 0, "fit", f"d{i}", (i + 1.0)) for i in range(8)]
    found = matched(rows, runs=(2, 1))[MatchKey("task", "fit", False)]
    assert found.pairs == 8
    low, high = found.sample.run_offsets[0]
    assert (low, high) == (pytest.approx(-math.log(2) / 2), pytest.approx(math.log(2) / 2))
    loose = matched([(s, r, n, None, t) for s, r, n, _, t in rows], runs=(2, 1))[
        MatchKey("task", "fit", False)
    ]
    low, high = loose.sample.run_offsets[0]
    assert high - low == pytest.approx(math.log(2), rel=0.15)  # the longest and shortest are drawn in
