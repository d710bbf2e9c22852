"""The live page of a run: its elements and their updates, and what they show, as JSON by part, made once per
state for all viewers.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from nicegui import events, json, ui
from nicegui.element import Element

from flightlog.core.text import plural
from flightlog.core.units import format_count, format_duration, format_percent
from flightlog.show.figures.lines import chart_figure, curve_figure, curve_notes, limit_note
from flightlog.show.figures.style import CONFIG, colors_of
from flightlog.show.figures.timeline import timeline_figure
from flightlog.show.live import NOTHING, TABLES, LiveRow, Pane, call_text, error_text, left_text
from flightlog.show.phrases import doing_title, moment_text, money_text
from flightlog.show.terminal import brief
from flightlog.web import web_file
from flightlog.web.dashboard import STATUSES
from flightlog.web.limits import WebLimits

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from flightlog.analyze.charts.results import Chart
    from flightlog.analyze.live.results import LiveState
    from flightlog.web.dashboard import Dashboard, RunRow


class RunPage:
    """The page of one viewer, of few elements, because each costs the server something per viewer.

    `state_of` returns the latest state without waiting, None before the first; `shown` is shared by all
    viewers of the run. `address` is the prefix of the run's other pages; `problem_of` says why there is no
    newer state.
    """

    def __init__(
        self,
        state_of: Callable[[], LiveState | None],
        shown: RunParts,
        *,
        address: str,
        problem_of: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._state_of, self._shown, self._problem_of = state_of, shown, problem_of
        self.head = RunHead(address=address)
        self.parts: dict[str, RunElement] = {
            "head": self.head,
            "running": RunTable(name="running", columns=_columns("running")),
            "failures": RunFeed("Failures", "failures", self._details),
            "timeline": RunFigure(name="timeline"),
        }
        with ui.element("div").classes("fl-pair"):
            for name in (*CURVES, *(name for name in TITLES if name != "timeline")):
                self.parts[name] = RunFigure(name=name)
        self.parts |= {
            name: RunTable(name=name, columns=_columns(name)) for name in SHOWN if name not in self.parts
        }
        self.parts["log"] = RunFeed("Log", "log")

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


class RunElement(Element):
    """A part of the page, with what its script is given from the beginning; empty data hides it."""

    def __init__(self, **props: str) -> None:
        super().__init__()
        self._props.update(props)

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

    def say(self, problem: str | None) -> None:
        """Say that the run cannot be read, and why; with None that it can."""
        text = "" if problem is None else brief(problem, 1000)
        if self._props.get("problem", "") != text:
            self._props["problem"] = text


class RunTable(RunElement, component="run_table.js"):
    """A table that keeps how a viewer has sorted it and which page is open."""


class RunFeed(RunElement, component="run_feed.js"):
    """Items, newest first. `details` returns an item's details by its key; they are sent on request."""

    def __init__(self, title: str, name: str, details: Callable[[str], str | None] | None = None) -> None:
        super().__init__(heading=title, name=name)
        self._told: dict[str, str] = {}
        if details is not None:
            self._details = details
            self.on("details", self._tell)

    def _tell(self, event: events.GenericEventArguments) -> None:
        key = str(event.args)[: WebLimits.max_details_key_chars]
        if len(self._told) >= WebLimits.max_open_details:
            self._told = {}
        self._told[key] = self._details(key) or "no traceback was recorded"
        self._props["told"] = msgspec.json.encode(self._told).decode()


class RunFigure(RunElement, component="run_figure.js"):
    """A figure, drawn by the Plotly that NiceGUI brings. What a viewer has zoomed stays zoomed."""

    plotly = ui.plotly
    """Present so that the browser knows its position."""


@cache
def _columns(name: str) -> str:
    """The columns of a table as the browser takes them."""
    made = [
        {
            "name": column.field,
            "label": column.title,
            "field": column.field,
            "sortable": True,
            "align": "right" if column.right else "left",
            "classes": "fl-live-quiet fl-live-time" if column.field == "at" else "",
        }
        for column in TABLES[name].columns_on(page=True)
    ]
    return _json(made)


async def live_page(dashboard: Dashboard, row: RunRow) -> None:
    """The content of `/run/<key>`; updated with new states while it is open."""
    ui.add_css(web_file("run_page.css"))
    page = RunPage(
        partial(dashboard.live.state, row.path),
        run_parts(row.path),
        address=f"/run/{row.key}",
        problem_of=partial(dashboard.live.problem, row.path),
    )
    dashboard.live.state(row.path)  # whoever reads the run begins now
    # The page goes out without data, which comes by the socket at once: within HTML it costs three times as
    # much.
    ui.timer(WebLimits.page_interval_s, page.tick)


SHOWN = ("running", "workers", "resources", "gpu", "tasks", "slowest", "spans", "metrics")
"""The tables of the page, in its order."""


