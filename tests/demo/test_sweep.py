"""The demo's sweep: a real job through a manifest, on several processes, twice."""

from __future__ import annotations

import csv
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flightlog.demo.sweep import FIRST_SEED, POPULATION, R0_VALUES, Setting, simulate, sweep_twice
from flightlog.events import CacheLookup, SpanEvent, TaskCompleted, TaskFailed, TaskRetried, WorkerReady
from flightlog.store.run import Run

FLIGHTLOG = [sys.executable, "-c", "from flightlog.cli.main import main; raise SystemExit(main())"]
SCENARIOS = 12
MORE = 15
"""As many as the second run has."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    first, second = sweep_twice(tmp_path_factory.mktemp("demo") / "runs", SCENARIOS, workers=2)
    return Run(first.path), Run(second.path)


@pytest.fixture(scope="module")
def run(runs: tuple[Run, Run]) -> Run:
    return runs[0]


def test_every_scenario_is_a_completed_task_of_a_worker_process(run):
    tasks = [e for e in run.events("tasks") if isinstance(e, TaskCompleted)]
    assert sorted(e.args["scenario_id"] for e in tasks) == list(range(SCENARIOS))
    assert {(e.task, e.component, tuple(e.args)) for e in tasks} == {
        ("run_simulation", "simulator", ("scenario_id", "r0", "seed"))
    }
    assert (run.info.status, run.info.tasks_completed, run.info.tasks_failed) == ("completed", SCENARIOS, 1)
    assert (run.info.target, run.info.provider) == ("local", "local")
    pids = {e.pid for e in run.events("workers") if isinstance(e, WorkerReady)}
    assert 1 <= len(pids) <= 2
    assert os.getpid() not in pids


def test_a_scenario_that_makes_no_sense_fails_without_a_second_try(run):
    [failed] = [e for e in run.events("tasks") if isinstance(e, TaskFailed)]
    assert (failed.args["scenario_id"], failed.error_type, failed.attempt) == (SCENARIOS, "ValueError", 1)


def test_a_scenario_whose_staging_area_is_not_available_is_retried(runs):
    for run in runs:
        [retried] = [e for e in run.events("tasks") if isinstance(e, TaskRetried)]
        [end] = [
            e for e in run.events("tasks") if isinstance(e, TaskCompleted) and e.task_id == retried.task_id
        ]
        assert (retried.attempt, end.attempt, end.args["scenario_id"]) == (1, 2, 11)
        assert "is not available" in retried.reason


def test_spans_lie_inside_the_attempts_they_belong_to(run):
    tasks = {e.span_id for e in run.events("tasks") if isinstance(e, TaskCompleted)}
    spans = [e for e in run.events("spans") if isinstance(e, SpanEvent) and e.parent_id in tasks]
    names = ("simulation.execute", "simulation.setup", "simulation.summarize")
    assert sorted((e.parent_id, e.name) for e in spans) == sorted(
        (task, name) for task in tasks for name in names
    )


def lookups(run: Run, task: str) -> dict[str, int]:
    results = [e.result for e in run.events("cache") if isinstance(e, CacheLookup) and e.task == task]
    return {result: results.count(result) for result in sorted(set(results))}


def test_the_second_run_computes_only_what_the_first_has_not(runs):
    first, second = runs
    assert lookups(first, "simulate_epidemic") == {"miss": SCENARIOS}
    assert lookups(second, "simulate_epidemic") == {"hit": SCENARIOS, "miss": MORE - SCENARIOS}
    assert lookups(second, "solve") == {"hit": MORE}


def test_the_results_are_those_of_the_model_and_registered_with_their_checksum(run):
    [artifact] = run.events("artifacts")
    table = run.path / "artifacts" / "sir-sweep.csv"
    assert (artifact.name, artifact.kind, artifact.metadata) == (
        "sir-sweep.csv",
        "result",
        {"rows": SCENARIOS},
    )
    assert artifact.sha256 == hashlib.sha256(table.read_bytes()).hexdigest()
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["scenario_id"]) for row in rows] == list(range(SCENARIOS))
    again = [simulate(Setting(r0=R0_VALUES[i], population=POPULATION), FIRST_SEED + i) for i in range(3)]
    assert [row["attack_rate"] for row in rows[:3]] == [f"{one.attack_rate:.6f}" for one in again]


def test_cached_results_are_the_same_as_computed_ones(runs):
    first, second = ((run.path / "artifacts" / "sir-sweep.csv").read_text().splitlines() for run in runs)
    assert second[: len(first)] == first


def test_nothing_is_lost_on_the_way(runs):
    for run in runs:
        completeness = run.completeness()
        assert (completeness.lost, completeness.doubled, completeness.torn) == ({}, 0, 0)


def test_the_demo_shows_the_report_of_its_second_run(tmp_path):
    environ = {**os.environ, "FLIGHTLOG_RUNS_DIR": str(tmp_path / "runs")}
    done = subprocess.run(
        [*FLIGHTLOG, "demo", "--scenarios", "3"], env=environ, capture_output=True, text=True
    )
    first, second = sorted(
        (Run(path) for path in (tmp_path / "runs").iterdir()), key=lambda r: r.info.start_time
    )
    assert done.returncode == 0
    assert (
        done.stdout
        == subprocess.run([*FLIGHTLOG, "report"], env=environ, capture_output=True, text=True).stdout
    )
    assert f"Run Report: {second.run_id}" in done.stdout
    assert (
        f"flightlog: this is the second run; it took results of {first.run_id} from the cache" in done.stderr
    )
    assert str(tmp_path / "sir-demo" / "flightlog.yaml") in done.stderr
    assert subprocess.run([*FLIGHTLOG, "verify"], env=environ, capture_output=True).returncode == 0


def test_with_recording_off_the_demo_says_that_it_has_nothing_to_show(tmp_path):
    environ = {**os.environ, "FLIGHTLOG_TELEMETRY": "0"}
    done = subprocess.run([*FLIGHTLOG, "demo"], env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "FLIGHTLOG_TELEMETRY" in done.stderr
    assert list(Path(tmp_path).iterdir()) == []
