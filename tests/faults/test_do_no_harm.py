"""Ordinary programs do with the recorder exactly what they do without it.

Each program in `ordinary_programs` runs twice in an empty folder: beside a stand-in for Flightlog that does
nothing, and beside Flightlog. Output, exit code and every file that it leaves must be the same, and the run
must tell the truth.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flightlog.store.catalogue import list_runs
from flightlog.store.run import Run

HERE = Path(__file__).parent
PROGRAMS = sorted(path.stem for path in (HERE / "ordinary_programs").glob("*.py"))
STATUSES = {
    "abort": {"crashed"},
    "alarm_around_the_run": {"completed", "failed", "interrupted"},
    "exception_group": {"failed"},
    "exit_at_once": {"crashed"},
    "exit_code": {"failed"},
    "exit_functions": {"interrupted"},
    "keyboard_interrupt": {"interrupted"},
    "killed_by_sigterm": {"interrupted"},
    "own_sigterm_handler": {"failed"},
    "replaces_itself": {"crashed"},
    "segmentation_fault": {"crashed"},
    "uncaught_exception": {"failed"},
}
"""How the runs of a program may end, where they are not simply completed."""


COUNTED = {"alarm_around_the_run", "alarm_timeouts", "deep_recursion"}
"""Programs in which some spans cannot be recorded; they are counted."""


def run_program(name: str, folder: Path, environ: dict[str, str]) -> dict[str, object]:
    """Run a program in a new folder; all that a user sees of it."""
    work = folder / "work"
    work.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, HERE / "ordinary_programs" / f"{name}.py"],
        cwd=work,
        env={**environ, "FLIGHTLOG_RUNS_DIR": str(folder / "runs")},
        input="some\nlines\n",
        capture_output=True,
        text=True,
        timeout=100,
    )
    files = {str(file.relative_to(work)): file.read_bytes() for file in work.rglob("*") if file.is_file()}
    return {"exit code": done.returncode, "stdout": done.stdout, "stderr": done.stderr, "files": files}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_the_same_with_and_without_the_recorder(name, tmp_path):
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("FLIGHTLOG", "TRACEP"))}
    stand_in = {**environ, "PYTHONPATH": str(HERE / "without_recorder")}
    without = run_program(name, tmp_path / "without", stand_in)
    recorded = run_program(name, tmp_path / "recorded", environ)
    assert recorded == without
    runs = [Run(entry.path) for entry in list_runs(tmp_path / "recorded" / "runs")]
    assert runs
    assert {run.status for run in runs} <= STATUSES.get(name, {"completed"})
    if name not in COUNTED:
        assert [sum(run.completeness().lost.values()) for run in runs] == [0] * len(runs)


def test_the_programs_are_many():
    assert len(PROGRAMS) >= 30
    assert set(STATUSES) <= set(PROGRAMS)
