"""The headline numbers of a run: what `summary.json` holds, and what lists, trends and live views read of it.

They are a pure function of the run's lines, counted in one pass by whoever completes the run. That may be the
recorded program itself, so nothing here needs DuckDB or the analysis. The full report is worked out from the
events when somebody asks for it.

Names and nesting are those of the report's JSON, of which this is a part.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Struct, UnsetType, field, structs

from flightlog.core.stats import distribution, exact_sum
from flightlog.events import (
    CacheLookup,
    ResourceSample,
    TaskCancelled,
    TaskCompleted,
    TaskEnded,
    TaskEvent,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
)
from flightlog.events.declarations import attempt_key
from flightlog.store import layout
from flightlog.store.documents import decode_document
from flightlog.store.limits import StoreLimits

if TYPE_CHECKING:
    from flightlog.store.read.events import RunReading
    from flightlog.store.run import Run


class DurationHeadline(Struct, frozen=True, kw_only=True):
    """Durations in seconds; all but the count and the total are null where there is none."""

    count: int = 0
    total: float | None = None
    """Null where it leaves the range of floats."""
    mean: float | None = None
    min: float | None = None
    p50: float | None = None
    p95: float | None = None
    max: float | None = None


class NameHeadline(Struct, frozen=True, kw_only=True):
    """All tasks of one name. `failed` counts tasks that failed for good: a retried attempt counts in
    `retried` alone.
    """

    submitted: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    running: int = 0
    """Attempts started without an end."""
    duration_s: DurationHeadline = DurationHeadline()
    """Execution alone, of completed tasks."""
    cpu_s: float | None = None
    """CPU time of all ended attempts that know it."""
    peak_rss_bytes: int | None = None

    @property
    def size(self) -> int:
        """How many tasks there are of it, as far as is known."""
        return max(self.submitted, self.completed + self.failed + self.cancelled + self.running)


class TaskHeadline(Struct, frozen=True, kw_only=True):
    """All tasks; null is not known."""

    submitted: int | None = None
    completed: int | None = None
    failed: int | None = None
    cancelled: int | None = None
    retried: int | None = None
    running: int | None = None
    pending: int | None = None
    """Submitted, and never seen to start."""
    names: int = 0
    """How many names of tasks there are."""
    by_name: dict[str, NameHeadline] = {}


class CacheHeadline(Struct, frozen=True, kw_only=True):
    """Lookups in the cache. One that was switched off could not hit: that is `bypassed`, and no lookup."""

    lookups: int | None = None
    hits: int | None = None
    bypassed: int | None = None


class ProcessHeadline(Struct, frozen=True, kw_only=True):
    """The process trees that were sampled."""

    peak_rss_bytes: int | None = None
    """Of one tree."""


class ResourceHeadline(Struct, frozen=True, kw_only=True):
    """What was sampled; null where nothing was."""

    process: ProcessHeadline | None = None


class CostHeadline(Struct, frozen=True, kw_only=True):
    """What the run cost; null where that is not known."""

    total: float | None = None
    currency: str | None = None


class LossHeadline(Struct, frozen=True, kw_only=True):
    """What is known to be missing of the record."""

    lost: dict[str, int] = {}
    """Lines lost, by stream; streams that lost none are left out."""


class RunHeadline(Struct, frozen=True, kw_only=True):
    """Which run it is."""

    run_id: str | None = None


class Headline(Struct, frozen=True, kw_only=True):
    """The content of `summary.json`. What a file lacks is unknown; what it has beyond this is passed over, as
    in those of early recordings, which hold a whole report.
    """

    run: RunHeadline = field(default_factory=RunHeadline)
    tasks: TaskHeadline = field(default_factory=TaskHeadline)
    resources: ResourceHeadline = field(default_factory=ResourceHeadline)
    cache: CacheHeadline = field(default_factory=CacheHeadline)
    completeness: LossHeadline = field(default_factory=LossHeadline)
    cost: CostHeadline | UnsetType = UNSET
    """Not counted here: whoever shows it works it out. Early recordings have it."""

    @property
    def is_whole(self) -> bool:
        """Whether `tasks.by_name` holds every name."""
        return len(self.tasks.by_name) >= self.tasks.names

    @property
    def lines_lost(self) -> int:
        """Lines lost in all streams."""
        return sum(self.completeness.lost.values())


def decode_headline(data: bytes, keep: int | None = None) -> Headline | None:
    """The headline in the bytes of a `summary.json`; None where they are none. `keep` limits the names."""
    found = decode_document(data, Headline, layout.SUMMARY).value
    if found is None:
        return None
    names = max(found.tasks.names, len(found.tasks.by_name))
    found = structs.replace(found, tasks=structs.replace(found.tasks, names=names))
    return found if keep is None else with_names(found, keep)


def headline_bytes(headline: Headline) -> bytes:
    """The headline as it stands in `summary.json`: UTF-8, indented, names in order."""
    return msgspec.json.format(msgspec.json.encode(headline, order="deterministic"), indent=2) + b"\n"


def with_names(headline: Headline, keep: int) -> Headline:
    """The same with so many names at most, those with the most tasks."""
    by_name = headline.tasks.by_name
    if len(by_name) <= keep:
        return headline
    chosen = sorted(by_name, key=lambda name: (-by_name[name].size, name))[:keep]
    listed = {name: by_name[name] for name in sorted(chosen)}
    return structs.replace(headline, tasks=structs.replace(headline.tasks, by_name=listed))


def headline_of(run: Run, reading: RunReading | None = None) -> Headline:
    """The headline of a run in any state, from its lines. The same lines give the same one, in any order.

    Goes through every stream that `reading` has not gone through, since any may have lost lines.
    """
    reading = reading or run.read()
    tasks = _TaskCount()
    for event in reading.events("tasks"):
        if isinstance(event, TaskEvent):
            tasks.add(event)
    results = {"hit": 0, "miss": 0, "bypass": 0}
    for event in reading.events("cache"):
        if isinstance(event, CacheLookup):
            results[event.result] += 1
    sampled, peaks = False, list[int]()
    for event in reading.events("resources"):
        if isinstance(event, ResourceSample) and event.scope == "worker":
            sampled = True
            peaks += [size for size in (event.peak_rss_bytes, event.rss_bytes) if size is not None]
    whole = Headline(
        run=RunHeadline(run_id=run.run_id),
        tasks=tasks.headline(),
        resources=ResourceHeadline(
            process=ProcessHeadline(peak_rss_bytes=max(peaks, default=None)) if sampled else None
        ),
        cache=CacheHeadline(
            lookups=results["hit"] + results["miss"], hits=results["hit"], bypassed=results["bypass"]
        ),
        completeness=LossHeadline(lost=run.completeness(reading).lost),
    )
    return with_names(whole, StoreLimits.max_headline_names)


_KINDS = ("submitted", "completed", "failed", "cancelled", "retried", "running")


class _NameCount:
    """The count of one task name."""

    __slots__ = (*_KINDS, "cpu", "durations", "peak")

    def __init__(self) -> None:
        self.submitted = self.completed = self.failed = self.cancelled = self.retried = self.running = 0
        self.durations, self.cpu = array("d"), array("d")
        self.peak: int | None = None

    def headline(self) -> NameHeadline:
        return NameHeadline(
            duration_s=msgspec.convert(distribution(self.durations), DurationHeadline, from_attributes=True),
            cpu_s=exact_sum(self.cpu) if self.cpu else None,
            peak_rss_bytes=self.peak,
            **{kind: getattr(self, kind) for kind in _KINDS},
        )


class _TaskCount:
    """Counts task events that come in any order. Holds attempts without a partner, and 16 bytes of each that
    ended.
    """

    def __init__(self) -> None:
        self._names: dict[str, _NameCount] = {}
        self._starts: dict[str, str] = {}
        self._ends: set[str] = set()
        self._waiting: set[str] = set()
        self._begun: set[str] = set()
        self._retried: set[str] = set()
        self._failed: dict[str, str] = {}

    def add(self, event: TaskEvent) -> None:
        key = attempt_key(event)
        if isinstance(event, TaskEnded):
            self._ended(event, key, self._name(event.task))
        elif isinstance(event, TaskStarted):
            if key in self._ends:
                self._ends.remove(key)
            else:
                self._starts[key] = event.task
                _pair(event.task_id, self._waiting, self._begun)
        elif isinstance(event, TaskSubmitted):
            self._name(event.task).submitted += 1
            _pair(event.task_id, self._begun, self._waiting)
        elif isinstance(event, TaskRetried):
            self._name(event.task).retried += 1
            self._retried.add(key)

    def _name(self, task: str) -> _NameCount:
        found = self._names.get(task)
        if found is None:
            found = self._names[task] = _NameCount()
        return found

    def _ended(self, event: TaskEnded, key: str, name: _NameCount) -> None:
        if self._starts.pop(key, None) is None:
            self._ends.add(key)
            _pair(event.task_id, self._waiting, self._begun)
        if isinstance(event, TaskCompleted):
            name.completed += 1
            if event.duration_s is not None:
                name.durations.append(event.duration_s)
        elif isinstance(event, TaskFailed):
            self._failed[key] = event.task
        else:
            name.cancelled += isinstance(event, TaskCancelled)
        if event.cpu_s is not None:
            name.cpu.append(event.cpu_s)
        if event.peak_rss_bytes is not None:
            name.peak = max(name.peak or 0, event.peak_rss_bytes)

    def headline(self) -> TaskHeadline:
        """The result, once, after all events."""
        for key, task in self._starts.items():
            if key not in self._retried:
                self._name(task).running += 1
        for key, task in self._failed.items():
            self._name(task).failed += key not in self._retried
        names = self._names.values()
        return TaskHeadline(
            pending=len(self._waiting),
            names=len(names),
            by_name={task: self._names[task].headline() for task in sorted(self._names)},
            **{kind: sum(getattr(name, kind) for name in names) for kind in _KINDS},
        )


def _pair(task_id: str, partners: set[str], alone: set[str]) -> None:
    """A submission and the first sign of life of its task, whichever comes first, wait for each other."""
    if task_id in partners:
        partners.remove(task_id)
    else:
        alone.add(task_id)
