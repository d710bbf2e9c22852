"""What a run's record says beside its failures: workers that were lost and jobs that ended, values that
became NaN, what attempts that succeeded needed, what was asked for, and the context of a failure (memory
before it, kills by the kernel, what ran beside it on the host).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import linear_regression
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from flightlog.analyze.devices.oom import read_bundles
from flightlog.analyze.devices.report import devices_of_tables
from flightlog.analyze.devices.results import OomCause
from flightlog.analyze.history.attempts import Planned, Requested, read_requests
from flightlog.analyze.limits import DiagnosisLimits
from flightlog.analyze.tallies import grouped
from flightlog.core.errors import UsageError
from flightlog.core.text import words
from flightlog.events import JobAccounted, JobStarted, WorkerEvent, WorkerLaunched, WorkerLost
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.liveness import unix_time
from flightlog.store.run import Run

if TYPE_CHECKING:
    from flightlog.analyze.diagnosis.group import Group
    from flightlog.store.tables.run_tables import RunTables


ENDED_BY_SCHEDULER = words(
    "TIMEOUT OUT_OF_MEMORY PREEMPTED REQUEUED NODE_FAIL BOOT_FAIL DEADLINE CANCELLED REVOKED"
)
"""States of a job that its program did not choose."""


class Incident(Struct, kw_only=True):
    """Workers and jobs that ended for one reason."""

    key: str
    losses: list[WorkerLost] = []
    jobs: list[JobAccounted] = []
    host: str | None = None
    """Where a whole host went away with several workers; None otherwise."""

    @property
    def processes(self) -> int:
        """Lost worker processes: threads of one process are one."""
        return len({(lost.host, lost.pid or lost.worker) for lost in self.losses})


class WorkerHosts(Struct, kw_only=True):
    """The workers of a run, as far as a diagnosis needs them."""

    hosts: dict[str, str]
    """Host by worker."""
    processes: dict[str, str]
    """By worker, what samples of its process are named after."""
    memory_bytes: dict[str, int]
    """By worker, the memory that it was given."""
    incidents: list[Incident]
    jobs: dict[str, JobAccounted]
    """The last account of the job that a worker lived in, by worker."""
    task_jobs: dict[str, JobAccounted]
    """The same by task id, of tasks that are a job."""
    run_jobs: list[JobAccounted]
    """Of jobs that the run's own process lived in."""
    unaccounted: list[str]
    """Jobs of workers of which no account was asked for."""

    def process_of(self, worker: str | None) -> str | None:
        """What samples of a worker's process are named after; a worker is often a thread of it."""
        return None if worker is None else self.processes.get(worker) or worker.partition("/")[0]

    @property
    def in_jobs(self) -> bool:
        """Whether anything of the run lived in a job of a batch system."""
        return bool(self.jobs or self.task_jobs or self.run_jobs or self.unaccounted)


def read_workers(run: Run) -> WorkerHosts:
    """Workers and jobs of a run, from its events."""
    events = [event for event in run.events("workers") if isinstance(event, WorkerEvent)]
    placed = [event for event in events if event.host]
    lost = [event for event in events if isinstance(event, WorkerLost)]
    launched = [event for event in events if isinstance(event, WorkerLaunched)]
    jobs = list(run.events("jobs"))
    started = [job for job in jobs if isinstance(job, JobStarted)]
    ended = sorted((job for job in jobs if isinstance(job, JobAccounted)), key=lambda job: job.attempt)
    accounted = {job.raw_job_id or job.job_id: job for job in ended}
    bound = [(one, accounted.get(one.raw_job_id or one.job_id)) for one in started]
    by_worker = {one.worker: job for one, job in bound if one.worker and job}
    for job in accounted.values():
        by_worker.setdefault(f"slurm-{job.job_id}", job)
    by_task = {one.task_id: job for one, job in bound if one.task_id and job}
    whole = [job for one, job in bound if job and not one.worker and not one.task_id]
    return WorkerHosts(
        hosts={event.worker: event.host for event in placed if event.host},
        processes={event.worker: f"{event.host}:{event.pid}" for event in placed},
        memory_bytes={event.worker: event.memory_bytes for event in launched if event.memory_bytes},
        incidents=_incidents(lost, by_worker, accounted, run.info.host),
        jobs=by_worker,
        task_jobs=by_task,
        run_jobs=whole,
        unaccounted=[one.array_job_id or one.job_id for one in started if one.worker not in by_worker],
    )


