"""Workers and batch jobs: how many, how long they were up, how they ended, and how much of it was used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.analyze.tallies import copied
from flightlog.core.intervals import length, peak, union
from flightlog.core.stats import Distribution, distribution
from flightlog.core.time import moment, nanoseconds, seconds
from flightlog.events import (
    Event,
    JobAccounted,
    JobStarted,
    WorkerEvent,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.events.rates import Sizes

if TYPE_CHECKING:
    from flightlog.analyze.report.tasks import WorkerLoad
    from flightlog.store.run import Run

LISTED_WORKERS = 1000
"""How many workers a summary lists; `count` is of all."""


class Worker(Struct, frozen=True, kw_only=True):
    """One worker."""

    host: str | None
    tasks: int
    """Attempts it executed, the one in flight included."""
    busy_s: float
    uptime_s: float
    utilization: float | None
    lost: str | None
    """Why it was lost, where it was."""


class WorkerSummary(Struct, frozen=True, kw_only=True):
    """All workers.

    A worker is up from `worker_ready` (or `worker_launched`) to `worker_lost` or `worker_removed`, else to
    the end of the run. One that only task events name is up from its first start to its last end.
    `utilization` is the time workers were held by attempts, failed ones included, over their time up: 1 at
    most. `efficiency` is the execution time of completed tasks over the workers' time up; workers that
    execute several tasks at once may pass 1. Both are null where no worker is known.
    """

    count: int
    peak: int
    """Most workers up at once."""
    peak_busy: int
    """Most workers busy at once."""
    lost: int
    uptime_s: float
    busy_s: float
    utilization: float | None
    efficiency: float | None
    by_worker: dict[str, Worker]


class WorkerTally:
    """Takes the events of the stream `workers`, in any order."""

    def __init__(self) -> None:
        self._lives: dict[str, list[tuple[int, int, WorkerEvent]]] = {}

    def add(self, event: Event) -> None:
        """Take one event; those without a time are passed over."""
        if isinstance(event, WorkerEvent) and (at := moment(event.timestamp)) is not None:
            self._lives.setdefault(event.worker, []).append((at, _rank(event), event))

    def summary(self, work: WorkerLoad, until: int | None) -> WorkerSummary:
        """The result, from the lives of workers and from what tasks say of them."""
        ups = self.uptimes(work.bounds(), until)
        busies, at_once = work.busy(ups)
        up, busy = sum(map(length, ups.values())), sum(busies.values())
        return WorkerSummary(
            count=len(ups),
            peak=peak(chain.from_iterable(ups.values())),
            peak_busy=at_once,
            lost=sum(self._lost(name) is not None for name in self._lives),
            uptime_s=seconds(up),
            busy_s=seconds(busy),
            utilization=busy / up if up else None,
            efficiency=work.completed_s / seconds(up) if up else None,
            by_worker={
                name: Worker(
                    host=self._host(name),
                    tasks=work.attempts.get(name, 0),
                    busy_s=seconds(busies[name]),
                    uptime_s=seconds(length(ups[name])),
                    utilization=_share(busies[name], length(ups[name])),
                    lost=self._lost(name),
                )
                for name in list(ups)[:LISTED_WORKERS]
            },
        )

    def uptimes(
        self, worked: Mapping[str, tuple[int, int] | None], until: int | None
    ) -> dict[str, list[tuple[int, int]]]:
        """When each worker was up, in order of their names; `worked` has the first start and last end of its
        tasks.
        """
        ups: dict[str, list[tuple[int, int]]] = {}
        for name in sorted({*self._lives, *worked}):
            life, bounds = self._life(name), worked.get(name)
            ups[name] = _uptime(life, bounds, until) if life else [bounds] if bounds else []
        return ups

    def launches(self) -> dict[str, list[tuple[int, int | None]]]:
        """When each worker was launched and when it was ready, where both are known; None if it never was."""
        return {name: _launches(self._life(name)) for name in sorted(self._lives)}

    def components(self) -> dict[str, str | None]:
        """The component that each worker serves, where its events say."""
        return {
            name: min((event.component for _, _, event in life if event.component is not None), default=None)
            for name, life in sorted(self._lives.items())
        }

    def lifetimes(self, worked: Mapping[str, tuple[int, int] | None], until: int | None) -> dict[str, int]:
        """For how many nanoseconds each worker lived, from launch to its end or `until`; of those with events
        alone.
        """
        launches = self.launches()
        return {
            name: length(union([*ups, *((since, to) for since, to in launches[name] if to is not None)]))
            for name, ups in self.uptimes(worked, until).items()
            if name in self._lives
        }

    def given(self) -> dict[str, Sizes]:
        """What each worker was given when it was launched, as far as its events say."""
        found: dict[str, Sizes] = {}
        for name, life in sorted(self._lives.items()):
            launched = [event for _, _, event in life if isinstance(event, WorkerLaunched)]
            for event in sorted(launched, key=lambda event: (event.timestamp, event.seq)):
                said = Sizes(cpus=event.cpus, memory_bytes=event.memory_bytes, gpus=event.gpus)
                found[name] = said.else_(found.get(name, Sizes()))
        return found

    def hosts(self) -> dict[str, str | None]:
        """Where each worker is, as far as its events say."""
        return {name: self._host(name) for name in self._lives}

    def losses(self) -> list[tuple[int, str, str]]:
        """When which worker was lost, and why, in order of time."""
        return sorted(
            (at, name, event.reason or event.signal or "unknown")
            for name, life in self._lives.items()
            for at, _, event in life
            if isinstance(event, WorkerLost)
        )

    def _life(self, name: str) -> list[tuple[int, int, WorkerEvent]]:
        return sorted(self._lives.get(name, ()), key=lambda step: (step[0], step[1], step[2].seq))

    def _host(self, name: str) -> str | None:
        hosts = {event.host for _, _, event in self._lives.get(name, ()) if event.host is not None}
        return min(hosts) if hosts else None

    def _lost(self, name: str) -> str | None:
        reasons = [
            (at, event.reason or event.signal or "unknown")
            for at, _, event in self._lives.get(name, ())
            if isinstance(event, WorkerLost)
        ]
        return max(reasons)[1] if reasons else None


def _rank(event: WorkerEvent) -> int:
    """The order of steps within one microsecond."""
    return (WorkerLaunched, WorkerReady, WorkerLost, WorkerRemoved).index(type(event))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _uptime(
    life: list[tuple[int, int, WorkerEvent]], worked: tuple[int, int] | None, until: int | None
) -> list[tuple[int, int]]:
    """The times one worker was up, from its steps in order: it may have come back under its old name."""
    spans: list[tuple[int, int]] = []
    since: int | None = None
    for at, _, event in life:
        if isinstance(event, (WorkerLaunched, WorkerReady)):
            if since is None or isinstance(event, WorkerReady):
                since = at
        else:
            if since is None and not spans:  # its beginning was not recorded
                told = event.uptime_s if isinstance(event, WorkerRemoved) else None
                if told is not None:
                    since = at - nanoseconds(told)
                elif worked is not None:
                    since = worked[0]
            if since is not None:
                spans.append((since, max(since, at)))
            since = None
    if since is not None and until is not None:
        spans.append((since, max(since, until)))
    return union(spans)


def _launches(life: list[tuple[int, int, WorkerEvent]]) -> list[tuple[int, int | None]]:
    """Launches of one worker, from its steps in order, each with the moment it was ready."""
    found: list[tuple[int, int | None]] = []
    launched: int | None = None
    for at, _, event in life:
        if isinstance(event, WorkerLaunched):
            launched = at if launched is None else launched
        elif isinstance(event, WorkerReady):
            if launched is None and event.launch_s is not None:
                launched = at - nanoseconds(event.launch_s)
            if launched is not None:
                found.append((launched, at))
            launched = None
        else:
            found += [(launched, None)] if launched is not None else []
            launched = None
    return found + ([(launched, None)] if launched is not None else [])


LISTED_JOBS = 100
"""How many jobs are listed; counts are of all."""


class JobRow(Struct, frozen=True, kw_only=True):
    """One attempt of a job, as accounting has it."""

    job_id: str
    attempt: int
    state: str
    reason: str | None
    queue_s: float | None
    elapsed_s: float | None
    walltime_s: float | None
    cpu_s: float | None
    cpus: float | None
    max_rss_bytes: int | None
    memory_bytes: int | None


class JobSummary(Struct, frozen=True, kw_only=True):
    """All jobs of a run. One without accounting is `unaccounted`: how it ended, the batch system has not been
    asked.
    """

    scheduler: str
    count: int
    states: dict[str, int]
    """Attempts by how they ended, of jobs whose accounting is there."""
    queue_s: Distribution
    """From submission to start, of those."""
    unaccounted: list[str]
    """Arrays and jobs without accounting, the first `LISTED_JOBS`; of an array its number alone."""
    jobs: list[JobRow]
    """Those that did not complete first, then those that used most of their memory."""


def job_summary(run: Run) -> JobSummary | None:
    """The jobs of a run; None where none is known."""
    started: dict[str, JobStarted] = {}
    accounted: list[JobAccounted] = []
    for event in run.events("jobs"):
        if isinstance(event, JobStarted):
            started.setdefault(event.raw_job_id or event.job_id, event)
        elif isinstance(event, JobAccounted):
            accounted.append(event)
    if not started and not accounted:
        return None
    known = {job.raw_job_id or job.job_id for job in accounted}
    unknown = [
        job.array_job_id or job.job_id for raw_id, job in sorted(started.items()) if raw_id not in known
    ]
    rows = sorted(accounted, key=_order)[:LISTED_JOBS]
    return JobSummary(
        scheduler=next(job.scheduler for job in (*accounted, *started.values())),
        count=len(started.keys() | known),
        states=dict(sorted(Counter(job.state for job in accounted).items())),
        queue_s=distribution(job.queue_s for job in accounted if job.queue_s is not None),
        unaccounted=list(dict.fromkeys(unknown))[:LISTED_JOBS],
        jobs=[copied(JobRow, job) for job in rows],
    )


def _order(job: JobAccounted) -> tuple[bool, float, str, int]:
    used = (job.max_rss_bytes or 0) / job.memory_bytes if job.memory_bytes else 0.0
    return job.state == "COMPLETED", -used, job.job_id, job.attempt
