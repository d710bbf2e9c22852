"""Results with their texts cut."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from flightlog.show.bounded import bounded, cut
from flightlog.store.read.events import Completeness

VALUES = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=30), inner, max_size=4),
    max_leaves=20,
)


class Inner(Struct, frozen=True):
    name: str
    by_name: dict[str, int]


class Pair(NamedTuple):
    left: str
    right: int


@given(VALUES)
def test_what_is_short_is_handed_back_itself(value: Any) -> None:
    assert bounded(value, 30) is value


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (key, *texts(item))]
    return [text for item in value for text in texts(item)] if isinstance(value, list) else []


@given(VALUES)
def test_no_text_stays_longer_than_asked_and_nothing_else_changes(value: Any) -> None:
    found = bounded(value, 4, lines=1)
    assert all(len(text) <= 4 + len("… (26 more characters) [4]") for text in texts(found))
    assert len(texts(found)) == len(texts(value))
    assert bounded([1, 2.5, None, True], 4) == [1, 2.5, None, True]


def test_results_of_every_kind_are_gone_through():
    long = "x" * 20
    short = "xxxx… (16 more characters)"
    assert bounded(Inner(long, {long: 1}), 4) == Inner(short, {short: 1})
    assert bounded((Pair(long, 1), 2), 4) == (Pair(short, 1), 2)
    whole = Completeness(
        lines=1,
        lost={},
        torn=0,
        foreign=0,
        oversized=0,
        doubled=0,
        unknown=0,
        unnumbered=0,
        writers=1,
        writers_open=0,
        problems=(long,),
    )
    assert bounded(whole, 4).problems == (short,)
    assert bounded(whole, 4).lines == 1


def test_names_that_begin_alike_stay_apart():
    assert bounded({"aaaaaa1": 1, "aaaaaa2": 2, "aaaaaa3": 3}, 3) == {
        "aaa… (4 more characters)": 1,
        "aaa… (4 more characters) [2]": 2,
        "aaa… (4 more characters) [3]": 3,
    }


def test_a_text_of_lines_keeps_its_end():
    assert bounded("a\nb\nc", 4, lines=2) == "a\nb\nc"
    assert bounded("ab\ncd\nef\ngh", 4, lines=1) == "… (7 characters before)\nf\ngh"


def test_cutting_says_how_much_is_left():
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "abc… (1 more characters)"
