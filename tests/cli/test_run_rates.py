"""`flightlog run --rates`: a command that knows what its time costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from flightlog.analyze.report.report import report_on
from flightlog.events import CostEstimate, CostRates
from flightlog.store.completing import open_run


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flightlog.cli.main", "run", *options, "--", "echo", "done"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_command_is_paid_for_from_its_start_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "rates.yaml").write_text("currency: EUR\nper_worker_hour: 3600\n")
    done = run(tmp_path, "--rates", "rates.yaml")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    found = open_run("latest", runs_dir=tmp_path / ".flightlog" / "runs")
    rates, first, last = found.events("cost")
    assert isinstance(rates, CostRates)
    assert isinstance(first, CostEstimate)
    assert isinstance(last, CostEstimate)
    assert (rates.source, first.amount, last.currency) == ("rates.yaml", 0.0, "EUR")
    report = report_on(found)
    assert report.cost_split is not None
    assert report.cost.total == report.cost_split.total == round(report.workers.uptime_s, 9)


def test_rates_that_make_no_sense_are_said_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "rates.yaml").write_text("per_worker_hours: 1\n")
    done = run(tmp_path, "--rates", "rates.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "flightlog: rates.yaml:1: per_worker_hours: 'per_worker_hours' is no key; did you mean "
        "'per_worker_hour'?\n"
    )
    assert not (tmp_path / ".flightlog").exists()
