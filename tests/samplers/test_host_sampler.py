from __future__ import annotations

from pathlib import Path

import psutil
from fake_machine import FakeClock, disk, interface, write_node

from flightlog.events import ResourceSample
from flightlog.samplers.host import HostSampler
from flightlog.samplers.procfs import CLOCK_TICKS


def test_the_first_sample_has_levels_but_no_rates(tmp_path: Path) -> None:
    write_node(tmp_path, disks=disk("sda", 10, 20), net=interface("eth0", 1, 2), pressure=(2_500_000, 0, 7))
    assert HostSampler(tmp_path, FakeClock(), "node-1", tmp_path).sample() == [
        ResourceSample(
            scope="node",
            host="node-1",
            cpu_percent=None,
            cpus=2,
            load_1m=0.5,
            memory_used_bytes=2000 * 1024,
            memory_total_bytes=8000 * 1024,
            swap_used_bytes=60 * 1024,
            steal_s=0.0,
            cpu_pressure_s=2.5,
            memory_pressure_s=0.0,
            io_pressure_s=7e-6,
        )
    ]


def test_the_second_sample_has_exact_rates(tmp_path: Path) -> None:
    clock = FakeClock()
    write_node(tmp_path, disks=disk("sda", 100, 200), net=interface("eth0", 1000, 2000))
    sampler = HostSampler(tmp_path, clock, "node-1", tmp_path)
    sampler.sample()
    clock.now += 2.0
    # 200 ticks later: 90 user, 20 system and 10 stolen are busy; 60 idle and 20 waiting for I/O are not.
    write_node(
        tmp_path,
        cpu="190 0 70 860 70 0 0 10 0 0",
        disks=disk("sda", 104, 220),
        net=interface("eth0", 1500, 2100),
    )
    assert sampler.sample() == [
        ResourceSample(
            scope="node",
            host="node-1",
            interval_s=2.0,
            cpu_percent=60.0,
            cpu_cores=1.2,
            cpus=2,
            load_1m=0.5,
            memory_used_bytes=2000 * 1024,
            memory_total_bytes=8000 * 1024,
            swap_used_bytes=60 * 1024,
            steal_s=10 / CLOCK_TICKS,
            disk_read_bytes_per_s=4 * 512 / 2,
            disk_write_bytes_per_s=20 * 512 / 2,
            net_recv_bytes_per_s=250.0,
            net_sent_bytes_per_s=50.0,
        )
    ]


def _rates(tmp_path: Path, before: dict[str, str], after: dict[str, str]) -> tuple[float | None, ...]:
    clock = FakeClock()
    write_node(tmp_path, **before)
    sampler = HostSampler(tmp_path, clock)
    sampler.sample()
    clock.now += 1.0
    write_node(tmp_path, **after)
    (sample,) = sampler.sample()
    return (
        sample.cpu_percent,
        sample.disk_read_bytes_per_s,
        sample.disk_write_bytes_per_s,
        sample.net_recv_bytes_per_s,
        sample.net_sent_bytes_per_s,
    )


def test_partitions_and_stacked_devices_do_not_count_twice(tmp_path: Path) -> None:
    names = (
        "sda",
        "sda1",
        "nvme0n1",
        "nvme0n1p2",
        "nvme0n10",
        "dm-0",
        "md0",
        "loop3",
        "ram0",
        "zram0",
        "sr0",
    )
    before = {"disks": "".join(disk(name, 0, 0) for name in names)}
    after = {"disks": "".join(disk(name, 10, 1) for name in names)}
    assert _rates(tmp_path, before, after)[1:3] == (3 * 10 * 512, 3 * 512)


def test_a_partition_whose_disk_is_hidden_counts(tmp_path: Path) -> None:
    assert _rates(tmp_path, {"disks": disk("xvda1", 0, 0)}, {"disks": disk("xvda1", 2, 1)})[1] == 1024


def test_loopback_and_stacked_interfaces_do_not_count(tmp_path: Path) -> None:
    names = ("lo", "eth0", "ib0", "docker0", "veth12ab", "bond0", "eth0.100", "ifb0", "br-77")
    before = {"net": "".join(interface(name, 0, 0) for name in names)}
    after = {"net": "".join(interface(name, 7, 5) for name in names)}
    assert _rates(tmp_path, before, after)[3:] == (14, 10)


def test_a_stacked_interface_counts_where_it_is_the_only_way_out(tmp_path: Path) -> None:
    before = {"net": interface("lo", 0, 0) + interface("tun0", 0, 0)}
    after = {"net": interface("lo", 9, 9) + interface("tun0", 4, 3)}
    assert _rates(tmp_path, before, after)[3:] == (4, 3)


def test_a_counter_that_went_down_gives_no_rate(tmp_path: Path) -> None:
    before = {"cpu": "100 0 0 100", "disks": disk("sda", 9, 9), "net": interface("eth0", 9, 9)}
    after = {"cpu": "50 0 0 50", "disks": disk("sda", 8, 10), "net": interface("eth0", 8, 10)}
    assert _rates(tmp_path, before, after) == (None, None, 512, None, 1)


def test_a_disk_that_was_plugged_in_between_does_not_bring_its_past(tmp_path: Path) -> None:
    before = {"disks": disk("sda", 0, 0)}
    after = {"disks": disk("sda", 1, 1) + disk("sdb", 5000, 5000)}
    assert _rates(tmp_path, before, after)[1:3] == (512, 512)


def test_a_node_without_disks_has_no_disk_rate(tmp_path: Path) -> None:
    assert _rates(tmp_path, {}, {})[1:] == (None, None, None, None)


def test_memory_is_unknown_where_the_kernel_does_not_tell_what_is_available(tmp_path: Path) -> None:
    write_node(tmp_path, memory="MemTotal: 8000 kB\nMemFree: 10 kB\n")
    (sample,) = HostSampler(tmp_path).sample()
    assert (sample.memory_used_bytes, sample.memory_total_bytes, sample.swap_used_bytes) == (
        None,
        8000 * 1024,
        None,
    )


def test_without_proc_psutil_tells_the_same_memory_and_cores(tmp_path: Path) -> None:
    (sample,) = HostSampler(tmp_path / "absent").sample()
    assert sample.scope == "node"
    assert (sample.memory_total_bytes, sample.cpus) == (psutil.virtual_memory().total, psutil.cpu_count())
    assert (sample.cpu_percent, sample.disk_read_bytes_per_s, sample.net_recv_bytes_per_s) == (
        None,
        None,
        None,
    )


def test_the_real_node_agrees_with_psutil() -> None:
    (sample,) = HostSampler().sample()
    assert sample.memory_total_bytes == psutil.virtual_memory().total
    assert sample.cpus == psutil.cpu_count()
