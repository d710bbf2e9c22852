from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import msgspec
import pytest
from builders.fake_nvml import FakeGpu, FakeNvml
from fake_machine import FakeClock, write, write_process

from flightlog.events import ResourceSample
from flightlog.samplers.gpu import GpuSampler
from flightlog.samplers.gpu.driver import DriverFound, TreeMemory, descends, find_driver, tree_memory

HOST_NAMESPACE = "pid:[4026531836]"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def sampler_of(machine: Path, nvml: FakeNvml, clock: FakeClock, **environ: str) -> GpuSampler:
    write(machine / "proc" / "driver" / "nvidia" / "version", "NVRM version: 580\n")

    def find() -> DriverFound:
        return find_driver(nvml=nvml, environ=environ, root=machine)

    return GpuSampler(find, clock, "node-1", machine / "proc", first_look_s=60)


def in_namespace(proc: Path, name: str) -> None:
    (proc / "self" / "ns").mkdir(parents=True)
    (proc / "self" / "ns" / "pid").symlink_to(name)


def test_a_first_sample_says_all_that_is_known_of_a_gpu(tmp_path: Path, clock: FakeClock) -> None:
    me = os.getpid()
    write_process(tmp_path / "proc", me, 1)
    nvml = FakeNvml([FakeGpu(processes={me: 7_000, 999_999: 5})])
    (sample,) = sampler_of(tmp_path, nvml, clock).sample()
    assert sample == ResourceSample(
        scope="gpu",
        host="node-1",
        cpu_percent=None,
        gpu_index=0,
        gpu_uuid="GPU-aaaaaaaa-0000-0000-0000-000000000000",
        gpu_name="NVIDIA H200",
        gpu_percent=40.0,
        gpu_memory_used_bytes=20_000,
        gpu_memory_free_bytes=129_500,
        gpu_memory_total_bytes=150_000,
        gpu_process_memory_bytes=7_000,
        gpu_memory_bus_percent=7.0,
        gpu_power_w=300.0,
        gpu_energy_j=5000.0,
        gpu_temperature_c=61.0,
        gpu_clock_mhz=1980.0,
        gpu_memory_clock_mhz=3201.0,
        gpu_throttle_reasons=["power_cap"],
        gpu_ecc_corrected=2,
        gpu_ecc_uncorrected=0,
    )


def test_there_is_a_sample_for_every_visible_gpu_and_for_no_other(tmp_path: Path, clock: FakeClock) -> None:
    nvml = FakeNvml([FakeGpu(uuid=f"GPU-{n}", gpu_percent=n) for n in range(4)])
    samples = sampler_of(tmp_path, nvml, clock, CUDA_VISIBLE_DEVICES="3,1").sample()
    assert [(sample.gpu_index, sample.gpu_uuid, sample.gpu_percent) for sample in samples] == [
        (3, "GPU-3", 3.0),
        (1, "GPU-1", 1.0),
    ]


def test_costlier_questions_are_asked_less_often_and_are_null_in_between(
    tmp_path: Path, clock: FakeClock
) -> None:
    nvml = FakeNvml()
    sampler = sampler_of(tmp_path, nvml, clock)
    known: dict[str, int] = {}
    for _ in range(81):  # ten seconds at eight samples a second, and the one at their end
        (sample,) = sampler.sample()
        for field in ("gpu_power_w", "gpu_temperature_c", "gpu_ecc_corrected"):
            known[field] = known.get(field, 0) + (getattr(sample, field) is not None)
        clock.now += 0.125
    assert known == {"gpu_power_w": 81, "gpu_temperature_c": 11, "gpu_ecc_corrected": 2}
    assert nvml.calls["nvmlDeviceGetTemperature"] == 11
    assert nvml.calls["nvmlDeviceGetPcieThroughput"] == 0


