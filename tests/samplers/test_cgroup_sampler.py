from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_machine import FakeClock, pressure_text, write, write_cgroup

from flightlog.events import ResourceSample
from flightlog.samplers.cgroup import CgroupLimits, CgroupSampler, cgroup_limits

UNLIMITED_V1 = "9223372036854771712\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return tmp_path / "proc"


def _job(folder: Path, *, usage: int, periods: int, throttled: int, held_usec: int) -> None:
    write_cgroup(
        folder,
        memory_current="1000\n",
        memory_stat="anon 100\nfile 500\ninactive_file 300\nactive_file 200\n",
        memory_peak="5000\n",
        memory_max="8000\n",
        memory_swap_current="16\n",
        memory_events="low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n",
        cpu_max="max 100000\n",
        cpu_stat=f"usage_usec {usage}\nuser_usec 1\nsystem_usec 1\nnr_periods {periods}\n"
        f"nr_throttled {throttled}\nthrottled_usec {held_usec}\n",
        cpu_pressure=pressure_text(3_000_000),
        memory_pressure=pressure_text(1_500_000),
        io_pressure="some avg10=0.00\n",
    )


def test_a_job_is_sampled_with_exact_rates_and_its_ancestors_limits(root: Path, proc: Path) -> None:
    clock = FakeClock()
    write_cgroup(root)
    write_cgroup(root / "slurm", memory_max="6000\n", cpu_max="150000 100000\n")
    write(proc / "self" / "cgroup", "0::/slurm/job_1\n")
    _job(root / "slurm" / "job_1", usage=1_000_000, periods=10, throttled=1, held_usec=500_000)
    sampler = CgroupSampler(root, proc, clock, "node-1")
    first = sampler.sample()
    clock.now += 2.0
    _job(root / "slurm" / "job_1", usage=4_000_000, periods=30, throttled=6, held_usec=750_000)
    levels = {
        "cpus": 1.5,
        "memory_used_bytes": 700,
        "memory_total_bytes": 6000,
        "memory_peak_bytes": 5000,
        "swap_used_bytes": 16,
        "oom_events": 3,
        "oom_kills": 2,
        "cpu_pressure_s": 3.0,
        "memory_pressure_s": 1.5,
    }
    assert first == [
        ResourceSample(scope="cgroup", host="node-1", cpu_percent=None, cpu_s=1.0, throttled_s=0.5, **levels)
    ]
    assert sampler.sample() == [
        ResourceSample(
            scope="cgroup",
            host="node-1",
            interval_s=2.0,
            cpu_percent=100.0,
            cpu_cores=1.5,
            cpu_s=4.0,
            throttled_s=0.75,
            throttled_percent=25.0,
            **levels,
        )
    ]


def test_what_the_kernel_does_not_offer_is_unknown(root: Path, proc: Path) -> None:
    write(proc / "self" / "cgroup", "0::/\n")
    write_cgroup(root, cgroup_events="populated 1\n", cpu_stat="usage_usec 5\n", memory_current="7\n")
    assert CgroupSampler(root, proc, host="node-1").sample() == [
        ResourceSample(scope="cgroup", host="node-1", cpu_percent=None, cpu_s=5e-6, cpus=os.cpu_count())
    ]


def test_a_process_that_moves_to_another_cgroup_starts_afresh(root: Path, proc: Path) -> None:
    clock = FakeClock()
    write_cgroup(root)
    for name in ("a", "b"):
        _job(root / name, usage=1, periods=1, throttled=1, held_usec=1)
    sampler = CgroupSampler(root, proc, clock)
    intervals = []
    for name in ("a", "a", "b", "b"):
        write(proc / "self" / "cgroup", f"0::/{name}\n")
        clock.now += 1.0
        intervals.append(sampler.sample()[0].interval_s)
    assert intervals == [None, 1.0, None, 1.0]


