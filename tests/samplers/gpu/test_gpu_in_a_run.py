"""A run recorded on a machine with a GPU that is made up: what its files, tables and report say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders.fake_nvml import FakeGpu, FakeNvml
from fake_machine import FakeClock, write

import flightlog
from flightlog.analyze.report.report import report_on
from flightlog.engines.execute import execute
from flightlog.events import ResourceSample, TaskCompleted
from flightlog.samplers.gpu import GpuSampler, task
from flightlog.samplers.gpu.driver import DriverFound, find_driver
from flightlog.samplers.gpu.task import GpuWatch
from flightlog.show.report import report_text
from flightlog.store.run import Run
from flightlog.testing.engines import make_work

GIB = 2**30
clock = FakeClock()


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu(
        total=140 * GIB, used=50 * GIB, reserved=GIB, gpu_percent=75, processes={os.getpid(): 40 * GIB}
    )


@pytest.fixture
def find(tmp_path: Path, gpu: FakeGpu) -> Iterator[object]:
    """The way to the GPU that is made up, for samplers and for tasks; tasks are watched without a thread."""
    write(tmp_path / "machine" / "dev" / "nvidiactl", "")
    nvml = FakeNvml([gpu])

    def found() -> DriverFound:
        return find_driver(nvml=nvml, environ={}, root=tmp_path / "machine")

    watch = GpuWatch(found, clock, {}, spawn=lambda run: None)
    watch.open()
    task._watch, task._looked = watch, True
    yield found
    task._start_afresh()


def train(seconds: float) -> None:
    clock.now += seconds


class Telling(GpuSampler):
    """Says when the first sample has been taken."""

    def sample(self) -> Sequence[ResourceSample]:
        found = super().sample()
        self.sampled.set()
        return found

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.sampled = threading.Event()


def completed(run: Run) -> TaskCompleted:
    (event,) = (event for event in run.events("tasks") if isinstance(event, TaskCompleted))
    return event


def recorded(tmp_path: Path, find: object, gpu: FakeGpu) -> Run:
    sampler = Telling(find, host="node-1", first_look_s=60)
    with flightlog.record("demo", runs_dir=tmp_path, samplers=[sampler], sample_interval_s=60) as run:
        with run.task("train", epochs=3):
            train(4.0)
        assert sampler.sampled.wait(60)
        gpu.energy_mj += 7_200_000
    return Run(run.path)


def test_the_samples_of_a_run_hold_the_gpu(tmp_path: Path, find: object, gpu: FakeGpu) -> None:
    run = recorded(tmp_path, find, gpu)
    lines = [json.loads(line) for line in (run.path / "resources.jsonl").read_text().splitlines()]
    first, last = (line for line in lines if line["scope"] == "gpu")
    assert (first["gpu_memory_used_bytes"], first["gpu_process_memory_bytes"], first["gpu_power_w"]) == (
        50 * GIB,
        40 * GIB,
        300.0,
    )
    assert first["gpu_throttle_reasons"] == ["power_cap"]
    assert (last["final"], last["gpu_energy_j"] - first["gpu_energy_j"]) == (True, 7200.0)
    assert (run.info.overhead or {})["problems"] == []


def test_a_task_has_its_gpu_figures_in_its_event_and_in_the_tables(
    tmp_path: Path, find: object, gpu: FakeGpu
) -> None:
    run = recorded(tmp_path, find, gpu)
    expected = (40 * GIB, "process", 3.0, "process")
    event = completed(run)
    assert (event.gpu_peak_bytes, event.gpu_memory_scope, event.gpu_s, event.gpu_scope) == expected
    columns = "gpu_peak_bytes, gpu_memory_scope, gpu_s, gpu_scope"
    assert list(run.sql(f"SELECT {columns} FROM attempts").rows()) == [expected]
    assert list(run.sql(f"SELECT {columns} FROM tasks").rows()) == [expected]
    assert list(
        run.sql(
            "SELECT DISTINCT gpu_name, gpu_throttle_reasons FROM resources WHERE gpu_clock_mhz = 1980"
        ).rows()
    ) == [("NVIDIA H200", ["power_cap"])]


def test_a_report_shows_the_gpu_and_the_tasks_use_of_it(tmp_path: Path, find: object, gpu: FakeGpu) -> None:
    report = report_on(recorded(tmp_path, find, gpu))
    text = report_text(report, width=200)
    assert "GPU:            NVIDIA H200; busy 75% of the time, 75% max" in text
    assert "GPU memory:     50.0 GiB of 140.0 GiB peak on one device; by this run 40.0 GiB" in text
    assert "GPU power:      300 W max on one device, 2.0 Wh in all, 61 °C max" in text
    assert "GPU throttled:  GPU 0 on node-1 by its power limit in 100% of samples" in text
    table = report_text(report, width=200, parts=["tasks"])
    head, row = (line for line in table.splitlines() if line.split()[:1] in (["Name"], ["train"]))
    assert head.split()[-4:] == ["GPU", "time", "Peak", "GPU"]
    assert row.endswith("3.0s  40.0 GiB (process)")


def test_an_engines_attempt_measures_the_gpu_where_it_runs(find: object) -> None:
    outcome = execute(make_work(train, 2.0), worker="here", alone=True)
    assert (outcome.gpu_peak_bytes, outcome.gpu_memory_scope, outcome.gpu_s, outcome.gpu_scope) == (
        40 * GIB,
        "process",
        1.5,
        "process",
    )


def test_a_gpu_that_cannot_be_read_is_a_problem_of_the_run_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "machine" / "dev" / "nvidiactl", "")
    broken = FakeNvml(failing={"nvmlInit": "DriverNotLoaded"})
    sampler = GpuSampler(
        lambda: find_driver(nvml=broken, environ={}, root=tmp_path / "machine"), first_look_s=60
    )
    with flightlog.record("demo", runs_dir=tmp_path, samplers=[sampler], sample_interval_s=60) as run:
        pass
    note = (
        "a GPU of NVIDIA seems to be here (/dev/nvidiactl is there), but it is not sampled: "
        "NVML says: Driver Not Loaded"
    )
    assert (Run(run.path).info.overhead or {})["problems"] == [note]
    assert not (run.path / "resources.jsonl").exists()


COMMAND = """
import os, sys
from contextlib import suppress
from builders.fake_nvml import FakeGpu, FakeNvml
from flightlog.record.command.run_command import run_command
from flightlog.samplers.gpu import task as gpu_task
from flightlog.samplers.gpu.driver import find_driver
from flightlog.samplers.gpu.task import GpuWatch

