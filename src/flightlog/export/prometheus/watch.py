"""Follows a run: each `look` reads the new events and returns the current metrics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flightlog.analyze.cost.cost import CostSummary, run_cost
from flightlog.analyze.report.summary import overhead
from flightlog.events import (
    CacheLookup,
    CostEstimate,
    Failure,
    ResourceSample,
    TaskCancelled,
    TaskCompleted,
    TaskEnded,
    TaskEvent,
    TaskFailed,
    TaskStarted,
    WorkerEvent,
    WorkerLost,
    WorkerRemoved,
)
from flightlog.events.declarations import TaskRetried, TaskSubmitted, attempt_key
from flightlog.export.prometheus.families import (
    CACHE_RESULTS,
    GPU,
    NODE,
    OTHER,
    TASK_EVENTS,
    BoundedCounts,
    Histograms,
    HostGauges,
    RunFigures,
    label,
)
from flightlog.store import layout
from flightlog.store.liveness import Observer, unix_time
from flightlog.store.read.events import Following
from flightlog.store.read.lines import AnyEvent
from flightlog.store.run import Run

TASK_NAMES = 10
"""Task names with a histogram of their own, per run."""
FAILURE_KINDS = 20
MAX_PLACES = 64
"""Maximum of nodes and GPUs per run; those sampled last."""


class RunWatch:
    """One run. Not thread-safe. Memory: waiting, running and failed tasks, and a few numbers per worker.

    The first `look` reads the run's tasks, workers, samples, lookups, failures and costs; later ones only new
    lines. Spans are counted by their writers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lives, self._durations = TaskStates(), Histograms(TASK_NAMES)
        self._workers: dict[str, tuple[str, bool]] = {}
        self._workers_lost = 0
        self._failures: BoundedCounts[tuple[str, str]] = BoundedCounts(FAILURE_KINDS, (OTHER, OTHER))
        self._cache = dict.fromkeys(CACHE_RESULTS, 0)
        self._saved_s = 0.0
        self._estimates: dict[str, tuple[str, CostEstimate]] = {}
        self._samples: dict[tuple[str, str | None], ResourceSample] = {}
        takes: dict[str, Callable[[AnyEvent], None]] = {
            "tasks": self._take_task,
            "workers": self._take_worker,
            "resources": self._take_sample,
            "failures": self._take_failure,
            "cache": self._take_lookup,
            "cost": self._take_cost,
        }
        self._streams = [(Following(path, stream), take) for stream, take in takes.items()]
        self._to_its_end = False
        self._final: CostSummary | None = None

    def look(self, observer: Observer) -> RunFigures:
        """The figures as of now. Raises `OSError` where the folder cannot be read at all."""
        run = Run(self.path, observer=observer)
        status = run.status
        last = status != "running" and not self._to_its_end
        for following, take in self._streams:
            for event in following.new(last=last):
                take(event)
        self._to_its_end = self._to_its_end or last
        return self._figures(run, status)

    def _figures(self, run: Run, status: str) -> RunFigures:
        info, writers = run.info, run.writers()
        over = status != "running"
        ended = unix_time(info.end_time or info.heartbeat) if over else None
        started = unix_time(info.start_time)
        lived = None if started is None or ended is None else max(0.0, ended - started)
        return RunFigures(
            run_id=label(run.run_id),
            project=label(info.project),
            status=status,
            target=info.target,
            provider=info.provider,
            host=info.host,
            version=info.flightlog_version,
            started_s=started,
            ended_s=ended,
            duration_s=lived if over and info.duration_s is None else info.duration_s,
            heard_s=unix_time(info.heartbeat),
            task_events=dict(self._lives.events),
            tasks=self._lives.states(),
            durations=self._durations.choose(),
            workers=0 if over else sum(up for _, up in self._workers.values()),
            workers_seen=len(self._workers),
            workers_lost=self._workers_lost,
            failures=dict(self._failures.counts),
            cache=dict(self._cache),
            saved_s=self._saved_s,
            cost=self._cost(run, over),
            gauges=self._gauges(),
            lines=sum(sum(writer.lines.values()) for writer in writers),
            lost=sum(sum(writer.lost.values()) for writer in writers),
            recorder_cpu_s=overhead(writers, None).background_cpu_s,
            problems=len(run.problems) + sum(following.skipped for following, _ in self._streams),
        )

    def _take_task(self, event: AnyEvent) -> None:
        if isinstance(event, TaskEvent):
            self._lives.add(event)
            if isinstance(event, TaskCompleted) and event.duration_s is not None:
                self._durations.add(event.task, event.duration_s)

    def _take_worker(self, event: AnyEvent) -> None:
        if isinstance(event, WorkerEvent):
            self._workers_lost += isinstance(event, WorkerLost)
            known = self._workers.get(event.worker)
            if known is None or event.timestamp >= known[0]:
                self._workers[event.worker] = (
                    event.timestamp,
                    not isinstance(event, WorkerLost | WorkerRemoved),
                )

    def _take_sample(self, event: AnyEvent) -> None:
        if isinstance(event, ResourceSample) and event.scope in {"node", "gpu"}:
            newest(self._samples, event)

    def _take_failure(self, event: AnyEvent) -> None:
        if isinstance(event, Failure):
            self._failures.add((event.scope, label(event.error_type or "unknown")))

    def _take_lookup(self, event: AnyEvent) -> None:
        if isinstance(event, CacheLookup):
            self._cache[event.result] += 1
            if event.result == "hit" and event.saved_s is not None and event.saved_s > 0:
                self._saved_s += event.saved_s

    def _take_cost(self, event: AnyEvent) -> None:
        if isinstance(event, CostEstimate):
            known = self._estimates.get(event.item)
            if known is None or event.timestamp >= known[0]:
                self._estimates[event.item] = (event.timestamp, event)

    def _cost(self, run: Run, over: bool) -> dict[str, float]:
        """What the report says of a run that is over and not large; otherwise the sum of the latest
        estimates.
        """
        if over:
            if self._final is None and (self.path / layout.SUMMARY).exists():
                self._final = run_cost(run)
            cost = self._final
            if cost is not None and cost.total is not None and cost.currency is not None:
                return {label(cost.currency): cost.total}
        sums: dict[str, float] = {}
        for _, estimate in self._estimates.values():
            if estimate.amount is not None:
                name = label(estimate.currency)
                sums[name] = sums.get(name, 0.0) + estimate.amount
        return sums

    def _gauges(self) -> tuple[HostGauges, ...]:
        latest = sorted(self._samples.values(), key=lambda sample: sample.timestamp)[-MAX_PLACES:]
        return tuple(
            sorted(map(gauges_of, latest), key=lambda one: (one.gpu is not None, one.host, one.gpu or ""))
        )


