"""Everything that was read of a run so far, spans and metrics included, and the state it adds up to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from flightlog.analyze.charts.results import Chart, ChartSeries, MetricPoints
from flightlog.analyze.cost.cost import CostSummary, CostTally, Used, run_cost
from flightlog.analyze.limits import PredictLimits, ReportLimits
from flightlog.analyze.live.recent import LiveFailures, LiveLog
from flightlog.analyze.live.results import (
    NAME,
    Doing,
    EndedTask,
    MetricNow,
    OpenSpan,
    Progress,
    SpanNow,
    args_text,
)
from flightlog.analyze.live.tasks import DONE, TASK_COUNTS, Attempt, DurationSketch, LiveTasks, RecentKeys
from flightlog.analyze.live.workers import LiveMachines, LiveWorkers, Window
from flightlog.analyze.predict.eta import Eta, KnownDurations, from_earlier, remaining
from flightlog.analyze.tallies import grouped
from flightlog.core.text import cut
from flightlog.core.time import SECOND, moment
from flightlog.events import (
    CacheLookup,
    Event,
    Failure,
    JobEvent,
    JobStarted,
    Metric,
    ResourceSample,
    SpanEvent,
    SpanOpened,
    TaskCancelled,
    TaskFailed,
    TaskRetried,
    WorkerEvent,
)
from flightlog.events.devices import DeviceMemory
from flightlog.events.rates import Sizes
from flightlog.store import layout
from flightlog.store.read.lines import AnyEvent
from flightlog.store.run import Run
from flightlog.store.tables.workers import component_of, given_to, launches_of, lifetime, steps_of, uptimes_of

if TYPE_CHECKING:
    from flightlog.core.stats import Distribution
    from flightlog.store.read.lines import AnyEvent

E = TypeVar("E", bound=Event)
DOING = 100
RECENT = 50
RATE = 60 * SECOND
AT_ONCE = 10 * SECOND
"""Concurrency is averaged over this time. At a single moment a worker may have none, between
one task and the next, or two, where the end of the one is not written yet.
"""


class LiveTotals:
    """Takes events of all streams in any order. `history` has durations of earlier runs by name of task."""

    def __init__(self, run: Path, history: Mapping[str, Distribution] | None = None) -> None:
        self.workers, self.failures, self.log = LiveWorkers(), LiveFailures(), LiveLog()
        self.machines, self.spans, self.metrics = LiveMachines(), LiveSpans(), LiveMetrics()
        self.cost = LiveCost(run)
        self.tasks = LiveTasks(self.workers.started, self.workers.ended, self._trouble)
        self.lookups = {"hit": 0, "miss": 0, "bypass": 0}
        self._history = history or {}
        self._takes: dict[str, Callable[[AnyEvent], None]] = {
            "tasks": self.tasks.add,
            "workers": _takes(WorkerEvent, self.workers.add, self.log.add),
            "resources": _takes(ResourceSample, self._sample),
            "cache": _takes(CacheLookup, self._lookup),
            "failures": _takes(Failure, self.failures.add, self.log.add),
            "cost": self.cost.add,
            "spans": self.spans.add,
            "metrics": _takes(Metric, self.metrics.add),
            "devices": _takes(DeviceMemory, self.machines.tracked, self.log.add),
            "jobs": _takes(JobEvent, self.cost.job, self.log.add),
        }

    def taker(self, stream: str) -> Callable[[AnyEvent], None]:
        """The method that takes the events of a stream."""
        return self._takes.get(stream, self.log.add)

    def set_limit(self, limit: int) -> None:
        """Set a moment near now: events with later timestamps do not push the past out of the charts."""
        tasks = self.tasks
        for level in (tasks.running_level, tasks.waiting_level, tasks.ended_level, self.workers.up_level):
            level.limit = limit
        self.machines.set_limit(limit)

    def _trouble(self, event: TaskFailed | TaskRetried | TaskCancelled) -> None:
        self.log.add(event)
        if isinstance(event, TaskFailed):
            self.failures.failed(event)

    def _sample(self, event: ResourceSample) -> None:
        of_worker = event.scope in {"worker", "worker_process"}
        (self.workers.sampled if of_worker else self.machines.add)(event)

    def _lookup(self, event: CacheLookup) -> None:
        self.lookups[event.result] += 1

    def progress(
        self, started: int | None, until: int | None, *, over: bool, partly: bool = False
    ) -> Progress:
        """Task counts; while the run goes on, also the rate and the estimated time left.

        Where the run was read `partly` there are counts alone: shares and times would be those of another
        run.
        """
        counts = self.tasks.names.totals()
        ended = counts["completed"] + counts["failed"] + counts["cancelled"]
        all_known = max(counts["submitted"], ended + counts["running"])
        eta = None if over or partly or until is None else self._eta(until)
        return Progress(
            **{name: counts[name] for name in TASK_COUNTS},
            waiting=self.tasks.waiting,
            retried=counts["retries"],
            done=ended / all_known if all_known and not partly else None,
            per_s=None if over or partly else self._per_s(started, until),
            left_s=None if eta is None else eta.expected,
            left_low_s=None if eta is None else eta.low,
            left_high_s=None if eta is None else eta.high,
            left_at_least=eta is not None and eta.at_least,
        )

    def _per_s(self, started: int | None, until: int | None) -> float | None:
        if until is None or not self.tasks.ended:
            return None
        since = until - RATE if started is None else max(until - RATE, started)
        if until - since < SECOND:
            return None
        return self.tasks.ended_level.changed(since, until) * SECOND / (until - since)

    def _eta(self, until: int) -> Eta | None:
        going = [one for one in self.tasks.names.all() if one.size > one.ended]
        going.sort(key=lambda one: ((one.ended - one.size) * (one.durations.mean or 0.0), one.name))
        left = {one.name: one.size - one.ended for one in going}
        known: dict[str, KnownDurations] = {}
        for place, one in enumerate(going):
            earlier = self._history.get(one.name)
            found = one.known(until) if place < PredictLimits.max_eta_names else one.known_roughly()
            found = found or (None if earlier is None else from_earlier(earlier))
            if found is not None:
                known[one.name] = found
        since = grouped(
            (attempt.tally.name, max(0, until - attempt.since) / SECOND)
            for attempt in self.tasks.running.values()
            if attempt.since is not None
        )
        at_once = self._at_once(until) or len(self.tasks.running)
        return remaining(left, known, since, at_once, at_least=len(known) < len(left))

    def _at_once(self, until: int) -> float:
        """Recent mean concurrency; 0 where no task has run."""
        first = self.tasks.first
        if first is None or first >= until:
            return 0.0
        _, found = self.tasks.running_level.points(
            max(first, until - AT_ONCE), until, self.tasks.running_since()
        )
        return sum(value or 0.0 for value in found) / len(found)

    def doing(self, until: int | None) -> list[Doing]:
        """Running tasks, those that may be stuck first, then the longest."""
        oldest = sorted(self.tasks.running.values(), key=lambda one: (one.at, *one.order))
        found = [self._doing(one, until) for one in oldest[:DOING]]
        return sorted(found, key=lambda one: (not one.stuck, -(one.elapsed_s or 0.0), one.since, one.task))

    def _doing(self, one: Attempt, until: int | None) -> Doing:
        began = one.since
        elapsed = None if began is None or until is None else max(0, until - began) / SECOND
        usual, stuck = usual_of(one.tally.durations, elapsed)
        if usual is None and (earlier := self._history.get(one.last.task)) is not None:
            usual, stuck = _usual(earlier.count, earlier.p95, earlier.max, elapsed)
        return Doing(**self._about(one), since=one.at, elapsed_s=elapsed, usual_s=usual, stuck=stuck)

    def _about(self, one: Attempt) -> dict[str, Any]:
        """What is shown of any attempt."""
        return {
            "task": cut(one.last.task, NAME),
            "task_id": cut(one.last.task_id, NAME),
            "attempt": one.last.attempt,
            "args": args_text(self.tasks.args_of(one)),
            "worker": None if one.worker is None else cut(one.worker, NAME),
        }

    def slowest(self) -> list[EndedTask]:
        """Completed tasks, the slowest first."""
        return [
            self._ended(Attempt(self.tasks.names.of(event.task), state="completed", end=event))
            for event in self.tasks.slowest.items()
        ]

    def recent(self) -> list[EndedTask]:
        """Attempts that ended, the last first."""
        return [self._ended(one) for one in self.tasks.last.items()[:RECENT]]

    def _ended(self, one: Attempt) -> EndedTask:
        took = one.end.duration_s if one.end is not None else None
        if one.end is None and one.ran is not None:
            took = (one.ran[1] - one.ran[0]) / SECOND
        return EndedTask(
            **self._about(one), state=one.outcome, at=one.at, duration_s=took, queue_s=one.queue_s
        )

    def concurrency(self, window: Window) -> Chart | None:
        """Tasks that run and wait, and workers that are up."""
        text, since, until = window
        tasks = self.tasks
        if not tasks.ended and not tasks.running and not tasks.waiting and not len(self.workers):
            return None
        lines = [
            ("running", tasks.running_level.points(since, until, tasks.running_since())),
            ("waiting", tasks.waiting_level.points(since, until)),
            ("workers", self.workers.up_level.points(since, until)),
        ]
        return Chart(
            since=text,
            length_s=max(0, until - since) / SECOND,
            unit="count",
            notes=[],
            series=[
                ChartSeries(label=label, at_s=at, value=value) for label, (at, value) in lines if any(value)
            ],
        )


def _takes(kind: type[E], *takers: Callable[[E], None]) -> Callable[[AnyEvent], None]:
    """Gives the events of a kind to each of these, and ignores others."""

    def take(event: AnyEvent) -> None:
        if isinstance(event, kind):
            for taker in takers:
                taker(event)

    return take


def _usual(
    count: int, p95: float | None, most: float | None, elapsed_s: float | None
) -> tuple[float | None, bool | None]:
    """p95, and whether this duration is far beyond it; null where fewer than five have ended."""
    if elapsed_s is None or count < ReportLimits.min_ended_for_usual or p95 is None or most is None:
        return None, None
    return p95, elapsed_s > max(ReportLimits.stuck_ratio * p95, most)


class LiveCost:
    """By the run's rates and the time its workers have lived; of a run that is over and not large, what its
    report says.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._tally = CostTally()
        self._told = False
        self._jobs: dict[str, Sizes] = {}
        self._final: CostSummary | None = None

    def add(self, event: AnyEvent) -> None:
        """An event of the stream `cost`."""
        self._told = True
        if isinstance(event, Event):
            self._tally.add(event)

    def job(self, event: JobEvent) -> None:
        """A worker may live in a batch job, which says what it was given."""
        if isinstance(event, JobStarted) and event.worker is not None:
            said = Sizes(cpus=event.cpus, memory_bytes=event.memory_bytes, gpus=event.gpus)
            self._jobs[event.worker] = self._jobs.get(event.worker, Sizes()).else_(said)

    def summary(
        self,
        workers: LiveWorkers,
        provider: str | None,
        started: int | None,
        until: int | None,
        *,
        over: bool,
    ) -> CostSummary:
        """What the run cost up to `until`."""
        if over and self._final is None and (self._run / layout.SUMMARY).exists():
            self._final = run_cost(Run(self._run))
        if over and self._final is not None:
            return self._final
        self._final = None
        used = Used(ended=over, provider=provider, told=self._told)
        if self._tally.rates is not None:  # else nothing is paid by the hour, and many workers take time
            used = self._used(workers, used, started, until)
        return self._tally.summary(used)

    def _used(self, workers: LiveWorkers, used: Used, started: int | None, until: int | None) -> Used:
        lives = steps_of(workers.events)
        given = {name: given_to(life) for name, life in lives.items()}
        for name, job in self._jobs.items():
            given[name] = given.get(name, Sizes()).else_(job)
        return msgspec.structs.replace(
            used,
            lifetimes={
                name: lifetime(uptimes_of(life, workers.began(name), until), launches_of(life))
                for name, life in sorted(lives.items())
            },
            components={name: component_of(life) for name, life in lives.items()},
            given=given,
            wall_ns=None if started is None or until is None else max(0, until - started),
        )


