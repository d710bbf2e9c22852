"""A session killed with its workers up still says what it cost until then."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from flightlog.analyze.report.report import report_on
from flightlog.events import CostEstimate
from flightlog.store.run import Run

PROGRAM = """
import os, signal, sys, time
from flightlog import Session


def work():
    time.sleep(600)


if __name__ == "__main__":
    session = Session.from_yaml("flightlog.yaml", sample_interval_s=None).start()
    future = session.client.submit(work)
    while not future.running():
        time.sleep(0.01)
    started = time.time()
    while time.time() < started + 1.2:  # long enough for a cost that no estimate has told of
        time.sleep(0.01)
    session.telemetry.event("last words")
    print(session.path, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
MANIFEST = """
version: 1
project: {name: trial}
targets:
  local: {provider: local, max_workers: 1, processes: false, cost: {currency: EUR, per_worker_hour: 3600}}
"""


def test_a_killed_session_cost_at_least_what_its_workers_had_lived(tmp_path: Path) -> None:
    (tmp_path / "flightlog.yaml").write_text(MANIFEST)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    run = Run(Path(done.stdout.strip()))
    told = max(event.amount or 0.0 for event in run.events("cost") if isinstance(event, CostEstimate))
    report = report_on(run)
    assert report.cost.at_least
    assert report.cost.total is not None
    assert report.cost.total > told + 1.0
    assert report.cost_split is not None
    assert report.cost_split.unfinished > 1.0
    assert report.cost_split.useful == 0.0
