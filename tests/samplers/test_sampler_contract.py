"""What every sampler promises, whatever machine it finds itself on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from builders.fake_nvml import FakeNvml
from fake_machine import FakeClock, write, write_cgroup, write_energy, write_node, write_process

from flightlog.events import ResourceSample
from flightlog.samplers import Sampler, installed_samplers
from flightlog.samplers.cgroup import CgroupSampler
from flightlog.samplers.gpu import GpuSampler
from flightlog.samplers.gpu.driver import DriverFound, find_driver
from flightlog.samplers.host import HostSampler
from flightlog.samplers.process import ProcessSampler


def _finding(machine: Path) -> Callable[[], DriverFound]:
    return lambda: find_driver(nvml=FakeNvml(), environ={}, root=machine)


Make = Callable[[Path, FakeClock], Sampler]
SAMPLERS: dict[str, Make] = {
    "host": lambda machine, clock: HostSampler(machine / "proc", clock, sys=machine / "sys"),
    "process": lambda machine, clock: ProcessSampler(100, proc=machine / "proc", clock=clock),
    "cgroup": lambda machine, clock: CgroupSampler(machine / "cgroup", machine / "proc", clock),
    "gpu": lambda machine, clock: GpuSampler(
        _finding(machine), clock, proc=machine / "proc", first_look_s=60
    ),
}
RATES = (
    "cpu_percent interval_s disk_read_bytes_per_s disk_write_bytes_per_s net_recv_bytes_per_s "
    "net_sent_bytes_per_s throttled_percent"
).split()


def _build(machine: Path) -> None:
    write_node(machine / "proc")
    write_process(machine / "proc", 100, cpu=5, children="101 ", peak_kib=1)
    write_process(machine / "proc", 101, 100, cpu=5)
    write_energy(machine / "sys", "intel-rapl:0", "package-0", 5_000_000)
    write(machine / "proc" / "driver" / "nvidia" / "version", "NVRM\n")
    write(machine / "proc" / "self" / "cgroup", "0::/\n")
    write_cgroup(machine / "cgroup", memory_current="1\n", cpu_stat="usage_usec 5\n")


@pytest.fixture(params=SAMPLERS.values(), ids=SAMPLERS.keys())
def make(request: pytest.FixtureRequest) -> Make:
    return request.param


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_the_installed_samplers_are_exactly_the_tested_ones_and_need_no_arguments() -> None:
    installed = installed_samplers()
    assert (sorted(installed.found), dict(installed.failed)) == (sorted(SAMPLERS), {})
    for sampler in installed.found.values():
        for sample in sampler().sample():
            assert isinstance(sample, ResourceSample)


def test_the_first_sample_has_no_rates_and_the_next_ones_have_their_interval(
    make: Make, tmp_path: Path
) -> None:
    _build(tmp_path)
    clock = FakeClock()
    sampler = make(tmp_path, clock)
    (first,) = sampler.sample()
    assert [getattr(first, name) for name in RATES] == [None] * len(RATES)
    for interval in (1.0, 0.5, 2.0):
        clock.now += interval
        (sample,) = sampler.sample()
        assert sample.interval_s == interval


def test_no_time_between_two_samples_gives_no_rates(make: Make, tmp_path: Path) -> None:
    _build(tmp_path)
    sampler = make(tmp_path, FakeClock())
    sampler.sample()
    (sample,) = sampler.sample()
    assert (sample.cpu_percent, sample.disk_read_bytes_per_s) == (None, None)


def test_a_sample_is_json_and_comes_back_the_same(make: Make, tmp_path: Path) -> None:
    _build(tmp_path)
    clock = FakeClock()
    sampler = make(tmp_path, clock)
    for _ in range(3):
        clock.now += 1.0
        (sample,) = sampler.sample()
        assert msgspec.json.decode(msgspec.json.encode(sample), type=ResourceSample) == sample


def test_an_empty_machine_does_not_raise(make: Make, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "cgroup").mkdir()
    sampler = make(tmp_path, FakeClock())
    for _ in range(3):
        msgspec.json.encode(sampler.sample())


def test_a_machine_that_vanishes_between_samples_does_not_raise(make: Make, tmp_path: Path) -> None:
    _build(tmp_path)
    sampler = make(tmp_path, FakeClock())
    sampler.sample()
    shutil.rmtree(tmp_path / "proc")
    shutil.rmtree(tmp_path / "cgroup")
    for _ in range(3):
        msgspec.json.encode(sampler.sample())


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\n",
        b"\0\xff",
        b"cpu  a b c d",
        b"1 2 3",
        b"0::",
        b"0::/nowhere\n",
        b")" * 50,
        b"99" * 40,
        b"cpu " + b"9 " * 30,
    ],
)
def test_a_machine_full_of_garbage_does_not_raise(make: Make, tmp_path: Path, garbage: bytes) -> None:
    for spoil_first in (True, False):
        machine = tmp_path / str(spoil_first)
        _build(machine)
        sampler = make(machine, FakeClock())
        if not spoil_first:
            sampler.sample()
        for path in machine.rglob("*"):
            if path.is_file():
                path.write_bytes(garbage)
        for _ in range(3):
            msgspec.json.encode(sampler.sample())


def test_folders_in_place_of_files_do_not_raise(make: Make, tmp_path: Path) -> None:
    _build(tmp_path)
    for path in list(tmp_path.rglob("*")):
        if path.is_file():
            path.unlink()
            path.mkdir()
    sampler = make(tmp_path, FakeClock())
    for _ in range(3):
        msgspec.json.encode(sampler.sample())


def test_two_hundred_samples_keep_no_more_descriptors_than_two(make: Make, tmp_path: Path) -> None:
    _build(tmp_path)
    sampler = make(tmp_path, FakeClock())
    sampler.sample()
    sampler.sample()
    before = _descriptors()
    for _ in range(200):
        sampler.sample()
    assert _descriptors() == before


def test_a_closed_sampler_holds_no_descriptor_and_samples_again(make: Make, tmp_path: Path) -> None:
    _build(tmp_path)
    before = _descriptors()
    sampler = make(tmp_path, FakeClock())
    expected = sampler.sample()[0].scope
    getattr(sampler, "close", lambda: None)()
    assert _descriptors() == before
    assert sampler.sample()[0].scope == expected
    del sampler
    assert _descriptors() == before


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_a_forked_child_starts_afresh(name: str, tmp_path: Path) -> None:
    _build(tmp_path)
    real: dict[str, Callable[[], Sampler]] = {
        "host": HostSampler,
        "process": ProcessSampler,
        "cgroup": lambda: SAMPLERS["cgroup"](tmp_path, FakeClock()),
        "gpu": lambda: SAMPLERS["gpu"](tmp_path, FakeClock()),
    }
    sampler = real[name]()
    sampler.sample()
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        (sample,) = sampler.sample()
        own = sample.pid in (None, os.getpid())
        os.write(into, f"{own} {sample.interval_s} {sample.cpu_percent}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    told = os.read(out, 1000).decode()
    os.close(out)
    os.close(into)
    assert told == "True None None"
    (sample,) = sampler.sample()
    assert sample.pid in (None, os.getpid())
