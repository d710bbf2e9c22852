"""Why a run failed, from small runs built in code: root causes, evidence, remedies and checks."""

from __future__ import annotations

import shlex

import msgspec
import pytest
from builders.device_training import MESSAGE, training
from builders.failure_events import failure, launched, lost, lost_task, only
from builders.runs import at, make_run
from builders.task_events import completed, failed, started, submitted

import flightlog
from flightlog.events import (
    Event,
    Failure,
    JobAccounted,
    JobStarted,
    Metric,
    ResourceRequest,
    ResourceSample,
    TaskCancelled,
    TaskRetried,
)

GIB = 1 << 30


def test_one_dead_host_explains_forty_lost_tasks(tmp_path):
    events: list[Event] = []
    for n in range(4):
        events += [launched(f"a{n}", "n1", 100 + n), launched(f"b{n}", "n2", 200 + n)]
    events += [completed(f"ok{n}", 1 + n / 100, 0.5, f"a{n % 4}") for n in range(60)]
    for n in range(4):
        events.append(
            lost(f"b{n}", 5 + n / 10, "n2", f"no word of tcp://10.0.0.2:{4000 + n} for 30 s", pid=200 + n)
        )
    for n in range(40):
        events += lost_task(f"t{n}", 5.5, f"b{n % 4}", f"no word of tcp://10.0.0.2:{4000 + n % 4} for 30 s")
    found = flightlog.diagnose(make_run(tmp_path, events, provider="dask"))
    cause = only(found)
    assert (cause.failure_class, cause.scope, cause.headline) == (
        "worker_lost",
        "worker",
        "host n2 went away with 4 workers",
    )
    assert (cause.count, cause.explains.lost_tasks, cause.tasks, cause.hosts) == (4, 40, {"sim": 40}, ["n2"])
    assert cause.confidence >= 0.9
    assert "4 workers of host n2 went away within seconds" in [one.text for one in cause.evidence]
    assert found.answer == (
        "The run completed: 40 tasks failed. Very likely worker_lost: host n2 went away with 4 workers; "
        "that explains 40 other ends."
    )


def test_a_task_that_was_on_every_lost_worker_is_under_suspicion(tmp_path):
    reason = "its process was killed by SIGKILL"
    events: list[Event] = []
    for n in range(3):
        events += [
            launched(f"w{n}", "n1", n + 1),
            lost(f"w{n}", n + 1, "n1", reason, pid=n + 1, signal="SIGKILL"),
            failure("poison", n + 1, "WorkerLost", reason, worker=f"w{n}", attempt=n + 1),
            failure(f"beside{n}", n + 1, "WorkerLost", reason, worker=f"w{n}"),
            completed(f"beside{n}", 9, 0.5, attempt=2),
        ]
    cause = only(flightlog.diagnose(make_run(tmp_path, events, host="n1")))
    assert (cause.failure_class, cause.count, cause.recovered) == ("worker_lost", 3, 3)
    assert "each of the 3 lost workers had `sim` (poison): it may be what ends them" in [
        one.text for one in cause.evidence
    ]


def test_dependents_stand_under_the_failure_that_they_came_of_however_far_away(tmp_path):
    events = [submitted(f"t{n}", task=f"stage{n}") for n in range(6)]
    events += [failed("t0", 1, 0.5, task="stage0", error_type="KeyError", error_message="'mass'")]
    for n in range(1, 5):
        said = f"stage{n - 1} (t{n - 1}), which stage{n} depends on, failed: TaskError: …"
        events.append(
            failed(
                f"t{n}",
                1 + n / 10,
                None,
                None,
                task=f"stage{n}",
                error_type="DependencyFailed",
                error_message=said,
            )
        )
    events.append(
        TaskCancelled(
            timestamp=at(2),
            task="stage5",
            task_id="t5",
            args={},
            worker=None,
            duration_s=None,
            reason="stage4 (t4), which it depends on, was cancelled",
        )
    )
    cause = only(flightlog.diagnose(make_run(tmp_path, events)))
    assert (cause.failure_class, cause.tasks, cause.count) == ("code_error", {"stage0": 1}, 1)
    assert cause.explains.dependents == 5


