"""Figures of lines and points: charts over the time of a run, curves of metrics, trends over runs, queueing
against execution.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from flightlog.show.figures import style
from flightlog.show.figures.style import Scale, name_text, plain, value_text
from flightlog.show.figures.timeline import OTHERS, by_name
from flightlog.show.limits import FigureLimits
from flightlog.show.phrases import moment_text, money_text
from flightlog.show.terminal import brief

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from flightlog.analyze.charts.results import Chart, ChartSeries, Curve, Waits
    from flightlog.analyze.history.trends import Trend


DOT_PX = 7
"""Of a value without a neighbour."""
_DASHES = ("solid", "dash", "dot", "dashdot")
_UNITS = {
    "count": Scale(1.0, "", ""),
    "share": Scale(100.0, "%", ""),
    "cores": Scale(1.0, "", "cores in use"),
    "percent": Scale(1.0, "%", ""),
    "watts": Scale(1.0, " W", ""),
    "money": Scale(1.0, "", ""),
}


def _scale(unit: str, most: float) -> Scale:
    """The scale of an axis up to this value."""
    fitted = {"bytes": style.bytes_scale, "seconds": style.time_scale}.get(unit)
    return _UNITS[unit] if fitted is None else fitted(most)


def chart_figure(chart: Chart, *, title: str = "", notes: bool = True) -> Figure | None:
    """One line per series, with gaps where values are unknown; None without any value.

    `title` is shown as written. Without `notes` the caller shows them, and `limit_note`.
    """
    known = _known(chart)
    if not known:
        return None
    most = max(known)
    scale = _scale(chart.unit, most)
    time, axis = style.time_axis(chart.length_s, chart.since)
    traces = [_line(series, n, chart, time, scale) for n, series in enumerate(chart.series)]
    limits, told = _limits(chart, most)
    dashed = {"color": style.QUIET, "width": 1.5, "dash": "dash"}
    ends = time.of([0.0, chart.length_s])
    traces += [
        style.line(ends, scale.of([limit, limit]), dashed, name=plain(label, 60)) for limit, label in limits
    ]
    said = [plain(note, 300) for note in (*chart.notes, *told)] if notes else []
    low, high = min(*known, 0.0), max([most, *(limit for limit, _ in limits)])
    return style.make_figure(
        traces,
        x=axis,
        y={
            "title": {"text": "" if chart.unit == "bytes" else scale.words},
            "ticksuffix": scale.suffix,
            "rangemode": "tozero",
            "separatethousands": True,
            "exponentformat": "none",
            "nticks": 6,
            "range": [low * scale.factor, 1.06 * high * scale.factor] if high > low else [0, 1],
        },
        title=plain(title),
        notes=said,
        plot_px=200,
        hovermode="x unified",
        legend=len(traces) > 1,
    )


def limit_note(chart: Chart) -> str | None:
    """A sentence on limits that are too far off to be drawn; None where there are none."""
    known = _known(chart)
    return " ".join(_limits(chart, max(known))[1]) or None if known else None


def _known(chart: Chart) -> list[float]:
    return [v for series in chart.series for v in series.value if v is not None and math.isfinite(v)]


def _line(series: ChartSeries, number: int, chart: Chart, time: Scale, scale: Scale) -> dict[str, Any]:
    color = style.PALETTE[number % len(style.PALETTE)]
    dash = _DASHES[number // len(style.PALETTE) % len(_DASHES)]
    values = [
        value * scale.factor if value is not None and math.isfinite(value) else None for value in series.value
    ]
    dots = [DOT_PX if dot else 0 for dot in without_neighbours(values)]
    shape = "hv" if chart.unit == "count" else "linear"
    drawn_as = {"color": color, "width": 1.8, "dash": dash, "shape": shape}
    unit = scale.suffix or (" cores" if chart.unit == "cores" else "")
    return _dotted(time.of(series.at_s), values, drawn_as, dots, series.label, f"%{{y:,.4~g}}{unit}")


def _dotted(
    at: Sequence[float],
    values: Sequence[float | None],
    drawn_as: Mapping[str, Any],
    dots: Sequence[int],
    name: str,
    hover: str,
) -> dict[str, Any]:
    """A line with gaps where values are unknown, and dots of these sizes at its points."""
    marked = {"marker": {"color": drawn_as["color"], "size": dots}} if any(dots) else {}
    mode = "lines+markers" if marked else "lines"
    texts = {"name": name_text(name, 40), "connectgaps": False, "hovertemplate": hover}
    return style.line(at, values, drawn_as, mode=mode, **texts, **marked)


def without_neighbours(values: Sequence[float | None]) -> list[bool]:
    """Which values have no neighbour: they are drawn as dots."""
    known = [False, *(value is not None for value in values), False]
    return [known[n] and not known[n - 1] and not known[n + 1] for n in range(1, len(values) + 1)]


def _limits(chart: Chart, most: float) -> tuple[list[tuple[float, str]], list[str]]:
    """Limits to draw, each once, and sentences on those that are far off."""
    found: dict[float, list[str]] = {}
    for series in chart.series:
        if series.limit is not None and math.isfinite(series.limit) and series.limit > 0:
            found.setdefault(series.limit, []).append(series.label)
    drawn, told = [], []
    for limit, labels in sorted(found.items())[:4]:
        whose = f" of {labels[0]}" if len(labels) == 1 and len(chart.series) > 1 else ""
        text = value_text(limit, chart.unit)
        if limit <= FigureLimits.max_limit_ratio * most:
            drawn.append((limit, f"limit{whose}: {text}"))
        else:
            told.append(f"The limit{whose} is {text}, above what is drawn.")
    return drawn, told


CURVE = style.PALETTE[0]
"""The colour of a curve."""


def curve_figure(
    curve: Curve, *, length_s: float, since: str | None = None, title: str = "", notes: bool = True
) -> Figure | None:
    """A line with gaps where values are not numbers, in a band from least to most; None where there is
    nothing to draw.

    `length_s` is the duration of the run and `since` its start, for a curve over time. Without `notes` the
    caller shows those of `curve_notes`.
    """
    told = [plain(note, 300) for note in curve_notes(curve)] if notes else []
    curve = replace(
        curve, value=_drawable(curve.value), least=_drawable(curve.least), most=_drawable(curve.most)
    )
    bounds = [*(curve.least or curve.value), *(curve.most or curve.value)]
    known = [value for value in bounds if value is not None and math.isfinite(value)]
    if not known:
        return None
    low, high = min(known), max(known)
    powers = low > 0 and high > FigureLimits.logarithmic_from * low
    scale, x = _across(curve, length_s, since)
    at = scale.of(curve.at)
    traces: list[dict[str, Any]] = []
    if curve.least:
        traces.append(_band(at, curve))
    few = len(curve.at) <= FigureLimits.max_dotted_points
    dots = [5 if few or lone else 0 for lone in without_neighbours(curve.value)]
    hover = f"%{{y:.5~g}} at %{{x:,.6~g}}{scale.suffix}<extra></extra>"
    traces.append(_dotted(at, curve.value, {"color": CURVE, "width": 1.8}, dots, curve.name, hover))
    room = 0.06 * (high - low) or abs(high) * 0.1 or 1.0
    ends = [low - room, high + room]
    if curve.lost_at:
        marked_at = scale.of(curve.lost_at[: FigureLimits.max_not_a_number_marks])
        traces.append(_lost(marked_at, low if powers else ends[0] + room / 2))
    if powers:
        ends = [math.log10(low) - 0.1, math.log10(high) + 0.1]
    return style.make_figure(
        traces,
        x=x,
        y={
            "title": {"text": "logarithmic"} if powers else {},
            "range": ends,
            "exponentformat": "e",
            "separatethousands": True,
            **({"type": "log", **_powers(low, high)} if powers else {"nticks": 6}),
        },
        title=plain(title, 200),
        notes=told,
        plot_px=180,
        legend=bool(curve.lost_at),
    )


def curve_notes(curve: Curve) -> list[str]:
    """Sentences on points that are several values, and on values that are no numbers."""
    notes = []
    if curve.least:
        notes.append(
            f"{len(curve.at):,} points of {curve.values:,} values: the line is their mean, the band from "
            "least to most."
        )
    if curve.lost:
        were = "was" if curve.lost == 1 else "were"
        where = ""
        if curve.lost_at:
            first = curve.lost_at[0]
            where = f", first at {f'step {first:,.15g}' if curve.by == 'step' else f'{first:,.4g} s'}"
        notes.append(f"{curve.lost:,} of {curve.values:,} values {were} NaN or infinite{where}.")
    bounds = [*curve.value, *curve.least, *curve.most]
    if any(value is not None and abs(value) > FigureLimits.max_drawn_value for value in bounds):
        notes.append(f"Values beyond {FigureLimits.max_drawn_value:g} are drawn as that.")
    return notes


def _drawable(values: Sequence[float | None]) -> list[float | None]:
    most = FigureLimits.max_drawn_value
    return [None if value is None else max(-most, min(most, value)) for value in values]


def _across(curve: Curve, length_s: float, since: str | None) -> tuple[Scale, dict[str, Any]]:
    if curve.by == "time":
        return style.time_axis(length_s, since)
    low, high = curve.at[0], curve.at[-1]
    room = 0.01 * (high - low) or 1.0
    axis = {
        "title": {"text": "step"},
        "separatethousands": True,
        "range": [low - room, high + room],
        "nticks": 8,
        "minexponent": 7,  # 10,002 and not 10.002k
    }
    return Scale(1.0, "", ""), axis


def _band(at: Sequence[float], curve: Curve) -> dict[str, Any]:
    """From least to most and back, a piece for each stretch without a gap."""
    x: list[float | None] = []
    y: list[float | None] = []
    points = zip(at, curve.least, curve.most, strict=True)
    for known, stretch in groupby(points, lambda point: None not in point):
        places, least, most = zip(*stretch, strict=True)
        if known and len(places) > 1:
            x += [*places, *reversed(places), None]
            y += [*least, *reversed(most), None]
    return style.filled(x, y, CURVE, 0.22, name="", showlegend=False)


def _lost(at: Sequence[float], height: float) -> dict[str, Any]:
    mark = {"symbol": "x", "color": style.BAD, "size": 8}
    text = "NaN or infinite at %{x:,.6~g}<extra></extra>"
    return style.markers(at, [height] * len(at), mark, name="NaN or infinite", hovertemplate=text)


def _powers(low: float, high: float) -> dict[str, Any]:
    """At most seven powers of ten between two, and what they are called."""
    first, last = math.ceil(math.log10(low) - 0.1), math.floor(math.log10(high) + 0.1)
    found = range(first, last + 1, max(1, -(-(last - first + 1) // 7)))
    return {"tickvals": [10.0**n for n in found], "ticktext": [f"{10.0**n:g}" for n in found]}


LEVEL = style.PALETTE[1]


def trends_figure(trend: Trend) -> Figure | None:
    """A point for each run, evenly spaced, the oldest first; None where no run has the figure."""
    if not trend.points:
        return None
    values = [point.value for point in trend.points]
    scale = trend_scale(trend, max(values))
    traces = [
        *_level_band(trend, scale),
        _levels(trend, scale),
        _run_points(trend, scale),
        *_changes(trend, scale),
    ]
    count, ticks = len(values), FigureLimits.max_run_ticks
    named = sorted({round(n * (count - 1) / max(1, ticks - 1)) for n in range(ticks)})
    low, high = min(values), max(values)
    around = 0.08 * ((high - low) or abs(high) or 1.0)
    bottom = 0.0 if low >= 0 and low < 0.5 * high else low - around
    return style.make_figure(
        traces,
        x={
            "title": {"text": "runs, the oldest first"},
            "range": [-0.5, count - 0.5],
            "tickvals": named,
            "ticktext": [plain((trend.points[n].start_time or "")[:10] or f"run {n + 1}") for n in named],
        },
        y=style.amount_axis(
            ", ".join(filter(None, (plain(trend.metric, 40), plain(scale.words)))),
            scale,
            [bottom, high + around],
            nticks=6,
            separatethousands=True,
        ),
        plot_px=240,
        legend=True,
    )


def number_text(value: float) -> str:
    """Two digits of small numbers, whole large ones."""
    if value >= 10 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def trend_value(trend: Trend, value: float) -> str:
    """A value of the trend in words."""
    if trend.unit == "money":
        return money_text(value, trend.currency)
    return number_text(value) if trend.unit == "count" else value_text(value, trend.unit)


def trend_scale(trend: Trend, most: float) -> Scale:
    """The unit of the trend's axis, up to this value."""
    words = {"share": "percent", "money": brief(trend.currency, 12), "count": "a run"}
    scale = _scale(trend.unit, most)
    return scale._replace(words=words.get(trend.unit, scale.words))


