"""Points in a terminal: each where it belongs, no row too wide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.show.plot import LevelLine, plot, scale_of
from flightlog.show.terminal import ascii_text, width_of


def test_points_stand_in_their_order_and_at_their_height():
    rows = plot([0.0, 1.0, 2.0, 3.0], width=8, height=4)
    assert [ascii_text(row) for row in rows] == ["  |    *", "2 +   *", "  | *", "0 +*", "  +-----"]


def test_eight_points_share_a_character():
    rows = plot([0.0, 1.0, 2.0, 3.0], width=5, height=1)
    assert rows == ["0 ┤⡠⠊", "  └──"]


def test_levels_stand_behind_the_points_and_marks_under_the_axis():
    rows = plot(
        [1.0] * 3 + [3.0] * 3,
        width=14,
        height=3,
        lines=[LevelLine(0, 2, 1.0), LevelLine(3, 5, 3.0)],
        marks=[3],
    )
    assert [ascii_text(row) for row in rows] == [
        "3 +      *-*-*",
        "2 +",
        "1 +*-*-*",
        "  +-----------",
        "         ^1",
    ]


def test_a_value_far_from_all_others_is_an_arrow():
    values = [1.0, 2.0] * 20 + [500.0]
    rows = plot(values, width=60, height=5)
    assert rows[0].endswith("↑")
    assert scale_of(values, []) == (1.0, 2.0)
    assert scale_of(values, [500.0]) == (1.0, 500.0)


def test_nothing_is_off_the_scale_where_nearly_all_values_are_the_same():
    assert scale_of([0.0] * 99 + [1.0], []) == (0.0, 1.0)


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 1e-300, 1e300, -1e308])
def test_one_value_has_a_range_around_it(value):
    low, high = scale_of([value], [])
    assert low < high
    assert low <= max(-1e300, min(1e300, value)) <= high


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=300),
    st.integers(1, 160),
    st.integers(1, 12),
    st.data(),
)
def test_any_values_fit_into_the_terminal(values, width, height, data):
    marks = sorted(data.draw(st.sets(st.sampled_from(range(len(values))), max_size=5))) if values else []
    rows = plot(values, width=width, height=height, marks=marks)
    assert len(rows) == height + 1 + bool(marks)
    margin = rows[height].index("└") + 1
    assert max(map(width_of, rows)) <= max(width, margin + 1)
    assert all(ascii_text(row).isascii() for row in rows)
    assert max(map(width_of, map(ascii_text, rows))) == max(map(width_of, rows))


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60))
def test_every_value_is_drawn(values):
    """With a column for each, every value is a sign in its own column."""
    drawn = plot(values, width=3 + 3 * len(values), height=10)
    rows = [ascii_text(row) for row in drawn]
    signs = [
        sum(row[at : at + 1] in {"*", "^", "v"} for row in rows[:10]) for at in range(2, 3 + 3 * len(values))
    ]
    assert sum(signs) == len(values)
    assert set(signs) <= {0, 1}
