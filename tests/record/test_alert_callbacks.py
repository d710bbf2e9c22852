"""A program is told of its alerts: found by a process beside it, by functions on a thread of its own."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import flightlog
from flightlog.core.alerts import Alert
from flightlog.record.followers import followers_of

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIGHTLOG_FOLLOWERS_WAIT", str(PATIENCE_S))


def eventually(check: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_functions_are_told_while_the_run_runs_and_at_its_end(tmp_path: Path, caplog) -> None:
    told: list[tuple[str, str, bool]] = []

    def tell(alert: Alert) -> None:
        told.append((alert.rule, alert.message, threading.current_thread() is threading.main_thread()))

    with flightlog.record("train", runs_dir=tmp_path, sample_interval_s=None) as run:
        run.alert("loss is NaN", tell)
        run.alert("loss > 100", tell, every="1s")
        run.alert("run failed", tell)
        run.alert("finished")
        run.metric("loss", 1.0)
        run.metric("loss", float("nan"), step=4)
        eventually(lambda: told)
        assert len(followers_of(run.path)) == 1  # however many rules there are
        run.metric("loss", 101.0, step=5)
        eventually(lambda: len(told) == 2)
    assert told == [
        ("loss is NaN", "loss is NaN at step 4", False),
        ("loss > 100", "loss > 100: 101 at step 5", False),
    ]
    [logged] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert logged.getMessage().startswith("alert: the run completed after ")
    assert not any(thread.name == "flightlog-alerts" for thread in threading.enumerate())


def test_what_makes_no_sense_and_functions_that_raise_are_warnings(tmp_path: Path, caplog) -> None:
    def fail(_: Alert) -> None:
        raise ValueError("no")

    with flightlog.record("train", runs_dir=tmp_path, sample_interval_s=None) as run:
        run.alert("fialed", print)
        run.alert("finished", fail)
        run.alert("finished", print, every="soon")
        run.alert(None, print)  # type: ignore[arg-type]
    said = [record.getMessage() for record in caplog.records]
    assert sum("an alert could not be taken" in one for one in said) >= 1
    assert any("did you mean 'failed'?" in one for one in said)
    assert flightlog.open_run(run.path).status == "completed"


def test_a_run_that_is_not_recorded_has_no_alerts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLIGHTLOG_TELEMETRY", "0")
    with flightlog.record("train", runs_dir=tmp_path) as run:
        run.alert("failed", print)
    assert list(tmp_path.iterdir()) == []


PROGRAM = """
import sys, flightlog
with flightlog.record("train", runs_dir=sys.argv[1]) as run:
    run.alert("finished", lambda alert: print(alert.status))
print([name for name in ("duckdb", "flightlog.analyze", "apprise") if name in sys.modules])
"""


def test_the_program_itself_loads_no_database(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("completed\n[]\n", "")
