"""How long tasks took in earlier runs of a project: the expectation for a run that has just begun."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from statistics import median_low
from typing import TYPE_CHECKING

from flightlog.core.stats import Distribution
from flightlog.store import layout
from flightlog.store.catalogue import project_of, run_paths
from flightlog.store.index import RunIndex
from flightlog.store.runs_folder import fetch_documents

if TYPE_CHECKING:
    from flightlog.store.figures import Figures, TaskFigures
    from flightlog.store.run import Run

RUNS = 20
"""So many earlier runs tell what is usual, the latest of those that completed."""
LOOKED_AT = 60
"""So many are looked at for them."""


class EarlierRuns(Mapping[str, Distribution]):
    """Durations of completed tasks in earlier runs of a run's project, in its own folder, by name.

    Nothing is read before somebody asks; then the summaries of `RUNS` runs at most, through the index of the
    folder. Runs without a summary count for nothing, as do those whose name tells neither project nor start.
    Of several runs `count` is the sum, `p50` the median of the runs' medians, and `p95` and `max` are the
    largest: what is far beyond these was usual in none of them. Other figures are unknown.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def _found(self) -> dict[str, Distribution]:
        return pooled(figures for figures in _figures(self._run) if figures is not None)

    def __getitem__(self, name: str) -> Distribution:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def pooled(figures: Iterable[Figures]) -> dict[str, Distribution]:
    """The durations of each task name over several runs, as `EarlierRuns` has them."""
    by_name: dict[str, list[TaskFigures]] = {}
    for one in figures:
        for name, task in one.tasks.items():
            if task.completed:
                by_name.setdefault(name, []).append(task)
    found = {}
    for name, tasks in by_name.items():
        p50, p95, most = (
            [value for task in tasks if (value := getattr(task, field)) is not None]
            for field in ("p50_s", "p95_s", "max_s")
        )
        if p50 and p95 and most:
            found[name] = Distribution(
                count=sum(task.completed for task in tasks), p50=median_low(p50), p95=max(p95), max=max(most)
            )
    return found


def _figures(run: Run) -> list[Figures | None]:
    """What the summaries of the latest runs before this one say."""
    folder, name = run.home.parent, run.home.name
    if not layout.is_run_id(name):
        return []
    paths = run_paths(folder)
    before = [path for path in paths if path.name < name and project_of(path.name) == project_of(name)]
    with RunIndex(folder, paths) as index:
        latest = sorted(before, key=lambda path: path.name, reverse=True)[:LOOKED_AT]
        known = zip(latest, index.infos(latest), strict=True)
        chosen = [
            path
            for path, read in known
            if read.value is not None
            and read.value.status == "completed"
            and read.value.project == run.info.project
        ]
        fetch_documents(chosen[:RUNS], layout.SUMMARY)
        return index.figures(chosen[:RUNS])
