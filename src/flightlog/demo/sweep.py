"""The demo's job: a sweep of epidemics through a manifest and a session, as a user would write it.

At the end, what it simulates: the stochastic SIR epidemic, exactly, and its deterministic limit, as pure
functions.
"""

from __future__ import annotations

import csv
import errno
import math
import os
import random
import shutil
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path

import msgspec
from msgspec import Struct

import flightlog
from flightlog.core.settings import read_settings
from flightlog.record.run import LiveRun
from flightlog.session.cache.decorator import cacheable
from flightlog.session.session import Session

SCENARIOS = 200
R0_VALUES = (1.3, 1.6, 1.9, 2.2, 2.6, 3.0, 3.6, 4.4)
FIRST_SEED = 20_260
NONSENSE = -1.0
"""The R0 of the scenario that fails on purpose."""


MANIFEST = Path(__file__).with_name("flightlog.yaml")
"""The manifest that `write_manifest` copies."""
POPULATION = 20_000
UNSTAGED_EVERY = 23
"""One in this many scenarios finds the staging area missing at its first attempt."""


def demo_folder(runs_dir: Path | None = None) -> Path:
    """Where the demo keeps its manifest and its cache: beside the folder of runs."""
    return Path(runs_dir or read_settings().runs_dir).absolute().parent / "sir-demo"


def sweep(runs_dir: Path | None = None, count: int = SCENARIOS, *, workers: int | None = None) -> LiveRun:
    """Simulate this many scenarios and one invalid one, recorded; returns the run, which has ended.

    The results are in the run's folder, under `artifacts`, and are the same each time. Scenarios that an
    earlier sweep with the same folder of runs simulated come from the cache.
    """
    manifest = write_manifest(demo_folder(runs_dir))
    workers = workers or min(4, max(2, os.cpu_count() or 2))
    session = Session.from_yaml(
        manifest,
        target="local",
        runs_dir=runs_dir,
        tags={"model": "SIR", "scenarios": count},
        sample_interval_s=0.25,
        environ={**os.environ, "SIR_DEMO_WORKERS": str(workers)},
    )
    with session:
        client = session.client
        # Every R0 in turn, each scenario with another seed.
        seeds = range(FIRST_SEED, FIRST_SEED + count)
        futures = client.map(run_simulation, range(count), cycle(R0_VALUES), seeds)
        # What is said here wins over the manifest: nonsense does not get better by trying it again.
        futures.append(client.submit(run_simulation, count, NONSENSE, FIRST_SEED, retries=0))
        found = client.gather(futures, errors="return")
        outcomes = [one for one in found if isinstance(one, ScenarioResult)]
        with flightlog.span("sweep.collect", scenarios=count):
            _collect(session, outcomes)
    return session.telemetry


