"""The contract of engines as tests: subclass one of these in a test module, and pytest runs them all.

    from flightlog.testing.engines import ProcessEngineContract

    class TestMyEngine(ProcessEngineContract):
        def make_engine(self, workers):
            return MyEngine(max_workers=workers)

`EngineContract` is for every engine; `ProcessEngineContract` is for those whose workers are processes of
their own, and holds all of it and more. Nothing in them sleeps: tests wait for reports, and tasks wait at
named pipes. `timeout_s` is the timeout that a waiting task runs over: raise it where starting a task takes
long.

For further tests of an engine there are `Reported`, which keeps what an engine reports, `make_work`, which
makes an attempt to hand to one, `gate` and `recorded`, and the tasks in `flightlog.testing.tasks`.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from flightlog.engines.contract import Engine, Outcome, Work
from flightlog.events import (
    Metric,
    SpanEvent,
    TaskStarted,
    WorkerEvent,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.record.context import carrier
from flightlog.record.recording import record
from flightlog.store.run import Run
from flightlog.testing import tasks

PATIENCE_S = 60.0
"""Timeout of a test for something that must happen; only a failing test waits this long."""

T = TypeVar("T")
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


def submit(engine: Engine, function: Callable[..., Any], /, *args: Any, **options: Any) -> Work:
    """Hand an attempt of `make_work` to an engine."""
    work = make_work(function, *args, **options)
    engine.submit(work)
    return work


def known(value: T | None) -> T:
    """A value that must not be None."""
    assert value is not None
    return value


class EngineReport(Struct, frozen=True):
    """One report of an engine: `queued`, `started`, `ended` or `worker`."""

    kind: str
    task_id: str = ""
    attempt: int = 0
    worker: str = ""
    outcome: Outcome | None = None
    event: WorkerEvent | None = None


def result_of(outcome: Outcome) -> Any:
    """What a completed attempt returned."""
    return pickle.loads(known(outcome.result))  # noqa: S301 - our own bytes


def failure_of(outcome: Outcome) -> tuple[str, str | None, str | None]:
    """How an attempt ended, and its error."""
    return outcome.end, outcome.error_type, outcome.error_message


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
        """The attempt is queued."""
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
        """An engine with at most this many workers, each for one task at a time; not started."""
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
            work = submit(engine, function, *args, **options)
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


MIB = 1 << 20


class AttemptsEnd(RunningEngine):
    """Every attempt has exactly one end, which says how it ended."""

    def test_a_completed_attempt_has_its_result_and_where_and_when_it_ran(self) -> None:
        with self.running() as (engine, reported):
            work = submit(engine, tasks.add, 2, b=3)
            outcome = reported.outcome(work)
            worker = reported.wait_started(work)
        assert outcome.end == "completed"
        assert result_of(outcome) == 5
        assert outcome.result_bytes == len(known(outcome.result))
        assert outcome.worker == worker
        assert all((outcome.host, outcome.pid, outcome.thread))
        assert known(outcome.started) <= known(outcome.ended)
        assert known(outcome.duration_s) >= 0
        assert known(outcome.queue_s) >= 0

    def test_a_failed_attempt_has_its_exception_and_the_traceback_with_its_cause(self) -> None:
        outcome = self.outcome_of(tasks.fail, "no such model")
        assert failure_of(outcome) == ("failed", "ValueError", "no such model")
        error = pickle.loads(known(outcome.error))  # noqa: S301 - our own bytes
        assert (type(error), error.args) == (ValueError, ("no such model",))
        assert "KeyError: 'the cause'" in known(outcome.traceback)
        assert "in fail" in known(outcome.traceback)
        assert outcome.fingerprint is not None
        assert outcome.result is None

    def test_an_exception_that_does_not_pickle_or_unpickle_travels_as_text(self) -> None:
        with self.running() as (engine, reported):
            works = [submit(engine, each) for each in (tasks.raise_with_lock, tasks.raise_wanting_two)]
            outcomes = [reported.outcome(work) for work in works]
        assert [failure_of(outcome) for outcome in outcomes] == [
            ("failed", "flightlog.testing.tasks.HoldsALock", "it holds a lock"),
            ("failed", "flightlog.testing.tasks.WantsTwo", "1 and 2"),
        ]
        assert [outcome.error for outcome in outcomes] == [None, None]

    def test_a_result_that_does_not_pickle_is_a_failure_that_names_its_type(self) -> None:
        outcome = self.outcome_of(tasks.give_lock)
        assert (outcome.end, outcome.result, outcome.result_bytes) == ("failed", None, None)
        assert known(outcome.error_type).endswith("PicklingError")
        refused = "the result of give_lock, a _thread.lock, cannot be pickled"
        assert known(outcome.error_message).startswith(refused)

    def test_a_call_that_does_not_unpickle_is_a_failure(self) -> None:
        outcome = self.outcome_of(tasks.add, tasks.NeverUnpickles())
        assert failure_of(outcome) == ("failed", "ImportError", "not on this side")

    def test_exits_and_interrupts_inside_a_task_are_its_outcome_and_the_worker_goes_on(self) -> None:
        with self.running() as (engine, reported):
            leaving = [submit(engine, tasks.leave, code) for code in (None, 3)]
            stopping = [submit(engine, function) for function in (tasks.interrupt, tasks.give_up)]
            works = [*leaving, *stopping, submit(engine, tasks.add, 1)]
            outcomes = [reported.outcome(work) for work in works]
        ends = ["completed", "failed", "cancelled", "cancelled", "completed"]
        assert [outcome.end for outcome in outcomes] == ends
        assert outcomes[1].error_type == "SystemExit"
        assert [outcome.reason for outcome in outcomes[2:4]] == ["KeyboardInterrupt", "CancelledError"]
        assert len({outcome.worker for outcome in outcomes}) == 1

    def test_every_attempt_is_queued_then_started_then_ended_each_once(self) -> None:
        with self.running(workers=2) as (engine, reported):
            works = [submit(engine, tasks.add, number) for number in range(200)]
            for work in works:
                reported.outcome(work)
        kinds = [[report.kind for report in reported.of(work)] for work in works]
        assert kinds == [["queued", "started", "ended"]] * len(works)
        assert [result_of(reported.outcomes[work.task_id]) for work in works] == list(range(200))

    def test_the_next_attempt_can_be_submitted_from_within_the_report_of_an_end(self) -> None:
        with self.running() as (engine, reported):
            first = make_work(tasks.fail, "once")
            second = make_work(tasks.add, 1, task_id=first.task_id, attempt=2)
            reported.on_ended = lambda _task, attempt, _outcome: (
                engine.submit(second) if attempt == 1 else None
            )
            engine.submit(first)
            assert reported.outcome(second).end == "completed"
            assert reported.outcome(first).end == "failed"

    def test_an_attempt_over_its_timeout_is_timed_out_and_the_engine_goes_on(self, tmp_path: Path) -> None:
        with self.running() as (engine, reported), gate(tmp_path) as name:
            stuck = submit(engine, tasks.hold, name, timeout_s=self.timeout_s)
            after = submit(engine, tasks.add, 1)
            outcome = reported.outcome(stuck)
            assert outcome.end == "timed_out"
            assert f"timeout of {self.timeout_s:g} s" in known(outcome.reason)
            assert outcome.worker == reported.wait_started(stuck)
            assert known(outcome.duration_s) >= self.timeout_s
            assert reported.outcome(after).end == "completed"


class AttemptsAreCancelled(RunningEngine):
    """Queued attempts can be cancelled, and closing ends every attempt."""

    def test_an_attempt_that_waits_can_be_cancelled_and_never_starts(self, tmp_path: Path) -> None:
        with self.running() as (engine, reported), gate(tmp_path) as name:
            holding = submit(engine, tasks.hold, name)
            waiting = [submit(engine, tasks.add, number) for number in range(3)]
            reported.wait_started(holding)
            assert [engine.cancel(work.task_id, "not needed") for work in waiting] == [True, True, True]
            outcomes = [reported.outcome(work) for work in waiting]
            assert [(o.end, o.reason, o.started) for o in outcomes] == [("cancelled", "not needed", None)] * 3
            assert [[r.kind for r in reported.of(work)] for work in waiting] == [["queued", "ended"]] * 3

    def test_what_is_unknown_or_over_cannot_be_cancelled(self) -> None:
        with self.running() as (engine, reported):
            work = submit(engine, tasks.add, 1)
            reported.outcome(work)
            assert engine.cancel(work.task_id, "too late") is False
            assert engine.cancel("task-unknown", "no such") is False

    def test_closing_with_a_backlog_cancels_each_attempt_once(self, tmp_path: Path) -> None:
        with self.running(workers=2) as (engine, reported), gate(tmp_path) as name:
            holding, *works = [submit(engine, tasks.hold, name) for _ in range(1001)]
            reported.wait_started(holding)
            engine.close(timeout_s=0.0)
            ends = Counter(report.task_id for report in reported.reports if report.kind == "ended")
            assert ends == {work.task_id: 1 for work in (holding, *works)}
            assert {outcome.end for outcome in reported.outcomes.values()} == {"cancelled"}
            assert list(engine.workers()) == []

    def test_what_runs_may_end_within_the_time_that_closing_allows(self, tmp_path: Path) -> None:
        with self.running() as (engine, reported), gate(tmp_path) as name:
            work = submit(engine, tasks.hold, name)
            reported.wait_started(work)
            Path(name).write_text("go on")
            engine.close(timeout_s=60.0)
            assert reported.outcome(work).end == "completed"

    def test_an_engine_can_be_closed_twice_and_cancels_what_comes_later(self) -> None:
        with self.running() as (engine, reported):
            engine.close()
            engine.close()
            work = submit(engine, tasks.add, 1)
            assert reported.outcome(work).end == "cancelled"


class WorkersAreTold(RunningEngine):
    """Engines report workers as they are launched, get ready and are removed."""

    def test_workers_are_launched_ready_and_removed_and_tasks_name_them(self) -> None:
        with self.running(workers=2) as (engine, reported):
            works = [submit(engine, tasks.nothing) for _ in range(20)]
            outcomes = [reported.outcome(work) for work in works]
            assert {view.worker for view in engine.workers()} >= {outcome.worker for outcome in outcomes}
            engine.close()
        lives: dict[str, list[type[WorkerEvent]]] = {}
        for event in reported.worker_events():
            lives.setdefault(event.worker, []).append(type(event))
            assert event.host is not None
        assert {outcome.worker for outcome in outcomes} <= lives.keys()
        ready = [worker for worker, life in lives.items() if WorkerReady in life]
        assert [lives[worker] for worker in ready] == [[WorkerLaunched, WorkerReady, WorkerRemoved]] * len(
            ready
        )
        for event in reported.worker_events(WorkerReady):
            assert isinstance(event, WorkerReady)
            assert event.launch_s is not None or not self.launches_workers

    def test_a_worker_shows_what_it_executes(self, tmp_path: Path) -> None:
        with self.running() as (engine, reported), gate(tmp_path) as name:
            work = submit(engine, tasks.hold, name)
            worker = reported.wait_started(work)
            running = {view.worker: view.running for view in engine.workers()}
            assert running == {worker: (work.task_id,)}


class TasksAreRecorded(RunningEngine):
    """Tasks are measured and recorded on the worker that runs them."""

    def test_what_is_recorded_inside_a_task_has_the_task_as_parent(self, tmp_path: Path) -> None:
        with recorded(tmp_path) as (run, path), self.running(run_path=path) as (engine, reported):
            work = submit(engine, tasks.record_inside, "inside", place=carrier())
            outcome = reported.outcome(work)
            engine.close()
        assert result_of(outcome) == work.span_id
        assert outcome.tags == {"model": "sir"}
        assert outcome.metrics == {"loss": 0.5, "broken": None}
        assert outcome.nonfinite == {"broken": "nan"}
        read = Run(run)
        (inside,) = [e for e in read.events("spans") if isinstance(e, SpanEvent) and e.name == "inside"]
        assert inside.parent_id == work.span_id
        (metric,) = [e for e in read.events("metrics") if isinstance(e, Metric)]
        assert metric.span_id == inside.span_id
        assert not any(read.completeness().lost.values())

    def test_the_start_of_a_task_is_on_disk_before_the_task_ends(self, tmp_path: Path) -> None:
        with (
            recorded(tmp_path) as (run, path),
            gate(tmp_path) as name,
            self.running(run_path=path) as (engine, reported),
        ):
            work = submit(engine, tasks.hold, name, place=carrier())
            worker = reported.wait_started(work)
            (start,) = [e for e in Run(run).events("tasks") if isinstance(e, TaskStarted)]
            Path(name).write_text("go on")
            outcome = reported.outcome(work)
        assert (start.task, start.task_id, start.attempt) == ("hold", work.task_id, 1)
        assert (start.worker, start.span_id, start.queue_s) == (worker, work.span_id, outcome.queue_s)
        assert start.timestamp == outcome.started
        assert start.parent_id == work.place["traceparent"].split("-")[2]
        assert start.trace_id == work.place["traceparent"].split("-")[1]

    def test_what_a_task_uses_is_measured(self) -> None:
        outcome = self.outcome_of(tasks.use, 0.05, 64 * MIB)
        assert known(outcome.cpu_s) >= 0.05
        assert outcome.cpu_scope in ("thread", "process", "tree")
        assert None not in (outcome.peak_rss_bytes, outcome.rss_scope)

    def test_a_task_that_says_it_failed_is_failed_though_it_returned(self, tmp_path: Path) -> None:
        with recorded(tmp_path) as (_, path), self.running(run_path=path) as (engine, reported):
            work = submit(engine, tasks.return_error, "did not converge", place=carrier())
            outcome = reported.outcome(work)
        assert failure_of(outcome) == ("failed", None, "did not converge")
        assert result_of(outcome) == "did not converge"


class ProcessesDie(RunningEngine):
    """A worker process that dies leaves the start of its task on record, and the engine goes on."""

    def test_a_task_that_exits_its_process_is_lost_and_the_engine_goes_on(self) -> None:
        with self.running() as (engine, reported):
            work = submit(engine, tasks.exit_process, 3)
            after = submit(engine, tasks.add, 1)
            outcome, lost = reported.outcome(work), reported.wait_worker(WorkerLost)
            assert (outcome.end, outcome.exit_code, outcome.signal) == ("lost", 3, None)
            assert outcome.worker == reported.wait_started(work) == lost.worker
            assert (lost.exit_code, lost.signal) == (3, None)
            assert None not in (outcome.started, outcome.duration_s)
            again = reported.outcome(after)
            assert again.end == "completed"
            assert again.worker != outcome.worker

    def test_a_worker_that_is_killed_leaves_the_start_of_its_task_and_the_signal(
        self, tmp_path: Path
    ) -> None:
        with (
            recorded(tmp_path) as (run, path),
            gate(tmp_path) as name,
            self.running(run_path=path) as (engine, reported),
        ):
            work = submit(engine, tasks.hold, name, place=carrier())
            worker = reported.wait_started(work)
            (pid,) = [known(view.pid) for view in engine.workers() if view.worker == worker]
            os.kill(pid, signal.SIGKILL)
            outcome, lost = reported.outcome(work), reported.wait_worker(WorkerLost)
            assert (outcome.end, outcome.exit_code, outcome.pid) == ("lost", None, pid)
            assert outcome.signal == "SIGKILL"
            assert (lost.worker, lost.pid, lost.signal) == (worker, pid, "SIGKILL")
            (start,) = [e for e in Run(run).events("tasks") if isinstance(e, TaskStarted)]
            assert (start.task_id, start.worker) == (work.task_id, worker)

    def test_an_attempt_that_runs_can_be_cancelled_with_its_process(self, tmp_path: Path) -> None:
        with self.running() as (engine, reported), gate(tmp_path) as name:
            work = submit(engine, tasks.hold, name)
            after = submit(engine, tasks.add, 1)
            worker = reported.wait_started(work)
            assert engine.cancel(work.task_id, "changed my mind") is True
            outcome = reported.outcome(work)
            assert (outcome.end, outcome.reason, outcome.worker) == ("cancelled", "changed my mind", worker)
            assert reported.wait_worker(WorkerRemoved).worker == worker
            assert reported.outcome(after).end == "completed"
            assert reported.worker_events(WorkerLost) == []


__all__ = ["EngineContract", "ProcessEngineContract", "Reported", "Work", "gate", "make_work", "recorded"]


class EngineContract(AttemptsEnd, AttemptsAreCancelled, WorkersAreTold, TasksAreRecorded):
    """The contract of every engine."""


class ProcessEngineContract(EngineContract, ProcessesDie):
    """The contract of engines whose workers are processes of their own."""
