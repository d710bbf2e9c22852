"""One scenario of the sweep, as its worker runs it: staged, simulated, compared with the deterministic
solution.
"""

from __future__ import annotations

import errno
from pathlib import Path

import msgspec
from msgspec import Struct

import flightlog
from flightlog.demo.sir import Epidemic, MeanField, Setting, mean_field, simulate
from flightlog.session.cache import cacheable

POPULATION = 20_000
SHAKY = 23
"""Of so many scenarios one meets a staging area that is not there at the first try."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of a scenario, beside what the deterministic model says."""

    scenario_id: int
    r0: float
    seed: int
    epidemic: Epidemic
    expected: MeanField


def run_simulation(scenario_id: int, r0: float, seed: int) -> Outcome:
    """The task. An R0 that is no such number is a ValueError; an OSError may be gone at the next attempt."""
    if not r0 > 0:
        raise ValueError(
            f"scenario {scenario_id} asks for an R0 of {r0}: nothing spreads less than not at all"
        )
    with flightlog.span("simulation.setup", r0=r0):
        stage(scenario_id, r0, seed)
        expected = solve(r0)
    with flightlog.span("simulation.execute", seed=seed) as span:
        epidemic = simulate_epidemic(r0, seed)
        span.metrics["events"] = epidemic.events
    with flightlog.span("simulation.summarize") as span:
        span.metrics["excess_attack_rate"] = epidemic.attack_rate - expected.attack_rate
    flightlog.current_span().metrics["attack_rate"] = epidemic.attack_rate
    return Outcome(scenario_id=scenario_id, r0=r0, seed=seed, epidemic=epidemic, expected=expected)


@cacheable
def simulate_epidemic(r0: float, seed: int) -> Epidemic:
    """One course of the epidemic; kept, because it is the same for the same seed."""
    return simulate(Setting(r0=r0, population=POPULATION), seed)


@cacheable
def solve(r0: float) -> MeanField:
    """The deterministic solution; kept, because many scenarios share it."""
    return mean_field(Setting(r0=r0, population=POPULATION))


def stage(scenario_id: int, r0: float, seed: int) -> None:
    """Write the scenario's parameters into the run's staging area, as a model that reads files wants it.

    The area plays a shared file system that is slow to appear: for some scenarios the first attempt finds it
    missing. Without a run there is none.
    """
    run = flightlog.current_run()
    if run is None:
        return
    file = staging_area(run.path) / f"scenario-{scenario_id:04d}.json"
    tried = file.with_suffix(".tried")
    if scenario_id % SHAKY == SHAKY // 2 and not tried.exists():
        tried.parent.mkdir(exist_ok=True)
        tried.touch()
        raise OSError(errno.EIO, "simulated: the shared file system was not there", file.name)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(msgspec.json.encode({"scenario_id": scenario_id, "r0": r0, "seed": seed}))


def staging_area(run: Path) -> Path:
    """Where a run's parameters are staged; it is cleared when the sweep is over."""
    return run / "staging"
