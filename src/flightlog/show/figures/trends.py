"""The trend figure: one point per run, the levels, and the steps between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flightlog.show.figures.style import (
    BAD,
    PALETTE,
    QUIET,
    Scale,
    amount_axis,
    bytes_scale,
    filled,
    line,
    make_figure,
    markers,
    plain,
    time_scale,
    value_text,
)
from flightlog.show.phrases import moment_text, money_text
from flightlog.show.terminal import brief

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from flightlog.analyze.history.trends import Trend

TICKS = 8
LEVEL = PALETTE[1]
BANDED = 10
"""Fewer runs have no p5 and p95."""


def trends_figure(trend: Trend) -> Figure | None:
    """A point for each run, evenly spaced, the oldest first; None where no run has the figure."""
    if not trend.points:
        return None
    values = [point.value for point in trend.points]
    scale = trend_scale(trend, max(values))
    traces = [*_band(trend, scale), _levels(trend, scale), _points(trend, scale), *_changes(trend, scale)]
    count = len(values)
    named = sorted({round(n * (count - 1) / max(1, TICKS - 1)) for n in range(TICKS)})
    low, high = min(values), max(values)
    around = 0.08 * ((high - low) or abs(high) or 1.0)
    bottom = 0.0 if low >= 0 and low < 0.5 * high else low - around
    return make_figure(
        traces,
        x={
            "title": {"text": "runs, the oldest first"},
            "range": [-0.5, count - 0.5],
            "tickvals": named,
            "ticktext": [plain((trend.points[n].start_time or "")[:10] or f"run {n + 1}") for n in named],
        },
        y=amount_axis(_title(trend, scale), scale, [bottom, high + around], nticks=6, separatethousands=True),
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
    match trend.unit:
        case "seconds":
            return time_scale(most)
        case "bytes":
            return bytes_scale(most)
        case "share":
            return Scale(100.0, "%", "percent")
        case "money":
            return Scale(1.0, "", brief(trend.currency, 12))
        case _:
            return Scale(1.0, "", "a run")


def _title(trend: Trend, scale: Scale) -> str:
    return f"{plain(trend.metric, 40)}, {plain(scale.words)}" if scale.words else plain(trend.metric, 40)


def _text(trend: Trend, value: float) -> str:
    """A value for Plotly: that of a small share, `<0.1%`, begins as a tag does."""
    return plain(trend_value(trend, value))


def _points(trend: Trend, scale: Scale) -> dict[str, Any]:
    facts = [
        f"<b>{_text(trend, point.value)}</b><br>{plain(point.run_id, 60)}<br>"
        f"{plain(moment_text(point.start_time))}"
        + (f", commit {plain(point.git_commit[:12])}" if point.git_commit else "")
        for point in trend.points
    ]
    marker = {"size": 7 if len(trend.points) <= 300 else 4, "color": PALETTE[0]}
    y = scale.of(point.value for point in trend.points)
    return markers(range(len(trend.points)), y, marker, facts, name="runs")


def _levels(trend: Trend, scale: Scale) -> dict[str, Any]:
    x: list[float | None] = []
    y: list[float | None] = []
    for level in trend.levels:
        x += [level.first - 0.4, level.first + level.runs - 0.6, None]
        y += [level.typical * scale.factor, level.typical * scale.factor, None]
    return line(x, y, {"color": LEVEL, "width": 2.5}, name="typical of a level")


def _band(trend: Trend, scale: Scale) -> list[dict[str, Any]]:
    """The range from p5 to p95 of each level, for levels that have ten at least."""
    x: list[float | None] = []
    y: list[float | None] = []
    for level in (level for level in trend.levels if level.runs >= BANDED):
        left, right = level.first - 0.4, level.first + level.runs - 0.6
        low, high = level.p05 * scale.factor, level.p95 * scale.factor
        x += [left, right, right, left, left, None]
        y += [low, low, high, high, low, None]
    return [filled(x, y, LEVEL, 0.18, name="p5 to p95")] if x else []


def _changes(trend: Trend, scale: Scale) -> list[dict[str, Any]]:
    if not trend.changes:
        return []
    facts = []
    for change in trend.changes:
        by = (
            f" ({change.change:+.1%})"
            if change.change is not None and trend.unit not in {"share", "count"}
            else ""
        )
        what = "".join(
            f"<br>{plain(d.what)}: {plain(d.before or 'unknown', 30)} → {plain(d.after or 'unknown', 30)}"
            for d in change.differences
        )
        facts.append(
            f"<b>{_text(trend, change.before)} → {_text(trend, change.after)}</b>{by}<br>from "
            f"{plain(change.run_id)}{what}"
        )
    marker = {"symbol": "triangle-up", "size": 13, "color": BAD, "line": {"width": 1, "color": QUIET}}
    y = scale.of(change.after for change in trend.changes)
    return [markers([change.at for change in trend.changes], y, marker, facts, name="steps")]
