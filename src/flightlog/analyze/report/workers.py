"""Workers and batch jobs: how many, how long they were up, how they ended, and how much of it was used."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.analyze.limits import ReportLimits
from flightlog.analyze.report.metrics import total_sql
from flightlog.analyze.tallies import copied
from flightlog.core.stats import Distribution, distribution
from flightlog.core.time import seconds
from flightlog.events import JobAccounted, JobStarted
from flightlog.store.tables.intervals import most_at_once

if TYPE_CHECKING:
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables


class Worker(Struct, frozen=True, kw_only=True):
    """One worker."""

    host: str | None
    tasks: int
    """Attempts it executed, the one in flight included."""
    busy_s: float
    uptime_s: float
    utilization: float | None
    lost: str | None
    """Why it was lost, where it was."""


class WorkerSummary(Struct, frozen=True, kw_only=True):
    """All workers.

    A worker is up from `worker_ready` (or `worker_launched`) to `worker_lost` or `worker_removed`, else to
    the end of the run. One that only task events name is up from its first start to its last end.
    `utilization` is the time workers were held by attempts, failed ones included, over their time up: 1 at
    most. `efficiency` is the execution time of completed tasks over the workers' time up; workers that
    execute several tasks concurrently may pass 1. Both are null where no worker is known.
    """

    count: int
    peak: int
    """Most workers up at once."""
    peak_busy: int
    """Most workers busy at once."""
    lost: int
    uptime_s: float
    busy_s: float
    utilization: float | None
    efficiency: float | None
    by_worker: dict[str, Worker]


_BUSY = """
CREATE OR REPLACE TEMP TABLE busy AS
WITH held AS (
    SELECT lane, greatest(attempt_intervals.began, worker_lives.since) AS since,
        least(attempt_intervals.stopped, worker_lives.until) AS until
    FROM attempt_intervals JOIN worker_lives USING (worker)
    WHERE attempt_intervals.began IS NOT NULL AND attempt_intervals.stopped IS NOT NULL
)
SELECT lane, since, until, {reached} OVER (
    PARTITION BY lane ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
) AS reached
FROM held WHERE since < until
"""
"""When the attempts on each worker ran while it was up, and when earlier ones had all ended."""
_PIECES = (
    "SELECT lane, greatest(since, reached) AS since, until FROM busy WHERE coalesce(until > reached, true)"
)
"""What they cover, in pieces that do not overlap."""

_WORKERS = f"""
SELECT worker, host, executed AS tasks, lost, up, coalesce(busy, 0)::BIGINT AS busy FROM worker_facts
LEFT JOIN (
    SELECT worker, sum(pieces.until - pieces.since) AS busy
    FROM ({_PIECES}) AS pieces JOIN worker_lives USING (lane) GROUP BY worker
) USING (worker) ORDER BY worker
"""  # noqa: S608 - constants


def worker_summary(tables: RunTables) -> WorkerSummary:
    """All workers, from `worker_facts`, `worker_lives` and `attempt_intervals`."""
    tables.execute(_BUSY.format(reached="lag(until)"))  # much cheaper, and right for one attempt at a time
    if tables.scalar("SELECT count(*) FROM busy WHERE since < reached"):
        tables.execute(_BUSY.format(reached="max(until)"))
    rows = tables.records(_WORKERS)
    up, busy = sum(row["up"] for row in rows), sum(row["busy"] for row in rows)
    done_s = tables.scalar(
        f"SELECT {total_sql('duration_s')} FROM attempt_intervals "  # noqa: S608 - constants
        "WHERE state = 'completed' AND worker IS NOT NULL"
    )
    peaks = [
        most_at_once(tables, f"SELECT since, until FROM {found}")  # noqa: S608 - one of two
        for found in ("worker_lives", f"({_PIECES})")
    ]
    tables.execute("DROP TABLE busy")  # as large as all attempts
    return WorkerSummary(
        count=len(rows),
        peak=peaks[0][0] if peaks[0] is not None else 0,
        peak_busy=peaks[1][0] if peaks[1] is not None else 0,
        lost=sum(row["lost"] is not None for row in rows),
        uptime_s=seconds(up),
        busy_s=seconds(busy),
        utilization=busy / up if up else None,
        efficiency=(done_s or 0.0) / seconds(up) if up else None,
        by_worker={
            row["worker"]: copied(
                Worker,
                row,
                busy_s=seconds(row["busy"]),
                uptime_s=seconds(row["up"]),
                utilization=row["busy"] / row["up"] if row["up"] else None,
            )
            for row in rows[: ReportLimits.max_listed_workers]
        },
    )


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
    """Arrays and jobs without accounting, the first `LISTED_JOBS`; of an array its number alone."""
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
    rows = sorted(accounted, key=_order)[: ReportLimits.max_listed_jobs]
    return JobSummary(
        scheduler=next(job.scheduler for job in (*accounted, *started.values())),
        count=len(started.keys() | known),
        states=dict(sorted(Counter(job.state for job in accounted).items())),
        queue_s=distribution(job.queue_s for job in accounted if job.queue_s is not None),
        unaccounted=list(dict.fromkeys(unknown))[: ReportLimits.max_listed_jobs],
        jobs=[copied(JobRow, job) for job in rows],
    )


def _order(job: JobAccounted) -> tuple[bool, float, str, int]:
    used = (job.max_rss_bytes or 0) / job.memory_bytes if job.memory_bytes else 0.0
    return job.state == "COMPLETED", -used, job.job_id, job.attempt