def _incidents(
    lost: list[WorkerLost], jobs: dict[str, JobAccounted], accounted: dict[str, JobAccounted], home: str
) -> list[Incident]:
    found: dict[str, Incident] = {}
    crowds = _crowds(lost, home)
    for event in sorted(lost, key=lambda one: (unix_time(one.timestamp) or 0.0, one.worker)):
        job = jobs.get(event.worker)
        job = job if job is not None and job.state in ENDED_BY_SCHEDULER else None
        host = event.host if job is None and (event.host, event.pid or event.worker) in crowds else None
        key = f"job {job.state}" if job else f"host {host}" if host else f"lost {_plain(event.reason)}"
        incident = found.setdefault(key, Incident(key=key, host=host))
        incident.losses.append(event)
        if job is not None and job not in incident.jobs:
            incident.jobs.append(job)
    for job in accounted.values():
        if job.state in ENDED_BY_SCHEDULER and job.state != "CANCELLED":
            incident = found.setdefault(f"job {job.state}", Incident(key=f"job {job.state}"))
            if job not in incident.jobs:
                incident.jobs.append(job)
    return list(found.values())


def _crowds(lost: list[WorkerLost], home: str) -> set[tuple[str | None, int | str]]:
    """Host and process of each that went away with others of its host, in a moment.

    The host of the run itself, `home`, lived on to tell of it. Deaths that have a reason of their own, such
    as an exit code, a signal or memory, are not the host's.
    """
    by_host = grouped(
        (one.host, (at, one.pid or one.worker))
        for one in lost
        if one.host not in {None, "", home} and one.exit_code is None and one.signal is None
        if (at := unix_time(one.timestamp)) is not None
        if not any(word in (one.reason or "") for word in ("OOM", "for memory"))
    )
    found: set[tuple[str | None, int | str]] = set()
    for host, ends in by_host.items():
        times, processes = [at for at, _ in ends], {process for _, process in ends}
        if len(processes) > 1 and max(times) - min(times) <= DiagnosisLimits.host_loss_s:
            found |= {(host, process) for process in processes}
    return found


def _plain(reason: str | None) -> str:
    """What is surest of a reason, without addresses, numbers and sizes."""
    surest = (reason or "").partition("\n")[0].partition("; ")[0]
    return re.sub(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?: [KMGTP]?i?B\b)?", "#", surest)[:200]


class Nonfinite(Struct, frozen=True, kw_only=True):
    """One name whose values were NaN. Infinities are left out: they are often a bound that nobody has met
    yet.
    """

    name: str
    file: str
    event: str
    count: int
    first: str | None
    at: float | None
    step: int | None
    """Of the first one, in a series that has steps."""


_NONFINITE = """
WITH marked AS (
    SELECT 'metrics.jsonl' AS file, 'metric' AS event, name, "timestamp" AS moment, step
    FROM metrics WHERE nonfinite = 'nan'
    UNION ALL
    SELECT 'spans.jsonl', 'span', unnest(json_keys(nonfinite)), "timestamp", NULL
    FROM span_events WHERE event = 'span' AND len(CAST(nonfinite AS VARCHAR)) > 2
        AND contains(CAST(nonfinite AS VARCHAR), '"nan"')
    UNION ALL
    SELECT 'tasks.jsonl', event, unnest(json_keys(nonfinite)), "timestamp", NULL
    FROM task_events WHERE len(CAST(nonfinite AS VARCHAR)) > 2
        AND contains(CAST(nonfinite AS VARCHAR), '"nan"')
)
FROM (
    SELECT file, any_value(event) AS event, name, count(*) AS count,
        strftime(min(moment), '%Y-%m-%dT%H:%M:%S.%fZ') AS first, epoch(min(moment)) AS at,
        arg_min(step, moment) AS step
    FROM marked GROUP BY file, name ORDER BY min(moment), name LIMIT $few
) ORDER BY coalesce("at", 0), name, file
"""


class Success(Struct, frozen=True):
    """Of one task name."""

    completed: int = 0
    peaks_bytes: tuple[int, ...] = ()
    """The largest peaks, the largest first."""
    longest_s: float | None = None


_SUCCESSES = """
SELECT base_name(task) AS name, count(*), max(peak_rss_bytes, 3), max(duration_s) FROM ended
WHERE event = 'task_completed' AND name IN (SELECT unnest($tasks::VARCHAR[])) GROUP BY name
"""


