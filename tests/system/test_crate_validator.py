"""roc-validator finds no error in a crate, whatever became of the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from crate_validation import problems

import flightlog
from flightlog.export.base import ExportOptions
from flightlog.export.crate.exporter import exporter
from flightlog.store.run import Run

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

KILLED = """
import os, signal, sys, flightlog
with flightlog.record("killed", runs_dir=sys.argv[1]) as run:
    with run.task("finished", n=1):
        pass
    with run.task("unfinished", n=2):
        print(run.path, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the validator keeps its things."""
    return tmp_path_factory.mktemp("validator")


def crate_of(run: Path, tmp_path: Path) -> Path:
    exporter.export(Run(run), tmp_path / "crate", ExportOptions())
    return tmp_path / "crate"


def test_a_session_with_retries_failures_and_artifacts(tmp_path, beside):
    environ = {**os.environ, "SIR_DEMO_WORKERS": "2"}
    subprocess.run(
        [sys.executable, "-m", "flightlog", "demo"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        env=environ,
    )
    run = flightlog.open_run("latest", runs_dir=tmp_path / ".flightlog/runs")
    assert problems(crate_of(run.path, tmp_path), beside) == []


def test_a_program_without_tasks_by_an_author_with_a_license(tmp_path, beside):
    tags = {"author": "A. Author", "orcid": "0000-0002-1825-0097", "license": "https://spdx.org/licenses/MIT"}
    (tmp_path / "a file, with blanks & more.csv").write_text("1\n")
    with flightlog.record("plain", runs_dir=tmp_path / "runs", tags=tags) as run:
        run.record_artifact(tmp_path / "a file, with blanks & more.csv", kind="result")
    assert problems(crate_of(run.path, tmp_path), beside) == []


def test_names_and_addresses_of_any_kind(tmp_path, beside):
    with flightlog.record(
        'odd "name"\n', runs_dir=tmp_path / "runs", tags={"author": ["x"], "orcid": "a b"}
    ) as run:
        for name in ('q"uote', "a b#c?", "new\nline", "<tag>", "x" * 5000):
            with run.task(name, value=name):
                pass
        run.record_artifact("https://user:secret@example.org/a b?token=abc")
    assert problems(crate_of(run.path, tmp_path), beside) == []


def test_a_run_that_was_killed(tmp_path, beside):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "runs")], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert problems(crate_of(Path(done.stdout.strip()), tmp_path), beside) == []


def test_the_validator_would_find_an_error(tmp_path, beside):
    with flightlog.record("plain", runs_dir=tmp_path / "runs") as run:
        pass
    crate = crate_of(run.path, tmp_path)
    graph = crate / "ro-crate-metadata.json"
    graph.write_text(graph.read_text().replace('"HowTo"', '"Thing"'))
    assert len(problems(crate, beside)) >= 1
