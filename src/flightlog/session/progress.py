"""How far a session is and how long it still takes, shown on a terminal or in a notebook.

The time left comes from the durations of the session's own tasks, and from earlier runs until one has ended.
For a task this costs an entry in a dict at its start and its duration in a short list at its end. Everything
else happens when somebody asks, at most once a second, in bounded time, and more rarely where that takes
long.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from flightlog.core.displayed import in_notebook, notebook_part
from flightlog.core.grouping import grouped

if TYPE_CHECKING:
    from rich.table import Table

    from flightlog.analyze.predict.eta import Eta, KnownDurations
    from flightlog.core.stats import Distribution
    from flightlog.session.tracking import Counts

_UNITS = ((86_400.0, "days", 1), (3_600.0, "h", 1), (60.0, "min", 0), (1.0, "s", 0))


RECENT = 100
"""So many durations of a name are kept, the newest."""
NAMES = 200
"""So many names are looked at; where there are more, the rest is on top."""
EVERY_S = 1.0
RESTS, LONGEST_REST_S = 50, 30.0
"""So many times as long as an answer took passes until the next, which leaves the program its time; but no
longer than this."""


@contextmanager
def shown(
    counts: Callable[[], Counts], wanted: bool | None, eta: Callable[[], Eta | None] | None = None
) -> Iterator[None]:
    """Show a bar on standard error meanwhile, which goes away afterwards; with how long it still takes, where
    `eta` knows.

    Only where standard error is a terminal: in a pipe or a file there is nothing. In a notebook it is a
    display that is updated. `wanted=False` switches it off.
    """
    if wanted is not False and in_notebook():
        with notebook_part("sessions").displayed(counts, eta):
            yield
        return
    if wanted is False or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live

    bar = ProgressBar(counts, eta)
    console = Console(stderr=True)
    # The program's own output is its own: it is not redirected through the display.
    with Live(
        bar,
        console=console,
        refresh_per_second=8,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield


class ProgressBar:
    """The counts as a line: how many of how many, what went wrong, and how long it still takes."""

    def __init__(self, counts: Callable[[], Counts], eta: Callable[[], Eta | None] | None = None) -> None:
        self._counts, self._eta = counts, eta

    def __rich__(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        counts = self._counts()
        line = Table.grid(padding=(0, 1))
        line.add_row(
            "tasks",
            ProgressBar(total=max(1, counts.submitted), completed=counts.ended, width=40),
            self.text(),
        )
        return line

    def text(self) -> str:
        """The counts in words."""
        counts = self._counts()
        parts = [f"{counts.ended:,}/{counts.submitted:,}"]
        for word in ("failed", "cancelled", "retried"):
            number = getattr(counts, word)
            if number:
                parts.append(f"{number:,} {word}")
        eta = self._eta() if self._eta is not None and counts.ended < counts.submitted else None
        if eta is not None:
            parts.append(eta_text(eta))
        return " · ".join(parts)


def eta_text(eta: Eta) -> str:
    """`about 3 min left (2 to 5)`; the unit is that of the upper end."""
    size, unit, decimals = next((each for each in _UNITS if eta.high >= 2 * each[0]), _UNITS[-1])
    low, expected, high = (f"{value / size:.{decimals}f}" for value in (eta.low, eta.expected, eta.high))
    words = "at least " if eta.at_least else "about "
    return f"{words}{expected} {unit} left" + (f" ({low} to {high})" if low != high else "")


class TaskPace:
    """Counts a session's tasks by name. Written by the tracker under its lock, read by whoever draws."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: Counter[str] = Counter()
        self._recent: dict[str, deque[tuple[float, float]]] = {}
        self._running: dict[str, tuple[str, float]] = {}
        self._due = -math.inf
        self._told: Eta | None = None

    def submitted(self, names: Iterable[str]) -> None:
        """Tasks of these names are to be run."""
        self._left.update(names)

    def started(self, task_id: str, name: str) -> None:
        """A worker executes it."""
        self._running[task_id] = name, self._clock()

    def stopped(self, task_id: str) -> None:
        """An attempt is over, and the task will be retried."""
        self._running.pop(task_id, None)

    def ended(self, task_id: str, name: str, duration_s: float | None) -> None:
        """A task is over; the duration of one that completed, None of any other."""
        self._running.pop(task_id, None)
        self._left[name] = self._left.get(name, 1) - 1
        if duration_s is not None:
            recent = self._recent.get(name)
            if recent is None:
                recent = self._recent[name] = deque(maxlen=RECENT)
            recent.append((self._clock(), duration_s))

    def eta(self, earlier: Mapping[str, Distribution] | None = None) -> Eta | None:
        """What is left, as of about a second ago at most; None where nothing runs, or nothing is known."""
        now = self._clock()
        if now >= self._due:
            with suppress(RuntimeError):  # a dict grew while it was read: the next look is soon
                self._told = self._reckon(now, earlier or {})
            self._due = now + max(EVERY_S, min(LONGEST_REST_S, RESTS * (self._clock() - now)))
        return self._told

    def _reckon(self, now: float, earlier: Mapping[str, Distribution]) -> Eta | None:
        from flightlog.analyze.predict.eta import remaining

        running = list(self._running.values())
        left = {name: count for name, count in list(self._left.items()) if count > 0}
        most = sorted(left, key=lambda name: -left[name])[:NAMES]
        known = {name: found for name in most if (found := self._known(name, earlier, now)) is not None}
        since = grouped((name, now - began) for name, began in running)
        return remaining(left, known, since, len(running), at_least=len(known) < len(left))

    def _known(self, name: str, earlier: Mapping[str, Distribution], now: float) -> KnownDurations | None:
        from flightlog.analyze.predict.eta import from_durations, from_earlier

        recent = list(self._recent.get(name) or ())
        found = from_durations([(now - when, took) for when, took in recent], whole=len(recent) < RECENT)
        before = None if found is not None else earlier.get(name)
        return found if before is None else from_earlier(before)
