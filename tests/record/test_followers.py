"""Followers: commands of ours beside a run. The commands here are real ones that need no server."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psutil
import pytest

import flightlog
from flightlog.core.settings import Settings
from flightlog.events import JobStarted
from flightlog.record import followers
from flightlog.record.array_run import begin_element
from flightlog.record.followers import (
    asked_followers,
    finish_followers,
    followers_of,
    start_asked,
    start_follower,
)
from flightlog.record.limits import RecordLimits
from flightlog.store.integrity import verify_files
from flightlog.store.run import Run

PATIENCE_S = 60.0


@pytest.fixture
def run_path(tmp_path: Path) -> Iterator[Path]:
    """The folder of a run that followers are started beside; those that still live are ended."""
    path = tmp_path / "run"
    path.mkdir()
    yield path
    for one in followers_of(path):
        try:
            os.killpg(one.group, signal.SIGKILL)
        except ProcessLookupError:
            continue
    finish_followers(path, PATIENCE_S)


def command_of(*words: str, tmp_path: Path) -> list[str]:
    """Arguments of `flightlog` that run a command of the system: the one way to have it say what a test
    needs."""
    return ["run", "--runs-dir", str(tmp_path / "theirs"), "--", *words]


def test_the_environment_names_the_followers_of_a_run() -> None:
    path = Path("/runs/run-1")
    assert asked_followers(path, Settings()) == {}
    assert asked_followers(path, Settings(remote="s3://bucket/runs", otlp=True, alerts=True)) == {
        "sync": ["sync", "/runs/run-1", "--follow"],
        "otlp": ["export", "/runs/run-1", "--to", "otlp", "--follow"],
        "alerts": ["alert", "/runs/run-1"],
    }


def test_no_follower_is_started_where_nothing_asks_for_one(run_path: Path) -> None:
    start_asked(run_path, Settings())
    assert (followers_of(run_path), list(run_path.iterdir())) == ((), [])


def test_a_follower_that_did_its_work_is_not_worth_a_word(run_path: Path) -> None:
    start_follower(run_path, "words", ["--version"])
    assert finish_followers(run_path, PATIENCE_S) == ()
    assert (run_path / ".followers/words.exit").read_text() == "0\n"


def test_a_follower_that_failed_says_why_and_what_to_type(run_path: Path, caplog) -> None:
    start_follower(run_path, "words", ["verify", "/no/such/run"])
    assert finish_followers(run_path, PATIENCE_S) == (
        "the run was recorded, but not all of it was sent (there is no folder /no/such/run); "
        "to try again: `flightlog verify /no/such/run`",
    )
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_the_end_of_a_run_does_not_wait_longer_than_it_may(run_path: Path, tmp_path: Path) -> None:
    start_follower(run_path, "long", command_of("sleep", "600", tmp_path=tmp_path))
    (one,) = followers_of(run_path)
    try:
        assert finish_followers(run_path, 0.0) == (
            "sending the run goes on in the background; if that is cut off, "
            f"`flightlog run --runs-dir {tmp_path}/theirs -- sleep 600` finishes it",
        )
    finally:
        os.killpg(one.group, signal.SIGKILL)


def test_many_short_runs_do_not_pile_up_followers(tmp_path: Path, caplog) -> None:
    groups = []
    try:
        for number in range(RecordLimits.max_followers_of_ended_runs):
            path = tmp_path / f"run-{number}"
            start_follower(path, "long", command_of("sleep", "600", tmp_path=tmp_path))
            groups += [one.group for one in followers_of(path)]
            finish_followers(path, 0.0)
        start_follower(tmp_path / "next", "sync", ["sync", "next"])
        assert followers_of(tmp_path / "next") == ()
        assert caplog.records[-1].getMessage() == (
            "`flightlog sync next` could not be started beside the run: "
            f"{RecordLimits.max_followers_of_ended_runs} of earlier runs are still at work; "
            "run it yourself later"
        )
    finally:
        for group in groups:
            os.killpg(group, signal.SIGKILL)
    assert len(groups) == RecordLimits.max_followers_of_ended_runs


def test_followers_that_have_ended_make_room_for_others(tmp_path: Path) -> None:
    notes = tmp_path / ".followers"
    notes.mkdir()
    host = os.uname().nodename
    for pid in range(1, RecordLimits.max_followers_of_ended_runs + 1):
        (notes / f"{host}.{pid}").write_text("-7.0\n")  # numbers that other processes have by now
        (notes / f"elsewhere.{pid}").write_text("-7.0\n")
    start_follower(tmp_path / "next", "words", ["--version"])
    assert finish_followers(tmp_path / "next", PATIENCE_S) == ()
    assert sorted({file.name.partition(".")[0] for file in notes.iterdir()}) == ["elsewhere"]


def test_ctrl_c_ends_the_waiting_and_what_goes_on_is_said(tmp_path: Path) -> None:
    program = f"""
