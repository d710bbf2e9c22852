from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from flightlog.core.intervals import Intervals, length, overlap, peak, union

interval = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))
several = st.lists(interval, max_size=12)


def points(spans: object) -> set[int]:
    return {point for start, end in spans for point in range(start, end)}  # type: ignore[attr-defined]


@given(several)
def test_a_union_covers_the_same_time_once(given_: list[tuple[int, int]]) -> None:
    merged = union(given_)
    assert points(merged) == points(given_)
    assert length(merged) == len(points(given_))
    assert all(left[1] < right[0] for left, right in itertools.pairwise(merged))


@given(several, several)
def test_an_overlap_is_what_both_cover(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    assert points(overlap(union(left), union(right))) == points(left) & points(right)


@given(several)
def test_a_peak_is_the_most_at_any_moment(given_: list[tuple[int, int]]) -> None:
    lasting = [(start, max(end, start + 1)) for start, end in given_]
    busiest = max((sum(start <= t < end for start, end in lasting) for t in range(60)), default=0)
    assert peak(given_) == busiest


@given(several, st.randoms(use_true_random=False))
def test_adding_one_by_one_gives_the_union_whatever_the_order(
    given_: list[tuple[int, int]], chance: random.Random
) -> None:
    mixed = list(given_)
    chance.shuffle(mixed)
    grown = Intervals()
    for start, end in mixed:
        grown.add(start, end)
    assert grown.union() == union(given_)


def test_intervals_that_pile_up_are_merged_on_the_way() -> None:
    grown = Intervals(compact_from=8)
    for start in range(1000):
        grown.add(start, start + 2)
    assert len(grown) < 8
    assert grown.union() == [(0, 1001)]


def test_workers_that_hand_over_at_the_same_moment_are_one_at_a_time() -> None:
    assert peak([(0, 5), (5, 9)]) == 1


def test_there_are_no_bounds_without_intervals() -> None:
    assert Intervals().bounds() is None