class FailureContext(Struct, kw_only=True):
    """What is known of the surroundings of a failure; None is unknown."""

    memory_scope: str | None = None
    last_bytes: int | None = None
    memory_slope_bytes_per_s: float | None = None
    samples: int = 0
    last_time: str | None = None
    first_bytes: int | None = None
    cgroup_limit_bytes: int | None = None
    node_total_bytes: int | None = None
    node_memory_used_percent: float | None = None
    oom_kills: int | None = None
    """Rise of the cgroup's counter from before to after the failure."""
    oom_time: str | None = None
    gpu_memory_used_percent: float | None = None
    neighbours: tuple[str, ...] = ()
    running: int = 0
    """Attempts that ran beside it on the host."""


class _Sample(NamedTuple):
    at: float
    scope: str
    used: int | None
    total: int | None
    oom_kills: int | None
    gpu_used: int | None
    gpu_total: int | None
    time: str


def read_context(
    tables: RunTables, groups: Sequence[Group], workers: WorkerHosts, home: str
) -> list[FailureContext]:
    """The context of each group, from `resources` and `ended`, which are gone through once for all.

    A worker whose host nobody named ran on `home`.
    """
    found = [FailureContext() for _ in groups]
    places = [
        (number, group.at, group.host, group.worker, workers.process_of(group.worker), group.task_id)
        for number, group in enumerate(groups)
        if group.at is not None
    ]
    if not places:
        return found
    tables.keep("places", _PLACES, places)
    tables.keep("lives_on", {"worker": "VARCHAR", "host": "VARCHAR"}, list(workers.hosts.items()))
    limits = {"before": DiagnosisLimits.samples_before_s, "after": DiagnosisLimits.samples_after_s}
    rows = tables.rows(_SAMPLES, {**limits, "kept": DiagnosisLimits.max_samples})
    for number, curve in grouped((number, _Sample(*values)) for number, *values in rows).items():
        _read_curve(found[number], curve, groups[number].at or 0.0)
    for number, running, beside in tables.execute(_RUNNING, {"home": home}).fetchall():
        found[number].running = running
        found[number].neighbours = tuple(beside[: DiagnosisLimits.max_neighbours])
    return found


_NEAREST_FIRST = ("task", "worker_process", "worker", "cgroup", "node")
"""Whose memory tells most of a failure: scopes of samples."""


def _read_curve(around: FailureContext, samples: list[_Sample], at: float) -> None:
    before = [one for one in samples if one.at <= at + 0.5]
    for scope in _NEAREST_FIRST:
        curve = [one for one in before if one.scope == scope and one.used is not None]
        if curve:
            first, last = curve[0], curve[-1]
            around.memory_scope, around.samples = scope.removesuffix("_process"), len(curve)
            around.first_bytes, around.last_bytes = first.used, last.used
            around.last_time = last.time
            rise = curve[-DiagnosisLimits.max_slope_samples :]
            if len(rise) >= 3 and rise[-1].at > rise[0].at:
                fit = linear_regression([one.at for one in rise], [one.used or 0 for one in rise])
                around.memory_slope_bytes_per_s = fit.slope
            break
    for one in before:
        if one.scope == "cgroup" and one.total is not None:
            around.cgroup_limit_bytes = one.total
        if one.scope == "node" and one.total:
            around.node_total_bytes = one.total
            around.node_memory_used_percent = None if one.used is None else 100.0 * one.used / one.total
        if one.scope == "gpu" and one.gpu_total and one.gpu_used is not None:
            around.gpu_memory_used_percent = 100.0 * one.gpu_used / one.gpu_total
    counted = [one for one in samples if one.scope == "cgroup" and one.oom_kills is not None]
    if len(counted) > 1:
        around.oom_kills = (counted[-1].oom_kills or 0) - (counted[0].oom_kills or 0)
        around.oom_time = counted[-1].time


_PLACES = {
    "number": "INTEGER",
    "gone_at": "DOUBLE",
    **dict.fromkeys(("host", "worker", "process", "task_id"), "VARCHAR"),
}

_SAMPLES = """
SELECT number, epoch("timestamp") AS sampled, scope,
    CASE WHEN scope IN ('task', 'worker_process', 'worker') THEN rss_bytes ELSE memory_used_bytes END,
    memory_total_bytes, oom_kills,
    gpu_memory_used_bytes, gpu_memory_total_bytes, strftime("timestamp", '%Y-%m-%dT%H:%M:%S.%fZ')
FROM resources JOIN places
    ON epoch("timestamp") BETWEEN gone_at - $before AND gone_at + $after
    AND CASE scope WHEN 'task' THEN resources.task_id = places.task_id
        WHEN 'worker_process' THEN resources.worker IN (places.worker, places.process)
        ELSE coalesce(resources.host = places.host, true) AND (scope <> 'worker' OR places.worker IS NULL
            OR resources.worker IN (places.worker, places.process)) END
WHERE event = 'resource_sample'
QUALIFY row_number() OVER (PARTITION BY number, scope ORDER BY "timestamp" DESC) <= $kept
ORDER BY number, sampled
"""
"""Of workers only the samples of the one that it happened on, or of the process whose thread that was: those
of the program say nothing of it."""

