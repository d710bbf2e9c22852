"""What a diagnosis says of a failure, word by word: headline, evidence with its place, what to do and what to
check."""

from __future__ import annotations

import msgspec
import pytest
from builders.failure_events import failure, launched, lost, lost_task, only
from builders.runs import at, make_run
from builders.task_events import completed, failed, started, submitted

import flightlog
from flightlog.analyze.diagnosis.score import without_own_frames
from flightlog.events import Event, Failure, Metric, ResourceSample
from flightlog.show.diagnosis import diagnosis_text

GIB = 1 << 30
INSTALLED = "/opt/env/lib/python3.12/site-packages/flightlog/engines/execute.py"
OWN = (
    f'  File "{INSTALLED}", line 104, in _execute\n    returned = function(*args)\n               ^^^^^^^^\n'
)
USER = '  File "model.py", line 7, in step\n    x = {}["mass"]\n        ~~^^^^^^^^\n'
HEADER = "Traceback (most recent call last):\n"


def node_samples(used: int, until: float = 3) -> list[Event]:
    return [
        ResourceSample(
            timestamp=at(n / 4),
            scope="node",
            host="node-1",
            cpu_percent=1.0,
            memory_used_bytes=used,
            memory_total_bytes=16 * GIB,
        )
        for n in range(int(until * 4))
    ]


def test_a_worker_that_crashed_by_itself_is_an_error_in_code_and_nothing_is_said_of_memory_or_retries(
    tmp_path,
):
    reason = "its process was killed by SIGSEGV"
    events = [
        launched("w1", "n1", 5),
        lost("w1", 3, "n1", reason, pid=5, signal="SIGSEGV"),
        *lost_task("t", 3, "w1", reason),
    ]
    cause = only(flightlog.diagnose(make_run(tmp_path, events)))
    assert (cause.failure_class, cause.scope, cause.explains.lost_tasks) == ("code_error", "worker", 1)
    assert cause.confidence >= 0.9
    assert cause.suggestions[0].startswith("`sim` crashed in native code, which leaves no traceback.")
    assert cause.missing == []
    assert not any("retries" in one or "dmesg" in one for one in cause.suggestions)


def test_a_worker_that_ended_by_itself_is_laid_to_what_it_ran_and_not_to_the_kernel(tmp_path):
    reason = "its process ended with exit code 7"
    events = [
        launched("w1", "n1", 5),
        lost("w1", 3, "n1", reason, pid=5, exit_code=7),
        *lost_task("t", 3, "w1", reason),
    ]
    cause = only(flightlog.diagnose(make_run(tmp_path, events)))
    assert cause.failure_class == "worker_lost"
    assert cause.suggestions == [
        "The worker's process ended by itself, with exit code 7, while it had `sim`: look there for "
        "`os._exit`, or for a library that ends its process when something is wrong."
    ]
    assert not any("dmesg" in one for one in cause.missing)


@pytest.mark.parametrize(
    ("traceback", "left"),
    [
        (HEADER + OWN + USER + "KeyError: 'mass'\n", HEADER + USER + "KeyError: 'mass'\n"),
        (HEADER + OWN + "TypeError: step()\n", HEADER + "TypeError: step()\n"),
        (
            HEADER + '  File "/home/me/flightlog/model.py", line 1, in f\n',
            HEADER + '  File "/home/me/flightlog/model.py", line 1, in f\n',
        ),
        ("", ""),
    ],
)
def test_flightlogs_own_frames_are_left_out_and_the_users_stay(traceback, left):
    assert without_own_frames(traceback) == left


def test_nobody_is_sent_to_flightlogs_own_code(tmp_path):
    words = "step() missing 1 required positional argument: 'y'"
    events = [failure("t", 1, "TypeError", words, traceback=f"{HEADER}{OWN}TypeError: {words}\n")]
    found = flightlog.diagnose(make_run(tmp_path, events))
    assert only(found).failure_class == "code_error"
    assert "execute" not in diagnosis_text(found)


