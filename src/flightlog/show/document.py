"""The block model of reports and displays, as text for terminals and as Markdown; `show.html.blocks` writes
it as HTML.

Text that a run recorded is never markup.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from flightlog.core.text import plural
from flightlog.show.limits import TextLimits
from flightlog.show.phrases import figure_text
from flightlog.show.terminal import Ink, brief, clean, cut_middle, fit, pad, width_of, wrap


class FactsBlock(NamedTuple):
    """Labels and values; the values are clean, and may be painted."""

    pairs: Sequence[tuple[str, str]]


def facts_block(pairs: Iterable[tuple[str, str]]) -> FactsBlock:
    """The pairs that have a value."""
    return FactsBlock([(label, value) for label, value in pairs if value])


class Labelled(NamedTuple):
    """Labels with texts beside them, one below the other, wrapped and never cut."""

    pairs: Sequence[tuple[str, Sequence[str]]]


class TableBlock(NamedTuple):
    """Rows in columns; the first column and those in `left` are left-aligned, others right-aligned."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Collection[str] = ()
    more: str = ""
    """The line below the rows: how much is not shown."""
    dispensable: Sequence[str] = ()
    """Columns that are left out, in this order, where lines of text would be too wide."""
    name_end: int = 0
    """Characters at the end of the first column that stay where it is cut."""


def table_block(
    items: Iterable[Any],
    columns: str,
    *,
    more: str = "",
    rest: str = "",
    limit: int | None = None,
    of: int | None = None,
    dispensable: Sequence[str] = (),
    **computed: Callable[[Any], str],
) -> TableBlock:
    """A row for each item. `columns` are a field and a title each: `name Name, cpu_s CPU`; the column of a
    title that begins with `<` is left-aligned.

    A field may be a path; how its value is written follows from the path, as in `figure_text`, or from what
    stands after a colon: `p50:_s p50`, `start:moment Started`, `cpus:.2g CPUs`. What is None is left blank,
    and called unknown with `!` at the end; with `?`, 0 is left blank, too. Where items are pairs of a key and
    a value, such as those of a mapping, `key` is the key, and all other paths are those of the value. Names
    in `computed` are not fields: these are given the item. At most `limit` items are shown; `rest` is what
    the others are called, of which there are `of` in all, by default as many as items.
    """
    found = list(items)
    shown = found[:limit]
    left_out = (len(found) if of is None else of) - len(shown)
    fields, titles = zip(*(column.split(" ", 1) for column in columns.split(", ")), strict=True)
    return TableBlock(
        [title.removeprefix("<") for title in titles],
        [tuple(computed.get(field, partial(_field_text, field))(item) for field in fields) for item in shown],
        left=[title[1:] for title in titles if title.startswith("<")],
        more=rest_text(left_out, rest) if rest else more,
        dispensable=dispensable,
    )


def rest_text(number: int, what: str) -> str:
    """`and 3 more names`, or nothing."""
    return f"and {plural(number, what)}" if number > 0 else ""


def _field_text(field: str, item: Any) -> str:
    path, _, unit = field.rstrip("?!").partition(":")
    key, value = item if type(item) is tuple else (None, item)
    if key is not None and path == "key":
        return str(key)
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    if value is None:
        return "unknown" if field.endswith("!") else ""
    return "" if field.endswith("?") and not value else figure_text(unit or path, value)


class Item(NamedTuple):
    """A line with others below it that say more; all are cut to the width."""

    text: str
    below: Sequence[str] = ()
    mark: str = ""
    """Prefix of the text, such as a count."""
    style: str = ""


class Items(NamedTuple):
    """Several items."""

    items: Sequence[Item]
    more: str = ""


class Remarks(NamedTuple):
    """Sentences, wrapped and never cut."""

    sentences: Sequence[str]
    more: str = ""


class StatusLine(NamedTuple):
    """The answer, in a few words side by side; the first is a status where `style` is one of `STYLES`."""

    words: Sequence[str]
    style: str = ""


class Paragraph(NamedTuple):
    """A sentence of the package, with names and commands in backticks; wrapped and never cut."""

    text: str
    style: str = ""


class BarPart(NamedTuple):
    """One stretch of a bar."""

    label: str
    amount: float
    style: str


