from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from flightlog.show.document import cell_text, json_value, rows_text
from flightlog.show.terminal import width_of


def test_numbers_stand_right_and_texts_left():
    assert rows_text(["task", "n", "mean_s"], [["sim", 12, 0.0135689123], ["fit_all", 3, None]]) == (
        "task      n     mean_s\nsim      12  0.0135689\nfit_all   3       NULL\n"
    )


def test_texts_are_cut_where_the_terminal_ends_and_numbers_are_not():
    text = rows_text(["args", "duration_s"], [['{"scenario_id":202,"r0":1.9}', 0.115652]], width=30)
    assert text == 'args                duration_s\n{"scenario_id":20…    0.115652\n'


def test_rows_too_wide_for_columns_are_blocks_of_one_value_a_line():
    names = [f"column_{n}" for n in range(4)]
    assert rows_text(names, [[1, "a" * 40, None, 2.5], [2, "b", True, 1e-9]], width=32) == (
        "column_0  1\n"
        "column_1  aaaaaaaaaaaaaaaaaaaaa…\n"
        "column_2  NULL\n"
        "column_3  2.5\n"
        "\n"
        "column_0  2\n"
        "column_1  b\n"
        "column_2  true\n"
        "column_3  1e-09\n"
    )


def test_no_rows_are_the_names_alone():
    assert rows_text(["a", "b"], []) == "a  b\n"


def test_nothing_that_was_recorded_moves_the_cursor():
    assert rows_text(["a\x1b"], [["x\n\x1b[31m"]]) == "a\\x1b\nx\\n\\x1b[31m\n"


def test_values_of_every_kind_are_one_line():
    assert [
        cell_text(value)
        for value in (
            None,
            True,
            3,
            0.1 + 0.2,
            float("inf"),
            datetime(2026, 5, 20, 3, 52),
            datetime(2026, 5, 20, 3, 52, 0, 5000),
            [1, "a"],
            {"k": None},
            Decimal(7),
        )
    ] == [
        "NULL",
        "true",
        "3",
        "0.3",
        "inf",
        "2026-05-20 03:52:00",
        "2026-05-20 03:52:00.005",
        "[1, a]",
        "{k: NULL}",
        "7",
    ]


def test_values_for_other_programs_are_as_events_write_them():
    assert [
        json_value(value)
        for value in (
            None,
            float("nan"),
            datetime(2026, 5, 20, 3, 52),
            date(2026, 5, 20),
            Decimal(7),
            Decimal("0.5"),
            timedelta(seconds=2),
            [float("inf")],
            {1: Decimal(1)},
            b"x",
        )
    ] == [None, None, "2026-05-20T03:52:00.000000Z", "2026-05-20", 7, 0.5, 2.0, [None], {"1": 1}, "b'x'"]


@given(
    st.lists(st.text(max_size=12), min_size=1, max_size=6).flatmap(
        lambda names: st.tuples(
            st.just(names),
            st.lists(
                st.lists(
                    st.text(max_size=30) | st.integers() | st.none(), min_size=len(names), max_size=len(names)
                )
            ),
        )
    ),
    st.integers(60, 120),
)
def test_lines_stay_within_the_terminal_while_names_and_numbers_leave_room(table, width):
    names, rows = table
    lines = rows_text(names, rows, width=width).splitlines()
    numbers = any(isinstance(value, int) and len(str(value)) > width - 20 for row in rows for value in row)
    assert numbers or all(width_of(line) <= width for line in lines)
