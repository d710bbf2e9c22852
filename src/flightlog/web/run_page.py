"""The live page of a run: its elements, and their updates."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec
from nicegui import events, ui
from nicegui.element import Element

from flightlog.show.live import TABLES
from flightlog.show.terminal import brief
from flightlog.web.run_view import CURVES, SHOWN, TITLES, run_parts

if TYPE_CHECKING:
    from flightlog.analyze.live.results import LiveState
    from flightlog.web.dashboard import Dashboard, RunRow
    from flightlog.web.run_view import RunParts

EVERY_S = 0.5
"""Seconds between updates of the page."""


@cache
def _css() -> str:
    return files("flightlog.web").joinpath("run_page.css").read_text("utf-8")


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
        self.head = RunHead(address)
        self.parts: dict[str, RunElement] = {
            "head": self.head,
            "running": RunTable("running"),
            "failures": RunFeed("Failures", "failures", self._details),
            "timeline": RunFigure("timeline"),
        }
        with ui.element("div").classes("fl-pair"):
            for name in (*CURVES, *(name for name in TITLES if name != "timeline")):
                self.parts[name] = RunFigure(name)
        self.parts |= {name: RunTable(name) for name in SHOWN if name not in self.parts}
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

    def __init__(self, name: str) -> None:
        super().__init__()
        self._props.update({"name": name, "columns": _columns(name)})


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
    return msgspec.json.encode(made).decode()


async def live_page(dashboard: Dashboard, row: RunRow) -> None:
    """The content of `/run/<key>`; updated with new states while it is open."""
    ui.add_css(_css())
    page = RunPage(
        partial(dashboard.live.state, row.path),
        run_parts(row.path),
        address=f"/run/{row.key}",
        problem_of=partial(dashboard.live.problem, row.path),
    )
    dashboard.live.state(row.path)  # whoever reads the run begins now
    # The page goes out without data, which comes by the socket at once: within HTML it costs three times as
    # much.
    ui.timer(EVERY_S, page.tick)