def test_the_last_sample_reads_the_counters_however_shortly_ago_they_were_read(
    tmp_path: Path, clock: FakeClock
) -> None:
    gpu = FakeGpu(energy_mj=1_000)
    sampler = sampler_of(tmp_path, FakeNvml([gpu]), clock)
    energies = [sampler.sample()[0].gpu_energy_j]
    gpu.energy_mj = 3_000
    clock.now += 0.125
    energies += [sampler.sample()[0].gpu_energy_j, sampler.last_sample()[0].gpu_energy_j]
    assert energies == [1.0, None, 3.0]


def test_utilization_is_of_the_time_since_the_previous_sample(tmp_path: Path, clock: FakeClock) -> None:
    """Busy for 0.4 s of each second, and idle at the moment of each sample, as seen on an H200."""
    gpu = FakeGpu(gpu_percent=0)
    nvml = FakeNvml([gpu])
    sampler = sampler_of(tmp_path, nvml, clock)
    found = []
    for second in range(3):
        gpu.history += [
            (second * 1_000_000 + (n + 1) * 200_000, percent) for n, percent in enumerate([69, 98, 33, 0, 0])
        ]
        clock.now += 1.0
        found.append(sampler.sample()[0].gpu_percent)
    clock.now += 0.1
    found.append(sampler.sample()[0].gpu_percent)
    assert found == [0.0, 40.0, 40.0, 0.0]  # the first knows no time, and the last would only repeat it
    assert nvml.calls["nvmlDeviceGetSamples"] == 2


def test_a_driver_that_remembers_nothing_tells_its_last_period(tmp_path: Path, clock: FakeClock) -> None:
    sampler = sampler_of(tmp_path, FakeNvml([FakeGpu(gpu_percent=40)]), clock)
    sampler.sample()
    clock.now += 1.0
    assert sampler.sample()[0].gpu_percent == 40.0


def test_pcie_traffic_is_over_the_time_since_its_counters_were_last_read(
    tmp_path: Path, clock: FakeClock
) -> None:
    gpu = FakeGpu(pcie_sent=1_000, pcie_received=0)
    sampler = sampler_of(tmp_path, FakeNvml([gpu]), clock)
    seen = []
    for sent in (1_000, 1_500, 5_000, 4_000):
        gpu.pcie_sent, gpu.pcie_received = sent, 2 * sent
        (sample,) = sampler.sample()
        seen.append((sample.gpu_pcie_sent_bytes_per_s, sample.gpu_pcie_received_bytes_per_s))
        clock.now += 2.0
    assert seen == [(None, None), (250.0, 1500.0 - 1000.0), (1750.0, 3500.0), (None, None)]


def test_an_unsupported_counter_is_null_and_never_zero(tmp_path: Path, clock: FakeClock) -> None:
    gpu = FakeGpu(failing={"*": "NotSupported"})
    nvml = FakeNvml([gpu])
    gpu.failing.clear()
    sampler = sampler_of(tmp_path, nvml, clock)
    sampler.sample()
    gpu.failing["*"] = "NotSupported"
    clock.now += 60
    sampler.sample()
    clock.now += 60
    (sample,) = sampler.sample()
    assert msgspec.json.decode(msgspec.json.encode(sample)) == {
        "event": "resource_sample",
        "scope": "gpu",
        "host": "node-1",
        "cpu_percent": None,
        "interval_s": 60.0,
        "gpu_index": 0,
        "gpu_uuid": gpu.uuid,
        "gpu_name": "NVIDIA H200",
    }


def test_a_gpu_lost_on_the_way_is_noted_and_its_samples_go_on_without_figures(
    tmp_path: Path, clock: FakeClock
) -> None:
    gpu = FakeGpu()
    sampler = sampler_of(tmp_path, FakeNvml([gpu]), clock)
    sampler.sample()
    assert list(sampler.notes) == []
    gpu.failing["*"] = "GpuIsLost"
    for _ in range(3):
        clock.now += 1
        (sample,) = sampler.sample()
        assert (sample.gpu_uuid, sample.gpu_percent, sample.gpu_memory_used_bytes) == (gpu.uuid, None, None)
    assert list(sampler.notes) == ["GPU 0 (NVIDIA H200) does not answer any more: GPU is lost"]


