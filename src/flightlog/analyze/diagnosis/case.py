"""The case of a group of failures: its text, its facts, and where each of them stands in the run.

The facts include the context: memory before it, kills by the kernel, what ran and failed beside it on the
host, what attempts of the same task that succeeded needed, and what the task had requested: the plan of the
session, and the requests recorded as it ran.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from flightlog.analyze.diagnosis.base import Case, RunFacts, Source
from flightlog.analyze.diagnosis.failures import ENDED_BY_SCHEDULER, LOST_TYPES, Incident, WorkerHosts
from flightlog.analyze.diagnosis.reading import read_text
from flightlog.store import layout
from flightlog.store.liveness import unix_time
from flightlog.store.read.files import read_regular

if TYPE_CHECKING:
    from flightlog.analyze.diagnosis.failures import Group, Nonfinite
    from flightlog.events import JobAccounted
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables


TIMED_OUT = re.compile(r" (?:ran over its timeout of|did not end (?:within [0-9.e+]+ s|in time)$)")
"""How a session says that it ended an attempt at its limit."""
JOB_END_S = 120.0
"""What ends so near to the end of its job may have ended with it: batch systems give time between signal and
kill."""
_OWN_FRAME = re.compile(
    r'^  File "[^"\n]*[/\\]flightlog[/\\](?:engines|session|record'
    r'|compat)[/\\][^"\n]*", line \d+.*\n(?:    .*\n)*',
    re.M,
)
_NO_EXCEPTIONS = frozenset({*LOST_TYPES, "ExitCode", "CommandNotFound", "CommandNotExecutable"})


class EvidenceOrigin(Struct, frozen=True):
    """Where a fact stands."""

    file: str
    event: str | None
    time: str | None


class GatheredCase(Struct, kw_only=True):
    """All there is to say of a group before it is weighed."""

    group: Group
    incident: Incident | None
    case: Case
    origins: dict[Source, EvidenceOrigin]
    around: FailureContext
    asked: RequestedResources
    success: Success | None
    host: str | None
    job: JobAccounted | None
    cgroup_bytes: int | None = None
    """The limit of the cgroup that it was in."""
    recorder_lost: str | None = None
    """Why the recorder could not write, such as `No space left on device`; None where it could."""
    device_file: str | None = None
    """The document of a device that ran out of memory near it."""
    of_class: dict[str, EvidenceOrigin] = {}
    """Where the figures stand that speak for a class and are no samples: durations, and values that became
    NaN."""


def gather(
    run: Run,
    group: Group,
    incident: Incident | None,
    around: FailureContext,
    workers: WorkerHosts,
    plans: Plans,
    success: Success | None,
    values: Sequence[Nonfinite],
    bundles: Sequence[tuple[str, str]],
    cancelled_by: str | None = None,
) -> GatheredCase:
    """Put the case of a group together; `bundles` are message and folder of device memory that ran out near
    it.
    """
    worker = group.worker or (incident.losses[0].event.worker if incident and incident.losses else None)
    host = workers.hosts.get(worker or "") or run.info.host or None
    job = _job(group, incident, workers, worker)
    asked = plans.of(group.task, group.component, group.task_id)
    cgroup = around.cgroup_limit_bytes or (plans.cgroup_bytes if host == run.info.host else None)
    limits = [job.memory_bytes if job else None, cgroup, asked.memory_bytes if plans.enforced else None]
    least = min((one for one in limits if one), default=None) or around.node_total_bytes or plans.host_bytes
    facts = _facts(run, group, incident, around, asked, success, job, host, worker, least)
    earlier = [one for one in values if group.at is None or one.at is None or one.at <= group.at + 1]
    facts = msgspec.structs.replace(
        facts,
        nonfinite=tuple(dict.fromkeys((*group.nonfinite, *sorted({one.name for one in earlier})))),
        device_oom=tuple(message for message, _ in bundles),
        cancelled_by=cancelled_by,
    )
    text, kind = _text(group, incident)
    case = Case(reading=read_text(text, kind), facts=facts)
    origins = _origins(group, incident, around, job)
    lasted = origins[Source.scheduler if job is not None else Source.exit]
    of_class = {"timeout": lasted, "time_limit": lasted}
    if earlier:
        of_class["numerical"] = EvidenceOrigin(earlier[0].file, earlier[0].event, earlier[0].first)
    return GatheredCase(
        group=group,
        incident=incident,
        case=case,
        origins=origins,
        around=around,
        asked=asked,
        success=success,
        host=host,
        job=job,
        cgroup_bytes=cgroup,
        recorder_lost=next((reason for one in run.writers() for reason in one.reasons), None),
        device_file=f"{bundles[0][1]}/bundle.json" if bundles else None,
        of_class=of_class,
    )


def _job(
    group: Group, incident: Incident | None, workers: WorkerHosts, worker: str | None
) -> JobAccounted | None:
    """The job that the failure was in, where its end may be the failure's.

    An exception has its own reasons, however its job was ended later: a session cancels its jobs when it
    closes.
    """
    if incident is not None:
        return incident.jobs[0] if incident.jobs else workers.jobs.get(worker or "")
    told = group.traceback is not None or (group.scope == "task" and group.error_type not in _NO_EXCEPTIONS)
    if told or group.scope == "metric":
        return None
    job = workers.jobs.get(worker or "") or workers.task_jobs.get(group.task_id or "")
    if job is None and group.scope in {"run", "command"} and workers.run_jobs:
        job = workers.run_jobs[-1]
    ended = None if job is None else unix_time(job.ended or job.timestamp)
    near = ended is None or group.last_at is None or abs(ended - group.last_at) <= JOB_END_S
    return job if near else None


def _facts(
    run: Run,
    group: Group,
    incident: Incident | None,
    around: FailureContext,
    asked: RequestedResources,
    success: Success | None,
    job: JobAccounted | None,
    host: str | None,
    worker: str | None,
    limit: int | None,
) -> RunFacts:
    lost = incident.losses[0].event if incident is not None and incident.losses else None
    reason = lost.reason or "it went away" if lost is not None else None
    if reason is None and group.error_type in {"WorkerLost", "KilledWorker"}:
        reason = group.message or "it went away"
    signal = group.signal or (lost.signal if lost is not None else None) or (job.signal if job else None)
    told = "OOM killer" in (reason or "") or (
        group.scope == "command" and "OOM killer" in (group.message or "")
    )
    kernel = True if told or ((around.oom_kills or 0) > 0 and _dead(group, reason, signal)) else None
    if kernel is None and around.oom_kills == 0:
        kernel = False
    state = job.state if job is not None and job.state in ENDED_BY_SCHEDULER else None
    if state is None and group.error_type in ENDED_BY_SCHEDULER:
        state = group.error_type
    crowd = incident.processes if incident is not None and incident.host else 0
    duration = run.info.duration_s if group.duration_s is None and group.scope == "run" else group.duration_s
    if job is not None and job.elapsed_s is not None and (incident is not None or duration is None):
        duration = job.elapsed_s
    return RunFacts(
        scope=group.scope,
        run_status=run.status,
        task=group.task,
        component=asked.component,
        worker=worker,
        host=host,
        exit_code=group.exit_code if group.exit_code is not None else (lost.exit_code if lost else None),
        signal=signal,
        kernel_oom=kernel,
        cgroup_oom_kills=around.oom_kills if kernel and around.oom_kills else None,
        job_state=state,
        worker_lost_reason=reason,
        duration_s=duration,
        timed_out=bool(group.error_type == "TimeoutError" and TIMED_OUT.search(group.message or "")),
        timeout_s=asked.timeout_s,
        walltime_s=(job.walltime_s if job else None) or asked.walltime_s,
        requested_memory_bytes=asked.memory_bytes,
        memory_limit_bytes=limit,
        last_rss_bytes=around.last_bytes if around.memory_scope != "node" else None,
        peak_rss_bytes=group.peak_rss_bytes or (job.max_rss_bytes if job else None),
        memory_scope=around.memory_scope,
        memory_slope_bytes_per_s=around.slope_bytes_per_s,
        node_memory_used_percent=around.node_used_percent,
        gpu_memory_used_percent=around.gpu_used_percent,
        success_peaks_bytes=success.peaks_bytes if success else (),
        neighbours=around.neighbours if group.scope != "run" else (),
        lost_with=max(0, group.lost_tasks - 1) if incident is not None else 0,
        hosts_workers_lost=crowd,
    )


def _dead(group: Group, reason: str | None, signal: str | None) -> bool:
    """Whether a process of it ended in a way that the kernel's kill would look like."""
    return signal == "SIGKILL" or group.exit_code in {137, -9} or reason is not None or group.scope == "run"


