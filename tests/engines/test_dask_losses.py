"""Workers and schedulers of Dask that die: every attempt has one end, and what had not begun is run all the
same."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from distributed import LocalCluster
from distributed.deploy.cluster import Cluster
from hypothesis import given
from hypothesis import strategies as st

from flightlog.engines.dask.attempt import BeganFile, WorkerNotes, began_path, forget_began, read_began
from flightlog.engines.dask.cluster import steady
from flightlog.engines.dask.engine import DaskCluster, DaskEngine
from flightlog.engines.dask.observer import ClusterObserver
from flightlog.engines.execute import Started
from flightlog.testing import tasks
from flightlog.testing.engines import Reported, gate, make_work


def test_attempts_that_a_dying_worker_had_not_begun_are_run_once_all_the_same():
    engine, reported = DaskEngine(n_workers=1), Reported()
    engine.start(None, reported)
    try:
        works = [make_work(tasks.exit_process, 7), *(make_work(tasks.echo, number) for number in range(10))]
        for work in works:
            engine.submit(work)
        outcomes = [reported.outcome(work) for work in works]
    finally:
        engine.close(0.0)
    assert [outcome.end for outcome in outcomes] == ["lost", *["completed"] * 10]
    assert outcomes[0].exit_code == 7
    kinds = [[report.kind for report in reported.of(work)] for work in works]
    assert kinds == [["queued", "started", "ended"]] * len(works)


def test_what_runs_when_the_scheduler_dies_is_lost_and_so_is_what_comes_later(tmp_path):
    named = tmp_path / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "distributed.cli.dask_scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--dashboard-address",
            ":0",
            "--scheduler-file",
            str(named),
        ],
        **quiet,
    )
    worker = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "distributed.cli.dask_worker",
            "--nthreads",
            "1",
            "--no-dashboard",
            "--death-timeout",
            "30",
            "--scheduler-file",
            str(named),
        ],
        **quiet,
        cwd=tmp_path,
    )
    try:
        while not named.exists():
            time.sleep(0.05)
        address = json.loads(named.read_text())["address"]
        engine, reported = DaskEngine(scheduler_file=str(named)), Reported()
        engine.start(None, reported)
        with gate(tmp_path) as name:
            work = make_work(tasks.hold, name)
            engine.submit(work)
            reported.wait_started(work)
            os.kill(scheduler.pid, signal.SIGKILL)
            outcome = reported.outcome(work)
            later = make_work(tasks.add, 1)
            engine.submit(later)
            after = reported.outcome(later)
        engine.close(0.0)
    finally:
        for process in (worker, scheduler):
            process.terminate()
            process.wait()
    reason = f"the connection to the Dask scheduler at {address} was lost"
    assert [(each.end, each.reason) for each in (outcome, after)] == [("lost", reason)] * 2
    assert outcome.duration_s is not None


def test_a_cluster_that_is_restarted_by_others_loses_what_ran_there(tmp_path):
    with LocalCluster(
        n_workers=1, threads_per_worker=1, protocol="tcp://", dashboard_address=":0"
    ) as cluster:
        engine, reported = DaskEngine(address=cluster.scheduler_address), Reported()
        engine.start(None, reported)
        with cluster.get_client() as client, gate(tmp_path) as name:
            work = make_work(tasks.hold, name)
            engine.submit(work)
            reported.wait_started(work)
            client.restart()
            outcome = reported.outcome(work)
            after = make_work(tasks.add, 1)
            engine.submit(after)
            assert reported.outcome(after).end == "completed"
        engine.close(0.0)
    assert (outcome.end, outcome.reason) == ("lost", "the Dask cluster was restarted")


STARTS = st.builds(
    Started,
    timestamp=st.just("2026-05-20T03:52:00.000001Z"),
    monotonic_ns=st.integers(0, 2**63 - 1),
    queue_s=st.none() | st.floats(0, 1e9),
)


@given(st.lists(st.tuples(st.integers(1, 300), st.booleans(), STARTS), max_size=60))
def test_what_had_begun_and_not_ended_can_be_read_when_its_process_is_gone(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("began")
    file = BeganFile("engine", "tcp://127.0.0.1:1234", folder)
    expected: dict[int, Started] = {}
    for serial, begins, started in steps:
        if begins and serial not in expected:
            file.begin(serial, started)
            expected[serial] = started
        elif not begins:
            file.end(serial)
            expected.pop(serial, None)
    assert read_began("engine", "tcp://127.0.0.1:1234", folder) == expected
    assert read_began("engine", "tcp://127.0.0.1:1234", folder) == {}


def test_the_file_of_a_worker_is_its_users_alone_and_goes_with_its_engine(tmp_path):
    BeganFile("one", "tcp://127.0.0.1:1", tmp_path)
    other = BeganFile("two", "tcp://127.0.0.1:1", tmp_path)
    assert began_path("one", "tcp://127.0.0.1:1", tmp_path).stat().st_mode & 0o777 == 0o600
    forget_began("one", tmp_path)
    assert list(tmp_path.iterdir()) == [began_path("two", "tcp://127.0.0.1:1", tmp_path)]
    other.close()
    assert list(tmp_path.iterdir()) == []


def test_where_no_file_can_be_had_nothing_is_noted_and_nothing_raised():
    file = BeganFile("one", "tcp://127.0.0.1:1", Path("/proc/nowhere"))
    file.begin(1, Started("2026-05-20T03:52:00.000001Z", 1, None))
    file.end(1)
    file.close()
    assert read_began("one", "tcp://127.0.0.1:1", Path("/proc/nowhere")) == {}


@pytest.mark.parametrize("number", [1, 300])
def test_more_attempts_than_there_are_slots_are_executed_unnoted(tmp_path, number):
    file = BeganFile("one", "w", tmp_path)
    started = Started("2026-05-20T03:52:00.000001Z", 1, None)
    for serial in range(1, number + 1):
        file.begin(serial, started)
    assert len(read_began("one", "w", tmp_path)) == min(number, 256)


def test_a_worker_that_is_retired_while_it_executes_loses_its_attempt_and_nothing_is_run_twice(tmp_path):
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address=":0"
    ) as cluster:
        engine, reported = DaskEngine(address=cluster.scheduler_address), Reported()
        engine.start(None, reported)
        with cluster.get_client() as client, gate(tmp_path) as name:
            work = make_work(tasks.hold, name)
            engine.submit(work)
            worker = reported.wait_started(work)
            client.retire_workers([worker])
            outcome = reported.outcome(work)
            after = make_work(tasks.add, 1)
            engine.submit(after)
            assert reported.outcome(after).worker != worker
        engine.close(0.0)
    assert (outcome.end, outcome.worker) == ("lost", worker)
    assert outcome.reason == "Dask: retire-workers (it was retired)"
    assert [report.kind for report in reported.of(work)] == ["queued", "started", "ended"]


def test_a_worker_without_a_nanny_is_lost_for_the_reason_that_the_scheduler_knows():
    with (
        LocalCluster(n_workers=0, processes=False, protocol="tcp://", dashboard_address=":0") as cluster,
        cluster.get_client() as client,
    ):
        command = [
            "-m",
            "distributed.cli.dask_worker",
            cluster.scheduler_address,
            "--no-nanny",
            "--no-dashboard",
        ]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        worker = subprocess.Popen([sys.executable, *command], **quiet)
        try:
            client.wait_for_workers(1, timeout=30)
            engine, reported = DaskEngine(address=cluster.scheduler_address), Reported()
            engine.start(None, reported)
            work = make_work(tasks.exit_process, 7)
            engine.submit(work)
            outcome = reported.outcome(work)
            engine.close(0.0)
        finally:
            worker.kill()
            worker.wait()
    assert outcome.end == "lost"
    assert outcome.reason.startswith("Dask: handle-worker-cleanup (its connection to the scheduler closed)")


def test_a_cluster_that_cannot_be_watched_is_an_engines_error_and_leaves_no_thread():
    async def refuse(*_plugin, **_options):
        raise OSError("no plugins here")

    before = set(threading.enumerate())
    with LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster:
        with cluster.get_client() as client:
            client.register_plugin = refuse
            with pytest.raises(OSError, match="no plugins here"):
                ClusterObserver(client, list, engine="0a0b0c0d")
    for thread in set(threading.enumerate()) - before:
        if thread.name == "flightlog-dask":
            thread.join(5.0)
            assert not thread.is_alive()


def test_a_task_that_ended_in_time_while_the_program_stalled_has_not_timed_out():
    engine, reported = DaskEngine(n_workers=1, processes=True), Reported()
    engine.start(None, reported)
    try:
        work = make_work(time.sleep, 0.2, timeout_s=1.0)
        engine.submit(work)
        reported.wait_started(work)
        for _ in range(2):
            ctypes.PyDLL(None).usleep(700_000)  # no other thread of the program gets its turn
        assert reported.outcome(work).end == "completed"
    finally:
        engine.close(0.0)


def test_what_is_to_be_ended_on_a_worker_that_is_asked_about_another_task_is_asked_for_next():
    cluster, asked = DaskCluster(lambda: None, None, may_end=True, grace_s=0.0), []
    cluster._soon = lambda _question, *about: asked.append(about)
    cluster._roster.note(WorkerNotes("w", "here", 1, True, []), may_end=True)
    cluster._be_rid_of("w", [1], "one")
    cluster._be_rid_of("w", [2], "two")
    assert asked == [("w", [1])]
    cluster._on_answer("w", [1], ends=False)
    assert asked == [("w", [1]), ("w", [2])]
    assert cluster._roster.ended == {"w": "two"}


class Listed:
    """As much of a cluster as gives workers up."""

    def __init__(self) -> None:
        self.scheduler_info = {"workers": {}}
        self.workers, self.closed, self._futures = {"w": self}, 0, set()

    def _update_worker_status(self, op, msg):
        Cluster._update_worker_status(self, op, msg)

    async def close(self):
        self.closed += 1


def test_a_worker_that_came_back_and_is_lost_again_is_not_given_up_for_its_first_loss():
    async def program():
        cluster = steady(Listed)()
        for address in ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2"):
            cluster._update_worker_status("add", {"workers": {address: {"name": "w"}}})
            cluster._update_worker_status("remove", address)
        cluster._give_up("w", 1)
        kept = dict(cluster.workers)
        cluster._give_up("w", 2)
        await asyncio.gather(*cluster._futures)
        return kept, cluster.workers, cluster.closed

    kept, left, closed = asyncio.run(program())
    assert (list(kept), left, closed) == (["w"], {}, 1)
