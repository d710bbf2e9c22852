"""Which earlier runs of a project count: one selection, for plans, time left, stuck tasks, trends, advice and
prediction. And what tasks usually took in them, from their headline numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from flightlog.core.errors import FlightlogError, RunNotFound
from flightlog.core.stats import Distribution
from flightlog.core.text import base_name
from flightlog.store import layout
from flightlog.store.catalogue import PastRun, RunEntry, past_runs, project_of, size_of
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import Observer, unix_time
from flightlog.store.runs_folder import place

if TYPE_CHECKING:
    from flightlog.store.headline import Headline, NameHeadline
    from flightlog.store.run import Run

_SECOND = len("run-20260520T035200Z")
"""What of a run's name says when it began."""


class SelectedRuns(Struct, frozen=True, kw_only=True):
    """Runs of one project, the newest first, each id once; `max_selected_runs` of them at most."""

    project: str | None
    """None where there are no runs at all."""
    runs: list[PastRun]
    older_runs: int = 0
    """Runs that would count, and are beyond the limit."""
    problems: list[str] = []
    """Sentences on copies of runs, which do not count."""
    projects: list[str] = []
    """All projects that there are runs of, those with the newest runs first."""

    @property
    def ended(self) -> list[PastRun]:
        """Those that are not running."""
        return [run for run in self.runs if run.entry.status != "running"]


def select_runs(
    runs_dir: Path,
    *,
    project: str | None,
    target: str | None = None,
    before: Run | None = None,
    headlines: bool = False,
    observer: Observer | None = None,
) -> SelectedRuns:
    """The runs of a project, or of the latest run's where it is None, on a target where one is named.

    With `before`, the runs that completed before that one began, by their names: no other run is looked at.
    With `headlines`, each run has what its summary says, or what is counted of a small one that ended and
    was not completed. Nothing is selected where there is nothing; never raises for what stands in the folder.
    """
    projects: list[str] = []
    problems: list[str] = []
    older = 0

    def choose(entries: list[RunEntry]) -> list[RunEntry]:
        nonlocal project, older
        projects.extend(dict.fromkeys(entry.project for entry in entries))
        project = projects[0] if project is None and projects else project
        found = of_project(entries, project)
        if before is not None:
            began = before.info.start_time, before.home.name
            found = [one for one in found if (one.start_time or "", one.path.name) < began]
        found = _each_id_once(found, problems)
        if target is not None:  # which is known when all are chosen
            return found
        # Summaries are opened of those alone that count.
        older = max(0, len(found) - StoreLimits.max_selected_runs)
        return found[: StoreLimits.max_selected_runs]

    found = past_runs(
        runs_dir,
        narrow=None if before is None else _named_before(before.home.name),
        completed=before is not None,
        choose=choose,
        headlines=headlines,
        count=_count_small,
        observer=observer,
    )
    if target is not None:
        found = [run for run in found if run.info is not None and run.info.target == target]
        older = max(0, len(found) - StoreLimits.max_selected_runs)
    return SelectedRuns(
        project=project,
        runs=found[: StoreLimits.max_selected_runs],
        older_runs=older,
        problems=problems,
        projects=projects,
    )


def of_project(
    entries: Iterable[RunEntry], project: str | None, *, since: float | None = None
) -> list[RunEntry]:
    """The runs of a project in a list of runs, in its order, from a start time on (Unix seconds)."""
    first = -math.inf if since is None else since
    return [
        entry
        for entry in entries
        if entry.project == project and (unix_time(entry.start_time) or 0.0) >= first
    ]


def check_project(project: str | None, projects: Sequence[str], folder: Path) -> str:
    """The project, or that of the latest run; a `RunNotFound` says which ones there are runs of.

    `projects` are all of the folder, those with the newest runs first.
    """
    if not projects:
        raise RunNotFound(f"there are no runs in {place(folder)}; record one, or name another folder of runs")
    if project is not None and project not in projects:
        known = ", ".join(sorted(projects)[:10]) + (", …" if len(projects) > 10 else "")
        raise RunNotFound(f"no run in {place(folder)} is of project {project!r}; there are runs of {known}")
    return projects[0] if project is None else project


