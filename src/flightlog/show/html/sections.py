"""A report's sections as HTML: the same facts, tables, items and remarks that stand in its text."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.show.document import Facts, Items, Remarks, Section, Table
from flightlog.show.html.elements import Child, Element, coded, said, tag

ROWS = 200
"""Rows of a table that a page shows."""
CELL = 160
"""Characters of a cell."""
_BLOCKS = "▁▂▃▄▅▆▇█"


def blocks_of(section: Section) -> list[Element]:
    """What is in a section, without its title; its note first."""
    note = [tag("p", _words(section.note), class_="note")] if section.note else []
    return [*note, *(element for block in section.blocks for element in block_of(block))]


def block_of(block: Facts | Table | Items | Remarks) -> Iterable[Element]:
    """One block, and below it how much is not shown."""
    match block:
        case Facts(pairs):
            yield tag(
                "dl",
                (tag("div", tag("dt", said(label)), tag("dd", _words(value))) for label, value in pairs),
                class_="facts",
            )
        case Table():
            yield from table_of(block)
        case Items(items, more):
            yield tag(
                "ul",
                (
                    tag(
                        "li",
                        tag("span", said(item.mark + item.text), class_=item.style or None),
                        (tag("span", said(line), class_="below") for line in item.below if line),
                    )
                    for item in items
                ),
                class_="items",
            )
            yield from _more(more)
        case Remarks(sentences, more):
            yield tag("ul", (tag("li", coded(said(text, 2000))) for text in sentences), class_="remarks")
            yield from _more(more)


def table_of(table: Table, caption: str = "", *, most: int = ROWS) -> Iterable[Element]:
    """A table in a box that scrolls by itself where it is wider than the page; bars of text and empty columns
    are left out.

    Of more than `most` rows, the rest is counted.
    """
    head, rows = table.head, table.rows[:most]
    shown = [n for n in range(len(head)) if n == 0 or (head[n] and any(row[n] for row in rows))]
    left = {n for n in shown if n == 0 or head[n] in table.left}

    def cell(kind: str, n: int, text: str, **more: str) -> Element:
        return tag(kind, said(text, CELL), class_=None if n in left else "number", **more)

    yield tag(
        "div",
        tag(
            "table",
            tag("caption", caption) if caption else None,
            tag("thead", tag("tr", (cell("th", n, head[n], scope="col") for n in shown))),
            tag(
                "tbody",
                (
                    tag("tr", (_first(row[0]) if n == 0 else cell("td", n, row[n]) for n in shown))
                    for row in rows
                ),
            ),
        ),
        class_="scroll",
        tabindex="0",
        role="group",
        aria_label=caption or f"Table: {', '.join(said(head[n], CELL) for n in shown if head[n])}",
    )
    left_out = len(table.rows) - len(rows)
    yield from _more(table.more or (f"and {left_out:,} more rows" if left_out else ""))


def _first(text: str) -> Element:
    """A row's name; one that is indented, such as a span inside another, stays so."""
    depth = min(12, (len(text) - len(text.lstrip(" "))) // 2)
    return tag(
        "th", said(text.strip(), CELL) or "(no name)", scope="row", class_=f"in-{depth}" if depth else None
    )


def _words(text: str) -> Child:
    """A value in words; a line of blocks before them is for terminals, and drawn better elsewhere on the
    page.
    """
    return said(text.lstrip(f"{_BLOCKS} ") if text[:1] in {*_BLOCKS, " "} else text, 2000)


def _more(text: str) -> Iterable[Element]:
    if text:
        yield tag("p", f"… {said(text)}", class_="more")
