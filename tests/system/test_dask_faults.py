"""What goes wrong in a Dask cluster that is watched: nothing recorded is lost, and every task has one end or
is in flight."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import dask
import pytest
from distributed import Client, LocalCluster, wait

import flightlog
from flightlog.events import (
    Failure,
    SpanEvent,
    TaskCompleted,
    TaskEnded,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    WorkerLost,
)

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


def quick(x):
    with flightlog.span("inside", x=x):
        return x


def sleep_here(seconds, marker):
    """Sleep, and say in a file where."""
    from distributed import get_worker

    with flightlog.span("sleeping"), Path(marker).open("a") as out:
        out.write(f"{os.getpid()} {get_worker().address}\n")
        out.flush()
        time.sleep(seconds)
    return "slept"


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def hoard():
    held = []
    while True:
        held.append(b"x" * 20_000_000)
        time.sleep(0.02)


def of(path, *kinds):
    run = flightlog.open_run(path)
    found = [
        one for name in {kind.stream for kind in kinds} for one in run.events(name) if isinstance(one, kinds)
    ]
    return sorted(found, key=lambda event: (event.timestamp, event.seq))


def until(true, patience_s=60.0):
    """Wait for something that has to come; gives what it gave."""
    end = time.monotonic() + patience_s
    while not (found := true()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
    return found


def line_of(path):
    return (
        path.read_text().splitlines()[0].split()
        if path.exists() and path.read_text().endswith("\n")
        else None
    )


def each_task_has_one_end_or_is_in_flight(path):
    ends = Counter(end.task_id for end in of(path, TaskEnded))
    submitted = {event.task_id for event in of(path, TaskSubmitted)}
    assert set(ends) <= submitted
    assert set(ends.values()) <= {1}
    assert flightlog.open_run(path).completeness().lost == {}
    return submitted - set(ends)


@contextmanager
def watched_cluster(folder, **options):
    settings = {"distributed.scheduler.allowed-failures": options.pop("allowed_failures", 3)}
    with (
        dask.config.set(settings),
        LocalCluster(threads_per_worker=1, dashboard_address=":0", **options) as cluster,
        Client(cluster) as client,
        flightlog.watch(client, runs_dir=folder) as run,
    ):
        yield client, run


def test_a_worker_killed_by_sigkill_is_lost_with_its_signal_and_its_task_runs_elsewhere(tmp_path):
    marker = tmp_path / "marker"
    with watched_cluster(tmp_path / "runs", n_workers=2) as (client, run):
        client.gather(client.map(quick, range(20)))
        future = client.submit(sleep_here, 1.0, marker)
        pid, address = until(lambda: line_of(marker))
        os.kill(int(pid), signal.SIGKILL)
        assert future.result() == "slept"
    [lost] = of(run.path, WorkerLost)
    assert (lost.worker, lost.pid, lost.signal, lost.exit_code) == (address, int(pid), "SIGKILL", None)
    assert lost.reason.startswith("its process was killed by SIGKILL")
    assert "Dask: handle-worker-cleanup (its connection to the scheduler closed)" in lost.reason
    [retried] = of(run.path, TaskRetried)
    assert retried.reason == f"its worker {address} was lost: {lost.reason}"
    [end] = [end for end in of(run.path, TaskEnded) if end.task == "sleep_here"]
    assert (type(end), end.attempt, end.worker != address) == (TaskCompleted, 2, True)
    assert each_task_has_one_end_or_is_in_flight(run.path) == set()
    assert len([span for span in of(run.path, SpanEvent) if span.name == "inside"]) == 20


def test_a_task_that_kills_its_workers_fails_with_their_history(tmp_path):
    with watched_cluster(tmp_path, n_workers=1, allowed_failures=1) as (client, run):
        future = client.submit(die)
        wait(future)
        assert type(future.exception()).__name__ == "KilledWorker"
    [end] = of(run.path, TaskFailed)
    assert (end.error_type, end.attempt) == ("KilledWorker", 2)
    lost = of(run.path, WorkerLost)
    assert [event.signal for event in lost] == ["SIGKILL", "SIGKILL"]
    assert f"workers: {lost[0].worker}, {lost[1].worker}" in end.error_message
    assert "its process was killed by SIGKILL" in end.error_message
    assert each_task_has_one_end_or_is_in_flight(run.path) == set()


def test_a_worker_that_its_nanny_ends_for_memory_says_so(tmp_path):
    with watched_cluster(tmp_path, n_workers=1, memory_limit="400 MB", allowed_failures=0) as (client, run):
        future = client.submit(hoard)
        wait(future)
    [lost], [end] = of(run.path, WorkerLost), of(run.path, TaskFailed)
    assert lost.reason.startswith("its nanny ended it for memory: ")
    assert lost.signal in ("SIGTERM", "SIGKILL")
    assert (end.error_type, lost.reason in end.error_message) == ("KilledWorker", True)


# --- schedulers, workers and clients in processes of their own


@contextmanager
def ended(process):
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def start(module, *options, inside=(), environ=None):
    return subprocess.Popen(
        [*inside, sys.executable, "-m", f"distributed.cli.{module}", *options],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), **(environ or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def scheduler(folder, *options, environ=None):
    return start(
        "dask_scheduler",
        "--port",
        "0",
        "--no-dashboard",
        "--no-show",
        "--scheduler-file",
        str(folder / "scheduler.json"),
        *options,
        environ=environ,
    )


def worker(address, *options, inside=(), environ=None):
    return start(
        "dask_worker",
        address,
        "--nthreads",
        "1",
        "--no-nanny",
        "--no-dashboard",
        *options,
        inside=inside,
        environ=environ,
    )


def address_in(folder):
    found = until(lambda: (folder / "scheduler.json").exists() and (folder / "scheduler.json").read_text())
    return json.loads(found)["address"]


PROGRAM = """
    import os, sys, time
    import flightlog
    from distributed import Client

    def quick(x):
        return x

    if __name__ == "__main__":
        address, runs, how = sys.argv[1:]
        client = Client(address)
        watched = flightlog.watch(client, runs_dir=runs)
        client.gather(client.map(quick, range(50)))
        future = client.submit(time.sleep, 60, key="long")
        while not any(client.processing().values()):
            time.sleep(0.05)
        time.sleep(1.5)
        print(watched.run.path, flush=True)
        if how == "leave":
            raise SystemExit(0)
        if how == "vanish":
            os._exit(1)
        try:
            future.result(timeout=20)
        except BaseException as error:
            print(type(error).__name__, flush=True)
        client.close(timeout=1)
        print("went on", flush=True)
