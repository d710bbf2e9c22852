"""How long tasks took, a row a name: the shape of the distribution, the median, the 95th percentile, the
longest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flightlog.show.figures.axes import duration_axis, duration_text
from flightlog.show.figures.style import color_of, colors_of, faded, make_figure
from flightlog.show.figures.text import name_text

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from flightlog.analyze.drawn.results import Spread

ROWS = 20
_HIGH = 0.8
"""How much of its row the fullest bin takes."""
_LEAST_S = 1e-9
_POINTS = (
    ("median_s", "median", "line-ns-open", 16),
    ("p95_s", "95th percentile", "line-ns-open", 10),
    ("most_s", "longest", "diamond-open", 7),
)


def durations_figure(spreads: Sequence[Spread], *, colors: Mapping[str, str] | None = None) -> Figure | None:
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
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": shape[0],
                    "y": shape[1],
                    "fill": "toself",
                    "fillcolor": faded(color, 0.45),
                    "line": {"color": color, "width": 1},
                    "hoverinfo": "skip",
                    "showlegend": False,
                    "name": name_text(spread.name, 40),
                }
            )
    for field, name, symbol, size in _POINTS:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "showlegend": True,
                "x": [max(getattr(spread, field), _LEAST_S) for spread in rows],
                "y": [row - 0.05 for row in range(len(rows))],
                "customdata": [_facts(spread) for spread in rows],
                "hovertemplate": "%{customdata}<extra></extra>",
                "marker": {
                    "symbol": symbol,
                    "size": size,
                    "color": [color_of(spread.name, colors) for spread in rows],
                    "line": {
                        "width": 2.5 if field == "median_s" else 1.5,
                        "color": [color_of(spread.name, colors) for spread in rows],
                    },
                },
            }
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


def _bounds(spread: Spread) -> tuple[float, float]:
    """From where to where anything lies, as far as an axis by powers can show it."""
    return max(spread.least_s, _LEAST_S), max(spread.most_s, _LEAST_S)


def _shape(spread: Spread, row: int) -> tuple[list[float], list[float]] | None:
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


def _facts(spread: Spread) -> str:
    return (
        f"<b>{name_text(spread.name, 40)}</b><br>{spread.count:,} tasks, {duration_text(spread.total_s)} "
        "in all<br>"
        f"half of them within {duration_text(spread.median_s)}, 95 of 100 within "
        f"{duration_text(spread.p95_s)}<br>"
        f"shortest {duration_text(spread.least_s)}, longest {duration_text(spread.most_s)}"
    )
