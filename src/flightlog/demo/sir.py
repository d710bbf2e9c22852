"""The stochastic SIR epidemic, simulated exactly, and its deterministic limit, as pure functions."""

from __future__ import annotations

import math
import random

from msgspec import Struct


class Setting(Struct, frozen=True, kw_only=True):
    """A disease in a population that mixes evenly."""

    r0: float
    """Mean number of people that one infectious person infects where nobody is immune."""
    infectious_days: float = 5.0
    """Mean of the exponentially distributed time that a person stays infectious."""
    population: int = 100_000
    first_cases: int = 20


class Epidemic(Struct, frozen=True, kw_only=True):
    """The course of one simulated epidemic."""

    attack_rate: float
    """Share of the population that was infected in all."""
    peak_infectious: int
    peak_day: float
    duration_days: float
    """From the first cases until nobody is infectious any more."""
    events: int
    """Infections and recoveries."""


class MeanField(Struct, frozen=True, kw_only=True):
    """The course in the limit of a large population, without randomness."""

    attack_rate: float
    peak_infectious: float
    peak_day: float


def simulate(setting: Setting, seed: int) -> Epidemic:
    """Simulate one epidemic by Gillespie's direct method; the same seed gives the same course."""
    chance = random.Random(seed).random
    log = math.log
    infectious = setting.first_cases
    susceptible = setting.population - infectious
    recovery = 1.0 / setting.infectious_days
    contact = setting.r0 * recovery / setting.population
    peak, peak_day, day, events = infectious, 0.0, 0.0, 0
    while infectious:
        infection = contact * susceptible
        rate = infection + recovery  # of each infectious person
        day -= log(1.0 - chance()) / (rate * infectious)
        events += 1
        if chance() * rate < infection:
            susceptible -= 1
            infectious += 1
            if infectious > peak:
                peak, peak_day = infectious, day
        else:
            infectious -= 1
    return Epidemic(
        attack_rate=1 - susceptible / setting.population,
        peak_infectious=peak,
        peak_day=peak_day,
        duration_days=day,
        events=events,
    )


def mean_field(setting: Setting, step_days: float = 0.02) -> MeanField:
    """Integrate the differential equations of the same epidemic by the classical Runge-Kutta method."""
    recovery = 1.0 / setting.infectious_days
    contact = setting.r0 * recovery / setting.population
    i = float(setting.first_cases)
    s = setting.population - i
    peak, peak_day, steps = i, 0.0, 0
    h = step_days
    while i > 0.5:  # less than half a person: in a real population nobody
        new = contact * s * i
        ds1, di1 = -new, new - recovery * i
        s2, i2 = s + h / 2 * ds1, i + h / 2 * di1
        new = contact * s2 * i2
        ds2, di2 = -new, new - recovery * i2
        s3, i3 = s + h / 2 * ds2, i + h / 2 * di2
        new = contact * s3 * i3
        ds3, di3 = -new, new - recovery * i3
        s4, i4 = s + h * ds3, i + h * di3
        new = contact * s4 * i4
        ds4, di4 = -new, new - recovery * i4
        s += h / 6 * (ds1 + 2 * ds2 + 2 * ds3 + ds4)
        i += h / 6 * (di1 + 2 * di2 + 2 * di3 + di4)
        steps += 1
        if i > peak:
            peak, peak_day = i, steps * h
    return MeanField(attack_rate=1 - s / setting.population, peak_infectious=peak, peak_day=peak_day)
