"""One metric of a project's runs over its history, and where its level changed.

Metrics come from the headline numbers of runs, or from the events of runs too large for these to be counted
when they closed; costs are worked out from the events.
"""

from __future__ import annotations

import difflib
import math
import os
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import msgspec
from msgspec import Struct

from flightlog.analyze.cost.cost import run_cost
from flightlog.analyze.history.change_points import LevelStep, change_points, outliers
from flightlog.analyze.limits import HistoryLimits
from flightlog.analyze.report.report import kept_report
from flightlog.analyze.report.summary import open_context
from flightlog.core.displayed import DisplayedResult
from flightlog.core.errors import UsageError
from flightlog.core.stats import mean_interval, quantile, shift_interval
from flightlog.events.schema import result_schema
from flightlog.store import layout
from flightlog.store.catalogue import PastRun, Progress, RunEntry, past_runs
from flightlog.store.earlier_runs import check_project, of_project
from flightlog.store.headline import CostHeadline, Headline
from flightlog.store.liveness import Observer, unix_time
from flightlog.store.run import Run
from flightlog.store.runs_folder import folder_of_runs
from flightlog.store.tables.run_tables import read_again


class RunOrigin(Struct, frozen=True, kw_only=True):
    """Which run it is, and of which code."""

    run_id: str
    start_time: str | None
    git_commit: str | None
    git_dirty: bool | None


class TrendPoint(RunOrigin, frozen=True, kw_only=True):
    """One run that has the figure."""

    status: str
    value: float
    level: int
    """The number of its level, from 0."""
    outlier: bool = False
    """Whether it is far from its level, alone."""


class TrendLevel(Struct, frozen=True, kw_only=True):
    """A stretch of runs between two steps."""

    first: int
    """Number of its first point."""
    runs: int
    typical: float
    """The median where ratios count; of shares and counts the mean."""
    p05: float
    p95: float


Differing = Literal["commit", "manifest", "host", "python", "target"]
_COMPARED: dict[Differing, str] = {
    "commit": "git_commit",
    "manifest": "manifest_hash",
    "host": "host",
    "python": "python",
    "target": "target",
}
"""Fields of `run.json` that may tell why a step began."""


class RunDifference(Struct, frozen=True, kw_only=True):
    """What is not the same in the run where a step began and in the one before."""

    what: Differing
    before: str | None
    after: str | None


class LevelChange(RunOrigin, frozen=True, kw_only=True):
    """A step of the figure: from what is typical of the level before to what is of the level after."""

    at: int
    """Number of the point where it began."""
    earliest: int
    latest: int
    """Where it may have begun as well, at 95 % confidence."""
    before: float
    after: float
    change: float | None
    """Of a share or a count the difference, else the ratio less 1; null where it starts from 0."""
    low: float | None
    high: float | None
    """Its interval at 95 % confidence."""
    chance: float
    """How likely noise alone shows such a step."""
    differences: list[RunDifference]


class Trend(DisplayedResult, Struct, frozen=True, kw_only=True):
    """The history of one figure, the oldest run first."""

    project: str
    metric: str
    unit: Unit
    currency: str | None
    points: list[TrendPoint]
    levels: list[TrendLevel]
    changes: list[LevelChange]
    drift: float | None
    """By how much the figure moved over all points without a step, as `Change.change`; null where it did
    not."""
    enough: bool
    """Whether there are runs enough to tell a step from noise."""
    left_out: dict[str, int]
    """How many runs of the project have no point, by reason."""


def trends(
    project: str | None = None,
    metric: str = "wall",
    *,
    last: int | None = None,
    since: str | None = None,
    runs_dir: str | os.PathLike[str] | None = None,
    observer: Observer | None = None,
    progress: Progress | None = None,
) -> Trend:
    """How a figure of a project's runs moved: `wall`, `duration:TASK`, `p95:TASK`, `memory`, `memory:TASK`,
    `hits`, `cost` or `failures`.

    The project is that of the latest run unless one is named. `last` counts the newest runs that have the
    figure; `since` is an ISO 8601 date or time, UTC where it names no zone, and the first that counts. Runs
    are looked up in `runs_dir`, by default the configured one. `progress` is told how many of them were
    looked at, and of how many. Raises `RunNotFound` where there is no run, and `UsageError`.
    """
    folder, wanted, begin = folder_of_runs(runs_dir), parse_metric(metric), _moment(since)

    name, compared = "", set[Path]()

    def of_the_project(entries: list[RunEntry]) -> list[RunEntry]:
        nonlocal name
        projects = list(dict.fromkeys(entry.project for entry in entries))
        name = check_project(project, projects, folder)
        found = of_project(entries, name, since=begin)
        compared.update([entry.path for entry in found if entry.status == "completed"][:last])
        return found

    def count(path: Path) -> Headline | None:
        return headline_from_tables(path) if path in compared else None

    def cost_of(path: Path) -> CostHeadline:
        if path not in compared:
            return CostHeadline()
        spent = run_cost(Run(path))
        return CostHeadline(total=spent.total, currency=spent.currency)

    past = past_runs(
        folder,
        choose=of_the_project,
        headlines=wanted.kind not in {"wall", "failures"},  # which `run.json` alone tells
        task=wanted.task,
        count=count,
        cost_of=cost_of if wanted.kind == "cost" else None,
        observer=observer,
        progress=progress,
    )
    return trend_of(name, wanted, past, last=last)