def _text(group: Group, incident: Incident | None) -> tuple[str, str | None]:
    """What is read as the failure's text, and the exception's type where it is one."""
    if incident is not None:
        reasons = dict.fromkeys(lost.event.reason or "" for lost in incident.losses[:20])
        said = dict.fromkeys(job.reason or "" for job in incident.jobs[:20])
        return "\n".join(filter(None, (*said, *reasons, group.output_tail))), None
    kind = group.error_type
    signal = kind is not None and kind.startswith("SIG")
    kind = None if kind in _NO_EXCEPTIONS or signal or group.scope == "command" else kind
    if group.traceback:
        return without_own_frames(group.traceback), kind
    return "\n".join(part for part in (group.message, group.output_tail) if part), kind


def without_own_frames(traceback: str) -> str:
    """A traceback without Flightlog's own frames, which are no place to look for the error."""
    return _OWN_FRAME.sub("", traceback)


def _origins(
    group: Group, incident: Incident | None, around: FailureContext, job: JobAccounted | None
) -> dict[Source, EvidenceOrigin]:
    event = "failure" if group.recorded_in == "failures.jsonl" else "task_failed"
    own = EvidenceOrigin(group.recorded_in, event, group.first)
    if group.scope == "run" and group.recorded_in == "run.json":
        own = EvidenceOrigin("run.json", None, group.first)
    if group.scope == "metric":
        own = EvidenceOrigin(group.recorded_in, "metric", group.first)
    found = dict.fromkeys(Source, own)
    if incident is not None and incident.losses:
        lost = EvidenceOrigin("workers.jsonl", "worker_lost", incident.losses[0].event.timestamp)
        found = dict.fromkeys(Source, lost)
    if job is not None:
        account = EvidenceOrigin("jobs.jsonl", "job_accounted", job.timestamp)
        if incident is not None and not incident.losses:
            found = dict.fromkeys(Source, account)
        found[Source.scheduler] = account
    if around.samples and group.scope != "metric":
        found[Source.resources] = EvidenceOrigin("resources.jsonl", "resource_sample", around.last_time)
    if around.oom_kills and "OOM" not in (
        incident.losses[0].event.reason or "" if incident and incident.losses else ""
    ):
        found[Source.kernel] = EvidenceOrigin("resources.jsonl", "resource_sample", around.oom_time)
    return found