_WORDS = {"crashed": "exited unexpectedly", "unknown": "of unknown status"}
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
            self._drawn, figures = (now, state), run_figures(state)
            self._figures = {name: json.dumps(found) if found else "" for name, found in figures.items()}
        if redrawn or state is not self._state:
            texts, details = (
                _texts(state) if state is not self._state else (self._shown.parts, self._shown.details)
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
        return now - when >= WebLimits.figures_interval_s


_shown: WeakValueDictionary[Path, RunParts] = WeakValueDictionary()


def run_parts(path: Path) -> RunParts:
    """The shared parts of the run in that folder, while anyone uses them. For one thread."""
    found = _shown.get(path)
    if found is None:
        found = _shown[path] = RunParts()
    return found


def _texts(state: LiveState) -> tuple[dict[str, str], dict[str, str]]:
    """Parts of the page, and the details behind clicks."""
    parts = {"head": _json(_head(state))}
    for name in SHOWN:
        pane = TABLES[name].pane(state, page=True)
        parts[name] = _json(_table(pane, state)) if pane.rows else ""
    failures, log = (TABLES[name].pane(state, page=True) for name in ("failures", "log"))
    newest = failures.rows[: WebLimits.max_listed_failures]
    more = max(0, state.failures_all - len(newest))
    note = f"the {len(newest)} newest of {format_count(state.failures_all)}" if more else ""
    parts["failures"] = _json({"note": note, "items": [_failure(row) for row in newest]}) if newest else ""
    lines = [_line(row) for row in log.rows[: WebLimits.max_listed_log_lines]]
    parts["log"] = _json({"note": "", "items": lines}) if lines else ""
    return parts, {_key(row): details for row in newest if (details := _details(row.about))}


def _head(state: LiveState) -> dict[str, Any]:
    """How far the run is, its figures and facts."""
    status = state.status if state.status in STATUSES else "unknown"
    word, done = _WORDS.get(status, status), state.progress.done
    took = f" {'for' if status == 'running' else 'after'} {format_duration(state.elapsed_s)}"
    why = "Why did tasks fail?" if state.failures else ""
    return {
        "status": status,
        "headline": f"{word}{took}" if state.elapsed_s is not None else word,
        "progress": _progress(state),
        "done": None if done is None else f"{100 * min(1.0, done):.1f}",
        "tiles": _tiles(state),
        "error": brief(state.error or "", 1000),
        "problems": "\n".join(brief(problem, 400) for problem in state.problems),
        "facts": _facts(state),
        "why": "Why did it fail?" if state.error or status in {"failed", "crashed"} else why,
    }


def _facts(state: LiveState) -> str:
    parts = [
        f"since {moment_text(state.start_time)}",
        f"on {brief(state.host, 60)}" if state.host else "",
        f"target {brief(state.target, 60)}" if state.target else "",
        brief(state.command, 160),
        *(f"{brief(name, 40)}={brief(value, 40)}" for name, value in list(state.tags.items())[:8]),
    ]
    return " · ".join(part for part in parts if part)


def _progress(state: LiveState) -> str:
    progress = state.progress
    if progress.done is None and state.reading is not None:
        read = format_percent(state.reading)
        return f"still reading, {read} so far: {plural(progress.submitted, 'task')}"
    if progress.done is None:
        return "no tasks were recorded" if state.over else "no tasks so far"
    ended, known = format_count(progress.ended), format_count(progress.known)
    parts = [f"{ended} of {known} tasks ended ({format_percent(progress.done)})"]
    if progress.per_s is not None and not state.over:
        parts.append(f"{progress.per_s:.3g} a second")
    if not (progress.left_at_least and (progress.left_s or 0.0) < 1):  # which says nothing
        parts.append(left_text(progress))
    return " · ".join(part for part in parts if part)


def _tiles(state: LiveState) -> list[dict[str, str]]:
    """Figures of the headline: where `flightlog report --format json` has each, and its value as JSON."""
    progress = state.progress
    counts = [
        ("tasks.submitted", "submitted", progress.submitted, ""),
        ("tasks.running", "running", progress.running, "accent"),
        ("tasks.pending", "waiting", progress.waiting, ""),
        ("tasks.completed", "completed", progress.completed, "good"),
        ("tasks.failed", "failed", progress.failed, "bad"),
        ("tasks.retried", "retried", progress.retried, "warn"),
        ("tasks.cancelled", "cancelled", progress.cancelled, ""),
        ("failures.count", "failures", state.failures_all, "warn"),
        ("spans.count", "spans", state.spans_all, ""),
        ("workers.count", "workers", state.workers_all, ""),
    ]
    tiles: list[tuple[str, str, str, float, str]] = [
        (path, label, format_count(number), number, tone if number else "")
        for at, (path, label, number, tone) in enumerate(counts)
        if number or at < 5  # what became of the tasks is always said
    ]
    if state.cache_lookups:
        share = (state.cache_hits or 0) / state.cache_lookups
        tiles.append(("cache.hit_rate", "from the cache", format_percent(share), share, ""))
    if state.cost is not None and state.currency is not None:
        label = "cost" if state.over else "cost so far"
        tiles.append(("cost.total", label, money_text(state.cost, state.currency), state.cost, ""))
    return [
        {"path": path, "label": label, "text": text, "value": _json(value), "tone": tone}
        for path, label, text, value, tone in tiles
    ]


def _table(pane: Pane, state: LiveState) -> dict[str, Any]:
    """Rows by field; beside what is sorted by something other than its text, that text as `<field>_text`."""
    stuck = sum(row.style == "warn" for row in pane.rows) if pane.table.name == "running" else 0
    return {
        "title": doing_title(over=state.over) if pane.table.name == "running" else pane.title,
        "note": " · ".join(part for part in (pane.note, f"{stuck} may be stuck" if stuck else "") if part),
        "rows": [_row(pane, row) for row in pane.rows],
    }


def _row(pane: Pane, row: LiveRow) -> dict[str, Any]:
    found: dict[str, Any] = {"id": row.key, "tone": row.style}
    for column, cell in zip(pane.columns, row.cells, strict=True):
        text = "" if cell is NOTHING else cell.text
        if column.field == "at":
            text = moment_text(str(cell.order))
        if isinstance(cell.order, str) and cell.order == cell.text.casefold():
            found[column.field] = text
        else:
            found[column.field], found[f"{column.field}_text"] = cell.order, text
    return found


def _failure(row: LiveRow) -> dict[str, str]:
    one: Any = row.about
    again = f", attempt {one.attempt}" if one.attempt > 1 else ""
    where = f" on {brief(one.worker, 60)}" if one.worker else ""
    about = f"{call_text(one.task, one.args)}{again}{where}{' · retried' if one.retried else ''}"
    return _item(row, error_text(one) or "no error was given", about)


def _item(row: LiveRow, text: str, about: str) -> dict[str, str]:
    at = moment_text(getattr(row.about, "at", None))
    return {"key": _key(row), "at": at, "text": text, "about": about, "tone": row.style}


def _details(one: Any) -> str | None:
    """What is behind a click; None where there is nothing more."""
    return one.traceback or (one.message if "\n" in one.message else None)


def _line(row: LiveRow) -> dict[str, str]:
    one: Any = row.about
    return _item(row, brief(one.text, 300), brief(one.kind, 40).replace("_", " "))


def _key(row: LiveRow) -> str:
    """A short key of an item, whatever it is made of."""
    return hashlib.blake2b(row.key.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


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

_CONFIG = {**CONFIG, "displayModeBar": False}


def run_figures(state: LiveState) -> dict[str, dict[str, Any] | None]:
    """Each figure by its name with its title and note, which stands beside the title, where a phone has room
    for it; None where there is nothing to draw.
    """
    found: dict[str, dict[str, Any] | None] = {}
    timeline, start = state.timeline, state.start_time
    if timeline is not None:
        drawn = timeline_figure(timeline, colors=colors_of(timeline.names), notes=False)
        found["timeline"] = _ready(TITLES["timeline"], drawn, timeline.since, timeline.notes)
    charts = {name: getattr(state, name) for name in TITLES if name != "timeline"}
    charts["concurrency"] = state.concurrency and _without_crowd(state.concurrency)
    for name, chart in charts.items():
        if chart is not None:
            notes = [*chart.notes, limit_note(chart) or ""]
            found[name] = _ready(TITLES[name], chart_figure(chart, notes=False), chart.since, notes)
    curves = [one.points for one in sorted(state.metrics, key=lambda one: -one.count) if one.points]
    for name, curve in zip(CURVES, curves, strict=False):
        drawn = curve_figure(curve, length_s=state.elapsed_s or 0.0, since=start, notes=False)
        since = start if curve.by == "time" else None
        found[name] = _ready(brief(curve.name, 80), drawn, since, curve_notes(curve))
    return {name: found.get(name) for name in (*TITLES, *CURVES)}


def _without_crowd(chart: Chart) -> Chart:
    """The chart without waiting tasks where they are so many that the other lines would lie flat."""
    kept = [series for series in chart.series if series.label != "waiting"]
    others, waiting = (
        max((value for series in found for value in series.value if value), default=0.0)
        for found in (kept, [series for series in chart.series if series not in kept])
    )
    if not others or waiting <= WebLimits.max_waiting_to_running * others:
        return chart
    notes = [*chart.notes, f"Up to {waiting:,.0f} tasks waited."]
    return msgspec.structs.replace(chart, series=kept, notes=notes)


def _ready(
    title: str, figure: Figure | None, since: str | None, notes: Sequence[str]
) -> dict[str, Any] | None:
    """A figure for the browser; what a viewer has zoomed stays zoomed."""
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
    ready = {"data": drawn["data"], "layout": layout, "config": dict(_CONFIG)}
    return {"title": title, "note": " ".join(note for note in notes if note), "figure": ready}