class Bar(NamedTuple):
    """Shares of a whole, by default of their sum, with their labels; parts of nothing are left out."""

    parts: Sequence[BarPart]
    total: float | None = None

    @property
    def shown(self) -> list[BarPart]:
        """The parts there are."""
        return [part for part in self.parts if part.amount > 0]


class Verbatim(NamedTuple):
    """Lines that stand as they are, such as a plot drawn with characters."""

    text: str


class Folded(NamedTuple):
    """Sections that open when their title is clicked; where nothing can be clicked, they are left out."""

    title: str
    sections: Sequence[Section]


class Section(NamedTuple):
    """One section, with its note beside the title; without a title, the note is a line of its own. Blocks of
    nothing are left out, and so is a section without a note and without such blocks.
    """

    title: str
    note: str = ""
    blocks: Sequence[Block] = ()

    @property
    def shown(self) -> list[Block]:
        """The blocks that are not of nothing."""
        return [one for one in self.blocks if one[1 if isinstance(one, TableBlock) else 0]]

    def says_something(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.note or self.shown)


Block = (
    FactsBlock | Labelled | TableBlock | Items | Remarks | StatusLine | Paragraph | Bar | Verbatim | Folded
)


def table_section(
    title: str, items: Iterable[Any], columns: str, *, note: str = "", **options: Any
) -> Section:
    """A section of one table; the options are those of `table_block`."""
    return Section(title, note, [table_block(items, columns, **options)])


def section_text(section: Section, *, width: int, ink: Ink, mark: str = ":") -> str:
    """The section as lines of text; `mark` stands after its title."""
    title = f"{section.title}{mark}" if section.title else ""
    head = f"{title} {section.note}".strip()
    first, *rest = [head] if width_of(head) <= width else wrap(head, width)
    lines = [first.replace(title, ink("head", title), 1) if title else first, *rest] if head else []
    for block in section.shown:
        lines += _block(block, width, ink)
    return "\n".join(lines)


def sections_text(sections: Sequence[Section], *, width: int, ink: Ink, mark: str = ":") -> list[str]:
    """The sections that say something, as lines of text each."""
    return [section_text(one, width=width, ink=ink, mark=mark) for one in sections if one.says_something()]


def document_text(
    sections: Sequence[Section], *, width: int, color: bool, mark: str = ":", title: str = ""
) -> str:
    """The lines of the title and the sections that say something, with empty lines between them; ends in a
    newline.
    """
    ink = Ink(color)
    lead = ["\n".join(ink("title", line) for line in title.splitlines())] if title else []
    return "\n\n".join([*lead, *sections_text(sections, width=width, ink=ink, mark=mark)]) + "\n"


def display_text(parts: Sequence[Section | Block], *, width: int) -> str:
    """Sections and blocks below each other, without colours."""
    ink, lines = Ink(False), list[str]()
    for part in parts:
        if not isinstance(part, Section):
            lines += _block(part, width, ink, indent="")
        elif part.says_something():
            lines.append(section_text(part, width=width, ink=ink))
    return "\n".join(lines)


def _block(block: Block, width: int, ink: Ink, indent: str = "  ") -> list[str]:
    match block:
        case FactsBlock(pairs):
            return facts(pairs, ink=ink, indent=indent)
        case Labelled(pairs):
            longest = max((width_of(label) for label, _ in pairs), default=0) + 1
            labelled = ((f"  {pad(f'{label}:', longest)}{GAP}", map(clean, texts)) for label, texts in pairs)
            return [line for label, texts in labelled for line in beside(label, texts, width, ink)]
        case TableBlock():
            return table_lines(block, width=width, ink=ink, indent=indent) + _more(block.more)
        case Items(items, more):
            return [line for item in items for line in _item(item, width, ink)] + _more(more)
        case Remarks(sentences, more):
            wrapped = (wrap(clean(text), width, first="  - ", rest="    ") for text in sentences)
            return [line for lines in wrapped for line in lines] + _more(more)
        case StatusLine(words):
            return wrap(" · ".join(map(brief, words)), width)
        case Paragraph(text):
            return [
                line
                for one in text.splitlines()
                for line in wrap(clean(one), width, first=indent, rest=indent)
            ]
        case Bar():
            said = ", ".join(part.label for part in block.shown)
            return [said] if said else []
        case Verbatim(text):
            return text.splitlines()
        case Folded():
            return []


