"""Queueing against execution: which tasks waited longer than they ran."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flightlog.show.figures.axes import duration_axis
from flightlog.show.figures.style import OTHER, PALETTE, QUIET, colors_of, faded, make_figure
from flightlog.show.figures.text import name_text, plain
from flightlog.show.figures.timeline import OTHERS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from flightlog.analyze.drawn.results import Waits

_LEAST_S = 1e-6
"""Shorter times are drawn as this: an axis by powers has no place for 0."""


def waits_figure(
    waits: Waits, *, colors: Mapping[str, str] | None = None, notes: bool = True
) -> Figure | None:
    """Points, or counts in a grid, on axes by powers; the line is where tasks waited as long as they ran.

    Without `notes` somebody else tells them.
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
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [low, high],
                "y": [low, high],
                "name": "waited as long as it ran",
                "line": {"color": QUIET, "dash": "dash", "width": 1.5},
                "hoverinfo": "skip",
                "showlegend": True,
            }
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
    known = [value for value in values if value >= _LEAST_S]
    return max(_LEAST_S, min(known, default=2 * _LEAST_S) / 2)


def _points(waits: Waits, floors: tuple[float, float], colors: Mapping[str, str]) -> list[dict[str, Any]]:
    places: dict[int, list[int]] = {}
    for place, name in enumerate(waits.name):
        places.setdefault(name if 0 <= name < len(waits.names) else len(waits.names), []).append(place)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name_text(waits.names[name], 40) if name < len(waits.names) else OTHERS,
            "x": [max(waits.run_s[n], floors[0]) for n in found],
            "y": [max(waits.queue_s[n], floors[1]) for n in found],
            "marker": {
                "size": 6,
                "opacity": 0.75,
                "color": colors.get(waits.names[name], OTHER) if name < len(waits.names) else OTHER,
            },
            "hovertemplate": "waited %{y:.3~s}s, ran %{x:.3~s}s<extra>%{fullData.name}</extra>",
        }
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
