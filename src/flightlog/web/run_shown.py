"""What is sent of a run to all who look at it: each part of the page as JSON, made once for a state."""

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

from flightlog.web.run_figures import CURVES, TITLES, figure_notes, figure_titles, run_figures
from flightlog.web.run_view import run_view

if TYPE_CHECKING:
    from flightlog.analyze.live.results import LiveState
    from flightlog.web.run_view import Row, RunView, Told

FIGURES_S = 2.0
"""Figures are made no more often than that."""
TABLES = ("doing", "workers", "machines", "names", "slowest", "open_spans", "spans", "metrics")
FEEDS = ("failures", "log")
_encode = msgspec.json.Encoder().encode


class Shown(Struct, frozen=True, kw_only=True):
    """The parts of a page. A part that has not changed is the same text."""

    parts: dict[str, str]
    """JSON by the name of the part, empty where there is nothing to show."""
    details: dict[str, str]
    """What is behind a click, by the key of the failure."""


class ShownRun:
    """What is shown of one run. For one thread alone; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._state: LiveState | None = None
        self._drawn: tuple[float, LiveState] | None = None
        self._figures = dict.fromkeys((*TITLES, *CURVES), "")
        self._shown = Shown(parts={}, details={})

    def __call__(self, state: LiveState) -> Shown:
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
            self._state, self._shown = state, Shown(parts=parts, details=details)
        return self._shown

    def _is_due(self, state: LiveState, now: float) -> bool:
        if self._drawn is None:
            return True
        when, drawn = self._drawn
        if drawn is state or (drawn.over and state.over and drawn.changed == state.changed):
            return False  # of a run that goes on, time does
        return now - when >= FIGURES_S


_shown: WeakValueDictionary[Path, ShownRun] = WeakValueDictionary()


def shown_run(path: Path) -> ShownRun:
    """The one for the run in that folder, as long as somebody has it. For one thread alone."""
    found = _shown.get(path)
    if found is None:
        found = _shown[path] = ShownRun()
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
        items: Sequence[Told] = getattr(view, name)
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


def _key(one: Told) -> str:
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