def trend_schema() -> dict[str, Any]:
    """The JSON Schema of the JSON of `flightlog trends`."""
    return result_schema(Trend, "Flightlog trend")


def _moment(since: str | None) -> float | None:
    if since is None:
        return None
    found = unix_time(since)
    if found is None:
        raise UsageError(f"{since[:80]!r} is no date: write it as 2026-05-20, or 2026-05-20T14:00:00")
    return found


def trend_of(project: str, metric: RunMetric, past: Sequence[PastRun], *, last: int | None = None) -> Trend:
    """The trend in these runs, which are of one project and in the order of a catalogue: the newest first."""
    metric.check(past)
    costs = [run.headline.cost for run in past if run.headline] if metric.unit == "money" else []
    currency = next((cost.currency for cost in costs if cost and cost.currency), None)
    left_out: Counter[str] = Counter()
    taken: list[tuple[PastRun, float]] = []
    for run in past:
        value, reason = metric.value(run, currency)
        if value is None:
            left_out[reason] += 1
        elif last is not None and len(taken) == last:
            break
        else:
            taken.append((run, value))
    taken.reverse()
    values = [value for _, value in taken]
    relative = metric.relative and all(value > 0 for value in values)
    scale = [math.log(value) for value in values] if relative else values
    found = change_points(scale, least_gap=HistoryLimits.min_trend_change if relative else 0.0)
    bounds = [0, *(step.at for step in found.steps), len(values)]
    levels = [_level(metric, values, *pair) for pair in pairwise(bounds)] if values else []
    number = [n for n, level in enumerate(levels) for _ in range(level.runs)]
    changes = [
        _change(metric, taken, scale if relative else None, step, levels[n], levels[n + 1])
        for n, step in enumerate(found.steps)
    ]
    far = set(outliers(scale, found.steps)) if relative else set[int]()
    points = [
        TrendPoint(status=run.entry.status, value=value, level=number[n], outlier=n in far, **_origin(run))
        for n, (run, value) in enumerate(taken)
    ]
    drift = found.drift
    if drift is not None and metric.relative:
        drift = math.exp(drift) - 1.0 if relative else None
    return Trend(
        project=project,
        metric=metric.text,
        unit=metric.unit,
        currency=currency,
        points=points,
        levels=levels,
        changes=changes,
        drift=drift,
        enough=len(values) >= HistoryLimits.min_values_for_step or bool(changes),
        left_out=dict(left_out),
    )


def _origin(run: PastRun) -> dict[str, Any]:
    """Which run it is, and of which code."""
    return {
        "run_id": run.entry.run_id,
        "start_time": run.entry.start_time,
        "git_commit": run.info.git_commit if run.info else None,
        "git_dirty": run.info.git_dirty if run.info else None,
    }


def _level(metric: RunMetric, values: Sequence[float], first: int, end: int) -> TrendLevel:
    ordered = sorted(values[first:end])
    return TrendLevel(
        first=first,
        runs=end - first,
        typical=quantile(ordered, 0.5) if metric.relative else fmean(ordered),
        p05=quantile(ordered, 0.05),
        p95=quantile(ordered, 0.95),
    )


def _change(
    metric: RunMetric,
    taken: Sequence[tuple[PastRun, float]],
    logs: Sequence[float] | None,
    step: LevelStep,
    before: TrendLevel,
    after: TrendLevel,
) -> LevelChange:
    run, previous = taken[step.at][0], taken[step.at - 1][0]
    values = [value for _, value in taken] if logs is None else logs
    at, most = step.at, HistoryLimits.max_runs_beside_step
    sides = values[max(before.first, at - most) : at], values[at : at + min(after.runs, most)]
    few = min(before.runs, after.runs) < HistoryLimits.min_runs_for_interval
    interval: tuple[float, float] | None = None
    if not metric.relative:
        change: float | None = after.typical - before.typical
        interval = None if few else mean_interval(*sides)
    else:
        change = after.typical / before.typical - 1.0 if before.typical > 0 else None
        if change is not None and logs is not None and not few:
            low, high = (math.exp(shift) - 1.0 for shift in shift_interval(*sides))
            interval = min(low, change), max(high, change)
    return LevelChange(
        before=before.typical,
        after=after.typical,
        change=change,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        differences=_differences(previous, run),
        **msgspec.structs.asdict(step),
        **_origin(run),
    )