def _trend_text(trend: Trend, value: float) -> str:
    """A value for Plotly: that of a small share, `<0.1%`, begins as a tag does."""
    return plain(trend_value(trend, value))


def _run_points(trend: Trend, scale: Scale) -> dict[str, Any]:
    facts = [
        f"<b>{_trend_text(trend, point.value)}</b><br>{plain(point.run_id, 60)}<br>"
        f"{plain(moment_text(point.start_time))}"
        + (f", commit {plain(point.git_commit[:12])}" if point.git_commit else "")
        for point in trend.points
    ]
    marker = {"size": 7 if len(trend.points) <= 300 else 4, "color": style.PALETTE[0]}
    y = scale.of(point.value for point in trend.points)
    return style.markers(range(len(trend.points)), y, marker, facts, name="runs")


def _levels(trend: Trend, scale: Scale) -> dict[str, Any]:
    x = [at for one in trend.levels for at in (one.first - 0.4, one.first + one.runs - 0.6, None)]
    y = [at for one in trend.levels for at in (*scale.of([one.typical] * 2), None)]
    return style.line(x, y, {"color": LEVEL, "width": 2.5}, name="typical of a level")


def _level_band(trend: Trend, scale: Scale) -> list[dict[str, Any]]:
    """The range from p5 to p95 of each level, for levels that have ten at least."""
    x: list[float | None] = []
    y: list[float | None] = []
    for level in (level for level in trend.levels if level.runs >= FigureLimits.min_runs_for_p95):
        left, right = level.first - 0.4, level.first + level.runs - 0.6
        low, high = level.p05 * scale.factor, level.p95 * scale.factor
        x += [left, right, right, left, left, None]
        y += [low, low, high, high, low, None]
    return [style.filled(x, y, LEVEL, 0.18, name="p5 to p95")] if x else []


