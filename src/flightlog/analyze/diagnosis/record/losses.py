"""Workers that went away and jobs that were ended, put together where they have one cause.

One dead host takes its workers with it, one job its tasks: what ended with them is laid to them, in the table
`mishaps`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from flightlog.analyze.diagnosis.record.mishaps import LOST_TYPES
from flightlog.events import JobAccounted, JobStarted, WorkerEvent, WorkerLost
from flightlog.store.liveness import unix_time

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run

MOMENT_S = 10.0
"""Workers of one host that go within so long went together."""
ENDED_BY_SCHEDULER = frozenset(
    {
        "TIMEOUT",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REQUEUED",
        "NODE_FAIL",
        "BOOT_FAIL",
        "DEADLINE",
        "CANCELLED",
        "REVOKED",
    }
)
"""States of a job that its program did not choose."""


class Lost(NamedTuple):
    """One worker's end."""

    event: WorkerLost
    at: float | None


class Incident(Struct, kw_only=True):
    """Workers and jobs that ended for one reason."""

    key: str
    losses: list[Lost] = []
    jobs: list[JobAccounted] = []
    host: str | None = None
    """Where a whole host went away with several workers; None otherwise."""

    @property
    def processes(self) -> int:
        """Lost worker processes: threads of one process are one."""
        return len({(lost.event.host, lost.event.pid or lost.event.worker) for lost in self.losses})


class Workers(Struct, kw_only=True):
    """The workers of a run, as far as a diagnosis needs them."""

    hosts: dict[str, str]
    """Host by worker."""
    incidents: list[Incident]
    jobs: dict[str, JobAccounted]
    """The last account of the job that a worker lived in, by worker."""
    task_jobs: dict[str, JobAccounted]
    """The same by task id, of tasks that are a job."""
    run_jobs: list[JobAccounted]
    """Of jobs that the run's own process lived in."""
    started: list[JobStarted]


def read_workers(run: Run) -> Workers:
    """Workers and jobs of a run, from its events; as many are kept as there were workers."""
    hosts: dict[str, str] = {}
    lost: list[Lost] = []
    for event in run.events("workers"):
        if isinstance(event, WorkerEvent):
            if event.host:
                hosts[event.worker] = event.host
            if isinstance(event, WorkerLost):
                lost.append(Lost(event, unix_time(event.timestamp)))
    started: list[JobStarted] = []
    accounted: dict[str, JobAccounted] = {}
    for job in run.events("jobs"):
        if isinstance(job, JobStarted):
            started.append(job)
        elif isinstance(job, JobAccounted):
            key = job.raw_job_id or job.job_id
            if key not in accounted or job.attempt >= accounted[key].attempt:
                accounted[key] = job
    bound = [(one, accounted.get(one.raw_job_id or one.job_id)) for one in started]
    by_worker = {one.worker: job for one, job in bound if one.worker and job}
    for job in accounted.values():
        by_worker.setdefault(f"slurm-{job.job_id}", job)
    by_task = {one.task_id: job for one, job in bound if one.task_id and job}
    whole = [job for one, job in bound if job and not one.worker and not one.task_id]
    return Workers(
        hosts=hosts,
        incidents=_incidents(lost, by_worker, accounted, run.info.host),
        jobs=by_worker,
        task_jobs=by_task,
        run_jobs=whole,
        started=started,
    )


