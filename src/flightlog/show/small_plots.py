"""Small plots of a fixed height: how something went over time, and how durations spread. Text in, nothing
printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flightlog.show.plot import ASCII, UNICODE, Signs
from flightlog.show.terminal import fit, pad, width_of
from flightlog.units import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from flightlog.analyze.drawn.results import Chart, Series

HEIGHT = 4
"""Rows of the area of one plot."""
GAP = "   "
_BRAILLE = 0x2800
_LEFT, _RIGHT = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)
"""The bits of a Braille character's dots, from the bottom up, in its left and its right column."""
_BLOCKS, _BLOCKS_ASCII = "▁▂▃▄▅▆▇█", ".:-=+*#@"


def area(
    values: Sequence[float | None], *, columns: int, height: int, top: float, ascii_only: bool
) -> list[str]:
    """Rows of text, from the top, with what is under a line filled; a value above 0 is one dot high at least.

    `values` are spread over the columns evenly: of several that fall together the highest is drawn. Where
    nothing is known, nothing is drawn.
    """
    wide, tall = (1, 1) if ascii_only else (2, 4)
    cells = spread(values, columns * wide)
    levels = [_level(value, top, height * tall) for value in cells]
    rows = []
    for row in range(height):
        floor = (height - 1 - row) * tall
        rows.append(
            "".join(_sign(levels[at : at + wide], floor, ascii_only) for at in range(0, len(cells), wide))
        )
    return rows


def _level(value: float | None, top: float, most: int) -> int:
    if value is None or value <= 0 or top <= 0 or math.isnan(value):
        return 0
    return max(1, min(most, round(min(value / top, 1.0) * most)))


def _sign(levels: Sequence[int], floor: int, ascii_only: bool) -> str:
    if ascii_only:
        return "#" if levels[0] > floor else " "
    bits = 0
    for level, dots in zip(levels, (_LEFT, _RIGHT), strict=False):
        for bit in dots[: max(0, min(4, level - floor))]:
            bits |= bit
    return chr(_BRAILLE + bits) if bits else " "


def spread(values: Sequence[float | None], cells: int) -> list[float | None]:
    """So many values in place of these: the highest of those that fall together, or each several times
    over.
    """
    if not values:
        return [None] * cells
    found: list[float | None] = []
    for cell in range(cells):
        first = cell * len(values) // cells
        last = max(first + 1, (cell + 1) * len(values) // cells)
        known = [value for value in values[first:last] if value is not None]
        found.append(max(known) if known else None)
    return found


def plot_over_time(
    title: str,
    values: Sequence[float | None],
    *,
    length_s: float,
    label: Callable[[float], str],
    width: int,
    height: int = HEIGHT,
    top: float | None = None,
    ends: tuple[str, str] | None = None,
    ascii_only: bool = False,
) -> list[str]:
    """A title, `height` rows, and a line with the time below; no row is wider than `width`.

    `values` are even in time. `label` writes a value on the axis; `top` is the value at the upper edge, by
    default the highest there is. `ends` are what the time axis says at its ends, in place of 0 and the
    length. Nothing, where no value is known.
    """
    known = [value for value in values if value is not None and not math.isnan(value)]
    if not known:
        return []
    upper = top or max(known) or 1.0
    signs = ASCII if ascii_only else UNICODE
    labels = (label(upper), label(0.0))
    margin = max(map(width_of, labels))
    columns = max(1, width - margin - 2)
    rows = area(values, columns=columns, height=height, top=upper, ascii_only=ascii_only)
    names = [labels[0], *[""] * (height - 2), labels[1]] if height > 1 else [labels[0]]
    drawn = [
        f"{pad(name, margin, right=True)} {signs.tick if name else signs.axis}{row}".rstrip()
        for name, row in zip(names, rows, strict=True)
    ]
    return [
        fit(title, width),
        *drawn,
        _time_axis(ends or ("0s", format_duration(length_s)), margin, columns, signs),
    ]


def _time_axis(ends: tuple[str, str], margin: int, columns: int, signs: Signs) -> str:
    start, end = f"{ends[0]} ", f" {ends[1]}"
    line = signs.floor * max(0, columns - width_of(start) - width_of(end))
    return f"{' ' * (margin + 1)}{signs.corner}" + (f"{start}{line}{end}" if line else signs.floor * columns)


def levels_line(values: Sequence[float], *, ascii_only: bool = False) -> str:
    """Values as one line of blocks, the highest full; where there is nothing, a blank."""
    signs, highest = _BLOCKS_ASCII if ascii_only else _BLOCKS, max(values, default=0.0)
    return "".join(" " if value <= 0 else signs[min(7, int(value / highest * 8))] for value in values)


def at_even_times(series: Series, length_s: float, cells: int) -> list[float | None]:
    """A line's values in equal stretches of time: the highest in each; between two samples the former holds.

    What is no finite number is unknown.
    """
    if not series.at_s or length_s <= 0:
        return []
    found: list[float | None] = [None] * cells
    seen = [False] * cells
    for at_s, said in zip(series.at_s, series.value, strict=True):
        if not 0 <= at_s <= length_s:
            continue
        value = said if said is not None and math.isfinite(said) else None
        cell = min(cells - 1, int(at_s / length_s * cells))
        before = found[cell]
        found[cell] = value if before is None else before if value is None else max(before, value)
        seen[cell] = True
    last = max((cell for cell in range(cells) if seen[cell]), default=-1)
    for cell in range(1, last + 1):
        if not seen[cell]:
            found[cell] = found[cell - 1]
    return found


def summed(chart: Chart, cells: int) -> list[float | None]:
    """The lines of a chart added up, in equal stretches of time; null where none of them is known.

    Shares and percentages do not add up: of them it is the mean.
    """
    lines = [at_even_times(series, chart.length_s, cells) for series in chart.series]
    together = zip(*[line for line in lines if line], strict=True)
    mean = chart.unit in {"share", "percent"}
    found: list[float | None] = []
    for values in together:
        known = [value for value in values if value is not None]
        found.append(sum(known) / (len(known) if mean else 1) if known else None)
    return found


def unit_label(chart: Chart) -> Callable[[float], str]:
    """How a chart's values are written."""
    return {
        "bytes": format_bytes,
        "share": lambda value: f"{value * 100:.0f}%",
        "percent": lambda value: f"{value:.0f}%",
        "watts": lambda value: f"{value:.0f} W",
        "cores": lambda value: f"{value:.1f}".removesuffix(".0"),
        "count": lambda value: format_count(round(value, 1)),
    }[chart.unit]


def side_by_side(blocks: Sequence[Sequence[str]], *, width: int) -> list[str]:
    """Blocks of lines, two in a row, an empty line between two rows; each block was made for `half(width)`
    columns.
    """
    found: list[str] = []
    said = [block for block in blocks if block]
    for at in range(0, len(said), 2):
        pair = said[at : at + 2]
        tall = max(map(len, pair))
        filled = [[*block, *[""] * (tall - len(block))] for block in pair]
        found += [""] if found else []
        found += [
            GAP.join(pad(text, half(width)) for text in texts).rstrip() for texts in zip(*filled, strict=True)
        ]
    return found


def half(width: int) -> int:
    """The columns of one of two blocks side by side."""
    return (width - len(GAP)) // 2