class Success(Struct, frozen=True, kw_only=True):
    """Of one task name."""

    completed: int = 0
    peaks_bytes: tuple[int, ...] = ()
    """The largest peaks, the largest first."""
    longest_s: float | None = None


def read_successes(connection: RunTables, tasks: Collection[str]) -> dict[str, Success]:
    """By task name, from `ended`; a task that never completed has none."""
    rows = connection.execute(_SUCCESSES, {"tasks": list(tasks)}).fetchall()
    return {
        task: Success(completed=number, peaks_bytes=tuple(peaks or ()), longest_s=longest)
        for task, number, peaks, longest in rows
    }


_SUCCESSES = """
SELECT task, count(*), max(peak_rss_bytes, 3), max(duration_s) FROM ended
WHERE event = 'task_completed' AND task IN (SELECT unnest($tasks::VARCHAR[])) GROUP BY task
"""


BEFORE_S = 120.0
"""Seconds before the end from which samples are read."""
AFTER_S = 10.0
"""Samples so much later still tell of it: the kernel's counters are read by the next one."""
SLOPE_SAMPLES = 12
NEIGHBOURS = 5
_KEPT = 400


class GroupPlace(NamedTuple):
    """When and where a failure was."""

    number: int
    at: float
    host: str | None
    worker: str | None
    task_id: str | None


