"""Records a small real job, twice, and shows the report of the second run: a sweep of stochastic SIR
epidemics.

    flightlog demo
    flightlog demo --scenarios 400 --runs-dir /tmp/runs

It takes about ten seconds and needs nothing but Flightlog. A manifest, which it leaves in the folder
`sir-demo` beside the runs, says that the tasks run on local processes and are retried. Each scenario is a
task that stages its parameters (for some, the file system is unavailable at the first attempt), simulates the
epidemic event by event and compares it with the deterministic solution; one fails on purpose. The second run
has a quarter more scenarios, and takes the results of the first one from the cache. The results are the same
each time; they are in the run's folder as CSV, under `artifacts`.
"""

from __future__ import annotations

import shlex

import typer

from flightlog.cli.options import RunsDir, option, writable_runs_folder
from flightlog.cli.output import note
from flightlog.core.errors import UsageError


def demo(
    runs_dir: RunsDir = None,
    scenarios: int = option("N", "Number of simulations in the first run.", min=1, default=200),
) -> None:
    """Record a small example sweep and show its report.

    Example: flightlog demo --scenarios 400
    """
    from flightlog.cli.main import main
    from flightlog.core.settings import read_settings
    from flightlog.demo.sweep import demo_folder, sweep_twice

    if not read_settings().enabled:
        raise UsageError("recording is switched off by FLIGHTLOG_TELEMETRY, so the demo has nothing to show")
    folder = writable_runs_folder(runs_dir)
    first, run = sweep_twice(folder, scenarios)
    if code := main(["report", str(run.path)]):
        raise typer.Exit(code)
    where = f" --runs-dir {shlex.quote(str(runs_dir))}" if runs_dir else ""
    note(f"this is the second run; it took results of {first.run_id} from the cache")
    note(f"both runs used the manifest {demo_folder(folder) / 'flightlog.yaml'}")
    note(f"the run is plain JSON lines in {run.path}; as data: flightlog report{where} --format json")
    note("record your own: flightlog run -- COMMAND, or `with flightlog.record('name') as run:` in Python")
