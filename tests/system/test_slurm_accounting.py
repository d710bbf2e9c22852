"""Jobs of a real Slurm, recorded from inside or not at all, and what its accounting adds to the record."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from slurm.cluster import Cluster

from flightlog.engines.slurm.accounting import parse_accounting
from flightlog.engines.slurm.events import merge_accounting
from flightlog.events import Failure, JobAccounted, JobStarted, TaskEnded, TaskSubmitted, kind_of
from flightlog.store.catalogue import list_runs
from flightlog.store.integrity import verify_files
from flightlog.store.run import Run

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

FLIGHTLOG = f"{sys.executable} -m flightlog"
HOG = f"{sys.executable} -c 'import time; held = bytearray(400 << 20); time.sleep(60)'"


class Jobs(msgspec.Struct):
    """Jobs that have ended, by name, and the folder that holds what was recorded inside them."""

    slurm: Cluster
    ids: dict[str, str]
    runs: Path
    """Of jobs that recorded themselves, before anything was adopted."""

    def adopt(self, *words: str) -> str:
        return flightlog(self.slurm, "adopt", *words)

    def run(self, project: str) -> Run:
        (path,) = (entry.path for entry in list_runs(self.runs) if entry.project == project)
        return Run(path)


def flightlog(slurm: Cluster, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "flightlog", *words],
        env={**os.environ, **slurm.environ},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def jobs(slurm: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """One job of each kind of end, all at once; those in lower case record themselves."""
    runs = tmp_path_factory.mktemp("runs")
    where = {"FLIGHTLOG_RUNS_DIR": str(runs)}

    def recorded(project: str, command: str, *options: str) -> str:
        script = f"{FLIGHTLOG} run --project {project} -- {command}"
        return slurm.submit(script, f"--job-name={project}", *options, **where)

    ids = {
        "time": recorded("time", "sleep 300", "--time=1"),
        "cancel": recorded("cancel", "sleep 300"),
        "memory": recorded("memory", HOG, "--mem=150M"),
        "array": recorded(
            "array", "sh -c '[ $SLURM_ARRAY_TASK_ID != 3 ]'", "--array=0-4", "--cpus-per-task=2"
        ),
        "ok": recorded("ok", "sleep 1", "--mem=300M"),
        "three": recorded("three", "sh -c 'exit 3'"),
        "ARRAY": slurm.submit("[ $SLURM_ARRAY_TASK_ID != 2 ]", "--job-name=ARRAY", "--array=1-3"),
        "STEPS": slurm.submit("srun -n2 sleep 2; srun -n1 false", "--job-name=STEPS", "--ntasks=2"),
        "TIME": slurm.submit("sleep 300", "--job-name=TIME", "--time=1"),
        "WAITED": slurm.submit("sleep 1", "--job-name=WAITED", "--hold"),
    }
    slurm.run("scancel", ids["WAITED"])
    slurm.until_running(ids["cancel"], ids["time"], ids["TIME"])
    until_started(runs, {"cancel", "time"})
    slurm.run("scancel", ids["cancel"])
    for name in ("time", "TIME"):  # the limit cannot be less than a minute, but it can be made to end sooner
        slurm.run("scontrol", "update", f"job={ids[name]}", "EndTime=now+1")
    slurm.wait(*ids.values(), patience_s=120)
    return Jobs(slurm, ids, runs)


def until_started(runs: Path, projects: set[str]) -> None:
    """Wait until the commands of these runs are started: a job that is running may be at its first line."""
    from time import monotonic, sleep

    deadline = monotonic() + 60
    while projects - {entry.project for entry in list_runs(runs) if started(Run(entry.path))}:
        assert monotonic() < deadline
        sleep(0.1)


def started(run: Run) -> bool:
    return any(kind_of(event) == "task_started" for event in known(run.events("tasks")))


def known(events: Iterable[Any]) -> list[Any]:
    return list(events)


def ends(run: Run) -> list[tuple[str, Any]]:
    """How each task ended: the kind, and the error or reason."""
    return [
        (kind_of(event), getattr(event, "error_type", None) or getattr(event, "reason", None))
        for event in run.events("tasks")
        if isinstance(event, TaskEnded)
    ]


def accounts(run: Run) -> list[JobAccounted]:
    found = [event for event in run.events("jobs") if isinstance(event, JobAccounted)]
    return sorted(found, key=lambda event: (event.array_index or 0, event.attempt))


def failures(run: Run) -> list[tuple[str | None, str | None]]:
    return [
        (event.error_type, event.message) for event in run.events("failures") if isinstance(event, Failure)
    ]


def adopted(jobs: Jobs, name: str) -> Run:
    jobs.adopt("--slurm", jobs.ids[name], "--runs-dir", str(jobs.runs))
    return jobs.run(name)


def test_a_command_in_a_job_records_what_the_job_was_given(jobs: Jobs):
    (job,) = (event for event in jobs.run("ok").events("jobs") if isinstance(event, JobStarted))
    (task,) = (event for event in jobs.run("ok").events("tasks") if isinstance(event, TaskSubmitted))
    assert (job.job_id, job.raw_job_id, job.array_job_id) == (jobs.ids["ok"], jobs.ids["ok"], None)
    assert (job.cluster, job.partition, job.account, job.name, job.user) == (
        "flight",
        "debug",
        "lab",
        "ok",
        "root",
    )
    assert (job.cpus, job.memory_bytes, job.task_id) == (1, 300 << 20, task.task_id)


def test_a_completed_job_adds_its_account_and_changes_no_end(jobs: Jobs):
    before = jobs.run("ok")
    lines, status = ends(before), before.status
    run = adopted(jobs, "ok")
    (account,) = accounts(run)
    assert (run.status, ends(run)) == (status, lines) == ("completed", [("task_completed", None)])
    assert (account.state, account.exit_code, account.signal, account.job_id) == (
        "COMPLETED",
        0,
        None,
        jobs.ids["ok"],
    )
    assert account.elapsed_s is not None
    assert 1 <= account.elapsed_s < 30
    assert account.max_rss_bytes is not None
    assert 1 << 20 < account.max_rss_bytes < 300 << 20
    assert verify_files(run.path) == []


def test_adopting_again_changes_no_byte(jobs: Jobs):
    run = adopted(jobs, "ok")
    before = {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()}
    said = jobs.adopt("--slurm", jobs.ids["ok"], "--runs-dir", str(jobs.runs))
    assert {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()} == before
    assert said == f"Nothing to add to {run.run_id}\n  known before: 1 account of a job\n"


def test_an_exit_code_is_known_although_this_version_leaves_it_out_of_its_json(jobs: Jobs):
    run = adopted(jobs, "three")
    (account,) = accounts(run)
    assert (account.state, account.exit_code) == ("FAILED", 3)
    assert ends(run) == [("task_failed", "ExitCode")]
    assert failures(run) == [("ExitCode", "sh ended with exit code 3")]


def test_a_job_that_outgrew_its_memory_gets_its_end_and_the_reason(jobs: Jobs):
    before = jobs.run("memory")
    assert (before.status, ends(before)) == ("crashed", [])  # everything in it was killed, the recorder too
    run = adopted(jobs, "memory")
    (account,) = accounts(run)
    assert (run.status, ends(run)) == ("failed", [("task_failed", "OUT_OF_MEMORY")])
    assert account.reason is not None
    assert account.reason.startswith(
        f"Slurm job {jobs.ids['memory']} was ended for its memory: it was seen with "
    )
    assert account.reason.endswith(" and may use 150.0 MiB")
    assert failures(run) == [("OUT_OF_MEMORY", account.reason)]
    assert run.info.error == account.reason
    assert verify_files(run.path) == []


def test_a_job_at_its_time_limit_keeps_its_recorded_end_and_gets_the_reason(jobs: Jobs):
    before = jobs.run("time")
    recorded = (
        before.status,
        ends(before),
        failures(before),
    )  # SIGTERM came to the recorder first, or to the command
    assert len(recorded[1]) == 1
    run = adopted(jobs, "time")
    (account,) = accounts(run)
    assert (run.status, ends(run), failures(run)[:-1]) == recorded
    assert (account.state, account.walltime_s) == ("TIMEOUT", 60.0)
    message = f"Slurm job {jobs.ids['time']} was ended at its time limit of 1m 00s"
    assert failures(run)[-1] == ("TIMEOUT", message)


def test_a_cancelled_job_is_no_failure_of_its_own(jobs: Jobs):
    before = jobs.run("cancel")
    recorded = before.status, ends(before), failures(before)
    assert len(recorded[1]) == 1
    run = adopted(jobs, "cancel")
    (account,) = accounts(run)
    assert (run.status, ends(run), failures(run)) == recorded
    assert (account.state, account.reason) == (
        "CANCELLED",
        f"Slurm job {jobs.ids['cancel']} was cancelled by root",
    )


def test_an_array_is_one_run_with_a_task_an_element(jobs: Jobs):
    run = jobs.run("array")
    submitted = [event for event in run.events("tasks") if isinstance(event, TaskSubmitted)]
    assert sorted(event.args["array_index"] for event in submitted) == [0, 1, 2, 3, 4]
    assert sorted(ends(run)) == [("task_completed", None)] * 4 + [("task_failed", "ExitCode")]
    assert (run.status, run.info.error) == ("failed", "1 of 5 tasks failed")
    assert (run.info.tasks_submitted, run.info.tasks_completed, run.info.tasks_failed) == (5, 4, 1)
    assert verify_files(run.path) == []
    assert len(run.writers()) == 5


def test_an_array_that_was_recorded_gets_one_account_an_element(jobs: Jobs):
    run = adopted(jobs, "array")
    assert [(account.array_index, account.state, account.exit_code) for account in accounts(run)] == [
        (0, "COMPLETED", 0),
        (1, "COMPLETED", 0),
        (2, "COMPLETED", 0),
        (3, "FAILED", 1),
        (4, "COMPLETED", 0),
    ]
    assert len(ends(run)) == 5


def test_jobs_that_nobody_recorded_become_a_run_of_their_own(jobs: Jobs, tmp_path: Path):
    said = jobs.adopt("--slurm", jobs.ids["ARRAY"], "--runs-dir", str(tmp_path))
    (entry,) = list_runs(tmp_path)
    run = Run(entry.path)
    assert said.splitlines()[:2] == [
        f"3 jobs made into {run.run_id}: 2 COMPLETED, 1 FAILED",
        "  mapped:  3 new tasks, 2 tasks completed, 1 task failed, 3 workers ended, 1 failure with its "
        "reason",
    ]
    message = f"Slurm job {jobs.ids['ARRAY']}_2 ended with exit code 1"
    assert (run.info.project, run.status, run.info.error) == ("ARRAY", "failed", message)
    assert failures(run) == [("ExitCode", message)]
    assert verify_files(run.path) == []


def test_steps_are_spans_inside_the_task_of_their_job(jobs: Jobs, tmp_path: Path):
    jobs.adopt("--slurm", jobs.ids["STEPS"], "--runs-dir", str(tmp_path))
    (entry,) = list_runs(tmp_path)
    run = Run(entry.path)
    (end,) = (event for event in run.events("tasks") if isinstance(event, TaskEnded))
    spans = [(span.name, span.status, span.parent_id) for span in known(run.events("spans"))]
    assert spans == [("step sleep", "ok", end.span_id), ("step false", "error", end.span_id)]


def test_a_job_cancelled_in_the_queue_has_an_end_and_no_worker(jobs: Jobs, tmp_path: Path):
    jobs.adopt("--slurm", jobs.ids["WAITED"], "--runs-dir", str(tmp_path))
    (entry,) = list_runs(tmp_path)
    run = Run(entry.path)
    message = f"Slurm job {jobs.ids['WAITED']} was cancelled by root before it started"
    assert (run.status, ends(run)) == ("interrupted", [("task_cancelled", message)])
    assert known(run.events("workers")) == []


def test_accounting_saved_to_a_file_makes_the_same_run_less_the_exit_codes(jobs: Jobs, tmp_path: Path):
    ids = f"{jobs.ids['TIME']},{jobs.ids['STEPS']}"
    file = tmp_path / "jobs.json"
    file.write_text(jobs.slurm.run("sacct", "--json", "--duplicates", "--jobs", ids))
    assert {job.job_id for job in parse_accounting(file.read_bytes(), "file")[0]} == set(ids.split(","))
    jobs.adopt("--slurm-file", str(file), "--runs-dir", str(tmp_path / "runs"))
    (entry,) = list_runs(tmp_path / "runs")
    run = Run(entry.path)
    assert [(job.name, job.state, job.exit_code) for job in accounts(run)] == [
        ("TIME", "TIMEOUT", None),
        ("STEPS", "FAILED", None),
    ] or [(job.name, job.state, job.exit_code) for job in accounts(run)] == [
        ("STEPS", "FAILED", None),
        ("TIME", "TIMEOUT", None),
    ]


def test_a_run_is_told_while_it_is_recorded(jobs: Jobs, tmp_path: Path):
    """As a session does when it closes, through its own recorder."""
    from flightlog.record.recording import record

    def sacct(words: Any) -> bytes:
        return jobs.slurm.run("sacct", *words, TZ="UTC").encode()

    with record("live", runs_dir=tmp_path, sample_interval_s=None) as run:
        merged = merge_accounting(run.path, [jobs.ids["TIME"], "999999"], emit=run.emit, sacct=sacct)
    assert (merged.states, merged.missing) == ({"TIMEOUT": 1}, ("999999",))
    assert [account.state for account in accounts(Run(run.path))] == ["TIMEOUT"]


def test_what_slurm_does_to_jobs_for_others_sake_is_a_reason(jobs: Jobs, tmp_path: Path):
    slurm = jobs.slurm

    def sleeper(node: str) -> str:
        script = f"{FLIGHTLOG} run --project {node} -- sleep 300"
        where = {"FLIGHTLOG_RUNS_DIR": str(tmp_path)}
        return slurm.submit(script, "--no-requeue", "--exclusive", f"--nodelist={node}", **where)

    moved, lost = sleeper("n2"), sleeper("n3")  # a node that is said to be down comes back by itself
    until_started(tmp_path, {"n2", "n3"})
    slurm.run("scontrol", "update", "nodename=n3", "state=down", "reason=test")
    urgent = slurm.submit("true", "--partition=urgent", "--exclusive", "--nodelist=n2")
    slurm.wait(moved, lost, urgent)
    jobs.adopt("--slurm", f"{moved},{lost}", "--runs-dir", str(tmp_path))
    told = {entry.project: failures(Run(entry.path))[-1] for entry in list_runs(tmp_path)}
    assert told == {
        "n2": ("PREEMPTED", f"Slurm job {moved} was ended for a job of higher priority"),
        "n3": ("NODE_FAIL", f"Slurm job {lost} lost a node (n3)"),
    }


def test_a_wide_array_is_one_run_that_ends_once(slurm: Cluster, tmp_path: Path):
    script = f"{FLIGHTLOG} run --project wide --sample-interval 5 -- true"
    array = slurm.submit(script, "--array=1-24", "--mem=100M", FLIGHTLOG_RUNS_DIR=str(tmp_path))
    slurm.wait(array, patience_s=120)
    (entry,) = list_runs(tmp_path)
    run = Run(entry.path)
    assert (run.status, len(ends(run)), run.info.tasks_completed) == ("completed", 24, 24)
    assert verify_files(run.path) == []
    assert run.completeness().lost == {}