class FailureContext(Struct, kw_only=True):
    """What is known of the surroundings of a failure; None is unknown."""

    memory_scope: str | None = None
    last_bytes: int | None = None
    slope_bytes_per_s: float | None = None
    samples: int = 0
    last_time: str | None = None
    first_bytes: int | None = None
    cgroup_limit_bytes: int | None = None
    node_total_bytes: int | None = None
    node_used_percent: float | None = None
    oom_kills: int | None = None
    """Rise of the cgroup's counter from before to after the failure."""
    oom_time: str | None = None
    gpu_used_percent: float | None = None
    neighbours: tuple[str, ...] = ()
    running: int = 0
    """Attempts that ran beside it on the host."""


class _Sample(NamedTuple):
    at: float
    scope: str
    exact: bool
    used: int | None
    total: int | None
    oom_kills: int | None
    gpu_used: int | None
    gpu_total: int | None
    time: str


def context_around(
    connection: RunTables, places: Sequence[GroupPlace], hosts: Mapping[str, str], home: str
) -> dict[int, FailureContext]:
    """The surroundings of each place, from `resources` and `ended`; each is gone through once for
    all.

    `hosts` is where each worker ran; a worker that is not named there ran on `home`.
    """
    found = {place.number: FailureContext() for place in places}
    if not places:
        return found
    names = [[*column] for column in zip(*places, strict=True)]
    connection.execute(_PLACES, names)
    connection.execute(_HOSTS, [list(hosts), list(hosts.values())])
    samples: dict[int, list[_Sample]] = {}
    for number, *values in connection.execute(
        _SAMPLES, {"before": BEFORE_S, "after": AFTER_S, "kept": _KEPT}
    ).fetchall():
        samples.setdefault(number, []).append(_Sample(*values))
    for place in places:
        _read_curve(found[place.number], samples.get(place.number, []), place.at)
    for number, running, beside in connection.execute(_RUNNING, {"home": home}).fetchall():
        found[number].running = running
        found[number].neighbours = tuple(beside[:NEIGHBOURS])
    return found


def _read_curve(around: FailureContext, samples: list[_Sample], at: float) -> None:
    before = [one for one in samples if one.at <= at + 0.5]
    for scope, exact in (
        ("task", True),
        ("worker", True),
        ("worker", False),
        ("cgroup", False),
        ("node", False),
    ):
        curve = [one for one in before if one.scope == scope and one.exact == exact and one.used is not None]
        if curve:
            first, last = curve[0], curve[-1]
            around.memory_scope, around.samples = scope, len(curve)
            around.first_bytes, around.last_bytes = first.used, last.used
            around.last_time = last.time
            around.slope_bytes_per_s = _slope(curve[-SLOPE_SAMPLES:])
            break
    for one in before:
        if one.scope == "cgroup" and one.total is not None:
            around.cgroup_limit_bytes = one.total
        if one.scope == "node" and one.total:
            around.node_total_bytes = one.total
            around.node_used_percent = None if one.used is None else 100.0 * one.used / one.total
        if one.scope == "gpu" and one.gpu_total and one.gpu_used is not None:
            around.gpu_used_percent = 100.0 * one.gpu_used / one.gpu_total
    counted = [one for one in samples if one.scope == "cgroup" and one.oom_kills is not None]
    if len(counted) > 1:
        around.oom_kills = (counted[-1].oom_kills or 0) - (counted[0].oom_kills or 0)
        around.oom_time = counted[-1].time


