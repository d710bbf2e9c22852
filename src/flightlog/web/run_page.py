"""The live page of a run: its elements, and their updates as JSON, made once per state for all viewers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from nicegui import events, json, ui
from nicegui.element import Element

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
    from flightlog.web.dashboard import Dashboard, RunRow
    from flightlog.web.run_view import FeedItem, Row, RunView

EVERY_S = 0.5
"""Seconds between updates of the page."""

Column = tuple[str, str, str]
"""The field, the heading, and `text`, `toned` (in the tone of its row), `number` (with its text beside it),
`quiet` or `time`.
"""
_KINDS = {">": "number", "!": "toned", "-": "quiet", "@": "time"}


def _parsed(text: str) -> tuple[Column, ...]:
    """Columns written as `field heading`, separated by commas, with a mark of `_KINDS` before the heading."""
    pairs = (column.partition(" ") for column in text.split(", "))
    return tuple((field, title.lstrip(">!-@"), _KINDS.get(title[:1], "text")) for field, _, title in pairs)


_DOING = _parsed("task !Task, args -Arguments, worker Worker, elapsed >Runs for, usual >p95, state !")
_WORKERS = _parsed(
    "worker Worker, host -Host, state !State, task Task, since >For, ended >Ended, failed "
    ">Failed, cores >Cores in use, memory >Memory"
)
_MACHINES = _parsed("name Machine, what -Measured, busy >Busy, used >Memory in use, total >of, share >Full")
_NAMES = _parsed(
    "name Task, submitted >Submitted, running >Running, completed >Completed, failed "
    ">Failed, retried >Retried, mean >Mean, p95 >p95, max >Longest, total >Total"
)
_SLOWEST = _parsed("task Task, args -Arguments, took >Took, queued >Waited, worker Worker, at @Ended")
_OPEN = _parsed("name !Span, tags -Tags, elapsed >Open for, usual >p95, state !")
_SPANS = _parsed(
    "name Span, ended >Ended, open >Open, errors >Errors, mean >Mean, max >Longest, total >Total"
)
_METRICS = _parsed("name Series, value >Last value, step >Step, count >Values, at @At")


@cache
def _css() -> str:
    return files("flightlog.web").joinpath("run_page.css").read_text("utf-8")


def run_page(
    state_of: Callable[[], LiveState | None],
    shown: RunParts,
    *,
    address: str,
    problem_of: Callable[[], str | None] = lambda: None,
) -> RunPage:
    """The content of a run's page, within its frame; updated with new states while it is open.

    `state_of` returns the latest state without waiting, None before the first; `shown` is shared by all
    viewers of the run. `address` is the prefix of the run's other pages; `problem_of` says why there is no
    newer state.
    """
    ui.add_css(_css())
    page = RunPage(state_of, shown, address=address, problem_of=problem_of)
    state_of()  # whoever reads the run begins now
    # The page goes out without data, which comes by the socket at once: within HTML it costs three times as
    # much.
    ui.timer(EVERY_S, page.tick)
    return page


class RunPage:
    """The page of one viewer, of few elements, because each costs the server something per viewer."""

    def __init__(
        self,
        state_of: Callable[[], LiveState | None],
        shown: RunParts,
        *,
        address: str,
        problem_of: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._state_of, self._shown, self._problem_of = state_of, shown, problem_of
        self.head = RunHead(address)
        self.parts: dict[str, RunElement] = {
            "head": self.head,
            "doing": RunTable("", "doing", _DOING),
            "failures": RunFeed("Failures", "failures", self._details),
            "timeline": RunFigure("timeline"),
        }
        with ui.element("div").classes("fl-pair"):
            for name in (*CURVES, *(name for name in TITLES if name != "timeline")):
                self.parts[name] = RunFigure(name)
        self.parts |= {
            "workers": RunTable("Workers", "workers", _WORKERS),
            "machines": RunTable("Hosts and GPUs", "machines", _MACHINES),
            "names": RunTable("Tasks by name", "names", _NAMES),
            "slowest": RunTable("Slowest tasks", "slowest", _SLOWEST),
            "open_spans": RunTable("Open spans", "open", _OPEN),
            "spans": RunTable("Spans by name", "spans", _SPANS),
            "metrics": RunTable("Metrics", "metrics", _METRICS),
            "log": RunFeed("Log", "log"),
        }

    def tick(self) -> None:
        """Bring the page up to date."""
        state = self._state_of()
        self.head.say(self._problem_of())
        if state is not None:
            shown = self._shown(state).parts
            for name, part in self.parts.items():
                part.show(shown[name])

    def _details(self, key: str) -> str | None:
        state = self._state_of()
        return None if state is None else self._shown(state).details.get(key)


LONGEST_KEY, MOST_TOLD = 100, 20


class RunElement(Element):
    """A part of the page; empty data hides it."""

    def show(self, text: str) -> None:
        """Show this, which is JSON, if it is another. It is never parsed here: props that are dicts are
        copied for each viewer.
        """
        if self._props.get("shown", "") != text:
            self._props["shown"] = text


class RunHead(RunElement, component="run_head.js"):
    """The progress of the run; a note that it is being read before there is data. `address` is the prefix of
    the run's pages.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self._props["address"] = address

    def say(self, problem: str | None) -> None:
        """Say that the run cannot be read, and why; with None that it can."""
        text = "" if problem is None else brief(problem, 1000)
        if self._props.get("problem", "") != text:
            self._props["problem"] = text