class TaskStates:
    """Counts task events, and pairs starts with ends and failures with retries.

    Holds what has no partner yet: waiting and running tasks, and failures without a retry. Counts in `events`
    only grow; `states` counts as the summary does: a failure counts when it is final.
    """

    def __init__(self) -> None:
        self.events = dict.fromkeys(TASK_EVENTS, 0)
        self._waiting: set[str] = set()
        self._begun: set[str] = set()
        self._running: set[str] = set()
        self._ended: set[str] = set()
        self._failed: set[str] = set()
        self._retried: set[str] = set()

    def add(self, event: TaskEvent) -> None:
        """Take one event; one of another kind changes nothing."""
        if isinstance(event, TaskEnded):
            self._end(event)
        elif isinstance(event, TaskStarted):
            self.events["started"] += 1
            self._begin(event, self._ended, self._running)
        elif isinstance(event, TaskSubmitted):
            self.events["submitted"] += 1
            _settle(event.task_id, self._begun, self._waiting)
        elif isinstance(event, TaskRetried):
            self.events["retried"] += 1
            key = attempt_key(event)
            self._running.discard(key)
            _settle(key, self._failed, self._retried)

    def states(self) -> dict[str, int]:
        """How many tasks are where."""
        return {
            "pending": len(self._waiting),
            "running": len(self._running),
            "completed": self.events["completed"],
            "failed": len(self._failed),
            "cancelled": self.events["cancelled"],
        }

    def _end(self, event: TaskEnded) -> None:
        if isinstance(event, TaskFailed):
            self.events["failed"] += 1
            _settle(attempt_key(event), self._retried, self._failed)
        elif isinstance(event, TaskCompleted):
            self.events["completed"] += 1
        elif isinstance(event, TaskCancelled):
            self.events["cancelled"] += 1
        self._begin(event, self._running, self._ended)

    def _begin(self, event: TaskEvent, partners: set[str], alone: set[str]) -> None:
        """Pair a start with its end; the first of the two shows that the task is no longer waiting."""
        key = attempt_key(event)
        if key in partners:
            partners.remove(key)
            return
        if key not in self._retried or alone is self._ended:
            alone.add(key)
        _settle(event.task_id, self._waiting, self._begun)


def _settle(key: str, partners: set[str], alone: set[str]) -> None:
    if key in partners:
        partners.remove(key)
    else:
        alone.add(key)


def newest(samples: dict[tuple[str, str | None], ResourceSample], sample: ResourceSample) -> None:
    """Keep the newest sample of each node or GPU; samples without a host are ignored."""
    if sample.host is None:
        return
    key = (sample.host, _gpu(sample))
    known = samples.get(key)
    if known is None or sample.timestamp >= known.timestamp:
        samples[key] = sample


def gauges_of(sample: ResourceSample) -> HostGauges:
    """A sample as gauges; unknown values are left out."""
    gpu = _gpu(sample)
    return HostGauges(
        host=label(sample.host),
        gpu=gpu,
        gpu_name=None if sample.gpu_name is None else label(sample.gpu_name),
        values={
            name: value * (0.01 if name.endswith("_ratio") else 1.0)
            for name, (field, _) in (NODE if gpu is None else GPU).items()
            if (value := getattr(sample, field)) is not None
        },
    )


def _gpu(sample: ResourceSample) -> str | None:
    if sample.scope != "gpu":
        return None
    index = "unknown" if sample.gpu_index is None else str(sample.gpu_index)
    if sample.gpu_mig is not None:
        return label(f"{index}/{sample.gpu_mig}")
    return index if sample.gpu_index is not None or sample.gpu_uuid is None else label(sample.gpu_uuid)
