"""Records a small real job and shows its report: a sweep of stochastic SIR epidemics over a few processes.

    flightlog demo
    flightlog demo --scenarios 100 --runs-dir /tmp/runs

It takes a few seconds and needs nothing but Flightlog. Each scenario is a task that looks up the deterministic solution
of its epidemic in a cache, simulates the epidemic event by event and compares the two. The results are the same
each time and stand as CSV in the run's folder, under `artifacts`.
"""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from flightlog.cli.options import RunsDir, writable_runs_folder
from flightlog.cli.output import note
from flightlog.errors import UsageError


def demo(
    runs_dir: RunsDir = None,
    scenarios: Annotated[int, typer.Option(metavar="N", min=1, help="How many epidemics to simulate.")] = 48,
) -> None:
    """Record a small simulation sweep and show its report.

    Example: flightlog demo --scenarios 100
    """
    from flightlog.cli.report import report
    from flightlog.demo.sweep import sweep
    from flightlog.settings import read_settings

    if not read_settings().enabled:
        raise UsageError("recording is switched off by FLIGHTLOG_TELEMETRY, so the demo has nothing to show")
    run = sweep(writable_runs_folder(runs_dir), scenarios)
    report(str(run.path))
    where = f" --runs-dir {shlex.quote(str(runs_dir))}" if runs_dir else ""
    note(f"the run is plain JSON lines in {run.path}; as data: flightlog report{where} --format json")
    note("record your own: flightlog run -- COMMAND, or `with flightlog.record('name') as run:` in Python")
