"""Real Dask workers that cannot see the run directory: a mount of their own hides the runs from them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, get_worker

import flightlog
from flightlog.engines.execute import execute
from flightlog.engines.relay.chunks import ChunkReceiver
from flightlog.engines.relay.recording import depart, place_here, settle
from flightlog.events import ResourceSample, TaskStarted
from flightlog.record.context import carrier, current_run
from flightlog.session.session import Session
from flightlog.store.run import Run
from flightlog.testing.engines import make_work, recorded

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

TOPIC = "flightlog-test-parcels"
HIDE = 'mount -t tmpfs none "$0" && exec "$@"'
TESTS = Path(__file__).parent


# --- what happens on a worker


def way_home(worker: Any) -> Callable[[bytes], None]:
    """Hand a parcel to the scheduler, and wait until it has it."""

    def send(parcel: bytes) -> None:
        sending = worker.scheduler.log_event(topic=TOPIC, msg=parcel)
        asyncio.run_coroutine_threadsafe(sending, worker.loop.asyncio_loop).result(10)

    return send


def attempt(work: Any) -> Any:
    """As an engine does it: find the place, and execute."""
    from msgspec.structs import replace

    place = place_here(work.place, way_home(get_worker()))
    return execute(replace(work, place=place), worker=get_worker().address, alone=True)


async def leave() -> bool:
    """On the worker's event loop, which parcels need, too: so elsewhere."""
    return await asyncio.to_thread(depart, timeout_s=20)


def simulate(folder: str) -> tuple[str, bool]:
    """A task that records all kinds of things; gives where it did."""
    with flightlog.span("simulate.step", seed=1):
        with flightlog.span("simulate.inner"):
            pass
    run = current_run()
    assert run is not None
    file = Path(folder) / "output.csv"
    file.write_text("a,b\n")
    run.record_artifact(file, kind="result")
    run.emit(ResourceSample(scope="worker", worker="w", host="h", cpu_percent=7.5))
    return str(run.path), Path(os.environ["HIDDEN_RUNS"], run.path.name).exists()


def record_and_die(name: str) -> None:
    """Record, and be killed in the same breath: nothing of it can have been sent."""
    with flightlog.span(name):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


# --- the cluster


class Cluster:
    """A scheduler, and workers that do not see what stands in `hidden`."""

    def __init__(self, folder: Path, hidden: Path) -> None:
        self._folder, self._hidden = folder, hidden
        self._made: list[subprocess.Popen[bytes]] = []
        self._file = folder / "scheduler.json"
        self._start(
            "distributed.cli.dask_scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--scheduler-file",
            str(self._file),
            "--no-dashboard",
            "--no-show",
        )
        self.client = Client(scheduler_file=str(self._file), timeout=60)

    def add_worker(self, name: str) -> subprocess.Popen[bytes]:
        """A worker process without nanny, when it is there."""
        before = len(self.client.scheduler_info(n_workers=-1)["workers"])
        made = self._start(
            "distributed.cli.dask_worker",
            "--scheduler-file",
            str(self._file),
            "--name",
            name,
            "--no-nanny",
            "--nthreads",
            "1",
            "--no-dashboard",
            "--local-directory",
            str(self._folder),
            hide=True,
        )
        self.client.wait_for_workers(before + 1, timeout=60)
        return made

    def close(self) -> None:
        """End everything that was started."""
        with contextlib.suppress(Exception):
            self.client.close(timeout=5)
        for process in reversed(self._made):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)

    def _start(self, module: str, *args: str, hide: bool = False) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", module, *args]
        if hide:
            command = [
                "unshare",
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                HIDE,
                str(self._hidden),
                *command,
            ]
        spools = self._folder / "tmp"
        spools.mkdir(exist_ok=True)
        env = {"TMPDIR": str(spools), "PYTHONPATH": str(TESTS), "HIDDEN_RUNS": str(self._hidden)}
        with (self._folder / "stderr").open("ab") as err:
            self._made.append(
                subprocess.Popen(command, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=err)
            )
        return self._made[-1]

    def spools(self) -> list[Path]:
        return list((self._folder / "tmp").glob("flightlog-spool-*/*/*"))


@pytest.fixture
def cluster(tmp_path) -> Iterator[Cluster]:
    if os.getuid() != 0:
        pytest.skip("a mount of one's own needs root")
    (tmp_path / "runs").mkdir()
    (tmp_path / "dask").mkdir()
    made = Cluster(tmp_path / "dask", tmp_path / "runs")
    yield made
    made.close()


def spans_of(path: Path) -> dict[str, Any]:
    return {event.name: event for event in Run(path).events("spans") if type(event).__name__ == "SpanEvent"}


