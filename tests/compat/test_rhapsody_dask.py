"""RHAPSODY's Dask backend under its own name, on a real cluster of this machine."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import flightlog
from flightlog.compat.rhapsody import BackendError, ComputeTask, Session
from flightlog.compat.rhapsody.backends import DaskExecutionBackend
from flightlog.store.liveness import process_start, this_host
from flightlog.store.run import Run

RESOURCES = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}


def square(number: int) -> int:
    with flightlog.span("inner"):
        return number * number


def fail() -> None:
    raise ValueError("as it was told")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(tmp_path / "runs"))


def test_tasks_run_on_a_cluster_and_the_run_knows_where_and_how_long():
    async def run() -> tuple[list[ComputeTask], Any]:
        backend = await DaskExecutionBackend(RESOURCES)
        session = Session([backend])
        manager = await session.start_telemetry(resource_poll_interval=0.1)
        tasks = [
            ComputeTask(function=square, args=(3,), uid="good"),
            ComputeTask(function=fail, uid="bad"),
            ComputeTask(executable="/bin/sh", arguments=["-c", "echo hi; exit 3"], uid="wrong"),
            ComputeTask(function=square, args=(3,), uid="same"),
            ComputeTask(
                function=square, args=(1,), uid="x", task_backend_specific_kwargs={"resources": {"GPU": 9}}
            ),
        ]
        await session.submit_tasks(tasks)
        await session.wait_tasks(tasks, timeout=60)
        while not manager.summary()["resources"]:
            await asyncio.sleep(0.01)
        await session.close()
        with pytest.raises(RuntimeError, match="must be awaited before use"):
            await backend.submit_tasks([])
        return tasks, manager

    (good, bad, wrong, same, impossible), manager = asyncio.run(run())
    assert (good.state, good.return_value, same.return_value) == ("DONE", 9, 9)
    assert (bad.state, str(bad.exception)) == ("FAILED", "as it was told")
    assert (wrong.state, wrong.stdout, wrong.exit_code) == ("FAILED", "hi\n", 3)
    assert (impossible.state, "No worker can satisfy" in impossible.stderr) == ("FAILED", True)
    assert manager.summary()["tasks"] == {
        "submitted": 5,
        "completed": 2,
        "failed": 3,
        "canceled": 0,
        "running": 0,
    }
    (node,) = manager.summary()["resources"].values()
    assert 0 < node["memory_percent"] < 100
    recorded = Run(manager.run_path)
    ended = {event.task_id: event for event in recorded.events("tasks") if hasattr(event, "duration_s")}
    started = [e.task_id for e in recorded.events("tasks") if type(e).__name__ == "TaskStarted"]
    assert sorted(started) == ["bad", "good", "same", "wrong"]
    assert ended["good"].worker is not None
    assert ended["good"].duration_s is not None
    inside = {event.parent_id for event in recorded.events("spans") if type(event).__name__ == "SpanEvent"}
    assert inside == {ended["good"].span_id, ended["same"].span_id}


def test_a_client_that_is_given_must_be_asynchronous_and_stays_open():
    class Client:
        asynchronous = False

    with pytest.raises(ValueError, match="asynchronous=True"):
        asyncio.run(DaskExecutionBackend.create(client=Client()))

    class Ready:
        asynchronous, status, closed = True, "closed", False

        def subscribe_topic(self, topic: str, handler: Any) -> None:
            pass

        def unsubscribe_topic(self, topic: str) -> None:
            pass

    async def run() -> None:
        client = Ready()
        backend = await DaskExecutionBackend(client=client)
        with pytest.raises(BackendError, match="not usable"):
            await backend.submit_tasks([ComputeTask(function=square)])
        await backend.shutdown()
        assert not client.closed

    asyncio.run(run())


def test_samples_and_tasks_of_one_node_have_one_node_id():
    async def run() -> list[Any]:
        heard: list[Any] = []
        backend = await DaskExecutionBackend(RESOURCES)
        async with Session([backend]) as session:
            telemetry = await session.start_telemetry(resource_poll_interval=0.1)
            telemetry.subscribe(heard.append)
            task = ComputeTask(function=square, args=(3,))
            await session.submit_tasks([task])
            await session.wait_tasks([task], timeout=60)
            while not telemetry.summary()["resources"]:
                await asyncio.sleep(0.01)
        return heard

    heard = asyncio.run(run())
    sampled = {event.node_id for event in heard if event.event_type == "ResourceUpdate"}
    ran = {event.node_id for event in heard if event.event_type == "TaskCompleted"}
    assert sampled == ran == {this_host()}


@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_a_command_on_a_worker_ends_with_its_task(tmp_path, how):
    async def run() -> int:
        backend = await DaskExecutionBackend(RESOURCES)
        session = Session([backend])
        file = tmp_path / "pid"
        task = ComputeTask(
            executable="/bin/sh",
            arguments=["-c", f"sleep 600 & echo $! > {file}.new; mv {file}.new {file}; wait"],
        )
        await session.submit_tasks([task])
        while not file.exists():
            await asyncio.sleep(0.01)
        if how == "cancelled":
            assert await backend.cancel_task(task.uid)
            assert task.state == "CANCELED"
            await until_gone(int(file.read_text()))
        await session.close()
        return int(file.read_text())

    asyncio.run(until_gone(asyncio.run(run())))


async def until_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while process_start(pid) is not None:
        assert time.monotonic() < deadline, f"process {pid} is still there"
        await asyncio.sleep(0.02)
