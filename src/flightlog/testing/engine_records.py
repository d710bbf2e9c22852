"""What engines tell of their workers, and what tasks record and use."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import pickle
from pathlib import Path

from flightlog.events import (
    Metric,
    SpanEvent,
    TaskStarted,
    WorkerEvent,
    WorkerLaunched,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.record.carrier import carrier
from flightlog.store.run import Run
from flightlog.testing import tasks
from flightlog.testing.reports import make_work
from flightlog.testing.running import RunningEngine, gate, recorded

MIB = 1 << 20


class WorkersAreTold(RunningEngine):
    """Workers come and go, and say what they do."""

    def test_workers_are_launched_ready_and_removed_and_tasks_name_them(self) -> None:
        with self.running(workers=2) as (engine, reported):
            works = [make_work(tasks.nothing) for _ in range(20)]
            for work in works:
                engine.submit(work)
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
            work = make_work(tasks.hold, name)
            engine.submit(work)
            worker = reported.wait_started(work)
            running = {view.worker: view.running for view in engine.workers()}
            assert running == {worker: (work.task_id,)}


class TasksAreRecorded(RunningEngine):
    """The truth is measured, and recorded, where the task runs."""

    def test_what_is_recorded_inside_a_task_has_the_task_as_parent(self, tmp_path: Path) -> None:
        with recorded(tmp_path) as (run, path), self.running(run_path=path) as (engine, reported):
            place = carrier()
            work = make_work(tasks.record_inside, "inside", place=place)
            engine.submit(work)
            outcome = reported.outcome(work)
            engine.close()
        assert pickle.loads(outcome.result or b"") == work.span_id  # noqa: S301 - our own bytes
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
            work = make_work(tasks.hold, name, place=carrier())
            engine.submit(work)
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
        assert outcome.cpu_s is not None
        assert outcome.cpu_s >= 0.05
        assert outcome.cpu_scope in ("thread", "process", "tree")
        assert outcome.peak_rss_bytes is not None
        assert outcome.rss_scope is not None

    def test_a_task_that_says_it_failed_is_failed_though_it_returned(self, tmp_path: Path) -> None:
        with recorded(tmp_path) as (_, path), self.running(run_path=path) as (engine, reported):
            work = make_work(tasks.return_error, "did not converge", place=carrier())
            engine.submit(work)
            outcome = reported.outcome(work)
        assert (outcome.end, outcome.error_type, outcome.error_message) == (
            "failed",
            None,
            "did not converge",
        )
        assert pickle.loads(outcome.result or b"") == "did not converge"  # noqa: S301 - our own bytes