def _incidents(
    lost: list[Lost], jobs: dict[str, JobAccounted], accounted: dict[str, JobAccounted], home: str
) -> list[Incident]:
    found: dict[str, Incident] = {}
    crowds = _crowds(lost, home)
    for one in sorted(lost, key=lambda one: (one.at or 0.0, one.event.worker)):
        event, job = one.event, jobs.get(one.event.worker)
        ended = job is not None and job.state in ENDED_BY_SCHEDULER
        host = crowds.get((event.host, event.pid or event.worker)) if not ended else None
        key = (
            f"job {job.state}"
            if job is not None and ended
            else f"host {host}"
            if host
            else f"lost {_plain(event.reason)}"
        )
        incident = found.setdefault(key, Incident(key=key, host=host))
        incident.losses.append(one)
        if job is not None and ended and job not in incident.jobs:
            incident.jobs.append(job)
    for job in accounted.values():
        if job.state in ENDED_BY_SCHEDULER and job.state != "CANCELLED":
            incident = found.setdefault(f"job {job.state}", Incident(key=f"job {job.state}"))
            if job not in incident.jobs:
                incident.jobs.append(job)
    return list(found.values())


def _crowds(lost: list[Lost], home: str) -> dict[tuple[str | None, int | str], str]:
    """The host of each process that went away with others of its host, in a moment.

    The host of the run itself, `home`, lived on to tell of it. Deaths that have a reason of their own, such
    as an exit code or the kernel's, are not the host's.
    """
    by_host: dict[str, list[Lost]] = {}
    for one in lost:
        own = one.event.exit_code is not None or "OOM" in (one.event.reason or "")
        if one.event.host and one.event.host != home and one.at is not None and not own:
            by_host.setdefault(one.event.host, []).append(one)
    found: dict[tuple[str | None, int | str], str] = {}
    for host, here in by_host.items():
        here.sort(key=lambda one: one.at or 0.0)
        processes = {one.event.pid or one.event.worker for one in here}
        if len(processes) > 1 and (here[-1].at or 0.0) - (here[0].at or 0.0) <= MOMENT_S:
            found.update({(host, process): host for process in processes})
    return found


def _plain(reason: str | None) -> str:
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "#", (reason or "").partition("\n")[0])[:200]


def lay_to_incidents(connection: duckdb.DuckDBPyConnection, workers: Workers) -> None:
    """Mark in `mishaps` what ended with a lost worker or an ended job."""
    rows = [
        (lost.event.worker, lost.at, incident.key)
        for incident in workers.incidents
        for lost in incident.losses
    ]
    tasks = [
        (task_id, f"job {job.state}")
        for task_id, job in workers.task_jobs.items()
        if job.state in ENDED_BY_SCHEDULER and job.state != "CANCELLED"
    ]
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE losses (worker VARCHAR, gone_at DOUBLE, incident VARCHAR)"
    )
    connection.execute("CREATE OR REPLACE TEMP TABLE job_tasks (task_id VARCHAR, incident VARCHAR)")
    for table, columns, found in (("losses", 3, rows), ("job_tasks", 2, tasks)):
        if found:
            cells = [list(column) for column in zip(*found, strict=True)]
            places = ", ".join(f"unnest(${n + 1})" for n in range(columns))
            connection.execute(f"INSERT INTO {table} SELECT {places}", cells)
    connection.execute(_LAY, {"types": list(LOST_TYPES)})
    connection.execute(_LAY_TASKS, {"types": list(LOST_TYPES)})


_LAY = """
UPDATE mishaps SET incident = nearest.incident FROM (
    SELECT mishaps.rowid AS at_row, arg_min(losses.incident, abs(coalesce(gone_at, 0) -
        coalesce(epoch(moment), 0)))
        AS incident
    FROM mishaps JOIN losses USING (worker)
    WHERE error_type IN (SELECT unnest($types::VARCHAR[])) OR scope = 'worker' GROUP BY mishaps.rowid
) AS nearest WHERE mishaps.rowid = nearest.at_row
"""
"""A name may be used again by a later worker: the loss nearest in time counts."""

_LAY_TASKS = """
UPDATE mishaps SET incident = job_tasks.incident FROM job_tasks
WHERE mishaps.task_id = job_tasks.task_id AND mishaps.incident IS NULL
    AND (error_type IN (SELECT unnest($types::VARCHAR[])) OR signal IS NOT NULL OR scope = 'worker')
"""
