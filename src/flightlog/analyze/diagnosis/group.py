"""The failures of a run with the same root put together: a lost host, worker or job, the failure that others
depend on, or the cause that they share.

`ended` has one row for each line that ends an attempt.

`find_groups` puts failures with the same root together: counts, an example and its texts; lost workers, ended
jobs and the run's own end are groups, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from flightlog.analyze.diagnosis.read import ENDED_BY_SCHEDULER, Incident, WorkerHosts
from flightlog.analyze.failures import collect_failures, counts_by_root, find_roots, list_roots, texts_of
from flightlog.analyze.history.attempts import decoded_args
from flightlog.analyze.limits import DiagnosisLimits
from flightlog.core.text import words
from flightlog.events.base import Json
from flightlog.store.liveness import latest, unix_time

if TYPE_CHECKING:
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables


LOST_TYPES = words(
    "WorkerLost KilledWorker distributed.scheduler.KilledWorker SchedulerLost OUT_OF_MEMORY TIMEOUT "
    "PREEMPTED REQUEUED NODE_FAIL BOOT_FAIL DEADLINE REVOKED ray.exceptions.ActorDiedError ActorDiedError "
    "ray.exceptions.WorkerCrashedError WorkerCrashedError ray.exceptions.NodeDiedError"
)
"""What attempts end with that did nothing wrong: their worker or their job was ended."""


def collect(tables: RunTables, workers: WorkerHosts) -> None:
    """Make `ended`, `failure_records` and `rooted`, which says of every failure what it stands under, `root`.

    Failures of dependents stand under what they depend on; the table `given_up` has, by root, how many tasks
    were cancelled for that reason.
    """
    tables.execute(_ENDED)
    collect_failures(tables)
    _attribute_to_incidents(tables, workers)
    find_roots(tables, "UNION ALL SELECT task_id, words FROM ended WHERE event = 'task_cancelled'")
    tables.execute(_GIVEN_UP)


_ENDED = """
CREATE OR REPLACE TEMP VIEW ended AS
SELECT ['task_retried', 'task_completed', 'task_failed', 'task_cancelled'][kind - 3] AS event, task, task_id,
    attempt, component, worker, "timestamp" AS moment, duration_s, peak_rss_bytes, left(reason, 500) AS words,
    left(CAST(args AS VARCHAR), 2000) AS args
FROM task_lines WHERE kind >= 4
"""

_GIVEN_UP = """
CREATE OR REPLACE TEMP TABLE given_up AS
SELECT root, count(*) AS number FROM climbs
JOIN (SELECT DISTINCT task_id FROM ended WHERE event = 'task_cancelled') USING (task_id)
JOIN (SELECT task_id, arg_max(root, attempt) AS root FROM rooted WHERE task_id IS NOT NULL
    GROUP BY task_id) AS upper
    ON upper.task_id = climbs.above
GROUP BY root
"""


def _attribute_to_incidents(tables: RunTables, workers: WorkerHosts) -> None:
    """Mark in `failure_records` what ended with a lost worker or an ended job."""
    rows = [
        (lost.worker, unix_time(lost.timestamp), incident.key)
        for incident in workers.incidents
        for lost in incident.losses
    ]
    tasks = [
        (task_id, f"job {job.state}")
        for task_id, job in workers.task_jobs.items()
        if job.state in ENDED_BY_SCHEDULER and job.state != "CANCELLED"
    ]
    tables.keep("losses", {"worker": "VARCHAR", "gone_at": "DOUBLE", "incident": "VARCHAR"}, rows)
    tables.keep("job_tasks", {"task_id": "VARCHAR", "incident": "VARCHAR"}, tasks)
    tables.execute(_ATTRIBUTE, {"types": sorted(LOST_TYPES)})
    tables.execute(_ATTRIBUTE_TASKS, {"types": sorted(LOST_TYPES)})


_ATTRIBUTE = """
UPDATE failure_records SET incident = nearest.incident FROM (
    SELECT failure_records.rowid AS at_row, arg_min(losses.incident, abs(coalesce(gone_at, 0) -
        coalesce(epoch(moment), 0)))
        AS incident
    FROM failure_records JOIN losses USING (worker)
    WHERE error_type IN (SELECT unnest($types::VARCHAR[])) OR scope = 'worker' GROUP BY failure_records.rowid
) AS nearest WHERE failure_records.rowid = nearest.at_row
"""
"""A name may be used again by a later worker: the loss nearest in time counts."""

_ATTRIBUTE_TASKS = """
UPDATE failure_records SET incident = job_tasks.incident FROM job_tasks
WHERE failure_records.task_id = job_tasks.task_id AND failure_records.incident IS NULL
    AND (error_type IN (SELECT unnest($types::VARCHAR[])) OR signal IS NOT NULL OR scope = 'worker')
