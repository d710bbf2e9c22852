"""Small plots: what is drawn where, and never too wide or too high."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.charts.results import Chart, ChartSeries
from flightlog.show.plot import (
    area,
    at_even_times,
    half,
    levels_line,
    plot_over_time,
    side_by_side,
    spread,
    summed,
)
from flightlog.show.terminal import ascii_text, width_of


def whole(value: float) -> str:
    return f"{value:.0f}"


def chart(unit: str, *series: ChartSeries) -> Chart:
    return Chart(since="", length_s=10.0, unit=unit, series=list(series), notes=[])


def test_what_is_under_the_line_is_filled() -> None:
    rows = area([0.0, 1.0, 2.0, 4.0], columns=4, height=4, top=4.0).rows()
    assert [ascii_text(row) for row in rows] == [
        "   #",
        "   #",
        "  ##",
        " ###",
    ]


def test_eight_dots_share_a_character() -> None:
    assert area([0.0, 1.0, 2.0, 4.0], columns=2, height=1, top=4.0).rows() == ["⢀⣼"]


def test_a_little_is_more_than_nothing_and_what_is_unknown_is_nothing() -> None:
    [row] = area([0.001, None, 0.0], columns=3, height=1, top=100.0).rows()
    assert (row, ascii_text(row)) == ("⣀  ", "#  ")


def test_of_values_that_share_a_column_the_highest_is_drawn() -> None:
    assert spread([1.0, 9.0, None, None, 2.0, 3.0], 3) == [9.0, None, 3.0]
    assert spread([1.0, 2.0], 4) == [1.0, 1.0, 2.0, 2.0]


def test_a_plot_has_a_title_an_axis_and_the_time() -> None:
    rows = plot_over_time("Load", [1.0, 2.0], length_s=90.0, label=whole, width=20, height=2)
    assert [ascii_text(row) for row in rows] == [
        "Load",
        "2 +        #########",
        "0 +#################",
        "  +0s ------- 1m 30s",
    ]


def test_nothing_known_is_no_plot() -> None:
    assert plot_over_time("Load", [None], length_s=1.0, label=whole, width=20) == []


def test_between_two_samples_the_former_holds_and_after_the_last_nothing_is_known() -> None:
    series = ChartSeries(label="", at_s=[0.0, 4.0, 6.0], value=[1.0, 3.0, None])
    assert at_even_times(series.at_s, series.value, 10.0, 5) == [1.0, 1.0, 3.0, None, None]


def test_bytes_add_up_and_percentages_do_not() -> None:
    both = [ChartSeries(label=str(n), at_s=[0.0], value=[float(n)]) for n in (10, 30)]
    assert summed(chart("bytes", *both), 1) == [40.0]
    assert summed(chart("percent", *both), 1) == [20.0]
    assert summed(chart("bytes"), 4) == []


def test_a_line_of_levels_has_the_highest_full() -> None:
    assert levels_line([0.0, 1.0, 8.0]) == " ▂█"
    assert ascii_text(levels_line([0.0, 1.0, 8.0])) == " :#"
    assert levels_line([0.0, 0.0]) == "  "


def test_blocks_stand_two_in_a_row() -> None:
    assert side_by_side([["a", "b"], [], ["c"], ["d"]], width=9) == ["a     c", "b", "", "d"]


values = st.lists(st.none() | st.floats(0, 1e300), max_size=200)


@given(values, st.integers(10, 160), st.integers(1, 6))
def test_any_values_fit_into_their_place(found, width, height) -> None:
    rows = plot_over_time("t" * 300, found, length_s=5.0, label=lambda _: "x", width=width, height=height)
    assert len(rows) in {0, height + 2}
    assert max(map(width_of, rows), default=0) <= width
    assert all(ascii_text(row).isascii() for row in rows[1:])


@given(st.integers(60, 200))
def test_two_halves_and_the_gap_fit_into_the_width(width) -> None:
    assert 2 * half(width) + 3 <= width
