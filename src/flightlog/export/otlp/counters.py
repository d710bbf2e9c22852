"""How many tasks were submitted, started, completed, failed, canceled and are running; and how long they
took.

Counted by event time, whatever order the events are read in: in steps of a second, of two seconds once there
are very many, and so on. No task id is ever a label, and task names are at most `MAX_NAMES`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from flightlog.core.time import SECOND
from flightlog.export.otlp.model import Distribution, Instrument, Point

MAX_STEPS = 3600
MAX_NAMES = 100
OTHER = "other"
"""What tasks are called in metrics that come after `MAX_NAMES` other names."""
BOUNDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    1800.0,
    3600.0,
    7200.0,
    14400.0,
    43200.0,
    86400.0,
)
"""Seconds: from a millisecond to a day."""

COUNTS = (
    Instrument("flightlog.tasks.submitted", "{task}", "sum", "Tasks handed over for execution."),
    Instrument("flightlog.tasks.started", "{attempt}", "sum", "Attempts that a worker began."),
    Instrument("flightlog.tasks.completed", "{task}", "sum", "Tasks that ran to their end."),
    Instrument("flightlog.tasks.failed", "{task}", "sum", "Tasks that ended with an error."),
    Instrument(
        "flightlog.tasks.canceled", "{task}", "sum", "Tasks that were given up; none of them is an error."
    ),
    Instrument("flightlog.tasks.retried", "{attempt}", "sum", "Attempts that failed and were tried again."),
    Instrument("flightlog.tasks.running", "{attempt}", "level", "Attempts that are being executed."),
)
SUBMITTED, STARTED, COMPLETED, FAILED, CANCELED, RETRIED, RUNNING = range(len(COUNTS))
DURATION = Instrument(
    "flightlog.task.duration",
    "s",
    "histogram",
    "Execution of the attempts that tasks completed or failed with, by task name.",
)


class TaskCounters:
    """Steps of event time with what was counted in each, and a histogram a task name.

    Memory is bounded whatever is counted. What is given out by `points` is settled: what happened before
    that, and is heard of later, counts in the first step that is still open.
    """

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.latest_ns = start_ns
        self._step = SECOND
        self._steps: dict[int, list[int]] = {}
        self._totals = [0] * len(COUNTS)
        self._settled_ns = start_ns
        self._durations: dict[str, _Durations] = {}

    def count(self, which: int, at_ns: int) -> None:
        """One more of these at this moment."""
        self._at(at_ns)[which] += 1

    def ran(self, since_ns: int, until_ns: int | None) -> None:
        """An attempt ran from here to there; None where it goes on. Ends before its start count as at its
        start.
        """
        self._at(since_ns)[RUNNING] += 1
        if until_ns is not None:
            self.stopped(since_ns, until_ns)

    def stopped(self, since_ns: int, until_ns: int) -> None:
        """An attempt that was known to run from `since_ns` on runs no more."""
        self._at(max(since_ns, until_ns))[RUNNING] -= 1

    def took(self, task: str, duration_s: float) -> None:
        """An attempt of this task took so long."""
        if task not in self._durations and len(self._durations) >= MAX_NAMES:
            task = OTHER
        found = self._durations.get(task)
        if found is None:
            found = self._durations[task] = _Durations()
        found.add(max(0.0, duration_s))

    def points(self, until_ns: int | None, *, after_ns: int = 0) -> Iterator[Point]:
        """The counts at the end of each step before `until_ns` (None: all), oldest first; those up to
        `after_ns` left out.
        """
        for step in sorted(self._steps):
            if until_ns is not None and (step + 1) * self._step > until_ns:
                return
            *deltas, at_ns = self._steps.pop(step)
            self._settled_ns = max(self._settled_ns, (step + 1) * self._step)
            self._totals = [total + delta for total, delta in zip(self._totals, deltas, strict=True)]
            if at_ns > after_ns:
                yield from (
                    Point(instrument=instrument, time_ns=at_ns, value=total, start_ns=self.start_ns)
                    for instrument, total in zip(COUNTS, self._totals, strict=True)
                )

    def durations(self, at_ns: int) -> Iterator[Point]:
        """The histograms as they are."""
        for task, found in self._durations.items():
            yield Point(
                instrument=DURATION,
                time_ns=at_ns,
                value=found.distribution(),
                start_ns=self.start_ns,
                attributes={"cicd.pipeline.task.name": task},
            )

    def _at(self, moment_ns: int) -> list[int]:
        """The step of a moment: its counts, and behind them the latest moment that was counted in it."""
        moment_ns = max(moment_ns, self._settled_ns)
        self.latest_ns = max(self.latest_ns, moment_ns)
        found = self._steps.get(moment_ns // self._step)
        if found is None:
            if len(self._steps) >= MAX_STEPS:
                self._widen()
                return self._at(moment_ns)
            found = self._steps[moment_ns // self._step] = [*[0] * len(COUNTS), moment_ns]
        found[-1] = max(found[-1], moment_ns)
        return found

    def _widen(self) -> None:
        """Make steps twice as long."""
        self._step *= 2
        merged: dict[int, list[int]] = {}
        for step, counts in self._steps.items():
            into = merged.setdefault(step // 2, [*[0] * len(COUNTS), 0])
            into[:-1] = [one + other for one, other in zip(into[:-1], counts[:-1], strict=True)]
            into[-1] = max(into[-1], counts[-1])
        self._steps = merged


class _Durations:
    """The durations of one task name."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._total, self._least, self._most = 0.0, float("inf"), 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._total += seconds
        self._least, self._most = min(self._least, seconds), max(self._most, seconds)

    def distribution(self) -> Distribution:
        return Distribution(
            bounds=BOUNDS, counts=tuple(self._counts), total=self._total, least=self._least, most=self._most
        )