def test_what_tasks_record_arrives_with_the_right_parent(tmp_path, cluster):
    worker = cluster.add_worker("one")
    with recorded(tmp_path / "runs") as (path, _):
        landing = ChunkReceiver(path)
        cluster.client.subscribe_topic(TOPIC, lambda event: landing.take(event[1]))
        work = make_work(simulate, str(tmp_path), place=carrier())
        outcome = cluster.client.submit(attempt, work, pure=False).result(60)
        assert outcome.end == "completed", outcome
        [gone] = cluster.client.run(leave).values()
        assert gone
        assert landing.close()
        assert cluster.spools() == []
        where, seen = pickle.loads(outcome.result)
        assert (Path(where).name, seen) == (path.name, False)
        assert Path(where) != path
    spans = spans_of(path)
    assert spans["simulate.step"].parent_id == work.span_id
    assert spans["simulate.inner"].parent_id == spans["simulate.step"].span_id
    [started] = [event for event in Run(path).events("tasks") if isinstance(event, TaskStarted)]
    assert (started.task_id, started.parent_id) == (work.task_id, work.place["traceparent"].split("-")[2])
    [artifact] = Run(path).events("artifacts")
    assert (artifact.uri, artifact.size_bytes) == (str(tmp_path / "output.csv"), 4)
    assert [s.cpu_percent for s in Run(path).events("resources") if getattr(s, "worker", "") == "w"] == [7.5]
    complete = Run(path).completeness()
    assert (complete.lost, complete.problems, complete.notes) == ({}, (), ())
    assert worker.poll() is None


def test_what_a_killed_worker_recorded_last_is_sent_by_another_on_its_host(tmp_path, cluster):
    first = cluster.add_worker("first")
    with recorded(tmp_path / "runs") as (path, _):
        landing = ChunkReceiver(path)
        cluster.client.subscribe_topic(TOPIC, lambda event: landing.take(event[1]))
        place = carrier()
        doomed = cluster.client.submit(
            attempt,
            make_work(record_and_die, "last words", place=place),
            pure=False,
            workers="first",
            allow_other_workers=False,
        )
        first.wait(60)
        doomed.cancel()
        assert first.returncode == -signal.SIGKILL
        assert len(cluster.spools()) == 1
        cluster.add_worker("second")
        work = make_work(simulate, str(tmp_path), place=place)
        assert (
            cluster.client.submit(attempt, work, pure=False, workers="second").result(60).end == "completed"
        )
        until_alone = cluster.client.submit(wait_for_one_spool, workers="second", pure=False)
        assert until_alone.result(60) == 1
        [gone] = cluster.client.run(leave).values()
        assert gone
        assert landing.close()
    assert sorted(spans_of(path)) == ["last words", "simulate.inner", "simulate.step"]
    assert cluster.spools() == []
    assert Run(path).completeness().notes == (
        "1 recording process exited unexpectedly; all they had recorded is here",
    )


def test_a_session_on_such_a_cluster_records_what_its_tasks_do(tmp_path, cluster):
    cluster.add_worker("one")
    address = cluster.client.scheduler.address
    (tmp_path / "flightlog.yaml").write_text(
        f"version: 1\nproject: {{name: demo}}\ntargets: {{there: {{provider: dask, address: '{address}'}}}}\n"
    )
    with Session.from_yaml(tmp_path, runs_dir=tmp_path / "runs", progress=False) as session:
        results = session.client.gather(session.client.map(simulate, [str(tmp_path)] * 3))
        assert {seen for _, seen in results} == {False}
    [path] = (tmp_path / "runs").glob("run-*")
    run = Run(path)
    kinds = [(type(event).__name__, event.task_id) for event in run.events("tasks")]
    started = [task_id for kind, task_id in kinds if kind == "TaskStarted"]
    assert sorted(started) == sorted(task_id for kind, task_id in kinds if kind == "TaskCompleted")
    assert len(started) == 3
    spans = [event for event in run.events("spans") if type(event).__name__ == "SpanEvent"]
    outer = [span for span in spans if span.name == "simulate.step"]
    assert {span.parent_id for span in spans if span.name == "simulate.inner"} == {s.span_id for s in outer}
    ends = [event for event in run.events("tasks") if type(event).__name__ == "TaskCompleted"]
    assert sorted(span.parent_id for span in outer) == sorted(end.span_id for end in ends)
    assert len(list(run.events("artifacts"))) == 3
    assert (run.completeness().lost, run.completeness().problems, run.completeness().notes) == ({}, (), ())
    assert not (path / "segments").exists()
    assert cluster.spools() == []


def test_a_watched_client_of_such_a_cluster_records_what_its_tasks_do(tmp_path, cluster):
    cluster.add_worker("one")
    with flightlog.watch(cluster.client, project="demo", runs_dir=tmp_path / "runs"):
        futures = cluster.client.map(simulate, [str(tmp_path)] * 3, pure=False)
        results = cluster.client.gather(futures)
        assert {seen for _, seen in results} == {False}
        del futures
    [path] = (tmp_path / "runs").glob("run-*")
    run = Run(path)
    assert sorted(event.name for event in run.events("spans") if type(event).__name__ == "SpanEvent") == [
        *["simulate.inner"] * 3,
        *["simulate.step"] * 3,
    ]
    assert len(list(run.events("artifacts"))) == 3
    assert (run.completeness().lost, run.completeness().problems, run.completeness().notes) == ({}, (), ())
    assert not (path / "segments").exists()
    assert cluster.spools() == []


def wait_for_one_spool() -> int:
    """Until this worker has sent what others left, and removed it."""
    root = Path(os.environ["TMPDIR"])
    while len(found := list(root.glob("flightlog-spool-*/*/*"))) > 1:
        assert settle(20)
        time.sleep(0.05)
    return len(found)
