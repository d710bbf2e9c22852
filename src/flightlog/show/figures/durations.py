"""Figures of task durations by name, and of queueing against execution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flightlog.show.figures.style import (
    OTHER,
    PALETTE,
    QUIET,
    color_of,
    colors_of,
    duration_axis,
    duration_text,
    faded,
    filled,
    line,
    make_figure,
    markers,
    name_text,
    plain,
)
from flightlog.show.figures.timeline import OTHERS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from flightlog.analyze.charts.results import DurationSpread, Waits

ROWS = 20
_HIGH = 0.8
"""Share of its row that the fullest bin takes."""
_LEAST_S = 1e-9
_POINTS = (
    ("median_s", "median", "line-ns-open", 16),
    ("p95_s", "p95", "line-ns-open", 10),
    ("most_s", "longest", "diamond-open", 7),
)


def durations_figure(
    spreads: Sequence[DurationSpread], *, colors: Mapping[str, str] | None = None
) -> Figure | None:
    """A row for each name, in the order given, on an axis by powers; None where nothing took any time."""
    rows = [spread for spread in spreads if spread.count and spread.most_s > 0][:ROWS]
    if not rows:
        return None
    colors = colors_of(spread.name for spread in spreads) if colors is None else colors
    traces: list[dict[str, Any]] = []
    for row, spread in enumerate(rows):
        shape = _shape(spread, row)
        color = color_of(spread.name, colors)
        if shape is not None:
            name = name_text(spread.name, 40)
            traces.append(filled(*shape, color, 0.45, width=1, showlegend=False, name=name))
    for field, name, symbol, size in _POINTS:
        paint = [color_of(spread.name, colors) for spread in rows]
        edge = {"width": 2.5 if field == "median_s" else 1.5, "color": paint}
        traces.append(
            markers(
                [max(getattr(spread, field), _LEAST_S) for spread in rows],
                [row - 0.05 for row in range(len(rows))],
                {"symbol": symbol, "size": size, "color": paint, "line": edge},
                [_facts(spread) for spread in rows],
                name=name,
                showlegend=True,
            )
        )
    values = [
        max(value, _LEAST_S) for s in rows for value in (*_bounds(s), s.median_s, s.most_s) if value > 0
    ]
    left_out = len([spread for spread in spreads if spread.count]) - len(rows)
    return make_figure(
        traces,
        x=duration_axis(values, "execution time (logarithmic)"),
        y={
            "range": [len(rows) - 0.35, -1.0],
            "tickvals": list(range(len(rows))),
            "fixedrange": True,
            "ticktext": [f"{name_text(spread.name, 28)} ({spread.count:,})" for spread in rows],
            "showgrid": True,
        },
        notes=[f"{left_out:,} more names are not drawn."] if left_out > 0 else [],
        plot_px=20 + 44 * len(rows),
        legend=True,
    )


def _bounds(spread: DurationSpread) -> tuple[float, float]:
    """From where to where anything lies, as far as an axis by powers can show it."""
    return max(spread.least_s, _LEAST_S), max(spread.most_s, _LEAST_S)


def _shape(spread: DurationSpread, row: int) -> tuple[list[float], list[float]] | None:
    """The outline of the histogram over the row's base line; None where all took the same time."""
    full = max(spread.counts, default=0)
    if not full or len(spread.edges_s) != len(spread.counts) + 1 or spread.least_s == spread.most_s:
        return None
    positive = [edge for edge in spread.edges_s if edge > 0]
    floor = max(_LEAST_S, positive[0] / 2 if positive else _LEAST_S)
    x, y = [max(spread.edges_s[0], floor)], [float(row)]
    for number, count in enumerate(spread.counts):
        high = row - _HIGH * count / full
        x += [max(spread.edges_s[number], floor), max(spread.edges_s[number + 1], floor)]
        y += [high, high]
    return [*x, x[-1]], [*y, float(row)]


def _facts(spread: DurationSpread) -> str:
    return (
        f"<b>{name_text(spread.name, 40)}</b><br>{spread.count:,} tasks, {duration_text(spread.total_s)} in "
        f"all<br>median {duration_text(spread.median_s)}, p95 {duration_text(spread.p95_s)}<br>shortest "
        f"{duration_text(spread.least_s)}, longest {duration_text(spread.most_s)}"
    )


_LEAST_WAIT_S = 1e-6
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
        colors = colors_of(waits.names) if colors is None else colors
        traces = _points(waits, floors, colors)
        run, queue = (
            [max(value, floor) for value in values]
            for values, floor in zip((waits.run_s, waits.queue_s), floors, strict=True)
        )
        ends = min(run), max(run), min(queue), max(queue)
    low, high = max(ends[0], ends[2]), min(ends[1], ends[3])
    if high > low:
        dashed = {"color": QUIET, "dash": "dash", "width": 1.5}
        traces.append(
            line([low, high], [low, high], dashed, name="waited as long as it ran", showlegend=True)
        )
    y = duration_axis(queue, "time in the queue (logarithmic)")
    if not gridded and min(waits.queue_s) < min(queue):
        others = [
            (tick, text)
            for tick, text in zip(y["tickvals"], y["ticktext"], strict=True)
            if tick > 1.5 * min(queue)
        ]
        y["tickvals"] = [min(queue), *(tick for tick, _ in others)]
        y["ticktext"] = ["none", *(text for _, text in others)]
    return make_figure(
        traces,
        x=duration_axis(run, "execution time (logarithmic)"),
        y=y,
        notes=[plain(note, 300) for note in waits.notes] if notes else [],
        plot_px=280,
        legend=True,
    )


def _floor(values: Sequence[float]) -> float:
    known = [value for value in values if value >= _LEAST_WAIT_S]
    return max(_LEAST_WAIT_S, min(known, default=2 * _LEAST_WAIT_S) / 2)


def _points(waits: Waits, floors: tuple[float, float], colors: Mapping[str, str]) -> list[dict[str, Any]]:
    places: dict[int, list[int]] = {}
    for place, name in enumerate(waits.name):
        places.setdefault(name if 0 <= name < len(waits.names) else len(waits.names), []).append(place)
    names = [name_text(name, 40) for name in waits.names] + [OTHERS]
    paint = [colors.get(name, OTHER) for name in waits.names] + [OTHER]
    return [
        markers(
            [max(waits.run_s[n], floors[0]) for n in found],
            [max(waits.queue_s[n], floors[1]) for n in found],
            {"size": 6, "opacity": 0.75, "color": paint[name]},
            name=names[name],
            hovertemplate="waited %{y:.3~s}s, ran %{x:.3~s}s<extra>%{fullData.name}</extra>",
        )
        for name, found in sorted(places.items())
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
        "colorscale": [[0, faded(PALETTE[0], 0.2)], [1, faded(PALETTE[0], 1.0)]],
        "zmin": 0,
        "zmax": max(math.log10(most), 1.0),
        "hovertemplate": "%{customdata:,} tasks waited about %{y:.2~s}s and ran about %{x:.2~s}s"
        "<extra></extra>",
        "colorbar": _legend(most),
    }


def _legend(most: int) -> dict[str, Any]:
    ticks = [10**power for power in range(int(math.log10(max(most, 10))) + 1)]
    return {
        "title": {"text": "tasks", "side": "right"},
        "tickvals": [math.log10(tick) for tick in ticks],
        "ticktext": [f"{tick:,}" for tick in ticks],
        "thickness": 12,
        "outlinewidth": 0,
    }