"""


@contextmanager
def program(folder, address, how):
    (folder / "program.py").write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, "-u", "program.py", address, str(folder / "runs"), how]
    with ended(subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)) as process:
        yield process, Path(process.stdout.readline().strip())


def plugins_of(dask_scheduler=None):
    found = (dask_scheduler.plugins, dask_scheduler.worker_plugins, dask_scheduler.nanny_plugins)
    return [name for names in found for name in names if name.startswith("flightlog")]


def test_when_the_scheduler_is_killed_the_record_has_what_happened_and_why_the_rest_is_in_flight(tmp_path):
    with ended(scheduler(tmp_path)) as killed:
        address = address_in(tmp_path)
        with ended(worker(address)), program(tmp_path, address, "stay") as (process, path):
            killed.kill()
            said = process.stdout.read()
            assert process.wait() == 0
    assert said.endswith("went on\n")
    assert each_task_has_one_end_or_is_in_flight(path) == {"long"}
    assert len(of(path, TaskCompleted)) == 50
    [failure] = of(path, Failure)
    assert (failure.scope, failure.error_type) == ("run", "SchedulerLost")
    assert failure.message.endswith("was lost; one task was in flight")
    [started] = [event for event in of(path, TaskStarted) if event.task_id == "long"]
    assert started.worker is not None


@pytest.mark.parametrize(("how", "status"), [("leave", "completed"), ("vanish", "crashed")])
def test_a_client_that_exits_without_closing_leaves_its_record_and_no_plugins(tmp_path, how, status):
    with ended(scheduler(tmp_path)):
        address = address_in(tmp_path)
        with ended(worker(address)), program(tmp_path, address, how) as (process, path):
            process.wait()
            run = flightlog.open_run(path)
            assert run.status == status
            assert each_task_has_one_end_or_is_in_flight(path) == {"long"}
            assert len(of(path, TaskCompleted)) == 50
            with Client(address) as other:
                until(lambda: other.run_on_scheduler(plugins_of) == [])


CABLES = count()


@contextmanager
def network():
    """A network namespace joined to this one by a cable: its name, and the addresses of both ends."""
    number = (os.getpid() + next(CABLES)) % 250  # a cable that was cut may stay for a while
    name, here, there = f"flightlog{number}", f"flh{number}", f"flt{number}"
    mine, theirs = f"10.213.{number}.1", f"10.213.{number}.2"

    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    ip("netns", "add", name)
    try:
        ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
        ip("addr", "add", f"{mine}/24", "dev", here)
        ip("link", "set", here, "up")
        ip("-n", name, "addr", "add", f"{theirs}/24", "dev", there)
        ip("-n", name, "link", "set", there, "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield name, mine, theirs, lambda state: ip("link", "set", here, state)
    finally:
        ip("netns", "delete", name)


@pytest.mark.parametrize("tcp_timeout", ["60s", "12s"])
def test_a_partition_of_twenty_seconds_costs_no_record(tmp_path, tcp_timeout):
    """Where Dask sits it out, the task that ended meanwhile has its end; where it does not, it runs again
    elsewhere."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    marker = tmp_path / "marker"
    patience = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": tcp_timeout}
    with network() as (name, mine, _, cable), ended(scheduler(tmp_path, "--host", mine, environ=patience)):
        address = address_in(tmp_path)
        inside = ("ip", "netns", "exec", name)
        with (
            ExitStack() as later,
            ended(worker(address, "--name", "far", inside=inside, environ=patience)),
            dask.config.set({"distributed.comm.timeouts.tcp": tcp_timeout}),
            Client(address) as client,
        ):
            client.wait_for_workers(1, timeout=60)
            with flightlog.watch(client, runs_dir=tmp_path / "runs") as run:
                client.gather(client.map(quick, range(20)))
                future = client.submit(sleep_here, 10.0, marker)
                _, far = until(lambda: line_of(marker))
                cable("down")
                cut = time.monotonic()
                later.enter_context(ended(worker(address, "--name", "near", environ=patience)))
                time.sleep(max(0.0, 20.0 - (time.monotonic() - cut)))
                cable("up")
                assert future.result(timeout=60) == "slept"
    assert each_task_has_one_end_or_is_in_flight(run.path) == set()
    assert len([span for span in of(run.path, SpanEvent) if span.name == "inside"]) == 20
    [end] = [end for end in of(run.path, TaskCompleted) if end.task == "sleep_here"]
    lost = of(run.path, WorkerLost)
    if tcp_timeout == "60s":
        assert (end.attempt, end.worker, lost) == (1, far, [])
        assert end.duration_s == pytest.approx(10.0, abs=2.0)
    else:
        assert (end.attempt, end.worker != far, [event.worker for event in lost]) == (2, True, [far])
        [retried] = of(run.path, TaskRetried)
        assert retried.reason.startswith(f"its worker {far} was lost: Dask: ")


def test_a_worker_that_does_not_see_the_run_directory_sends_its_spans_home(tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    hide = (
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        'mount -t tmpfs none "$0" && exec "$@"',
    )
    own = {"TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    with ended(scheduler(tmp_path)):
        address = address_in(tmp_path)
        with ended(worker(address, inside=(*hide, str(runs)), environ=own)), Client(address) as client:
            client.wait_for_workers(1, timeout=60)
            with flightlog.watch(client, runs_dir=runs) as run:
                assert client.gather(client.map(quick, range(20))) == list(range(20))
    assert each_task_has_one_end_or_is_in_flight(run.path) == set()
    spans = {span.tags["x"]: span.parent_id for span in of(run.path, SpanEvent) if span.name == "inside"}
    assert spans == {end.args["x"]: end.span_id for end in of(run.path, TaskCompleted)}
    assert len(spans) == 20
