"""Rows of any table as text: aligned in columns where they fit, one value a line where they do not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from flightlog.show.terminal import Ink, clean, fit, pad, width_of

GAP = "  "
NARROWEST = 8
"""Columns of text are cut to so much, and no further."""


def rows_text(
    names: Sequence[str], rows: Sequence[Sequence[Any]], *, width: int | None = None, color: bool = False
) -> str:
    """The rows under their columns' names. Numbers stand right, in six digits; what is unknown is `NULL`.

    Texts are cut where lines would grow wider than `width`; where that is not enough, each row is shown as a
    block of one value a line. Without `width` nothing is cut.
    """
    ink = Ink(color)
    heads = [clean(name) for name in names]
    cells = [[cell_text(value) for value in row] for row in rows]
    right = [_is_number_column([row[n] for row in rows]) for n in range(len(names))]
    widths = [max([width_of(head), *(width_of(row[n]) for row in cells)]) for n, head in enumerate(heads)]
    if width is not None and not _shrink(widths, right, heads, width):
        return _blocks(heads, cells, width, ink)

    def line(texts: Sequence[str]) -> str:
        fitted = (
            pad(fit(text, w), w, right=side) for text, w, side in zip(texts, widths, right, strict=True)
        )
        return GAP.join(fitted).rstrip()

    return "".join(f"{text}\n" for text in (ink("label", line(heads)), *map(line, cells)))


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


def _shrink(widths: list[int], right: Sequence[bool], heads: Sequence[str], width: int) -> bool:
    """Take room from the widest texts until the table fits; whether it does."""
    least = [
        have if number else min(have, max(NARROWEST, min(width_of(head), 2 * NARROWEST)))
        for have, number, head in zip(widths, right, heads, strict=True)
    ]
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - width
    while excess > 0:
        widest = max(range(len(widths)), key=lambda n: widths[n] - least[n])
        room = widths[widest] - least[widest]
        if room <= 0:
            return False
        others = sorted(
            (widths[n] for n in range(len(widths)) if n != widest and widths[n] > least[n]), reverse=True
        )
        step = max(1, min(room, excess, widths[widest] - (others[0] if others else 0)))
        widths[widest] -= step
        excess -= step
    return True


def _blocks(heads: Sequence[str], cells: Sequence[Sequence[str]], width: int, ink: Ink) -> str:
    """Each row as lines of a name and a value, with a blank line between rows."""
    longest = min(max(map(width_of, heads), default=0), width // 2)
    lines = []
    for number, row in enumerate(cells):
        if number:
            lines.append("")
        for head, cell in zip(heads, row, strict=True):
            room = max(width - longest - len(GAP), NARROWEST)
            lines.append(f"{ink('label', pad(fit(head, longest), longest))}{GAP}{fit(cell, room)}")
    return "".join(f"{line}\n" for line in lines)


def plain(value: Any) -> Any:
    """A value as JSON and CSV have it: times as events write them, numbers as numbers, NaN as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return (
            f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond:06d}Z"
            if value.tzinfo is None
            else value.isoformat()
        )
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if value is None or isinstance(value, str | int):
        return value
    return str(value)