import os, signal, flightlog
from pathlib import Path
from flightlog.record import followers
real = followers._wait
def wait(*args):
    os.kill(os.getpid(), signal.SIGINT)
    real(*args)
followers._wait = wait
try:
    with flightlog.record("demo", runs_dir={str(tmp_path)!r}, sample_interval_s=None) as run:
        followers.start_follower(run.path, "long", ["run", "--", "sleep", "600"])
        (one,) = followers.followers_of(run.path)
        Path({str(tmp_path / "group")!r}).write_text(str(one.group))
except KeyboardInterrupt:
    raise SystemExit(7)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "FLIGHTLOG_FOLLOWERS_WAIT": "600"},
        capture_output=True,
        text=True,
    )
    os.killpg(int((tmp_path / "group").read_text()), signal.SIGKILL)
    assert (done.returncode, done.stderr.count("\n")) == (7, 1)
    assert done.stderr.startswith("sending the run goes on in the background; ")
    (path,) = tmp_path.glob("run-*")
    assert Run(path).info.status == "completed"


def test_where_every_interpreter_records_a_follower_has_none_of_its_own(
    run_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        f"import flightlog; flightlog.record('all', runs_dir={str(tmp_path / 'all')!r}).__enter__()"
    )
    paths = [str(tmp_path), str(Path(flightlog.__file__).parents[1])]
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    start_follower(run_path, "words", ["--version"], environ=given)
    assert finish_followers(run_path, PATIENCE_S) == ()
    assert not (tmp_path / "all").exists()


def test_a_follower_that_was_killed_is_said_to_have_been(run_path: Path, tmp_path: Path) -> None:
    start_follower(run_path, "long", command_of("sleep", "600", tmp_path=tmp_path))
    (one,) = followers_of(run_path)
    os.killpg(one.group, signal.SIGKILL)
    (line,) = finish_followers(run_path, PATIENCE_S)
    assert "it was ended from outside" in line


def test_a_follower_is_started_once_a_name(run_path: Path) -> None:
    start_follower(run_path, "words", ["--version"])
    first = followers_of(run_path)
    start_follower(run_path, "words", ["--version"])
    assert followers_of(run_path) == first


def test_a_follower_is_no_child_and_stands_in_a_session_of_its_own(run_path: Path, tmp_path: Path) -> None:
    start_follower(run_path, "long", command_of("sleep", "600", tmp_path=tmp_path))
    (one,) = followers_of(run_path)
    assert one.pid not in {child.pid for child in psutil.Process().children(recursive=True)}
    assert (os.getpgid(one.pid), os.getsid(one.pid)) == (one.group, one.group)
    assert os.getpgid(0) != one.group


