"""What a killed or hung program left open is as old as its process became, in every view of the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from flightlog.analyze.charts.report_with_charts import report_with_charts
from flightlog.analyze.report.report import report_on
from flightlog.store.run import Run

PROGRAM = """
import sys, time, flightlog
with flightlog.record("hung", runs_dir=sys.argv[1], sample_interval_s=None) as run:
    with flightlog.span("calibration.job", job_id="j"):
        for n in range(2):
            with flightlog.span("calibration.iteration", iteration=n):
                with flightlog.span("simulation.gather"):
                    time.sleep(0.01)
        with flightlog.span("calibration.iteration", iteration=2):
            with flightlog.span("simulation.gather"):
                print("open", flush=True)
                time.sleep(60)
"""
OPEN_S = 3.0


@pytest.fixture(params=["killed", "hung"])
def run(request: pytest.FixtureRequest, tmp_path: Path):
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == "open\n"
        time.sleep(OPEN_S)
        if request.param == "killed":
            os.kill(program.pid, signal.SIGKILL)
            program.wait()
        [path] = tmp_path.glob("run-*")
        yield Run(path)
    finally:
        program.kill()
        program.wait()
        program.stdout.close()


def test_every_view_says_how_long_it_had_been_open(run: Run) -> None:
    began = datetime.fromisoformat(
        run.sql(
            "SELECT min(started_at)::VARCHAR FROM spans WHERE open AND name = 'simulation.gather'"
        ).rows()[0][0]
    )
    beat = max(datetime.fromisoformat(one.heartbeat) for one in run.writers()).replace(tzinfo=None)
    age_s = (beat - began).total_seconds()
    assert age_s > OPEN_S / 2
    spans = dict(run.sql("SELECT name, duration_s FROM spans WHERE open").rows())
    report = report_on(Run(run.path))
    [loop] = report.calibration
    assert report.details is not None
    tree = {tuple(node.path): node for node in report.details.span_tree.nodes}
    drawn = report_with_charts(Run(run.path)).drawn.timeline
    assert drawn is not None
    assert drawn.bars is not None
    rows = [drawn.bars, *(one for one in (drawn.nested, drawn.outside) if one is not None)]
    at_least = [
        spans["simulation.gather"],
        loop.listed[-1].duration_s,
        loop.listed[-1].gather_s,
        tree["calibration.job", "calibration.iteration", "simulation.gather"].wall_s,
        *(one.elapsed_s for one in report.in_flight),
        *(
            length_s
            for row in rows
            for length_s, state in zip(row.length_s, row.state, strict=True)
            if state == "running"
        ),
    ]
    assert min(at_least) >= age_s - 0.001
    assert max(at_least) < age_s + 10  # a run that goes on gets older between two readings
