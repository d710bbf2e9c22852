"""The figures on the page of a run, as Plotly takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from flightlog.analyze.drawn.results import Curve
from flightlog.analyze.moments import SECOND, moment
from flightlog.show.figures import CONFIG, chart_figure, colors_of, limit_note, timeline_figure
from flightlog.show.figures.lines import curve_figure, curve_notes
from flightlog.show.phrases import moment_text
from flightlog.web.listing import short

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from flightlog.analyze.drawn.results import Chart, MetricPoints
    from flightlog.analyze.live.results import LiveState

TITLES = {
    "timeline": "The last tasks, by worker",
    "concurrency": "Tasks and workers at once",
    "cpu": "CPU of the hosts",
    "memory": "Memory of the hosts",
    "device_memory": "Memory of the GPUs",
}
"""The figures, in the order of the page."""
CURVES = ("metric_1", "metric_2", "metric_3", "metric_4")
"""The places for curves of metrics, those with the most values first."""
CROWD = 10
_CONFIG = {**CONFIG, "displayModeBar": False}


def run_figures(state: LiveState) -> dict[str, dict[str, Any] | None]:
    """Each figure by its name; None where there is nothing to draw. What a viewer has zoomed stays zoomed."""
    timeline = state.timeline
    names = colors_of(timeline.names) if timeline is not None else {}
    found: dict[str, dict[str, Any] | None] = {
        "timeline": None
        if timeline is None
        else _ready(timeline_figure(timeline, colors=names, notes=False), timeline.since)
    }
    for name, chart in _charts(state).items():
        found[name] = None if chart is None else _ready(chart_figure(chart, notes=False), chart.since)
    for name, curve in _curves(state).items():
        length_s, since = state.elapsed_s or 0.0, state.start_time
        figure = None if curve is None else curve_figure(curve, length_s=length_s, since=since, notes=False)
        found[name] = _ready(figure, since if curve is not None and curve.by == "time" else None)
    return found


def figure_titles(state: LiveState) -> dict[str, str]:
    """What stands above each figure, by its name."""
    curves = {name: "" if curve is None else short(curve.name, 80) for name, curve in _curves(state).items()}
    return {**TITLES, **curves}


def figure_notes(state: LiveState) -> dict[str, str]:
    """What is to be said of each figure, by its name; it stands beside the title, where a phone has room for
    it.
    """
    said = {"timeline": " ".join(state.timeline.notes) if state.timeline is not None else ""}
    for name, chart in _charts(state).items():
        said[name] = "" if chart is None else " ".join([*chart.notes, limit_note(chart) or ""]).strip()
    for name, curve in _curves(state).items():
        said[name] = "" if curve is None else " ".join(curve_notes(curve))
    return said


def _curves(state: LiveState) -> dict[str, Curve | None]:
    """A curve over time needs a start of the run."""
    started = moment(state.start_time)
    drawn = [
        _curve(one.name, one.points, 0.0 if one.points.by == "step" else (started or 0) / SECOND)
        for one in sorted(state.metrics, key=lambda one: -one.count)
        if one.points is not None and (one.points.by == "step" or started is not None)
    ]
    return {name: drawn[n] if n < len(drawn) else None for n, name in enumerate(CURVES)}


def _curve(name: str, points: MetricPoints, began: float) -> Curve:
    return Curve(
        name=name,
        by=points.by,
        at=[at - began for at in points.at],
        value=points.value,
        least=points.least,
        most=points.most,
        lost_at=[at - began for at in points.lost_at],
        values=points.values,
        lost=points.lost,
    )


def _charts(state: LiveState) -> dict[str, Chart | None]:
    return {
        "concurrency": state.concurrency and _without_crowd(state.concurrency),
        "cpu": state.cpu,
        "memory": state.memory,
        "device_memory": state.device_memory,
    }


def _without_crowd(chart: Chart) -> Chart:
    """The chart without the tasks that wait where they are so many that the others would lie on the
    ground.
    """
    others = [
        value for series in chart.series if series.label != "waiting" for value in series.value if value
    ]
    waiting = [
        value for series in chart.series if series.label == "waiting" for value in series.value if value
    ]
    if not others or not waiting or max(waiting) <= CROWD * max(others):
        return chart
    kept = [series for series in chart.series if series.label != "waiting"]
    return msgspec.structs.replace(
        chart, series=kept, notes=[*chart.notes, f"Up to {max(waiting):,.0f} tasks waited."]
    )


def _ready(figure: Figure | None, since: str | None) -> dict[str, Any] | None:
    if figure is None:
        return None
    drawn = figure.to_plotly_json()
    layout = drawn["layout"]
    layout["uirevision"] = "as the viewer left it"
    axis = layout.get("xaxis", {})
    if since is not None and isinstance(axis.get("title"), dict) and axis["title"].get("text"):
        unit = str(axis["title"]["text"]).rpartition(", ")[2]
        # The page says the day, and a phone has no room for it.
        axis["title"]["text"] = f"{unit} since {moment_text(since)[11:]}"
    return {"data": drawn["data"], "layout": layout, "config": dict(_CONFIG)}