def test_what_came_of_a_failure_that_is_not_in_the_record_stands_below_a_failure_that_is(tmp_path):
    said = "load (load-7), which sim depends on, failed: AttributeError: no rows"
    events = [failed("a", 1, 0.5, error_type="AttributeError", error_message="no rows")]
    events += [
        failed(f"t{n}", 2, 0.0, error_type="DependencyFailed", error_message=said, fingerprint=None)
        for n in range(3)
    ]
    found = flightlog.diagnose(make_run(tmp_path, events, status="failed"))
    assert [cause.count for cause in found.causes] == [1, 3]
    assert found.causes[0].headline == "`sim` failed: AttributeError: no rows"


def test_a_failure_that_retries_mended_is_said_as_such_and_stands_last(tmp_path):
    events: list[Event] = []
    for n in range(9):
        refused = "[Errno 111] Connection refused"
        events += [
            failure(f"r{n}", 0.5, "ConnectionRefusedError", refused),
            failure(f"r{n}", 1, "ConnectionRefusedError", refused, attempt=2),
            TaskRetried(
                timestamp=at(1),
                task="sim",
                task_id=f"r{n}",
                attempt=2,
                reason=f"ConnectionRefusedError: {refused}",
            ),
            completed(f"r{n}", 2, 0.5, attempt=3),
        ]
    events.append(failed("t", 1, 0.5, task="plot", error_type="KeyError", error_message="'x'"))
    found = flightlog.diagnose(make_run(tmp_path, events))
    assert [(c.failure_class, c.count, c.recovered, c.failed) for c in found.causes] == [
        ("code_error", 1, 0, 1),
        ("network", 18, 9, 0),
    ]
    assert (found.tasks_failed, found.recovered, found.failures) == (1, 9, 19)
    assert "1 task failed, 9 tasks failed first and completed when retried" in found.answer


def test_a_run_without_failures_says_so(tmp_path):
    found = flightlog.diagnose(make_run(tmp_path, [completed("a", 1, 0.5)]))
    assert (found.answer, found.causes) == ("The run completed without failures (1 task completed).", [])


def test_tasks_that_dask_put_back_by_itself_did_not_fail_first(tmp_path):
    events: list[Event] = []
    for n in range(7):
        why = {"task": "shuffle-p2p", "task_id": f"t{n}", "reason": "Dask: reschedule"}
        events += [started(f"t{n}", 0.5), TaskRetried(timestamp=at(1), **why)]
        events += [completed(f"t{n}", 2, 0.5, attempt=2)]
    found = flightlog.diagnose(make_run(tmp_path, events))
    assert (found.answer, found.causes) == ("The run completed without failures (7 tasks completed).", [])


def test_an_error_that_ended_a_task_and_then_the_run_is_one_failure(tmp_path):
    events = [
        failed("t", 1, 0.5, error_type="KeyError", error_message="'x'"),
        failure(
            "t", 1, "KeyError", "'x'", traceback="Traceback …\n  File \"a.py\", line 1, in f\nKeyError: 'x'\n"
        ),
        Failure(
            timestamp=at(2),
            scope="run",
            error_type="KeyError",
            message="'x'",
            traceback=None,
            fingerprint="other",
        ),
    ]
    found = flightlog.diagnose(make_run(tmp_path, events, status="failed", error="KeyError: 'x'"))
    cause = only(found)
    assert (cause.scope, cause.count, found.failures) == ("task", 1, 1)
    assert cause.example is not None
    assert cause.example.frame == 'File "a.py", line 1, in f'


