"""What a history needs of each run's `summary.json`: a few numbers of the run, and a few of every task
name.
"""

from __future__ import annotations

from msgspec import Struct, field, structs

from flightlog.store import layout
from flightlog.store.documents import decode_document

KEPT_NAMES = 64
"""Task names of a run that an index keeps; figures of the others are read from the run when they are asked
for."""


class TaskFigures(Struct, frozen=True, kw_only=True, array_like=True):
    """All tasks of one name in one run; null where nobody measured. Seconds, of completed tasks."""

    submitted: int
    completed: int
    failed: int
    retried: int
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    max_s: float | None
    total_s: float | None
    cpu_s: float | None
    """CPU time of all ended attempts that know it."""
    peak_rss_bytes: int | None


class Figures(Struct, frozen=True, kw_only=True, array_like=True):
    """What `summary.json` says of a run; null where it says nothing."""

    run_id: str | None
    submitted: int | None
    completed: int | None
    failed: int | None
    retried: int | None
    cache_lookups: int | None
    cache_hits: int | None
    peak_memory_bytes: int | None
    """Of one process tree."""
    cost: float | None
    currency: str | None
    names: int
    """How many names of tasks there are."""
    tasks: dict[str, TaskFigures]
    """By name; of a run with many names those with the most tasks alone."""

    @property
    def complete(self) -> bool:
        """Whether `tasks` holds every name."""
        return len(self.tasks) >= self.names


def decode_figures(data: bytes, keep: int = KEPT_NAMES) -> Figures | None:
    """The figures in the bytes of a `summary.json`; None where they are no summary. `keep` limits the
    names.
    """
    found = decode_document(data, _Summary, layout.SUMMARY).value
    if found is None:
        return None
    tasks, process = found.tasks, found.resources.process
    figures = Figures(
        run_id=found.run.run_id,
        submitted=tasks.submitted,
        completed=tasks.completed,
        failed=tasks.failed,
        retried=tasks.retried,
        cache_lookups=found.cache.lookups,
        cache_hits=found.cache.hits,
        peak_memory_bytes=process.peak_rss_bytes if process else None,
        cost=found.cost.total,
        currency=found.cost.currency,
        names=max(tasks.names, len(tasks.by_name)),
        tasks={name: _task(by_name) for name, by_name in tasks.by_name.items()},
    )
    return kept_names(figures, keep)


def kept_names(figures: Figures, keep: int = KEPT_NAMES) -> Figures:
    """The same figures with so many names at most, those with the most tasks."""
    if len(figures.tasks) <= keep:
        return figures
    names = sorted(figures.tasks, key=lambda name: (-figures.tasks[name].submitted, name))[:keep]
    return structs.replace(figures, tasks={name: figures.tasks[name] for name in names})


def _task(name: _Name) -> TaskFigures:
    spread = name.duration_s
    return TaskFigures(
        submitted=name.submitted,
        completed=name.completed,
        failed=name.failed,
        retried=name.retried,
        mean_s=spread.mean,
        p50_s=spread.p50,
        p95_s=spread.p95,
        max_s=spread.max,
        total_s=spread.total if spread.count else None,
        cpu_s=name.cpu_s,
        peak_rss_bytes=name.peak_rss_bytes,
    )


# The parts of `summary.json` that are read here. Fields that an older or newer version lacks are unknown.


class _Spread(Struct):
    count: int = 0
    total: float | None = None
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    max: float | None = None


class _Name(Struct):
    submitted: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    duration_s: _Spread = field(default_factory=_Spread)
    cpu_s: float | None = None
    peak_rss_bytes: int | None = None


class _Tasks(Struct):
    submitted: int | None = None
    completed: int | None = None
    failed: int | None = None
    retried: int | None = None
    names: int = 0
    by_name: dict[str, _Name] = field(default_factory=dict[str, _Name])


class _Cache(Struct):
    lookups: int | None = None
    hits: int | None = None


class _Process(Struct):
    peak_rss_bytes: int | None = None


class _Resources(Struct):
    process: _Process | None = None


class _Cost(Struct):
    total: float | None = None
    currency: str | None = None


class _Run(Struct):
    run_id: str | None = None


class _Summary(Struct):
    run: _Run = field(default_factory=_Run)
    tasks: _Tasks = field(default_factory=_Tasks)
    resources: _Resources = field(default_factory=_Resources)
    cache: _Cache = field(default_factory=_Cache)
    cost: _Cost = field(default_factory=_Cost)
