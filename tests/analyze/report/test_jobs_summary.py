"""The batch jobs of a run: how many, how they ended, and which of them nobody has asked about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builders.runs import at, make_run

from flightlog.analyze.report.report import report_on
from flightlog.analyze.report.workers import JobRow, JobSummary, job_summary
from flightlog.core.stats import distribution
from flightlog.events import Event, JobAccounted, JobStarted
from flightlog.show.report import report_text
from flightlog.store.run import Run


def element(index: int) -> JobStarted:
    return JobStarted(
        job_id=f"6_{index}", raw_job_id=str(10 + index), array_job_id="6", array_index=index, array_size=3
    )


def account(index: int, state: str, **facts: Any) -> JobAccounted:
    ids = {"job_id": f"6_{index}", "raw_job_id": str(10 + index)}
    return JobAccounted(timestamp=at(5), state=state, attempt=1, memory_bytes=100 << 20, **{**ids, **facts})


def summary(tmp_path: Path, *events: Event) -> JobSummary | None:
    return job_summary(Run(make_run(tmp_path, events)))


def section(tmp_path: Path, *events: Event, **info: Any) -> list[str]:
    lines = report_text(report_on(Run(make_run(tmp_path, events, **info)))).splitlines()
    at_line = next((i for i, line in enumerate(lines) if line.startswith("Jobs:")), None)
    return [] if at_line is None else lines[at_line : lines.index("", at_line)]


def test_a_run_outside_any_job_has_none(tmp_path: Path):
    assert summary(tmp_path) is None
    assert section(tmp_path / "other") == []


def test_jobs_that_did_not_complete_come_first_then_those_that_used_most_memory(tmp_path: Path):
    found = summary(
        tmp_path,
        account(0, "COMPLETED", max_rss_bytes=10 << 20, queue_s=1.0),
        account(1, "COMPLETED", max_rss_bytes=90 << 20, queue_s=3.0),
        account(2, "TIMEOUT", max_rss_bytes=1 << 20, reason="its time"),
    )
    assert found is not None
    assert [(row.job_id, row.state) for row in found.jobs] == [
        ("6_2", "TIMEOUT"),
        ("6_1", "COMPLETED"),
        ("6_0", "COMPLETED"),
    ]
    assert (found.count, found.states, found.unaccounted) == (3, {"COMPLETED": 2, "TIMEOUT": 1}, [])
    assert found.queue_s == distribution([1.0, 3.0])
    assert found.jobs[0] == JobRow(
        job_id="6_2",
        attempt=1,
        state="TIMEOUT",
        reason="its time",
        queue_s=None,
        elapsed_s=None,
        walltime_s=None,
        cpu_s=None,
        cpus=None,
        max_rss_bytes=1 << 20,
        memory_bytes=100 << 20,
    )


def test_an_array_without_accounting_is_named_once(tmp_path: Path):
    found = summary(tmp_path, element(0), element(1), element(2), account(1, "COMPLETED"))
    assert found is not None
    assert (found.count, found.unaccounted) == (3, ["6"])


def test_the_report_says_how_jobs_ended_and_what_they_used(tmp_path: Path):
    used = {
        "queue_s": 60.0,
        "elapsed_s": 9.0,
        "walltime_s": 600.0,
        "cpu_s": 8.0,
        "cpus": 2,
        "max_rss_bytes": 50 << 20,
    }
    assert section(tmp_path, account(0, "COMPLETED", **used), account(1, "NODE_FAIL")) == [
        "Jobs: 2 Slurm jobs: 1 COMPLETED, 1 NODE_FAIL; 1m 00s in the queue at most",
        "  Job  State      Queued  Elapsed    Limit  CPU time  CPUs  Peak RSS     Memory",
        "  6_1  NODE_FAIL                                                      100.0 MiB",
        "  6_0  COMPLETED  1m 00s     9.0s  10m 00s      8.0s     2  50.0 MiB  100.0 MiB",
    ]


def test_the_report_says_how_to_get_what_slurm_knows(tmp_path: Path):
    assert section(tmp_path, element(0)) == [
        "Jobs: 1 Slurm job",
        "  - Slurm's accounting is not imported yet: flightlog adopt --slurm 6",
    ]