class Below(FakeNvml):
    # Whatever runs below this process is on the GPU, and may end once that was seen.
    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
        seen, handle.processes = bool(handle.processes), {int(pid): 123 for pid in children}
        if seen:  # by an earlier look, which is over
            with suppress(OSError):  # it does not wait yet, or not any more
                os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        return super().nvmlDeviceGetComputeRunningProcesses(handle)

nvml, (machine, runs, fifo) = Below(), sys.argv[1:]
watch = GpuWatch(lambda: find_driver(nvml=nvml, environ={}, root=machine), modules={})
gpu_task._watch, gpu_task._looked = watch, True
run_command(["cat", fifo], runs_dir=runs)
"""


def test_a_command_has_the_gpu_memory_of_its_process_tree(tmp_path: Path) -> None:
    write(tmp_path / "machine" / "dev" / "nvidiactl", "")
    os.mkfifo(tmp_path / "fifo")
    words = [str(tmp_path / name) for name in ("machine", "runs", "fifo")]
    tests = str(Path(__file__).parents[2])
    subprocess.run(
        [sys.executable, "-c", COMMAND, *words], env={**os.environ, "PYTHONPATH": tests}, check=True
    )
    (path,) = (tmp_path / "runs").glob("run-*")
    event = completed(Run(path))
    assert (event.gpu_peak_bytes, event.gpu_memory_scope) == (123, "process")