def test_memory_is_asked_for_in_the_terms_of_the_manifest(tmp_path):
    reason = "its process was killed by SIGKILL by the kernel's OOM killer: oom_kill of its cgroup rose"
    events = [
        launched("w1", "n1", 5),
        launched("w2", "n1", 6),
        ResourceRequest(timestamp=at(0), task=None, component="sim", cpus=1, memory_bytes=8 * GIB),
        *(
            completed(f"ok{n}", 2, 0.5, "w2", component="sim", peak_rss_bytes=int((9.8 - n) * GIB))
            for n in range(4)
        ),
        *(
            ResourceSample(
                timestamp=at(1 + n / 4),
                scope="worker",
                host="n1",
                worker="w1",
                cpu_percent=90.0,
                rss_bytes=int((4 + 0.5 * n) * GIB),
            )
            for n in range(8)
        ),
        ResourceSample(
            timestamp=at(2.8),
            scope="worker",
            host="n1",
            worker="w1",
            cpu_percent=90.0,
            rss_bytes=int(7.9 * GIB),
        ),
        lost("w1", 3, "n1", reason, pid=5, signal="SIGKILL"),
        *lost_task("t[3]", 3, "w1", reason, component="sim", task="sim[a]"),
    ]
    path = make_run(tmp_path, events, provider="slurm", target="cluster")
    plan = {
        "manifest": "flightlog.yaml",
        "target": "cluster",
        "components": {"sim": {"memory_bytes": 8 * GIB}},
        "tasks": {},
    }
    (path / "plan.json").write_bytes(msgspec.json.encode(plan))
    cause = only(flightlog.diagnose(path))
    assert (cause.failure_class, cause.tasks) == ("out_of_memory", {"sim": 1})
    assert cause.suggestions[0] == (
        "component `sim` asks for 8.0 GiB; its last attempt was killed at 7.9 GiB; the three largest "
        "successes needed 9.8 GiB at most: set `components.sim.memory: 12G` in flightlog.yaml."
    )
    told = {(one.file, one.event, one.time) for one in cause.evidence}
    assert ("workers.jsonl", "worker_lost", at(3)) in told
    assert ("resources.jsonl", "resource_sample", at(2.8)) in told


@pytest.mark.parametrize(
    ("last", "node_used", "expected"),
    [(int(7.8 * GIB), 12 * GIB, "out_of_memory"), (1 * GIB, 2 * GIB, "unknown"), (None, None, "unknown")],
)
def test_a_crash_without_a_word_is_told_from_the_memory_before_it(tmp_path, last, node_used, expected):
    events: list[Event] = [started("t", 1)]
    if last is not None:
        events += [
            ResourceSample(
                timestamp=at(n),
                scope="cgroup",
                host="node-1",
                cpu_percent=50.0,
                oom_kills=None,
                memory_used_bytes=last * n // 9,
                memory_total_bytes=8 * GIB,
            )
            for n in range(1, 10)
        ]
        events += [
            ResourceSample(
                timestamp=at(9),
                scope="node",
                host="node-1",
                cpu_percent=50.0,
                memory_used_bytes=node_used,
                memory_total_bytes=16 * GIB,
            )
        ]
    path = make_run(tmp_path, events, status="running", end_time=None, duration_s=None, heartbeat=at(9))
    found = flightlog.diagnose(path)
    cause = only(found)
    assert (found.status, cause.scope, cause.failure_class) == ("crashed", "run", expected)
    assert (cause.explains.in_flight, cause.tasks) == (1, {"sim": 1})
    if expected == "unknown":
        assert cause.confidence < 0.5
        assert cause.missing


