"""The timeline figure: which task ran where and when, one lane per worker, one colour per task name."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flightlog.show.figures import style
from flightlog.show.figures.style import Scale, clock_text, day_text, duration_text, name_text, plain
from flightlog.show.limits import FigureLimits

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from flightlog.analyze.charts.results import Bars, Cells, Nested, Timeline, TimelineMark, TimelineRow

ROW_PX = 22
MIN_ROW_PX = 11
LABEL_PX = 13
"""So high is a label."""
MAX_HEIGHT_PX = 760
"""Lanes get thinner before the timeline gets higher than this, down to `MIN_ROW_PX`."""
OTHERS = "all others"
OUTSIDE = "outside of tasks"
_SHADES = 5
"""Shades of a colour, from mostly idle to always busy."""
_FILL = {"running": 0.45, "failed": 0.25, "retried": 0.25, "cancelled": 0.08}
"""Opacity of a bar that did not complete; its outline is opaque."""
_EDGED_PER_AXIS = 250
"""A bar longer than the axis divided by this, some four pixels, has an edge."""


class MarkStyle(NamedTuple):
    """How a kind of mark is drawn: none is identified by colour alone."""

    name: str
    symbol: str
    """Of Plotly."""
    color: str
    sign: str
    """In a terminal."""


MARKS = {
    "failed": MarkStyle("failed", "x", style.BAD, "✕"),
    "retried": MarkStyle("retried", "circle-open-dot", style.WARN, "↺"),
    "cancelled": MarkStyle("cancelled", "square-open", style.QUIET, "□"),
    "lost": MarkStyle("worker lost", "diamond", style.BAD, "◆"),
}
"""By the kind of mark."""


def timeline_figure(
    timeline: Timeline,
    *,
    title: str = "",
    colors: Mapping[str, str] | None = None,
    length_s: float | None = None,
    notes: bool = True,
) -> Figure | None:
    """Lanes from the top, bars coloured by task name, failures and retries marked; None where nothing ran.

    `colors` are those of a page, by task name. `length_s` is the length of the axis, where two runs are shown
    side by side. Without `notes` the caller shows them.
    """
    ran = timeline.bars is not None or timeline.cells is not None or timeline.marks
    outside = timeline.outside
    if not (timeline.lanes and ran) and outside is None:
        return None
    colors = style.colors_of(timeline.names) if colors is None else colors
    scale, axis = style.time_axis(max(timeline.length_s, length_s or 0.0), timeline.since)
    lanes = [*(lane_parts(lane) for lane in timeline.lanes), (OUTSIDE, "")]
    labels = style.unique_labels([name_text(name, 24) + more for name, more in lanes])
    name_apart = labels.pop()
    rows = _rows(labels, timeline.nested)
    traces: list[dict[str, Any]] = []
    if timeline.bars is not None:
        traces += _bars(timeline, labels, timeline.bars, scale, colors)
    elif timeline.cells is not None:
        traces += _cells(timeline, labels, timeline.cells, scale, colors)
    paint = {**style.colors_of([*colors, *span_names(timeline)]), **colors}
    if timeline.nested is not None:
        traces += span_traces(timeline.nested, rows, timeline, scale, paint)
    traces += _marks(timeline, labels, scale)
    below: list[str] = []
    if outside is not None:
        below = [name_apart, *_below(name_apart, outside.rows[0] - 1)]
        traces += span_traces(outside, [["", *below]], timeline, scale, paint, where="outside")
    every_row = [row for of_lane in (*rows, below) for row in of_lane]
    rows_all = len(every_row)
    row = max(MIN_ROW_PX, min(ROW_PX, MAX_HEIGHT_PX / rows_all))
    least_rows = min((len(of_lane) for of_lane in rows), default=1)
    every = max(1, math.ceil(LABEL_PX / (row * least_rows)))
    named = labels[::every]
    if outside is not None:
        named = [*labels[: max(0, len(labels) - every + 1) : every], name_apart]
    return style.make_figure(
        traces,
        x=axis,
        y={**style.rows_axis(every_row), "tickvals": named, "ticktext": named, "fixedrange": rows_all <= 8},
        title=plain(title, 200),
        notes=[plain(note, 300) for note in timeline_notes(timeline)] if notes else [],
        plot_px=rows_all * row,
        barmode="overlay",
        bargap=0.15,
        legend=True,
    )


def timeline_notes(timeline: Timeline) -> list[str]:
    """The notes on a picture that includes spans."""
    return [*timeline.notes, *timeline.notes_on_spans]


def _rows(labels: Sequence[str], nested: Nested | None) -> list[list[str]]:
    """The rows of each lane: its own, and those of the spans below it, which have no label that is shown."""
    counts = nested.rows if nested is not None else [0] * len(labels)
    return [[label, *_below(label, count)] for label, count in zip(labels, counts, strict=True)]


def _below(label: str, count: int) -> list[str]:
    return [f"{label}\u2063{number}" for number in range(count)]


def lane_parts(lane: TimelineRow) -> tuple[str, str]:
    """The first worker of a lane, to be cut where it is long, and which or how many more: `worker-6`, ` to
    8`.
    """
    if lane.merged <= 1:
        return lane.label, ""
    first, _, last = lane.label.partition(" to ")
    stem = first.rstrip("0123456789")
    number = last.removeprefix(stem)
    alike = last.startswith(stem) and number.isdecimal()
    return first, f" to {number}" if alike else f" +{lane.merged - 1:,} more"


def _legend_name(timeline: Timeline, name: int) -> str:
    return name_text(timeline.names[name], 40) if 0 <= name < len(timeline.names) else OTHERS


def by_name(names: Sequence[int], known: int) -> list[tuple[int, list[int]]]:
    """The places of each name in the order of names, all others last."""
    found: dict[int, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(name if 0 <= name < known else known, []).append(place)
    return sorted(found.items())


def _color(timeline: Timeline, name: int, colors: Mapping[str, str]) -> str:
    return colors.get(timeline.names[name], style.OTHER) if name < len(timeline.names) else style.OTHER


def _bars(
    timeline: Timeline, labels: Sequence[str], drawn: Bars, scale: Scale, colors: Mapping[str, str]
) -> list[dict[str, Any]]:
    return [
        style.bars(
            [labels[drawn.lane[n]] for n in places],
            scale.of(drawn.length_s[n] for n in places),
            shaded(_color(timeline, name, colors), drawn, places, timeline.length_s),
            [_bar_text(timeline, drawn, n) for n in places],
            base=scale.of(drawn.start_s[n] for n in places),
            name=_legend_name(timeline, name),
            legendgroup=f"name {name}",
        )
        for name, places in by_name(drawn.name, len(timeline.names))
    ]


def _bar_text(timeline: Timeline, bars: Bars, n: int) -> str:
    lane = timeline.lanes[bars.lane[n]]
    again = f", attempt {bars.attempt[n]}" if bars.attempt[n] > 1 else ""
    took = f"{duration_text(bars.length_s[n])}{' so far' if bars.state[n] == 'running' else ''}"
    given = f"<br>{plain(bars.args[n], 60)}" if bars.args and bars.args[n] else ""
    return (
        f"<b>{_legend_name(timeline, bars.name[n])}</b> {plain(bars.state[n], 20)}{again}{given}<br>"
        f"{took} from {moment_line(timeline.since, bars.start_s[n])}<br>on {name_text(lane.label, 40)}<br>"
        f"{plain(bars.task_id[n], 44)}"
    )


def moment_line(since: str, seconds: float) -> str:
    """A moment on the clock of the run, and on that of the world: `0:05 (03:52:05 UTC)`."""
    day = day_text(since, seconds)
    return f"{clock_text(seconds)} ({day})" if day else clock_text(seconds)


def shaded(color: str, drawn: Bars | Nested, places: Sequence[int], length_s: float) -> dict[str, Any]:
    """The marker of bars in a colour, on an axis of this length: full where they completed, else an outline
    around a faint inside. Those that are wide enough have an edge, which tells neighbours apart.
    """
    states = [drawn.state[n] for n in places]
    edges = [0.8 if drawn.length_s[n] * _EDGED_PER_AXIS > length_s else 0 for n in places]
    if set(states) <= {"completed"}:
        return {"color": color, "line": {"color": style.EDGE, "width": edges}}
    return {
        "color": [style.faded(color, _FILL[state]) if state in _FILL else color for state in states],
        "line": {
            "color": [color if state in _FILL else style.EDGE for state in states],
            "width": [1.5 if state in _FILL else edge for state, edge in zip(states, edges, strict=True)],
        },
    }


def span_names(timeline: Timeline) -> list[str]:
    """The names of spans that have a colour: of those inside of tasks, then of those outside."""
    return [
        name
        for one in (timeline.nested, timeline.outside)
        if one is not None
        for name in one.names[: FigureLimits.max_span_colors]
    ]


def span_traces(
    nested: Nested,
    rows: Sequence[Sequence[str]],
    timeline: Timeline,
    scale: Scale,
    paint: Mapping[str, str],
    *,
    where: str = "inside",
) -> Iterator[dict[str, Any]]:
    """Spans in the rows below those of their lanes; the names that took most of the time have a colour."""
    known = min(FigureLimits.max_span_colors, len(nested.names))
    for name, places in by_name(nested.name, known):
        label = name_text(nested.names[name], 40) if name < known else "other spans"
        paint_of = paint[nested.names[name]] if name < known else style.OTHER
        yield style.bars(
            [rows[nested.lane[n]][1 + nested.row[n]] for n in places],
            scale.of(nested.length_s[n] for n in places),
            shaded(paint_of, nested, places, timeline.length_s),
            [_span_text(nested, n, timeline.since) for n in places],
            base=scale.of(nested.start_s[n] for n in places),
            name=f"{label} ({where})",
            legendgroup=f"{where} {name}",
            width=0.55,
        )


def _span_text(nested: Nested, n: int, since: str) -> str:
    took = f"{duration_text(nested.length_s[n])}{' so far' if nested.state[n] == 'running' else ''}"
    return (
        f"<b>{name_text(nested.names[nested.name[n]], 40)}</b> {nested.state[n]}<br>"
        f"{took} from {moment_line(since, nested.start_s[n])}"
    )


def _cells(
    timeline: Timeline, labels: Sequence[str], cells: Cells, scale: Scale, colors: Mapping[str, str]
) -> list[dict[str, Any]]:
    """One picture of all stretches, its colours by name and by how busy, and a name each for the legend."""
    edges = sorted({*cells.start_s, *(s + w for s, w in zip(cells.start_s, cells.length_s, strict=True))})
    edges = [edge for n, edge in enumerate(edges) if not n or edge - edges[n - 1] > 1e-9 * edges[-1]]
    columns = len(edges) - 1
    if columns < 1:
        return []
    codes: list[list[int | None]] = [[None] * columns for _ in labels]
    facts: list[list[list[int] | None]] = [[None] * columns for _ in labels]
    known = len(timeline.names)
    for lane, start, length, name, attempts, busy in zip(
        cells.lane, cells.start_s, cells.length_s, cells.name, cells.attempts, cells.busy, strict=True
    ):
        first = _nearest(edges, start)
        code = (name if 0 <= name < known else known) * _SHADES + round(min(max(busy, 0), 1) * (_SHADES - 1))
        for column in range(first, min(columns, max(first + 1, _nearest(edges, start + length)))):
            codes[lane][column], facts[lane][column] = code, [attempts, round(100 * min(busy, 1.0))]
    used = {code // _SHADES for row in codes for code in row if code is not None}
    paint = [_color(timeline, name, colors) for name in range(known + 1)]
    picture = {
        "type": "heatmap",
        "x": scale.of(edges),
        "y": list(labels),
        "z": codes,
        "customdata": facts,
        "zmin": -0.5,
        "zmax": (known + 1) * _SHADES - 0.5,
        "colorscale": _steps(paint),
        "showscale": False,
        "ygap": 1,
        "hoverongaps": False,
        "showlegend": False,
        "name": "",
        "hovertemplate": "%{y}, around %{x}<br>%{customdata[0]:,} tasks, %{customdata[1]}% busy"
        "<extra></extra>",
    }
    legend = [
        style.markers(
            [None],
            [None],
            {"symbol": "square", "size": 11, "color": paint[name]},
            name=_legend_name(timeline, name),
            hoverinfo="skip",
        )
        for name in sorted(used)
    ]
    return [picture, *legend]


def _nearest(edges: Sequence[float], at: float) -> int:
    place = bisect_left(edges, at)
    before = place and (place == len(edges) or at - edges[place - 1] < edges[place] - at)
    return place - 1 if before else place


def _steps(paint: Sequence[str]) -> list[list[float | str]]:
    """Colours side by side: each name's from faint for hardly busy to full."""
    shades = [
        style.faded(color, 0.2 + 0.8 * level / (_SHADES - 1)) for color in paint for level in range(_SHADES)
    ]
    return [[(n + side) / len(shades), shade] for n, shade in enumerate(shades) for side in (0, 1)]


def _marks(timeline: Timeline, labels: Sequence[str], scale: Scale) -> Iterator[dict[str, Any]]:
    for kind, (name, symbol, color, _) in MARKS.items():
        found = [mark for mark in timeline.marks if mark.kind == kind and 0 <= mark.lane < len(labels)]
        if found:
            outlined = kind in {"failed", "lost"}
            edge = {"color": "#ffffff" if outlined else color, "width": 1 if outlined else 2}
            marker = {"symbol": symbol, "color": color, "size": 9, "line": edge}
            at, lanes = scale.of(mark.at_s for mark in found), [labels[mark.lane] for mark in found]
            yield style.markers(at, lanes, marker, [_mark_text(mark, name) for mark in found], name=name)


def _mark_text(mark: TimelineMark, kind: str) -> str:
    about = f"<br>{plain(mark.text, 100)}" if mark.text else ""
    return (
        f"<b>{name_text(mark.task, 40)}</b> {kind} at {clock_text(mark.at_s)}{about}<br>"
        f"{plain(mark.task_id or '', 44)}"
    )
