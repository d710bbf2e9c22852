"""Counts, cut texts, single lines and names of signals."""

from __future__ import annotations

from flightlog.core.text import (
    base_name,
    cut,
    cut_end,
    first_line,
    first_sentences,
    last_line,
    listed,
    natural_key,
    plural,
    signal_name,
)


def test_a_count_has_its_noun_in_the_right_number():
    assert plural(1, "task") == "1 task"
    assert plural(2000, "task") == "2,000 tasks"
    assert plural(0, "process", "processes") == "0 processes"


def test_parts_are_listed_with_commas_and_one_and():
    assert [listed(["a", "b", "c"][:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_a_long_text_is_cut_to_the_limit_and_says_so():
    assert (cut("abcdef", 6), cut("abcdef", 4)) == ("abcdef", "abc…")
    assert (cut_end("abcdef", 6), cut_end("abcdef", 4), cut_end(None, 4)) == ("abcdef", "…def", None)


def test_the_first_and_the_last_line_are_those_that_are_not_blank():
    assert (first_line("\n one \ntwo\n"), last_line("\n one \n two\n\n")) == ("one", "two")
    assert (first_line(None), last_line(None), first_line(" \n")) == ("", "", "")
    assert first_line("\nabcdef\nghi", 4) == "abc…"


def test_a_long_line_ends_with_a_sentence_where_that_leaves_half_of_it():
    text = "Out of memory. Tried to allocate 11.00 GiB. GPU 0 has 139 GiB, of which 7 are free.\nmore"
    assert first_sentences(text, 60) == "Out of memory. Tried to allocate 11.00 GiB."
    assert first_sentences(text, 43) == "Out of memory. Tried to allocate 11.00 GiB."
    assert first_sentences(text, 200) == text.removesuffix("\nmore")
    assert first_sentences("No. One long sentence without an end", 20) == "No. One long senten…"
    assert (first_sentences(None, 20), first_sentences("short", 20)) == ("", "short")


def test_signals_have_names_or_numbers():
    assert (signal_name(9), signal_name(63)) == ("SIGKILL", "SIG63")


def test_a_tasks_name_loses_the_index_of_one_of_many() -> None:
    names = ("sim[3]", "sim", "a[1][2]", "[3]", "sim[]", "sim[x]y")
    assert [base_name(name) for name in names] == ["sim", "sim", "a[1]", "[3]", "sim", "sim[x]y"]


def test_numbers_in_names_sort_by_their_value_whatever_else_stands_there():
    names = ["worker-10", "worker-2", "worker", "²", "7" * 5000, ""]
    assert sorted(names, key=natural_key) == ["", "7" * 5000, "worker", "worker-2", "worker-10", "²"]