def test_a_crash_in_a_job_that_met_its_time_limit_is_the_time_limit(tmp_path):
    events = [
        started("t", 1),
        JobStarted(timestamp=at(0), job_id="77", walltime_s=60.0),
        JobAccounted(
            timestamp=at(61),
            job_id="77",
            state="TIMEOUT",
            attempt=1,
            walltime_s=60.0,
            elapsed_s=61.0,
            reason="Slurm job 77 was ended at its time limit of 1m 00s",
        ),
    ]
    path = make_run(tmp_path, events, status="running", end_time=None, duration_s=None, heartbeat=at(60))
    found = flightlog.diagnose(path)
    assert found.causes[0].failure_class == "time_limit"
    assert found.causes[0].headline == "slurm job 77 ended as TIMEOUT"
    assert found.causes[0].evidence[0].file == "jobs.jsonl"
    assert len(found.causes) == 1  # the crash at that moment is laid to it


def test_jobs_that_were_ended_alike_are_one_cause_with_their_tasks(tmp_path):
    events: list[Event] = []
    for n in range(3):
        said = f"Slurm job {80 + n} was ended for a job of higher priority"
        events += [
            JobStarted(timestamp=at(0), job_id=str(80 + n), worker=f"w{n}"),
            launched(f"w{n}", f"n{n}", 10 + n),
            JobAccounted(timestamp=at(5), job_id=str(80 + n), state="PREEMPTED", attempt=1, reason=said),
            lost(f"w{n}", 5, f"n{n}", said, pid=10 + n),
            *lost_task(f"t{n}", 5, f"w{n}", said),
        ]
    cause = only(flightlog.diagnose(make_run(tmp_path, events, provider="slurm")))
    assert (cause.failure_class, cause.scope, cause.count, cause.explains.lost_tasks) == (
        "preempted",
        "job",
        3,
        3,
    )
    assert cause.headline == "slurm job 80 and 2 more ended as PREEMPTED"


def test_an_exception_has_its_own_reasons_however_its_job_was_ended_later(tmp_path):
    events = [
        JobStarted(timestamp=at(0), job_id="80", worker="w1"),
        failed("t", 1, 0.5, error_type="ModuleNotFoundError", error_message="No module named 'hydrology'"),
        JobAccounted(
            timestamp=at(2), job_id="80", state="CANCELLED", attempt=1, reason="Slurm job 80 was cancelled"
        ),
    ]
    assert (
        only(flightlog.diagnose(make_run(tmp_path, events, provider="slurm"))).failure_class == "import_error"
    )


def test_a_full_disk_explains_what_ended_without_a_cause_of_its_own_at_that_moment(tmp_path):
    full = "[Errno 28] No space left on device: '/scratch/out.nc'"
    events = [
        failed("a", 5.0, 1.0, error_type="OSError", error_message=full),
        failed("b", 5.1, 1.0, task="post", error_type="OSError", error_message=full, fingerprint="ffff"),
        failed(
            "c",
            5.5,
            1.0,
            task="tool",
            error_type="ExitCode",
            error_message="tool ended with exit code 9",
            exit_code=9,
        ),
        failed("d", 9.9, 1.0, task="later", error_type="KeyError", error_message="'x'"),
    ]
    found = flightlog.diagnose(make_run(tmp_path, events))
    disk, other = found.causes
    assert (disk.failure_class, disk.count, disk.tasks) == ("disk_full", 2, {"post": 1, "sim": 1})
    assert disk.explains.at_that_moment == 1
    assert (other.failure_class, other.tasks) == ("code_error", {"later": 1})


def test_a_disk_that_was_full_for_long_explains_nothing_that_ended_meanwhile(tmp_path):
    full = "[Errno 28] No space left on device: '/scratch/out.nc'"
    events = [failed(f"a{n}", 5 + n * 30, 1.0, error_type="OSError", error_message=full) for n in range(4)]
    events += [
        failed(
            "c",
            40,
            1.0,
            task="tool",
            error_type="ExitCode",
            error_message="tool ended with exit code 9",
            exit_code=9,
        )
    ]
    found = flightlog.diagnose(make_run(tmp_path, events))
    assert [(cause.failure_class, cause.count, cause.explains.count) for cause in found.causes] == [
        ("disk_full", 4, 0),
        ("unknown", 1, 0),
    ]


