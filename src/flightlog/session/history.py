"""What the last runs of a project say of its tasks."""

from __future__ import annotations

import math
from array import array
from itertools import islice
from pathlib import Path

from msgspec import Struct

from flightlog.core.stats import quantile
from flightlog.events import TaskCompleted
from flightlog.store.catalogue import RunEntry, list_runs
from flightlog.store.run import Run

RUNS = 5
TASKS = 100_000
"""How many runs are looked at, and how many completed tasks of each."""


class TaskHistory(Struct, frozen=True, kw_only=True):
    """Completed tasks of one name in earlier runs; None where nobody measured."""

    runs: int
    tasks: int
    p50_s: float | None
    p95_s: float | None
    p95_cpus: float | None
    """CPU seconds over seconds: cores kept busy."""
    cpu_scopes: list[str]
    p95_peak_rss_bytes: int | None
    rss_scopes: list[str]
    """Whose memory; with `process_at_least` the figure is a lower bound."""


class History(Struct, frozen=True, kw_only=True):
    """The last runs of a project that completed any task, the newest first."""

    runs: list[str]
    duration_s: float | None
    """Wall time of a run, the median."""
    workers: int | None
    """Workers that completed tasks in a run, the median."""
    tasks: dict[str, TaskHistory]


def read_history(runs_dir: Path, project: str, *, runs: int = RUNS, tasks: int = TASKS) -> History | None:
    """What the last `runs` ended runs of a project say; None where there are none.

    Reads at most `tasks` completed tasks of each run. A run that cannot be read counts as none.
    """
    tallies: dict[str, _Tally] = {}
    seen: list[RunEntry] = []
    workers: list[int] = []
    for entry in list_runs(runs_dir):
        if len(seen) == runs:
            break
        if entry.project != project or entry.status == "running" or entry.tasks_completed == 0:
            continue
        names: set[str | None] = set()
        completed = (event for event in Run(entry.path).events("tasks") if isinstance(event, TaskCompleted))
        for event in islice(completed, tasks):
            tallies.setdefault(event.task, _Tally()).add(event, len(seen))
            names.add(event.worker)
        if names:
            seen.append(entry)
            workers += [len(names - {None})] if names - {None} else []
    if not seen:
        return None
    durations = [entry.duration_s for entry in seen if entry.duration_s is not None]
    return History(
        runs=[entry.run_id for entry in seen],
        duration_s=_quantile(durations, 0.5),
        workers=None if not workers else math.ceil(quantile(sorted(workers), 0.5)),
        tasks={name: tallies[name].result() for name in sorted(tallies)},
    )


class _Tally:
    """The completed tasks of one name; a few numbers stay of each."""

    def __init__(self) -> None:
        self._runs: set[int] = set()
        self._count = 0
        self._durations, self._cpus, self._peaks = array("d"), array("d"), array("d")
        self._cpu_scopes: set[str] = set()
        self._rss_scopes: set[str] = set()

    def add(self, event: TaskCompleted, run: int) -> None:
        """Take one completed task of the run of this number."""
        self._runs.add(run)
        self._count += 1
        if event.duration_s is not None:
            self._durations.append(event.duration_s)
            if event.cpu_s is not None and event.duration_s > 0:
                self._cpus.append(event.cpu_s / event.duration_s)
                self._cpu_scopes.add(event.cpu_scope or "unknown")
        if event.peak_rss_bytes is not None:
            self._peaks.append(event.peak_rss_bytes)
            self._rss_scopes.add(event.rss_scope or "unknown")

    def result(self) -> TaskHistory:
        """The figures."""
        peak = _quantile(self._peaks, 0.95)
        return TaskHistory(
            runs=len(self._runs),
            tasks=self._count,
            p50_s=_quantile(self._durations, 0.5),
            p95_s=_quantile(self._durations, 0.95),
            p95_cpus=_quantile(self._cpus, 0.95),
            cpu_scopes=sorted(self._cpu_scopes),
            p95_peak_rss_bytes=None if peak is None else math.ceil(peak),
            rss_scopes=sorted(self._rss_scopes),
        )


def _quantile(values: array[float] | list[float], q: float) -> float | None:
    return quantile(sorted(values), q) if values else None
