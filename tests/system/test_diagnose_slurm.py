"""What `flightlog.diagnose` says of jobs that a real Slurm ended: at their time limit, and for their
memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from slurm.cluster import Cluster

import flightlog
from flightlog.analyze.diagnosis.results import Cause, RunDiagnosis
from flightlog.events import TaskStarted
from flightlog.session.session import Session
from flightlog.store.catalogue import list_runs
from flightlog.store.run import Run
from flightlog.testing import tasks

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

MANIFEST = """\
version: 1
project:
  name: limits
targets:
  cluster:
    provider: slurm
    partition: debug
    account: lab
    n_workers: 1
components:
  short:
    cpus: 1
    memory: 512MiB
    walltime: 1m
tasks:
  hold:
    component: short
"""
HOG = f"{sys.executable} -c 'import time; held = bytearray(400 << 20); time.sleep(60)'"


def diagnosed(slurm: Cluster, runs: Path, job: str) -> tuple[RunDiagnosis, Cause]:
    """Adopt what accounting says of a job, and diagnose the run that was recorded in it."""
    subprocess.run(
        [sys.executable, "-m", "flightlog", "adopt", "--slurm", job],
        env={**os.environ, **slurm.environ, "FLIGHTLOG_RUNS_DIR": str(runs)},
        check=True,
        capture_output=True,
    )
    (entry,) = list_runs(runs)
    found = flightlog.diagnose(entry.path)
    [cause] = found.causes
    return found, cause


def recorded(slurm: Cluster, runs: Path, command: str, *options: str) -> str:
    script = f"{sys.executable} -m flightlog run -- {command}"
    return slurm.submit(script, *options, FLIGHTLOG_RUNS_DIR=str(runs))


def until_started(runs: Path) -> None:
    """Wait until something recorded there executes a task."""
    deadline = time.monotonic() + 60
    while not any(
        isinstance(event, TaskStarted)
        for entry in list_runs(runs)
        for event in Run(entry.path).events("tasks")
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_job_that_met_its_time_limit_is_told_from_accounting(slurm: Cluster, tmp_path: Path) -> None:
    job = recorded(slurm, tmp_path / "runs", "sleep 300", "--time=1")
    slurm.until_running(job)
    until_started(tmp_path / "runs")
    slurm.run("scontrol", "update", f"job={job}", "EndTime=now+1")
    slurm.wait(job, patience_s=120)
    _, cause = diagnosed(slurm, tmp_path / "runs", job)
    assert (cause.failure_class, cause.scope) == ("time_limit", "job")
    assert cause.confidence >= 0.9
    assert ("scheduler", "jobs.jsonl", "job_accounted") in {
        (one.source, one.file, one.event) for one in cause.evidence
    }


def test_a_job_that_outgrew_its_memory_is_told_from_accounting(slurm: Cluster, tmp_path: Path) -> None:
    job = recorded(slurm, tmp_path / "runs", HOG, "--mem=150M")
    slurm.wait(job, patience_s=120)
    _, cause = diagnosed(slurm, tmp_path / "runs", job)
    assert cause.failure_class == "out_of_memory"
    assert cause.confidence >= 0.9


def test_a_worker_whose_job_met_its_walltime_explains_the_task_that_it_had(
    slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in slurm.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flightlog.yaml").write_text(MANIFEST)
    runs = tmp_path / "runs"
    os.mkfifo(tmp_path / "gate")
    with Session.from_yaml(tmp_path / "flightlog.yaml", target="cluster", runs_dir=runs) as session:
        future = session.client.submit(tasks.hold, str(tmp_path / "gate"))
        until_started(runs)
        [job] = slurm.run("squeue", "-h", "-o", "%i").split()
        slurm.run("scontrol", "update", f"job={job}", "EndTime=now+1")
        error = future.exception(timeout=200)
        assert error is not None
    found = flightlog.diagnose(session.path)
    first = found.causes[0]
    assert (first.failure_class, first.scope) == ("time_limit", "job")
    assert first.explains.lost_tasks == 1
    assert "`components.short.walltime: " in " ".join(first.suggestions)