_RUNNING = """
WITH beside AS (
    SELECT number, base_name(ended.task) AS task, count(*) AS times FROM ended
    LEFT JOIN lives_on USING (worker) JOIN places ON coalesce(lives_on.host, $home) = places.host
    WHERE ended.worker IS NOT NULL AND ended.duration_s IS NOT NULL AND event <> 'task_retried'
        AND epoch(ended.moment) >= places.gone_at - 0.02
            AND epoch(ended.moment) - ended.duration_s < places.gone_at
        AND ended.task_id IS DISTINCT FROM places.task_id
    GROUP BY number, base_name(ended.task)
)
SELECT number, CAST(sum(times) AS BIGINT), list(task ORDER BY times DESC, task) FROM beside GROUP BY number
"""


_NOT_ENFORCED = frozenset({"local", None})
"""Providers that give no worker a limit of its own; None is a run without a session."""


class MachineMemory(Struct, frozen=True):
    """`environment.json`, as far as it tells of memory; of the run's own process when it began."""

    memory_bytes: int | None = None
    cgroup_memory_bytes: int | None = None
    """None where its cgroup has no limit."""


class RunContext(Struct, kw_only=True):
    """What a run's record says beside its failures."""

    run: Run
    ref: str
    """What names the run to a command."""
    workers: WorkerHosts
    plan: Planned
    machine: MachineMemory
    requests: dict[str, Requested]
    """What the tasks of the groups asked for, by their roots."""
    successes: dict[str, Success]
    values: list[Nonfinite]
    bundles: list[tuple[float | None, str, str]]
    """Time, message and folder of each time that a device ran out of memory."""
    device_cause: OomCause | None
    """Why it did, the first time, from what was recorded of its memory."""
    recorder_lost: str | None
    """Why the recorder could not write, such as `No space left on device`; None where it could."""
    problems: list[str]

    @property
    def enforced(self) -> bool:
        """Whether the provider gives its workers no more memory than they ask for."""
        return self.run.info.provider not in _NOT_ENFORCED

    @property
    def target(self) -> str | None:
        """The run's target."""
        return self.plan.target or self.run.info.target

    def requested(self, group: Group) -> Requested:
        """What the task of a group asked for."""
        return self.requests.get(group.root, Requested())


def read_record(
    run: Run, ref: str, tables: RunTables, workers: WorkerHosts, groups: Sequence[Group]
) -> RunContext:
    """The record, as far as these groups need it."""
    document = read_document(run.path / layout.PLAN, Planned)
    plan = document.value or Planned()
    for group in groups:
        group.component = group.component or plan.task(group.task).component
    requests = read_requests(tables, run, [(one.task_id, one.task, one.component) for one in groups])
    few = {"few": DiagnosisLimits.max_nonfinite_metrics}
    succeeded = tables.rows(_SUCCESSES, {"tasks": list({group.task for group in groups if group.task})})
    bundles, problems = read_bundles(run.path) if (run.path / layout.OOM).is_dir() else ([], [])
    if document.problem and (run.path / layout.PLAN).exists():
        why = document.problem.partition(": ")[2]
        problems.append(f"{layout.PLAN} cannot be read, so what was asked for is known in part: {why}")
    return RunContext(
        run=run,
        ref=ref,
        workers=workers,
        plan=plan,
        machine=read_document(run.path / layout.ENVIRONMENT, MachineMemory).value or MachineMemory(),
        requests={group.root: asked for group, asked in zip(groups, requests, strict=True)},
        successes={
            task: Success(number, tuple(peaks or ()), longest) for task, number, peaks, longest in succeeded
        },
        values=[Nonfinite(**row) for row in tables.records(_NONFINITE, few)],
        bundles=[
            (None if one.time_ns is None else one.time_ns / 1e9, one.message or one.folder, one.folder)
            for one in bundles
        ],
        device_cause=_device_cause(tables) if bundles else None,
        recorder_lost=next((reason for one in run.writers() for reason in one.reasons), None),
        problems=problems,
    )


def _device_cause(tables: RunTables) -> OomCause | None:
    try:
        outs = devices_of_tables(tables).out_of_memory
    except (UsageError, OSError):
        return None
    return outs[0].causes[0] if outs and outs[0].causes[0].kind != "unknown" else None
