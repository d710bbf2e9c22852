"""The page of one run as it happens: how far it is, what it does, what went wrong, and on which machines."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from nicegui import ui

from flightlog.web.frame import words
from flightlog.web.run_figures import TITLES, figure_notes, run_figures
from flightlog.web.run_parts import Drawing, Feed, Table, Tiles, failure, log_line, set_prop, set_text
from flightlog.web.run_view import OncePerState, run_view

if TYPE_CHECKING:
    from flightlog.analyze.live.results import LiveState
    from flightlog.web.run_view import RunView

EVERY_S = 0.5
FIGURES_S = 2.0
"""How often texts and figures are brought up to date, where something has changed."""
_VIEWS = OncePerState(run_view)
_FIGURES = OncePerState(lambda state: (run_figures(state), figure_notes(state)))

_DOING = (
    ("task", "Task", "toned"), ("args", "Arguments", "quiet"), ("worker", "Worker", "text"),
    ("elapsed", "Runs for", "number"), ("usual", "19 of 20 take at most", "number"), ("state", "", "toned"),
)  # fmt: skip
_WORKERS = (
    ("worker", "Worker", "text"), ("host", "Host", "quiet"), ("state", "State", "toned"), ("task", "Task", "text"),
    ("since", "For", "number"), ("ended", "Ended", "number"), ("failed", "Failed", "number"),
    ("cores", "Cores in use", "number"), ("memory", "Memory", "number"),
)  # fmt: skip
_MACHINES = (
    ("name", "Machine", "text"), ("what", "Measured", "quiet"), ("busy", "Busy", "number"),
    ("used", "Memory in use", "number"), ("total", "of", "number"), ("share", "Full", "number"),
)  # fmt: skip
_NAMES = (
    ("name", "Task", "text"), ("submitted", "Submitted", "number"), ("running", "Running", "number"),
    ("completed", "Completed", "number"), ("failed", "Failed", "number"), ("retried", "Retried", "number"),
    ("mean", "Mean", "number"), ("p95", "p95", "number"), ("max", "Longest", "number"), ("total", "Total", "number"),
)  # fmt: skip
_SLOWEST = (
    ("task", "Task", "text"), ("args", "Arguments", "quiet"), ("took", "Took", "number"), ("queued", "Waited", "number"),
    ("worker", "Worker", "text"), ("at", "Ended", "time"),
)  # fmt: skip
_OPEN = (
    ("name", "Span", "toned"), ("tags", "Tags", "quiet"), ("elapsed", "Open for", "number"),
    ("usual", "19 of 20 take at most", "number"), ("state", "", "toned"),
)  # fmt: skip
_SPANS = (
    ("name", "Span", "text"), ("ended", "Ended", "number"), ("open", "Open", "number"), ("errors", "Errors", "number"),
    ("mean", "Mean", "number"), ("max", "Longest", "number"), ("total", "Total", "number"),
)  # fmt: skip
_METRICS = (
    ("name", "Series", "text"), ("value", "Last value", "number"), ("step", "Step", "number"),
    ("count", "Values", "number"), ("at", "At", "time"),
)  # fmt: skip


@cache
def _css() -> str:
    return files("flightlog.web").joinpath("run_page.css").read_text("utf-8")


def run_page(state_of: Callable[[], LiveState | None], *, address: str) -> RunPage:
    """The content of a run's page, within its frame; brought up to date as new states come while somebody looks.

    `state_of` gives the last state there is at once, and None before the first. `address` is where the run's other
    pages begin.
    """
    ui.add_css(_css())
    page = RunPage(state_of, address=address)
    page.tick()
    ui.timer(EVERY_S, page.tick)
    return page


class RunPage:
    """The page as one viewer has it. `clock` gives seconds."""

    def __init__(
        self,
        state_of: Callable[[], LiveState | None],
        *,
        address: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state_of, self._clock = state_of, clock
        self._state: LiveState | None = None
        self._drawn: tuple[float, LiveState | None] = (-FIGURES_S, None)
        self._waiting = ui.element("div").classes("fl-waiting").props("role=status")
        with self._waiting:
            ui.spinner(size="1.25rem")
            words("Reading the run …", "fl-quiet")
        self._head = ui.element("div")
        self._head.set_visibility(False)
        with self._head:
            self._make_head(address)
        self._doing = Table("Running now", "doing", _DOING)
        self._failures = Feed("Failures", "failures", failure, "fl-failures")
        self._figures = {"timeline": Drawing(TITLES["timeline"], "timeline")}
        with ui.element("div").classes("fl-pair"):
            for name in ("concurrency", "cpu", "memory", "device_memory"):
                self._figures[name] = Drawing(TITLES[name], name)
        self._workers = Table("Workers", "workers", _WORKERS)
        self._machines = Table("Hosts and GPUs", "machines", _MACHINES)
        self._names = Table("Tasks by name", "names", _NAMES)
        self._slowest = Table("Slowest tasks", "slowest", _SLOWEST)
        self._open = Table("Open spans", "open", _OPEN)
        self._spans = Table("Spans by name", "spans", _SPANS)
        self._metrics = Table("Metrics", "metrics", _METRICS)
        self._log = Feed("Log", "log", log_line, "fl-logs")

    def _make_head(self, address: str) -> None:
        with ui.element("section").classes("fl-card"):
            with ui.element("div").classes("fl-live-title"):
                self._status = ui.label("").classes("fl-status fl-live-status")
                set_prop(self._status, "data-path", "run.status")
                self._progress_text = words("", "fl-live-progress")
            with (
                ui.element("div")
                .classes("fl-meter")
                .props('role=progressbar aria-label="Tasks that ended"') as bar
            ):
                self._bar, self._filled = bar, ui.element("div")
            self._tiles = Tiles()
            self._error = words("", "fl-bad fl-live-error")
            self._problems = words("", "fl-warn fl-live-problems")
            self._facts = words("", "fl-quiet fl-live-small")
            with ui.element("div").classes("fl-live-links"):
                self._why = ui.link("Why did it fail?", f"{address}/diagnosis")

    def tick(self) -> None:
        """Bring the page up to date."""
        state = self._state_of()
        if state is None:
            return
        if state is not self._state:
            if self._state is None:
                self._waiting.set_visibility(False)
                self._head.set_visibility(True)
            self._state = state
            self._update(_VIEWS(state))
        when, drawn = self._drawn
        now = self._clock()
        if drawn is not state and now - when >= FIGURES_S and not _same(drawn, state):
            self._drawn = (now, state)
            figures, notes = _FIGURES(state)
            for name, drawing in self._figures.items():
                drawing.update(figures[name], notes[name])

    def _update(self, view: RunView) -> None:
        set_text(self._status, view.headline)
        self._status.classes(replace=f"fl-status fl-live-status fl-{view.status}")
        set_prop(self._status, "data-value", f'"{view.status}"')
        set_text(self._progress_text, view.progress)
        self._bar.set_visibility(view.done is not None)
        percent = f"{100 * min(1.0, view.done or 0.0):.1f}"
        set_prop(self._bar, "aria-valuenow", percent)
        if self._filled.style.get("width") != f"{percent}%":
            self._filled.style(f"width: {percent}%")
        self._tiles.update(view.tiles)
        for label, text in (
            (self._error, view.error), (self._problems, "\n".join(view.problems)), (self._facts, view.facts),
        ):  # fmt: skip
            set_text(label, text)
            label.set_visibility(bool(text))
        self._why.set_visibility(bool(view.failures or view.error))
        self._doing.update(view.doing, view.doing_note)
        self._open.update(view.open_spans)
        self._failures.update(view.failures, view.failures_note)
        self._workers.update(view.workers, view.workers_note)
        self._machines.update(view.machines)
        self._names.update(view.names, view.names_note)
        self._slowest.update(view.slowest)
        self._spans.update(view.spans)
        self._metrics.update(view.metrics)
        self._log.update(view.log)


def _same(before: LiveState | None, now: LiveState) -> bool:
    """Whether figures of the two are the same: of a run that goes on, time does."""
    return before is not None and before.changed == now.changed and before.over and now.over
