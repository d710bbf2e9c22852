"""Runs: how they start, what they hold, and how they end."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from builders.runs import finished

import flightlog
from flightlog.events import (
    Metric,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
    TaskSubmitted,
    define_event,
)
from flightlog.store.completing import complete_ended
from flightlog.store.run import Run, find_run

MICROSECOND = timedelta(microseconds=1)
"""Timestamps have no smaller parts."""


def script(tmp_path: Path, body: str, **env: str) -> subprocess.Popen[str]:
    """Start a Python program that records below tmp_path."""
    file = tmp_path / "program.py"
    file.write_text("import flightlog, os, signal, sys, time\n" + textwrap.dedent(body))
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("FLIGHTLOG", "TRACEPARENT"))}
    return subprocess.Popen(
        [sys.executable, str(file)],
        env={**environ, "FLIGHTLOG_RUNS_DIR": str(tmp_path / "runs"), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(tmp_path: Path, process: subprocess.Popen[str]) -> tuple[int, str, Run]:
    """Wait for the program; its exit code, its standard error and its run."""
    _, err = process.communicate(timeout=60)
    return process.returncode, err, Run(find_run("latest", runs_dir=tmp_path / "runs"))


def test_a_run_directory_is_named_for_time_project_and_token(recorded):
    with recorded("Wald & Wiesen/../x") as run:
        pass
    assert run.path.name == run.run_id
    assert run.path.parent.name == "runs"
    stamp, label, token = run.run_id.removeprefix("run-").split("-", 1)[0], run.run_id, run.run_id[-8:]
    assert (len(stamp), label.isascii(), int(token, 16) >= 0) == (16, True, True)
    assert Run(run.path).info.project == "Wald & Wiesen/../x"


def test_run_json_tells_who_what_and_when(recorded):
    with recorded(tags={"team": "epi", "password": "hunter2"}) as run:
        live = json.loads((run.path / "run.json").read_text())
        assert (live["status"], live["pid"]) == ("running", os.getpid())
    closed = json.loads((run.path / "run.json").read_text())
    assert closed["status"] == "completed"
    assert closed["start_time"] < closed["end_time"]
    assert closed["duration_s"] > 0
    assert closed["tags"] == {"team": "epi", "password": "[redacted]"}
    assert closed["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert closed["overhead"]["lost"] == 0
    assert {"environment.json", "recorder.json", "summary.json", "checksums.json"} <= set(
        os.listdir(run.path)
    )
    assert "segments" not in os.listdir(run.path)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ("pass", "completed", 0),
        ("sys.exit(0)", "completed", 0),
        ("sys.exit(3)", "failed", 3),
        ("raise ValueError('boom')", "failed", 1),
        ("raise KeyboardInterrupt", "interrupted", -signal.SIGINT),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", "interrupted", -signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGHUP); time.sleep(30)", "interrupted", -signal.SIGHUP),
        ("os.kill(os.getpid(), signal.SIGKILL)", "crashed", -signal.SIGKILL),
        ("os._exit(4)", "crashed", 4),
    ],
)
def test_each_way_to_exit_ends_in_the_right_status_and_changes_nothing(tmp_path, body, status, code):
    process = script(
        tmp_path,
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests were started by nohup\n"
        f"with flightlog.record('x'):\n    with flightlog.span('s'):\n        pass\n    {body}\n",
    )
    returncode, _, run = ended(tmp_path, process)
    assert (run.status, returncode) == (status, code)
    assert [e.name for e in finished(run)] == ["s"]


def test_ctrl_c_under_asyncio_interrupts_the_run(tmp_path):
    body = """
    import asyncio

    async def main():
        with flightlog.record('x'):
            with flightlog.span('s'):
                pass
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(30)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # even if the tests run in the background
    asyncio.run(main())
    """
    returncode, _, run = ended(tmp_path, script(tmp_path, body))
    assert (returncode, run.status, run.info.error) == (-signal.SIGINT, "interrupted", "CancelledError")
    assert list(run.events("failures")) == []


def test_sigterm_ends_a_program_that_is_stuck_in_c_code(tmp_path):
    body = """
    import threading, ctypes
    with flightlog.record('x'):
        with flightlog.span('stuck'):
            print('ready', flush=True)
            ctypes.CDLL(None).sleep(30)  # the main thread runs no Python meanwhile
    """
    process = script(tmp_path, body)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    returncode, _, run = ended(tmp_path, process)
    assert (returncode, run.status) == (-signal.SIGTERM, "interrupted")


def test_sigterm_ends_every_run_that_is_open(tmp_path):
    body = """
    import threading
    opened = threading.Event()
    def in_thread():
        with flightlog.record('thread'):
            opened.set()
            time.sleep(30)
    with flightlog.record('outer'):
        with flightlog.record('ended'):
            pass
        with flightlog.record('inner'):
            threading.Thread(target=in_thread, daemon=True).start()
            opened.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(30)
    """
    process = script(tmp_path, body)
    _, said = process.communicate(timeout=60)
    found = {Run(path).info.project: Run(path).status for path in (tmp_path / "runs").iterdir()}
    assert found == {
        "outer": "interrupted",
        "ended": "completed",
        "inner": "interrupted",
        "thread": "interrupted",
    }, said
    assert process.returncode == -signal.SIGTERM


def test_the_users_own_signal_handler_is_left_alone(tmp_path):
    body = """
    def handler(*_):
        print('mine', flush=True)
        sys.exit(7)
    signal.signal(signal.SIGTERM, handler)
    with flightlog.record('x'):
        assert signal.getsignal(signal.SIGTERM) is handler
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
    """
    process = script(tmp_path, body)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (7, "mine\n")
    assert Run(find_run("latest", runs_dir=tmp_path / "runs")).status == "failed"


def test_after_a_run_the_process_is_as_it_was(recorded):
    before = signal.getsignal(signal.SIGTERM), dict(os.environ), {t.name for t in threading.enumerate()}
    with recorded():
        assert os.environ["FLIGHTLOG_RUN"]
    names = {t.name for t in threading.enumerate() if t.name != "flightlog-signals"}
    assert (signal.getsignal(signal.SIGTERM), dict(os.environ), names) == (
        *before[:2],
        before[2] - {"flightlog-signals"},
    )


def test_an_open_span_and_the_heartbeat_of_a_killed_run_are_on_disk(tmp_path):
    body = """
    with flightlog.record('x') as run:
        with flightlog.span('outer', step=3), run.task('simulate', n=1):
            with flightlog.span('hangs'):
                time.sleep(1.3)
                print('now', flush=True)
                time.sleep(60)
    """
    process = script(tmp_path, body)
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    _, _, run = ended(tmp_path, process)
    opened = {e.name: e for e in run.events("spans")}
    assert set(opened) == {"outer", "hangs"}
    assert (opened["outer"].tags, opened["hangs"].elapsed_s > 0.3) == ({"step": 3}, True)
    assert run.info.heartbeat > run.info.start_time
    assert run.info.duration_s > 0.5
    assert run.status == "crashed"


def test_an_exception_that_escapes_is_a_failure_with_its_traceback(recorded):
    with pytest.raises(ZeroDivisionError), recorded() as run:
        1 / 0
    closed = Run(run.path)
    (failure,) = closed.events("failures")
    assert (closed.status, failure.scope, failure.error_type) == ("failed", "run", "ZeroDivisionError")
    assert "1 / 0" in failure.traceback


def test_record_is_a_decorator_for_functions_and_coroutines(recorded, tmp_path):
    @recorded("plain")
    def plain(x):
        return flightlog.current_run().run_id, x

    @recorded("coroutine")
    async def coroutine(x):
        await asyncio.sleep(0)
        return flightlog.current_run().run_id, x

    first, second, third = plain(1), plain(2), asyncio.run(coroutine(3))
    assert [first[1], second[1], third[1]] == [1, 2, 3]
    assert len({first[0], second[0], third[0]}) == 3
    assert all(
        Run(find_run(r[0], runs_dir=tmp_path / "runs")).status == "completed" for r in (first, second, third)
    )


def test_a_task_records_its_life_and_what_it_used(recorded):
    with recorded() as run:
        with run.task("run_simulation", scenario_id=42, token="hunter2") as task:
            task.metrics["attack_rate"] = 0.5
            with flightlog.span("inside"):
                sum(i * i for i in range(200_000))
        with pytest.raises(ValueError, match="bad"), run.task("run_simulation", scenario_id=43):
            raise ValueError("bad")
        with pytest.raises(KeyboardInterrupt), run.task("run_simulation", scenario_id=44):
            raise KeyboardInterrupt
        with run.task("solve") as task:
            task.set_status("error", "did not converge")
    closed = Run(run.path)
    events = list(closed.events("tasks"))
    assert [type(e) for e in events] == [
        TaskSubmitted,
        TaskStarted,
        TaskCompleted,
        TaskSubmitted,
        TaskStarted,
        TaskFailed,
        TaskSubmitted,
        TaskStarted,
        TaskCancelled,
        TaskSubmitted,
        TaskStarted,
        TaskFailed,
    ]
    done = events[2]
    assert (done.task, done.args) == ("run_simulation", {"scenario_id": 42, "token": "[redacted]"})
    assert done.metrics == {"attack_rate": 0.5}
    assert 0 < done.cpu_s <= done.duration_s * 1.5
    assert done.peak_rss_bytes > 1_000_000
    assert done.worker == events[1].worker
    assert (events[5].error_type, events[5].error_message) == ("ValueError", "bad")
    assert (events[8].reason, events[11].error_message) == ("KeyboardInterrupt", "did not converge")
    (inside,) = finished(closed)
    assert inside.parent_id == done.span_id
    (failure,) = closed.events("failures")
    assert (failure.task_id, failure.fingerprint) == (events[5].task_id, events[5].fingerprint)
    assert (closed.info.tasks_submitted, closed.info.tasks_completed, closed.info.tasks_failed) == (4, 1, 2)


def test_on_the_clock_what_is_inside_a_task_lies_inside_it(recorded):
    with recorded() as run:
        for _ in range(20):
            with run.task("step"), flightlog.span("inside"):
                pass
    closed = Run(run.path)
    ends = {e.span_id: e for e in closed.events("tasks") if isinstance(e, TaskCompleted)}
    for inside in finished(closed):
        task = ends[inside.parent_id]
        stopped = datetime.fromisoformat(task.timestamp)
        began = stopped - timedelta(seconds=task.duration_s)
        since = datetime.fromisoformat(inside.timestamp)
        assert began <= since + MICROSECOND
        assert since + timedelta(seconds=inside.duration_s) <= stopped + MICROSECOND


def test_a_task_belongs_to_its_run_wherever_it_is_opened(recorded):
    with recorded("one") as one, recorded("two") as two:
        with one.task("in-one"), flightlog.span("inside"):
            pass
    assert [e.name for e in finished(Run(one.path))] == ["inside"]
    assert list(Run(two.path).events("tasks")) == []


def test_artifacts_carry_size_and_checksum(recorded, tmp_path):
    file = tmp_path / "out.csv"
    file.write_text("a,b\n1,2\n")
    with recorded() as run:
        run.record_artifact(file, kind="result")
        run.record_artifact(tmp_path / "missing.csv", kind="result", name="lost")
        run.record_artifact("s3://me:hunter2@bucket/key.nc", kind="data")
        run.record_artifact(object())
    first, missing, remote = Run(run.path).events("artifacts")
    assert (first.name, first.uri, first.size_bytes) == ("out.csv", str(file), 8)
    assert first.sha256 == hashlib.sha256(b"a,b\n1,2\n").hexdigest()
    assert (missing.name, missing.size_bytes, missing.sha256) == ("lost", None, None)
    assert "No such file" in missing.error
    assert (remote.name, remote.size_bytes) == ("key.nc", None)
    assert "hunter2" not in remote.uri


def test_metrics_and_events_of_the_user(recorded):
    loss = define_event("test_recording.Loss", value=float, step=(int, -1))
    with recorded() as run:
        run.metric("loss", 0.5, step=1)
        run.metric("loss", float("inf"), step=2)
        run.metric("loss", "three")
        run.event("checkpoint", path=Path("/tmp/x"), password="hunter2")
        run.event(loss(value=0.25))
        run.emit(loss(value=0.125, step=7))
    closed = Run(run.path)
    assert [(m.value, m.step, m.nonfinite) for m in closed.events("metrics")] == [
        (0.5, 1, None),
        (None, 2, "inf"),
        (None, None, None),
    ]
    (event,) = closed.events("events")
    assert (event.name, event.fields) == ("checkpoint", {"path": "/tmp/x", "password": "[redacted]"})
    assert [(e.value, e.step) for e in closed.events("user.test_recording")] == [(0.25, -1), (0.125, 7)]


def test_short_secrets_are_redacted_in_every_span_and_not_in_the_first_alone(recorded):
    secrets = ("mysql -phunter2", "Bearer a1b2c3d4e", "--password hunt2", "xoxb-1234567890A")
    with recorded() as run:
        for text in ("ls", *secrets, *secrets):
            with flightlog.span("s", cmd=text):
                pass
    written = [
        json.loads(line)["tags"]["cmd"] for line in (run.path / "spans.jsonl").read_text().splitlines()
    ]
    cleaned = ["mysql -p[redacted]", "Bearer [redacted]", "--password [redacted]", "[redacted]"]
    assert written == ["ls", *cleaned, *cleaned]


def test_patterns_of_ones_own_find_short_texts_and_names_that_look_like_ids(recorded, monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_REDACT", "ACME-?\\d+\n\\d{3}-\\d{2}-\\d{4}")
    with recorded() as run:
        for i in range(3):
            with flightlog.span("s", customer=f"ACME-{i}33", number=f"123-45-678{i}"):
                pass
            with run.task("t", customer=f"ACME{i}77"):
                pass
        with run.task("123-45-6700"):
            pass
        run.metric("123-45-6701", 1.0)
    monkeypatch.delenv("FLIGHTLOG_REDACT")
    with recorded():
        pass  # without the patterns again
    written = "".join(file.read_text() for file in run.path.glob("*.jsonl"))
    assert ("ACME" in written, "123-45" in written, "[redacted]" in written) == (False, False, True)


def test_events_of_the_user_are_redacted_bounded_and_marked_like_all_else(recorded):
    state = define_event("test_recording.State", loss=float, token=str, note=str, where=(Any, None))
    with recorded() as run:
        run.emit(state(loss=float("nan"), token="hunter2", note="x" * 1_000_000, where=Path("/data")))
    (line,) = (run.path / "user.test_recording.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert (found["loss"], found["nonfinite"]) == (None, {"loss": "nan"})
    assert (found["token"], found["where"], len(line) < 40_000) == ("[redacted]", "/data", True)


def test_many_events_can_be_emitted_at_once(recorded):
    mark = define_event("test_recording.Step", n=int)
    with recorded() as run:
        run.emit(*[Metric(name="loss", value=float(i), step=i) for i in range(1000)])
        run.emit(*[mark(n=i) for i in range(100)], Metric(name="loss", value=None))
    closed = Run(run.path)
    assert [m.step for m in closed.events("metrics")] == [*range(1000), None]
    assert [m.seq for m in closed.events("metrics")] == list(range(1001))
    assert [e.n for e in closed.events("user.test_recording")] == list(range(100))


def test_an_event_emitted_twice_is_two_lines(recorded):
    mark = define_event("test_recording.Mark", n=int)(n=1)
    with recorded() as run:
        run.emit(mark)
        run.emit(mark)
    assert [(e.n, e.seq) for e in Run(run.path).events("user.test_recording")] == [(1, 0), (1, 1)]


def test_whatever_is_recorded_after_the_run_is_counted_and_harmless(recorded):
    with recorded() as run:
        late = flightlog.span("late")
        late.__enter__()
    late.__exit__(None, None, None)
    run.metric("loss", 1.0)
    run.event("late")
    with run.task("late"):
        pass
    assert list(Run(run.path).events("metrics")) == []


@pytest.mark.parametrize("value", ["0", "false", "off", "OFF"])
def test_recording_can_be_switched_off_from_outside(tmp_path, value):
    body = """
    @flightlog.span('decorated')
    def work(): return 5
    with flightlog.record('x') as run:
        with flightlog.span('s') as span, run.task('t') as task:
            span.metrics['a'] = task.metrics['b'] = 1
        run.metric('a', 1); run.event('b'); run.record_artifact('c'); run.subscribe(print)()
        assert work() == 5 and flightlog.carrier() == {} and flightlog.current_run() is None
    """
    process = script(tmp_path, body, FLIGHTLOG_TELEMETRY=value)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err, (tmp_path / "runs").exists()) == (0, "", False)


def test_a_bad_switch_is_a_message_and_not_a_crash(tmp_path):
    process = script(tmp_path, "with flightlog.record('x'): pass", FLIGHTLOG_TELEMETRY="maybe")
    code, err, run = ended(tmp_path, process)
    assert (code, run.status) == (0, "completed")
    assert "FLIGHTLOG_TELEMETRY" in err
    assert "maybe" in err


def test_parquet_copies_are_made_where_asked_for(tmp_path):
    process = script(
        tmp_path,
        "with flightlog.record('x'):\n    with flightlog.span('s'): pass",
        FLIGHTLOG_TELEMETRY_PARQUET="1",
    )
    _, _, run = ended(tmp_path, process)
    assert run.info.to_snapshot is True  # DuckDB is not loaded in the program
    assert complete_ended(run.path)
    assert (run.path / "parquet" / "spans.parquet").exists()


def test_a_strange_sample_interval_is_a_message_and_not_a_crash(recorded, caplog):
    with caplog.at_level(logging.WARNING, "flightlog"):
        with recorded(sample_interval_s="often", samplers=[]) as run:
            pass
    assert run.info.sample_interval_s == 1.0
    assert "often" in caplog.text


def test_samples_are_taken_at_once_and_at_the_end(recorded):
    with recorded(sample_interval_s=60) as run:
        pass
    samples = [s for s in Run(run.path).events("resources") if s.scope == "worker"]
    assert [s.final for s in samples] == [False, True]
    assert samples[-1].rss_bytes > 1_000_000
    assert samples[-1].cpu_s > 0


def test_a_sampler_that_raises_is_left_out_and_the_others_go_on(recorded, caplog):
    from flightlog.samplers.host import HostSampler

    class Broken:
        def sample(self):
            raise OSError("no")

    with (
        caplog.at_level(logging.WARNING, "flightlog"),
        recorded(sample_interval_s=60, samplers=[Broken(), HostSampler()]) as run,
    ):
        pass
    assert [s.scope for s in Run(run.path).events("resources")] == ["node", "node"]
    assert "Broken" in caplog.text


def test_traceparent_comes_in_from_the_environment(tmp_path):
    trace, parent = "ab" * 16, "cd" * 8
    process = script(tmp_path, "with flightlog.record('x'): pass", TRACEPARENT=f"00-{trace}-{parent}-01")
    _, _, run = ended(tmp_path, process)
    assert (run.info.trace_id, run.info.parent_id) == (trace, parent)


def test_recording_writes_nothing_to_the_programs_output(tmp_path):
    process = script(tmp_path, "with flightlog.record('x'):\n    with flightlog.span('s'): print('mine')")
    out, err = process.communicate(timeout=60)
    assert (out, err) == ("mine\n", "")


def test_forty_runs_at_once_in_one_process_are_all_whole(recorded, tmp_path):
    paths = []

    def one(i):
        with recorded(f"run-{i}") as run:
            for _ in range(50):
                with flightlog.span("work", i=i):
                    pass
            paths.append((i, run.path))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 40
    for i, path in paths:
        closed = Run(path)
        assert closed.status == "completed"
        assert [e.tags["i"] for e in finished(closed)] == [i] * 50


def test_memory_does_not_grow_with_what_is_recorded(recorded):
    import tracemalloc

    def work(run, number):
        for i in range(number):
            with run.task("simulate", i=i), flightlog.span("inside", i=i, text=f"unique text number {i}"):
                pass

    with recorded() as run:
        work(run, 500)
        tracemalloc.start()
        work(run, 1500)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert kept < 600_000  # bounded tables of names and texts known to be harmless, and nothing a task


def test_a_run_that_cannot_even_start_lets_the_program_run(recorded, caplog):
    with recorded(runs_dir="\0") as run:
        with flightlog.span("work"), run.task("t"):
            done = True
    assert done
    assert "recording could not start" in caplog.text
