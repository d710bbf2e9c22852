"""The workers of a run: who is there, and what each does."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.live.levels import Level
from flightlog.analyze.live.results import WorkerNow
from flightlog.analyze.live.tasks import Attempt, Done
from flightlog.analyze.live.words import NAME, cut
from flightlog.analyze.moments import SECOND, moment
from flightlog.analyze.workers import WorkerTally
from flightlog.events import (
    ResourceSample,
    TaskFailed,
    TaskStarted,
    WorkerEvent,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
)

LISTED = 200
_ORDER = (WorkerLaunched, WorkerReady, WorkerLost, WorkerRemoved)
_BUSY, _IDLE, _STARTING, _LOST, _GONE = range(5)


class OneWorker:
    """What is known of one worker."""

    __slots__ = ("bounds", "ended", "failed", "host", "sample", "seen", "step")

    def __init__(self) -> None:
        self.host: str | None = None
        self.ended = self.failed = 0
        self.step: tuple[str, int, int, type[WorkerEvent]] | None = None
        self.sample: ResourceSample | None = None
        self.seen: int | None = None
        self.bounds: tuple[int, int] | None = None

    def heard(self, at: int | None) -> None:
        """It showed a sign of life."""
        if at is not None and (self.seen is None or at > self.seen):
            self.seen = at

    def worked(self, began: int | None, at: int | None) -> None:
        """It executed something from `began` to `at`."""
        self.heard(at)
        if began is not None and at is not None:
            known = self.bounds
            self.bounds = (began, at) if known is None else (min(known[0], began), max(known[1], at))


class LiveWorkers:
    """Takes what tasks, workers and samples say, in any order. Memory grows with the workers there ever
    were.
    """

    def __init__(self) -> None:
        self.lives = WorkerTally()
        self.up_level = Level()
        self._workers: dict[str, OneWorker] = {}
        self._samples: dict[str, ResourceSample] = {}

    def __len__(self) -> int:
        return len(self._workers)

    def of(self, name: str) -> OneWorker:
        """What is known of a worker."""
        found = self._workers.get(name)
        if found is None:
            found = self._workers[name] = OneWorker()
        return found

    def add(self, event: WorkerEvent) -> None:
        """A step in the life of a worker."""
        worker = self.of(event.worker)
        at = moment(event.timestamp)
        self.lives.add(event)
        worker.heard(at)
        if event.host is not None:
            worker.host = event.host if worker.host is None else min(worker.host, event.host)
        step = (event.timestamp, _ORDER.index(type(event)), event.seq, type(event))
        if worker.step is None or step[:3] > worker.step[:3]:
            worker.step = step
        if isinstance(event, WorkerLaunched):
            self.up_level.add(at, 1)
        elif isinstance(event, WorkerLost | WorkerRemoved):
            self.up_level.add(at, -1)

    def started(self, event: TaskStarted, at: int | None) -> None:
        """A task began on it."""
        if event.worker is not None:
            self.of(event.worker).heard(at)

    def ended(self, done: Done) -> None:
        """A task ended on it."""
        if done.event.worker is not None:
            worker = self.of(done.event.worker)
            worker.ended += 1
            worker.failed += isinstance(done.event, TaskFailed)
            worker.worked(done.began, done.at)

    def sampled(self, event: ResourceSample) -> None:
        """Its process tree was measured. A process that no task and no worker event names is none of the
        workers.
        """
        if event.worker is not None:
            known = self._samples.get(event.worker)
            if known is None or event.timestamp > known.timestamp:
                self._samples[event.worker] = event

    def bounds(self) -> dict[str, tuple[int, int] | None]:
        """The first start and the last end of each that executed something."""
        return {
            name: one.bounds for name, one in self._workers.items() if one.ended or one.bounds is not None
        }

    def results(self, running: Iterable[Attempt], until: int | None, *, over: bool) -> list[WorkerNow]:
        """Those at work first, then in order of their names."""
        doing: dict[str, list[Attempt]] = {}
        for one in running:
            if one.event.worker is not None:
                doing.setdefault(one.event.worker, []).append(one)
        states = {name: _state(one, name in doing, over=over) for name, one in self._workers.items()}
        named = sorted(states, key=lambda name: (states[name], name))[:LISTED]
        return [self._result(name, states[name], doing.get(name, []), until) for name in named]

    def _result(self, name: str, state: int, doing: list[Attempt], until: int | None) -> WorkerNow:
        one, sample = self._workers[name], self._samples.get(name)
        if sample is not None:
            one.heard(moment(sample.timestamp))
        task = min(doing, key=lambda each: (each.event.timestamp, each.event.task_id), default=None)
        since = None if task is None or task.at is None or until is None else max(0, until - task.at) / SECOND
        fresh = sample is not None and state not in {_GONE, _LOST}
        return WorkerNow(
            worker=cut(name, NAME),
            host=one.host or (sample.host if sample is not None else None),
            state=("busy", "idle", "starting", "lost", "gone")[state],
            task=None if task is None else cut(task.event.task, NAME),
            task_id=None if task is None else cut(task.event.task_id, NAME),
            since_s=since,
            ended=one.ended,
            failed=one.failed,
            cpu_cores=sample.cpu_cores if sample is not None and fresh else None,
            memory_bytes=sample.rss_bytes if sample is not None and fresh else None,
            seen_s=None if one.seen is None or until is None else max(0, until - one.seen) / SECOND,
            running=len(doing),
        )


def _state(one: OneWorker, busy: bool, *, over: bool) -> int:
    kind = one.step[3] if one.step is not None else None
    if kind is WorkerLost:
        return _LOST
    if kind is WorkerRemoved or over:
        return _GONE
    if busy:
        return _BUSY
    return _STARTING if kind is WorkerLaunched and not one.ended else _IDLE
