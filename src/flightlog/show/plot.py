"""Plots in a terminal, in Braille or plain ASCII: points, areas over time, lines of blocks, and those of a
report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.core.text import plural
from flightlog.core.units import format_bytes, format_count, format_duration
from flightlog.show.phrases import percent_text
from flightlog.show.terminal import brief, fit, pad, width_of

if TYPE_CHECKING:
    from flightlog.analyze.charts.report_with_charts import Overview, OverviewDurations
    from flightlog.analyze.charts.results import Chart, ChartSeries
    from flightlog.analyze.report.report import Report

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bit of each dot of a Braille character, by column and by row from the top."""
_BRAILLE = 0x2800
_SMALLEST, _LARGEST = 1e-200, 1e300
"""Beyond these, the floor and the ceiling of floating-point numbers are too near to reckon with."""


class Signs(Struct, frozen=True):
    """What a plot is drawn with."""

    level: str
    axis: str
    tick: str
    corner: str
    floor: str
    mark: str
    above: str
    below: str


UNICODE = Signs("─", "│", "┤", "└", "─", "▲", "↑", "↓")
ASCII = Signs("-", "|", "+", "+", "-", "^", "^", "v")


class LevelLine(Struct, frozen=True):
    """A horizontal line from one point to another, both counted."""

    first: int
    last: int
    value: float


def plot(
    values: Sequence[float],
    *,
    width: int,
    height: int,
    label: Callable[[float, float], str],
    lines: Sequence[LevelLine] = (),
    marks: Sequence[int] = (),
    ascii_only: bool = False,
) -> list[str]:
    """Rows of text with a point for each value, from left to right in their order, evenly spaced.

    No row is wider than `width` columns, and `height` rows are for points. `label` writes a value on the
    axis, given the distance of two labels. `lines` stand behind the points; `marks` are numbers of points
    that get a sign and a number under the axis. Values far from all others are drawn as arrows at the edge.
    """
    signs = ASCII if ascii_only else UNICODE
    low, high = scale_of(values, [line.value for line in lines])
    ticks = {row: label(value, gap) for row, value, gap in _ticks(low, high, height)}
    margin = max(map(width_of, ticks.values()), default=0) + 2
    columns = max(width - margin, 1)
    grid = _DotGrid(columns, height, len(values), low, high, ascii_only)
    for line in lines:
        grid.draw(line, signs.level)
    for number, value in enumerate(values):
        grid.put(number, value, signs)
    rows = [
        f"{pad(ticks.get(row, ''), margin - 2, right=True)} "
        f"{signs.tick if row in ticks else signs.axis}{text}".rstrip()
        for row, text in enumerate(grid.rows())
    ]
    rows.append(f"{' ' * (margin - 1)}{signs.corner}{signs.floor * columns}")
    if marks:
        rows.append(
            f"{' ' * margin}{_marks([grid.column(at) for at in marks], columns, signs.mark)}".rstrip()
        )
    return rows


def scale_of(values: Sequence[float], levels: Sequence[float]) -> tuple[float, float]:
    """The range of a plot: all values, less those that lie far outside of most and of all levels.

    Where nine in ten are the same, the others are all there is to see, and none is left out.
    """
    ordered = sorted(max(-_LARGEST, min(_LARGEST, value)) for value in (*values, *levels))
    if not ordered:
        return 0.0, 1.0
    p05, p95 = ordered[int(0.05 * (len(ordered) - 1))], ordered[math.ceil(0.95 * (len(ordered) - 1))]
    reach = 1.5 * (p95 - p05) or math.inf
    least, most = min([p05, *levels]) - reach, max([p95, *levels]) + reach
    near = [value for value in ordered if least <= value <= most]
    low, high = near[0], near[-1]
    size = max(abs(low), abs(high))
    if high - low > max(size * 1e-9, _SMALLEST):
        return low, high
    around = size / 10 if size > _SMALLEST else 1.0
    return (max(0.0, low - around) if low >= 0 else low - around), high + around