"""


class RunningAttempt(Struct, frozen=True):
    """An attempt that was under way when the run ended."""

    args: Json
    task: str
    worker: str | None
    lasted_s: float


class Group(Struct, kw_only=True):
    """Failures with one root; texts and facts are of the earliest one that is not a dependent's."""

    root: str
    incident: str | None = None
    lost: Incident | None = None
    """The workers and jobs whose end it is."""
    count: int
    """Without the dependents."""
    dependents: int = 0
    given_up: int = 0
    """Tasks that were cancelled because one that they depend on had failed of it."""
    first: str | None = None
    last: str | None = None
    at: float | None = None
    """Unix seconds of the example."""
    last_at: float | None = None
    tasks: dict[str, int] = {}
    workers: dict[str, int] = {}
    recovered: int = 0
    failed: int = 0
    """Tasks of it that did not complete in any attempt."""
    lost_tasks: int = 0
    scope: str = "task"
    error_type: str | None = None
    message: str | None = None
    fingerprint: str | None = None
    task: str | None = None
    task_id: str | None = None
    attempt: int | None = None
    worker: str | None = None
    host: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    traceback: str | None = None
    output_tail: str | None = None
    component: str | None = None
    duration_s: float | None = None
    peak_rss_bytes: int | None = None
    """The largest of its attempts that ended so."""
    last_peak_bytes: int | None = None
    nonfinite: tuple[str, ...] = ()
    args: Json | None = None
    recorded_in: str = "failures.jsonl"
    suspect: tuple[str, str, int] | None = None
    """Of workers that were lost: the task that most of them had, its id, and how many had it; None below
    two."""
    cancelled_by: str | None = None
    """Of the end of a run: who or what interrupted it."""
    in_flight: int = 0
    """Attempts that were under way when the run ended of it."""
    under_way: list[RunningAttempt] = []
    """Some of these, the one that began first first."""


class GroupCounts(Struct, frozen=True):
    """Of the whole run."""

    failures: int
    roots: int
    tasks_failed: int
    recovered: int


def find_groups(run: Run, tables: RunTables, workers: WorkerHosts) -> tuple[list[Group], GroupCounts]:
    """The groups that hit most, from `rooted`, `ended` and `failures`, in the order of their size; then lost
    workers and jobs that no failure belongs to, and the run's own end.
    """
    list_roots(tables, DiagnosisLimits.max_causes)
    tasks, at = (
        counts_by_root(tables, column, DiagnosisLimits.max_named, "NOT dependent")
        for column in ("name", "worker")
    )
    groups: dict[str, Group] = {}
    for row in tables.records(_GROUPS):
        row["nonfinite"] = tuple(sorted(decoded_args(row["nonfinite"])))
        row["args"] = decoded_args(row["args"]) or None
        root = row["root"]
        groups[root] = Group(**row, tasks=tasks.get(root, {}), workers=at.get(root, {}))
    _add_texts(tables, groups)
    for incident in workers.incidents:
        group = groups.setdefault(incident.key, _of_incident(incident))
        group.lost = incident
        if group.worker is None and incident.losses:
            group.worker = incident.losses[0].worker
    [whole] = tables.execute(_WHOLE).fetchall()
    counts = GroupCounts(*whole)
    flying = dict(tables.execute(_FLYING).fetchall())
    for group in groups.values():
        if group.scope == "run" and flying:
            group.tasks, group.in_flight = _few(flying), sum(flying.values())
            under_way = tables.rows(_UNDER_WAY, {"few": DiagnosisLimits.max_under_way})
            group.under_way = [RunningAttempt(decoded_args(args), *rest) for args, *rest in under_way]
    end = _run_end(run, tables, flying, recorded=bool(groups) or run.info.status != "failed")
    if end is not None:
        counts = msgspec.structs.replace(counts, failures=counts.failures + 1)
        states = {f"job {job.state}" for job in workers.run_jobs} if run.status == "crashed" else ()
        above = next((group for group in groups.values() if group.incident in states), None)
        if above is None:
            groups[end.root] = end
        else:  # the end of the job explains that of the run in it
            above.cancelled_by, above.in_flight = end.cancelled_by, end.in_flight
    for root, number in tables.execute("SELECT root, number FROM given_up").fetchall():
        if root in groups:
            groups[root].given_up = number
    for group in groups.values():
        group.host = workers.hosts.get(group.worker or "") or run.info.host or None
    return list(groups.values()), counts


