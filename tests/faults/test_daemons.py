"""A run goes on in the daemon that its program becomes, and ends as the daemon does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flightlog.store.catalogue import list_runs
from flightlog.store.liveness import process_start
from flightlog.store.run import Run

PROGRAM = """
import os, pathlib, signal, sys, time
import flightlog

def in_pool(number):
    with flightlog.span("pooled"):
        time.sleep(0.3)

own_session, ending = sys.argv[1] == "own session", sys.argv[2]
with flightlog.record("x"):
    maker = os.getpid()
    if os.fork():
        signal.pause() if ending == "its maker is killed" else os._exit(0)
    if own_session:
        os.setsid()
    if ending == "its maker is killed":
        time.sleep(5)
        os.kill(maker, signal.SIGKILL)
    if ending == "a pool":
        import multiprocessing
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(in_pool, range(4))
    while os.getppid() == maker:
        time.sleep(0.01)
    with flightlog.span("first"):  # from its first line on, its files are kept fresh
        pass
    with flightlog.span("work"):
        pathlib.Path("pid").write_text(str(os.getpid()))
        while not pathlib.Path("go on").exists():
            time.sleep(0.01)
    if ending == "an error":
        raise ValueError("on purpose")
pathlib.Path("over").touch()
"""


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def the_run(folder: Path) -> Run:
    (entry,) = list_runs(folder)
    return Run(entry.path)


def start(folder: Path, session: str, ending: str) -> int:
    """Start the program; the process id of what it has become, once it works."""
    environ = {**os.environ, "FLIGHTLOG_RUNS_DIR": str(folder)}
    command = [sys.executable, "-c", PROGRAM, session, ending]
    with (folder / "errors").open("w") as errors:
        subprocess.run(command, cwd=folder, env=environ, stderr=errors, timeout=100)
    wait_for(lambda: (folder / "pid").exists() and (folder / "pid").read_text())
    return int((folder / "pid").read_text())


def test_a_run_is_running_while_its_daemon_is_and_completed_when_the_daemon_leaves_it(tmp_path):
    daemon = start(tmp_path, "own session", "normal")
    wait_for(lambda: the_run(tmp_path).status == "running")
    assert the_run(tmp_path).info.pid == daemon
    (tmp_path / "go on").touch()
    wait_for((tmp_path / "over").exists)
    run = the_run(tmp_path)
    assert (run.status, [span.name for span in run.events("spans")]) == ("completed", ["first", "work"])
    assert (tmp_path / "errors").read_text() == ""


def test_an_error_in_a_daemon_fails_its_run(tmp_path):
    start(tmp_path, "own session", "an error")
    (tmp_path / "go on").touch()
    wait_for(lambda: the_run(tmp_path).status == "failed")
    assert the_run(tmp_path).info.error == "ValueError: on purpose"


def test_a_daemon_that_is_killed_leaves_a_crashed_run(tmp_path):
    daemon = start(tmp_path, "own session", "normal")
    wait_for(lambda: the_run(tmp_path).info.pid == daemon)
    os.kill(daemon, signal.SIGKILL)
    wait_for(lambda: the_run(tmp_path).status == "crashed")


def test_a_daemon_that_is_terminated_leaves_an_interrupted_run_and_dies_of_the_signal(tmp_path):
    daemon = start(tmp_path, "own session", "normal")
    wait_for(lambda: the_run(tmp_path).info.pid == daemon)
    wait_for(lambda: _catches(daemon, signal.SIGTERM))
    os.kill(daemon, signal.SIGTERM)
    wait_for(lambda: process_start(daemon) is None)
    run = the_run(tmp_path)
    assert (run.status, run.info.signal) == ("interrupted", "SIGTERM")
    assert not (tmp_path / "over").exists()


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = int(next(line for line in lines if line.startswith("SigCgt")).split()[1], 16)
    return bool(caught >> (number - 1) & 1)


def test_workers_of_a_daemon_leave_its_run_to_it(tmp_path):
    daemon = start(tmp_path, "own session", "a pool")
    (tmp_path / "go on").touch()
    wait_for((tmp_path / "over").exists)
    run = the_run(tmp_path)
    assert (run.status, run.info.pid) == ("completed", daemon)
    assert sorted(span.name for span in run.events("spans")) == ["first", *["pooled"] * 4, "work"]


@pytest.mark.parametrize("session", ["own session", "same session"])
def test_a_child_that_outlives_a_killed_program_does_not_make_its_run_a_completed_one(tmp_path, session):
    start(tmp_path, session, "its maker is killed")
    (tmp_path / "go on").touch()
    wait_for((tmp_path / "over").exists)
    assert the_run(tmp_path).status == "crashed"