def _changes(trend: Trend, scale: Scale) -> list[dict[str, Any]]:
    if not trend.changes:
        return []
    facts, relative = [], trend.unit not in {"share", "count"}
    for change in trend.changes:
        by = f" ({change.change:+.1%})" if change.change is not None and relative else ""
        what = "".join(
            f"<br>{plain(d.what)}: {plain(d.before or 'unknown', 30)} → {plain(d.after or 'unknown', 30)}"
            for d in change.differences
        )
        facts.append(
            f"<b>{_trend_text(trend, change.before)} → {_trend_text(trend, change.after)}</b>{by}<br>from "
            f"{plain(change.run_id)}{what}"
        )
    marker = {
        "symbol": "triangle-up",
        "size": 13,
        "color": style.BAD,
        "line": {"width": 1, "color": style.QUIET},
    }
    y = scale.of(change.after for change in trend.changes)
    return [style.markers([change.at for change in trend.changes], y, marker, facts, name="steps")]


_MIN_DRAWN_WAIT_S = 1e-6
"""Shorter times are drawn as this: an axis by powers has no place for 0."""


def waits_figure(
    waits: Waits, *, colors: Mapping[str, str] | None = None, notes: bool = True
) -> Figure | None:
    """Points, or counts in a grid, on logarithmic axes; on the line, tasks waited as long as they ran.
    Without `notes` the caller shows them.
    """
    gridded = bool(waits.grid) and any(map(any, waits.grid))
    if not gridded and not waits.queue_s:
        return None
    if gridded:
        run, queue = _edges(waits.run_edges_s), _edges(waits.queue_edges_s)
        traces, ends = [_grid(waits.grid, run, queue)], (run[0], run[-1], queue[0], queue[-1])
    else:
        floors = _floor(waits.run_s), _floor(waits.queue_s)
        colors = style.colors_of(waits.names) if colors is None else colors
        traces = _waits(waits, floors, colors)
        run, queue = (
            [max(value, floor) for value in values]
            for values, floor in zip((waits.run_s, waits.queue_s), floors, strict=True)
        )
        ends = min(run), max(run), min(queue), max(queue)
    low, high = max(ends[0], ends[2]), min(ends[1], ends[3])
    if high > low:
        dashed = {"color": style.QUIET, "dash": "dash", "width": 1.5}
        traces.append(
            style.line([low, high], [low, high], dashed, name="waited as long as it ran", showlegend=True)
        )
    y = style.duration_axis(queue, "time in the queue (logarithmic)")
    if not gridded and min(waits.queue_s) < min(queue):
        ticks = zip(y["tickvals"], y["ticktext"], strict=True)
        others = [(tick, text) for tick, text in ticks if tick > 1.5 * min(queue)]
        y["tickvals"], y["ticktext"] = map(list, zip((min(queue), "none"), *others, strict=True))
    return style.make_figure(
        traces,
        x=style.duration_axis(run, "execution time (logarithmic)"),
        y=y,
        notes=[plain(note, 300) for note in waits.notes] if notes else [],
        plot_px=280,
        legend=True,
    )