def test_the_time_that_an_attempt_took_stands_with_its_end_and_not_with_the_samples(tmp_path):
    events = [
        *node_samples(GIB),
        failed("t", 2, 1.0, error_type="TimeoutError", error_message="sim ran over its timeout of 1 s"),
    ]
    path = make_run(tmp_path, events)
    (path / "plan.json").write_text('{"manifest": "flightlog.yaml", "tasks": {"sim": {"timeout_s": 1.0}}}')
    cause = only(flightlog.diagnose(path))
    [lasted] = [one for one in cause.evidence if one.text.startswith("it ran")]
    assert (lasted.file, lasted.event, lasted.time) == ("tasks.jsonl", "task_failed", at(2))
    assert "ORDER BY duration_s DESC" in cause.checks[0]


def test_a_value_that_became_nan_before_a_failure_stands_in_its_series(tmp_path):
    events = [
        *node_samples(GIB),
        Metric(timestamp=at(1), name="loss", value=None, nonfinite="nan", step=3),
        failed("t", 2, 1.0, error_type="RuntimeError", error_message="training stopped: loss is nan"),
    ]
    cause = only(flightlog.diagnose(make_run(tmp_path, events)))
    [nan] = [one for one in cause.evidence if "`loss` had become NaN" in one.text]
    assert (nan.file, nan.event, nan.time) == ("metrics.jsonl", "metric", at(1))


def test_what_a_command_printed_last_is_evidence(tmp_path):
    events = [
        failure(
            "t",
            1,
            "ExitCode",
            "solve ended with exit code 3",
            scope="command",
            exit_code=3,
            task="solve",
            output_tail="reading\nthe deck has no end card\n\n",
        )
    ]
    cause = only(flightlog.diagnose(make_run(tmp_path, events)))
    assert (cause.failure_class, cause.evidence[-1].text) == (
        "unknown",
        "the last that it printed: the deck has no end card",
    )
    assert cause.suggestions == [
        "Read what the command printed before it ended: it says more than its exit code."
    ]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("ExitCode", "solve could not be started: No such file or directory: solve"),
        ("CommandNotFound", "solve: command not found"),
    ],
)
def test_a_command_that_is_not_there_is_one_class_whoever_started_it(tmp_path, kind, said):
    events = [failure("t", 1, kind, said, scope="command", exit_code=127, task="solve")]
    cause = only(flightlog.diagnose(make_run(tmp_path, events)))
    assert cause.failure_class == "import_error"
    assert (
        cause.suggestions[0]
        == "See that `solve` is installed where it is to run (`command -v`), or give its whole path."
    )


def test_a_command_that_said_nothing_but_its_exit_code_is_unknown(tmp_path):
    events = [
        failure(
            "t", 1, "ExitCode", "solve ended with exit code 3", scope="command", exit_code=3, task="solve"
        )
    ]
    cause = only(flightlog.diagnose(make_run(tmp_path, events)))
    assert (cause.failure_class, cause.suggestions) == (
        "unknown",
        ["`solve` said no more than its exit code, 3: look that up in its manual."],
    )


@pytest.mark.parametrize(
    ("tasks", "headline"),
    [
        (["a"], "`a` failed: KeyError: 'x'"),
        (["b", "a", "b"], "`b` and `a` failed 3 times: KeyError: 'x'"),
        (["b", "a", "b", "c", "d"], "`b`, `a` and 2 other tasks failed 5 times: KeyError: 'x'"),
    ],
)
def test_all_tasks_that_failed_alike_are_in_the_headline(tmp_path, tasks, headline):
    events = [
        failed(f"t{n}", 1, 0.5, task=task, error_type="KeyError", error_message="'x'")
        for n, task in enumerate(tasks)
    ]
    assert only(flightlog.diagnose(make_run(tmp_path, events))).headline == headline


def test_memory_that_was_refused_while_there_was_room_is_a_limit_of_the_process(tmp_path):
    events = [
        *node_samples(2 * GIB),
        failed("t", 2, 1.0, error_type="MemoryError", error_message="", peak_rss_bytes=GIB),
    ]
    cause = only(flightlog.diagnose(make_run(tmp_path, events, host="node-1")))
    assert cause.failure_class == "out_of_memory"
    assert cause.suggestions[0] == (
        "`sim` asks for no memory; its last attempt had reached 1.0 GiB, of the 16.0 GiB there are: it met "
        "a limit of the process (`ulimit -v`), or asked for more than there is in one piece. Look at the "
        "line that failed."
    )


