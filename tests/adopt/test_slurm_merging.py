"""Accounting merged into runs: ends where there are none, nothing twice, nothing changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders.runs import START, at, make_run

from flightlog.adopt.slurm import adopt_slurm, adopt_slurm_file
from flightlog.cli.main import main
from flightlog.core.errors import FlightlogError, RunNotFound, UsageError
from flightlog.engines.slurm.accounting import SlurmJob
from flightlog.engines.slurm.events import Merged, merge_jobs
from flightlog.events import (
    Event,
    Failure,
    JobAccounted,
    JobStarted,
    TaskCompleted,
    TaskEnded,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    WorkerEvent,
    WorkerLaunched,
    WorkerLost,
    kind_of,
)
from flightlog.store.catalogue import list_runs
from flightlog.store.integrity import verify_files, write_checksums
from flightlog.store.liveness import unix_time
from flightlog.store.run import Run

RECORDED = Path(__file__).with_name("slurm-22.05.json")
T0 = unix_time(START) or 0.0


def slurm_job(state: str, raw_id: str = "12", **facts: Any) -> SlurmJob:
    usual = {
        "submit": T0 - 60,
        "start": T0,
        "end": T0 + 9,
        "elapsed_s": 9.0,
        "nodes": "n1",
        "cluster": "flight",
    }
    return SlurmJob(raw_id=raw_id, state=state, name="sim", **{**usual, **facts})


def in_flight(worker: str = "w1", task_id: str = "a", job_id: str = "12", **bound: Any) -> list[Event]:
    """A worker that lives in a job, with a task whose end nobody recorded."""
    return [
        WorkerLaunched(timestamp=at(0), worker=worker, host="n1", pid=7),
        JobStarted(timestamp=at(0), job_id=job_id, raw_job_id=job_id, worker=worker, **bound),
        TaskSubmitted(timestamp=at(0), task="f", task_id=task_id, args={"x": 1}),
        TaskStarted(timestamp=at(1), task="f", task_id=task_id, worker=worker, queue_s=1.0),
    ]


def tasks(run: Path) -> list[TaskEnded]:
    return [event for event in Run(run).events("tasks") if isinstance(event, TaskEnded)]


def added(run: Path, merged: Merged) -> dict[str, int]:
    assert verify_files(run) == []
    return merged.events


def test_a_task_in_flight_gets_the_end_that_slurm_gave_it(tmp_path: Path):
    run = make_run(tmp_path, in_flight())
    write_checksums(run)
    merged = merge_jobs(run, [slurm_job("TIMEOUT", walltime_s=9.0, cpu_s=4.0, max_rss_bytes=5 << 20)])
    assert added(run, merged) == {"job_accounted": 1, "task_failed": 1, "failure": 1, "worker_lost": 1}
    (end,) = tasks(run)
    assert (kind_of(end), end.task_id, end.worker, end.args, end.timestamp) == (
        "task_failed",
        "a",
        "w1",
        {"x": 1},
        at(9),
    )
    assert (end.duration_s, end.queue_s, end.cpu_s, end.peak_rss_bytes) == (8.0, 1.0, 4.0, 5 << 20)
    (lost,) = (event for event in Run(run).events("workers") if isinstance(event, WorkerLost))
    assert (lost.worker, lost.host, lost.pid, lost.reason) == (
        "w1",
        "n1",
        7,
        "Slurm job 12 was ended at its time limit of 9.0s",
    )


def test_of_several_tasks_in_one_job_none_is_given_the_memory_of_all(tmp_path: Path):
    second = [
        TaskSubmitted(timestamp=at(0), task="f", task_id="b", args={}),
        TaskStarted(timestamp=at(2), task="f", task_id="b", worker="w1", queue_s=2.0),
    ]
    run = make_run(tmp_path, [*in_flight(), *second])
    merge_jobs(run, [slurm_job("NODE_FAIL", cpu_s=4.0, max_rss_bytes=5 << 20)])
    assert [(end.task_id, end.cpu_s, end.peak_rss_bytes) for end in tasks(run)] == [
        ("a", None, None),
        ("b", None, None),
    ]


def test_tasks_of_other_jobs_stay_in_flight(tmp_path: Path):
    run = make_run(tmp_path, [*in_flight(), *in_flight("w2", "b", "13")])
    merged = merge_jobs(run, [slurm_job("PREEMPTED")])
    assert [end.task_id for end in tasks(run)] == ["a"]
    assert merged.events == {"job_accounted": 1, "task_failed": 1, "failure": 1, "worker_lost": 1}


def test_an_end_that_is_recorded_stays_the_only_one(tmp_path: Path):
    done = TaskCompleted(timestamp=at(5), task="f", task_id="a", args={}, worker="w1", duration_s=4.0)
    run = make_run(tmp_path, [*in_flight(), done])
    before = (run / "tasks.jsonl").read_bytes()
    merged = merge_jobs(run, [slurm_job("COMPLETED")])
    assert added(run, merged) == {"job_accounted": 1, "worker_removed": 1}
    assert (run / "tasks.jsonl").read_bytes() == before


def test_merging_again_changes_no_byte(tmp_path: Path):
    run = make_run(tmp_path, in_flight())
    jobs = [slurm_job("OUT_OF_MEMORY")]
    first = merge_jobs(run, jobs)
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    again = merge_jobs(run, jobs)
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before
    assert (first.states, again.states, again.already, again.events) == ({"OUT_OF_MEMORY": 1}, {}, 1, {})


def test_every_line_that_was_there_is_there_unchanged(tmp_path: Path):
    run = make_run(tmp_path, in_flight())
    before = {file.name: file.read_bytes() for file in run.glob("*.jsonl")}
    merge_jobs(run, [slurm_job("TIMEOUT")])
    assert all((run / name).read_bytes().startswith(lines) for name, lines in before.items())


def test_a_job_that_runs_on_is_left_for_later(tmp_path: Path):
    run = make_run(tmp_path, in_flight())
    merged = merge_jobs(run, [slurm_job("RUNNING", end=None)])
    assert (merged.waiting, merged.events) == (("12",), {})
    assert not (run / "checksums.json").exists()


def test_a_job_of_the_same_number_on_another_cluster_is_another_job(tmp_path: Path):
    run = make_run(tmp_path, in_flight(cluster="other"), manifest_hash="m")
    merged = merge_jobs(run, [slurm_job("TIMEOUT")])
    assert merged.events == {"job_accounted": 1, "worker_launched": 1, "worker_lost": 1}


def test_a_run_whose_processes_are_gone_ends_with_its_last_job(tmp_path: Path):
    run = make_run(tmp_path, in_flight(), status="running", end_time=None, duration_s=None)
    assert Run(run).status == "crashed"
    merge_jobs(run, [slurm_job("NODE_FAIL")])
    info = Run(run).info
    assert (info.status, info.error, info.end_time, info.duration_s) == (
        "failed",
        "Slurm job 12 lost a node (n1)",
        at(9),
        9.0,
    )
    assert (info.tasks_submitted, info.tasks_failed) == (1, 1)
    assert verify_files(run) == []


def test_a_run_with_a_job_that_is_not_accounted_for_stays_open(tmp_path: Path):
    events = [*in_flight(), *in_flight("w2", "b", "13")]
    run = make_run(tmp_path, events, status="running", end_time=None, duration_s=None)
    merge_jobs(run, [slurm_job("NODE_FAIL")])
    assert Run(run).info.status == "running"


def test_an_element_that_never_ran_becomes_a_task_of_its_array(tmp_path: Path):
    array = {"array_job_id": "12", "array_size": 2}
    element = JobStarted(
        timestamp=at(0), job_id="12_0", raw_job_id="13", array_index=0, worker="w1", task_id="a", **array
    )
    owner = {"host": "slurm", "pid": 0, "tags": {"slurm_array_job_id": "12"}}  # no process's
    run = make_run(
        tmp_path, [*in_flight()[2:], element], status="running", end_time=None, duration_s=None, **owner
    )
    ids = {"array_id": "12", "cluster": None}
    merged = merge_jobs(
        run,
        [
            slurm_job("COMPLETED", "13", array_index=0, **ids),
            slurm_job("CANCELLED", "12", array_index=1, start=None, nodes=None, **ids),
        ],
    )
    assert [(end.task_id, kind_of(end)) for end in tasks(run)] == [
        ("a", "task_completed"),
        ("slurm-12_1", "task_cancelled"),
    ]
    assert (Run(run).info.status, merged.states) == ("interrupted", {"COMPLETED": 1, "CANCELLED": 1})


def test_what_was_in_an_attempt_that_was_put_back_was_given_up(tmp_path: Path):
    again = in_flight("w2", "b", restarts=1)
    done = TaskCompleted(timestamp=at(8), task="f", task_id="b", args={}, worker="w2", duration_s=7.0)
    run = make_run(tmp_path, [*in_flight(), *again, done])
    merged = merge_jobs(run, [slurm_job("COMPLETED", start=T0 + 5), slurm_job("REQUEUED", end=T0 + 2)])
    assert [(end.task_id, kind_of(end)) for end in tasks(run)] == [
        ("a", "task_cancelled"),
        ("b", "task_completed"),
    ]
    assert merged.events == {"job_accounted": 2, "task_cancelled": 1, "worker_lost": 1, "worker_removed": 1}


def test_attempts_of_one_job_are_attempts_of_one_task(tmp_path: Path):
    (merged,) = adopt_slurm_file(RECORDED, tmp_path)
    run = Run(Path(merged.path))
    requeued = [event for event in run.events("tasks") if getattr(event, "task_id", "") == "slurm-9"]
    assert [(kind_of(event), event.attempt) for event in requeued] == [
        ("task_submitted", 1),
        ("task_started", 1),
        ("task_retried", 1),
        ("task_started", 2),
        ("task_completed", 2),
    ]
    assert [event.reason for event in requeued if isinstance(event, TaskRetried)] == [
        "Slurm job 9 was put back into the queue"
    ]


def test_a_file_of_accounting_becomes_one_run(tmp_path: Path):
    (merged,) = adopt_slurm_file(RECORDED, tmp_path)
    run = Run(Path(merged.path))
    assert (run.info.project, run.status, run.info.tasks_submitted, run.info.tasks_failed) == (
        "slurm",
        "failed",
        9,
        5,
    )
    assert merged.states == {"REQUEUED": 1, "FAILED": 4, "TIMEOUT": 1, "CANCELLED": 2, "COMPLETED": 2}
    assert verify_files(run.path) == []
    kinds = {event.error_type for event in run.events("failures") if isinstance(event, Failure)}
    assert kinds == {"REQUEUED", "OUT_OF_MEMORY", "TIMEOUT", "SIGSEGV", "FAILED"}
    workers = {event.worker for event in run.events("workers") if isinstance(event, WorkerEvent)}
    assert len(workers) == 9  # one an attempt that started


def test_the_same_file_again_adds_nothing(tmp_path: Path):
    (first,) = adopt_slurm_file(RECORDED, tmp_path)
    (again,) = adopt_slurm_file(RECORDED, tmp_path)
    assert (again.path, again.events, again.already) == (first.path, {}, 10)
    assert len(list_runs(tmp_path)) == 1


def test_a_job_goes_to_the_run_that_was_recorded_inside_it(tmp_path: Path):
    home = make_run(tmp_path, in_flight(job_id="4"))
    make_run(tmp_path, in_flight(job_id="99"), token="ffffffff")
    merged = adopt_slurm(["4"], tmp_path, sacct=answering(4))
    assert [(Path(one.path), one.made, one.states) for one in merged] == [(home, False, {"TIMEOUT": 1})]


def test_an_element_without_a_run_goes_where_the_others_are_only_if_they_are_in_one(tmp_path: Path):
    """Of array 6, the elements 10 (6_0) and 11 (6_1) were recorded; 6 (6_4) and 13 (6_3) were not."""
    array = {"array_job_id": "6", "array_size": 4}
    first = make_run(tmp_path / "one", in_flight(job_id="10", **array))
    (merged,) = adopt_slurm(["6"], tmp_path / "one", sacct=answering(6, 13))
    assert (Path(merged.path), merged.states) == (first, {"COMPLETED": 1, "FAILED": 1})
    for number in ("10", "11"):
        make_run(tmp_path / "two", in_flight(job_id=number, **array), token=f"000000{number}")
    (merged,) = adopt_slurm(["6"], tmp_path / "two", sacct=answering(6, 13))
    assert (merged.made, merged.states) == (True, {"COMPLETED": 1, "FAILED": 1})


def test_a_program_in_an_element_that_records_by_itself_is_a_run_that_can_be_closed(tmp_path: Path):
    array = {"array_job_id": "11", "array_index": 0, "array_size": 9}
    run = make_run(tmp_path, in_flight(**array), status="running", end_time=None, duration_s=None)
    merge_jobs(run, [slurm_job("NODE_FAIL", array_id="11", array_index=0)])
    assert Run(run).info.status == "failed"


def test_into_names_the_run_whatever_it_knows(tmp_path: Path):
    run = make_run(tmp_path, [])
    (merged,) = adopt_slurm(["4", "77"], tmp_path, into=run, sacct=answering(4))
    assert (Path(merged.path), merged.missing) == (run, ("77",))
    assert [event.job_id for event in Run(run).events("jobs") if isinstance(event, JobAccounted)] == ["4"]
    assert [end.task_id for end in tasks(run)] == ["slurm-4"]


def test_jobs_that_slurm_does_not_know_are_said(tmp_path: Path):
    with pytest.raises(RunNotFound, match="Slurm's accounting knows no job 77"):
        adopt_slurm(["77"], tmp_path, sacct=answering())


def test_jobs_none_of_which_has_ended_make_no_run(tmp_path: Path):
    file = tmp_path / "jobs.json"
    document = json.loads(RECORDED.read_bytes())
    document["jobs"] = [job for job in document["jobs"] if job["job_id"] == 4]
    document["jobs"][0]["state"]["current"] = "RUNNING"
    file.write_text(json.dumps(document))
    with pytest.raises(FlightlogError, match="no job has ended yet: 4 is RUNNING"):
        adopt_slurm_file(file, tmp_path / "runs")
    assert list_runs(tmp_path / "runs") == []


def answering(*numbers: int) -> Any:
    """A `sacct` that knows these jobs of the recorded ones."""
    document = json.loads(RECORDED.read_bytes())
    document["jobs"] = [job for job in document["jobs"] if job["job_id"] in numbers]
    return lambda words: json.dumps(document).encode() if words[0] == "--json" else b""


def test_the_command_says_what_was_kept_mapped_and_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["adopt", "--slurm-file", str(RECORDED), "--runs-dir", str(tmp_path)]) == 0
    (entry,) = list_runs(tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        f"10 jobs made into {entry.run_id}: 2 CANCELLED, 2 COMPLETED, 4 FAILED, 1 REQUEUED, 1 TIMEOUT",
        "  mapped:  9 new tasks, 2 tasks completed, 5 tasks failed, 2 tasks cancelled, "
        "1 attempt put back into the queue, 3 workers lost, 6 workers ended, 6 failures with their reasons, "
        "2 steps as spans",
        "  kept:    10 accounts of a job, as Slurm gives it: flightlog sql 'FROM jobs'",
        "  dropped: per-node and per-task extremes, I/O and energy of steps, requests other than CPUs, "
        "memory, "
        "GPUs and time, priority, reservation, comments",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name what to adopt"),
        (["--slurm", "1", "--slurm-file", "f"], "name what to adopt"),
        (["--slurm", " , "], "names no job"),
        (["--slurm", "abc"], "'abc' is no Slurm job id"),
        (["--slurm-file", "missing.json"], "cannot read missing.json: No such file"),
    ],
)
def test_misuse_is_one_message(
    words: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    assert main(["adopt", *words, "--runs-dir", str(tmp_path / "runs")]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_a_file_without_jobs_is_refused(tmp_path: Path):
    file = tmp_path / "jobs.json"
    file.write_text('{"jobs": []}')
    with pytest.raises(UsageError, match="an empty list of jobs"):
        adopt_slurm_file(file, tmp_path)