def _slope(curve: Sequence[_Sample]) -> float | None:
    """Least squares over the last samples; None for fewer than three."""
    if len(curve) < 3 or curve[-1].at <= curve[0].at:
        return None
    middle = sum(one.at for one in curve) / len(curve)
    level = sum(one.used or 0 for one in curve) / len(curve)
    spread = sum((one.at - middle) ** 2 for one in curve)
    return sum((one.at - middle) * ((one.used or 0) - level) for one in curve) / spread


_PLACES = """
CREATE OR REPLACE TEMP TABLE places AS SELECT unnest($1::INTEGER[]) AS number,
    unnest($2::DOUBLE[]) AS gone_at,
    unnest($3::VARCHAR[]) AS host, unnest($4::VARCHAR[]) AS worker, unnest($5::VARCHAR[]) AS task_id
"""

_HOSTS = """
CREATE OR REPLACE TEMP TABLE lives_on AS SELECT unnest($1::VARCHAR[]) AS worker, unnest($2::VARCHAR[]) AS host
"""

_SAMPLES = """
SELECT number, epoch("timestamp") AS sampled, scope,
    coalesce(scope = 'task' OR (scope = 'worker' AND resources.worker = places.worker), false),
    CASE WHEN scope IN ('task', 'worker') THEN rss_bytes ELSE memory_used_bytes END, memory_total_bytes,
        oom_kills,
    gpu_memory_used_bytes, gpu_memory_total_bytes, strftime("timestamp", '%Y-%m-%dT%H:%M:%S.%fZ')
FROM resources JOIN places
    ON epoch("timestamp") BETWEEN gone_at - $before AND gone_at + $after
    AND CASE scope WHEN 'task' THEN resources.task_id = places.task_id
        ELSE coalesce(resources.host = places.host, true) AND
            (scope <> 'worker' OR resources.worker IS NULL OR resources.worker = places.worker
             OR places.worker IS NULL OR resources.worker NOT IN (SELECT worker FROM lives_on)) END
WHERE event = 'resource_sample'
QUALIFY row_number() OVER (PARTITION BY number, scope ORDER BY "timestamp" DESC) <= $kept
ORDER BY number, sampled
"""

_RUNNING = """
WITH beside AS (
    SELECT number, ended.task, count(*) AS times FROM ended
    LEFT JOIN lives_on USING (worker) JOIN places ON coalesce(lives_on.host, $home) = places.host
    WHERE ended.worker IS NOT NULL AND ended.duration_s IS NOT NULL AND event <> 'task_retried'
        AND epoch(ended.moment) >= places.gone_at - 0.02
            AND epoch(ended.moment) - ended.duration_s < places.gone_at
        AND ended.task_id IS DISTINCT FROM places.task_id
    GROUP BY number, ended.task
)
SELECT number, CAST(sum(times) AS BIGINT), list(task ORDER BY times DESC, task) FROM beside GROUP BY number
"""


LARGEST_PLAN = 16 << 20
_NOT_ENFORCED = frozenset({"local", None})
"""Providers that give no worker a limit of its own; None is a run without a session."""


class RequestedResources(Struct, frozen=True, kw_only=True):
    """What one task could use, and where its manifest says so; None is "not said"."""

    component: str | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    walltime_s: float | None = None
    timeout_s: float | None = None
    retries: int | None = None
    in_manifest: bool = False
    """Whether the component stands in the run's manifest."""
    task_in_manifest: bool = False