def sweep_twice(
    runs_dir: Path | None = None, count: int = SCENARIOS, *, workers: int | None = None
) -> tuple[LiveRun, LiveRun]:
    """The sweep with an empty cache, and then one that is larger by a quarter and uses the cache."""
    shutil.rmtree(demo_folder(runs_dir) / "cache", ignore_errors=True)
    larger = count + max(1, count // 4)
    return sweep(runs_dir, count, workers=workers), sweep(runs_dir, larger, workers=workers)


def _collect(session: Session, outcomes: Sequence[ScenarioResult]) -> None:
    for outcome in outcomes:
        session.telemetry.metric("attack_rate", outcome.epidemic.attack_rate, step=outcome.scenario_id)
    if session.path is not None:
        shutil.rmtree(staging_area(session.path), ignore_errors=True)
        table = write_table(outcomes, session.path / "artifacts" / "sir-sweep.csv")
        session.record_artifact(table, kind="result", rows=len(outcomes))


_COLUMNS: dict[str, Callable[[ScenarioResult], object]] = {
    "scenario_id": lambda one: one.scenario_id,
    "r0": lambda one: one.r0,
    "seed": lambda one: one.seed,
    "attack_rate": lambda one: f"{one.epidemic.attack_rate:.6f}",
    "expected_attack_rate": lambda one: f"{one.expected.attack_rate:.6f}",
    "peak_infectious": lambda one: one.epidemic.peak_infectious,
    "peak_day": lambda one: f"{one.epidemic.peak_day:.3f}",
    "duration_days": lambda one: f"{one.epidemic.duration_days:.3f}",
}


def write_table(outcomes: Sequence[ScenarioResult], file: Path) -> Path:
    """Write the results as CSV, one row per scenario in order; returns the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(_COLUMNS)
        rows.writerows([column(one) for column in _COLUMNS.values()] for one in outcomes)
    return file


def write_manifest(folder: Path) -> Path:
    """Write the manifest into a folder, which is created; returns the file. An existing one stays as it
    is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "flightlog.yaml"
    if not file.exists():
        shutil.copyfile(MANIFEST, file)
    return file


class ScenarioResult(Struct, frozen=True, kw_only=True):
    """The result of a scenario, with that of the deterministic model."""

    scenario_id: int
    r0: float
    seed: int
    epidemic: Epidemic
    expected: MeanField


def run_simulation(scenario_id: int, r0: float, seed: int) -> ScenarioResult:
    """The task: one scenario. Raises ValueError for an R0 of 0 or less, and OSError where a retry may
    help.
    """
    if not r0 > 0:
        raise ValueError(f"scenario {scenario_id} has an R0 of {r0}: it must be positive")
    with flightlog.span("simulation.setup", r0=r0):
        stage(scenario_id, r0, seed)
        expected = solve(r0)
    with flightlog.span("simulation.execute", seed=seed) as span:
        epidemic = simulate_epidemic(r0, seed)
        span.metrics["events"] = epidemic.events
    with flightlog.span("simulation.summarize") as span:
        span.metrics["excess_attack_rate"] = epidemic.attack_rate - expected.attack_rate
    flightlog.current_span().metrics["attack_rate"] = epidemic.attack_rate
    return ScenarioResult(scenario_id=scenario_id, r0=r0, seed=seed, epidemic=epidemic, expected=expected)


@cacheable
def simulate_epidemic(r0: float, seed: int) -> Epidemic:
    """Simulate an epidemic; cached, because it is the same for the same seed."""
    return simulate(Setting(r0=r0, population=POPULATION), seed)


@cacheable
def solve(r0: float) -> MeanField:
    """The deterministic solution; cached, because many scenarios share it."""
    return mean_field(Setting(r0=r0, population=POPULATION))


def stage(scenario_id: int, r0: float, seed: int) -> None:
    """Write the scenario's parameters into the run's staging area, as for a model that reads files.

    Simulates a slow shared file system: for some scenarios the first attempt finds it missing. Does nothing
    without a run.
    """
    run = flightlog.current_run()
    if run is None:
        return
    file = staging_area(run.path) / f"scenario-{scenario_id:04d}.json"
    tried = file.with_suffix(".tried")
    if scenario_id % UNSTAGED_EVERY == UNSTAGED_EVERY // 2 and not tried.exists():
        tried.parent.mkdir(exist_ok=True)
        tried.touch()
        raise OSError(errno.EIO, "simulated: the shared file system is not available", file.name)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(msgspec.json.encode({"scenario_id": scenario_id, "r0": r0, "seed": seed}))


def staging_area(run: Path) -> Path:
    """Where a run's parameters are staged; removed after the sweep."""
    return run / "staging"


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


def mean_field(setting: Setting) -> MeanField:
    """Integrate the differential equations of the same epidemic by the classical Runge-Kutta method."""
    recovery = 1.0 / setting.infectious_days
    contact = setting.r0 * recovery / setting.population
    i = float(setting.first_cases)
    s = setting.population - i
    peak, peak_day, steps = i, 0.0, 0
    h = 0.02  # days

    def slope(s: float, i: float) -> tuple[float, float]:
        new = contact * s * i
        return -new, new - recovery * i

    while i > 0.5:  # less than half a person: in a real population nobody
        ds1, di1 = slope(s, i)
        ds2, di2 = slope(s + h / 2 * ds1, i + h / 2 * di1)
        ds3, di3 = slope(s + h / 2 * ds2, i + h / 2 * di2)
        ds4, di4 = slope(s + h * ds3, i + h * di3)
        s += h / 6 * (ds1 + 2 * ds2 + 2 * ds3 + ds4)
        i += h / 6 * (di1 + 2 * di2 + 2 * di3 + di4)
        steps += 1
        if i > peak:
            peak, peak_day = i, steps * h
    return MeanField(attack_rate=1 - s / setting.population, peak_infectious=peak, peak_day=peak_day)
