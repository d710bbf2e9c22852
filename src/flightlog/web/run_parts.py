"""The parts of a run's live page as JSON, figures included, made once per state for all viewers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from nicegui import json

from flightlog.analyze.charts.results import Curve
from flightlog.core.time import SECOND, moment
from flightlog.show.figures import CONFIG, chart_figure, colors_of, limit_note, timeline_figure
from flightlog.show.figures.lines import curve_figure, curve_notes
from flightlog.show.phrases import moment_text
from flightlog.show.terminal import brief
from flightlog.web.run_view import run_view

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from flightlog.analyze.charts.results import Chart, MetricPoints
    from flightlog.analyze.live.results import LiveState
    from flightlog.web.run_view import FeedItem, Row, RunView

FIGURES_S = 2.0
"""Figures are made no more often than that."""
TABLES = ("doing", "workers", "machines", "names", "slowest", "open_spans", "spans", "metrics")
FEEDS = ("failures", "log")
_encode = msgspec.json.Encoder().encode


class PageParts(Struct, frozen=True, kw_only=True):
    """The parts of a page. A part that has not changed is the same text."""

    parts: dict[str, str]
    """JSON by the name of the part, empty where there is nothing to show."""
    details: dict[str, str]
    """What is behind a click, by the key of the failure."""


class RunParts:
    """What is shown of one run. For one thread alone; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._state: LiveState | None = None
        self._drawn: tuple[float, LiveState] | None = None
        self._figures = dict.fromkeys((*TITLES, *CURVES), "")
        self._shown = PageParts(parts={}, details={})

    def __call__(self, state: LiveState) -> PageParts:
        """How it is shown that things stand so."""
        now = self._clock()
        redrawn = self._is_due(state, now)
        if redrawn:
            self._drawn, self._figures = (now, state), _figures(state)
        if redrawn or state is not self._state:
            texts, details = (
                _texts(run_view(state))
                if state is not self._state
                else (self._shown.parts, self._shown.details)
            )
            before = self._shown.parts
            made = {**texts, **self._figures}
            parts = {name: before[name] if before.get(name) == text else text for name, text in made.items()}
            self._state, self._shown = state, PageParts(parts=parts, details=details)
        return self._shown

    def _is_due(self, state: LiveState, now: float) -> bool:
        if self._drawn is None:
            return True
        when, drawn = self._drawn
        if drawn is state or (drawn.over and state.over and drawn.changed == state.changed):
            return False  # of a run that goes on, time does
        return now - when >= FIGURES_S


_shown: WeakValueDictionary[Path, RunParts] = WeakValueDictionary()


def run_parts(path: Path) -> RunParts:
    """The one for the run in that folder, as long as somebody has it. For one thread alone."""
    found = _shown.get(path)
    if found is None:
        found = _shown[path] = RunParts()
    return found


def _texts(view: RunView) -> tuple[dict[str, str], dict[str, str]]:
    """Parts of the page, and what is behind clicks."""
    notes = {
        "doing": view.doing_note,
        "workers": view.workers_note,
        "names": view.names_note,
        "failures": view.failures_note,
    }
    parts = {
        "head": _json(
            {
                "status": view.status,
                "headline": view.headline,
                "progress": view.progress,
                "done": None if view.done is None else f"{100 * min(1.0, view.done):.1f}",
                "tiles": view.tiles,
                "error": view.error,
                "problems": "\n".join(view.problems),
                "facts": view.facts,
                "why": _why(view),
            }
        )
    }
    for name in TABLES:
        rows: list[Row] = getattr(view, name)
        title = {"title": view.doing_title} if name == "doing" else {}
        parts[name] = _json({**title, "note": notes.get(name, ""), "rows": rows}) if rows else ""
    for name in FEEDS:
        items: Sequence[FeedItem] = getattr(view, name)
        told = [
            {"key": _key(one), "at": one.at, "text": one.text, "about": one.about, "tone": one.tone}
            for one in items
        ]
        parts[name] = _json({"note": notes.get(name, ""), "items": told}) if told else ""
    return parts, {_key(one): one.details for one in view.failures if one.details is not None}


def _why(view: RunView) -> str:
    """What leads to the diagnosis; empty where nothing failed."""
    if view.error or view.status in {"failed", "crashed"}:
        return "Why did it fail?"
    return "Why did tasks fail?" if view.failures else ""


def _key(one: FeedItem) -> str:
    """A name for an item that is short whatever it is made of."""
    return hashlib.blake2b(one.key.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _figures(state: LiveState) -> dict[str, str]:
    notes, titles = figure_notes(state), figure_titles(state)
    return {
        name: ""
        if figure is None
        else json.dumps({"title": titles[name], "note": notes[name], "figure": figure})
        for name, figure in run_figures(state).items()
    }


def _json(value: Any) -> str:
    return _encode(value).decode()


TITLES = {
    "timeline": "The last tasks, by worker",
    "concurrency": "Concurrency and workers",
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
    curves = {name: "" if curve is None else brief(curve.name, 80) for name, curve in _curves(state).items()}
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
