"""A table of a run in a notebook: its first rows and their number.

A run of more than `LARGE_BYTES` that was not compacted is not read for a display: that would take seconds.
"""

from __future__ import annotations

import re
from datetime import datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from flightlog.core.text import plural
from flightlog.core.units import format_bytes, format_count
from flightlog.show.document import GAP, Block, Paragraph, TableBlock, cell_text, rows_text
from flightlog.show.terminal import clean, fit, width_of

if TYPE_CHECKING:
    from flightlog.store.tables.query import Table

ROWS, COLUMNS, CELL, CELL_PLAIN = 10, 24, 60, 28
LARGE_BYTES = 64 << 20
RUN = "run_id"
_TABLE = re.compile(r"FROM \w+")
"""A table itself, and not a question."""


class FirstRows(NamedTuple):
    """The first rows of a table, without empty columns."""

    columns: list[str]
    rows: list[list[Any]]
    notes: list[str]
    """The number of rows, and what is left out."""


class TableNotRead(NamedTuple):
    """A table too large for a display."""

    query: str
    size: int


def read_table(answer: Table, *, large_bytes: int = LARGE_BYTES) -> FirstRows | TableNotRead:
    """The first rows, and the count of all."""
    lines = answer.lines_bytes()
    if lines > large_bytes:
        return TableNotRead(answer.query, lines)
    found = answer.peek(ROWS)
    shown = [n for n, _ in enumerate(found.columns) if any(row[n] is not None for row in found.rows)]
    empty = len(found.columns) - len(shown)
    if _TABLE.fullmatch(answer.query) and len({run.run_id for run in answer.runs}) == 1:
        shown = [n for n in shown if found.columns[n] != RUN]  # the same in every row, unasked for
    notes = [plural(found.total, "row")]
    if found.total > len(found.rows):
        notes[0] += f", of which the first {format_count(len(found.rows))}"
    if empty and found.rows:
        notes.append(f"{plural(empty, 'column')} without a value in these left out")
    rows = [[row[n] for n in shown] for row in found.rows]
    return FirstRows([found.columns[n] for n in shown], rows, notes)


def table_display(read: FirstRows | TableNotRead) -> list[Block]:
    """The first rows, each cell cut."""
    if isinstance(read, TableNotRead):
        size = format_bytes(read.size)
        return [
            Paragraph(f"`{read.query[:300]}`"),
            Paragraph(
                f"{size} of lines stand behind it, which a display does not go through: `.df()` and "
                "`.rows()` do, and after `flightlog compact` it takes a moment.",
                "aside",
            ),
        ]
    head = read.columns[:COLUMNS]
    left = [
        name for n, name in enumerate(head) if any(isinstance(row[n], str | datetime) for row in read.rows)
    ]
    rows = [[_cell(value) for value in row[:COLUMNS]] for row in read.rows]
    notes = "; ".join([*read.notes, *_wide(len(read.columns) - COLUMNS)])
    return [
        *([TableBlock(head, rows, left)] if head else []),
        Paragraph(f"{notes} · `.df()` returns all rows as a pandas DataFrame", "aside"),
    ]


def table_plain(read: FirstRows | TableNotRead, *, width: int) -> str:
    """The first rows in as many columns as fit, each cell cut."""
    if isinstance(read, TableNotRead):
        query, size = clean(read.query[:300]), format_bytes(read.size)
        return f"{query}\n{size} of lines stand behind it: .df() and .rows() go through them."
    rows = [[_short(value) for value in row] for row in read.rows]
    heads = [fit(clean(name), CELL_PLAIN) for name in read.columns]
    texts = [[cell_text(value) for value in row] for row in rows]
    widths = [max(map(width_of, column)) + len(GAP) for column in zip(heads, *texts, strict=True)]
    fits = max(sum(end <= width + len(GAP) for end in accumulate(widths)), 1)
    notes = [*read.notes, *_wide(len(heads) - fits)]
    body = rows_text(heads[:fits], [row[:fits] for row in rows]) if heads else ""
    return f"{body}{'; '.join(notes)}"


def _wide(columns: int) -> list[str]:
    return [f"{plural(columns, 'more column')} to the right"] if columns > 0 else []


def _short(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | datetime):
        return value
    return fit(cell_text(value[: 4 * CELL_PLAIN] if isinstance(value, str) else value), CELL_PLAIN)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    return str(value)[: 4 * CELL]
