from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.show.document import FactsBlock, TableBlock, facts_block, table_block, table_lines
from flightlog.show.phrases import args_text, call_text, innermost, moment_text, money_text
from flightlog.show.terminal import Ink, clean, fit, pad, width_of

anything = st.text(st.characters(), max_size=40)


@given(anything)
def test_clean_text_has_no_control_or_invisible_character(text: str) -> None:
    shown = clean(text)
    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert clean(shown) == shown


@given(anything, st.integers(1, 50))
def test_fitted_text_is_never_wider_than_it_may_be(text: str, width: int) -> None:
    assert width_of(fit(clean(text), width)) <= width


@given(anything, st.integers(0, 50))
def test_padded_text_is_at_least_as_wide_as_asked(text: str, width: int) -> None:
    assert width_of(pad(clean(text), width)) == max(width, width_of(clean(text)))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\u202eevil", "\\u202eevil"),
        ("\ud800", "\\ud800"),
        ("größe 東京", "größe 東京"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
    ],
)
def test_what_would_act_on_a_terminal_is_spelled_out(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_wide_characters_take_two_columns_and_combining_ones_none() -> None:
    assert [width_of("東京"), width_of("e\u0301"), width_of("abc")] == [4, 1, 3]


def test_plain_ink_leaves_text_as_it_is() -> None:
    assert Ink(False)("bad", "x") == "x"
    assert Ink(True)("bad", "x") == "\x1b[31mx\x1b[0m"


def test_a_table_cuts_its_first_column_and_drops_columns_without_a_word() -> None:
    rows = [("a very long name of a task", "1", "", "w1"), ("東京", "20", "", "worker-2")]
    assert table_lines(
        TableBlock(("Name", "Done", "Failed", "Worker"), rows, left=("Worker",)), width=35, ink=Ink(False)
    ) == [
        "  Name               Done  Worker",
        "  a very long name…     1  w1",
        "  東京                 20  worker-2",
    ]


def test_arguments_read_as_in_a_call() -> None:
    assert args_text({"seed": 4, "name": "base", "grid": [1, 2], "none": None}) == (
        "seed=4, name=base, grid=[1,2], none=null"
    )
    assert call_text("sim", {}) == "sim()"
    assert call_text("sim", None) == "sim"


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        (0.0, "USD", "$0.00"),
        (1234.5, "EUR", "€1,234.50"),
        (0.0042, "USD", "$0.0042"),
        (3.0, "CHF", "3.00 CHF"),
        (None, None, "unknown"),
    ],
)
def test_money_is_written_with_its_currency(amount: float | None, currency: str | None, text: str) -> None:
    assert money_text(amount, currency) == text


def test_a_moment_is_written_to_the_second_in_utc() -> None:
    assert moment_text("2026-05-20T03:52:00.123456Z") == "2026-05-20 03:52:00 UTC"
    assert moment_text("soon") == "soon"
    assert moment_text(None) == "unknown"


def test_the_innermost_place_of_a_traceback_is_its_last_file_line() -> None:
    trace = (
        'Traceback:\n  File "a.py", line 1, in f\n    g()\n  File "b.py", line 2, in g\n    1/0\n'
        "ZeroDivisionError"
    )
    assert innermost(trace) == 'File "b.py", line 2, in g'
    assert innermost("killed by the kernel\n") == "killed by the kernel"
    assert innermost(None) == ""


def test_names_that_differ_at_their_ends_alone_are_cut_in_the_middle() -> None:
    rows = [(f"model.very_long.stage_{n:02}", "1") for n in range(2)]
    assert table_lines(TableBlock(("Name", "Done"), rows), width=20, ink=Ink(False)) == [
        "  Name          Done",
        "  model…age_00     1",
        "  model…age_01     1",
    ]


@pytest.mark.parametrize(
    ("of", "rows", "more"),
    [(None, 2, "and 1 more name"), (7, 2, "and 5 more names"), (2, 2, "")],
    ids=["counted", "of more than were given", "of as many as are shown"],
)
def test_a_table_shows_so_many_items_and_counts_the_rest(of: int | None, rows: int, more: str) -> None:
    items = [("a", None), ("b", None), ("c", None)]
    table = table_block(items, "key Name", limit=rows, of=of, rest="more name")
    assert (table.rows, table.more) == ([("a",), ("b",)], more)


def test_facts_without_a_value_are_left_out() -> None:
    assert facts_block([("Host", "node-1"), ("Error", "")]) == FactsBlock([("Host", "node-1")])
