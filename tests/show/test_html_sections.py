"""Sections of a report as HTML."""

from __future__ import annotations

from builders.html_pages import Page

from flightlog.show.document import FactsBlock, Item, Items, Remarks, Section, TableBlock
from flightlog.show.html.blocks import PAGE, blocks_of
from flightlog.show.html.elements import html_text


def read(*blocks: FactsBlock | TableBlock | Items | Remarks, note: str = "") -> Page:
    return Page(html_text(blocks_of(Section("Title", note, blocks))))


def test_facts_are_a_list_of_terms():
    page = read(FactsBlock([("Host", "<b>node</b>"), ("Concurrency", "▁▃ █▇ 2 at most")]), note="a note")
    assert [one.text for one in page.all("dt")] == ["Host", "Concurrency"]
    assert [one.text for one in page.all("dd")] == ["<b>node</b>", "2 at most"]
    assert page.all("p")[0].text == "a note"


def test_a_table_says_what_its_columns_and_rows_are_and_leaves_out_empty_ones():
    table = TableBlock(
        ("Name", "Share", "Empty", "Where", ""),
        [("a", "10%", "", "x", "██"), ("  b", "5%", "", "y", "█")],
        left=("Where",),
        more="and 3 more",
    )
    page = read(table)
    heads = [(one.text, one.attributes.get("scope"), one.attributes.get("class")) for one in page.all("th")]
    assert heads == [
        ("Name", "col", None),
        ("Share", "col", "number"),
        ("Where", "col", None),
        ("a", "row", None),
        ("b", "row", "in-1"),
    ]
    assert [(one.text, one.attributes.get("class")) for one in page.all("td")] == [
        ("10%", "number"),
        ("x", None),
        ("5%", "number"),
        ("y", None),
    ]
    assert page.all("p")[0].text == "… and 3 more"


def test_a_table_scrolls_by_itself_and_the_keyboard_reaches_it():
    [box] = [one for one in read(TableBlock(("A",), [("x",)])).all("div") if one.has_class("scroll")]
    assert (box.attributes["tabindex"], box.attributes["role"]) == ("0", "group")
    assert box.attributes["aria-label"] == "Table: A"


def test_of_a_long_table_the_rest_is_counted_and_of_a_long_cell_too():
    page = read(TableBlock(("Name",), [("x" * 1000,), *[("y",)] * 300]))
    assert len(page.all("tr")) == PAGE.rows + 1
    assert page.all("p")[0].text == "… and 101 more rows"
    assert page.all("th")[1].text == f"{'x' * 160}… (840 more characters)"


def test_a_row_without_a_name_says_so():
    assert read(TableBlock(("Name", "N"), [("", "1")])).all("th")[2].text == "(no name)"


def test_items_and_remarks_are_lists():
    page = read(
        Items([Item("failed", ["in a", ""], mark="3x ", style="bad")], "more"),
        Remarks(["one", "two"], "and 1 more"),
    )
    assert [one.text for one in page.all("li")] == ["3x failedin a", "one", "two"]
    assert [one.text for one in page.all("p")] == ["… more", "… and 1 more"]
    assert page.all("span")[0].has_class("bad")


def test_commands_in_remarks_are_code():
    page = read(Remarks(["`flightlog devices` explains <b>it</b>"]))
    assert [one.text for one in page.all("code")] == ["flightlog devices"]
    assert [one.text for one in page.all("li")] == ["flightlog devices explains <b>it</b>"]
