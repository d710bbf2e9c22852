"""What the GPUs of a run did, and how a report says it."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from builders.examples import FEW
from builders.runs import make_run
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.report.resources import GpuDeviceUse, GpuUse, Load
from flightlog.analyze.report.summary import summarize
from flightlog.events import ResourceSample
from flightlog.show.report import gpu_facts
from flightlog.show.terminal import Ink
from flightlog.store.run import Run

GIB = 2**30
PLAIN = Ink(False)


def sample(index: int = 0, **known: Any) -> ResourceSample:
    fields = {"interval_s": 1.0, "gpu_uuid": f"GPU-{index}", "gpu_name": "NVIDIA H200", **known}
    return ResourceSample(scope="gpu", host="node-1", cpu_percent=None, gpu_index=index, **fields)


def summary(*samples: ResourceSample) -> GpuUse:
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        found = summarize(Run(make_run(Path(folder), samples))).resources.gpu
    assert found is not None
    return found


def test_a_gpu_has_means_by_time_peaks_and_what_its_counters_grew() -> None:
    found = summary(
        sample(
            interval_s=None,
            gpu_percent=0.0,
            gpu_memory_used_bytes=3 * GIB,
            gpu_memory_total_bytes=140 * GIB,
            gpu_power_w=80.0,
            gpu_energy_j=1_000_000.0,
            gpu_temperature_c=40.0,
            gpu_throttle_reasons=[],
            gpu_ecc_uncorrected=1,
        ),
        sample(
            gpu_percent=60.0,
            gpu_memory_used_bytes=90 * GIB,
            gpu_memory_total_bytes=140 * GIB,
            gpu_power_w=650.0,
            gpu_energy_j=1_000_400.0,
            gpu_process_memory_bytes=80 * GIB,
        ),
        sample(
            interval_s=2.0,
            gpu_percent=90.0,
            gpu_energy_j=1_001_400.0,
            gpu_temperature_c=70.0,
            gpu_throttle_reasons=["power_cap", "application_clocks"],
            gpu_ecc_uncorrected=1,
            gpu_pcie_received_bytes_per_s=5.0,
        ),
    )
    device = GpuDeviceUse(
        host="node-1",
        index=0,
        uuid="GPU-0",
        mig=None,
        name="NVIDIA H200",
        gpu_percent=Load(mean=60.0, max=90.0),
        memory_peak_bytes=90 * GIB,
        memory_total_bytes=140 * GIB,
        process_memory_peak_bytes=80 * GIB,
        power_max_w=650.0,
        energy_j=1400.0,
        temperature_max_c=70.0,
        throttled_percent={"power_cap": 50.0},
        ecc_uncorrected=0,
        pcie_received_max_bytes_per_s=5.0,
        pcie_sent_max_bytes_per_s=None,
    )
    assert found == GpuUse(
        devices=1,
        gpu_percent=Load(mean=60.0, max=90.0),
        memory_peak_bytes=90 * GIB,
        memory_total_bytes=140 * GIB,
        process_memory_peak_bytes=80 * GIB,
        power_max_w=650.0,
        energy_j=1400.0,
        temperature_max_c=70.0,
        each=[device],
    )


def stated(found: GpuUse) -> list[tuple[str, str]]:
    """The facts that a report states: one without a value is left out."""
    return [(name, value) for name, value in gpu_facts(found, PLAIN) if value]


def test_what_no_sample_knows_is_unknown_and_not_zero() -> None:
    found = summary(sample(), sample())
    device = found.each[0]
    unknown = (
        found.gpu_percent.mean,
        found.memory_peak_bytes,
        found.process_memory_peak_bytes,
        found.power_max_w,
        found.energy_j,
        found.temperature_max_c,
        device.ecc_uncorrected,
        device.pcie_sent_max_bytes_per_s,
    )
    assert unknown == (None,) * 8
    assert stated(found) == [("GPU", "NVIDIA H200")]


def test_an_energy_counter_seen_once_tells_no_energy() -> None:
    assert summary(sample(gpu_energy_j=5.0)).energy_j is None


def test_shares_of_several_gpus_are_not_added_up_and_the_busiest_comes_first() -> None:
    found = summary(
        *(sample(0, gpu_percent=20.0, gpu_energy_j=joules) for joules in (0.0, 3600.0)),
        *(sample(1, gpu_percent=80.0, gpu_energy_j=joules) for joules in (10.0, 7210.0)),
    )
    assert [one.index for one in found.each] == [1, 0]
    assert (found.devices, found.gpu_percent, found.energy_j) == (2, Load(mean=50.0, max=80.0), 10_800.0)
    assert stated(found) == [
        (
            "GPU",
            "2 devices (NVIDIA H200); busy 50% of the time, 80% max; the busiest is GPU 1 on node-1: 80%",
        ),
        ("GPU power", "3.0 Wh in all"),
    ]


def test_a_report_tells_memory_with_its_scope_power_heat_and_what_held_the_gpu_back() -> None:
    found = summary(
        sample(
            gpu_percent=97.0,
            gpu_memory_used_bytes=90 * GIB,
            gpu_memory_total_bytes=140 * GIB,
            gpu_process_memory_bytes=80 * GIB,
            gpu_power_w=650.0,
            gpu_energy_j=0.0,
            gpu_temperature_c=84.0,
            gpu_throttle_reasons=["thermal_hardware", "thermal_software", "power_cap"],
            gpu_ecc_uncorrected=0,
        ),
        sample(
            gpu_percent=95.0, gpu_energy_j=180.0, gpu_throttle_reasons=["power_cap"], gpu_ecc_uncorrected=2
        ),
    )
    assert gpu_facts(found, PLAIN) == [
        ("GPU", "NVIDIA H200; busy 96% of the time, 97% max"),
        ("GPU memory", "90.0 GiB of 140.0 GiB peak on one device; by this run 80.0 GiB"),
        ("GPU power", "650 W max on one device, 180 J in all, 84 °C max"),
        ("GPU throttled", "GPU 0 on node-1 by its power limit in 100% of samples, by heat in 50% of samples"),
        ("GPU memory errors", "GPU 0 on node-1 2 errors that could not be corrected"),
    ]


SAMPLES = st.lists(
    st.builds(
        sample,
        st.integers(0, 2),
        gpu_percent=st.none() | st.floats(0, 100),
        gpu_power_w=st.none() | st.floats(0, 900),
        gpu_energy_j=st.none() | st.floats(0, 1e9),
        interval_s=st.none() | st.floats(0, 10),
        gpu_throttle_reasons=st.none()
        | st.lists(st.sampled_from(["power_cap", "thermal_hardware"]), unique=True),
    ),
    min_size=1,
    max_size=12,
)


@FEW
@given(samples=SAMPLES, seed=st.integers(0, 99))
def test_the_order_of_samples_does_not_matter(samples: list[ResourceSample], seed: int) -> None:
    mixed = list(samples)
    random.Random(seed).shuffle(mixed)
    assert summary(*mixed) == summary(*samples)


@pytest.mark.parametrize("hosts", [("a", "b")])
def test_gpus_of_several_hosts_are_told_apart(hosts: tuple[str, str]) -> None:
    found = [sample(0, gpu_uuid=None), sample(0, gpu_uuid=None)]
    for one, host in zip(found, hosts, strict=True):
        one.host = host
    assert summary(*found).devices == 2
