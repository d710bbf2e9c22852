"""The live page of a run: its elements, and their updates."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec
from nicegui import events, ui
from nicegui.element import Element

from flightlog.show.terminal import brief
from flightlog.web.run_parts import CURVES, TITLES, RunParts

if TYPE_CHECKING:
    from flightlog.analyze.live.results import LiveState
    from flightlog.web.dashboard import Dashboard
    from flightlog.web.listing import RunRow

EVERY_S = 0.5
"""How often the page is brought up to date, where something has changed."""

_DOING = (
    ("task", "Task", "toned"),
    ("args", "Arguments", "quiet"),
    ("worker", "Worker", "text"),
    ("elapsed", "Runs for", "number"),
    ("usual", "p95", "number"),
    ("state", "", "toned"),
)
_WORKERS = (
    ("worker", "Worker", "text"),
    ("host", "Host", "quiet"),
    ("state", "State", "toned"),
    ("task", "Task", "text"),
    ("since", "For", "number"),
    ("ended", "Ended", "number"),
    ("failed", "Failed", "number"),
    ("cores", "Cores in use", "number"),
    ("memory", "Memory", "number"),
)
_MACHINES = (
    ("name", "Machine", "text"),
    ("what", "Measured", "quiet"),
    ("busy", "Busy", "number"),
    ("used", "Memory in use", "number"),
    ("total", "of", "number"),
    ("share", "Full", "number"),
)
_NAMES = (
    ("name", "Task", "text"),
    ("submitted", "Submitted", "number"),
    ("running", "Running", "number"),
    ("completed", "Completed", "number"),
    ("failed", "Failed", "number"),
    ("retried", "Retried", "number"),
    ("mean", "Mean", "number"),
    ("p95", "p95", "number"),
    ("max", "Longest", "number"),
    ("total", "Total", "number"),
)
_SLOWEST = (
    ("task", "Task", "text"),
    ("args", "Arguments", "quiet"),
    ("took", "Took", "number"),
    ("queued", "Waited", "number"),
    ("worker", "Worker", "text"),
    ("at", "Ended", "time"),
)
_OPEN = (
    ("name", "Span", "toned"),
    ("tags", "Tags", "quiet"),
    ("elapsed", "Open for", "number"),
    ("usual", "p95", "number"),
    ("state", "", "toned"),
)
_SPANS = (
    ("name", "Span", "text"),
    ("ended", "Ended", "number"),
    ("open", "Open", "number"),
    ("errors", "Errors", "number"),
    ("mean", "Mean", "number"),
    ("max", "Longest", "number"),
    ("total", "Total", "number"),
)
_METRICS = (
    ("name", "Series", "text"),
    ("value", "Last value", "number"),
    ("step", "Step", "number"),
    ("count", "Values", "number"),
    ("at", "At", "time"),
)


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
    """The content of a run's page, within its frame; brought up to date as new states come while somebody
    looks.

    `state_of` gives the last state there is at once, and None before the first; `shown` is for all who look
    at the run. `address` is where the run's other pages begin; `problem_of` says why there is no newer state,
    if that is so.
    """
    ui.add_css(_css())
    page = RunPage(state_of, shown, address=address, problem_of=problem_of)
    state_of()  # whoever reads the run begins now
    # The page goes out without data, which comes by the socket at once: within HTML it costs three times as
    # much.
    ui.timer(EVERY_S, page.tick)
    return page


class RunPage:
    """The page as one viewer has it: a few elements, since each costs the server something for everybody who
    comes.
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


Column = tuple[str, str, str]
"""The field, the heading, and `text`, `toned` (in the tone of its row), `number` (with its text beside it),
`quiet` or `time`.
"""
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
    """How far the run is; says that it is being read before there is data. `address` is where the run's pages
    begin.
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
    """Items with the newest first. `details` gives what is behind a click on one by its key: it is sent when
    it is asked for.
    """

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
    """It is here so that the browser is told where that is."""

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
    from flightlog.web.run_parts import run_parts

    def state_of() -> LiveState | None:
        return dashboard.live.state(row.path)

    def problem_of() -> str | None:
        return dashboard.live.problem(row.path)

    run_page(state_of, run_parts(row.path), address=f"/run/{row.key}", problem_of=problem_of)
