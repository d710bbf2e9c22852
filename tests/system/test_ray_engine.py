"""The engine on Ray keeps the contract of engines."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess

import msgspec
import psutil
import pytest

from flightlog.core.errors import UsageError
from flightlog.engines.contract import Resources
from flightlog.engines.ray.engine import RayEngine
from flightlog.events import WorkerLost
from flightlog.testing import tasks
from flightlog.testing.engines import ProcessEngineContract, Reported, make_work

LEAST_STORE_BYTES = 80 << 20
"""The smallest object store that Ray starts with, and a little more."""

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'flightlog[ray]'")

pytestmark = pytest.mark.system


@pytest.fixture(scope="module", autouse=True)
def a_ray():
    """One Ray for all tests: engines find that this process is connected already, and leave it so.

    Gives how the program took SIGTERM before.
    """
    before = signal.getsignal(signal.SIGTERM)
    first = RayEngine(num_cpus=2, object_store_memory_bytes=LEAST_STORE_BYTES)
    first._connect()
    yield before
    ray.shutdown()


class TestRay(ProcessEngineContract):
    def make_engine(self, workers):
        return RayEngine(max_workers=workers)

    def test_a_task_runs_in_a_process_of_rays_and_can_use_ray_itself(self):
        outcome = self.outcome_of(eval, "__import__('ray').get(__import__('ray').put(41)) + 1")
        assert (outcome.end, pickle.loads(outcome.result or b"")) == ("completed", 42)

    def test_a_worker_that_dies_with_nothing_to_do_is_lost_too(self):
        with self.running() as (engine, reported):
            work = make_work(tasks.who)
            engine.submit(work)
            pid = reported.outcome(work).pid
            os.kill(pid, signal.SIGKILL)
            lost = reported.wait_worker(WorkerLost)
            assert (lost.pid, lost.signal) == (pid, "SIGKILL")
            assert lost.reason.startswith("its process was killed by SIGKILL")
            assert list(engine.workers()) == []

    def test_what_a_task_has_started_ends_with_it(self):
        command = ["sleep", f"600.{os.getpid()}"]
        with self.running() as (engine, reported):
            work = make_work(subprocess.call, command, timeout_s=2.0)
            engine.submit(work)
            assert reported.outcome(work).end == "timed_out"
            left = [
                process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == command
            ]
            assert psutil.wait_procs(left, timeout=30)[1] == []

    def test_a_task_gets_what_its_component_asks_for(self):
        engine, reported = RayEngine(components={"large": Resources(cpus=2.0)}), Reported()
        engine.start(None, reported)
        code = "__import__('ray').get_runtime_context().get_assigned_resources()"
        works = [make_work(eval, code), msgspec.structs.replace(make_work(eval, code), component="large")]
        for work in works:
            engine.submit(work)
        given = [pickle.loads(reported.outcome(work).result or b"") for work in works]
        engine.close()
        assert given == [{"CPU": 1.0}, {"CPU": 2.0}]

    def test_a_connection_that_was_there_before_stays(self):
        with self.running():
            pass
        assert ray.is_initialized()


def test_the_program_keeps_its_own_way_of_taking_sigterm(a_ray):
    assert signal.getsignal(signal.SIGTERM) == a_ray


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"address": "ray://head:10001"},
            "the address 'ray://head:10001' is that of Ray's client server, through which workers cannot "
            "be followed: "
            "start the program on a node of the cluster, with `address: auto`",
        ),
        (
            {"address": "auto", "num_cpus": 2},
            "num_cpus is for a Ray that is started here, and there is an address, 'auto'",
        ),
        ({"max_workers": 0}, "max_workers is 0; it must be a whole number, 1 or more"),
    ],
)
def test_options_that_make_no_sense_are_told(options, message):
    with pytest.raises(UsageError) as caught:
        RayEngine(**options)
    assert str(caught.value) == message
