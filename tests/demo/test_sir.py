"""The demo's epidemics are what the theory of epidemics says they are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.demo.sweep import Setting, mean_field, simulate


def final_size(r0: float) -> float:
    """The share that is infected in a large population: the root of `z = 1 - exp(-r0 z)`."""
    z = 1.0
    for _ in range(200):
        z = 1 - math.exp(-r0 * z)
    return z


def test_the_same_seed_gives_the_same_epidemic_and_another_seed_another():
    setting = Setting(r0=2.0, population=2_000)
    assert simulate(setting, 1) == simulate(setting, 1)
    assert simulate(setting, 1) != simulate(setting, 2)


@given(
    r0=st.floats(0.2, 6),
    population=st.integers(10, 400),
    first=st.integers(1, 10),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=50, deadline=None)
def test_everybody_infected_recovers_and_nobody_is_infected_twice(r0, population, first, seed):
    found = simulate(Setting(r0=r0, population=population, first_cases=first), seed)
    infected = round(found.attack_rate * population)
    assert first <= infected <= population
    assert found.events == 2 * infected - first
    assert first <= found.peak_infectious <= infected
    assert 0 <= found.peak_day <= found.duration_days


@pytest.mark.parametrize("r0", [1.5, 2.5, 4.0])
def test_a_large_epidemic_infects_the_share_that_the_final_size_equation_says(r0):
    found = [
        simulate(Setting(r0=r0, population=20_000, first_cases=40), seed).attack_rate for seed in range(4)
    ]
    assert sum(found) / 4 == pytest.approx(final_size(r0), abs=0.02)


@pytest.mark.parametrize("r0", [1.5, 2.5, 4.0])
def test_the_deterministic_epidemic_infects_that_share_too(r0):
    solution = mean_field(Setting(r0=r0))
    assert solution.attack_rate == pytest.approx(final_size(r0), abs=0.001)
    most = 1 - (1 + math.log(r0)) / r0  # where each infectious person infects one other
    assert solution.peak_infectious == pytest.approx(100_000 * most, rel=0.01)


def test_below_the_threshold_an_epidemic_dies_out():
    setting = Setting(r0=0.5, population=100_000, first_cases=20)
    assert max(simulate(setting, seed).attack_rate for seed in range(5)) < 0.005
    assert mean_field(setting).peak_infectious == 20
