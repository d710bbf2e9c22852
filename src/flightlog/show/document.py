"""What a report consists of, before it is text: sections of facts, tables, items and remarks, and their
text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from flightlog.show.table import facts, table
from flightlog.show.terminal import Ink, clean, fit, wrap


class Facts(NamedTuple):
    """Labels and values; the values are clean, and may be painted."""

    pairs: Sequence[tuple[str, str]]


class Table(NamedTuple):
    """Rows in columns; the first column and those in `left` stand left, numbers right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Collection[str] = ()
    more: str = ""
    """What stands below: how much is not shown."""


class Item(NamedTuple):
    """A line with others below it that say more; all are cut to the width."""

    text: str
    below: Sequence[str] = ()
    mark: str = ""
    """What stands before the text, such as how often."""
    style: str = ""


class Items(NamedTuple):
    """Several items."""

    items: Sequence[Item]
    more: str = ""


class Remarks(NamedTuple):
    """Sentences, wrapped and never cut."""

    sentences: Sequence[str]
    more: str = ""


class Section(NamedTuple):
    """One section; the note stands beside the title. Without a note or block it says nothing, and is left
    out.
    """

    title: str
    note: str = ""
    blocks: Sequence[Facts | Table | Items | Remarks] = ()

    def says_something(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.note or self.blocks)


def section_text(section: Section, *, width: int, ink: Ink) -> str:
    """The section as lines of text."""
    lines = [f"{ink('head', f'{section.title}:')} {section.note}".rstrip()]
    for block in section.blocks:
        lines += _block(block, width, ink)
    return "\n".join(lines)


def _block(block: Facts | Table | Items | Remarks, width: int, ink: Ink) -> list[str]:
    match block:
        case Facts(pairs):
            return facts(pairs, ink=ink)
        case Table(head, rows, left, more):
            return table(head, rows, width=width, ink=ink, left=left) + _more(more)
        case Items(items, more):
            return [line for item in items for line in _item(item, width, ink)] + _more(more)
        case Remarks(sentences, more):
            lines = (wrap(clean(text), width, first="  - ", rest="    ") for text in sentences)
            return [line for wrapped in lines for line in wrapped] + _more(more)


def _item(item: Item, width: int, ink: Ink) -> list[str]:
    first = fit(clean(item.text), max(20, width - 2 - len(item.mark)))
    below = [fit(f"      {clean(text)}", width) for text in item.below if text]
    return [f"  {item.mark}{ink(item.style, first) if item.style else first}", *below]


def _more(text: str) -> list[str]:
    return [f"  … {text}"] if text else []