SPAN_NAMES = 2_000
SPANS_LISTED = 100
OPEN_LISTED = 100
OTHERS = "(other names)"


class _SpanName:
    __slots__ = ("durations", "ended", "errors", "open")

    def __init__(self) -> None:
        self.ended = self.errors = self.open = 0
        self.durations = DurationSketch()


class LiveSpans:
    """Takes the events of the stream `spans`. Memory: what is open, a few numbers a name, and the last ids
    that ended: a line that says that a span is open may come just after its end.
    """

    def __init__(self) -> None:
        self.ended = 0
        self._names: dict[str, _SpanName] = {}
        self._open: dict[str, SpanOpened] = {}
        self._done = RecentKeys(DONE)

    def add(self, event: AnyEvent) -> None:
        """Take one event; other kinds are ignored."""
        if isinstance(event, SpanEvent):
            if event.span_id in self._done:
                return
            self._open.pop(event.span_id, None)
            if event.span_id:
                self._done.add(event.span_id)
            self.ended += 1
            name = self._of(event.name)
            name.ended += 1
            name.errors += event.status == "error"
            if event.duration_s is not None:
                name.durations.add(event.duration_s)
        elif isinstance(event, SpanOpened) and event.span_id not in self._done:
            known = self._open.get(event.span_id)
            if known is None or event.elapsed_s > known.elapsed_s:
                self._open[event.span_id] = event

    def _of(self, name: str) -> _SpanName:
        short = cut(name, NAME)
        found = self._names.get(short)
        if found is None:
            short = short if len(self._names) < SPAN_NAMES else OTHERS
            found = self._names.setdefault(short, _SpanName())
        return found

    def names(self) -> list[SpanNow]:
        """The names that took most of the time first."""
        open_now: dict[str, int] = {}
        for opened in self._open.values():
            name = cut(opened.name, NAME)
            open_now[name] = open_now.get(name, 0) + 1
        for name in open_now:
            self._of(name)
        most = sorted(self._names.items(), key=lambda one: (-one[1].durations.total, one[0]))[:SPANS_LISTED]
        return [
            SpanNow(
                name=name,
                ended=one.ended,
                errors=one.errors,
                open=open_now.get(name, 0),
                mean_s=one.durations.mean,
                max_s=one.durations.max if one.durations.count else None,
                total_s=one.durations.total if one.durations.count else None,
            )
            for name, one in most
        ]

    def open(self, until: int | None) -> list[OpenSpan]:
        """What may be stuck first, then the longest."""
        oldest = sorted(self._open.values(), key=lambda one: (one.timestamp, one.name, one.span_id))[
            :OPEN_LISTED
        ]
        found = [self._result(opened, until) for opened in oldest]
        return sorted(found, key=lambda one: (not one.stuck, -(one.elapsed_s or 0.0), one.since, one.name))

    def _result(self, opened: SpanOpened, until: int | None) -> OpenSpan:
        since = moment(opened.timestamp)
        elapsed = opened.elapsed_s if since is None or until is None else max(0, until - since) / SECOND
        usual, stuck = usual_of(self._of(opened.name).durations, elapsed)
        return OpenSpan(
            name=cut(opened.name, NAME),
            span_id=cut(opened.span_id, NAME),
            tags=args_text(opened.tags),
            since=opened.timestamp,
            elapsed_s=elapsed,
            usual_s=usual,
            stuck=stuck,
        )