class Plans(Struct, frozen=True, kw_only=True):
    """The plan and the requests of a run."""

    manifest: str | None
    """Name of the manifest's file; None where the run had none."""
    target: str | None
    workers: int | None
    components: dict[str, dict[str, Any]]
    tasks: dict[str, dict[str, Any]]
    by_component: dict[str, dict[str, Any]]
    """What was requested, by component, the latest."""
    by_task: dict[str, dict[str, Any]]
    by_id: dict[str, dict[str, Any]]
    enforced: bool = False
    """Whether the provider gives its workers no more memory than they ask for."""
    cgroup_bytes: int | None = None
    """What the cgroup of the run's own process allows, as it was when the run began; None where it has no
    limit."""
    host_bytes: int | None = None
    problem: str | None = None

    def of(self, task: str | None, component: str | None, task_id: str | None) -> RequestedResources:
        """What this task could use."""
        planned = self.tasks.get(task or "", {})
        name = (
            component
            or _known_text(planned.get("component"))
            or _known_text(self.by_task.get(task or "", {}).get("component"))
        )
        known: dict[str, Any] = {}
        for source in (
            self.components.get(name or "", {}),
            self.by_component.get(name or "", {}),
            self.by_task.get(task or "", {}),
            self.by_id.get(task_id or "", {}),
        ):
            known |= {key: value for key, value in source.items() if value is not None}
        return RequestedResources(
            component=name,
            cpus=_number(known.get("cpus")),
            memory_bytes=_whole(known.get("memory_bytes")),
            walltime_s=_number(known.get("walltime_s")),
            timeout_s=_number(planned.get("timeout_s")),
            retries=_whole(planned.get("retries")),
            in_manifest=name in self.components,
            task_in_manifest=task in self.tasks,
        )


def read_plans(run: Run, connection: RunTables, task_ids: Collection[str]) -> Plans:
    """Plan and requests of a run; requests of single submissions for these tasks alone."""
    document, problem = _document(run, layout.PLAN)
    machine, _ = _document(run, layout.ENVIRONMENT)
    by_component: dict[str, dict[str, Any]] = {}
    by_task: dict[str, dict[str, Any]] = {}
    by_id: dict[str, dict[str, Any]] = {}
    for task, component, task_id, *values in connection.execute(
        _REQUESTS, {"ids": list(task_ids)}
    ).fetchall():
        said = dict(zip(("cpus", "memory_bytes", "walltime_s"), values, strict=True)) | {
            "component": component
        }
        if task_id:
            by_id[task_id] = said
        elif task:
            by_task[task] = said
        elif component:
            by_component[component] = said
    return Plans(
        manifest=_known_text(document.get("manifest")),
        target=_known_text(document.get("target")) or run.info.target,
        workers=_whole(document.get("workers")),
        components=_objects(document.get("components")),
        tasks=_objects(document.get("tasks")),
        by_component=by_component,
        by_task=by_task,
        by_id=by_id,
        problem=problem,
        enforced=run.info.provider not in _NOT_ENFORCED,
        cgroup_bytes=_whole(machine.get("cgroup_memory_bytes")),
        host_bytes=_whole(machine.get("memory_bytes")),
    )


def _document(run: Run, name: str) -> tuple[dict[str, Any], str | None]:
    file = run.path / name
    try:
        found = msgspec.json.decode(read_regular(file, LARGEST_PLAN))
    except FileNotFoundError:
        return {}, None
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        return {}, f"{name} cannot be read, so what was asked for is known in part: {why}"
    return (found, None) if isinstance(found, dict) else ({}, f"{name} holds no JSON object")


def _objects(value: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(value, dict):
        return {}
    return {str(name): inner for name, inner in value.items() if isinstance(inner, dict)}


def _known_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> float | None:
    """A number that a column could hold; None for anything else that a document may say."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1 << 63
    return float(value) if known else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


_REQUESTS = """
SELECT task_name(task), component, task_id, cpus, memory_bytes, walltime_s FROM resources
WHERE event = 'resource_request' AND (task_id IS NULL OR task_id IN (SELECT unnest($ids::VARCHAR[])))
QUALIFY row_number() OVER (PARTITION BY task, component, task_id ORDER BY "timestamp" DESC) <= 1
ORDER BY "timestamp" LIMIT 10000
"""