def _of_incident(incident: Incident) -> Group:
    times = [lost.timestamp for lost in incident.losses] + [job.timestamp for job in incident.jobs]
    known = (unix_time(lost.timestamp) for lost in incident.losses)
    at = next((moment for moment in known if moment is not None), None)
    return Group(
        root=incident.key,
        incident=incident.key,
        count=0,
        first=min(times),
        last=max(times),
        at=at,
        last_at=at,
        scope="worker",
        workers={lost.worker: 1 for lost in incident.losses[: DiagnosisLimits.max_named]},
    )


def _add_texts(tables: RunTables, groups: dict[str, Group]) -> None:
    found = texts_of(tables, {root: (group.task_id, group.attempt) for root, group in groups.items()})
    for root, group in groups.items():
        if texts := found.get(root):
            group.message, group.traceback = texts.message or group.message, texts.traceback
            group.output_tail = texts.output_tail
        elif group.task_id is not None:  # no line of it is in `failures`
            group.recorded_in = "tasks.jsonl"


_GROUPS = """
WITH shown AS (SELECT * FROM rooted WHERE NOT dependent AND root IN (SELECT root FROM top)
), tasks AS (
    SELECT root, count(DISTINCT shown.task_id) FILTER (done.task_id IS NOT NULL) AS recovered,
        count(DISTINCT shown.task_id) FILTER (done.task_id IS NULL) AS failed,
        count(DISTINCT shown.task_id) FILTER (incident IS NOT NULL) AS lost_tasks
    FROM shown LEFT JOIN (SELECT DISTINCT task_id FROM ended WHERE event = 'task_completed') AS done
        USING (task_id) GROUP BY root
), suspects AS ( -- one alone: where several tasks were on the lost workers, none of them stands out
    SELECT root, row(any_value(name), task_id, count(DISTINCT worker)) AS suspect FROM shown
    WHERE incident IS NOT NULL AND task_id IS NOT NULL AND name IS NOT NULL
    GROUP BY root, task_id HAVING count(DISTINCT worker) > 1
    QUALIFY row_number() OVER (PARTITION BY root ORDER BY count(DISTINCT worker) DESC, task_id) = 1
        AND count(*) OVER (PARTITION BY root, count(DISTINCT worker)) = 1
), odd AS (
    SELECT task_id, attempt, max(CAST(nonfinite AS VARCHAR)) AS nonfinite FROM task_events
    WHERE event = 'task_failed' AND nonfinite IS NOT NULL GROUP BY ALL
), ends AS (
    SELECT root, max(peak_rss_bytes) AS peak_rss_bytes,
        arg_max(peak_rss_bytes, ended.moment) AS last_peak_bytes,
        any_value(component) FILTER (is_example) AS component,
        any_value(duration_s) FILTER (is_example) AS duration_s,
        any_value(nonfinite) FILTER (is_example) AS nonfinite, any_value(args) FILTER (is_example) AS args
    FROM (
        SELECT root, shown.task_id, shown.attempt, (shown.task_id, shown.attempt) IS NOT DISTINCT
            FROM (top.example.task_id, top.example.attempt) AS is_example
        FROM shown JOIN top USING (root)
    ) JOIN (FROM ended WHERE event = 'task_failed') AS ended USING (task_id, attempt)
    LEFT JOIN odd USING (task_id, attempt) GROUP BY root
)
SELECT root, incident, number AS count, dependents, strftime(first, '%Y-%m-%dT%H:%M:%S.%fZ') AS first,
    strftime(last, '%Y-%m-%dT%H:%M:%S.%fZ') AS last, epoch(top.first) AS at, epoch(top.last) AS last_at,
    coalesce(example.scope, 'task') AS scope, example.error_type AS error_type, example.words AS message,
    nullif(example.fingerprint, '') AS fingerprint, example.name AS task, example.task_id AS task_id,
    example.attempt AS attempt, example.worker AS worker, example.exit_code AS exit_code,
    example.signal AS signal, tasks.* EXCLUDE (root), suspect, ends.* EXCLUDE (root)
FROM top LEFT JOIN tasks USING (root) LEFT JOIN suspects USING (root) LEFT JOIN ends USING (root)
ORDER BY number + dependents DESC, top.first, root
"""

