"""The page of one run as it happens: how far it is, what it does, what went wrong, and on which machines."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from nicegui import ui

from flightlog.web.run_elements import Part, RunFeed, RunFigure, RunHead, RunTable
from flightlog.web.run_figures import CURVES, TITLES
from flightlog.web.run_shown import ShownRun

if TYPE_CHECKING:
    from flightlog.analyze.live.results import LiveState

EVERY_S = 0.5
"""How often the page is brought up to date, where something has changed."""

_DOING = (
    ("task", "Task", "toned"),
    ("args", "Arguments", "quiet"),
    ("worker", "Worker", "text"),
    ("elapsed", "Runs for", "number"),
    ("usual", "19 of 20 take at most", "number"),
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
    ("usual", "19 of 20 take at most", "number"),
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
    shown: ShownRun,
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
        shown: ShownRun,
        *,
        address: str,
        problem_of: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._state_of, self._shown, self._problem_of = state_of, shown, problem_of
        self.head = RunHead(address)
        self.parts: dict[str, Part] = {
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