def _named_before(name: str) -> Callable[[list[Path]], list[Path]]:
    """Gives those of the paths of runs whose names tell the same project and no later start, newest first.

    Three times as many as count: some may not have completed.
    """
    second, project = name[:_SECOND], project_of(name)

    def narrow(paths: list[Path]) -> list[Path]:
        found = [path for path in paths if path.name[:_SECOND] <= second and project_of(path.name) == project]
        return sorted(found, key=lambda path: path.name, reverse=True)[: 3 * StoreLimits.max_selected_runs]

    return narrow


def _each_id_once(runs: list[RunEntry], problems: list[str]) -> list[RunEntry]:
    """The runs without copies, on which `problems` gets sentences; the one whose folder bears its id is no
    copy.
    """
    once: dict[str, RunEntry] = {}
    for run in runs:
        known = once.setdefault(run.run_id, run)
        if known is not run:
            copy = run if known.path.name == run.run_id else known
            once[run.run_id] = known if copy is run else run
            problems.append(f"{copy.path.name}: is a copy of {run.run_id}, which counts once")
    return list(once.values())


def _count_small(path: Path) -> Headline | None:
    """The headline of a run that nobody has completed yet, as in temporary folders; None of a large one."""
    from flightlog.store.headline import headline_of
    from flightlog.store.run import Run

    if size_of(path) > StoreLimits.max_counted_earlier_run_bytes:
        return None
    try:
        return headline_of(Run(path))
    except (FlightlogError, OSError):  # it is gone, or damaged
        return None


class EarlierRun(NamedTuple):
    """A completed run, by its documents."""

    info: layout.RunInfo
    headline: Headline | None


class EarlierRuns(Mapping[str, Distribution]):
    """Durations of completed tasks in earlier runs of a run's project, in its own folder, by name: `sim` has
    those of `sim[3]`, which is asked for as such, too.

    Nothing is read before somebody asks; then summaries alone, through the index of the folder, and the
    lines of small runs that have none. Other runs without a summary count for nothing, as do those whose name
    tells neither project nor start. Of several runs
    `count` is the sum, `p50` the median of the runs' medians, and `p95` and `max` are the largest: what is
    far beyond these was usual in none of them. Other figures are unknown.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def runs(self) -> list[EarlierRun]:
        """The completed runs before this one, the newest first."""
        return self._completed(headlines=True)

    def wall_times(self) -> list[float]:
        """How long they took, from their `run.json` alone."""
        return [run.info.duration_s or 0.0 for run in self._completed(headlines=False)]

    def _completed(self, *, headlines: bool) -> list[EarlierRun]:
        home = self._run.home
        if not layout.is_run_id(home.name):
            return []
        project = self._run.info.project
        found = select_runs(home.parent, project=project, before=self._run, headlines=headlines)
        return [EarlierRun(run.info, run.headline) for run in found.runs if run.info is not None]

    @cached_property
    def _found(self) -> dict[str, Distribution]:
        return pooled(one.headline for one in self.runs if one.headline is not None)

    def __getitem__(self, name: str) -> Distribution:
        return self._found[base_name(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def pooled(headlines: Iterable[Headline]) -> dict[str, Distribution]:
    """The durations of each task name over several runs, as `EarlierRuns` has them."""
    by_name: dict[str, list[NameHeadline]] = {}
    for one in headlines:
        for name, task in one.tasks.by_name.items():
            if task.completed:
                by_name.setdefault(base_name(name), []).append(task)
    found = {}
    for name, tasks in by_name.items():
        p50, p95, most = (
            [value for task in tasks if (value := getattr(task.duration_s, field)) is not None]
            for field in ("p50", "p95", "max")
        )
        if p50 and p95 and most:
            found[name] = Distribution(
                count=sum(task.completed for task in tasks), p50=median_low(p50), p95=max(p95), max=max(most)
            )
    return found
