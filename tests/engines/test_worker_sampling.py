"""Workers sample what the run's own process does not see, and nothing twice."""

from __future__ import annotations

import os

import pytest

from flightlog.engines.relay.recording import (
    OncePerHost,
    SampledFrom,
    is_below,
    sample_worker,
    sampled_from_here,
)
from flightlog.events import ResourceSample
from flightlog.record.background import InterpreterSampling
from flightlog.record.recording import record
from flightlog.samplers.procfs import thread_waited_s
from flightlog.samplers.usage import UsageMeter
from flightlog.store.liveness import this_host
from flightlog.store.run import Run

HERE = this_host()


class Counted:
    def __init__(self):
        self.closed = False

    def sample(self):
        return [ResourceSample(scope="node", host=HERE, cpu_percent=None)]

    def close(self):
        self.closed = True


@pytest.fixture
def run(tmp_path):
    with record("sampling", runs_dir=tmp_path, sample_interval_s=None) as run:
        yield run


def test_one_process_of_a_host_samples_it_and_another_takes_over(tmp_path):
    made = []

    def make():
        made.append(Counted())
        return [made[-1]]

    first, second = (OncePerHost(make, tmp_path / "lock") for _ in range(2))
    assert [len(one.sample()) for one in (first, second, first)] == [1, 0, 1]
    first.close()
    assert (made[0].closed, len(made)) == (True, 1)
    assert [len(second.sample()), len(first.sample())] == [1, 0]
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_a_process_of_several_tasks_at_once_samples_how_long_threads_wait_for_the_interpreter(tmp_path):
    def sampled(interval_s, tasks):
        with record("sampling", runs_dir=tmp_path, sample_interval_s=None) as run:
            run.info.sample_interval_s = interval_s
            interpreter, meters = InterpreterSampling(run), [UsageMeter() for _ in range(tasks)]
            for meter in meters:
                meter.start()
            interpreter.sample()
            interpreter.sample()
            for meter in meters:
                meter.stop()
        return [(one.scope, one.pid, one.worker) for one in Run(run.path).events("resources")]

    expected = [] if thread_waited_s() is None else [("worker_process", os.getpid(), None)]
    assert sampled(3600.0, 2) == expected
    assert sampled(3600.0, 1) == sampled(None, 2) == []


def test_nothing_is_sampled_where_the_run_samples_nothing(run):
    home = sampled_from_here(str(run.path))
    assert home == SampledFrom(host=HERE, pid=os.getpid(), interval_s=None)
    assert sample_worker(run, "vm:1", home) is None


def test_a_process_below_the_runs_own_is_in_its_samples_already(run):
    assert is_below(os.getppid()) is True
    assert is_below(os.getpid()) is False
    for pid in (os.getppid(), os.getpid()):  # or it is the run's own, whose threads execute tasks
        assert sample_worker(run, "vm:1", SampledFrom(host=HERE, pid=pid, interval_s=1.0)) is None


def test_another_worker_of_the_host_samples_itself_alone(run):
    home = SampledFrom(host=HERE, pid=2**22, interval_s=60.0)  # no process has a number as high
    sample_worker(run, "vm:1", home).stop()
    found = {(e.scope, e.worker, e.pid) for e in Run(run.path).events("resources")}
    assert found == {("worker", "vm:1", os.getpid())}


def test_a_worker_on_another_host_samples_that_too(run):
    home = SampledFrom(host="elsewhere", pid=1, interval_s=60.0)
    sample_worker(run, "vm:1", home).stop()
    scopes = {event.scope for event in Run(run.path).events("resources")}
    assert {"worker", "node"} <= scopes
