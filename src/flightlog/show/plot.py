"""Plots in a terminal, in Braille: points, areas over time, lines of blocks, those of reports, and the
timeline: one row per lane, one column per time step, and the task that took most of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, zip_longest
from string import ascii_uppercase
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.core.text import plural
from flightlog.core.units import format_bytes, format_count, format_duration, format_percent
from flightlog.show.figures.style import NAMELESS, OTHER, PALETTE, clock_text, duration_text
from flightlog.show.figures.timeline import MARKS, OTHERS, lane_parts
from flightlog.show.limits import TextLimits
from flightlog.show.phrases import percent_text
from flightlog.show.terminal import Ink, brief, fit, pad, width_of, wrap

if TYPE_CHECKING:
    from flightlog.analyze.charts.report_with_charts import Overview, OverviewDurations, TimelineWithSummary
    from flightlog.analyze.charts.results import Chart, Timeline
    from flightlog.analyze.report.report import Report


_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bit of each dot of a Braille character, by column and by row from the top."""
_BRAILLE = 0x2800
_MIN_RANGE, _MAX_VALUE = 1e-200, 1e300
"""Beyond these, the floor and the ceiling of floating-point numbers are too near to reckon with."""


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
    unit: str = "",
    lines: Sequence[LevelLine] = (),
    marks: Sequence[int] = (),
) -> list[str]:
    """Rows of text with a point for each value, from left to right in their order, evenly spaced.

    No row is wider than `width` columns, and `height` rows are for points. `unit` stands after values on the
    axis. `lines` stand behind the points; `marks` are numbers of points
    that get a sign and a number under the axis. Values far from all others are drawn as arrows at the edge.
    """
    low, high = scale_of(values, [line.value for line in lines])
    ticks = {row: f"{_tick_text(value, gap)}{unit}" for row, value, gap in _ticks(low, high, height)}
    margin = max(map(width_of, ticks.values()), default=0)
    grid = DotGrid(max(width - margin - 2, 1), height)
    right, bottom = 2 * grid.columns - 1, 4 * height - 1

    def x(number: int) -> int:
        return right // 2 if len(values) < 2 else round(number * right / (len(values) - 1))

    def y(value: float) -> int:
        return bottom - round((value - low) / (high - low) * bottom)

    for line in lines:
        columns = range(x(line.first) // 2, x(line.last) // 2 + 1)
        grid.behind.update({(y(line.value) // 4, column): "─" for column in columns})
    for number, value in enumerate(values):
        if low <= value <= high:
            grid.set(x(number), y(value))
        else:
            row, sign = (0, "↑") if value > high else (height - 1, "↓")
            grid.over[row, x(number) // 2] = sign
    rows = [*_framed(grid, ticks, margin), f"{' ' * (margin + 1)}└{'─' * grid.columns}"]
    if marks:
        rows.append(f"{' ' * (margin + 2)}{_marks([x(at) // 2 for at in marks], grid.columns)}".rstrip())
    return rows


class DotGrid:
    """Characters of two by four dots each, with signs `over` them and `behind` them by row and column; all
    count from the top left.
    """

    def __init__(self, columns: int, height: int) -> None:
        self.columns, self.height = columns, height
        self.over: dict[tuple[int, int], str] = {}
        self.behind: dict[tuple[int, int], str] = {}
        self._dots: dict[tuple[int, int], int] = {}

    def set(self, x: int, y: int) -> None:
        """Set a dot."""
        place = y // 4, x // 2
        self._dots[place] = self._dots.get(place, _BRAILLE) | _DOTS[x % 2][y % 4]

    def rows(self) -> list[str]:
        """The text, from the top."""
        signs = {**self.behind, **{place: chr(dots) for place, dots in self._dots.items()}, **self.over}
        columns = range(self.columns)
        return ["".join(signs.get((row, column), " ") for column in columns) for row in range(self.height)]


def _framed(grid: DotGrid, labels: Mapping[int, str], margin: int) -> list[str]:
    """The rows beside their axis, with labels at some of them."""
    return [
        f"{pad(labels.get(n, ''), margin, right=True)} {'┤' if n in labels else '│'}{row}".rstrip()
        for n, row in enumerate(grid.rows())
    ]


def scale_of(values: Sequence[float], levels: Sequence[float]) -> tuple[float, float]:
    """The range of a plot: all values, less those that lie far outside of most and of all levels.

    Where nine in ten are the same, the others are all there is to see, and none is left out.
    """
    ordered = sorted(max(-_MAX_VALUE, min(_MAX_VALUE, value)) for value in (*values, *levels))
    if not ordered:
        return 0.0, 1.0
    p05, p95 = ordered[int(0.05 * (len(ordered) - 1))], ordered[math.ceil(0.95 * (len(ordered) - 1))]
    reach = 1.5 * (p95 - p05) or math.inf
    least, most = min([p05, *levels]) - reach, max([p95, *levels]) + reach
    near = [value for value in ordered if least <= value <= most]
    low, high = near[0], near[-1]
    size = max(abs(low), abs(high))
    if high - low > max(size * 1e-9, _MIN_RANGE):
        return low, high
    around = size / 10 if size > _MIN_RANGE else 1.0
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


def _tick_text(value: float, gap: float) -> str:
    """A value with as many digits as tell it from another that is this far away."""
    decimals = max(0, -math.floor(math.log10(gap) + 1e-9))
    return f"{value:,.{decimals}f}" if decimals <= 6 and abs(value) < 1e9 else f"{value:.3g}"


def _marks(columns: Sequence[int], width: int) -> str:
    """A sign at each column, and after it its number where there is room; the latest goes first."""
    row = [" "] * width
    for number in range(len(columns), 0, -1):
        text, column = f"▲{number}", columns[number - 1]
        free = next((at for at in range(column, width) if row[at] != " "), width) - column
        if free > 0:
            text = text if len(text) <= free else "▲"
            row[column : column + len(text)] = text
    return "".join(row)


GAP = "   "
BLOCKS = "▁▂▃▄▅▆▇█"


def area(values: Sequence[float | None], *, columns: int, height: int, top: float) -> DotGrid:
    """What is under a line, filled; a value above 0 is one dot high at least.

    `values` are spread over the columns evenly: of several that fall together the highest is drawn. Where
    nothing is known, nothing is drawn.
    """
    grid, most = DotGrid(columns, height), 4 * height
    for x, value in enumerate(spread(values, 2 * columns)):
        if value is not None and value > 0 and top > 0:
            for level in range(max(1, round(min(value / top, 1.0) * most))):
                grid.set(x, most - 1 - level)
    return grid


def spread(values: Sequence[float | None], cells: int) -> list[float | None]:
    """So many values in place of these: the highest of those that fall together, or each several times
    over.
    """
    found: list[float | None] = []
    for cell in range(cells):
        first = cell * len(values) // cells
        last = max(first + 1, (cell + 1) * len(values) // cells)
        found.append(max((value for value in values[first:last] if value is not None), default=None))
    return found


def plot_over_time(
    title: str,
    values: Sequence[float | None],
    *,
    length_s: float,
    label: Callable[[float], str],
    width: int,
    height: int = TextLimits.plot_height,
    top: float | None = None,
    ends: tuple[str, str] | None = None,
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
    labels = {height - 1: label(0.0), 0: label(upper)}
    margin = max(map(width_of, labels.values()))
    grid = area(values, columns=max(1, width - margin - 2), height=height, top=upper)
    start, end = ends or ("0s", format_duration(length_s))
    line = "─" * (grid.columns - width_of(start) - width_of(end) - 2)
    axis = f"{start} {line} {end}" if line else "─" * grid.columns
    return [fit(title, width), *_framed(grid, labels, margin), f"{' ' * (margin + 1)}└{axis}"]


def levels_line(values: Sequence[float]) -> str:
    """Values as one line of blocks, the highest full; where there is nothing, a blank."""
    highest = max(values, default=0.0)
    return "".join(" " if value <= 0 else BLOCKS[min(7, int(value / highest * 8))] for value in values)


def at_even_times(
    at_s: Sequence[float], values: Sequence[float | None], length_s: float, cells: int
) -> list[float | None]:
    """Values in equal stretches of time: the highest in each; between two samples the former holds.

    What is no finite number is unknown.
    """
    found: dict[int, float | None] = {}
    for at, value in zip(at_s, values, strict=True):
        if 0 <= at <= length_s and length_s > 0:
            cell = min(cells - 1, int(at / length_s * cells))
            known = [one for one in (found.get(cell), value) if one is not None and math.isfinite(one)]
            found[cell] = max(known, default=None)
    line: list[float | None] = []
    for cell in range(max(found, default=-1) + 1):
        line.append(found[cell] if cell in found else line[-1] if line else None)
    return line + [None] * (cells - len(line)) if at_s and length_s > 0 else []


def summed(chart: Chart, cells: int) -> list[float | None]:
    """The lines of a chart added up, in equal stretches of time; null where none of them is known.

    Shares and percentages do not add up: of them it is the mean.
    """
    lines = [at_even_times(series.at_s, series.value, chart.length_s, cells) for series in chart.series]
    together = zip(*[line for line in lines if line], strict=True)
    mean = chart.unit in {"share", "percent"}
    known = [[value for value in values if value is not None] for values in together]
    return [sum(values) / (len(values) if mean else 1) if values else None for values in known]


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
        pairs = zip_longest(*said[at : at + 2], fillvalue="")
        found += [""] if found else []
        found += [GAP.join(pad(text, half(width)) for text in texts).rstrip() for texts in pairs]
    return found


def half(width: int) -> int:
    """The columns of one of two blocks side by side."""
    return (width - len(GAP)) // 2


def report_plots(report: Report, glance: Overview, *, width: int) -> list[str]:
    """Lines, none wider than `width`; at most fourteen, and none where there is nothing to draw."""
    each = half(width)
    plots = [
        _concurrency_plot(report, each),
        _durations(glance.durations, each),
        _cpu(report, glance.cpu, each),
        _memory(report, glance.memory, each),
    ]
    return side_by_side(plots, width=width)


def _concurrency_plot(report: Report, width: int) -> list[str]:
    found = report.concurrency
    if found is None:
        return []
    figures = f"mean {found.mean:.1f}, peak {format_count(found.peak)}"
    highest = max(found.running, default=0.0)
    return plot_over_time(
        _first_that_fits(width, f"Concurrency: {figures}", f"Running: {figures}"),
        found.running,
        top=math.ceil(highest) if highest > 1 else None,
        length_s=found.bucket_s * len(found.running),
        label=lambda value: format_count(round(value, 1)),
        width=width,
    )


def _cpu(report: Report, chart: Chart | None, width: int) -> list[str]:
    node = report.resources.node
    if chart is None or node is None:
        return []
    mean, most = (percent_text(value) for value in (node.cpu_percent.mean, node.cpu_percent.max))
    figures = f"mean {mean}, peak {most}"
    titles = f"CPU{_of_machines(chart)}: {figures}", f"CPU: {figures}"
    return _machines(titles, chart, summed(chart, 2 * width), 100.0, width)


def _memory(report: Report, chart: Chart | None, width: int) -> list[str]:
    """Of one machine with the figures of the report; of several, which it has no sum of, with that of the
    plot.
    """
    node = report.resources.node
    if chart is None or node is None:
        return []
    values = summed(chart, 2 * width)
    top = max((value for value in values if value is not None), default=0.0)
    if len(chart.series) == 1:
        of = f" of {format_bytes(node.memory_total_bytes)}" if node.memory_total_bytes else ""
        top = max(top, node.memory_peak_bytes or 0)
        peak = f"Memory: peak {format_bytes(node.memory_peak_bytes)}"
        titles = f"{peak}{of}", peak
    else:
        peak = f"peak {format_bytes(top)} in all"
        titles = f"Memory{_of_machines(chart)}: {peak}", f"Memory: {peak}"
    return _machines(titles, chart, values, top, width)


def _first_that_fits(width: int, *titles: str) -> str:
    """The first title there is room for, or the last one cut."""
    return next((title for title in titles if width_of(title) <= width), fit(titles[-1], width))


def _of_machines(chart: Chart) -> str:
    return f" of {plural(len(chart.series), 'machine')}" if len(chart.series) > 1 else ""


def _machines(
    titles: tuple[str, str], chart: Chart, values: Sequence[float | None], top: float, width: int
) -> list[str]:
    if max(len(series.at_s) for series in chart.series) < TextLimits.min_plot_points:
        return []
    title, label = _first_that_fits(width, *titles), unit_label(chart)
    return plot_over_time(title, values, length_s=chart.length_s, label=label, width=width, top=top)


def _durations(durations: OverviewDurations | None, width: int) -> list[str]:
    """A line for each name: how many took how long, the durations growing by a factor from left to right."""
    if durations is None or sum(map(sum, durations.counts.values())) < TextLimits.min_plot_points:
        return []
    names = {name: brief(name, min(TextLimits.histogram_name_width, width // 3)) for name in durations.counts}
    margin = max(map(width_of, names.values())) + 1
    bins = len(durations.edges_s) - 1
    room = max(1, width - margin - 2)
    columns = max(1, room // bins) * bins if bins <= room else room
    lines = [
        f"{pad(names[name], margin)} {levels_line(_stretched(counts, columns))}".rstrip()
        for name, counts in durations.counts.items()
    ]
    low, high = (format_duration(edge) for edge in (durations.edges_s[0], durations.edges_s[-1]))
    floor = "─" * max(1, columns - width_of(low) - width_of(high) - 2)
    axis = f"{' ' * margin} {low} {floor} {high}"
    title = _first_that_fits(width, "How long tasks took (logarithmic)", "How long tasks took")
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


_SHADES = "░▒▓█"
_STEPS = (
    *(unit * step for unit in (1, 60) for step in (1, 2, 5, 10, 15, 30)),
    *(3_600 * step for step in (1, 2, 4, 6, 12)),
    *(86_400 * step for step in (1, 2, 7)),
)
_TOOK = {"completed": "in", "running": "for"}
"""The word between a status and the duration; `after` for runs that ended otherwise."""
_PRECEDENCE = ("failed", "lost", "retried", "cancelled")
"""Of two kinds of marks in one place, the earlier one is drawn."""


def timeline_text(
    look: TimelineWithSummary,
    *,
    width: int = 100,
    lanes: int = TextLimits.max_timeline_lanes,
    color: bool = False,
) -> str:
    """The answer, the lanes from the top, an axis and a legend; ends in a newline. At most `lanes` rows.

    In colour, shades show how busy a lane was; without, names are letters, small where the lane was busy for
    less than half of the column's time.
    """
    ink, timeline = Ink(color), look.timeline
    lines = [ink("title", line) for line in wrap(headline(look, nested=False), width)]
    spans = (
        f"Spans{'' if look.summary.tasks.by_name else ' inside of these'} are drawn with --png or --svg only."
    )
    if timeline is None or not timeline.lanes or timeline.length_s <= 0:
        why = ["No task or span was recorded: there is no timeline."]
        if timeline is not None and timeline.outside is not None:
            why = ["No task is drawn.", *timeline.notes, spans]
        lines += ["", *(line for one in why for line in wrap(one, width, first="  ", rest="  "))]
        return "\n".join(lines) + "\n"
    drawn = timeline.lanes[:lanes]
    labels = [lane_name(name, TextLimits.lane_label_width) + more for name, more in map(lane_parts, drawn)]
    margin = max(map(width_of, labels))
    columns = max(10, width - margin - 4)
    grid = _LaneGrid(timeline, len(drawn), columns, color)
    lines.append("")
    lines += [f"  {pad(label, margin)} │{grid.row(n)}".rstrip() for n, label in enumerate(labels)]
    lines += [f"  {' ' * margin} {row}" for row in _axis(timeline.length_s, columns)]
    lines += ["", *_legend(timeline, grid, width)]
    more = len(timeline.lanes) - len(drawn)
    notes = [
        *([f"{plural(more, 'more lane')} not shown: --png or --svg draws all."] if more else []),
        *timeline.notes,
    ]
    if timeline.nested is not None or timeline.outside is not None:
        notes.append(spans)
    if grid.faint:
        notes.insert(0, grid.shades)
    for note in notes:
        lines += wrap(brief(note, 400), width, first="  ", rest="  ")
    return "\n".join(lines) + "\n"


def lane_name(text: str, limit: int = 60) -> str:
    """A name of the run, on one line; `(no name)` for one of blanks."""
    found = brief(text, limit)
    return found if found.strip() else NAMELESS


def headline(look: TimelineWithSummary, *, nested: bool = True) -> str:
    """The outcome in one line: `run-… · completed in 5m 10s · 1,204 attempts on 8 workers, busy 66% of their
    time`. Says how many spans are drawn inside and outside of these, if they are `nested` there.
    """
    run, time, timeline = look.summary.run, look.time, look.timeline
    word = _TOOK.get(run.status, "after")
    took = f" {word} {duration_text(run.duration_s)}" if run.duration_s is not None else ""
    parts = [brief(run.run_id, 80), f"{brief(run.status, 20)}{took}"]
    if timeline is not None and timeline.attempts:
        on = f" on {plural(timeline.workers, 'worker')}" if timeline.workers else ""
        what = plural(timeline.attempts, "attempt" if look.summary.tasks.by_name else "outermost span")
        busy = ""
        if time is not None and time.basis == "workers" and time.whole.uptime_s > 0:
            share = format_percent(time.whole.busy_s / time.whole.uptime_s)
            busy = f", busy {share} of {'its' if timeline.workers == 1 else 'their'} time"
        parts.append(f"{what}{on}{busy}")
    if timeline is not None and nested:
        drawn = ((timeline.nested, "inside"), (timeline.outside, "outside of tasks"))
        parts += [f"{plural(len(one.lane), 'span')} {where}" for one, where in drawn if one is not None]
    if timeline is not None and timeline.failures:
        parts.append(f"{timeline.failures:,} failed or retried")
    return " · ".join(parts)


class _LaneGrid:
    """How long each name occupied each lane in each column, and its symbol."""

    def __init__(self, timeline: Timeline, lanes: int, columns: int, color: bool) -> None:
        self._color, self._known = color, len(timeline.names)
        self._lanes, self._columns, self._step = lanes, columns, timeline.length_s / columns
        self._held: defaultdict[tuple[int, int], dict[int, float]] = defaultdict(dict)
        self._marks: dict[tuple[int, int], str] = {}
        self.names: set[int] = set()
        self.faint = False
        """Whether a lane that was drawn was less than busy somewhere."""
        drawn = timeline.bars or timeline.cells
        if drawn is not None:
            busy = timeline.cells.busy if drawn is timeline.cells else [1.0] * len(drawn.lane)
            for one in zip(drawn.lane, drawn.start_s, drawn.length_s, drawn.name, busy, strict=True):
                self._hold(*one)
        for mark in timeline.marks:
            if 0 <= mark.lane < lanes and mark.kind in MARKS:
                place = mark.lane, self._column(mark.at_s)
                self._marks[place] = min(self._marks.get(place, mark.kind), mark.kind, key=_PRECEDENCE.index)
        self.kinds = {mark.kind for mark in timeline.marks if 0 <= mark.lane < lanes}

    def _column(self, at_s: float) -> int:
        return min(self._columns - 1, max(0, int(at_s / self._step)))

    def _hold(self, lane: int, start: float, length: float, name: int, busy: float) -> None:
        if not 0 <= lane < self._lanes:
            return
        name = name if 0 <= name < self._known else self._known
        first = self._column(start)
        for column in range(first, max(first, self._column(start + length)) + 1):
            left = max(start, column * self._step)
            inside = min(start + length, (column + 1) * self._step) - left
            # An instant counts for a little: what ran is seen, however short it was.
            held = self._held[lane, column]
            held[name] = held.get(name, 0.0) + max(inside, 1e-6 * self._step) * busy
        self.names.add(name)

    def row(self, lane: int) -> str:
        """The lane's text."""
        signs = [self._sign_at(lane, column) for column in range(self._columns)]
        return "".join(
            self._painted("".join(sign for sign, _ in same), color)
            for color, same in groupby(signs, lambda sign: sign[1])
        ).rstrip()

    def _sign_at(self, lane: int, column: int) -> tuple[str, str]:
        """The character of a place, and its colour."""
        if (kind := self._marks.get((lane, column))) is not None:
            return MARKS[kind].sign, MARKS[kind].color
        held = self._held.get((lane, column))
        if not held:
            return " ", ""
        name = max(held, key=lambda name: (held[name], -name))
        sign = self._sign(name, sum(held.values()) / self._step)
        self.faint |= sign != self._sign(name, 1.0)
        return sign, self._paint(name)

    def _sign(self, name: int, busy: float) -> str:
        """One character for a name on a lane that was busy for this share of the time."""
        if self._color:
            return _SHADES[min(3, max(0, int(busy * 4 - 1e-9)))]
        letter = ascii_uppercase[name % 26] if name < self._known else "*"
        return letter if busy >= 0.5 else letter.lower() if letter != "*" else "+"

    def _paint(self, name: int) -> str:
        return PALETTE[name % len(PALETTE)] if name < self._known else OTHER

    @property
    def shades(self) -> str:
        """What fainter signs mean."""
        if self._color:
            return f"{_SHADES}: from mostly idle to always busy."
        return "Lower-case letters, and + for *: busy for less than half of the time step."

    def key(self, name: int) -> str:
        """The character of a name in its colour, for the legend."""
        return self._painted(self._sign(name, 1.0), self._paint(name))

    def mark(self, kind: str) -> str:
        """The same of a kind of mark."""
        return self._painted(MARKS[kind].sign, MARKS[kind].color)

    def _painted(self, text: str, color: str) -> str:
        """The text in the nearest of the 216 colours that nearly every terminal has."""
        if not self._color or not color:
            return text
        red, green, blue = (
            min(5, max(0, round((int(color[at : at + 2], 16) - 55) / 40))) for at in (1, 3, 5)
        )
        return f"\x1b[38;5;{16 + 36 * red + 6 * green + blue}m{text}\x1b[0m"


def _axis(length_s: float, columns: int) -> list[str]:
    """A line with ticks, and the time at each."""
    step = _step(length_s, columns)
    line, texts = ["─"] * columns, [" "] * (columns + 12)
    number, free = 0, 0
    while number * step <= length_s * 1.0001:
        column = min(columns - 1, round(number * step / length_s * columns))
        text = clock_text(number * step)
        if column >= free and column + len(text) <= columns + 2:
            line[column] = "┴"
            texts[column : column + len(text)] = text
            free = column + len(text) + 1
        number += 1
    return [f"└{''.join(line)}", f" {''.join(texts).rstrip()}"]


def _step(length_s: float, columns: int) -> float:
    most = max(2, columns // 14)
    steps = (*(base * 10.0**power for power in range(-6, 0) for base in (1, 2, 5)), *_STEPS)
    return float(next((step for step in steps if length_s / step <= most), length_s / most))


def _legend(timeline: Timeline, grid: _LaneGrid, width: int) -> list[str]:
    entries = [
        (grid.key(name), fit(lane_name(timeline.names[name]), 40) if name < len(timeline.names) else OTHERS)
        for name in sorted(grid.names)
    ]
    entries += [(grid.mark(kind), MARKS[kind].name) for kind in _PRECEDENCE if kind in grid.kinds]
    return _flowing(entries, width)


def _flowing(entries: Sequence[tuple[str, str]], width: int) -> list[str]:
    lines, line, used = [], "", 0
    for key, text in entries:
        size = 4 + width_of(text)
        if line and used + size > width - 2:
            lines.append(line)
            line, used = "", 0
        line += f"  {key} {text}"
        used += size
    return [*lines, line] if line else lines
