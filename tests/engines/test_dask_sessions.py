"""Sessions on Dask: what tasks record arrives with its parents, functions of the program travel, clusters are
left alone."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest
from distributed import Client, LocalCluster

from flightlog.core.errors import UsageError
from flightlog.engines import make_engine
from flightlog.engines.dask.cluster import address_in, connect
from flightlog.engines.dask.engine import DaskEngine
from flightlog.events import SpanEvent, TaskCompleted, TaskFailed, TaskRetried, TaskStarted
from flightlog.record.context import active_runs
from flightlog.session.manifest import parse_manifest
from flightlog.session.session import Session
from flightlog.store.run import Run
from flightlog.testing import tasks

HEAD = "version: 1\nproject:\n  name: trial\ntargets:\n  there:\n    provider: dask\n"


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address=":0"
    ) as made:
        yield made


def session_on(cluster, folder, **options):
    manifest = parse_manifest(HEAD + f"    address: {cluster.scheduler_address}\n", folder / "flightlog.yaml")
    return Session(manifest, target="there", runs_dir=folder / "runs", sample_interval_s=None, **options)


def test_attempts_and_their_spans_are_recorded_with_the_worker_and_the_parent(cluster, tmp_path):
    with session_on(cluster, tmp_path) as session:
        good = session.client.submit(tasks.record_inside, "inside")
        bad = session.client.submit(tasks.fail, "no such model", retries=1)
        task_span = good.result()
        assert isinstance(bad.exception(), ValueError)
    run = Run(session.path)
    (inside,) = [e for e in run.events("spans") if isinstance(e, SpanEvent) and e.name == "inside"]
    assert inside.parent_id == task_span
    events = list(run.events("tasks"))
    kinds = {
        kind: [(e.task, e.attempt) for e in events if isinstance(e, kind)]
        for kind in (TaskStarted, TaskRetried, TaskCompleted, TaskFailed)
    }
    assert {kind: sorted(found) for kind, found in kinds.items()} == {
        TaskStarted: [("fail", 1), ("fail", 2), ("record_inside", 1)],
        TaskRetried: [("fail", 1)],
        TaskCompleted: [("record_inside", 1)],
        TaskFailed: [("fail", 2)],
    }
    workers = set(cluster.scheduler.workers)
    assert {e.worker for e in events if isinstance(e, TaskStarted)} <= workers
    assert run.info.status == "completed"


def test_results_of_other_tasks_and_large_ones_travel(cluster, tmp_path):
    with session_on(cluster, tmp_path) as session:
        first = session.client.submit(tasks.echo, b"x" * 1_000_000)
        second = session.client.submit(tasks.echo, first)
        assert second.result() == b"x" * 1_000_000


def test_two_sessions_share_a_cluster_and_leave_nothing_behind(cluster, tmp_path):
    plugins = set(cluster.scheduler.plugins)
    with session_on(cluster, tmp_path / "a") as one, session_on(cluster, tmp_path / "b") as two:
        mine = one.client.map(tasks.echo, range(20), key="same")
        theirs = two.client.map(tasks.echo, range(100, 120), key="same")
        assert one.client.gather(mine) == list(range(20))
        assert two.client.gather(theirs) == list(range(100, 120))
    assert set(cluster.scheduler.plugins) == plugins
    assert len(cluster.scheduler.workers) == 2
    assert not [key for key in cluster.scheduler.tasks if str(key).startswith("flightlog-")]
    assert not [name for worker in cluster.workers.values() for name in worker.plugins if "flightlog" in name]


def test_a_session_in_an_asynchronous_program_uses_the_cluster_of_its_client(tmp_path):
    async def program():
        async with (
            LocalCluster(
                n_workers=1,
                threads_per_worker=1,
                processes=False,
                protocol="tcp://",
                dashboard_address=":0",
                asynchronous=True,
            ) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            async with session_on(cluster, tmp_path, engine=DaskEngine(client=client)) as session:
                futures = session.client.map(tasks.echo, range(5))
                return [await asyncio.wrap_future(future) for future in futures]

    assert asyncio.run(program()) == [0, 1, 2, 3, 4]


PROGRAM = """
import sys
from pathlib import Path
from flightlog.record.context import active_runs
from flightlog.session.manifest import parse_manifest
from flightlog.session.session import Session

class Point:
    def __init__(self, x):
        self.x = x

def double(point):
    return Point(2 * point.x)

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with Session(parse_manifest(sys.argv[2], folder / "flightlog.yaml"), runs_dir=folder / "runs") as session:
        first = session.client.submit(double, Point(3))
        second = session.client.submit(double, first)
        plus = session.client.submit(lambda point: point.x + 1, second)
        print(type(second.result()) is Point, second.result().x, plus.result())
"""


def test_functions_classes_and_lambdas_of_the_program_itself_run_on_workers_that_do_not_know_it(
    cluster, tmp_path
):
    (tmp_path / "program.py").write_text(PROGRAM)
    manifest = HEAD + f"    address: {cluster.scheduler_address}\n"
    made = subprocess.run(
        [sys.executable, "-W", "error", str(tmp_path / "program.py"), str(tmp_path), manifest],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (made.returncode, made.stdout, made.stderr) == (0, "True 12 13\n", "")
    assert list(active_runs()) == []  # the workers live here, and have left the run with its session


def test_what_names_no_scheduler_is_told(tmp_path):
    with pytest.raises(UsageError, match="address and client name one cluster each"):
        DaskEngine(address="tcp://127.0.0.1:1", client=object())
    with pytest.raises(
        UsageError, match="n_workers is for a cluster that is started here; address names one"
    ):
        make_engine("dask", {"address": "tcp://127.0.0.1:1", "n_workers": 2})
    with pytest.raises(UsageError, match="names no scheduler: FileNotFoundError"):
        address_in(str(tmp_path / "nowhere.json"))
    (tmp_path / "scheduler.json").write_text('{"address": "tcp://127.0.0.1:8786"}')
    assert address_in(str(tmp_path / "scheduler.json")) == "tcp://127.0.0.1:8786"
    with pytest.raises(UsageError, match="is not connected to a scheduler"):
        DaskEngine(client=object()).start(None, object())


def test_whoever_listens_and_does_not_answer_is_told_in_time_and_no_client_is_left_waiting():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UsageError) as told:
            connect(address, timeout_s=0.2)
    assert str(told.value) == (
        f"no Dask scheduler can be reached at {address}: nobody answered within 0.2 s. "
        "Is it running, and is the address right?"
    )


@pytest.mark.parametrize(
    ("address", "why"),
    [("127.0.0.1", "missing port number in address"), ("foo://127.0.0.1:1", "unknown address scheme 'foo'")],
)
def test_an_address_that_cannot_be_one_is_told_at_once(address, why):
    with pytest.raises(UsageError, match=f"no Dask scheduler can be reached at {address}: {why}"):
        connect(address)
