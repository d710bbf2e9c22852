"""The contract of engines over executors of `concurrent.futures`, as far as those can hold it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from flightlog import Session
from flightlog.engines.executor import ExecutorEngine
from flightlog.events import WorkerLost
from flightlog.store.run import Run
from flightlog.testing import tasks
from flightlog.testing.engines import EngineContract, gate, known, submit

MANIFEST = "version: 1\nproject: {name: pools}\ntargets:\n  local: {provider: local}\n"


class OverExecutors(EngineContract):
    launches_workers = False

    @pytest.fixture(autouse=True)
    def _executors(self) -> Iterator[None]:
        self.executors: list[Executor] = []
        yield
        for executor in self.executors:
            executor.shutdown(cancel_futures=True)

    def make_executor(self, workers: int) -> Executor:
        raise NotImplementedError

    def make_engine(self, workers: int) -> ExecutorEngine:
        self.executors.append(self.make_executor(workers))
        return ExecutorEngine(self.executors[-1])

    def test_an_attempt_over_its_timeout_is_timed_out_and_the_engine_goes_on(self, tmp_path: Path) -> None:
        """With another worker: nothing can end what an executor runs."""
        with self.running(workers=2) as (engine, reported), gate(tmp_path) as name:
            stuck = submit(engine, tasks.hold, name, timeout_s=self.timeout_s)
            outcome = reported.outcome(stuck)
            assert outcome.end == "timed_out"
            assert f"timeout of {self.timeout_s:g} s" in known(outcome.reason)
            assert outcome.worker == reported.wait_started(stuck)
            assert known(outcome.duration_s) >= self.timeout_s
            assert reported.outcome(submit(engine, tasks.add, 1)).end == "completed"


class TestOverThreads(OverExecutors):
    def make_executor(self, workers: int) -> Executor:
        return ThreadPoolExecutor(workers)


class TestOverProcesses(OverExecutors):
    def make_executor(self, workers: int) -> Executor:
        return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))

    def test_an_executor_that_breaks_loses_what_it_has_and_refuses_what_comes(self, tmp_path: Path) -> None:
        with self.running() as (engine, reported), gate(tmp_path) as name:
            held = submit(engine, tasks.hold, name)
            reported.wait_started(held)
            (worker,) = engine.workers()
            os.kill(known(worker.pid), signal.SIGKILL)
            outcome = reported.outcome(held)
            assert (outcome.end, outcome.worker, outcome.pid) == ("lost", worker.worker, worker.pid)
            assert "BrokenProcessPool" in known(outcome.reason)
            assert reported.wait_worker(WorkerLost).worker == worker.worker
            later = reported.outcome(submit(engine, tasks.add, 1))
            assert (later.end, later.error_type) == ("failed", "BrokenProcessPool")


class TestOverForkedProcesses(TestOverProcesses):
    def make_executor(self, workers: int) -> Executor:
        return ProcessPoolExecutor(workers, mp_context=get_context("forkserver"))


class OnePerCall(Executor):
    """An executor that says nothing of its size, and runs each call on a thread of its own."""

    def submit(self, function, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        future: Future = Future()
        threading.Thread(target=lambda: future.set_result(function(*args, **kwargs))).start()
        return future


def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize(
    "make",
    [OnePerCall, lambda: ThreadPoolExecutor(2), lambda: ProcessPoolExecutor(2)],
    ids=["any", "threads", "processes"],
)
def test_a_session_runs_on_an_executor_and_leaves_it_open(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("flightlog.yaml").write_text(MANIFEST)
    with make() as executor:
        for _ in range(2):
            with Session(engine=executor, runs_dir=tmp_path / "runs") as session:
                assert session.client.gather(session.client.map(double, range(20))) == list(range(0, 40, 2))
        assert executor.submit(double, 4).result() == 8
    runs = [Run(path) for path in sorted((tmp_path / "runs").glob("run-*"))]
    for run in runs:
        assert (run.info.status, run.info.provider, run.info.tasks_completed) == ("completed", "executor", 20)
        assert not any(run.completeness().lost.values())
    assert len(runs) == 2