class RunTable(RunElement, component="run_table.js"):
    """A table that keeps how a viewer has sorted it and which page is open."""

    def __init__(self, title: str, name: str, columns: tuple[Column, ...]) -> None:
        super().__init__()
        self._props.update({"heading": title, "name": name, "columns": _columns(columns)})


class RunFeed(RunElement, component="run_feed.js"):
    """Items, newest first. `details` returns an item's details by its key; they are sent on request."""

    def __init__(self, title: str, name: str, details: Callable[[str], str | None] | None = None) -> None:
        super().__init__()
        self._props.update({"heading": title, "name": name})
        self._told: dict[str, str] = {}
        if details is not None:
            self._details = details
            self.on("details", self._tell)

    def _tell(self, event: events.GenericEventArguments) -> None:
        key = str(event.args)[:LONGEST_KEY]
        if len(self._told) >= MOST_TOLD:
            self._told = {}
        self._told[key] = self._details(key) or "no traceback was recorded"
        self._props["told"] = msgspec.json.encode(self._told).decode()


class RunFigure(RunElement, component="run_figure.js"):
    """A figure, drawn by the Plotly that NiceGUI brings. What a viewer has zoomed stays zoomed."""

    plotly = ui.plotly
    """Present so that the browser knows its position."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._props["name"] = name


@cache
def _columns(columns: tuple[Column, ...]) -> str:
    made: list[dict[str, Any]] = [
        {
            "name": name,
            "label": label,
            "field": name,
            "kind": kind,
            "sortable": True,
            "align": "right" if kind == "number" else "left",
            "classes": {"quiet": "fl-live-quiet", "time": "fl-live-quiet fl-live-time"}.get(kind, ""),
        }
        for name, label, kind in columns
    ]
    return msgspec.json.encode(made).decode()


async def live_page(dashboard: Dashboard, row: RunRow) -> None:
    """The content of `/run/<key>`."""

    def state_of() -> LiveState | None:
        return dashboard.live.state(row.path)

    def problem_of() -> str | None:
        return dashboard.live.problem(row.path)

    run_page(state_of, run_parts(row.path), address=f"/run/{row.key}", problem_of=problem_of)


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
    """The displayed parts of one run. For one thread; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._state: LiveState | None = None
        self._drawn: tuple[float, LiveState] | None = None
        self._figures = dict.fromkeys((*TITLES, *CURVES), "")
        self._shown = PageParts(parts={}, details={})

    def __call__(self, state: LiveState) -> PageParts:
        """The parts for this state."""
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
    """The shared parts of the run in that folder, while anyone uses them. For one thread."""
    found = _shown.get(path)
    if found is None:
        found = _shown[path] = RunParts()
    return found


def _texts(view: RunView) -> tuple[dict[str, str], dict[str, str]]:
    """Parts of the page, and the details behind clicks."""
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
    """A short key of an item, whatever it is made of."""
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
    """Titles of the figures, by name."""
    curves = {name: "" if curve is None else brief(curve.name, 80) for name, curve in _curves(state).items()}
    return {**TITLES, **curves}


def figure_notes(state: LiveState) -> dict[str, str]:
    """Notes on the figures, by name; they are beside the title, where a phone has room for them."""
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
    """The chart without waiting tasks where they are so many that the other lines would lie flat."""
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
