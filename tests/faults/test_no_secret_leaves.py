"""A secret in every place that takes a text: none of them stands in what was recorded, or in what is made of
it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import flightlog
from flightlog.cli.main import main
from flightlog.core.redaction import own_patterns

PROGRAM = """
import hashlib, subprocess, sys, threading, warnings
import flightlog
from flightlog.events import CacheLookup, CostRates, TaskSubmitted, WorkerLost, WorkerReady, JobStarted

def canary(place):
    return "ghp_" + hashlib.sha256(place.encode()).hexdigest()[:36]

class Mine(Exception):
    pass

Event = flightlog.define_event("mine.Thing", text=str, inner=dict)

try:
    with flightlog.record(f"project {canary('project')}", tags={"tag": canary("run tag"), canary("run tag key"): 1},
                          target=canary("target"), provider=canary("provider")) as run:
        for _ in range(2):
            with flightlog.span(f"GET https://bob:{canary('span url')}@h/"):
                pass
            with flightlog.span(f"span {canary('span')}", text=f"x {canary('tag')}", **{canary("tag key"): 1}) as span:
                span.add_metric(f"m {canary('span metric')}", 1.0)
                span.tags["later"] = {"deep": [canary("deep tag")]}
                span.set_status("error", canary("status"))
            run.metric(f"metric {canary('metric')}", 1.0)
        run.event(f"event {canary('event')}", field=canary("field"), **{canary("field key"): 1})
        run.event(Event(text=canary("own event"), inner={canary("own event key"): canary("own event value")}))
        with run.task(f"task {canary('task')}", arg=canary("task arg")) as task:
            task.tags["t"] = canary("task tag")
        def in_thread():
            with run.task("in a thread"):
                pass
        thread = threading.Thread(target=in_thread, name=f"thread-{canary('thread')}")
        thread.start(); thread.join()
        run.record_artifact(f"s3://bucket/{canary('artifact address')}?sig={canary('sig')}", name=canary("artifact name"),
                            kind=canary("artifact kind"), note=canary("artifact note"))
        run.record_artifact(f"/nowhere/{canary('artifact path')}")
        run.emit(WorkerLost(worker=canary("worker"), host=canary("host"), pid=1, reason=canary("worker reason")))
        run.emit(TaskSubmitted(task=canary("emitted"), task_id=f"id {canary('task id')}", args={"a": canary("emitted arg")},
                               depends_on=[canary("dependency")]),
                 TaskSubmitted(task="x", task_id="y", args={"password": canary("emitted password")}))
        run.emit(CacheLookup(task="x", result="miss", key=canary("cache key"), reason=canary("cache reason")))
        run.emit(JobStarted(job_id=canary("job"), name=canary("job name"), submit_dir=canary("submit dir")))
        try:
            with run.task("fails"):
                raise Mine(f"token {canary('error')}")
        except Mine:
            pass
        run.metric(f"odd {canary('problem')}", object())
        run.recorder.trouble("odd", f"trouble {canary('trouble')}")
        raise type(f"E_{canary('class')}", (Exception,), {})(canary("run error"))
except Exception:
    pass
"""


def canary(place: str) -> str:
    return "ghp_" + hashlib.sha256(place.encode()).hexdigest()[:36]


def places() -> set[str]:
    """Every place that the program puts a canary in, its own command line included."""
    import re

    return set(re.findall(r"""canary\(["']([a-z ]+)["']\)""", PROGRAM)) | {"argument", "flag"}


def held(folder: Path, also: str = "") -> list[tuple[str, str]]:
    """Which canaries stand in which files of a folder, or in their names."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    texts = {str(file.relative_to(folder)): file.read_bytes().decode("utf-8", "replace") for file in files}
    texts["names"] = "\n".join(str(file.relative_to(folder)) for file in folder.rglob("*"))
    texts["also"] = also
    return [
        (place, name) for place in sorted(places()) for name, text in texts.items() if canary(place) in text
    ]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("canaries")
    program = folder / "program.py"
    program.write_text(PROGRAM)
    argv = [sys.executable, str(program), canary("argument"), f"--token={canary('flag')}"]
    environ = {**os.environ, "FLIGHTLOG_RUNS_DIR": str(folder / "runs"), "SLURM_JOB_NAME": canary("argument")}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=120, check=True)
    (run,) = (folder / "runs").iterdir()
    return run, done.stdout + done.stderr


def test_no_secret_stands_in_the_run_directory_in_its_name_or_in_what_the_program_was_told(recorded) -> None:
    run, said = recorded
    assert "could not be recorded" not in said
    assert held(run.parent, said) == []
    assert len(places()) > 45


def test_no_secret_stands_in_what_is_exported_or_shown(recorded, tmp_path, capsys) -> None:
    run, _ = recorded
    for kind in ("perfetto", "otlp-json", "csv", "ro-crate"):
        assert main(["export", str(run), "--to", kind, "--output", str(tmp_path / kind)]) == 0
    for command in ("report", "diagnose"):
        main([command, str(run)])
    shown = capsys.readouterr()
    assert "[redacted]" in shown.out
    assert held(tmp_path, shown.out + shown.err) == []


def test_names_that_hold_no_secret_are_recorded_as_they_are(tmp_path) -> None:
    names = ["GET https://example.org/items/3", "fold 3/10", "naïve é", "sk-learn", "a" * 300, "key=beta"]
    with flightlog.record("names", runs_dir=tmp_path, sample_interval_s=None) as run:
        for name in [*names, *names]:
            with flightlog.span(name):
                run.metric(name, 1.0)
    for stream in ("spans", "metrics"):
        lines = (run.path / f"{stream}.jsonl").read_text().splitlines()
        assert [json.loads(line)["name"] for line in lines] == [*names, *names]


def test_a_command_that_is_recorded_leaves_no_secret(tmp_path, capsys) -> None:
    script = f"echo password={canary('argument')}; mysql -p{canary('flag')} x 2>/dev/null; exit 3"
    assert main(["run", "--runs-dir", str(tmp_path), "--", "sh", "-c", script]) == 3
    assert held(tmp_path) == []


def test_what_another_tool_recorded_is_adopted_without_its_secrets(tmp_path) -> None:
    trace = tmp_path / "trace.json"
    event = {
        "name": f"GET {canary('span')}",
        "ph": "X",
        "ts": 1,
        "dur": 2,
        "pid": 1,
        "tid": 1,
        "args": {"a": canary("tag")},
    }
    thread = {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": canary("thread")}}
    trace.write_text(json.dumps({"traceEvents": [event, thread]}))
    runs = tmp_path / "runs"
    assert main(["adopt", str(trace), "--project", f"p {canary('project')}", "--runs-dir", str(runs)]) == 0
    assert len(list(runs.glob("run-*/spans.jsonl"))) == 1
    assert held(runs) == []


def test_patterns_of_ones_own_hold_for_names_too(tmp_path, monkeypatch) -> None:
    shown = []
    for pattern in ("", "CASE-[0-9]+", "", "[0-9]+"):
        monkeypatch.setenv("FLIGHTLOG_REDACT", pattern)
        with flightlog.record("own", runs_dir=tmp_path, sample_interval_s=None) as run:
            with flightlog.span("x CASE-17"):
                pass
        shown.append(json.loads((run.path / "spans.jsonl").read_text())["name"])
    assert shown == ["x CASE-17", "x [redacted]", "x CASE-17", "x CASE-[redacted]"]
    own_patterns(())