def usual_of(durations: DurationSketch, elapsed_s: float | None) -> tuple[float | None, bool | None]:
    """As `_usual`, of durations in this run."""
    p95 = durations.quantile(0.95) if durations.count >= ReportLimits.min_ended_for_usual else None
    return _usual(durations.count, p95, durations.max, elapsed_s)


SERIES = 500
METRICS_LISTED = 50
DRAWN = 6


class LiveMetrics:
    """Takes the events of the stream `metrics`, in any order; of more than `SERIES` names the further ones
    are left out.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[tuple[str, str, int], Metric, int]] = {}
        self._points: dict[str, LivePoints] = {}

    def add(self, event: Metric) -> None:
        """Take one value."""
        name = cut(event.name, NAME)
        known = self._last.get(name)
        when = (event.timestamp, event.writer, event.seq)
        if known is None:
            if len(self._last) >= SERIES:
                return
            if len(self._points) < METRICS_LISTED:
                self._points[name] = LivePoints()
        newest = (when, event) if known is None or when > known[0] else known[:2]
        self._last[name] = (*newest, 1 if known is None else known[2] + 1)
        if (points := self._points.get(name)) is not None:
            points.add(event.timestamp, event.step, event.value)

    def results(self) -> list[MetricNow]:
        """In order of their names."""
        listed = sorted(self._last.items())[:METRICS_LISTED]
        known = [(-self._points[name].values, name) for name, _ in listed if name in self._points]
        drawn = {name: self._points[name].results() for _, name in sorted(known)[:DRAWN]}
        return [
            MetricNow(
                name=name,
                value=last.value,
                step=last.step,
                count=count,
                at=last.timestamp,
                points=drawn.get(name),
            )
            for name, (_, last, count) in listed
        ]


POINTS = 200
"""Points are joined when there are twice as many, until at most this many are left, and at least a third.
Each is of about as many values, whenever they came."""


class _Point(Struct):
    """Values that are next to each other."""

    step: float | None
    at: float | None
    """The first of each, by which points are in order."""
    values: int
    known: int
    total: float
    least: float
    most: float
    lost_step: float | None
    lost_at: float | None


class LivePoints:
    """Takes values in any order. Memory is bounded; a value without a step and without a time is left out."""

    def __init__(self) -> None:
        self._points: list[_Point] = []
        self._most = 1
        self._stepped = True
        self.values = 0
        self.lost = 0

    def add(self, timestamp: str, step: int | None, value: float | None) -> None:
        """Take one value; null, and one so large that sums of it are no numbers, is none."""
        when = moment(timestamp)
        at = None if when is None else when / SECOND
        place = None if step is None or abs(step) > ReportLimits.max_metric else float(step)
        if place is None and at is None:
            return
        self._stepped = self._stepped and place is not None
        self.values += 1
        if value is None or not abs(value) <= ReportLimits.max_metric:
            self.lost += 1
            self._points.append(_Point(place, at, 1, 0, 0.0, 0.0, 0.0, place, at))
        else:
            known = float(value)
            self._points.append(_Point(place, at, 1, 1, known, known, known, None, None))
        if len(self._points) >= 2 * POINTS:
            self._points = self._joined()
            while len(self._points) > POINTS:
                self._most *= 2
                self._points = self._joined()

    def results(self) -> MetricPoints | None:
        """The points as of now; null for a line that would have no two places."""
        found = [point for point in self._joined() if self._place(point) is not None]
        places = [self._place(point) or 0.0 for point in found]
        if not places or places[0] == places[-1] or self.values == self.lost:
            return None
        several = any(point.values > 1 for point in found)
        lost = [point.lost_step if self._stepped else point.lost_at for point in found]
        return MetricPoints(
            by="step" if self._stepped else "time",
            at=places,
            value=[_mean(point) for point in found],
            least=[point.least if point.known else None for point in found] if several else [],
            most=[point.most if point.known else None for point in found] if several else [],
            lost_at=[place for place in lost if place is not None],
            values=self.values,
            lost=self.lost,
        )

    def _place(self, point: _Point) -> float | None:
        return point.step if self._stepped else point.at

    def _joined(self) -> list[_Point]:
        """The points in order; joined are those of one place, and neighbours that together hold no more
        values than may be.
        """
        joined: list[_Point] = []
        for point in sorted(self._points, key=lambda point: self._place(point) or 0.0):
            if joined and (
                joined[-1].values + point.values <= self._most
                or self._place(joined[-1]) == self._place(point)
            ):
                joined[-1] = _join(joined[-1], point)
            else:
                joined.append(point)
        return joined


def _mean(point: _Point) -> float | None:
    """Of the values that are numbers, within the least and the most of them; null without any."""
    if not point.known:
        return None
    mean = point.total / point.known
    return (
        min(max(mean, point.least), point.most) if math.isfinite(mean) else point.least / 2 + point.most / 2
    )


def _join(one: _Point, other: _Point) -> _Point:
    least, most = one.least, one.most
    if other.known:
        least = min(least, other.least) if one.known else other.least
        most = max(most, other.most) if one.known else other.most
    return _Point(
        _first(one.step, other.step),
        _first(one.at, other.at),
        one.values + other.values,
        one.known + other.known,
        one.total + other.total,
        least,
        most,
        _first(one.lost_step, other.lost_step),
        _first(one.lost_at, other.lost_at),
    )


def _first(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
