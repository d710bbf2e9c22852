"""The parts of a run's page: one element each, which gets its data as a text and renders it as text in the
browser.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from nicegui import events, ui
from nicegui.element import Element

from flightlog.web.listing import short

Column = tuple[str, str, str]
"""The field, the heading, and `text`, `toned` (in the tone of its row), `number` (with its text beside it),
`quiet` or `time`.
"""
LONGEST_KEY, MOST_TOLD = 100, 20


class Part(Element):
    """A part of the page; empty data hides it."""

    def show(self, text: str) -> None:
        """Show this, which is JSON, if it is another. It is never parsed here: props that are dicts are
        copied for each viewer.
        """
        if self._props.get("shown", "") != text:
            self._props["shown"] = text


class RunHead(Part, component="run_head.js"):
    """How far the run is; says that it is being read before there is data. `address` is where the run's pages
    begin.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self._props["address"] = address

    def say(self, problem: str | None) -> None:
        """Say that the run cannot be read, and why; with None that it can."""
        text = "" if problem is None else short(problem, 1000)
        if self._props.get("problem", "") != text:
            self._props["problem"] = text


class RunTable(Part, component="run_table.js"):
    """A table that keeps how a viewer has sorted it and which page is open."""

    def __init__(self, title: str, name: str, columns: tuple[Column, ...]) -> None:
        super().__init__()
        self._props.update({"heading": title, "name": name, "columns": _columns(columns)})


class RunFeed(Part, component="run_feed.js"):
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


class RunFigure(Part, component="run_figure.js"):
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
