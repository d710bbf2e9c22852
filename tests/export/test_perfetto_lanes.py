"""Lanes: nothing overlaps but what is inside its parent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flightlog.export.perfetto.drawing import Placed, TraceLanes


def test_slices_one_after_the_other_share_a_lane() -> None:
    lanes = TraceLanes({})
    assert [lanes.beside(0, 10), lanes.beside(10, 20), lanes.beside(25, 30)] == [
        Placed(0, 0, 10),
        Placed(0, 10, 20),
        Placed(0, 25, 30),
    ]


def test_slices_at_once_get_lanes_of_their_own_and_the_first_free_one_is_taken_again() -> None:
    lanes = TraceLanes({})
    placed = [lanes.beside(*times) for times in [(0, 100), (50, 80), (60, 200), (90, 120), (300, 310)]]
    assert [one.lane for one in placed if one] == [0, 1, 2, 1, 0]


def test_an_overlap_of_a_microsecond_is_rounding() -> None:
    lanes = TraceLanes({})
    assert [lanes.beside(0, 10), lanes.beside(9, 20)] == [Placed(0, 0, 10), Placed(0, 10, 20)]
    assert lanes.beside(18, 30) == Placed(1, 18, 30)


def test_beyond_the_most_lanes_a_slice_has_no_place() -> None:
    lanes = TraceLanes({}, most=2)
    assert [lanes.beside(0, 9), lanes.beside(1, 9), lanes.beside(2, 9), lanes.beside(9, 10)] == [
        Placed(0, 0, 9),
        Placed(1, 1, 9),
        None,
        Placed(0, 9, 10),
    ]


def test_a_child_is_inside_its_parent_and_a_child_beside_another_is_not() -> None:
    lanes = TraceLanes({})
    lanes.beside(0, 100, "parent")
    assert lanes.inside(0, "parent", 10, 50, "first") == Placed(0, 10, 50)
    assert lanes.inside(0, "parent", 20, 30, "second") is None
    assert lanes.inside(0, "first", 20, 30, "within the first") == Placed(0, 20, 30)
    assert lanes.inside(0, "parent", 49, 60, "third") == Placed(0, 50, 60)
    assert lanes.inside(0, "parent", 70, 101, "a rounded end") == Placed(0, 70, 100)


def test_a_child_that_outlives_its_parent_or_ran_on_another_thread_is_not_inside() -> None:
    lanes = TraceLanes({})
    lanes.beside(0, 100, "parent", thread=1)
    assert lanes.inside(0, "parent", 10, 150, "longer", 1) is None
    assert lanes.inside(0, "parent", 10, 50, "elsewhere", 2) is None
    assert lanes.inside(0, "parent", 10, 50, "unknown where", None) == Placed(0, 10, 50)


def test_what_is_over_is_forgotten() -> None:
    open_spans: dict[str, tuple[TraceLanes, int]] = {}
    lanes = TraceLanes(open_spans)
    for n in range(1000):
        lanes.beside(10 * n, 10 * n + 9, f"span {n}")
        lanes.inside(0, f"span {n}", 10 * n + 1, 10 * n + 2, f"inside {n}")
    assert set(open_spans) == {"span 999", "inside 999"}


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60), st.integers(-1, 12)), max_size=40))
def test_whatever_comes_no_lane_has_an_overlap_and_nothing_moves_by_more_than_rounding(
    items: list[tuple[int, int, int]],
) -> None:
    open_spans: dict[str, tuple[TraceLanes, int]] = {}
    lanes = TraceLanes(open_spans)
    drawn: dict[int, list[tuple[int, int, str, str]]] = {}
    for n, (since, lasts, of) in enumerate(sorted(items, key=lambda item: (item[0], -item[1]))):
        parent = f"s{of}"
        placed = None
        if parent in open_spans:
            placed = lanes.inside(open_spans[parent][1], parent, since, since + lasts, f"s{n}")
        if placed is None:
            placed, parent = lanes.beside(since, since + lasts, f"s{n}"), ""
        assert placed is not None
        assert abs(placed.since - since) <= 1
        assert abs(placed.until - (since + lasts)) <= 1
        drawn.setdefault(placed.lane, []).append((placed.since, placed.until, f"s{n}", parent))
    for slices in drawn.values():
        stack: list[tuple[int, int, str, str]] = []
        for one in slices:
            while stack and stack[-1][1] <= one[0]:
                stack.pop()
            assert not stack or (one[1] <= stack[-1][1] and one[3] == stack[-1][2]), (stack, one)
            stack.append(one)
