"""Lines over the time of a run: tasks at once, CPU, memory, cache lookups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flightlog.show.figures.axes import Scale, bytes_scale, time_axis, value_text
from flightlog.show.figures.style import PALETTE, QUIET, make_figure
from flightlog.show.figures.text import name_text, plain

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from flightlog.analyze.drawn.results import Chart, Series

FAR = 5.0
"""A limit that is so many times what was reached is told and not drawn: the lines would lie flat."""
DOT_PX = 7
"""Of a value without a neighbour."""
_DASHES = ("solid", "dash", "dot", "dashdot")
_UNITS = {
    "count": Scale(1.0, "", ""),
    "share": Scale(100.0, "%", ""),
    "cores": Scale(1.0, "", "cores in use"),
    "percent": Scale(1.0, "%", ""),
    "watts": Scale(1.0, " W", ""),
}


def chart_figure(
    chart: Chart,
    *,
    title: str = "",
    colors: Mapping[str, str] | None = None,
    length_s: float | None = None,
    notes: bool = True,
) -> Figure | None:
    """A line for each series, broken where nothing is known; None where nothing is known at all.

    `title` is shown as it is written. `colors` are by the series' labels. `length_s` is how long the axis is,
    where two runs stand side by side. Without `notes` somebody else tells them, and `limit_note`.
    """
    known = [
        value
        for series in chart.series
        for value in series.value
        if value is not None and math.isfinite(value)
    ]
    if not known:
        return None
    most = max(known)
    scale = bytes_scale(most) if chart.unit == "bytes" else _UNITS[chart.unit]
    time, axis = time_axis(max(chart.length_s, length_s or 0.0), chart.since)
    traces = [_line(series, n, chart, time, scale, colors or {}) for n, series in enumerate(chart.series)]
    limits, told = _limits(chart, most)
    traces += [_limit(limit, label, chart, time, scale) for limit, label in limits]
    said = [plain(note, 300) for note in (*chart.notes, *told)] if notes else []
    low, high = min(*known, 0.0), max([most, *(limit for limit, _ in limits)])
    return make_figure(
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
    known = [v for series in chart.series for v in series.value if v is not None and math.isfinite(v)]
    return " ".join(_limits(chart, max(known))[1]) or None if known else None


def _line(
    series: Series, number: int, chart: Chart, time: Scale, scale: Scale, colors: Mapping[str, str]
) -> dict[str, Any]:
    color = colors.get(series.label, PALETTE[number % len(PALETTE)])
    dash = _DASHES[number // len(PALETTE) % len(_DASHES)]
    values = [
        value * scale.factor if value is not None and math.isfinite(value) else None for value in series.value
    ]
    dots = alone(values)
    marked = {"marker": {"color": color, "size": [DOT_PX if dot else 0 for dot in dots]}} if any(dots) else {}
    return {
        "type": "scatter",
        "mode": "lines+markers" if marked else "lines",
        "name": name_text(series.label, 40),
        "x": time.of(series.at_s),
        "connectgaps": False,
        "y": values,
        **marked,
        "line": {
            "color": color,
            "width": 1.8,
            "dash": dash,
            "shape": "hv" if chart.unit == "count" else "linear",
        },
        "hovertemplate": f"%{{y:,.4~g}}{scale.suffix or (' cores' if chart.unit == 'cores' else '')}",
    }


def alone(values: Sequence[float | None]) -> list[bool]:
    """Which values have no neighbour: no line goes through them, and they are drawn as dots."""
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
        if limit <= FAR * most:
            drawn.append((limit, f"limit{whose}: {text}"))
        else:
            told.append(f"The limit{whose} is {text}, above what is drawn.")
    return drawn, told


def _limit(limit: float, label: str, chart: Chart, time: Scale, scale: Scale) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain(label, 60),
        "x": time.of([0.0, chart.length_s]),
        "y": [limit * scale.factor] * 2,
        "line": {"color": QUIET, "width": 1.5, "dash": "dash"},
        "hoverinfo": "skip",
    }
