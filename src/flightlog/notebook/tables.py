"""A table of a run in a notebook: its first rows and how many there are.

A run of more than `LARGE_BYTES` that was not compacted is not gone through for a display: that would take seconds.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from flightlog.notebook.elements import fragment, line, quiet, table, text
from flightlog.show.phrases import count_text
from flightlog.units import format_bytes, format_count

if TYPE_CHECKING:
    from flightlog.store.query import Table

ROWS, COLUMNS, CELL = 10, 24, 60
LARGE_BYTES = 64 << 20
RUN = "run_id"


def table_html(answer: Table, *, large_bytes: int = LARGE_BYTES) -> str:
    """The first rows, in columns that say something, each cell cut; and the count of all rows."""
    lines = answer.lines_bytes()
    if lines > large_bytes:
        return _not_read(answer.query, lines)
    found = answer.peek(ROWS)
    shown = [n for n, _ in enumerate(found.columns) if any(row[n] is not None for row in found.rows)]
    empty = len(found.columns) - len(shown)
    if len({row[n] for n in shown if found.columns[n] == RUN for row in found.rows}) == 1:
        shown = [n for n in shown if found.columns[n] != RUN]  # says the same in every row
    wide, shown = max(0, len(shown) - COLUMNS), shown[:COLUMNS]
    notes = [count_text(found.total, "row")]
    if found.total > len(found.rows):
        notes[0] += f", of which the first {format_count(len(found.rows))}"
    if empty and found.rows:
        notes.append(f"{count_text(empty, 'column')} without a value in these left out")
    if wide:
        notes.append(f"{count_text(wide, 'more column')} to the right")
    rows = [[_cell(row[n]) for n in shown] for row in found.rows]
    head = [found.columns[n] for n in shown]
    left = [found.columns[n] for n in shown if any(isinstance(row[n], str | datetime) for row in found.rows)]
    return fragment(
        table(head, rows, left=left) if head else "",
        quiet(text("; ".join(notes), 300) + " · <code>.df()</code> gives all as a pandas frame"),
    )


def _not_read(query: str, size: int) -> str:
    return fragment(
        line(f"<code>{text(query, 300)}</code>"),
        quiet(
            f"{format_bytes(size)} of lines stand behind it, which a display does not go through: <code>.df()</code> and "
            "<code>.rows()</code> do, and after <code>flightlog compact</code> it takes a moment."
        ),
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    return str(value)[: 4 * CELL]
