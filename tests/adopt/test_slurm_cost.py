"""What adopted jobs cost: their time by what they had, at rates that are given afterwards."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from flightlog.adopt.slurm import adopt_slurm_file
from flightlog.analyze.report.report import report_on
from flightlog.events import CostRates, JobAccounted
from flightlog.store.run import Run

ACCOUNTING = Path(__file__).with_name("slurm-22.05.json")


def test_adopted_jobs_are_paid_for_the_cpus_and_the_time_they_had(tmp_path: Path) -> None:
    [merged] = adopt_slurm_file(ACCOUNTING, tmp_path)
    run = Run(tmp_path / merged.run_id)
    jobs = [job for job in run.events("jobs") if isinstance(job, JobAccounted)]
    assert len(jobs) > 3
    report = report_on(run, rates=CostRates(currency="EUR", source="rates.yaml", per_cpu_hour=3600.0))
    expected = sum(Fraction(job.elapsed_s or 0) * Fraction(job.cpus or 0) for job in jobs if job.started)
    assert expected > 0
    assert report.cost.total == float(expected)
    split = report.cost_split
    assert split is not None
    assert split.useful + split.retried + split.failed + split.idle == split.total
    assert split.failed > 0
