"""Energy of a run: differences of counters, host by host."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders.runs import at, make_run
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.report.resources import EnergyUse, HostEnergy, counted
from flightlog.analyze.report.summary import summarize
from flightlog.events import ResourceSample
from flightlog.store.run import Run


def node(when: float, joules: float | None, host: str = "n1", writer: str = "w1") -> ResourceSample:
    sample = ResourceSample(scope="node", host=host, cpu_percent=None, timestamp=at(when), energy_j=joules)
    sample.writer = writer
    return sample


def gpu(when: float, joules: float, uuid: str = "GPU-1", mig: str | None = None) -> ResourceSample:
    return ResourceSample(
        scope="gpu",
        host="n1",
        cpu_percent=None,
        timestamp=at(when),
        gpu_uuid=uuid,
        gpu_mig=mig,
        gpu_energy_j=joules,
    )


def energy(*samples: ResourceSample) -> EnergyUse | None:
    for number, sample in enumerate(samples):
        sample.seq = number
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        orders = samples, samples[::-1]
        runs = (make_run(Path(folder, str(n)), each, numbered=False) for n, each in enumerate(orders))
        there, back = (summarize(Run(path)).resources.energy for path in runs)
    assert there == back
    return there


def test_hosts_and_gpus_are_counted_from_their_first_to_their_last_sample() -> None:
    found = energy(
        node(0, 100.0),
        node(5, 160.0),
        node(9, 400.0),
        node(1, 7.0, "n2"),
        node(2, 10.0, "n2"),
        gpu(0, 1000.0),
        gpu(9, 1500.0),
    )
    assert found == EnergyUse(
        total_j=803.0,
        by_host={
            "n1": HostEnergy(processors_j=300.0, gpus_j=500.0),
            "n2": HostEnergy(processors_j=3.0, gpus_j=None),
        },
    )


def test_processes_that_sampled_one_host_at_once_saw_the_same_energy() -> None:
    found = energy(
        node(0, 100.0),
        node(5, 200.0),
        node(1, 10.0, writer="w2"),
        node(4, 70.0, writer="w2"),
        node(6, 1.0, writer="w3"),
        node(8, 21.0, writer="w3"),
    )
    assert found is not None
    assert found.by_host == {"n1": HostEnergy(processors_j=120.0, gpus_j=None)}


def test_of_a_process_that_went_on_looking_the_part_after_the_others_counts() -> None:
    found = energy(
        node(0, 50.0),
        node(10, 150.0),
        node(9, 1.0, writer="w2"),
        node(19, 101.0, writer="w2"),
        node(3, 7.0, writer="w3"),
        node(12, 107.0, writer="w3"),
    )
    assert found is not None
    # 100 J in 10 s, 2 of the 9 s of w3 and 7 of the 10 s of w2 after that.
    assert found.total_j == pytest.approx(100 + 100 * 2 / 9 + 70)


def test_instances_of_a_partitioned_gpu_share_its_counter() -> None:
    found = energy(gpu(0, 10.0, mig="a"), gpu(1, 30.0, mig="a"), gpu(0, 10.0, mig="b"), gpu(1, 30.0, mig="b"))
    assert found is not None
    assert found.total_j == 20.0


def test_without_counters_there_is_no_energy_and_not_zero() -> None:
    assert energy(node(0, None), node(1, None)) is None
    assert energy(node(0, 5.0)) is None


def test_a_gpu_counter_that_was_set_back_goes_on_from_there() -> None:
    found = energy(gpu(0, 9000.0), gpu(1, 9100.0), gpu(2, 30.0), gpu(3, 50.0))
    assert found is not None
    assert found.total_j == 150.0


def test_readings_of_two_processes_in_the_wrong_order_are_no_setting_back() -> None:
    found = energy(gpu(0, 9000.0), gpu(1, 9100.5), gpu(1.001, 9100.4), gpu(2, 9101.0))
    assert found is not None
    assert found.total_j == 101.0


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=20))
def test_a_counter_that_grows_has_counted_its_growth(steps) -> None:
    values = [float(sum(steps[: n + 1])) for n in range(len(steps))]
    assert counted(values) == values[-1] - values[0]