def test_a_program_that_ended_itself_is_unknown_with_the_line_that_did(tmp_path):
    events = [
        Failure(
            timestamp=at(2),
            scope="run",
            error_type="SystemExit",
            message="3",
            fingerprint="f",
            traceback=HEADER + '  File "run.py", line 5, in <module>\n    sys.exit(3)\nSystemExit: 3\n',
        )
    ]
    path = make_run(tmp_path, events, status="failed")
    cause = only(flightlog.diagnose(path))
    assert (cause.failure_class, cause.checks) == ("unknown", [f"flightlog report {path} --failures"])
    assert cause.suggestions[0] == (
        'The program ended itself, at File "run.py", line 5, in <module>: see what it had checked there.'
    )


def test_what_ended_before_a_crash_is_not_said_to_have_run_then(tmp_path):
    events = [*node_samples(GIB), completed("a", 3, 1.0, task="prepare"), started("b", 2, task="solve")]
    path = make_run(tmp_path, events, status="running", end_time=None, duration_s=None, heartbeat=at(3))
    found = flightlog.diagnose(path)
    assert not any("prepare" in one.text for one in only(found).evidence)
    assert "   explains   1 attempt that was under way: solve (1)" in diagnosis_text(found).splitlines()


def test_the_answer_is_a_sentence_however_sure_it_is(tmp_path):
    events = [failed("t", 1, 0.5, error_type="AssertionError", error_message="loss is not finite.")]
    found = flightlog.diagnose(make_run(tmp_path, events))
    assert found.answer == (
        "The run completed: 1 task failed. Possibly numerical: `sim` failed: AssertionError: loss is not "
        "finite."
    )


def of_tree(worker: str, rss_bytes: int) -> list[Event]:
    return [
        ResourceSample(
            timestamp=at(n / 4),
            scope="worker",
            host="n1",
            worker=worker,
            cpu_percent=1.0,
            rss_bytes=rss_bytes,
        )
        for n in range(12)
    ]


@pytest.mark.parametrize(
    ("worker", "pid", "sampled", "expected"),
    [
        ("w1", 5, "w1", "memory of its process tree before the end: 1.0 GiB, from 1.0 GiB"),
        ("n1:5/thread-2", 5, "n1:5", "memory of its process tree before the end: 1.0 GiB, from 1.0 GiB"),
        ("n1:5", 5, "n1:4", None),
    ],
)
def test_the_memory_of_the_program_is_not_told_as_that_of_a_lost_worker(
    tmp_path, worker, pid, sampled, expected
):
    reason = "its process was killed by SIGKILL"
    events = [
        launched(worker, "n1", pid),
        *of_tree(sampled, GIB),
        lost(worker, 3, "n1", reason, pid=pid, signal="SIGKILL"),
        *lost_task("t", 3, worker, reason),
    ]
    cause = only(flightlog.diagnose(make_run(tmp_path, events)))
    said = [one.text for one in cause.evidence if one.text.startswith("memory of")]
    assert said == ([] if expected is None else [expected])


def test_a_worker_that_its_nanny_ended_is_given_more_by_dasks_own_setting(tmp_path):
    events = [
        launched("w1", "n1", 5, memory_bytes=2 * GIB),
        launched("w2", "n1", 6, memory_bytes=2 * GIB),
    ]
    for worker, resident in (("w1", "1.9 GiB"), ("w2", "1023.5 MiB")):
        reason = f"its nanny ended it for memory: {resident} resident was over its limit; Dask: gone"
        events += [lost(worker, 3, "n1", reason), *lost_task(f"t-{worker}", 3, worker, reason)]
    cause = only(flightlog.diagnose(make_run(tmp_path, events)))
    assert (cause.failure_class, cause.count) == ("out_of_memory", 2)
    assert cause.headline == (
        "2 worker processes went away: its nanny ended it for memory: 1.9 GiB resident was over its limit"
    )
    assert cause.suggestions[0] == (
        "The worker may use 2.0 GiB, and Dask's nanny ends it near that: give workers `memory_limit='3G'` "
        "(`dask worker --memory-limit 3G`) and fewer threads, or let `sim` hold less at once."
    )
    assert not any("ulimit" in one for one in cause.suggestions)