def _differences(before: PastRun, after: PastRun) -> list[RunDifference]:
    a, b = before.info, after.info
    if a is None or b is None:
        return []
    pairs = [(what, getattr(a, name) or None, getattr(b, name) or None) for what, name in _COMPARED.items()]
    return [RunDifference(what=what, before=old, after=new) for what, old, new in pairs if old != new]


Unit = Literal["seconds", "bytes", "share", "count", "money"]

_UNITS: dict[str, Unit] = {
    "wall": "seconds",
    "duration": "seconds",
    "p95": "seconds",
    "memory": "bytes",
    "hits": "share",
    "cost": "money",
    "failures": "count",
}
_OF_TASKS = ("duration", "p95", "memory")
FORMS = "wall, duration:TASK, p95:TASK, memory:TASK, memory, hits, cost or failures"


Found = tuple[float | None, str]
"""A value, or None and why there is none."""


class RunMetric(Struct, frozen=True, kw_only=True):
    """One figure of a run: of all of it, or of the tasks of one name."""

    kind: str
    """One of `_UNITS`."""
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

    def value(self, run: PastRun, currency: str | None = None) -> Found:
        """The figure of a run; None and the reason where the run has none that could be compared.

        A run that did not complete is as short, small or cheap as it happened to be, so only `failures`
        counts it: its failed tasks, or 1 where the run itself failed and no task did.
        """
        number, reason = self._value(run, currency)
        if number is None:
            return None, reason
        if not 0 <= number < HistoryLimits.max_plausible_value:
            return None, "with a value that cannot be"
        return float(number), ""

    def _value(self, run: PastRun, currency: str | None) -> tuple[float | None, str]:
        entry, headline = run.entry, run.headline
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
        if headline is None:
            return None, "without a summary"
        if self.task is not None:
            return self._of_task(run)
        if self.kind == "memory":
            process = headline.resources.process
            return process.peak_rss_bytes if process else None, "without samples of memory"
        if self.kind == "hits":
            hits, lookups = headline.cache.hits, headline.cache.lookups
            if hits is None or not lookups or not 0 <= hits <= lookups < HistoryLimits.max_plausible_value:
                return None, "without lookups in a cache"
            return hits / lookups, ""
        cost = headline.cost or CostHeadline()
        if cost.total is not None and cost.currency not in {None, currency}:
            return None, "in another currency"
        return cost.total, "without a cost"

    def _of_task(self, run: PastRun) -> Found:
        found = run.headline.tasks.by_name.get(self.task or "") if run.headline else None
        if found is None:
            return None, "without such a task"
        if self.kind == "memory":
            return found.peak_rss_bytes, "without a measured memory"
        why = "where no duration of it was recorded" if found.completed else "where no such task completed"
        return (found.duration_s.mean if self.kind == "duration" else found.duration_s.p95), why

    def check(self, past: Sequence[PastRun]) -> None:
        """Raise a `UsageError` where there are summaries and no run has such a task."""
        if self.task is None or not any(run.headline for run in past):
            return
        names = Counter(name for run in past if run.headline for name in run.headline.tasks.by_name)
        if self.task not in names:
            close = difflib.get_close_matches(self.task, names, n=3, cutoff=0.6)
            listed = ", ".join(close or [name for name, _ in names.most_common(10)])
            there = f"{'close' if close else 'there are'}: {listed}" if listed else "there are no tasks"
            raise UsageError(f"no run has a task {self.task!r}; {there}")


def parse_metric(text: str) -> RunMetric:
    """The figure that is called so; a `UsageError` names the forms there are."""
    kind, colon, task = text.partition(":")
    if kind in _UNITS and ((task and kind in _OF_TASKS) or (not colon and kind not in {"duration", "p95"})):
        return RunMetric(kind=kind, task=task or None)
    if kind in _OF_TASKS:
        raise UsageError(f"metric {text[:80]!r} names no task: write {kind}:TASK")
    raise UsageError(f"metric {text[:80]!r} is none of {FORMS}")


@read_again
def headline_from_tables(path: Path) -> Headline | None:
    """The headline of a run that is too large for it to be counted line by line, from its report; None where
    its files cannot be read.
    """
    run = Run(path)
    try:
        with open_context(run, kept_report(run)) as context:
            found = msgspec.convert(context.summary, Headline, from_attributes=True)
    except OSError:
        return None
    return msgspec.structs.replace(found, cost=msgspec.UNSET)  # worked out by those who ask for it
