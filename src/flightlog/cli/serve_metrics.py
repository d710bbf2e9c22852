"""Serves the figures of runs for Prometheus to scrape, at `/metrics`.

    flightlog serve-metrics
    flightlog serve-metrics --port 9500 --runs-dir /data/runs
    flightlog serve-metrics --grafana dashboards     # writes dashboards for Grafana, and serves nothing

Runs that are running are served, and those that ended within the last hour; 20 at the most, those that run
first. It needs the extra `prometheus`. [Prometheus](../prometheus.md) lists the metrics, and says how to have
them scraped.

Runs at an address, such as `--runs-dir s3://bucket/runs`, are read through local copies; the remote is asked
every ten seconds at most, and `flightlog_remote_problems` is not 0 while it does not answer.

The page is served to this machine alone. `--host 0.0.0.0` serves it to everyone who can reach the machine:
the names of projects, tasks, hosts and classes of errors are on it. It is answered under `localhost`, IP
addresses and the machine's host name; allow other names that scrapers use with `--allow-host`, such as the
full domain name. Any other name is refused, so that no web page can read the metrics through your browser.
"""

from __future__ import annotations

import re
from pathlib import Path

from flightlog.cli.options import RunsDir, option, readable_runs_folder
from flightlog.cli.output import note, put, write_file
from flightlog.cli.progress import end_progress
from flightlog.core.errors import UsageError

DOING = "reading the runs"


def serve_metrics(
    port: int = option("N", "Port to listen on; 0 for any free port.", default=9464),
    host: str = option("H", "Address to listen on.", default="127.0.0.1"),
    allow_host: list[str] | None = option(
        "NAME", "Also answer requests for this host name. May be given several times."
    ),
    recent: str = option("AGE", "How long to serve runs that have ended, such as 1h or 2d.", default="1h"),
    max_runs: int = option("N", "Maximum number of runs served.", min=1, default=20),
    grafana: Path | None = option(
        "FOLDER", "Write dashboards for Grafana into this folder, and exit.", "--grafana"
    ),
    runs_dir: RunsDir = None,
) -> None:
    """Serve metrics of runs for Prometheus.

    Example: flightlog serve-metrics --port 9464
    """
    if grafana is not None:
        _write_dashboards(grafana)
        return
    from flightlog.core.units import parse_age
    from flightlog.export.base import extras_of
    from flightlog.store.runs_folder import RunsPlace, place

    for name in allow_host or ():
        if not re.fullmatch(r"[\w.-]+", name):
            raise UsageError(f"--allow-host {name!r} is not a host name: give it as in node-7.example.org")
    recent_s = parse_age(recent)
    folder = readable_runs_folder(runs_dir)
    with extras_of("prometheus"):
        from flightlog.export.prometheus.server import MetricsPage, MetricsServer, RunsCollector
    page = MetricsPage(RunsCollector(RunsPlace(runs_dir), recent_s=recent_s, max_runs=max_runs))
    with MetricsServer(host, port, page, names=allow_host or ()) as server:
        page.answer()  # the first look reads the runs whole, which may take longer than a scrape waits
        note(f"serving metrics of the runs in {place(folder)} at {server.address}; Ctrl-C ends it")
        end_progress()
        server.serve_forever(poll_interval=0.2)


def _write_dashboards(folder: Path) -> None:
    """One for Flightlog's names of metrics, and one for those of `flightlog.compat.rhapsody`."""
    from flightlog.export.prometheus import DASHBOARDS

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write into {folder}: {error.strerror or error}") from error
    for dashboard in sorted(DASHBOARDS.glob("*.json")):
        write_file(folder / dashboard.name, dashboard.read_text("utf-8"))
        put(f"{folder / dashboard.name}\n")