def test_a_nan_in_a_completed_run_is_told_and_an_infinity_is_not(tmp_path):
    events: list[Event] = [
        Metric(
            timestamp=at(n),
            name="loss",
            value=None if n > 4 else 1.0,
            nonfinite="nan" if n > 4 else None,
            step=n,
        )
        for n in range(9)
    ]
    events.append(Metric(timestamp=at(1), name="best", value=None, nonfinite="inf", step=0))
    found = flightlog.diagnose(make_run(tmp_path, events))
    cause = only(found)
    assert (cause.scope, cause.failure_class, cause.count) == ("metric", "numerical", 4)
    assert found.answer == (
        "The run completed: nothing failed, but something went wrong. Very likely numerical: `loss` became "
        "NaN, first at step 5."
    )


def test_tasks_given_up_when_an_error_ended_the_session_are_laid_to_it(tmp_path):
    events: list[Event] = [failed("t", 1, 0.5, error_type="my.SolverError", error_message="no step")]
    events += [
        TaskCancelled(
            timestamp=at(2),
            task="sim",
            task_id=f"c{n}",
            args={},
            worker=None,
            duration_s=None,
            reason="the session ended with SolverError",
        )
        for n in range(7)
    ]
    cause = only(
        flightlog.diagnose(make_run(tmp_path, events, status="failed", error="SolverError: no step"))
    )
    assert (cause.count, cause.explains.cancelled) == (1, 7)


def test_device_memory_that_ran_out_and_was_caught_is_told(tmp_path):
    path = make_run(tmp_path, [completed("a", 1, 0.5)])
    (path / "oom" / "1-20260520T035205Z").mkdir(parents=True)
    said = {"message": "CUDA out of memory. Tried to allocate 2.00 GiB", "oom": True}
    (path / "oom" / "1-20260520T035205Z" / "bundle.json").write_bytes(msgspec.json.encode(said))
    cause = only(flightlog.diagnose(path))
    assert (cause.failure_class, cause.scope) == ("gpu_out_of_memory", "device")
    assert (cause.evidence[0].text, cause.evidence[0].file) == (
        said["message"],
        "oom/1-20260520T035205Z/bundle.json",
    )
    assert cause.checks == [f"flightlog devices {shlex.quote(str(path))}"]


def test_out_of_memory_after_a_leak_is_laid_to_the_leak(tmp_path):
    path = make_run(tmp_path, training())
    (path / "oom" / "1-20260520T035205Z").mkdir(parents=True)
    said = {"message": MESSAGE, "oom": True, "session_id": "session-2", "device_id": 2, "rank": 2}
    (path / "oom" / "1-20260520T035205Z" / "bundle.json").write_bytes(msgspec.json.encode(said))
    cause = only(flightlog.diagnose(path))
    assert cause.failure_class == "gpu_out_of_memory"
    assert cause.suggestions[0] == (
        "Memory grew by 2.0 GiB with each `train`, 54.0 GiB over 28 of them: a leak used it up. Try finding "
        "what keeps tensors alive from one repetition to the next."
    )
    assert not any("Lower the batch size" in one for one in cause.suggestions)


def test_many_causes_are_bounded_and_counted(tmp_path):
    events = [
        failed(f"t{n}", 1, 0.1, error_type=f"Error{n:c<{n // 26 + 1}}", error_message="no") for n in range(50)
    ]
    for n, event in enumerate(events):
        event.error_type = "E" + "x" * n
    found = flightlog.diagnose(make_run(tmp_path, events))
    assert (len(found.causes), found.more_causes, found.failures) == (30, 20, 50)


def test_messages_that_differ_in_numbers_alone_are_one_cause(tmp_path):
    events = [
        failed(f"t{n}", 1, 0.1, error_type="OSError", error_message=f"no file /data/{n}.nc")
        for n in range(50)
    ]
    assert [cause.count for cause in flightlog.diagnose(make_run(tmp_path, events)).causes] == [50]
