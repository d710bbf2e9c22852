"""The contract of engines over executors of `concurrent.futures`, as far as those can hold it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from flightlog import Session
from flightlog.engines import executor as engines_executor
from flightlog.engines.executor import ExecutorEngine
from flightlog.events import WorkerLost
from flightlog.store.run import Run
from flightlog.testing import tasks
from flightlog.testing.engines import EngineContract, Reported, gate, known, submit

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


PROGRAM = """
import os, sys, threading, time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
import flightlog
from flightlog import Session

def double(number):
    with flightlog.span("inner"):
        return 2 * number

def is_elsewhere(sees):
    import flightlog.engines.executor as executor, flightlog.engines.relay.channel as channel
    import flightlog.engines.relay.recording as recording
    executor.this_host = recording.this_host = lambda: "elsewhere"
    def unreachable(self):
        raise FileNotFoundError("no such socket on this host")
    channel.ChannelClient._open = unreachable
    if not sees:
        executor.is_seen = lambda *run: False

def run(pool, number=8):
    with Session(engine=pool, runs_dir="runs", sample_interval_s=0.2) as session:
        futures = session.client.map(double, range(number))
        assert session.client.gather(futures) == [2 * n for n in range(number)]

def spawned(workers, **options):
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), **options)

if __name__ == "__main__":
    manifest = "version: 1\\nproject: {name: x}\\ntargets: {local: {provider: local}}\\n"
    Path("flightlog.yaml").write_text(manifest)
"""


def ran(folder: Path, program: str, *wrapped: str, **environ: str) -> Run:
    """The run of a program that has the functions above."""
    lines = "".join(f"    {line}\n" for line in program.strip().splitlines())
    (folder / "program.py").write_text(PROGRAM + lines)
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("FLIGHTLOG", "TRACEPARENT"))}
    done = subprocess.run(
        [sys.executable, *wrapped, "program.py"],
        cwd=folder,
        env={**plain, **environ},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "runs").glob("run-*")
    return Run(path)


def workers_of(run: Run) -> Counter[str]:
    return Counter(type(event).__name__ for event in run.events("workers"))


def test_a_program_under_flightlog_run_is_recorded_after_its_session_on_threads_has_ended(tmp_path):
    after = "with ThreadPoolExecutor(2) as pool: run(pool)\nwith flightlog.span('after'): time.sleep(0.01)"
    run = ran(tmp_path, after, "-m", "flightlog", "run", "--runs-dir", "runs", sys.executable)
    assert {event.name for event in run.events("spans")} >= {"inner", "after"}


def test_without_room_for_a_socket_starts_are_told_with_the_ends(tmp_path):
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    run = ran(tmp_path, "with spawned(2) as pool: run(pool)", TMPDIR=str(deep))
    assert run.info.tasks_completed == 8
    assert len([one for one in run.events("spans") if one.name == "inner"]) == 8


def test_a_program_that_closes_all_descriptors_goes_on_with_its_session(tmp_path):
    program = """
with ThreadPoolExecutor(2) as pool, Session(engine=pool, runs_dir="runs") as session:
    session.client.gather(session.client.map(double, range(4)))
    os.closerange(3, 4096)
    assert session.client.gather(session.client.map(double, range(4))) == [0, 2, 4, 6]
"""
    assert ran(tmp_path, program).info.tasks_completed == 8


def test_workers_that_an_executor_ends_are_over_then_and_not_at_the_end(tmp_path):
    run = ran(tmp_path, "with spawned(2, max_tasks_per_child=1) as pool: run(pool, 4)")
    assert workers_of(run) == {"WorkerLaunched": 4, "WorkerReady": 4, "WorkerRemoved": 4}
    reasons = [event.reason for event in run.events("workers") if type(event).__name__ == "WorkerRemoved"]
    assert reasons.count("its connection was closed") >= 3


def test_threads_that_come_and_go_are_as_many_workers_as_run_at_once(tmp_path):
    program = """
class OnePerCall(Executor):
    def submit(self, function, /, *args):
        future = Future()
        threading.Thread(target=lambda: future.set_result(function(*args))).start()
        return future
with Session(engine=OnePerCall(), runs_dir="runs") as session:
    for number in range(5):
        session.client.submit(double, number).result()
"""
    assert workers_of(ran(tmp_path, program))["WorkerLaunched"] == 1


@pytest.mark.parametrize("sees", [True, False])
def test_workers_on_another_host_record_where_they_see_the_run_and_leave_it_when_it_is_over(tmp_path, sees):
    program = f"""
with spawned(1, initializer=is_elsewhere, initargs=({sees},)) as pool:
    run(pool, 3)
    (path,) = Path("runs").glob("run-*")
    time.sleep(2.5)
    before = sum(file.stat().st_size for file in path.rglob("*resources*"))
    time.sleep(1)
    assert sum(file.stat().st_size for file in path.rglob("*resources*")) == before
"""
    run = ran(tmp_path, program)
    assert run.info.tasks_completed == 3
    if sees:  # else these processes, which are on this host in truth, find the run by their environment
        assert len([one for one in run.events("spans") if one.name == "inner"]) == 3
    assert not any(run.completeness().lost.values())


def test_threads_that_begin_at_once_have_one_link_to_their_engine(monkeypatch):
    made = []

    class Slow(engines_executor.EngineLink):
        def __init__(self, order: engines_executor.ExecutorOrder) -> None:
            made.append(order)
            time.sleep(0.05)
            super().__init__(order)

    monkeypatch.setattr(engines_executor, "EngineLink", Slow)
    with ThreadPoolExecutor(4) as pool:
        engine = ExecutorEngine(pool)
        reported = Reported()
        engine.start(None, reported)
        tasks_there = [submit(engine, tasks.add, number) for number in range(8)]
        assert {reported.outcome(one).end for one in tasks_there} == {"completed"}
        engine.close(timeout_s=5.0)
    assert len(made) == 1
