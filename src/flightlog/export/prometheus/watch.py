"""Follows a run: each `look` reads the new events and returns the current metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from flightlog.analyze.live.follow import Streams
from flightlog.analyze.live.state import LiveTotals
from flightlog.analyze.report.summary import overhead
from flightlog.core.time import SECOND, moment
from flightlog.events import (
    CacheLookup,
    Failure,
    ResourceSample,
    TaskCompleted,
    TaskEvent,
    WorkerLost,
    kind_of,
)
from flightlog.export.prometheus.families import (
    GPU,
    NODE,
    OTHER,
    TASK_EVENTS,
    TASK_STATES,
    BoundedCounts,
    Histograms,
    HostGauges,
    RunFigures,
    label,
)
from flightlog.store.liveness import Observer, unix_time
from flightlog.store.read.lines import AnyEvent
from flightlog.store.run import Run

TASK_NAMES = 10
"""Task names with a histogram of their own, per run."""
FAILURE_KINDS = 20
MAX_PLACES = 64
"""Maximum of nodes and GPUs per run; those sampled last."""
STREAMS = ("tasks", "workers", "resources", "failures", "cache", "cost", "jobs")


class RunWatch:
    """One run. Not thread-safe. Memory: as the live views (`LiveTotals`), whose counts these are.

    The first `look` reads the run's tasks, workers, samples, lookups, failures and costs; later ones only new
    lines. Spans are counted by their writers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._streams, self._totals = Streams(path, STREAMS), LiveTotals(path)
        self._durations = Histograms(TASK_NAMES)
        self._events: Counter[str] = Counter()
        self._failures: BoundedCounts[tuple[str, str]] = BoundedCounts(FAILURE_KINDS, (OTHER, OTHER))
        self._saved_s = 0.0

    def look(self, observer: Observer) -> RunFigures:
        """The figures as of now. Raises `OSError` where the folder cannot be read at all."""
        run = Run(self.path, observer=observer)
        status = run.status
        self._streams.new(self._taker, over=status != "running")
        return self._figures(run, status, observer.now)

    def _taker(self, stream: str) -> Callable[[AnyEvent], None]:
        count, take = self._totals.taker(stream), self._take

        def both(event: AnyEvent) -> None:
            count(event)
            take(event)

        return both if stream in {"tasks", "failures", "cache"} else count

    def _take(self, event: AnyEvent) -> None:
        """What is counted for these metrics alone."""
        if isinstance(event, TaskEvent):
            self._events[kind_of(event)] += 1
            if isinstance(event, TaskCompleted) and event.duration_s is not None:
                self._durations.add(event.task, event.duration_s)
        elif isinstance(event, Failure):
            self._failures.add((event.scope, label(event.error_type or "unknown")))
        elif isinstance(event, CacheLookup) and event.result == "hit" and event.saved_s is not None:
            self._saved_s += max(0.0, event.saved_s)

    def _figures(self, run: Run, status: str, now: float) -> RunFigures:
        info, writers, found = run.info, run.writers(), self._totals
        over = status != "running"
        ended = unix_time(info.end_time or info.heartbeat) if over else None
        started = unix_time(info.start_time)
        lived = None if started is None or ended is None else max(0.0, ended - started)
        tasks = {**found.tasks.names.totals(), "pending": found.tasks.waiting}
        until = round(now * SECOND) if ended is None else round(ended * SECOND)
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
            task_events={event: self._events[f"task_{event}"] for event in TASK_EVENTS},
            tasks={state: tasks[state] for state in TASK_STATES},
            durations=self._durations.choose(),
            workers=0 if over else found.workers.up,
            workers_seen=len(found.workers),
            workers_lost=sum(isinstance(event, WorkerLost) for event in found.workers.events),
            failures=dict(self._failures.counts),
            cache=dict(found.lookups),
            saved_s=self._saved_s,
            cost=self._cost(run, until, over),
            gauges=self._gauges(),
            lines=sum(sum(writer.lines.values()) for writer in writers),
            lost=sum(sum(writer.lost.values()) for writer in writers),
            recorder_cpu_s=overhead(writers, None).background_cpu_s,
            problems=len(run.problems) + self._streams.skipped,
        )

    def _cost(self, run: Run, until: int, over: bool) -> dict[str, float]:
        """As the live views have it; where there are several currencies, the sum in each."""
        workers, started = self._totals.workers, moment(run.info.start_time)
        cost = self._totals.cost.summary(workers, run.info.provider, started, until, over=over)
        if cost.total is not None:
            return {} if cost.currency is None else {label(cost.currency): cost.total}
        sums: dict[str, float] = {}
        for item in cost.by_item.values():
            if item.amount is not None:
                sums[label(item.currency)] = sums.get(label(item.currency), 0.0) + item.amount
        return sums

    def _gauges(self) -> tuple[HostGauges, ...]:
        known = [sample for sample in self._totals.machines.samples() if sample.host is not None]
        latest = sorted(known, key=lambda sample: sample.timestamp)[-MAX_PLACES:]
        return tuple(
            sorted(map(gauges_of, latest), key=lambda one: (one.gpu is not None, one.host, one.gpu or ""))
        )


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