def test_a_follower_is_nice_and_is_given_the_environment_but_what_makes_it_record(
    run_path: Path, tmp_path: Path
) -> None:
    given = {
        "PATH": os.environ["PATH"],
        "AWS_PROFILE": "lab",
        "OTEL_EXPORTER_OTLP_HEADERS": "key=1",
        "FLIGHTLOG_RUN": "/no/such/run",
        "FLIGHTLOG_TELEMETRY": "1",
        "TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    wanted = tmp_path / "said"
    script = f"nice >{wanted}; env >>{wanted}"
    start_follower(run_path, "words", command_of("sh", "-c", script, tmp_path=tmp_path), environ=given)
    assert finish_followers(run_path, PATIENCE_S) == ()
    niceness, *lines = wanted.read_text().splitlines()
    assert int(niceness) >= min(10 + os.nice(0), 19)
    theirs = dict(line.split("=", 1) for line in lines if "=" in line)
    assert theirs["AWS_PROFILE"] == "lab"
    assert theirs["OTEL_EXPORTER_OTLP_HEADERS"] == "key=1"
    assert theirs["FLIGHTLOG_TELEMETRY"] == "0"
    assert {"FLIGHTLOG_RUN", "TRACEPARENT"}.isdisjoint(theirs)


def test_what_a_follower_says_is_kept_up_to_a_limit_and_never_stops_it(
    run_path: Path, tmp_path: Path
) -> None:
    script = "head -c 1000000 /dev/zero | tr '\\0' x >&2; touch " + str(tmp_path / "went-on")
    start_follower(run_path, "loud", command_of("sh", "-c", script, tmp_path=tmp_path))
    assert finish_followers(run_path, PATIENCE_S) == ()
    assert (run_path / ".followers/loud.log").stat().st_size == RecordLimits.max_log_bytes
    assert (tmp_path / "went-on").exists()


def test_a_module_of_the_users_is_not_taken_for_one_of_ours(
    run_path: Path, tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit('the wrong typer')")
    monkeypatch.chdir(tmp_path)
    start_follower(run_path, "words", ["schema", "--help"])
    assert finish_followers(run_path, PATIENCE_S) == ()


@pytest.mark.parametrize("broken", ["shell", "interpreter", "frozen", "embedded", "folder"])
def test_a_follower_that_cannot_start_is_a_warning_and_a_note(
    broken: str, tmp_path: Path, monkeypatch, caplog
) -> None:
    path = tmp_path / "run"
    if broken == "shell":
        monkeypatch.setattr(followers, "_SHELL", "/no/such/shell")
    elif broken == "interpreter":
        monkeypatch.setattr(sys, "executable", "")
    elif broken == "frozen":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    elif broken == "embedded":
        monkeypatch.setattr(sys, "executable", "/opt/solver/bin/solver")
    else:
        path.write_text("no folder")
    told: list[tuple[str, str]] = []
    with caplog.at_level(logging.WARNING):
        start_follower(path, "sync", ["sync", "RUN"], trouble=lambda kind, text: told.append((kind, text)))
        start_follower(path, "sync", ["sync", "RUN"])
    ((kind, text),) = told
    assert kind == "follower sync"
    assert text.startswith("`flightlog sync RUN` could not be started beside the run: ")
    assert [record.getMessage() for record in caplog.records] == [text]
    assert finish_followers(path, PATIENCE_S) == ()


def test_a_run_that_asks_for_a_follower_has_one_and_waits_for_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(
        followers,
        "asked_followers",
        lambda path, settings: {"words": ["list", "--runs-dir", str(path.parent)]},
    )
    monkeypatch.setenv("FLIGHTLOG_FOLLOWERS_WAIT", str(PATIENCE_S))
    with flightlog.record("demo", runs_dir=tmp_path, sample_interval_s=None) as run:
        (one,) = followers_of(run.path)
    assert one.finish_by == f"flightlog list --runs-dir {tmp_path}"
    assert (run.path / ".followers/words.exit").read_text() == "0\n"
    assert (Run(run.path).info.status, verify_files(run.path)) == ("completed", [])


def test_a_run_that_is_interrupted_waits_for_no_follower(tmp_path: Path, monkeypatch) -> None:
    asked = {"long": command_of("sleep", "600", tmp_path=tmp_path)}
    monkeypatch.setattr(followers, "asked_followers", lambda path, settings: asked)
    monkeypatch.setenv("FLIGHTLOG_FOLLOWERS_WAIT", "600")
    recording = flightlog.record("demo", runs_dir=tmp_path, sample_interval_s=None)
    run = recording.__enter__()
    (one,) = followers_of(run.path)
    recording.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)  # with a wait, this test would time out
    os.killpg(one.group, signal.SIGKILL)
    assert Run(run.path).info.status == "interrupted"


def test_an_array_of_jobs_is_sent_by_the_element_that_ends_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(followers, "asked_followers", lambda path, settings: {"words": ["--version"]})
    job = JobStarted(job_id="14_0", array_job_id="14", array_index=0, array_size=1, scheduler="slurm")
    element = begin_element(
        job,
        Settings(followers_wait_s=PATIENCE_S),
        tmp_path,
        project="sweep",
        argv=["true"],
        tags={},
        interval_s=None,
        samplers=(),
    )
    path = element.run.path
    assert not (path / ".followers").exists()
    element.conclude("completed", None)
    assert (path / ".followers/words.exit").read_text() == "0\n"
    assert (Run(path).info.status, verify_files(path)) == ("completed", [])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a test adopt orphans")
@pytest.mark.parametrize("adopts", [0, 1])
def test_a_follower_does_not_count_as_the_runs_own_even_if_the_kernel_makes_it_its_child(
    adopts: int, tmp_path: Path
) -> None:
    """A program that is process 1 of a container adopts all orphans; here, one that asks to."""
    program = f"""
import ctypes, os, flightlog
from pathlib import Path
from flightlog.record.followers import followers_of, start_follower
assert ctypes.CDLL(None).prctl(36, {adopts}, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
with flightlog.record("demo", runs_dir={str(tmp_path)!r}, sample_interval_s=0.1) as run:
    script = "touch {tmp_path / "at-work"}; sleep 600"
    start_follower(run.path, "long", ["run", "--", "sh", "-c", script])
    (one,) = followers_of(run.path)
    (Path({str(tmp_path)!r}) / "group").write_text(str(one.group))
    parent = int(Path(f"/proc/{{one.pid}}/stat").read_text().rpartition(")")[2].split()[1])
    assert (parent == os.getpid()) == bool({adopts})
    while not Path({str(tmp_path / "at-work")!r}).exists():
        os.sched_yield()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "FLIGHTLOG_FOLLOWERS_WAIT": "0"},
        capture_output=True,
        text=True,
    )
    try:
        assert done.returncode == 0, done.stderr
        (path,) = tmp_path.glob("run-*")
        samples = [e for e in Run(path).events("resources") if getattr(e, "scope", "") == "worker"]
        at_work = (tmp_path / "at-work").stat().st_mtime  # what started it was a child for some milliseconds
        since = [one for one in samples if datetime.fromisoformat(one.timestamp).timestamp() > at_work]
        assert {sample.processes for sample in since} == {1}
        assert since[-1].final
    finally:
        os.killpg(int((tmp_path / "group").read_text()), signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a test adopt orphans")
def test_a_program_that_adopts_orphans_keeps_no_dead_follower_and_its_own_children(tmp_path: Path) -> None:
    program = f"""
import ctypes, os, subprocess, flightlog, psutil
from flightlog.record.followers import start_follower
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
own = subprocess.Popen(["true"])
for number in range(3):
    with flightlog.record("demo", runs_dir={str(tmp_path)!r}, sample_interval_s=None) as run:
        start_follower(run.path, "words", ["--version"])
assert [child.pid for child in psutil.Process().children()] == [own.pid]
assert own.wait() == 0
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "FLIGHTLOG_FOLLOWERS_WAIT": str(PATIENCE_S)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
