"""The elements of an array, each a process of its own, as one run; Slurm itself is a few variables here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from flightlog.events import JobStarted, SpanEvent, TaskSubmitted, kind_of
from flightlog.record.array_run import find_or_make
from flightlog.store import layout
from flightlog.store.catalogue import list_runs
from flightlog.store.integrity import verify_files
from flightlog.store.run import Run


def element(
    runs: Path, index: int, *command: str, size: int = 3, array: str = "14", **more: str
) -> subprocess.Popen[str]:
    """`flightlog run` of a command, inside an element of an array."""
    variables = {
        "SLURM_JOB_ID": str(int(array) + 1 + index),
        "SLURM_ARRAY_JOB_ID": array,
        "SLURM_ARRAY_TASK_ID": str(index),
        "SLURM_ARRAY_TASK_COUNT": str(size),
        "SLURM_CLUSTER_NAME": "flight",
        "FLIGHTLOG_RUNS_DIR": str(runs),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "flightlog", "run", "--project", "sweep", "--", *command],
        env={**os.environ, **variables, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(*elements: subprocess.Popen[str]) -> list[int]:
    """The exit codes, once all have ended without a word of Flightlog's."""
    said = [one.communicate()[1] for one in elements]
    assert said == [""] * len(elements)
    return [one.returncode for one in elements]


def only_run(runs: Path) -> Run:
    (entry,) = list_runs(runs)
    return Run(entry.path)


def kinds(run: Run) -> Counter[str]:
    return Counter(kind_of(event) for event in run.events("tasks"))  # type: ignore[arg-type]


def test_elements_that_run_at_once_are_one_run(tmp_path: Path):
    commands = [element(tmp_path, index, "sh", "-c", f"exit {index % 2}") for index in range(3)]
    assert ended(*commands) == [0, 1, 0]
    run = only_run(tmp_path)
    assert kinds(run) == {"task_submitted": 3, "task_started": 3, "task_completed": 2, "task_failed": 1}
    submitted = [event for event in run.events("tasks") if isinstance(event, TaskSubmitted)]
    assert sorted(event.args["array_index"] for event in submitted) == [0, 1, 2]
    assert sorted(e.job_id for e in run.events("jobs") if isinstance(e, JobStarted)) == [
        "14_0",
        "14_1",
        "14_2",
    ]
    assert (run.status, run.info.error, run.info.tags) == (
        "failed",
        "1 of 3 tasks failed",
        {"slurm_array_job_id": "14"},
    )
    assert verify_files(run.path) == []


def test_elements_that_run_one_after_the_other_are_one_run(tmp_path: Path):
    assert ended(element(tmp_path, 0, "true", size=2)) == [0]
    assert (only_run(tmp_path).status, only_run(tmp_path).info.status) == ("running", "running")
    assert ended(element(tmp_path, 1, "true", size=2)) == [0]
    run = only_run(tmp_path)
    assert (run.status, kinds(run)["task_completed"]) == ("completed", 2)


def test_two_arrays_are_two_runs(tmp_path: Path):
    assert ended(element(tmp_path, 0, "true", size=1), element(tmp_path, 0, "true", size=1, array="40")) == [
        0,
        0,
    ]
    assert [entry.status for entry in list_runs(tmp_path)] == ["completed", "completed"]


def test_a_second_command_of_an_element_belongs_to_the_same_run(tmp_path: Path):
    assert ended(element(tmp_path, 0, "true", size=2), element(tmp_path, 1, "true", size=2)) == [0, 0]
    assert only_run(tmp_path).status == "completed"
    assert ended(element(tmp_path, 0, "false", size=2)) == [1]
    run = only_run(tmp_path)
    assert (run.status, kinds(run)["task_completed"], kinds(run)["task_failed"]) == ("failed", 2, 1)
    assert verify_files(run.path) == []


def test_a_killed_element_leaves_the_run_open_and_its_task_in_flight(tmp_path: Path):
    killed = element(tmp_path, 0, "sh", "-c", "echo up; exec sleep 60", size=2)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "up\n"
    while not kinds(only_run(tmp_path))["task_started"]:  # written a moment after the command has started
        time.sleep(0.02)
    (child,) = Path(f"/proc/{killed.pid}/task/{killed.pid}/children").read_text().split()
    os.kill(killed.pid, signal.SIGKILL)
    os.kill(int(child), signal.SIGKILL)
    killed.communicate()
    assert ended(element(tmp_path, 1, "true", size=2)) == [0]
    run = only_run(tmp_path)
    assert run.info.status == "running"
    assert kinds(run) == {"task_submitted": 2, "task_started": 2, "task_completed": 1}


def test_a_python_program_in_an_element_records_into_the_run_of_the_array(tmp_path: Path):
    program = "import flightlog\nwith flightlog.record('own') as run:\n  with flightlog.span('inner'): pass"
    assert ended(element(tmp_path, 0, sys.executable, "-c", program, size=1)) == [0]
    run = only_run(tmp_path)
    (span,) = (event for event in run.events("spans") if isinstance(event, SpanEvent))
    (task,) = (event for event in run.events("tasks") if isinstance(event, TaskSubmitted))
    assert (span.name, span.parent_id) == ("inner", task.span_id)


def make(run_id: str, started: datetime) -> layout.RunInfo:
    return layout.RunInfo(run_id=run_id, project="sweep", status="running", start_time=started.isoformat())


def test_an_array_of_the_same_number_long_after_is_a_new_run(tmp_path: Path):
    job = JobStarted(job_id="14_0", array_job_id="14", array_index=0)
    first = find_or_make(tmp_path, job, "sweep", make)
    assert find_or_make(tmp_path, job, "sweep", make) == first
    info = make(first.name, datetime.now(UTC))
    info.status, info.end_time = "completed", (datetime.now(UTC) - timedelta(days=2)).isoformat()
    (first / layout.RUN).write_bytes(msgspec.json.encode(info))
    second = find_or_make(tmp_path, job, "sweep", make)
    assert second != first
    assert find_or_make(tmp_path, job, "sweep", make) == second


def test_an_array_whose_run_was_removed_gets_a_new_one(tmp_path: Path):
    job = JobStarted(job_id="14_0", array_job_id="14", array_index=0)
    first = find_or_make(tmp_path, job, "sweep", make)
    shutil.rmtree(first)
    (pointer,) = tmp_path.glob(".array-*")
    os.utime(pointer, (0, 0))  # nobody is about to make it
    second = find_or_make(tmp_path, job, "sweep", make)
    assert (second == first, second.is_dir()) == (False, True)


def test_a_command_runs_although_the_run_of_its_array_cannot_be_had(tmp_path: Path):
    file = tmp_path / "runs"
    file.touch()
    command = element(file, 0, "sh", "-c", "echo out; exit 5", size=1)
    out, err = command.communicate()
    assert (command.returncode, out) == (5, "out\n")
    assert err.startswith("flightlog: the run of array 14 cannot be had (")


def test_an_element_that_cannot_reach_the_others_is_a_run_of_its_own(tmp_path: Path):
    """A pointer that names nothing a run could be called is nobody's."""
    job = JobStarted(job_id="14_0", array_job_id="14", array_index=0)
    first = find_or_make(tmp_path, job, "sweep", make)
    (pointer,) = tmp_path.glob(".array-*")
    pointer.write_text("../../elsewhere")
    assert find_or_make(tmp_path, job, "sweep", make) not in {first, tmp_path / "../../elsewhere"}
