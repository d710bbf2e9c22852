"""Plotly figures: a result in, a figure out. The same figures serve the report, the dashboard, notebooks and
pictures.

Each function is pure, and returns None where there is nothing to draw. Plotly is imported with the first
figure. Texts of a run pass through `plain`, so that Plotly finds no markup in them.
"""

from flightlog.show.figures.lines import (
    chart_figure,
    curve_figure,
    curve_notes,
    limit_note,
    trends_figure,
    waits_figure,
)
from flightlog.show.figures.rows import (
    comparison_figure,
    cost_figure,
    critical_figure,
    durations_figure,
    ratios_figure,
    shares_figure,
    spans_figure,
)
from flightlog.show.figures.style import CONFIG, colors_of, figure_json, with_theme
from flightlog.show.figures.timeline import timeline_figure

__all__ = [
    "CONFIG",
    "chart_figure",
    "colors_of",
    "comparison_figure",
    "cost_figure",
    "critical_figure",
    "curve_figure",
    "curve_notes",
    "durations_figure",
    "figure_json",
    "limit_note",
    "ratios_figure",
    "shares_figure",
    "spans_figure",
    "timeline_figure",
    "trends_figure",
    "waits_figure",
    "with_theme",
]
