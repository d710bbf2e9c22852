"""Workers that are processes: they die, are killed, and are ended with the task they execute."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import os
import signal
from pathlib import Path

from flightlog.events import TaskStarted, WorkerLost, WorkerRemoved
from flightlog.record.carrier import carrier
from flightlog.store.run import Run
from flightlog.testing import tasks
from flightlog.testing.reports import make_work
from flightlog.testing.running import RunningEngine, gate, recorded


class ProcessesDie(RunningEngine):
    """A worker that goes away leaves what its task had begun, and the engine goes on."""

    def test_a_task_that_exits_its_process_is_lost_and_the_engine_goes_on(self) -> None:
        with self.running() as (engine, reported):
            work, after = make_work(tasks.exit_process, 3), make_work(tasks.add, 1)
            engine.submit(work)
            engine.submit(after)
            outcome, lost = reported.outcome(work), reported.wait_worker(WorkerLost)
            assert (outcome.end, outcome.exit_code, outcome.signal) == ("lost", 3, None)
            assert outcome.worker == reported.wait_started(work) == lost.worker
            assert (lost.exit_code, lost.signal) == (3, None)
            assert outcome.started is not None
            assert outcome.duration_s is not None
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
            work = make_work(tasks.hold, name, place=carrier())
            engine.submit(work)
            worker = reported.wait_started(work)
            (pid,) = [view.pid for view in engine.workers() if view.worker == worker]
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            outcome, lost = reported.outcome(work), reported.wait_worker(WorkerLost)
            assert (outcome.end, outcome.exit_code, outcome.signal, outcome.pid) == (
                "lost",
                None,
                "SIGKILL",
                pid,
            )
            assert (lost.worker, lost.pid, lost.signal) == (worker, pid, "SIGKILL")
            (start,) = [e for e in Run(run).events("tasks") if isinstance(e, TaskStarted)]
            assert (start.task_id, start.worker) == (work.task_id, worker)

    def test_an_attempt_that_runs_can_be_cancelled_with_its_process(self, tmp_path: Path) -> None:
        with self.running() as (engine, reported), gate(tmp_path) as name:
            work, after = make_work(tasks.hold, name), make_work(tasks.add, 1)
            engine.submit(work)
            engine.submit(after)
            worker = reported.wait_started(work)
            assert engine.cancel(work.task_id, "changed my mind") is True
            outcome = reported.outcome(work)
            assert (outcome.end, outcome.reason, outcome.worker) == ("cancelled", "changed my mind", worker)
            assert reported.wait_worker(WorkerRemoved).worker == worker
            assert reported.outcome(after).end == "completed"
            assert reported.worker_events(WorkerLost) == []
