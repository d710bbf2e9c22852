"""The demo's sweep: a real job over several processes, all of it in one run."""

from __future__ import annotations

import csv
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flightlog.demo.sir import simulate
from flightlog.demo.sweep import scenarios, sweep
from flightlog.events import CacheLookup, SpanEvent, TaskCompleted, WorkerReady
from flightlog.store.run import Run

FLIGHTLOG = [sys.executable, "-c", "from flightlog.cli.main import main; raise SystemExit(main())"]
SCENARIOS = 10


@pytest.fixture(scope="module", params=["forkserver", "spawn"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp(request.param)
    return Run(sweep(folder, SCENARIOS, workers=2, start_method=request.param).path)


def test_every_scenario_is_a_completed_task_of_a_worker_process(run):
    tasks = [e for e in run.events("tasks") if isinstance(e, TaskCompleted)]
    assert sorted(e.args["scenario_id"] for e in tasks) == list(range(SCENARIOS))
    assert {(e.task, tuple(e.args)) for e in tasks} == {("run_simulation", ("scenario_id", "r0", "seed"))}
    assert (run.info.status, run.info.tasks_completed, run.info.tasks_failed) == ("completed", SCENARIOS, 0)
    pids = {e.pid for e in run.events("workers") if isinstance(e, WorkerReady)}
    assert 1 <= len(pids) <= 2
    assert os.getpid() not in pids


def test_spans_lie_inside_the_tasks_they_belong_to(run):
    tasks = {e.span_id for e in run.events("tasks") if isinstance(e, TaskCompleted)}
    spans = [e for e in run.events("spans") if isinstance(e, SpanEvent) and e.name.startswith("simulation.")]
    found = sorted((e.parent_id, e.name) for e in spans)
    names = ("simulation.execute", "simulation.setup", "simulation.summarize")
    assert found == sorted((task, name) for task in tasks for name in names)


def test_the_cache_computes_each_solution_before_it_hits(run):
    lookups = [e for e in run.events("cache") if isinstance(e, CacheLookup)]
    missed = {e.key for e in lookups if e.result == "miss"}
    assert len(lookups) == SCENARIOS
    assert {e.key for e in lookups} == missed
    assert len(missed) == 8  # as many as there are values of R0


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
    again = [simulate(one.setting, one.seed) for one in scenarios(3)]
    assert [row["attack_rate"] for row in rows[:3]] == [f"{one.attack_rate:.6f}" for one in again]


def test_nothing_is_lost_on_the_way(run):
    completeness = run.completeness()
    assert (completeness.lost, completeness.doubled, completeness.torn) == ({}, 0, 0)


def test_the_demo_shows_the_report_of_its_run(tmp_path):
    environ = {**os.environ, "FLIGHTLOG_RUNS_DIR": str(tmp_path / "runs")}
    done = subprocess.run(
        [*FLIGHTLOG, "demo", "--scenarios", "3"], env=environ, capture_output=True, text=True
    )
    [path] = (tmp_path / "runs").iterdir()
    assert done.returncode == 0
    assert (
        done.stdout
        == subprocess.run([*FLIGHTLOG, "report"], env=environ, capture_output=True, text=True).stdout
    )
    assert f"Run Report: {path.name}" in done.stdout
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["flightlog", "flightlog"]
    assert subprocess.run([*FLIGHTLOG, "verify"], env=environ, capture_output=True).returncode == 0


def test_with_recording_off_the_demo_says_that_it_has_nothing_to_show(tmp_path):
    environ = {**os.environ, "FLIGHTLOG_TELEMETRY": "0"}
    done = subprocess.run([*FLIGHTLOG, "demo"], env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "FLIGHTLOG_TELEMETRY" in done.stderr
    assert list(Path(tmp_path).iterdir()) == []
