"""The energy counters of processors, in a `/sys` of plain files."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_machine import FakeClock, write, write_energy, write_node
from hypothesis import given
from hypothesis import strategies as st

from flightlog.samplers.host import HostSampler, ProcessorEnergy


def test_packages_and_their_memory_count_once_and_what_overlaps_them_does_not(tmp_path: Path) -> None:
    write_energy(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    write_energy(tmp_path, "intel-rapl:0:0", "core", 4_000_000)
    write_energy(tmp_path, "intel-rapl:0:1", "dram", 500_000)
    write_energy(tmp_path, "intel-rapl:1", "package-1", 2_000_000)
    write_energy(tmp_path, "intel-rapl:2", "psys", 90_000_000)
    write_energy(tmp_path, "intel-rapl-mmio:0", "package-0", 5_000_000)
    assert ProcessorEnergy(tmp_path).joules() == 7.5


def test_a_counter_that_wraps_goes_on_growing(tmp_path: Path) -> None:
    energy = None
    found = []
    for microjoules in (900, 990, 40, 140):
        write_energy(tmp_path, "intel-rapl:0", "package-0", microjoules, 1000)
        energy = energy or ProcessorEnergy(tmp_path)
        found.append(round((energy.joules() or 0) * 1e6))
    assert found == [900, 990, 1040, 1140]


@given(st.lists(st.integers(0, 999), min_size=1, max_size=20))
def test_however_often_it_wraps_the_sum_is_what_was_used(tmp_path_factory, steps: list[int]) -> None:
    sys = tmp_path_factory.mktemp("sys")
    write_energy(sys, "intel-rapl:0", "package-0", 0, 1000)
    energy, used = ProcessorEnergy(sys), 0
    assert energy.joules() == 0
    for step in steps:
        used += step
        write_energy(sys, "intel-rapl:0", "package-0", used % 1000, 1000)
        assert round((energy.joules() or 0) * 1e6) == used


def test_a_counter_of_unknown_range_that_falls_was_set_back(tmp_path: Path) -> None:
    write_energy(tmp_path, "intel-rapl:0", "package-0", 900, None)
    energy = ProcessorEnergy(tmp_path)
    energy.joules()
    write_energy(tmp_path, "intel-rapl:0", "package-0", 30, None)
    assert energy.joules() == 930e-6


def test_a_counter_that_only_root_may_read_is_unknown_and_so_is_the_sum(tmp_path: Path) -> None:
    write_energy(tmp_path, "intel-rapl:0", "package-0", 900)
    energy = ProcessorEnergy(tmp_path)
    assert energy.joules() == 900e-6
    energy.close()
    counter = tmp_path / "class" / "powercap" / "intel-rapl:0" / "energy_uj"
    counter.unlink()
    counter.mkdir()  # cannot be read by anyone, root included
    assert energy.joules() is None


@pytest.mark.parametrize("content", ["", "-5", "1e3", "9" * 30, "x"])
def test_what_is_no_counter_is_unknown(tmp_path: Path, content: str) -> None:
    write_energy(tmp_path, "intel-rapl:0", "package-0", 900)
    write(tmp_path / "class" / "powercap" / "intel-rapl:0" / "energy_uj", content)
    assert ProcessorEnergy(tmp_path).joules() is None


def test_a_machine_without_counters_has_no_energy(tmp_path: Path) -> None:
    assert ProcessorEnergy(tmp_path).joules() is None


def test_samples_of_the_node_bear_the_counter(tmp_path: Path) -> None:
    write_node(tmp_path)
    write_energy(tmp_path, "intel-rapl:0", "package-0", 3_000_000)
    sampler = HostSampler(tmp_path, FakeClock(), "node-1", tmp_path)
    assert [sample.energy_j for sample in sampler.sample()] == [3.0]
    write_energy(tmp_path, "intel-rapl:0", "package-0", 4_500_000)
    assert [sample.energy_j for sample in sampler.sample()] == [4.5]