def _floor(values: Sequence[float]) -> float:
    known = [value for value in values if value >= _MIN_DRAWN_WAIT_S]
    return max(_MIN_DRAWN_WAIT_S, min(known, default=2 * _MIN_DRAWN_WAIT_S) / 2)


def _waits(waits: Waits, floors: tuple[float, float], colors: Mapping[str, str]) -> list[dict[str, Any]]:
    names = [name_text(name, 40) for name in waits.names] + [OTHERS]
    paint = [colors.get(name, style.OTHER) for name in waits.names] + [style.OTHER]
    return [
        style.markers(
            [max(waits.run_s[n], floors[0]) for n in found],
            [max(waits.queue_s[n], floors[1]) for n in found],
            {"size": 6, "opacity": 0.75, "color": paint[name]},
            name=names[name],
            hovertemplate="waited %{y:.3~s}s, ran %{x:.3~s}s<extra>%{fullData.name}</extra>",
        )
        for name, found in by_name(waits.name, len(waits.names))
    ]


def _edges(edges: Sequence[float]) -> list[float]:
    """Edges for an axis by powers: a first one of 0 is moved to where the next bin would begin."""
    if not edges or edges[0] > 0:
        return list(edges)
    rest = [edge for edge in edges if edge > 0]
    step = rest[1] / rest[0] if len(rest) > 1 else 10.0
    return [(rest[0] if rest else 1.0) / step, *rest]


def _grid(grid: Sequence[Sequence[int]], run: Sequence[float], queue: Sequence[float]) -> dict[str, Any]:
    most = max(max(row, default=0) for row in grid)
    return {
        "type": "heatmap",
        "x": list(run),
        "y": list(queue),
        "z": [[math.log10(count) if count else None for count in row] for row in grid],
        "customdata": [list(row) for row in grid],
        "hoverongaps": False,
        "name": "",
        "colorscale": [[0, style.faded(style.PALETTE[0], 0.2)], [1, style.faded(style.PALETTE[0], 1.0)]],
        "zmin": 0,
        "zmax": max(math.log10(most), 1.0),
        "hovertemplate": "%{customdata:,} tasks waited about %{y:.2~s}s and ran about %{x:.2~s}s"
        "<extra></extra>",
        "colorbar": _grid_legend(most),
    }


def _grid_legend(most: int) -> dict[str, Any]:
    ticks = [10**power for power in range(int(math.log10(max(most, 10))) + 1)]
    return {
        "title": {"text": "tasks", "side": "right"},
        "tickvals": [math.log10(tick) for tick in ticks],
        "ticktext": [f"{tick:,}" for tick in ticks],
        "thickness": 12,
        "outlinewidth": 0,
    }
