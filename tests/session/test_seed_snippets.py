"""What users of other tools' sessions write, under our names: it works, and is recorded by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import work_for_sessions as work
from sessions import HEAD, PROCESSES, counts

from flightlog.analyze.report.summary import summarize
from flightlog.events import ArtifactRecorded
from flightlog.session.session import Session
from flightlog.store.run import Run

HERE = Path(__file__).parent


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a manifest, and the working directory."""
    (tmp_path / "flightlog.yaml").write_text(HEAD + PROCESSES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def only_run(project: Path) -> Run:
    [path] = (project / ".flightlog" / "runs").iterdir()
    return Run(path)


def test_a_session_that_is_never_closed_records_its_artifacts(project):
    program = """
from flightlog.session.session import Session

session = Session.from_yaml("flightlog.yaml", target="local")

# Telemetry is automatically recorded during the session lifecycle

# Record custom artifacts
session.record_artifact("output.csv", kind="result")
"""
    (project / "output.csv").write_text("scenario_id,loss\n42,0.3\n")
    (project / "program.py").write_text(program)
    subprocess.run([sys.executable, "program.py"], check=True, env={**os.environ, "PYTHONPATH": str(HERE)})
    run = only_run(project)
    [artifact] = [event for event in run.events("artifacts") if isinstance(event, ArtifactRecorded)]
    assert (artifact.name, artifact.kind, artifact.size_bytes) == ("output.csv", "result", 24)
    assert (run.info.status, run.info.target, run.info.provider) == ("completed", "local", "local")


def test_submit_and_map_record_the_lives_of_their_tasks(project):
    with Session.from_yaml("flightlog.yaml", target="local") as session:
        future = session.client.submit(work.add, 1, 2, tag=None)
        futures = session.client.map(work.add, range(10))
        assert future.result() == 3
        assert session.client.gather(futures) == list(range(1, 11))
    run = only_run(project)
    assert counts(summarize(run)) == {"submitted": 11, "completed": 11}
    kinds = [type(event).__name__ for event in run.events("tasks")]
    assert {kind: kinds.count(kind) for kind in sorted(set(kinds))} == {
        "TaskCompleted": 11,
        "TaskQueued": 11,
        "TaskStarted": 11,
        "TaskSubmitted": 11,
    }


def test_the_manifest_is_found_and_its_target_picked_without_a_word(project):
    with Session.from_yaml() as session:
        assert session.client.submit(work.add, 1).result() == 2
    assert (session.target, session.provider) == ("local", "local")


def test_the_run_directory_has_what_the_run_history_promises(project):
    with Session.from_yaml("flightlog.yaml", target="local") as session:
        session.client.gather(session.client.map(work.fail, ["on purpose"]), errors="return")
        session.record_artifact("flightlog.yaml", kind="input")
    names = {path.name for path in only_run(project).path.iterdir()}
    assert names >= {
        "manifest.yaml",
        "plan.json",
        "manifest.lock",
        "run.json",
        "tasks.jsonl",
        "resources.jsonl",
        "workers.jsonl",
        "failures.jsonl",
        "artifacts.jsonl",
        "summary.json",
    }