def test_changed_limits_are_seen_within_some_seconds(root: Path, proc: Path) -> None:
    clock = FakeClock()
    write(proc / "self" / "cgroup", "0::/\n")
    write_cgroup(root, memory_current="1\n", memory_max="100\n")
    sampler = CgroupSampler(root, proc, clock)
    seen = [sampler.sample()[0].memory_total_bytes]
    write_cgroup(root, memory_max="max\n")
    clock.now += 10.0
    seen.append(sampler.sample()[0].memory_total_bytes)
    assert seen == [100, None]


def test_the_root_cgroup_is_the_node_and_gives_no_sample(root: Path, proc: Path) -> None:
    write(proc / "self" / "cgroup", "0::/\n")
    write_cgroup(root, cpu_stat="usage_usec 5\n")
    assert CgroupSampler(root, proc).sample() == []


def test_version_1_gives_no_sample(root: Path, proc: Path) -> None:
    write(proc / "self" / "cgroup", "4:memory:/job\n1:cpu,cpuacct:/job\n")
    write(root / "memory" / "job" / "memory.limit_in_bytes", "5\n")
    assert CgroupSampler(root, proc).sample() == []


@pytest.mark.parametrize(
    ("path", "limits"),
    [
        ("/", CgroupLimits(4.0, 4000)),
        ("/a", CgroupLimits(0.5, 4000)),
        ("/a/b", CgroupLimits(0.5, 1000)),
        ("/docker/abc/a/b", CgroupLimits(0.5, 1000)),  # the host's path, seen from inside
        ("/docker/abc", CgroupLimits(4.0, 4000)),
        ("/../other", CgroupLimits(None, None)),  # outside this namespace: nobody knows
    ],
)
@pytest.mark.parametrize("mount", [".", "unified"])
def test_version_2_limits_are_the_smallest_on_the_way_up(
    root: Path, proc: Path, mount: str, path: str, limits: CgroupLimits
) -> None:
    write(proc / "self" / "cgroup", f"1:name=systemd:/x\n0::{path}\n")
    write_cgroup(root / mount, memory_max="4000\n", cpu_max="400000 100000\n")
    write_cgroup(root / mount / "a", memory_max="max\n", cpu_max="50000 100000\n")
    write_cgroup(root / mount / "a" / "b", memory_max="1000\n", cpu_max="max 100000\n")
    assert cgroup_limits(root, proc) == limits


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_version_1_limits_are_the_smallest_on_the_way_up(root: Path, proc: Path, mount: str) -> None:
    write(proc / "self" / "cgroup", "9:memory:/job/step\n4:cpu,cpuacct:/job\n0::/\n")
    write(root / "memory" / "memory.limit_in_bytes", UNLIMITED_V1)
    write(root / "memory" / "job" / "memory.limit_in_bytes", "2048\n")
    write(root / "memory" / "job" / "step" / "memory.limit_in_bytes", UNLIMITED_V1)
    write(root / mount / "cpu.cfs_quota_us", "-1\n")
    write(root / mount / "cpu.cfs_period_us", "100000\n")
    write(root / mount / "job" / "cpu.cfs_quota_us", "250000\n")
    write(root / mount / "job" / "cpu.cfs_period_us", "100000\n")
    assert cgroup_limits(root, proc) == CgroupLimits(2.5, 2048)


def test_no_limit_in_version_1_is_none(root: Path, proc: Path) -> None:
    write(proc / "self" / "cgroup", "9:memory:/\n4:cpu:/\n")
    write(root / "memory" / "memory.limit_in_bytes", UNLIMITED_V1)
    write(root / "cpu" / "cpu.cfs_quota_us", "-1\n")
    write(root / "cpu" / "cpu.cfs_period_us", "100000\n")
    assert cgroup_limits(root, proc) == CgroupLimits(None, None)


def test_limits_of_a_machine_without_cgroups_are_none(tmp_path: Path) -> None:
    assert cgroup_limits(tmp_path / "no", tmp_path / "nothing") == CgroupLimits(None, None)


def test_this_machines_limits_can_be_read() -> None:
    limits = cgroup_limits()
    assert limits.cpus is None or limits.cpus > 0
    assert limits.memory_bytes is None or limits.memory_bytes > 0
