"""What the contract tests stand on: engines, attempts, reports that tests wait for, gates that tasks wait
at.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.engines.contract import Engine, Outcome, Work
from flightlog.events import WorkerEvent
from flightlog.record.recording import record

PATIENCE_S = 60.0
"""How long a test waits for something that must happen; only a failing test waits so long."""

_numbers = count(1)


def make_work(
    function: Callable[..., Any],
    /,
    *args: Any,
    task_id: str | None = None,
    attempt: int = 1,
    place: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    **kwargs: Any,
) -> Work:
    """An attempt that calls a function of an importable module."""
    number = next(_numbers)
    call = pickle.dumps((function, args, kwargs))
    return Work(
        task_id=task_id or f"task-{number}",
        task=function.__name__,
        attempt=attempt,
        call=call,
        args={},
        args_bytes=len(call),
        submitted=time.time(),
        place=dict(place or {}),
        span_id=f"{number:016x}",
        timeout_s=timeout_s,
    )


class EngineReport(Struct, frozen=True):
    """One report of an engine: `queued`, `started`, `ended` or `worker`."""

    kind: str
    task_id: str = ""
    attempt: int = 0
    worker: str = ""
    outcome: Outcome | None = None
    event: WorkerEvent | None = None


class Reported:
    """The reports of an engine, in order; thread-safe. Methods that wait raise `TimeoutError`."""

    def __init__(self) -> None:
        self.reports: list[EngineReport] = []
        self.outcomes: dict[str, Outcome] = {}
        """The last outcome of each task."""
        self.on_ended: Callable[[str, int, Outcome], None] = lambda *_facts: None
        """Called with each end, in the engine's thread."""
        self._changed = threading.Condition()

    def queued(self, task_id: str, attempt: int) -> None:
        """The attempt waits."""
        self._keep(EngineReport("queued", task_id, attempt))

    def started(self, task_id: str, attempt: int, worker: str) -> None:
        """A worker executes the attempt."""
        self._keep(EngineReport("started", task_id, attempt, worker))

    def ended(self, task_id: str, attempt: int, outcome: Outcome) -> None:
        """The attempt has ended."""
        self.on_ended(task_id, attempt, outcome)
        self._keep(EngineReport("ended", task_id, attempt, outcome=outcome))

    def worker(self, event: WorkerEvent) -> None:
        """Something happened to a worker."""
        self._keep(EngineReport("worker", worker=event.worker, event=event))

    def wait(self, done: Callable[[], bool]) -> None:
        """Wait until a condition holds; it is checked after every report."""
        with self._changed:
            if not self._changed.wait_for(done, PATIENCE_S):
                raise TimeoutError(f"it never came to that; there are {self.reports[-20:]}")

    def outcome(self, work: Work) -> Outcome:
        """The outcome of an attempt, waited for."""
        self.wait(lambda: any(r.outcome for r in self.of(work)))
        return next(r.outcome for r in self.of(work) if r.outcome)

    def wait_started(self, work: Work) -> str:
        """The worker that executes an attempt, waited for."""
        self.wait(lambda: any(r.kind == "started" for r in self.of(work)))
        return next(r.worker for r in self.of(work) if r.kind == "started")

    def wait_worker(self, kind: type[WorkerEvent]) -> Any:
        """The first worker event of a kind, waited for."""
        self.wait(lambda: bool(self.worker_events(kind)))
        return self.worker_events(kind)[0]

    def of(self, work: Work) -> list[EngineReport]:
        """The reports on one attempt."""
        key = (work.task_id, work.attempt)
        return [report for report in list(self.reports) if (report.task_id, report.attempt) == key]

    def worker_events(self, kind: type[WorkerEvent] = WorkerEvent) -> list[WorkerEvent]:
        """The worker events of a kind."""
        return [report.event for report in list(self.reports) if isinstance(report.event, kind)]

    def _keep(self, report: EngineReport) -> None:
        with self._changed:
            self.reports.append(report)
            if report.outcome is not None:
                self.outcomes[report.task_id] = report.outcome
            self._changed.notify_all()


class RunningEngine:
    """Starts engines for tests, and closes them."""

    timeout_s = 0.2
    """A timeout that a task waiting at a gate exceeds."""
    launches_workers = True
    """Whether the engine launches its workers, and so measures the launch; False where it finds them
    running.
    """

    def make_engine(self, workers: int) -> Engine:
        """An engine with at most so many workers, each for one task at a time; not started."""
        raise NotImplementedError

    @contextmanager
    def running(self, workers: int = 1, run_path: str | None = None) -> Iterator[tuple[Engine, Reported]]:
        """An engine that has been started, and its reports; closed at the end."""
        engine, reported = self.make_engine(workers), Reported()
        engine.start(run_path, reported)
        try:
            yield engine, reported
        finally:
            engine.close(timeout_s=0.0)

    def outcome_of(self, function: Any, *args: Any, **options: Any) -> Outcome:
        """Run a single attempt; returns its outcome."""
        with self.running() as (engine, reported):
            work = make_work(function, *args, **options)
            engine.submit(work)
            return reported.outcome(work)


@contextmanager
def gate(folder: Path) -> Iterator[str]:
    """A named pipe for `tasks.hold`, opened at the end so that no thread waits there for ever."""
    name = str(folder / "gate")
    os.mkfifo(name)
    try:
        yield name
    finally:
        fd = os.open(name, os.O_RDWR | os.O_NONBLOCK)  # readers that wait get through, and read the end
        opened = folder / "gate-opened"
        opened.touch()
        opened.replace(name)  # those that come later find an empty file
        os.close(fd)


@contextmanager
def recorded(folder: Path) -> Iterator[tuple[Path, str]]:
    """A run that is being recorded: its folder, as a path and as text."""
    with record("engine", runs_dir=folder / "runs", sample_interval_s=None) as run:
        yield run.path, str(run.path)
