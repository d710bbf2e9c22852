"""A run looked at again and again: each look reads what is new, and gives the figures as of now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from flightlog.analyze.report.summary import overhead
from flightlog.events import (
    CacheLookup,
    CostEstimate,
    Failure,
    ResourceSample,
    TaskCompleted,
    TaskEvent,
    WorkerEvent,
    WorkerLost,
    WorkerRemoved,
)
from flightlog.export.prometheus.figures import CACHE_RESULTS, OTHER, Gauges, RunFigures
from flightlog.export.prometheus.labels import Counts, Histograms, label
from flightlog.export.prometheus.lives import TaskLives
from flightlog.export.prometheus.sampled import gauges_of, newest
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.liveness import Observer, unix_time
from flightlog.store.read.following import Following
from flightlog.store.read.lines import AnyEvent
from flightlog.store.run import Run

TASK_NAMES = 10
"""Task names with a histogram of their own, a run."""
FAILURE_KINDS = 20
MAX_PLACES = 64
"""Nodes and GPUs that are shown, a run; those heard of last."""


class _Cost(Struct):
    total: float | None = None
    currency: str | None = None


class _Summary(Struct):
    cost: _Cost


class RunWatch:
    """One run. Not thread-safe. Memory: what tasks wait, run or failed, and a few numbers a worker.

    The first look reads the run's tasks, workers, samples, lookups, failures and costs; each later one only
    what was written since. Spans are counted from what their writers say.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lives, self._durations = TaskLives(), Histograms(TASK_NAMES)
        self._workers: dict[str, tuple[str, bool]] = {}
        self._workers_lost = 0
        self._failures: Counts[tuple[str, str]] = Counts(FAILURE_KINDS, (OTHER, OTHER))
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
        self._summed: _Summary | None = None

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
            cost=self._cost(over),
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

    def _cost(self, over: bool) -> dict[str, float]:
        """What the summary says of a run that is over; until then, the sum of what was estimated last."""
        if over:
            if self._summed is None:
                self._summed = read_document(self.path / layout.SUMMARY, _Summary).value
            cost = None if self._summed is None else self._summed.cost
            if cost is not None and cost.total is not None and cost.currency is not None:
                return {label(cost.currency): cost.total}
        sums: dict[str, float] = {}
        for _, estimate in self._estimates.values():
            if estimate.amount is not None:
                name = label(estimate.currency)
                sums[name] = sums.get(name, 0.0) + estimate.amount
        return sums

    def _gauges(self) -> tuple[Gauges, ...]:
        latest = sorted(self._samples.values(), key=lambda sample: sample.timestamp)[-MAX_PLACES:]
        return tuple(
            sorted(map(gauges_of, latest), key=lambda one: (one.gpu is not None, one.host, one.gpu or ""))
        )
