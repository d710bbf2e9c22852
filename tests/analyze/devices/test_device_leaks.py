"""Leaks are found and healthy shapes are not called leaks: by hand, and measured over many generated runs."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest
from builders.device_sessions import GIB, MIB, event
from builders.runs import make_run
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.devices.report import devices_of_run, steady_growth
from flightlog.analyze.devices.results import DeviceReport
from flightlog.core.stats import rising_chance, theil_sen
from flightlog.store.completing import open_run

HEALTHY = (
    "flat",
    "warm-up",
    "levels off",
    "saw tooth",
    "steps",
    "wanders around",
    "batches",
    "in turn",
    "falls",
)


def healthy(draw: random.Random, shape: str) -> list[float]:
    """Levels of 8 to 120 repetitions of a phase that does not leak."""
    count, base = draw.randint(8, 120), draw.uniform(1, 60) * GIB
    noise = draw.choice([0, 0, 1, 50, 500]) * MIB
    height = draw.uniform(0.05, 4) * GIB
    warm, period, tau = (
        draw.randint(1, max(1, count // 3)),
        draw.randint(2, max(2, count // 3)),
        draw.uniform(0.5, count / 5),
    )
    at, phi, off = [draw.randrange(count) for _ in range(draw.randint(1, 3))], draw.uniform(0.3, 0.9), 0.0
    levels = []
    for n in range(count):
        off = phi * off + draw.gauss(0, 100 * MIB)
        level = {
            "flat": base,
            "warm-up": base + height * min(1.0, (n + 1) / warm),
            "levels off": base + height * (1 - math.exp(-n / tau)),
            "saw tooth": base + height * (n % period) / period,
            "steps": base + height * sum(n >= step for step in at),
            "wanders around": base + off,
            "batches": base * draw.lognormvariate(0, 0.3),
            "in turn": base + height * (n % 2),
            "falls": base - n * 5 * MIB,
        }[shape]
        levels.append(level + draw.gauss(0, noise))
    return levels


def leaking(draw: random.Random, count: int, noise: float) -> list[float]:
    """Levels that grow by the same each time, after a warm-up, with noise of so many times that."""
    each, base, warm = draw.uniform(2, 200) * MIB, draw.uniform(1, 60) * GIB, draw.choice([0, 2]) * GIB
    return [base - warm * math.exp(-n) + each * n + draw.gauss(0, noise * each) for n in range(count)]


def test_of_3600_healthy_runs_ten_at_most_are_called_leaking():
    draw = random.Random(1)
    alarms = Counter(
        shape for shape in HEALTHY for _ in range(400) if steady_growth(healthy(draw, shape)) is not None
    )
    assert sum(alarms.values()) <= 10, alarms
    assert {
        shape: alarms[shape] for shape in ("flat", "warm-up", "saw tooth", "batches", "in turn", "falls")
    } == dict.fromkeys(("flat", "warm-up", "saw tooth", "batches", "in turn", "falls"), 0)


@pytest.mark.parametrize(
    ("count", "noise", "least"),
    [(8, 0.0, 0.95), (12, 0.5, 0.85), (20, 1.0, 0.85), (40, 2.0, 0.97), (40, 4.0, 0.6), (100, 4.0, 0.99)],
)
def test_leaks_are_found_in_so_many_of_200_runs(count, noise, least):
    draw = random.Random(count)
    found = sum(steady_growth(leaking(draw, count, noise)) is not None for _ in range(200))
    assert found >= least * 200


@given(st.lists(st.integers(-50, 50), min_size=6, max_size=40))
def test_the_chance_is_that_of_a_plain_count_of_pairs(values):
    pairs = list(itertools.combinations(values, 2))
    score = sum((b > a) - (b < a) for a, b in pairs)
    n, ties = len(values), Counter(values).values()
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    toward = score - 1 if score > 0 else score + 1 if score < 0 else 0
    expected = 1.0 if variance == 0 else 0.5 * math.erfc(toward / math.sqrt(2 * variance))
    assert rising_chance(values) == pytest.approx(expected, rel=1e-12)


def test_the_chance_is_near_the_share_of_all_orders_and_never_below_it():
    values = [1, 2, 3, 4, 6, 5, 7]
    score = [
        sum(b > a for a, b in itertools.combinations(order, 2)) for order in itertools.permutations(values)
    ]
    exact = sum(one >= 20 for one in score) / len(score)
    assert exact <= rising_chance(values) <= exact + 0.003


@given(st.lists(st.integers(-(10**12), 10**12), min_size=2, max_size=20))
def test_the_slope_is_the_median_of_all_pairs(values):
    slopes = [(b - a) / (j - i) for (i, a), (j, b) in itertools.combinations(enumerate(values), 2)]
    assert theil_sen(values) == pytest.approx(median(slopes))


def test_the_slope_of_a_long_series_is_that_of_the_levels_given():
    growth = steady_growth([n * 10.0 * MIB for n in range(2000)])
    assert growth is not None
    assert growth.slope == pytest.approx(10 * MIB)


def grown(count: int, off: Callable[[int, float], float]) -> list[float]:
    """Levels that grow by 10 MiB each, and beside the line by `off`, given the growth after the warm-up."""
    total = 10.0 * MIB * (count - count // 10 - 1)
    return [10.0 * MIB * n + off(n, total) for n in range(count)]


@pytest.mark.parametrize(("share", "leaks"), [(0.39, True), (0.41, False)])
def test_a_fall_that_takes_back_two_fifths_of_the_growth_is_a_reset(share, leaks):
    levels = grown(100, lambda n, total: -(share * total + 10 * MIB) if n == 50 else 0.0)
    assert (steady_growth(levels) is not None) is leaks


@pytest.mark.parametrize(("times", "leaks"), [(3.1, True), (2.9, False)])
def test_a_growth_of_less_than_three_times_the_scatter_is_noise(times, leaks):
    wave = (1, 1, 0, -1, -1, 0)
    levels = grown(120, lambda n, total: wave[n % 6] * total / times / 1.4826)
    assert (steady_growth(levels) is not None) is leaks


def steps(
    folder: Path, ends: list[float], *, peak: float = 4.0, phase: str = "step", **metadata: object
) -> DeviceReport:
    """A run with a span a second: up to `peak` GiB more inside it, and so many GiB at its end; four events
    each."""
    events = []
    for n, end in enumerate(ends):
        for part, level in enumerate((end, end + peak, end + peak / 2, end)):
            held = round(level * GIB)
            events.append(
                event(
                    n + part / 5,
                    context=phase,
                    allocator_allocated_bytes=held,
                    allocator_reserved_bytes=held,
                    device_used_bytes=held,
                    metadata={"span_id": f"s{n}", "device_used_source": "driver", **metadata},
                )
            )
    return devices_of_run(open_run(make_run(folder, events)))


def test_a_leak_is_told_with_its_evidence_and_the_time_that_is_left(tmp_path):
    report = steps(tmp_path, [10 + 0.5 * n for n in range(20)])
    [leak] = report.sessions[0].leaks
    assert (leak.phase, leak.counter, leak.repetitions, leak.tested) == ("step", "allocated", 20, 18)
    assert (leak.bytes_per_repetition, leak.growth_bytes, leak.repetition_s) == (GIB / 2, 8.5 * GIB, 1.0)
    assert leak.full_in_s == 121.0  # 80 GiB less 19.5 GiB at half a GiB a second
    assert leak.chance < 1e-6
    assert report.advice[0] == (
        "Memory may leak: 512.0 MiB more with each `step`, 8.5 GiB over 18 of them; at this pace the device "
        "is full 2m 01s after the last event."
    )


def test_a_pool_with_a_limit_of_its_own_is_full_at_that_limit(tmp_path):
    [leak] = steps(tmp_path, [10 + 0.5 * n for n in range(20)], limit_bytes=40 * GIB).sessions[0].leaks
    assert leak.full_in_s == 41.0


def test_spans_of_one_name_behind_each_other_are_repetitions(tmp_path):
    assert steps(tmp_path, [10.0] * 9).sessions[0].phases[0].repetitions == 9


def test_without_span_ids_there_is_nothing_to_compare(tmp_path):
    report = steps(tmp_path, [10 + 0.5 * n for n in range(20)], span_id=None)
    assert (report.sessions[0].phases[0].repetitions, report.sessions[0].leaks) == (1, [])


@pytest.mark.parametrize(
    "ends",
    [
        [10.0] * 20,
        [2, 5, 8, 10, 10, 10, 10, 10, 10, 10, 10, 10],
        [10 + n % 5 for n in range(30)],
        [10.0] * 10 + [20.0] * 10,
        [10 + 0.5 * n for n in range(7)],
    ],
    ids=["flat", "warm-up", "saw tooth", "one step", "too few"],
)
def test_healthy_shapes_are_no_leak(tmp_path, ends):
    assert steps(tmp_path, [float(end) for end in ends]).sessions[0].leaks == []


def test_what_is_freed_within_the_phase_is_no_leak(tmp_path):
    events = [
        event(
            n + part / 2,
            context="step",
            allocator_allocated_bytes=(1 + part * n) * GIB,
            metadata={"span_id": f"{n}"},
        )
        for n in range(20)
        for part in (0, 1)
    ]
    assert devices_of_run(open_run(make_run(tmp_path, events))).sessions[0].leaks == []


def test_memory_outside_of_phases_is_not_judged_and_that_is_said(tmp_path):
    events = [event(n, allocator_allocated_bytes=n * GIB) for n in range(40)]
    report = devices_of_run(open_run(make_run(tmp_path, events)))
    assert report.sessions[0].leaks == []
    assert report.advice[-1].startswith("No phases were recorded, so leaks cannot be told")
