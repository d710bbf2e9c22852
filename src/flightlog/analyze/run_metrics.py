"""The figures of a run that a history can show: what each is called, what it means, and where it stands."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from flightlog.errors import UsageError
from flightlog.store import layout
from flightlog.store.catalogue import PastRun

Kind = Literal["wall", "duration", "p95", "memory", "hits", "cost", "failures"]
Unit = Literal["seconds", "bytes", "share", "count", "money"]

_UNITS: dict[Kind, Unit] = {
    "wall": "seconds",
    "duration": "seconds",
    "p95": "seconds",
    "memory": "bytes",
    "hits": "share",
    "cost": "money",
    "failures": "count",
}
_OF_RUNS: dict[str, Kind] = {
    "wall": "wall",
    "memory": "memory",
    "hits": "hits",
    "cost": "cost",
    "failures": "failures",
}
_OF_TASKS: dict[str, Kind] = {"duration": "duration", "p95": "p95", "memory": "memory"}
FORMS = "wall, duration:TASK, p95:TASK, memory:TASK, memory, hits, cost or failures"

_LARGEST = 1e100
"""Nothing in a run is as large: what claims to be is damage."""

Found = tuple[float | None, str]
"""A value, or None and why there is none."""


class Metric(Struct, frozen=True, kw_only=True):
    """One figure of a run: of all of it, or of the tasks of one name."""

    kind: Kind
    task: str | None = None

    @property
    def text(self) -> str:
        """As it is written on the command line."""
        return self.kind if self.task is None else f"{self.kind}:{self.task}"

    @property
    def unit(self) -> Unit:
        """What its values are in; a `share` lies between 0 and 1."""
        return _UNITS[self.kind]

    @property
    def relative(self) -> bool:
        """Whether ratios count; of shares and counts differences do."""
        return self.unit not in {"share", "count"}

    @property
    def needs_figures(self) -> bool:
        """Whether `run.json` alone does not tell it."""
        return self.kind not in {"wall", "failures"}

    def value(self, run: PastRun, currency: str | None = None) -> Found:
        """The figure of a run; None and the reason where the run has none that could be compared.

        A run that did not complete is as short, small or cheap as it happened to be, so only `failures`
        counts it: its failed tasks, or 1 where the run itself failed and no task did.
        """
        number, reason = self._value(run, currency)
        if number is None:
            return None, reason
        if not 0 <= number < _LARGEST:
            return None, "with a value that cannot be"
        return float(number), ""

    def _value(self, run: PastRun, currency: str | None) -> tuple[float | None, str]:
        entry, figures = run.entry, run.figures
        if entry.status not in layout.ENDED:
            return None, entry.status
        if self.kind == "failures":
            failed = entry.tasks_failed
            if entry.status in {"failed", "crashed"}:
                return max(failed or 0, 1), ""
            return failed, "unknown"
        if entry.status != "completed":
            return None, entry.status
        if self.kind == "wall":
            return entry.duration_s, "without a duration"
        if figures is None:
            return None, "without a summary"
        if self.task is not None:
            return self._of_task(run)
        if self.kind == "memory":
            return figures.peak_memory_bytes, "without samples of memory"
        if self.kind == "hits":
            hits, lookups = figures.cache_hits, figures.cache_lookups
            if hits is None or not lookups or not 0 <= hits <= lookups < _LARGEST:
                return None, "without lookups in a cache"
            return hits / lookups, ""
        if figures.cost is not None and figures.currency not in {None, currency}:
            return None, "in another currency"
        return figures.cost, "without a cost"

    def _of_task(self, run: PastRun) -> Found:
        found = run.figures.tasks.get(self.task or "") if run.figures else None
        if found is None:
            return None, "without such a task"
        if self.kind == "memory":
            return found.peak_rss_bytes, "without a measured memory"
        why = "where no duration of it was recorded" if found.completed else "where no such task completed"
        return (found.mean_s if self.kind == "duration" else found.p95_s), why

    def check(self, past: Sequence[PastRun]) -> None:
        """Raise a `UsageError` where there are summaries and no run has such a task."""
        if self.task is None or not any(run.figures for run in past):
            return
        names = Counter(name for run in past if run.figures for name in run.figures.tasks)
        if self.task not in names:
            close = difflib.get_close_matches(self.task, names, n=3, cutoff=0.6)
            listed = close or [name for name, _ in names.most_common(10)]
            there = (
                f"; {'close' if close else 'there are'}: {', '.join(listed)}"
                if listed
                else "; there are no tasks"
            )
            raise UsageError(f"no run has a task {self.task!r}{there}")


def parse_metric(text: str) -> Metric:
    """The figure that is called so; a `UsageError` names the forms there are."""
    kind, colon, task = text.partition(":")
    if not colon and kind in _OF_RUNS:
        return Metric(kind=_OF_RUNS[kind])
    if task and kind in _OF_TASKS:
        return Metric(kind=_OF_TASKS[kind], task=task)
    if kind in _OF_TASKS:
        raise UsageError(f"metric {text[:80]!r} names no task: write {kind}:TASK")
    raise UsageError(f"metric {text[:80]!r} is none of {FORMS}")
