"""The past of a project: attempts with what they used, asked for, and ended of."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest
from builders.project_history import GB, KILLED, completed, killed, request, run_id, write_run
from builders.runs import at, make_run

from flightlog.analyze.history.attempts import (
    PastAttempt,
    ProjectHistory,
    Requested,
    gpu_memory_killed,
    memory_killed,
    read_past,
    timed_out,
    timeout_of,
)
from flightlog.analyze.limits import HistoryLimits
from flightlog.events import (
    Failure,
    ResourceRequest,
    ResourceSample,
    TaskCancelled,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    WorkerLaunched,
    WorkerLost,
)
from flightlog.store.limits import StoreLimits


def test_an_attempt_is_told_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    write_run(
        tmp_path,
        0,
        [
            request(),
            ResourceSample(scope="node", host="n7", cpu_percent=40.0, memory_total_bytes=64 * GB),
            ResourceSample(scope="node", host="n7", cpu_percent=60.0, memory_total_bytes=64 * GB),
            ResourceSample(scope="cgroup", host="n7", cpu_percent=None, memory_total_bytes=48 * GB),
            ResourceSample(scope="node", host="n8", cpu_percent=None, memory_total_bytes=8 * GB),
            WorkerLaunched(worker="w1", host="n7", pid=3, cpus=8.0, memory_bytes=32 * GB, gpus=1.0),
            completed(
                1,
                "sim[3]",
                args={"n": 4},
                queue_s=0.5,
                result_bytes=7,
                gpu_peak_bytes=5,
                gpu_memory_scope="process",
            ),
        ],
        target="cluster",
        provider="slurm",
    )
    past = read_past(tmp_path, project=None)
    assert past.attempts == [
        PastAttempt(
            run_id=run_id(0),
            name="sim",
            task_id="sim[3]-1",
            attempt=1,
            component="model",
            host="n7",
            worker="w1",
            args={"n": 4},
            state="completed",
            ended=1779249131.0,
            duration_s=10.0,
            cpu_s=10.0,
            cpu_scope="tree",
            peak_rss_bytes=2 * GB,
            rss_scope="tree",
            gpu_peak_bytes=5,
            gpu_memory_scope="process",
            memory_killed=False,
            gpu_memory_killed=False,
            timed_out=False,
            requested=Requested(cpus=4.0, memory_bytes=16 * GB, gpus=1.0),
            node_memory_bytes=48 * GB,
            node_cpu_percent=50.0,
            saved_s=None,
            timeout_s=None,
        )
    ]
    assert (past.project, [run.run_id for run in past.runs], past.problems) == ("demo", [run_id(0)], [])


def test_attempts_that_failed_say_what_of(tmp_path: Path) -> None:
    common = {"args": {}, "worker": "w1", "duration_s": 1.0}
    write_run(
        tmp_path,
        0,
        [
            killed(1),
            Failure(
                scope="task",
                error_type="WorkerLost",
                message=KILLED,
                traceback=None,
                fingerprint="f",
                task="sim",
                task_id="sim-1",
                attempt=1,
                signal="SIGKILL",
            ),
            TaskFailed(
                task="b",
                task_id="b",
                error_type="TimeoutError",
                fingerprint="g",
                error_message="b ran over its timeout of 2.5 s",
                **common,
            ),
            TaskFailed(
                task="c", task_id="c", error_type="TimeoutError", error_message="connect timed out", **common
            ),
            TaskFailed(
                task="d",
                task_id="d",
                error_type="WorkerLost",
                error_message="the worker went away",
                args={},
                worker="w9",
                duration_s=None,
            ),
            WorkerLost(
                worker="w9",
                host=None,
                pid=None,
                reason="Slurm job 7 was ended for its memory: it may use 8 GB",
            ),
            TaskStarted(task="e", task_id="e", worker="w1", queue_s=0.0),
            TaskRetried(task="e", task_id="e", reason="MemoryError: no", delay_s=None),
            TaskCancelled(task="f", task_id="f", reason="the session ended", **common),
            TaskStarted(task="g", task_id="g", worker="w1", queue_s=0.0),
            TaskSubmitted(task="never begun", task_id="h", args={}),
        ],
    )
    found = {one.name: one for one in read_past(tmp_path, project="demo").attempts}
    assert {name: (one.state, one.memory_killed, one.timed_out) for name, one in found.items()} == {
        "sim": ("failed", True, False),
        "b": ("failed", False, True),
        "c": ("failed", False, False),
        "d": ("failed", True, False),
        "e": ("failed", False, False),
        "f": ("cancelled", False, False),
        "g": ("running", False, False),
    }
    assert found["b"].timeout_s == 2.5


@pytest.mark.parametrize(
    ("error_type", "message", "signal", "said"),
    [
        ("MemoryError", None, None, False),
        ("numpy._core._exceptions._ArrayMemoryError", "Unable to allocate 8. GiB", None, False),
        (
            "ray.exceptions.OutOfMemoryError",
            "Task was killed due to the node running low on memory",
            None,
            True,
        ),
        ("OUT_OF_MEMORY", "Slurm job 3 was ended for its memory: how much is not known", None, True),
        ("WorkerLost", KILLED, "SIGKILL", True),
        ("WorkerLost", "its nanny ended it for memory: 3.8 GiB resident was over its limit", None, True),
        ("WorkerLost", "its process was killed by SIGKILL", "SIGKILL", None),
        ("KilledWorker", "died 4 times", None, None),
        ("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB", None, False),
        ("KeyError", "'zoom'", None, False),
        ("ValueError", "room 401 not found", None, False),
    ],
)
def test_memory_is_blamed_where_something_says_so(
    error_type: str, message: str | None, signal: str | None, said: bool | None
) -> None:
    assert memory_killed(error_type, message, signal, None) is said
    assert gpu_memory_killed(error_type, message) is (error_type == "torch.OutOfMemoryError")


def test_only_limits_of_ours_or_of_a_job_are_timeouts() -> None:
    assert timed_out("TIMEOUT", "Slurm job 3 was ended at its time limit of 1h 00m", None)
    assert timed_out("TimeoutError", "sim did not end within 30 s", None)
    assert timed_out("WorkerLost", "the worker went away", "Slurm job 3 was ended at its time limit")
    assert not timed_out("TimeoutError", "[Errno 110] Connection timed out", None)
    assert not timed_out("requests.exceptions.ReadTimeout", "did not end in time", None)
    assert [
        timeout_of(text) for text in ("sim did not end within 30 s", "sim did not end in time", None)
    ] == [
        30.0,
        None,
        None,
    ]


def test_what_is_said_of_the_narrowest_thing_counts_and_a_plan_fills_in(tmp_path: Path) -> None:
    def asked(name: str | None, **fields: object) -> ResourceRequest:
        given = {"task": name, "cpus": None, "memory_bytes": None}
        return ResourceRequest(**(given | fields))  # type: ignore[arg-type]

    path = write_run(
        tmp_path,
        0,
        [
            asked(None, component="model", cpus=1.0, memory_bytes=1),
            asked("sim", memory_bytes=2),
            asked("sim", task_id="sim-2", memory_bytes=3),
            WorkerLaunched(worker="w1", host=None, pid=None, cpus=9.0, memory_bytes=9, gpus=2.0),
            completed(1),
            completed(2),
            completed(3, "other"),
            completed(4, "alone", component=None),
        ],
    )
    plan = {"components": {"model": {"walltime_s": 60.0}}, "tasks": {"sim": {"timeout_s": 5.0}}, "more": [1]}
    (path / "plan.json").write_bytes(msgspec.json.encode(plan))
    found = {one.task_id: one for one in read_past(tmp_path, project="demo").attempts}
    assert {name: msgspec.structs.astuple(one.requested) for name, one in found.items()} == {
        "sim-1": (1.0, 2, 2.0, 60.0),
        "sim-2": (1.0, 3, 2.0, 60.0),
        "other-3": (1.0, 1, 2.0, 60.0),
        "alone-4": (9.0, 9, 2.0, None),
    }
    assert (found["sim-1"].timeout_s, found["other-3"].timeout_s) == (5.0, None)
    (path / "plan.json").write_text('{"components": [')
    assert {one.requested.walltime_s for one in read_past(tmp_path, project="demo").attempts} == {None}


def test_the_newest_runs_and_attempts_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreLimits, "max_selected_runs", 4)
    monkeypatch.setattr(HistoryLimits, "max_attempts", 7)
    for number in range(6):
        write_run(tmp_path, number, [completed(n) for n in range(3)])
    past = read_past(tmp_path, project="demo")
    assert [run.run_id for run in past.runs] == [run_id(number) for number in (5, 4, 3, 2)]
    assert [(one.run_id[-1], one.task_id) for one in past.attempts] == [
        ("5", "sim-2"),
        ("5", "sim-1"),
        ("5", "sim-0"),
        ("4", "sim-2"),
        ("4", "sim-1"),
        ("4", "sim-0"),
        ("3", "sim-2"),
    ]
    assert past.older_runs == 2


def test_a_past_is_narrowed_by_project_target_and_task(tmp_path: Path) -> None:
    write_run(tmp_path, 0, [completed(1), completed(2, "sim[2]"), completed(3, "simple")], target="a")
    write_run(tmp_path, 1, [completed(1)], target="b")
    write_run(tmp_path, 2, [completed(1)], target="a", project="other")

    def ids(past: ProjectHistory) -> list[str]:
        return sorted(f"{one.run_id[-1]} {one.task_id}" for one in past.attempts)

    assert ids(read_past(tmp_path, project=None)) == ["2 sim-1"]
    assert ids(read_past(tmp_path, project="demo", target="b")) == ["1 sim-1"]
    assert ids(read_past(tmp_path, project="demo", task="sim", target="a")) == ["0 sim-1", "0 sim[2]-2"]
    assert ids(read_past(tmp_path, project="demo", task="sim[2]")) == ["0 sim[2]-2"]


def test_no_folder_and_no_runs_are_an_empty_past(tmp_path: Path) -> None:
    assert read_past(tmp_path / "none", project=None) == ProjectHistory(project=None, runs=[], attempts=[])
    assert read_past(tmp_path, project="demo") == ProjectHistory(project="demo", runs=[], attempts=[])


def test_damage_costs_what_is_damaged_and_no_more(tmp_path: Path) -> None:
    write_run(tmp_path, 0, [completed(1)])
    torn = write_run(tmp_path, 1, [completed(1), completed(2)])
    with (torn / "tasks.jsonl").open("r+b") as file:
        file.truncate((torn / "tasks.jsonl").stat().st_size - 40)
    with (torn / "tasks.jsonl").open("ab") as file:
        file.write(b"\xff\xfe not json\n[1, 2]\n{}\n")
    nameless = write_run(tmp_path, 2, [completed(1)])
    (nameless / "run.json").write_text('{"run_id": ')
    make_run(tmp_path, [], token="00000003")
    hollow = tmp_path / run_id(4)
    hollow.mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "readme.txt").write_text("not a run")
    copy = tmp_path / "copied"
    shutil.copytree(tmp_path / run_id(0), copy)
    past = read_past(tmp_path, project="demo")
    assert sorted((one.run_id, one.task_id) for one in past.attempts) == [
        (run_id(0), "sim-1"),
        (run_id(1), "sim-1"),
        (run_id(2), "sim-1"),
    ]
    assert [problem.partition(":")[0] for problem in sorted(past.problems)] == ["copied", run_id(4)]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_run_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    write_run(tmp_path, 0, [completed(1)])
    closed = write_run(tmp_path, 1, [completed(1)])
    (closed / "tasks.jsonl").chmod(0)
    past = read_past(tmp_path, project="demo")
    assert [one.run_id for one in past.attempts] == [run_id(0)]
    assert len(past.problems) == 1


def test_a_file_in_place_of_a_folder_spoils_no_other_run(tmp_path: Path) -> None:
    write_run(tmp_path, 0, [completed(1)])
    odd = write_run(tmp_path, 1, [completed(1)])
    (odd / "resources.jsonl").mkdir()
    past = read_past(tmp_path, project="demo")
    assert {one.run_id for one in past.attempts} >= {run_id(0)}


def test_memory_of_an_attempt_includes_the_processes_that_it_started(tmp_path: Path) -> None:
    def sampled(second: float, worker: str, gb: float, processes: int = 2) -> ResourceSample:
        return ResourceSample(
            timestamp=at(second),
            scope="worker",
            host="node-1",
            cpu_percent=None,
            worker=worker,
            pid=7,
            rss_bytes=round(gb * GB),
            processes=processes,
        )

    process = {"gb": 0.2, "rss_scope": "process"}
    lives = [
        event
        for number, (worker, began) in enumerate((("w1", 0), ("w1", 20), ("w2", 0), ("w3", 0)))
        for event in (
            TaskStarted(timestamp=at(began), task="sim", task_id=f"sim-{number}", worker=worker, queue_s=0.0),
            completed(number, worker=worker, timestamp=at(began + 10), **process),
        )
    ]
    samples = [
        sampled(5, "w1", 0.6),
        sampled(15, "w1", 9.0),  # between two attempts
        sampled(25, "w1", 0.1),  # less than the process alone had
        sampled(5, "w2", 0.7, processes=1),  # no other process
        sampled(5, "main", 9.0),  # no worker
    ]
    write_run(tmp_path, 0, [*lives, *samples])
    found = {one.task_id: one for one in read_past(tmp_path, project="demo").attempts}
    assert {name: (one.peak_rss_bytes, one.rss_scope) for name, one in sorted(found.items())} == {
        "sim-0": (600_000_000, "tree"),
        "sim-1": (200_000_000, "process"),
        "sim-2": (200_000_000, "process"),
        "sim-3": (200_000_000, "process"),
    }


def test_the_largest_process_that_an_attempt_started_counts_beside_its_worker(tmp_path: Path) -> None:
    child = completed(1, gb=0.5, rss_scope="tree_at_least", rss_before_bytes=GB // 10)
    write_run(tmp_path, 0, [child])
    [found] = read_past(tmp_path, project="demo").attempts
    assert (found.peak_rss_bytes, found.rss_scope) == (600_000_000, "tree")