def test_without_a_gpu_there_are_no_samples_and_only_the_first_call_looks() -> None:
    looks = []

    def find() -> DriverFound:
        looks.append(1)
        return DriverFound(None)

    sampler = GpuSampler(find, first_look_s=60)
    assert [list(sampler.sample()) for _ in range(5)] == [[]] * 5
    assert (looks, list(sampler.notes)) == ([1], [])


def test_a_gpu_that_cannot_be_read_is_noted_once(tmp_path: Path, clock: FakeClock) -> None:
    sampler = sampler_of(tmp_path, FakeNvml(failing={"nvmlInit": "DriverNotLoaded"}), clock)
    assert [list(sampler.sample()) for _ in range(3)] == [[]] * 3
    (note,) = sampler.notes
    assert note.endswith("NVML says: Driver Not Loaded")


def test_a_driver_that_takes_long_to_wake_up_holds_no_sample_up(tmp_path: Path, clock: FakeClock) -> None:
    write(tmp_path / "proc" / "driver" / "nvidia" / "version", "NVRM version: 580\n")
    awake, asked = threading.Event(), threading.Event()

    def find() -> DriverFound:
        asked.set()
        awake.wait(60)
        return find_driver(nvml=FakeNvml(), environ={}, root=tmp_path)

    sampler = GpuSampler(find, clock, "node-1", tmp_path / "proc", first_look_s=0)
    assert list(sampler.sample()) == []
    assert asked.wait(60)
    awake.set()
    deadline = time.monotonic() + 60
    while not (samples := sampler.sample()) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert len(samples) == 1


def test_an_instance_is_named_beside_its_gpu(tmp_path: Path, clock: FakeClock) -> None:
    gpu = FakeGpu(uuid="GPU-1", instances=[FakeGpu(uuid="MIG-1", used=3)])
    (sample,) = sampler_of(tmp_path, FakeNvml([gpu]), clock).sample()
    assert (sample.gpu_uuid, sample.gpu_mig, sample.gpu_memory_used_bytes) == ("GPU-1", "MIG-1", 3)


def test_memory_of_the_tree_is_that_of_the_root_and_its_descendants(tmp_path: Path) -> None:
    for pid, parent in ((100, 1), (101, 100), (102, 101), (200, 1)):
        write_process(tmp_path, pid, parent)
    assert tree_memory({101: 5, 102: 7, 200: 90}, 100, tmp_path) == TreeMemory(12, there=True, others=True)
    assert tree_memory({100: 5, 102: 7}, 100, tmp_path) == TreeMemory(12, there=True, others=False)
    assert tree_memory({100: 5, 102: None}, 100, tmp_path) == TreeMemory(None, there=True, others=False)
    assert [descends(pid, 100, tmp_path) for pid in (100, 101, 102, 200, 1, 300)] == [True] * 3 + [False] * 3


def test_process_ids_of_another_namespace_say_nothing(tmp_path: Path) -> None:
    write_process(tmp_path, 100, 1)
    in_namespace(tmp_path, "pid:[4026532999]")
    assert tree_memory({48_000: 5}, 100, tmp_path) == TreeMemory(None, there=False, others=True)
    assert tree_memory({}, 100, tmp_path) == TreeMemory(None, there=False, others=False)
    assert tree_memory(None, 100, tmp_path) == TreeMemory(None, there=False, others=True)


def test_on_the_host_a_list_without_the_tree_says_that_it_uses_nothing(tmp_path: Path) -> None:
    write_process(tmp_path, 100, 1)
    in_namespace(tmp_path, HOST_NAMESPACE)
    assert tree_memory({48_000: 5}, 100, tmp_path) == TreeMemory(0, there=False, others=True)
