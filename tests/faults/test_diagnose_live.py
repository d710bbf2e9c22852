"""Faults made for real, and what `flightlog.diagnose` says of the record they leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from faults_programs import SESSION, TRAINING
from small_cgroup import memory_limit

import flightlog
from flightlog.analyze.diagnosis.results import Cause, RunDiagnosis

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="faults are made by Linux's own means")


def run_session(tmp_path: Path, futures: str, **more: object) -> RunDiagnosis:
    """Run the tasks that an expression submits with the client `run`, and diagnose what was recorded."""
    program = tmp_path / "work.py"
    program.write_text(SESSION)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "runs"), futures],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        **more,
    )
    assert done.returncode == 0, done.stderr
    return diagnosed(tmp_path)


def diagnosed(tmp_path: Path) -> RunDiagnosis:
    [path] = (tmp_path / "runs").iterdir()
    found = flightlog.diagnose(path)
    for cause in found.causes:
        assert cause.evidence, cause
        for one in cause.evidence:
            assert one.file is None or (path / one.file).exists(), one
    return found


def ended_by(number: signal.Signals, program: str, tmp_path: Path) -> RunDiagnosis:
    """Run a program, send it a signal once it has printed a line, and diagnose what was recorded."""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "runs")], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(number)
    return diagnosed(tmp_path)


def only(found: RunDiagnosis) -> Cause:
    [cause] = found.causes
    return cause


def test_a_missing_module_a_refused_connection_a_missing_file_and_a_timeout_are_told_apart(tmp_path):
    found = run_session(
        tmp_path,
        "[run.submit(without_module), run.submit(refused), run.submit(missing_file), run.submit(too_slow)]",
    )
    causes = {next(iter(cause.tasks)): cause for cause in found.causes}
    assert {task: cause.failure_class for task, cause in causes.items()} == {
        "without_module": "import_error",
        "refused": "network",
        "missing_file": "missing_input",
        "too_slow": "timeout",
    }
    assert all(cause.confidence >= 0.7 and cause.count == 1 for cause in found.causes)
    first = {task: cause.evidence[0] for task, cause in causes.items()}
    assert first["without_module"].text == "ModuleNotFoundError: No module named 'a_module_that_nobody_wrote'"
    assert first["refused"].text == "ConnectionRefusedError: [Errno 111] Connection refused"
    assert first["too_slow"].text == "the engine ended the attempt at its timeout of 500 ms"
    assert {one.file for one in first.values()} == {"failures.jsonl"}
    assert causes["too_slow"].suggestions[0] == (
        "`too_slow` may take 500 ms; none succeeded in that time: set `tasks.too_slow.timeout: 1s` in "
        "flightlog.yaml, "
        "or find out what it waited for."
    )
    assert (found.status, found.tasks_failed, found.failures) == ("completed", 4, 4)


def test_a_limit_on_the_address_space_is_out_of_memory_and_not_the_request(tmp_path):
    cause = only(run_session(tmp_path, "[run.submit(no_room_in_address_space)]"))
    assert (cause.failure_class, cause.scope, cause.evidence[0].text) == (
        "out_of_memory",
        "task",
        "MemoryError",
    )
    assert cause.confidence >= 0.9


def test_a_worker_killed_with_others_alive_is_lost_and_the_task_it_had_is_laid_to_it(tmp_path):
    cause = only(run_session(tmp_path, "run.map(killed, range(6))"))
    assert (cause.failure_class, cause.scope, cause.count) == ("worker_lost", "worker", 1)
    assert (cause.explains.lost_tasks, cause.tasks) == (1, {"killed": 1})
    assert cause.confidence >= 0.9
    assert ("workers.jsonl", "worker_lost") in {(one.file, one.event) for one in cause.evidence}
    assert any("SIGKILL" in one.text for one in cause.evidence)
    assert cause.also.get("out_of_memory", 0.0) < 0.2


def test_a_worker_that_crashes_and_one_that_ends_itself_are_told_apart_from_one_that_was_killed(tmp_path):
    found = run_session(tmp_path, "[run.submit(crashes), run.submit(leaves)]")
    causes = {next(iter(cause.tasks)): cause for cause in found.causes}
    assert {task: cause.failure_class for task, cause in causes.items()} == {
        "crashes": "code_error",
        "leaves": "worker_lost",
    }
    assert causes["crashes"].suggestions[0].startswith("`crashes` crashed in native code")
    assert "ended by itself, with exit code 7, while it had `leaves`" in causes["leaves"].suggestions[0]


def test_a_task_that_failed_explains_those_that_depend_on_it(tmp_path):
    cause = only(
        run_session(
            tmp_path,
            "[second_ for first_ in [run.submit(first)] for second_ in [first_, *[run.submit(second, "
            "run.submit(second, first_)) for _ in range(3)]]]",
        )
    )
    assert (cause.tasks, cause.count, cause.explains.dependents) == ({"first": 1}, 1, 6)
    assert cause.failure_class == "code_error"


def test_a_kernel_kill_in_a_cgroup_is_out_of_memory_with_the_kernels_word_for_it(tmp_path):
    with memory_limit(400 << 20) as procs:
        found = run_session(
            tmp_path,
            "[run.submit(hungry, 40), run.submit(hungry, 900)]",
            preexec_fn=lambda: procs.write_text(str(os.getpid())),
        )
    cause = only(found)
    assert (cause.failure_class, cause.scope, cause.explains.lost_tasks) == ("out_of_memory", "worker", 1)
    assert cause.confidence >= 0.9
    assert {one.source for one in cause.evidence} >= {"kernel"}
    assert "OOM killer" in " ".join(one.text for one in cause.evidence)
    assert cause.suggestions[0].startswith(
        "component `sim` asks for 256.0 MiB; the kernel killed it when its cgroup was at its limit of "
        "400.0 MiB; "
        "the largest success needed "
    )
    assert cause.suggestions[0].endswith(
        ": give the job or container that it runs in 768M, or let fewer workers run in it at once."
    )


def test_a_command_that_the_kernel_kills_in_a_cgroup_is_out_of_memory(tmp_path):
    program = (
        "open('/proc/self/oom_score_adj', 'w').write('1000'); "
        "x = bytearray(900 << 20); x[::4096] = b'x' * len(x[::4096])"
    )
    with memory_limit(300 << 20) as procs:
        subprocess.run(
            [sys.executable, "-m", "flightlog", "run", "--", sys.executable, "-c", program],
            cwd=tmp_path,
            capture_output=True,
            check=False,
            timeout=100,
            env={**os.environ, "FLIGHTLOG_RUNS_DIR": str(tmp_path / "runs")},
            preexec_fn=lambda: procs.write_text(str(os.getpid())),
        )
    cause = only(diagnosed(tmp_path))
    assert (cause.failure_class, cause.scope) == ("out_of_memory", "command")
    assert {one.source for one in cause.evidence} >= {"kernel"}


def test_a_command_killed_without_any_sign_of_memory_is_unknown_and_says_whom_to_ask(tmp_path):
    program = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run(
        [sys.executable, "-m", "flightlog", "run", "--", sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "FLIGHTLOG_RUNS_DIR": str(tmp_path / "runs")},
    )
    found = diagnosed(tmp_path)
    cause = only(found)
    assert (cause.failure_class, cause.certainty) == ("unknown", "unknown")
    assert cause.confidence < 0.5
    assert any("dmesg" in one for one in [*cause.missing, *cause.suggestions])
    assert "unknown" in found.answer


def test_a_run_whose_process_is_killed_is_crashed_for_an_unknown_reason_with_what_was_under_way(tmp_path):
    program = (
        "import flightlog, sys, time\n"
        "with flightlog.record('hang', runs_dir=sys.argv[1], sample_interval_s=0.1) as run:\n"
        "    with run.task('integrate'):\n"
        "        print('there', flush=True)\n"
        "        time.sleep(60)\n"
    )
    found = ended_by(signal.SIGKILL, program, tmp_path)
    cause = only(found)
    assert (found.status, cause.failure_class, cause.scope) == ("crashed", "unknown", "run")
    assert (cause.explains.in_flight, cause.tasks) == (1, {"integrate": 1})
    assert cause.headline == "the run's process exited unexpectedly"


def test_an_interrupted_run_was_cancelled_by_its_signal(tmp_path):
    program = (
        "import flightlog, sys, time\n"
        "with flightlog.record('hang', runs_dir=sys.argv[1], sample_interval_s=None) as run:\n"
        "    print('there', flush=True)\n"
        "    time.sleep(60)\n"
    )
    found = ended_by(signal.SIGTERM, program, tmp_path)
    cause = only(found)
    assert (found.status, cause.failure_class, cause.scope) == ("interrupted", "cancelled", "run")
    assert "SIGTERM" in cause.headline


def test_a_full_disk_is_one_cause_for_all_tasks_that_met_it(tmp_path, small_disk):
    cause = only(run_session(tmp_path, f"run.map(full_disk, [{str(small_disk)!r}] * 3)"))
    assert (cause.failure_class, cause.count, cause.tasks) == ("disk_full", 3, {"full_disk": 3})
    assert cause.evidence[0].text == "OSError: [Errno 28] No space left on device"
    assert cause.confidence >= 0.9


@pytest.mark.parametrize("how", ["raise", "return"])
def test_a_loss_that_became_nan_is_numerical_whether_or_not_the_program_minded(tmp_path, how):
    subprocess.run(
        [sys.executable, "-c", TRAINING, str(tmp_path / "runs"), how],
        capture_output=True,
        check=False,
        timeout=60,
    )
    found = diagnosed(tmp_path)
    cause = only(found)
    assert cause.failure_class == "numerical"
    assert cause.confidence >= 0.8
    assert any("`loss`" in one.text for one in cause.evidence)
    if how == "return":
        assert (found.status, found.failures, cause.scope) == ("completed", 0, "metric")
        assert cause.headline == "`loss` became NaN, first at step 7"
        assert (cause.evidence[0].file, cause.evidence[0].event) == ("metrics.jsonl", "metric")
    else:
        assert (found.status, cause.scope) == ("failed", "run")