def beside(label: str, texts: Iterable[str], width: int, ink: Ink, *, whole: bool = False) -> list[str]:
    """Clean texts below each other beside a label, wrapped unless they are to stay `whole`."""
    blanks = " " * width_of(label)
    lines = [
        line
        for text in texts
        for line in ([blanks + text] if whole else wrap(text, width, first=blanks, rest=blanks))
    ]
    return [ink("label", label) + lines[0][len(blanks) :], *lines[1:]] if lines else []


def _item(item: Item, width: int, ink: Ink) -> list[str]:
    first = fit(clean(item.text), max(20, width - 2 - len(item.mark)))
    below = [fit(f"      {clean(text)}", width) for text in item.below if text]
    return [f"  {item.mark}{ink(item.style, first) if item.style else first}", *below]


def _more(text: str) -> list[str]:
    return [f"  … {text}"] if text else []


GAP = "  "


def table_lines(table: TableBlock, *, width: int, ink: Ink, indent: str = "  ") -> list[str]:
    """Lines of a table. Where they would be wider than `width`, columns in `dispensable` are left out one by
    one, then the first column is cut: at the end, or before `name_end`, or in the middle where names would
    look the same without their ends.

    The first column and those in `left` are left-aligned, others right-aligned. Empty columns are left out.
    """
    columns = [[title, *(clean(row[n]) for row in table.rows)] for n, title in enumerate(table.head)]
    columns = [texts for n, texts in enumerate(columns) if n == 0 or any(texts[1:])]
    for name in ("", *table.dispensable):
        columns = [texts for texts in columns if texts[0] != name or not name]
        needed = [max(map(width_of, texts)) for texts in columns]
        if sum(needed) + len(GAP) * len(needed) <= width:
            break
    least = [table.name_end + 1 if table.name_end else 12, *needed[1:]]
    first, *_ = widths = column_widths(needed, least, width - len(GAP) * len(needed))
    names = set(columns[0][1:])
    alike = len({fit(name, first) for name in names}) < len(names)
    end = table.name_end or (first // 2 if alike else 0)
    columns[0] = [cut_middle(name, first, end) for name in columns[0]]
    right = [number > 0 and texts[0] not in table.left for number, texts in enumerate(columns)]
    head, *rows = aligned(zip(*columns, strict=True), widths, right)
    return [f"{indent}{ink('label', head)}", *(f"{indent}{row}".rstrip() for row in rows)]


def column_widths(needed: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths that fit into the room together, if the least ones do; the widest columns give way first."""
    widths = [min(width, max(low, room)) for width, low in zip(needed, least, strict=True)]
    while sum(widths) > room:
        loose = [n for n, width in enumerate(widths) if width > least[n]]
        if not loose:
            break
        widths[max(loose, key=lambda n: (widths[n], -needed[n]))] -= 1
    return widths


def aligned(rows: Iterable[Sequence[str]], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    """Lines of clean cells in columns of these widths, each cut and padded."""
    return [
        GAP.join(
            pad(fit(text, size), size, right=side)
            for text, size, side in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def facts(pairs: Sequence[tuple[str, str]], *, ink: Ink, indent: str = "  ") -> list[str]:
    """Lines of labels and values, the values unchanged and in one column."""
    longest = max((width_of(label) for label, _ in pairs), default=0) + 1
    labels = [ink("label", pad(f"{label}:", longest)) for label, _ in pairs]
    return [f"{indent}{label}{GAP}{value}".rstrip() for label, (_, value) in zip(labels, pairs, strict=True)]


def rows_text(
    names: Sequence[str], rows: Sequence[Sequence[Any]], *, width: int | None = None, color: bool = False
) -> str:
    """The rows under their column names. Numbers are right-aligned, with six digits; unknown values are
    `NULL`.

    Texts are cut where lines would be wider than `width`; where that is not enough, each row is a block with
    one value per line. Without `width` nothing is cut.
    """
    ink = Ink(color)
    heads = [clean(name) for name in names]
    cells = [[cell_text(value) for value in row] for row in rows]
    right = [_is_number_column([row[n] for row in rows]) for n in range(len(names))]
    widths = [max(map(width_of, column)) for column in zip(heads, *cells, strict=True)]
    if width is not None:
        low = TextLimits.min_column_width
        least = [
            have if number else min(have, max(low, min(width_of(head), 2 * low)))
            for have, number, head in zip(widths, right, heads, strict=True)
        ]
        room = width - len(GAP) * (len(widths) - 1)
        widths = column_widths(widths, least, room)
        if sum(widths) > room:
            return _blocks(heads, cells, width, ink)
    head, *lines = aligned([heads, *cells], widths, right)
    return "".join(f"{line}\n" for line in (ink("label", head), *lines))


def cell_text(value: Any) -> str:
    """One value on one line."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else str(value)
    if isinstance(value, datetime):
        text = value.isoformat(sep=" ", timespec="microseconds")
        return text.removesuffix("000").removesuffix(".000")
    if isinstance(value, list):
        return f"[{', '.join(cell_text(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{clean(str(name))}: {cell_text(item)}' for name, item in value.items())}}}"
    return clean(str(value))


def _is_number_column(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(
        isinstance(value, int | float | Decimal | timedelta) and not isinstance(value, bool)
        for value in known
    )


def _blocks(heads: Sequence[str], cells: Sequence[Sequence[str]], width: int, ink: Ink) -> str:
    """Each row as lines of a name and a value, with a blank line between rows."""
    longest = min(max(map(width_of, heads), default=0), width // 2)
    room = max(width - longest - len(GAP), TextLimits.min_column_width)
    labels = [ink("label", pad(fit(head, longest), longest)) for head in heads]
    return "\n".join(
        "".join(f"{label}{GAP}{fit(cell, room)}\n" for label, cell in zip(labels, row, strict=True))
        for row in cells
    )


def json_value(value: Any) -> Any:
    """A value as JSON and CSV have it: times as events write them, numbers as numbers, NaN as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat() if value.tzinfo else f"{value.isoformat(timespec='microseconds')}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, list):
        return [json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(name): json_value(item) for name, item in value.items()}
    if value is None or isinstance(value, str | int):
        return value
    return str(value)


_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&$])")


def escaped(text: str) -> str:
    """Text as Markdown shows it: on one line, with every character that means something escaped."""
    return _SPECIAL.sub(r"\\\1", clean(text))


def markdown_text(title: str, sections: list[Section]) -> str:
    """The report as Markdown, ending in a newline: a heading each section, tables as tables."""
    parts = [f"# {escaped(title)}"]
    for section in sections:
        if section.says_something():
            if section.title:
                parts.append(f"## {escaped(section.title)}")
            if section.note:
                parts.append(escaped(section.note))
            parts += [block for block in map(_markdown_block, section.shown) if block]
    return "\n\n".join(parts) + "\n"


def _markdown_block(block: Block) -> str:
    match block:
        case FactsBlock(pairs):
            return "\n".join(f"- {escaped(label)}: {escaped(value)}" for label, value in pairs)
        case Labelled(pairs):
            return "\n".join(f"- {escaped(label)}: {escaped(' '.join(texts))}" for label, texts in pairs)
        case TableBlock(head, rows, left, more):
            shown = [n for n in range(len(head)) if n == 0 or any(row[n] for row in rows)]
            rule = ["---" if n == 0 or head[n] in left else "---:" for n in shown]
            titles, *lines = [[escaped(row[n]) for n in shown] for row in (head, *rows)]
            table = "\n".join(f"| {' | '.join(cells)} |" for cells in (titles, rule, *lines))
            return f"{table}{_markdown_more(more)}"
        case Items(items, more):
            said = [
                line
                for item in items
                for line in (
                    f"- {escaped(item.mark + item.text)}",
                    *(f"  {escaped(text)}  " for text in item.below if text),
                )
            ]
            return "\n".join(said) + _markdown_more(more)
        case Remarks(sentences, more):
            return "\n".join(f"- {escaped(text)}" for text in sentences) + _markdown_more(more)
        case Paragraph(text):
            pieces = text.split("`")  # every other one is a name or a command
            return "".join(f"`{piece}`" if n % 2 else escaped(piece) for n, piece in enumerate(pieces))
        case StatusLine() | Bar() | Verbatim() | Folded():
            return "\n".join(map(escaped, _block(block, sys.maxsize, Ink(False), indent="")))


def _markdown_more(text: str) -> str:
    return f"\n\n… {escaped(text)}" if text else ""
