"""What a program reads of its own run while it records: everything that came before the question."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from multiprocessing import get_context
from typing import Any

import pytest
import work_for_sessions as work
from builders.documents import run_in
from sessions import PROCESSES, THREADS, session_in

import flightlog
from flightlog.core.errors import RunNotFound
from flightlog.engines.relay.chunks import ChunkReceiver


def see_no_run() -> None:
    """Let this worker be as one on a host that does not see the run directory."""
    import flightlog.engines.relay.recording as relay

    relay.is_seen = lambda *_run: False


@contextmanager
def pool() -> Iterator[dict[str, Executor]]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=see_no_run) as made:
        yield {"engine": made}


@contextmanager
def dask() -> Iterator[dict[str, Any]]:
    from distributed import Client, LocalCluster

    from flightlog.engines.dask.engine import DaskEngine

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.run(see_no_run)
        yield {"engine": DaskEngine(address=cluster.scheduler_address)}


@pytest.mark.parametrize(
    ("options", "rounds", "tasks"),
    [
        pytest.param(lambda: nullcontext({"where": PROCESSES}), 20, 200, id="processes"),
        pytest.param(lambda: nullcontext({"where": THREADS}), 5, 200, id="threads"),
        pytest.param(pool, 10, 20, id="executor without shared files"),
        pytest.param(dask, 5, 20, id="Dask without shared files"),
    ],
)
def test_what_is_read_after_a_task_was_awaited_has_it(tmp_path, options, rounds, tasks):
    with options() as given, session_in(tmp_path, **given) as session:
        run, client = session.telemetry, session.client
        for number in range(1, rounds + 1):
            client.gather(client.map(work.measured, range(tasks)))
            counts = run.summary().tasks
            assert (counts.submitted, counts.completed) == (number * tasks, number * tasks)
            of_workers = """SELECT (SELECT count(*) FROM task_events WHERE event = 'task_started'),
                (SELECT count(*) FROM spans)"""
            assert run.sql(of_workers).rows() == [(number * tasks, number * tasks)]


def test_lines_that_have_come_from_other_hosts_are_written_before_a_run_is_read(tmp_path):
    class SlowReceiver(ChunkReceiver):
        def _write(self, chunk: bytes) -> bool:
            time.sleep(0.2)
            return super()._write(chunk)

    with flightlog.record("trial", runs_dir=tmp_path) as run:
        receiver = SlowReceiver(run.path)
        receiver.take(b"no chunk at all")
        run.opened()
        assert receiver.refused == 1


def test_an_awaited_task_is_there_for_a_coroutine(tmp_path):
    async def main() -> None:
        async with session_in(tmp_path, where=THREADS) as session:
            for number in range(1, 11):
                await session.client.submit(work.add, number)
                found = await asyncio.to_thread(session.telemetry.tasks.rows)
                assert len(found) == number

    asyncio.run(main())


def test_a_run_without_a_session_is_read_as_it_is_now(tmp_path):
    with flightlog.record("trial", runs_dir=tmp_path) as run:
        for number in range(1, 4):
            with run.task("step"), flightlog.span("inner"):
                run.metric("loss", 1 / number)
            assert run.summary().tasks.completed == number
            assert [len(table.rows()) for table in (run.tasks, run.spans)] == [number, number]
    assert run.summary() == flightlog.open_run(run.path).summary()


def test_a_run_is_analyzed_while_it_is_recorded(tmp_path):
    with flightlog.record("trial", runs_dir=tmp_path) as before, before.task("step"):
        pass
    with flightlog.record("trial", runs_dir=tmp_path) as run:
        with run.task("step"):
            pass
        with pytest.raises(ValueError, match="too large"), run.task("step"):
            raise ValueError("too large")
        found = flightlog.report(run)
        assert (found.run.run_id, found.tasks.completed, found.tasks.failed) == (run.run_id, 1, 1)
        assert [cause.tasks for cause in flightlog.diagnose(run).causes] == [{"step": 1}]
        assert flightlog.compare(before, run).tasks["failed"].after == 1
        assert flightlog.advise(run) == flightlog.advise(project="trial", runs_dir=tmp_path)


def test_where_nothing_is_recorded_there_is_nothing_to_read(monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_TELEMETRY", "0")
    with flightlog.record("trial") as run, pytest.raises(RunNotFound, match="nothing is recorded"):
        run.summary()


def test_recording_loads_nothing_of_what_reads(tmp_path):
    program = """\
import sys, flightlog
with flightlog.record("trial", sample_interval_s=None) as run:
    run.metric("x", 1.0)
print({"duckdb", "flightlog.analyze", "flightlog.store.run"} & {*sys.modules})
"""
    (tmp_path / "program.py").write_text(program)
    environ = {"FLIGHTLOG_COMPLETE": "later"}
    assert run_in(tmp_path, "env", *map("=".join, environ.items()), sys.executable, "program.py") == "set()\n"
