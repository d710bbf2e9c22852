"""Blocks of a report or display as HTML elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flightlog.show import document
from flightlog.show.document import Block, Section, TableBlock
from flightlog.show.html.elements import Child, Element, coded, said, tag
from flightlog.show.limits import HtmlLimits
from flightlog.show.plot import BLOCKS


class Limits(NamedTuple):
    """How much is shown of a block; the rest is counted."""

    rows: int
    """Of a table, and items of a list."""
    cell: int
    """Characters."""
    drawings: bool = False
    """Whether bars and curves made of text are shown: where there are no figures."""


PAGE = Limits(rows=200, cell=160)


def sections_of(sections: Iterable[Section], limits: Limits = PAGE) -> list[Element]:
    """The sections that say something, each under a small heading with its note."""
    found: list[Element] = []
    for one in sections:
        if one.says_something():
            title = f"{said(one.title)}:" if one.title else ""
            note = tag("span", f" {said(one.note, 2000)}", class_="beside") if one.note else None
            found += [tag("h3", title, note), *blocks_of(one._replace(note=""), limits)]
    return found


def blocks_of(section: Section, limits: Limits = PAGE) -> list[Element]:
    """What is in a section, without its title; its note first."""
    note = [tag("p", _words(section.note, limits), class_="note")] if section.note else []
    return [*note, *(element for block in section.shown for element in block_of(block, limits))]


def block_of(block: Block, limits: Limits = PAGE) -> Iterable[Element]:
    """One block, and below it how much is not shown."""
    match block:
        case document.StatusLine(words, style):
            first, *rest = [said(word) for word in words]
            status = tag("b", first, class_=style) if style else first
            yield tag("div", status, [f" · {word}" for word in rest], class_="headline")
        case document.Paragraph(text, style):
            yield tag("p", coded(text), class_=style or None)
        case document.Bar():
            yield from _bar(block)
        case document.Verbatim(text):
            most = HtmlLimits.max_verbatim_text
            yield tag("pre", text if len(text) <= most else f"{text[:most]}\n… cut")
        case document.Folded(title, sections):
            yield tag("details", tag("summary", title), sections_of(sections, limits))
        case document.FactsBlock(pairs):
            yield _facts((label, _words(value, limits)) for label, value in pairs)
        case document.Labelled(pairs):
            yield _facts((label, _lines(texts, limits)) for label, texts in pairs if texts)
        case TableBlock():
            yield from table_of(block, limits=limits)
        case document.Items(items, more):
            yield tag("ul", map(_item, items[: limits.rows]), class_="items")
            yield from _more(more or _left(len(items), limits, "items"))
        case document.Remarks(sentences, more):
            yield tag("ul", (tag("li", coded(said(text, 2000))) for text in sentences), class_="remarks")
            yield from _more(more)


def _item(item: document.Item) -> Element:
    below = (tag("span", said(line), class_="below") for line in item.below if line)
    return tag("li", tag("span", said(item.mark + item.text), class_=item.style or None), below)


def table_of(table: TableBlock, caption: str = "", *, limits: Limits = PAGE) -> Iterable[Element]:
    """A table in a box that scrolls by itself where it is wider than the page; empty columns are left out,
    and bars of text where there are figures.
    """
    head, rows = table.head, table.rows[: limits.rows]
    named = [bool(title) or limits.drawings for title in head]
    shown = [n for n in range(len(head)) if n == 0 or (named[n] and any(row[n] for row in rows))]
    left = {n for n in shown if n == 0 or head[n] in table.left}

    def cell(kind: str, n: int, text: str, **more: str) -> Element:
        return tag(kind, said(text, limits.cell), class_=None if n in left else "number", **more)

    titles = tag("tr", (cell("th", n, head[n], scope="col") for n in shown))
    cells = [[_first(row[0], limits), *(cell("td", n, row[n]) for n in shown[1:])] for row in rows]
    made = tag(
        "table",
        tag("caption", caption) if caption else None,
        tag("thead", titles),
        tag("tbody", (tag("tr", row) for row in cells)),
    )
    named_by = caption or f"Table: {', '.join(said(head[n], limits.cell) for n in shown if head[n])}"
    yield tag("div", made, class_="scroll", tabindex="0", role="group", aria_label=named_by)
    yield from _more(table.more or _left(len(table.rows), limits, "rows"))


def _first(text: str, limits: Limits) -> Element:
    """A row's name; one that is indented, such as a span inside another, stays so."""
    depth = min(12, (len(text) - len(text.lstrip(" "))) // 2)
    name = said(text.strip(), limits.cell) or "(no name)"
    return tag("th", name, scope="row", class_=f"in-{depth}" if depth else None)


def _facts(pairs: Iterable[tuple[str, Child]]) -> Element:
    rows = (tag("div", tag("dt", said(label)), tag("dd", value)) for label, value in pairs)
    return tag("dl", rows, class_="facts")


def _words(text: str, limits: Limits) -> Child:
    """A value, without the sparkline before it where there are figures."""
    drawn = not limits.drawings and text[:1] in {*BLOCKS, " "}
    return said(text.lstrip(f"{BLOCKS} ") if drawn else text, 2000)


def _lines(texts: Sequence[str], limits: Limits) -> Iterable[Element]:
    for text in texts[: limits.rows]:
        yield tag("p", coded(text, 1000))
    yield from _more(_left(len(texts), limits, "lines"))


def _bar(bar: document.Bar) -> Iterable[Element]:
    """A bar of shares, with their labels below it; nothing where there is nothing to share."""
    whole = sum(part.amount for part in bar.parts) if bar.total is None else bar.total
    if whole > 0 and bar.shown:
        stretches = (
            tag("div", style=f"width:{100 * part.amount / whole:.2f}%", class_=f"stretch is-{part.style}")
            for part in bar.shown
        )
        labels = (
            tag("span", tag("span", "■", class_=part.style), f" {said(part.label)}", class_="label")
            for part in bar.shown
        )
        yield tag("div", stretches, class_="bar")
        yield tag("div", labels, class_="labels")


def _left(count: int, limits: Limits, what: str) -> str:
    return f"and {count - limits.rows:,} more {what}" if count > limits.rows else ""


def _more(text: str) -> Iterable[Element]:
    if text:
        yield tag("p", f"… {said(text)}", class_="more")