_WHOLE = """
SELECT (SELECT count(*) FROM rooted), (SELECT count(DISTINCT root) FROM rooted),
    (SELECT count(DISTINCT task_id) FROM ended WHERE event = 'task_failed' AND task_id NOT IN (
        SELECT task_id FROM ended WHERE event = 'task_completed')),
    (SELECT count(DISTINCT task_id) FROM ended WHERE event = 'task_completed' AND task_id IN (
        SELECT task_id FROM rooted))
"""


def _few(tasks: dict[str, int]) -> dict[str, int]:
    return dict(list(tasks.items())[: DiagnosisLimits.max_named])


def _run_end(run: Run, tables: RunTables, flying: dict[str, int], *, recorded: bool) -> Group | None:
    """The run's own end; None where it ended well, is running, or an event has `recorded` its failure."""
    status, info = run.status, run.info
    if status not in {"crashed", "interrupted", "failed"} or (status == "failed" and recorded):
        return None
    # A run that was killed is last known by a heartbeat, the end of a task or a sample.
    beats = (info.heartbeat, *(writer.heartbeat for writer in run.writers()))
    end = info.end_time or latest(*beats, tables.scalar(_LAST))
    begun, gone = unix_time(info.start_time), unix_time(end)
    return Group(
        root=f"the run {status}",
        count=1,
        first=end,
        last=end,
        at=gone,
        last_at=gone,
        duration_s=None if begun is None or gone is None else max(0.0, gone - begun),
        scope="run",
        message=info.error,
        exit_code=info.exit_code,
        signal=info.signal,
        tasks=_few(flying),
        recorded_in="run.json",
        cancelled_by=(info.signal or info.error or "the program was told to stop")
        if status == "interrupted"
        else None,
        in_flight=sum(flying.values()),
    )


_LAST = """
SELECT strftime(max(moment), '%Y-%m-%dT%H:%M:%S.%fZ') FROM (
    SELECT moment FROM ended UNION ALL SELECT "timestamp" FROM resources UNION ALL SELECT "timestamp"
        FROM metrics
    UNION ALL SELECT "timestamp" FROM workers UNION ALL SELECT "timestamp" FROM failures
)
"""

_UNDER_WAY = """
SELECT args::VARCHAR, task, worker, (stopped - began) / 1e9 FROM attempt_intervals
WHERE state = 'running' AND task IS NOT NULL ORDER BY began, task_id LIMIT $few
"""

_FLYING = """
SELECT base_name(task) AS name, count(*) AS number FROM attempts WHERE state = 'running' AND task IS NOT NULL
GROUP BY name ORDER BY number DESC, name
"""
