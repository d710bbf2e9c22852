"""What one task used of the GPUs."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.fake_nvml import FakeGpu, FakeNvml
from fake_machine import FakeClock, write, write_process
from hypothesis import given
from hypothesis import strategies as st

from flightlog.events import Usage
from flightlog.samplers.gpu import task as gpu_task
from flightlog.samplers.gpu.driver import DriverFound, find_driver
from flightlog.samplers.gpu.task import GpuWatch, Mark, allocator_marks, peak_between
from flightlog.samplers.limits import SamplerLimits
from flightlog.samplers.usage import UsageMeter

ME = os.getpid()


def gpu_usage(peak_bytes: int, memory_scope: Any, busy_s: Any = None, scope: Any = None) -> Usage:
    return Usage(gpu_peak_bytes=peak_bytes, gpu_memory_scope=memory_scope, gpu_s=busy_s, gpu_scope=scope)


class FakeTorch:
    """As much of PyTorch as a program that has opened its GPUs shows; asking it to reset is an error."""

    def __init__(self, *marks: tuple[int, int], initialized: bool = True) -> None:
        self.marks, self.initialized = list(marks), initialized
        self.cuda = self

    def is_initialized(self) -> bool:
        return self.initialized

    def device_count(self) -> int:
        return len(self.marks)

    def memory_stats_as_nested_dict(self, device: int) -> dict[str, Any]:
        current, peak = self.marks[device]
        return {"allocated_bytes": {"all": {"current": current, "peak": peak, "allocated": 9, "freed": 9}}}


def watching(
    machine: Path, nvml: FakeNvml, clock: FakeClock, modules: dict[str, Any] | None = None
) -> GpuWatch:
    """A watch without a thread: a test looks by itself."""
    write(machine / "proc" / "driver" / "nvidia" / "version", "NVRM version: 580\n")
    write_process(machine / "proc", ME, 1)
    watch = GpuWatch(
        lambda: find_driver(nvml=nvml, environ={}, root=machine),
        clock,
        modules or {},
        machine / "proc",
        spawn=lambda run: None,
    )
    watch.open()
    return watch


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_without_pytorch_the_peak_is_the_process_trees_by_the_driver(
    tmp_path: Path, clock: FakeClock
) -> None:
    gpu = FakeGpu(processes={ME: 0})
    watch = watching(tmp_path, FakeNvml([gpu]), clock)
    task = watch.begin()
    for used in (3_000, 9_000, 2_000):
        gpu.processes[ME] = used
        clock.now += 1.0
        watch.look()
    assert task.stop() == gpu_usage(9_000, "process", pytest.approx(1.2), "process")


def test_where_the_driver_cannot_tell_whose_memory_it_is_the_peak_is_the_devices(
    tmp_path: Path, clock: FakeClock
) -> None:
    gpu = FakeGpu(used=70, gpu_percent=100, processes={400_000: 50})
    watch = watching(tmp_path, FakeNvml([gpu]), clock)
    task = watch.begin()
    clock.now += 2.0
    assert task.stop() == gpu_usage(70, "device", pytest.approx(2.0), "device")


def test_kernels_on_a_gpu_that_others_use_too_are_the_devices(tmp_path: Path, clock: FakeClock) -> None:
    gpu = FakeGpu(gpu_percent=50, processes={ME: 10, 400_000: 50})
    watch = watching(tmp_path, FakeNvml([gpu]), clock)
    task = watch.begin()
    clock.now += 2.0
    assert task.stop() == gpu_usage(10, "process", pytest.approx(1.0), "device")


def test_gpu_seconds_are_of_all_the_time_between_rare_looks(tmp_path: Path, clock: FakeClock) -> None:
    """A driver that takes long to answer is asked once a second, when the GPU is idle, as seen on an H200."""
    gpu = FakeGpu(gpu_percent=0, processes={ME: 5})
    watch = watching(tmp_path, FakeNvml([gpu]), clock)
    task = watch.begin()
    for second in range(10):
        gpu.history += [
            (second * 1_000_000 + (n + 1) * 200_000, percent) for n, percent in enumerate([69, 98, 33, 0, 0])
        ]
        clock.now += 1.0
        watch.look()
    assert task.stop() == gpu_usage(5, "process", pytest.approx(4.0), "process")


def test_gpu_seconds_of_several_gpus_are_added_and_memory_is_of_one(tmp_path: Path, clock: FakeClock) -> None:
    gpus = [FakeGpu(gpu_percent=100, processes={ME: 5}), FakeGpu(gpu_percent=50, processes={ME: 8})]
    watch = watching(tmp_path, FakeNvml(gpus), clock)
    task = watch.begin()
    clock.now += 4.0
    assert task.stop() == gpu_usage(8, "process", pytest.approx(6.0), "process")


def test_an_idle_gpu_of_others_makes_nobodys_kernels_ours(tmp_path: Path, clock: FakeClock) -> None:
    gpus = [FakeGpu(gpu_percent=100, processes={ME: 5}), FakeGpu(gpu_percent=0, processes={400_000: 8})]
    watch = watching(tmp_path, FakeNvml(gpus), clock)
    task = watch.begin()
    clock.now += 4.0
    assert task.stop() == gpu_usage(5, "process", pytest.approx(4.0), "process")


def test_a_short_task_asks_the_driver_nothing_and_has_no_gpu_seconds(
    tmp_path: Path, clock: FakeClock
) -> None:
    nvml = FakeNvml([FakeGpu(processes={ME: 5})])
    watch = watching(tmp_path, nvml, clock)
    nvml.calls.clear()
    task = watch.begin()
    clock.now += 0.04
    assert (task.stop(), nvml.calls) == (Usage(), {})


def test_a_task_of_less_than_a_second_has_memory_and_no_gpu_seconds(tmp_path: Path, clock: FakeClock) -> None:
    watch = watching(tmp_path, FakeNvml([FakeGpu(processes={ME: 5})]), clock)
    task = watch.begin()
    clock.now += 0.5
    assert task.stop() == gpu_usage(5, "process")


def test_tasks_that_share_their_process_have_no_gpu_seconds(tmp_path: Path, clock: FakeClock) -> None:
    watch = watching(tmp_path, FakeNvml([FakeGpu(processes={ME: 5})]), clock)
    task = watch.begin()
    clock.now += 5
    assert task.stop(shared=True) == gpu_usage(5, "process")


def test_a_driver_that_says_nothing_leaves_everything_unknown(tmp_path: Path, clock: FakeClock) -> None:
    gpu = FakeGpu()
    watch = watching(tmp_path, FakeNvml([gpu]), clock)
    gpu.failing["*"] = "GpuIsLost"
    task = watch.begin()
    clock.now += 5
    assert task.stop() == Usage()


def test_a_task_dropped_without_an_end_is_watched_no_more(tmp_path: Path, clock: FakeClock) -> None:
    nvml = FakeNvml()
    watch = watching(tmp_path, nvml, clock)
    watch.begin()  # and not kept
    nvml.calls.clear()
    watch.look()
    assert nvml.calls == {}


def test_a_commands_gpu_figures_are_those_of_its_tree(tmp_path: Path, clock: FakeClock) -> None:
    gpu = FakeGpu(gpu_percent=50, processes={900: 6})
    watch = watching(tmp_path, FakeNvml([gpu]), clock, {"torch": FakeTorch((1, 99))})
    write_process(tmp_path / "proc", 800, ME)
    write_process(tmp_path / "proc", 900, 800)
    task = watch.begin(800)
    clock.now += 2
    watch.look()
    gpu.processes.clear()  # it has ended
    assert task.stop() == gpu_usage(6, "process", pytest.approx(1.0), "process")


def test_pytorchs_own_peak_is_preferred(tmp_path: Path, clock: FakeClock) -> None:
    torch = FakeTorch((100, 100))
    watch = watching(tmp_path, FakeNvml([FakeGpu(processes={ME: 5_000})]), clock, {"torch": torch})
    task = watch.begin()
    torch.marks = [(120, 800)]
    clock.now += 0.01
    assert task.stop() == gpu_usage(800, "allocator")


def test_a_peak_that_did_not_rise_is_a_lower_bound(tmp_path: Path, clock: FakeClock) -> None:
    torch = FakeTorch((100, 800))
    watch = watching(tmp_path, FakeNvml(), clock, {"torch": torch})
    task = watch.begin()
    torch.marks = [(300, 800)]
    clock.now += 0.01
    assert task.stop() == gpu_usage(300, "allocator_at_least")


@pytest.mark.parametrize(
    "torch",
    [
        None,
        SimpleNamespace(),
        SimpleNamespace(cuda=None),
        FakeTorch((1, 2), initialized=False),
        SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True, device_count=lambda: 1)),
    ],
)
def test_pytorch_that_is_absent_half_imported_or_without_a_gpu_has_no_marks(torch: Any) -> None:
    assert allocator_marks({"torch": torch}) is None


def test_marks_are_read_for_every_device() -> None:
    assert allocator_marks({"torch": FakeTorch((1, 5), (0, 0))}) == (Mark(1, 5), Mark(0, 0))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]]]:
    devices = draw(st.integers(1, 3))
    sizes = st.lists(st.integers(0, 20), min_size=1, max_size=6)
    return [draw(sizes) for _ in range(devices)], [draw(sizes) for _ in range(devices)]


@given(histories())
def test_a_peak_is_never_above_the_true_one_and_an_exact_one_is_the_true_one(
    history: tuple[list[list[int]], list[list[int]]],
) -> None:
    """A device's sizes before the task, then during it; the first size of the task is the last one before
    it."""
    before, during = history
    marks = tuple(Mark(past[-1], max(past)) for past in before)
    after = tuple(Mark(now[-1], max(*past, *now)) for past, now in zip(before, during, strict=True))
    true = max(max(past[-1], *now) for past, now in zip(before, during, strict=True))
    found = peak_between(marks, after)
    if found is None:
        assert all(mark.current == 0 for mark in (*marks, *after))
    else:
        peak, scope = found
        assert peak <= true
        assert scope == "allocator_at_least" or peak == true


def test_a_first_use_of_pytorch_inside_the_task_is_exact_and_a_reset_makes_a_lower_bound() -> None:
    assert peak_between(None, (Mark(1, 7),)) == (7, "allocator")
    assert peak_between((Mark(3, 100),), (Mark(1, 7),)) == (7, "allocator_at_least")
    assert peak_between((Mark(3, 100),), None) is None


def test_a_meter_passes_on_what_the_gpus_say(tmp_path: Path, clock: FakeClock) -> None:
    watch = watching(tmp_path, FakeNvml([FakeGpu(processes={ME: 5})]), clock)
    meter = UsageMeter(gpu=watch.begin)
    meter.start()
    clock.now += 2
    usage = meter.stop()
    assert (usage.gpu_peak_bytes, usage.gpu_memory_scope, usage.gpu_s, usage.gpu_scope) == (
        5,
        "process",
        pytest.approx(0.8),
        "process",
    )


def test_of_two_meters_at_once_neither_has_gpu_seconds(tmp_path: Path, clock: FakeClock) -> None:
    watch = watching(tmp_path, FakeNvml([FakeGpu(processes={ME: 5})]), clock)
    meters = [UsageMeter(gpu=watch.begin) for _ in range(2)]
    for meter in meters:
        meter.start()
    clock.now += 2
    assert [(usage.gpu_peak_bytes, usage.gpu_s) for usage in (meter.stop() for meter in meters)] == [
        (5, None)
    ] * 2


def test_a_watching_thread_opens_the_driver_and_looks_while_a_task_runs(tmp_path: Path) -> None:
    write(tmp_path / "proc" / "driver" / "nvidia" / "version", "NVRM version: 580\n")
    write_process(tmp_path / "proc", ME, 1)
    looks = threading.Semaphore(0)

    class Telling(FakeNvml):
        def nvmlDeviceGetComputeRunningProcesses(self, handle: FakeGpu) -> list[SimpleNamespace]:
            looks.release()
            return super().nvmlDeviceGetComputeRunningProcesses(handle)

    nvml = Telling([FakeGpu(processes={ME: 44})])
    watch = GpuWatch(
        lambda: find_driver(nvml=nvml, environ={}, root=tmp_path), modules={}, proc=tmp_path / "proc"
    )
    task = watch.begin()
    assert all(looks.acquire(timeout=60) for _ in range(2))  # a second look begins when the first is over
    usage = task.stop()
    assert (usage.gpu_peak_bytes, usage.gpu_memory_scope) == (44, "process")


def test_a_driver_that_hangs_holds_no_task_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "proc" / "driver" / "nvidia" / "version", "NVRM version: 580\n")
    hangs, release = threading.Event(), threading.Event()

    class Hanging(FakeNvml):
        def nvmlDeviceGetUtilizationRates(self, handle: FakeGpu) -> SimpleNamespace:
            hangs.set()
            release.wait(60)
            return super().nvmlDeviceGetUtilizationRates(handle)

    clock = FakeClock()
    watch = GpuWatch(
        lambda: find_driver(nvml=Hanging(), environ={}, root=tmp_path), clock, {}, tmp_path / "proc"
    )
    task = watch.begin()
    assert hangs.wait(60)
    clock.now += 5
    try:
        assert task.stop() == Usage()
        second = watch.begin()
        # From here on nobody waits any more.
        monkeypatch.setattr(SamplerLimits, "min_duration_for_last_reading_s", 3600.0)
        clock.now += 7200
        assert second.stop() == Usage()
    finally:
        release.set()


@pytest.mark.skipif(gpu_task.may_have_gpu(), reason="there is a GPU")
def test_a_machine_without_a_gpu_starts_nothing_and_knows_nothing() -> None:
    gpu_task._start_afresh()
    assert gpu_task.begin() is None
    assert gpu_task._watch is None
    meter = UsageMeter()
    meter.start()
    usage = meter.stop()
    assert (usage.gpu_peak_bytes, usage.gpu_memory_scope, usage.gpu_s, usage.gpu_scope) == (None,) * 4


def test_a_forked_child_looks_for_a_gpu_by_itself(tmp_path: Path, clock: FakeClock) -> None:
    gpu_task._watch, gpu_task._looked = GpuWatch(lambda: DriverFound(None), spawn=lambda run: None), True
    try:
        assert gpu_task.begin() is not None
        child = os.fork()
        if child == 0:
            os._exit(0 if gpu_task._watch is None and not gpu_task._looked else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        gpu_task._start_afresh()
