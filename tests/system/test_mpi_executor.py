"""A session on the ranks of a real MPI job, by the executor of `mpi4py.futures`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from builders.runs import finished

from flightlog.store.run import Run

pytestmark = pytest.mark.system

PROGRAM = """
import os
from flightlog import Session, span

def square(number):
    with span("inner"):
        return number * number, os.getpid()

if __name__ == "__main__":
    from mpi4py.futures import MPIPoolExecutor

    with MPIPoolExecutor() as pool, Session(engine=pool, runs_dir="runs", sample_interval_s=0.1) as session:
        results = session.client.gather(session.client.map(square, range(40)))
        print(sum(square for square, _ in results), *sorted({pid for _, pid in results}))
"""


def test_tasks_run_and_are_recorded_on_the_ranks_of_an_mpi_job(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "flightlog.yaml").write_text(
        "version: 1\nproject: {name: mpi}\ntargets:\n  local: {provider: local}\n"
    )
    mpiexec = Path(sys.executable).parent / "mpiexec"
    done = subprocess.run(
        [mpiexec, "-n", "3", sys.executable, "-m", "mpi4py.futures", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    total, *ranks = map(int, done.stdout.split())
    assert (total, len(ranks)) == (sum(number * number for number in range(40)), 2)
    (path,) = (tmp_path / "runs").glob("run-*")
    run = Run(path)
    assert (run.info.status, run.info.provider, run.info.tasks_completed) == ("completed", "executor", 40)
    events = [(type(event).__name__, event) for event in run.events("tasks")]
    ended = [event for name, event in events if name == "TaskCompleted"]
    assert {int(event.worker.rpartition(":")[2]) for event in ended} == set(ranks)
    assert {span.parent_id for span in finished(run) if span.name == "inner"} == {
        event.span_id for event in ended
    }
    assert not any(run.completeness().lost.values())
