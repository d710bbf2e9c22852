"""The demo's job: a sweep of epidemics over a pool of processes, recorded as a user would record their own."""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

import flightlog
from flightlog.demo.cache import solve
from flightlog.demo.sir import Epidemic, MeanField, Setting, simulate
from flightlog.events import CostEstimate
from flightlog.record.run import LiveRun

SCENARIOS = 48
R0_VALUES = (1.3, 1.6, 1.9, 2.2, 2.6, 3.0, 3.6, 4.4)
FIRST_SEED = 20_260


class Scenario(Struct, frozen=True, kw_only=True):
    """One epidemic to simulate."""

    scenario_id: int
    setting: Setting
    seed: int


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of it, beside what the deterministic model says."""

    scenario: Scenario
    epidemic: Epidemic
    expected: MeanField


def scenarios(count: int = SCENARIOS) -> list[Scenario]:
    """So many scenarios: every R0 in turn, each time with another seed."""
    return [
        Scenario(scenario_id=i, setting=Setting(r0=R0_VALUES[i % len(R0_VALUES)]), seed=FIRST_SEED + i)
        for i in range(count)
    ]


def run_simulation(scenario: Scenario, cache: Path) -> Outcome:
    """One scenario, in a worker process; the run it belongs to has come along with the work."""
    run = flightlog.current_run()
    if run is None:
        return _simulate(scenario, cache)
    facts = {"scenario_id": scenario.scenario_id, "r0": scenario.setting.r0, "seed": scenario.seed}
    with run.task("run_simulation", **facts) as task:
        outcome = _simulate(scenario, cache)
        task.metrics["attack_rate"] = outcome.epidemic.attack_rate
        return outcome


def _simulate(scenario: Scenario, cache: Path) -> Outcome:
    with flightlog.span("simulation.setup", r0=scenario.setting.r0):
        expected = solve(scenario.setting, cache)
    with flightlog.span("simulation.execute", seed=scenario.seed) as span:
        epidemic = simulate(scenario.setting, scenario.seed)
        span.metrics["events"] = epidemic.events
    with flightlog.span("simulation.summarize") as span:
        outcome = Outcome(scenario=scenario, epidemic=epidemic, expected=expected)
        span.metrics["excess_attack_rate"] = epidemic.attack_rate - expected.attack_rate
        return outcome


def sweep(
    runs_dir: Path | None = None,
    count: int = SCENARIOS,
    *,
    workers: int | None = None,
    start_method: str = "forkserver",
) -> LiveRun:
    """Simulate so many scenarios and record it all; gives the run, which has ended.

    The results stand in the run's folder, under `artifacts`. They are the same each time; times are not.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    workers = workers or min(4, max(2, os.cpu_count() or 2))
    context = multiprocessing.get_context(start_method)
    with (
        flightlog.record(
            "sir-demo", runs_dir=runs_dir, tags={"model": "SIR", "scenarios": count},
            sample_interval_s=0.25, target="local", provider="local",
        ) as run,
        tempfile.TemporaryDirectory(prefix="flightlog-demo-") as cache,
    ):  # fmt: skip
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            done = [pool.submit(run_simulation, scenario, Path(cache)) for scenario in scenarios(count)]
            outcomes = [future.result() for future in done]
        with flightlog.span("sweep.collect", scenarios=count):
            for outcome in outcomes:
                run.metric("attack_rate", outcome.epidemic.attack_rate, step=outcome.scenario.scenario_id)
            if run.path is not None:
                table = write_table(outcomes, run.path / "artifacts" / "sir-sweep.csv")
                run.record_artifact(table, kind="result", rows=count)
        run.emit(CostEstimate(item="local workers", amount=0.0, currency="USD", provider="local", rate=0.0))
    return run


def write_table(outcomes: Sequence[Outcome], file: Path) -> Path:
    """Write the results as CSV, one row a scenario in their order; gives the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(
            ["scenario_id", "r0", "seed", "attack_rate", "expected_attack_rate", "peak_infectious", "peak_day",
             "duration_days"]
        )  # fmt: skip
        for one in outcomes:
            found = one.epidemic
            rows.writerow(
                [one.scenario.scenario_id, one.scenario.setting.r0, one.scenario.seed, f"{found.attack_rate:.6f}",
                 f"{one.expected.attack_rate:.6f}", found.peak_infectious, f"{found.peak_day:.3f}",
                 f"{found.duration_days:.3f}"]
            )  # fmt: skip
    return file
