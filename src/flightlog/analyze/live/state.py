"""What was read of a run so far, the state it comes to, and its cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from flightlog.analyze.charts.results import Chart, ChartSeries
from flightlog.analyze.cost.cost import CostTally, Used
from flightlog.analyze.cost.rates import Sizes
from flightlog.analyze.live.log import LiveFailures, LiveLog
from flightlog.analyze.live.metrics import LiveMetrics
from flightlog.analyze.live.results import NAME, Doing, Ended, Progress, args_text, cut
from flightlog.analyze.live.spans import LiveSpans, usual_of
from flightlog.analyze.live.tasks import Done, LiveAttempt, LiveTasks
from flightlog.analyze.live.workers import LiveMachines, LiveWorkers, Window
from flightlog.analyze.predict.eta import NAMES, Eta, Known, from_earlier, remaining
from flightlog.analyze.report.attempts import attempt_key
from flightlog.analyze.report.in_flight import ENOUGH, FAR
from flightlog.core.time import SECOND
from flightlog.events import (
    CacheLookup,
    Event,
    Failure,
    JobStarted,
    Metric,
    ResourceSample,
    TaskCancelled,
    TaskCompleted,
    TaskEnded,
    TaskFailed,
    TaskRetried,
    WorkerEvent,
)
from flightlog.events.base import Json
from flightlog.events.devices import DeviceMemory
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.read.lines import AnyEvent

if TYPE_CHECKING:
    from flightlog.core.stats import Distribution
    from flightlog.store.read.lines import AnyEvent

DOING = 100
RECENT = 50
RATE = 60 * SECOND
AT_ONCE = 10 * SECOND
"""Over so long it is reckoned how many tasks run at once. At a single moment a worker may have none, between
one task and the next, or two, where the end of the one is not written yet.
"""


class LiveTotals:
    """Takes events of all streams in any order. `history` has durations of earlier runs by name of task."""

    def __init__(self, run: Path, history: Mapping[str, Distribution] | None = None) -> None:
        self.workers, self.failures, self.log = LiveWorkers(), LiveFailures(), LiveLog()
        self.machines, self.spans, self.metrics, self.cost = (
            LiveMachines(),
            LiveSpans(),
            LiveMetrics(),
            LiveCost(run),
        )
        self.tasks = LiveTasks(self.workers.started, self.workers.ended, self._trouble)
        self.lookups = {"hit": 0, "miss": 0, "bypass": 0}
        self._history = history or {}
        self._takes: dict[str, Callable[[AnyEvent], None]] = {
            "tasks": self.tasks.add,
            "workers": self._worker,
            "resources": self._sample,
            "cache": self._lookup,
            "failures": self._failure,
            "cost": self.cost.add,
            "spans": self.spans.add,
            "metrics": self._metric,
            "devices": self._device,
            "jobs": self._job,
        }

    def taker(self, stream: str) -> Callable[[AnyEvent], None]:
        """What takes the events of a stream; those that no declaration fits are passed over."""
        return self._takes.get(stream, self.log.add)

    def set_limit(self, limit: int) -> None:
        """A moment near now: what claims to be later does not push the past out of the charts."""
        tasks = self.tasks
        for level in (tasks.running_level, tasks.waiting_level, tasks.ended_level, self.workers.up_level):
            level.limit = limit
        self.machines.set_limit(limit)

    def _trouble(self, event: TaskFailed | TaskRetried | TaskCancelled) -> None:
        self.log.add(event)
        if isinstance(event, TaskFailed):
            self.failures.failed(event)

    def _worker(self, event: AnyEvent) -> None:
        if isinstance(event, WorkerEvent):
            self.workers.add(event)
            self.log.add(event)

    def _sample(self, event: AnyEvent) -> None:
        if isinstance(event, ResourceSample):
            if event.scope == "worker":
                self.workers.sampled(event)
            else:
                self.machines.add(event)

    def _lookup(self, event: AnyEvent) -> None:
        if isinstance(event, CacheLookup):
            self.lookups[event.result] += 1

    def _failure(self, event: AnyEvent) -> None:
        if isinstance(event, Failure):
            self.failures.add(event)
            self.log.add(event)

    def _metric(self, event: AnyEvent) -> None:
        if isinstance(event, Metric):
            self.metrics.add(event)

    def _device(self, event: AnyEvent) -> None:
        if isinstance(event, DeviceMemory):
            self.machines.tracked(event)
            self.log.add(event)

    def _job(self, event: AnyEvent) -> None:
        if isinstance(event, JobStarted):
            self.cost.job(event)
        self.log.add(event)

    def progress(
        self, started: int | None, until: int | None, *, over: bool, partly: bool = False
    ) -> Progress:
        """How far the tasks are; how fast, and how long it still takes, while the run goes on.

        Where the run was read `partly` there are counts alone: shares and times would be those of another
        run.
        """
        names = self.tasks.names.all()
        submitted, completed, failed, cancelled, running, retried = (
            sum(getattr(name, field) for name in names)
            for field in ("submitted", "completed", "failed", "cancelled", "running", "retried")
        )
        ended = completed + failed + cancelled
        all_known = max(submitted, ended + running)
        eta = None if over or partly or until is None else self._eta(until)
        return Progress(
            submitted=submitted,
            completed=completed,
            failed=failed,
            cancelled=cancelled,
            running=running,
            waiting=self.tasks.waiting,
            retried=retried,
            done=ended / all_known if all_known and not partly else None,
            per_s=None if over or partly else self._per_s(started, until),
            left_s=None if eta is None else eta.expected,
            left_low_s=None if eta is None else eta.low,
            left_high_s=None if eta is None else eta.high,
            left_at_least=eta is not None and eta.at_least,
        )

    def _per_s(self, started: int | None, until: int | None) -> float | None:
        if until is None or not self.tasks.attempts:
            return None
        since = until - RATE if started is None else max(until - RATE, started)
        if until - since < SECOND:
            return None
        return self.tasks.ended_level.changed(since, until) * SECOND / (until - since)

    def _eta(self, until: int) -> Eta | None:
        going = [one for one in self.tasks.names.all() if one.size > one.ended]
        going.sort(key=lambda one: ((one.ended - one.size) * (one.durations.mean or 0.0), one.name))
        left = {one.name: one.size - one.ended for one in going}
        known: dict[str, Known] = {}
        for place, one in enumerate(going):
            earlier = self._history.get(one.name)
            found = one.known(until) if place < NAMES else one.known_roughly()
            found = found or (None if earlier is None else from_earlier(earlier))
            if found is not None:
                known[one.name] = found
        running = self.tasks.running()
        since: dict[str, list[float]] = {}
        for attempt in running:
            if attempt.at is not None:
                since.setdefault(attempt.tally.name, []).append(max(0, until - attempt.at) / SECOND)
        at_once = self._at_once(until) or len(running)
        return remaining(left, known, since, at_once, at_least=len(known) < len(left))

    def _at_once(self, until: int) -> float:
        """How many tasks have run at once of late, on average; 0 where none was seen to."""
        first = self.tasks.first
        if first is None or first >= until:
            return 0.0
        ongoing = [one.at for one in self.tasks.running() if one.at is not None]
        _, found = self.tasks.running_level.points(max(first, until - AT_ONCE), until, ongoing)
        return sum(value or 0.0 for value in found) / len(found)

    def doing(self, until: int | None) -> list[Doing]:
        """What runs, what may be stuck first, then the longest."""
        oldest = sorted(
            self.tasks.running(),
            key=lambda one: (one.event.timestamp, one.event.task, one.event.task_id, one.event.attempt),
        )
        found = [self._doing(one, until) for one in oldest[:DOING]]
        return sorted(found, key=lambda one: (not one.stuck, -(one.elapsed_s or 0.0), one.since, one.task))

    def _doing(self, one: LiveAttempt, until: int | None) -> Doing:
        event = one.event
        elapsed = None if one.at is None or until is None else max(0, until - one.at) / SECOND
        usual, stuck = usual_of(one.tally.durations, elapsed)
        if usual is None and (earlier := self._history.get(event.task)) is not None:
            usual, stuck = _by_history(earlier, elapsed)
        return Doing(
            task=cut(event.task, NAME),
            task_id=cut(event.task_id, NAME),
            attempt=event.attempt,
            args=args_text(self.tasks.args_of(one)),
            worker=None if event.worker is None else cut(event.worker, NAME),
            since=event.timestamp,
            elapsed_s=elapsed,
            usual_s=usual,
            stuck=stuck,
        )

    def slowest(self) -> list[Ended]:
        """Completed tasks, the slowest first."""
        return [_ended(event, "completed") for event in self.tasks.slowest.items()]

    def retried(self) -> dict[str, str]:
        """Attempts that were tried again, the last of them, by key, with their arguments where they are
        known.
        """
        found = dict.fromkeys(self.tasks.retries.items(), "")
        for done in self.tasks.last.items():
            key = attempt_key(done.event)
            if key in found:
                found[key] = args_text(self.tasks.args_of(done))
        return found

    def recent(self, retried: Mapping[str, str]) -> list[Ended]:
        """Attempts that ended, the last first."""
        return [_recent(done, retried, self.tasks.args_of(done)) for done in self.tasks.last.items()[:RECENT]]

    def concurrency(self, window: Window) -> Chart | None:
        """Tasks that run and wait, and workers that are up."""
        text, since, until = window
        tasks = self.tasks
        if not tasks.attempts and not tasks.starts and not tasks.waiting and not len(self.workers):
            return None
        ongoing = [one.at for one in tasks.running() if one.at is not None]
        lines = [
            ("running", tasks.running_level.points(since, until, ongoing)),
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


_STATES: dict[type[TaskEnded], str] = {
    TaskCompleted: "completed",
    TaskFailed: "failed",
    TaskCancelled: "cancelled",
}


def _ended(event: TaskEnded, state: str) -> Ended:
    return Ended(
        task=cut(event.task, NAME),
        task_id=cut(event.task_id, NAME),
        attempt=event.attempt,
        args=args_text(event.args),
        worker=None if event.worker is None else cut(event.worker, NAME),
        state=state,
        at=event.timestamp,
        duration_s=event.duration_s,
        queue_s=event.queue_s,
    )


def _recent(done: Done, retried: Mapping[str, str], args: Json | None) -> Ended:
    event = done.event
    if isinstance(event, TaskEnded):
        return _ended(event, "retried" if attempt_key(event) in retried else _STATES[type(event)])
    known = done.began is not None and done.at is not None
    return Ended(
        task=cut(event.task, NAME),
        task_id=cut(event.task_id, NAME),
        attempt=event.attempt,
        args=args_text(args),
        worker=None if event.worker is None else cut(event.worker, NAME),
        state="retried",
        at=event.timestamp if done.retry is None else done.retry.timestamp,
        queue_s=event.queue_s,
        duration_s=max(0, (done.at or 0) - (done.began or 0)) / SECOND if known else None,
    )


def _by_history(earlier: Distribution, elapsed_s: float | None) -> tuple[float | None, bool | None]:
    if elapsed_s is None or earlier.count < ENOUGH or earlier.p95 is None or earlier.max is None:
        return None, None
    return earlier.p95, elapsed_s > max(FAR * earlier.p95, earlier.max)


class _FinalCost(Struct):
    total: float | None = None
    currency: str | None = None


class _CostSummary(Struct):
    cost: _FinalCost


class LiveCost:
    """By the run's rates and the time its workers have lived; of a run that is over, what its summary
    says.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._tally = CostTally()
        self._told = False
        self._jobs: dict[str, Sizes] = {}

    def add(self, event: AnyEvent) -> None:
        """An event of the stream `cost`."""
        self._told = True
        if isinstance(event, Event):
            self._tally.add(event)

    def job(self, event: JobStarted) -> None:
        """A worker lives in a batch job, which says what it was given."""
        if event.worker is not None:
            said = Sizes(cpus=event.cpus, memory_bytes=event.memory_bytes, gpus=event.gpus)
            self._jobs[event.worker] = self._jobs.get(event.worker, Sizes()).else_(said)

    def total(
        self,
        workers: LiveWorkers,
        provider: str | None,
        started: int | None,
        until: int | None,
        *,
        over: bool,
    ) -> tuple[float | None, str | None]:
        """The sum and its currency; null where it is not known."""
        if over:
            summed = read_document(self._run / layout.SUMMARY, _CostSummary).value
            if summed is not None:
                return summed.cost.total, summed.cost.currency
        used = Used(ended=over, provider=provider, told=self._told)
        if (
            self._tally.rates is not None
        ):  # else nothing is reckoned by the hour, and thousands of workers cost time here
            used = self._used(workers, used, started, until)
        said = self._tally.summary(used)
        return said.total, said.currency

    def _used(self, workers: LiveWorkers, used: Used, started: int | None, until: int | None) -> Used:
        given = workers.lives.given()
        for name, job in self._jobs.items():
            given[name] = given.get(name, Sizes()).else_(job)
        return msgspec.structs.replace(
            used,
            lifetimes=workers.lives.lifetimes(workers.bounds(), until),
            components=workers.lives.components(),
            given=given,
            wall_ns=None if started is None or until is None else max(0, until - started),
        )