@pytest.mark.parametrize(("provider", "expected"), [(None, False), ("local", False), ("slurm", True)])
def test_a_batch_system_is_asked_only_where_there_is_one(tmp_path, provider, expected):
    reason = "its process was killed by SIGKILL"
    events = [
        launched("w1", "n1", 5),
        lost("w1", 3, "n1", reason, pid=5, signal="SIGKILL"),
        *lost_task("t", 3, "w1", reason),
        failure("u", 4, "ValueError", "invalid choice: 'fats' (choose from 'fast', 'slow')", task="solve"),
    ]
    found = flightlog.diagnose(make_run(tmp_path, events, provider=provider))
    assert [cause.failure_class for cause in found.causes] == ["worker_lost", "config_error"]
    said = [" ".join(cause.suggestions) for cause in found.causes]
    assert ["sacct" in said[0], "--exclude" in said[0], "sinfo" in said[1]] == [expected] * 3


def test_a_broken_pool_names_the_calls_that_were_under_way(tmp_path):
    broken = "A process in the process pool was terminated abruptly while the future was running or pending."
    events = [
        completed("a", 1, 0.5, "n1:5"),
        submitted("b", 1, x=5),
        started("b", 1, "n1:5"),
        started("c", 2, "n1:6"),
        failure(
            None,
            3,
            "concurrent.futures.process.BrokenProcessPool",
            broken,
            scope="run",
            task=None,
            attempt=None,
            worker=None,
        ),
    ]
    found = flightlog.diagnose(make_run(tmp_path, events, status="failed", end_time=at(3)))
    cause = only(found)
    assert (cause.failure_class, cause.tasks, cause.explains.in_flight) == ("worker_lost", {"sim": 2}, 2)
    assert cause.headline.startswith("the run failed: concurrent.futures.process.BrokenProcessPool: ")
    assert found.answer.startswith("The run failed. Very likely worker_lost: concurrent.futures.process.")
    assert cause.evidence[-1].text == "under way then: sim(x=5) on n1:5 for 2.0s, sim() on n1:6 for 1.0s"
    assert cause.suggestions[0].startswith("One of the calls that were under way ended its process")
    assert "explains   2 attempts that were under way: sim (2)" in diagnosis_text(found)


def test_what_a_device_said_is_told_once(tmp_path):
    message = (
        "CUDA out of memory. Tried to allocate 12.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which "
        "10.00 GiB is free. Of the allocated memory 69.00 GiB is allocated by PyTorch, and 83.00 MiB is "
        "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )
    path = make_run(tmp_path, [failure("t", 1, "torch.OutOfMemoryError", message)])
    (path / "oom" / "1").mkdir(parents=True)
    (path / "oom" / "1" / "bundle.json").write_bytes(msgspec.json.encode({"message": message, "oom": True}))
    found = flightlog.diagnose(path)
    cause = only(found)
    told = [one.text for one in cause.evidence if "Tried to allocate" in one.text]
    assert (cause.failure_class, len(told)) == ("gpu_out_of_memory", 1)
    assert found.answer == (
        "The run completed. Very likely gpu_out_of_memory: `sim` failed: torch.OutOfMemoryError: CUDA out of "
        "memory. Tried to allocate 12.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 10.00 GiB is "
        "free."
    )
    assert ("a device ran out of memory", "oom/1/bundle.json") in [
        (one.text, one.file) for one in cause.evidence
    ]
    assert cause.suggestions[0].startswith("69.0 GiB were in use and 12.0 GiB more were needed")
    assert not any("fragment" in one or "expandable" in one for one in cause.suggestions)
