"""The cost section as a person reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.runs import at, make_run

from flightlog.analyze.report.report import report_on
from flightlog.cli.main import main
from flightlog.events import (
    ArtifactRecorded,
    CacheLookup,
    CostEstimate,
    CostRates,
    Event,
    TaskCompleted,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    WorkerLaunched,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.show.phrases import money_text
from flightlog.show.report import report_text
from flightlog.store.run import Run


def section(path: Path) -> str:
    text = report_text(report_on(Run(path)))
    return text[text.index("Estimated Cost:") :].partition("\n\n")[0]


def a_run(rates: CostRates, *, ends: bool = True) -> list[Event]:
    who = {"worker": "w1", "host": "n1", "pid": 1}
    ids = {"task": "sim", "worker": "w1"}
    found: list[Event] = [
        rates,
        WorkerLaunched(timestamp=at(0), **who),
        WorkerReady(timestamp=at(1), **who),
        TaskStarted(timestamp=at(1), task_id="t1", queue_s=None, **ids),
        TaskCompleted(timestamp=at(6), task_id="t1", args={}, duration_s=5.0, **ids),
        TaskStarted(timestamp=at(6), task_id="t2", queue_s=None, **ids),
        TaskRetried(timestamp=at(7), task="sim", task_id="t2", reason="OSError"),
        TaskStarted(timestamp=at(7), task_id="t2", attempt=2, queue_s=None, **ids),
        TaskFailed(
            timestamp=at(8),
            task_id="t2",
            attempt=2,
            args={},
            duration_s=1.0,
            error_type="OSError",
            error_message="no",
            **ids,
        ),
    ]
    return found + ([WorkerRemoved(timestamp=at(10), reason=None, **who)] if ends else [])


def rates(**more) -> CostRates:
    return CostRates(timestamp=at(0), **{"currency": "USD", "source": "the manifest", **more})


def test_the_sum_stands_first_then_what_it_was_paid_for(tmp_path: Path) -> None:
    more = [
        ArtifactRecorded(timestamp=at(1), name="o", uri="/o", kind=None, size_bytes=2 * 10**9, sha256=None),
        CacheLookup(timestamp=at(3), task="sim", result="hit", key="k", saved_s=25.0),
    ]
    named = rates(provider="slurm", per_worker_hour=360.0, per_gb_month=0.02, per_kwh=0.3)
    assert section(make_run(tmp_path, [*a_run(named), *more], provider="slurm")) == (
        """\
Estimated Cost: $1.04 (slurm provider, without energy)
  Paid for         Share   Cost
  Useful work        50%  $0.50  ████████████
  Idle               20%  $0.20  █████
  Retried            10%  $0.10  ██
  Failed work        10%  $0.10  ██
  Worker start-up    10%  $0.10  ██
  Workers:         $1.00, 10.0 worker-seconds
  Energy:          unknown: no energy counter could be read
  Storage:         $0.04, 2 GB-month
  Saved by cache:  $2.50, not included in the total"""
    )


def test_an_old_price_is_called_old(tmp_path: Path) -> None:
    named = rates(instance="aws/m6i.xlarge", prices_of="2025-01-31", per_worker_hour=0.192)
    lines = section(make_run(tmp_path, a_run(named), provider="slurm")).splitlines()
    assert lines[0] == "Estimated Cost: $0.00053 (aws/m6i.xlarge at its price of 2025-01-31)"
    assert lines[-1] == "  Price:  of 2025-01-31, more than a year before the run: check it"


def test_a_killed_run_cost_at_least_so_much(tmp_path: Path) -> None:
    path = make_run(
        tmp_path,
        a_run(rates(per_worker_hour=360.0), ends=False),
        status="crashed",
        end_time=None,
        duration_s=None,
        heartbeat=at(9),
    )
    assert section(path).startswith("Estimated Cost: at least $0.90\n")


@pytest.mark.parametrize(
    ("events", "provider", "line"),
    [
        ([], "local", "$0.00 (local provider)"),
        ([rates(per_worker_hour=0.0)], "local", "$0.00 (local provider)"),
        (
            [CostEstimate(item="x", amount=None, currency="USD")],
            "ray",
            "unknown (no rate was known)\n  x:  unknown: no rate was known",
        ),
    ],
)
def test_no_rate_is_nothing_on_this_machine_and_unknown_where_an_item_has_none(
    tmp_path: Path, events: list[Event], provider: str, line: str
) -> None:
    who = {"worker": "w1", "host": "n1", "pid": 1}
    crew = [WorkerLaunched(timestamp=at(0), **who), WorkerRemoved(timestamp=at(5), reason=None, **who)]
    assert section(make_run(tmp_path, [*events, *crew], provider=provider)) == f"Estimated Cost: {line}"


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        (1234.5, "USD", "$1,234.50"),
        (0.0, "EUR", "€0.00"),
        (0.00042, "USD", "$0.00042"),
        (3e-9, "USD", "$3e-09"),
        (5.7e304, "USD", "$5.7e+304"),
        (-2.5, "GBP", "-£2.50"),
        (1200.4, "JPY", "¥1,200"),
        (0.4, "JPY", "¥0.40"),
        (4.0, "CHF", "4.00 CHF"),
        (None, "USD", "unknown"),
        (float("inf"), "USD", "unknown"),
        (0.0099, "USD", "$0.0099"),
    ],
)
def test_money_reads_as_its_currency_is_written(amount: float | None, currency: str, text: str) -> None:
    assert money_text(amount, currency) == text


def test_the_command_prices_a_run_after_the_fact(tmp_path: Path, capsys, monkeypatch) -> None:
    path = make_run(tmp_path / "runs", a_run(rates(per_worker_hour=1.0)), provider="slurm")
    before = {file: file.read_bytes() for file in path.iterdir()}
    file = tmp_path / "rates.yaml"
    file.write_text("currency: EUR\nper_worker_hour: 720\n")
    assert main(["report", str(path), "--rates", str(file)]) == 0
    assert "Estimated Cost: €2.00 (slurm provider)\n" in capsys.readouterr().out
    assert {file: file.read_bytes() for file in path.iterdir()} == before
    file.write_text("per_worker_hour: cheap\n")
    assert main(["report", str(path), "--rates", str(file)]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"flightlog: {file}:1: per_worker_hour: 'cheap' is no number\n")
    assert main(["report", "--compare", "a", "b", "--rates", str(file)]) == 2
    assert (
        capsys.readouterr().err == "flightlog: --rates goes with the report of one run: leave out --compare\n"
    )