def _ticks(low: float, high: float, height: int) -> list[tuple[int, float, float]]:
    """Rows with round values on them, the values, and the distance between two; about one in three rows."""
    span, most = high - low, max(2, height // 2 - 1)
    power = 10.0 ** math.floor(math.log10(span / most))
    gap = next(step * power for step in (1, 2, 5, 10) if span / (step * power) <= most)
    found: dict[int, tuple[int, float, float]] = {}
    for number in range(math.ceil(low / gap), math.floor(high / gap) + 1):
        row = height - 1 - round((number * gap - low) / span * (height - 1))
        found.setdefault(row, (row, number * gap, gap))
    return list(found.values())


class _Dots:
    """Characters of two by four dots each, in ASCII of one; y counts from the top."""

    def __init__(self, columns: int, height: int, ascii_only: bool, full: str) -> None:
        self.wide, self.tall = (1, 1) if ascii_only else (2, 4)
        self.columns, self.height = columns, height
        self._ascii, self._full = ascii_only, full
        self.bits = [[0] * columns for _ in range(height)]

    def set(self, x: int, y: int) -> None:
        """Set a dot."""
        self.bits[y // self.tall][x // self.wide] |= _DOTS[x % self.wide][y % self.tall]

    def sign(self, bits: int) -> str:
        """The character of these dots."""
        return " " if not bits else self._full if self._ascii else chr(_BRAILLE + bits)


class _DotGrid:
    """Points, lines behind them, and arrows where a point lies outside."""

    def __init__(
        self, columns: int, height: int, count: int, low: float, high: float, ascii_only: bool
    ) -> None:
        self._dots = _Dots(columns, height, ascii_only, "*")
        self._count, self._low, self._high = count, low, high
        self._behind = [[" "] * columns for _ in range(height)]
        self._arrows: dict[tuple[int, int], str] = {}

    def column(self, number: int) -> int:
        """The column of a point."""
        return self._x(number) // self._dots.wide

    def _x(self, number: int) -> int:
        cells = self._dots.columns * self._dots.wide
        return (cells - 1) // 2 if self._count < 2 else round(number * (cells - 1) / (self._count - 1))

    def _y(self, value: float) -> int:
        cells = self._dots.height * self._dots.tall
        return cells - 1 - round((value - self._low) / (self._high - self._low) * (cells - 1))

    def put(self, number: int, value: float, signs: Signs) -> None:
        """Draw a point, or an arrow where it lies outside."""
        if self._low <= value <= self._high:
            self._dots.set(self._x(number), self._y(value))
        else:
            row, sign = (0, signs.above) if value > self._high else (self._dots.height - 1, signs.below)
            self._arrows[row, self.column(number)] = sign

    def draw(self, line: LevelLine, sign: str) -> None:
        """Draw a line where there are no points."""
        row = self._behind[self._y(line.value) // self._dots.tall]
        for column in range(self.column(line.first), self.column(line.last) + 1):
            row[column] = sign

    def rows(self) -> list[str]:
        """The text, from the top; arrows hide points, and points hide lines."""
        return [
            "".join(
                self._arrows.get((row, column)) or (self._dots.sign(bits) if bits else behind)
                for column, (bits, behind) in enumerate(zip(dots, self._behind[row], strict=True))
            )
            for row, dots in enumerate(self._dots.bits)
        ]


def _marks(columns: Sequence[int], width: int, sign: str) -> str:
    """A sign at each column, and after it its number where there is room; the latest goes first."""
    row = [" "] * width
    for number in range(len(columns), 0, -1):
        text, column = f"{sign}{number}", columns[number - 1]
        free = next((at for at in range(column, width) if row[at] != " "), width) - column
        if free > 0:
            text = text if len(text) <= free else sign
            row[column : column + len(text)] = text
    return "".join(row)


HEIGHT = 4
"""Rows of the area of one plot."""
GAP = "   "
BLOCKS, _BLOCKS_ASCII = "▁▂▃▄▅▆▇█", ".:-=+*#@"


def area(
    values: Sequence[float | None], *, columns: int, height: int, top: float, ascii_only: bool
) -> list[str]:
    """Rows of text, from the top, with what is under a line filled; a value above 0 is one dot high at least.

    `values` are spread over the columns evenly: of several that fall together the highest is drawn. Where
    nothing is known, nothing is drawn.
    """
    dots = _Dots(columns, height, ascii_only, "#")
    bottom = height * dots.tall
    for x, value in enumerate(spread(values, columns * dots.wide)):
        for level in range(_level(value, top, bottom)):
            dots.set(x, bottom - 1 - level)
    return ["".join(map(dots.sign, row)) for row in dots.bits]


def _level(value: float | None, top: float, most: int) -> int:
    if value is None or value <= 0 or top <= 0 or math.isnan(value):
        return 0
    return max(1, min(most, round(min(value / top, 1.0) * most)))


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
    signs, highest = _BLOCKS_ASCII if ascii_only else BLOCKS, max(values, default=0.0)
    return "".join(" " if value <= 0 else signs[min(7, int(value / highest * 8))] for value in values)


def at_even_times(series: ChartSeries, length_s: float, cells: int) -> list[float | None]:
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


FEWEST = 3
"""Minimum points of a line."""
NAME = 16
"""Columns of a task's name beside its histogram."""


def report_plots(report: Report, glance: Overview, *, width: int, ascii_only: bool = False) -> list[str]:
    """Lines, none wider than `width`; at most fourteen, and none where there is nothing to draw."""
    each = half(width)
    return side_by_side(
        [
            _at_once(report, each, ascii_only),
            _durations(glance.durations, each, ascii_only),
            _cpu(report, glance.cpu, each, ascii_only),
            _memory(report, glance.memory, each, ascii_only),
        ],
        width=width,
    )


def _at_once(report: Report, width: int, ascii_only: bool) -> list[str]:
    found = report.concurrency
    if found is None:
        return []
    figures = f"mean {found.mean:.1f}, peak {format_count(found.peak)}"
    highest = max(found.running, default=0.0)
    return plot_over_time(
        _fitting(width, f"Concurrency: {figures}", f"Running: {figures}"),
        found.running,
        top=math.ceil(highest) if highest > 1 else None,
        length_s=found.bucket_s * len(found.running),
        label=lambda value: format_count(round(value, 1)),
        width=width,
        ascii_only=ascii_only,
    )


def _cpu(report: Report, chart: Chart | None, width: int, ascii_only: bool) -> list[str]:
    node = report.resources.node
    if chart is None or node is None or not _worth(chart):
        return []
    mean, most = (percent_text(value) for value in (node.cpu_percent.mean, node.cpu_percent.max))
    figures = f"mean {mean}, peak {most}"
    title = _fitting(width, f"CPU{_of(chart)}: {figures}", f"CPU: {figures}")
    return _machines(title, chart, summed(chart, 2 * width), 100.0, width, ascii_only)


def _memory(report: Report, chart: Chart | None, width: int, ascii_only: bool) -> list[str]:
    """Of one machine with the figures of the report; of several, which it has no sum of, with that of the
    plot.
    """
    node = report.resources.node
    if chart is None or node is None or not _worth(chart):
        return []
    values = summed(chart, 2 * width)
    top = max(value for value in values if value is not None)
    if len(chart.series) == 1:
        of = f" of {format_bytes(node.memory_total_bytes)}" if node.memory_total_bytes else ""
        top = max(top, node.memory_peak_bytes or 0)
        peak = f"Memory: peak {format_bytes(node.memory_peak_bytes)}"
        title = _fitting(width, f"{peak}{of}", peak)
    else:
        peak = f"peak {format_bytes(top)} in all"
        title = _fitting(width, f"Memory{_of(chart)}: {peak}", f"Memory: {peak}")
    return _machines(title, chart, values, top, width, ascii_only)


def _fitting(width: int, *titles: str) -> str:
    """The first title there is room for, or the last one cut."""
    return next((title for title in titles if width_of(title) <= width), fit(titles[-1], width))


def _worth(chart: Chart) -> bool:
    return max(len(series.at_s) for series in chart.series) >= FEWEST


def _of(chart: Chart) -> str:
    return f" of {plural(len(chart.series), 'machine')}" if len(chart.series) > 1 else ""


def _machines(
    title: str, chart: Chart, values: Sequence[float | None], top: float, width: int, ascii_only: bool
) -> list[str]:
    return plot_over_time(
        title,
        values,
        length_s=chart.length_s,
        label=unit_label(chart),
        width=width,
        top=top,
        ascii_only=ascii_only,
    )


def _durations(durations: OverviewDurations | None, width: int, ascii_only: bool) -> list[str]:
    """A line for each name: how many took how long, the durations growing by a factor from left to right."""
    if durations is None or sum(map(sum, durations.counts.values())) < FEWEST:
        return []
    names = {name: brief(name, min(NAME, width // 3)) for name in durations.counts}
    margin = max(map(width_of, names.values())) + 1
    bins = len(durations.edges_s) - 1
    room = max(1, width - margin - 2)
    columns = max(1, room // bins) * bins if bins <= room else room
    lines = []
    for name, counts in durations.counts.items():
        line = levels_line(_stretched(counts, columns), ascii_only=ascii_only)
        lines.append(f"{pad(names[name], margin)} {line}".rstrip())
    low, high = (format_duration(edge) for edge in (durations.edges_s[0], durations.edges_s[-1]))
    dash = "-" if ascii_only else "─"
    floor = dash * max(1, columns - width_of(low) - width_of(high) - 2)
    axis = f"{' ' * margin} {low} {floor} {high}"
    title = _fitting(width, "How long tasks took (logarithmic)", "How long tasks took")
    return [title, *(fit(line, width) for line in [*lines, axis])]


def _stretched(counts: Sequence[int], columns: int) -> list[float]:
    """A count for each column: each several times over where there are fewer, sums of neighbours where there
    are more.
    """
    if columns >= len(counts):
        return [float(count) for count in counts for _ in range(columns // len(counts))]
    found = [0.0] * columns
    for number, count in enumerate(counts):
        found[number * columns // len(counts)] += count
    return found
