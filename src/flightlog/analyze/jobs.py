"""The batch jobs a run was executed in: how they ended, how long they waited, what they used of what they
were given.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.analyze.distribution import Distribution, distribution
from flightlog.events import JobAccounted, JobStarted

if TYPE_CHECKING:
    from flightlog.store.run import Run

LISTED = 100
"""How many jobs are listed; counts are of all."""


class JobRow(Struct, frozen=True, kw_only=True):
    """One attempt of a job, as accounting has it."""

    job_id: str
    attempt: int
    state: str
    reason: str | None
    queue_s: float | None
    elapsed_s: float | None
    walltime_s: float | None
    cpu_s: float | None
    cpus: float | None
    max_rss_bytes: int | None
    memory_bytes: int | None


class JobSummary(Struct, frozen=True, kw_only=True):
    """All jobs of a run. One without accounting is `unaccounted`: how it ended, the batch system has not been
    asked.
    """

    scheduler: str
    count: int
    states: dict[str, int]
    """Attempts by how they ended, of jobs whose accounting is there."""
    queue_s: Distribution
    """From submission to start, of those."""
    unaccounted: list[str]
    """Arrays and jobs without accounting, the first `LISTED`; of an array its number alone."""
    jobs: list[JobRow]
    """Those that did not complete first, then those that used most of their memory."""


def job_summary(run: Run) -> JobSummary | None:
    """The jobs of a run; None where none is known."""
    started: dict[str, JobStarted] = {}
    accounted: list[JobAccounted] = []
    for event in run.events("jobs"):
        if isinstance(event, JobStarted):
            started.setdefault(event.raw_job_id or event.job_id, event)
        elif isinstance(event, JobAccounted):
            accounted.append(event)
    if not started and not accounted:
        return None
    known = {job.raw_job_id or job.job_id for job in accounted}
    unknown = [
        job.array_job_id or job.job_id for raw_id, job in sorted(started.items()) if raw_id not in known
    ]
    rows = sorted(accounted, key=_order)[:LISTED]
    return JobSummary(
        scheduler=next(job.scheduler for job in (*accounted, *started.values())),
        count=len(started.keys() | known),
        states=dict(sorted(Counter(job.state for job in accounted).items())),
        queue_s=distribution(job.queue_s for job in accounted if job.queue_s is not None),
        unaccounted=list(dict.fromkeys(unknown))[:LISTED],
        jobs=[JobRow(**{name: getattr(job, name) for name in JobRow.__struct_fields__}) for job in rows],
    )


def _order(job: JobAccounted) -> tuple[bool, float, str, int]:
    used = (job.max_rss_bytes or 0) / job.memory_bytes if job.memory_bytes else 0.0
    return job.state == "COMPLETED", -used, job.job_id, job.attempt
