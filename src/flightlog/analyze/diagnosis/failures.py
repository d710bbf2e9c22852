"""Everything of a run that went wrong, once each, in tables of a connection: `ended` and `failure_records`.

`ended` has one row for each line that ends an attempt, without the large texts. `failure_records` has one row
for each failed attempt, whichever of its accounts are there, and for each failure of a run, worker or command
without a task. `task_name(task)` is the base name, `sim` of `sim[3]`. Failures that came of a lost host,
worker or job are attributed to it. Values that became NaN are found here too.

`find_groups` puts failures with the same root together: counts, an example and its texts. `run_end` says how
the run itself ended.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from flightlog.core.text import INDEX
from flightlog.events import JobAccounted, JobStarted, WorkerEvent, WorkerLost
from flightlog.events.base import Json
from flightlog.store.liveness import latest, unix_time
from flightlog.store.tables.connection import records

if TYPE_CHECKING:
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables


VIEWS = frozenset({"task_events", "failures", "workers", "jobs", "resources", "metrics", "span_events"})
"""The views that a diagnosis reads."""

LOST_TYPES = (
    "WorkerLost",
    "KilledWorker",
    "distributed.scheduler.KilledWorker",
    "SchedulerLost",
    "OUT_OF_MEMORY",
    "TIMEOUT",
    "PREEMPTED",
    "REQUEUED",
    "NODE_FAIL",
    "BOOT_FAIL",
    "DEADLINE",
    "REVOKED",
    "ray.exceptions.ActorDiedError",
    "ray.exceptions.WorkerCrashedError",
    "ray.exceptions.NodeDiedError",
    "ActorDiedError",
    "WorkerCrashedError",
)
"""What attempts end with that did nothing wrong: their worker or their job was ended."""
LONGEST = 64
"""Rounds in which chains of dependents are followed; each doubles the distance."""


def collect(connection: RunTables) -> None:
    """Make the two tables. Goes through `tasks` once and through `failures` once; keeps no tracebacks."""
    connection.execute(_MACROS)
    connection.execute(_ENDED)
    connection.execute(_MISHAPS)
    connection.execute(_FOLD_RUN)


def explain_dependents(connection: RunTables) -> None:
    """Say of every mishap what it stands under, `root`, and lay those of dependents to what they depend on.

    The table `given_up` then has, by root, how many tasks were cancelled for that reason.
    """
    connection.execute(_CLIMBS)
    for _ in range(LONGEST):
        row = connection.execute(_CLIMB).fetchone()
        if not row or not row[0]:
            break
    connection.execute(_ROOTS)
    connection.execute(_GIVEN_UP)


_MACROS = f"""
CREATE OR REPLACE TEMP MACRO task_name(task) AS regexp_replace(task, '{INDEX}', '\\1');
CREATE OR REPLACE TEMP MACRO needed(words) AS
    nullif(regexp_extract(words, '^[^\\n]*? \\(([^()\\s]+)\\), which [^\\n]*? depends on, ', 1), '');
CREATE OR REPLACE TEMP MACRO cause_of(fingerprint, error_type, message) AS
    CASE WHEN fingerprint <> '' THEN fingerprint ELSE coalesce(error_type, '') || chr(10) || regexp_replace(
        left(split_part(coalesce(message, ''), chr(10), 1), 300), '0x[0-9a-fA-F]+|[0-9]+', '#', 'g') END;
"""

_ENDED = """
CREATE OR REPLACE TEMP TABLE ended AS
SELECT event, task_name(task) AS task, task_id, attempt, component, worker, "timestamp" AS moment, duration_s,
    peak_rss_bytes, CASE WHEN event = 'task_failed' THEN error_type END AS error_type,
    CASE WHEN event = 'task_failed' THEN left(error_message, 500) ELSE left(reason, 500) END AS words,
    exit_code, fingerprint, nonfinite,
    CASE WHEN event = 'task_failed' THEN left(CAST(args AS VARCHAR), 2000) END AS args
FROM task_events WHERE event IN ('task_completed', 'task_failed', 'task_cancelled', 'task_retried')
"""

_MISHAPS = """
CREATE OR REPLACE TEMP TABLE failure_records AS
WITH accounts AS (
    SELECT 0 AS rank, scope, error_type, left(message, 500) AS words, fingerprint, task_name(task) AS task,
        task_id,
        coalesce(attempt, 1) AS attempt, worker, exit_code, signal, "timestamp" AS moment
    FROM failures
    UNION ALL
    SELECT 1, 'task', error_type, words, fingerprint, task, task_id, attempt, worker, exit_code, NULL, moment
    FROM ended WHERE event = 'task_failed'
    UNION ALL
    SELECT 2, 'task', nullif(regexp_extract(words, '^((?:[A-Za-z0-9_]+[.])*[A-Z][A-Za-z0-9_]*)(?:: |$)', 1),
        ''), words,
        NULL, task, task_id, attempt, worker, NULL, NULL, moment
    FROM ended WHERE event = 'task_retried'
), told AS (
    SELECT arg_min(scope, rank) AS scope, arg_min(error_type, rank) AS error_type,
        arg_min(words, rank) AS words,
        arg_min(fingerprint, rank) AS fingerprint, max(task) AS task, task_id, attempt, max(worker) AS worker,
        max(exit_code) AS exit_code, max(signal) AS signal, min(moment) AS moment
    FROM accounts WHERE task_id IS NOT NULL GROUP BY task_id, attempt, scope = 'worker'
    UNION ALL
    SELECT scope, error_type, words, fingerprint, task, NULL, attempt, worker, exit_code, signal, moment
    FROM accounts WHERE task_id IS NULL
)
SELECT cause_of(fingerprint, error_type, words) AS cause, *, CAST(NULL AS VARCHAR) AS incident FROM told
"""
"""Of the accounts of one attempt that in `failures` comes first: it knows most. What a batch system says of
an attempt that has its own account (scope `worker`) stands beside it."""

_FOLD_RUN = """
DELETE FROM failure_records WHERE scope = 'run' AND task_id IS NULL AND EXISTS (
    SELECT 1 FROM failure_records AS others WHERE others.task_id IS NOT NULL
        AND (others.cause = failure_records.cause
        OR (others.error_type = failure_records.error_type AND others.words = failure_records.words)))
"""
"""An error that ended a task and then, raised again, the run is that task's."""

_CLIMBS = """
CREATE OR REPLACE TEMP TABLE climbs AS
SELECT task_id, any_value(needed(words)) AS above FROM (
    SELECT task_id, words FROM failure_records WHERE error_type = 'DependencyFailed'
    UNION ALL SELECT task_id, words FROM ended WHERE event = 'task_cancelled'
) WHERE needed(words) <> task_id GROUP BY task_id
"""

_CLIMB = """
UPDATE climbs SET above = higher.above FROM climbs AS higher
WHERE climbs.above = higher.task_id AND higher.above <> climbs.above AND higher.above <> climbs.task_id
"""

_ROOTS = """
CREATE OR REPLACE TEMP TABLE rooted AS
WITH own AS (
    SELECT task_id, arg_max(coalesce(incident, cause), attempt) AS root FROM failure_records
    WHERE task_id IS NOT NULL AND error_type IS DISTINCT FROM 'DependencyFailed' GROUP BY task_id
)
SELECT failure_records.*, coalesce(own.root, incident, cause) AS root, own.root IS NOT NULL AS dependent
FROM failure_records LEFT JOIN climbs ON climbs.task_id = failure_records.task_id
    AND failure_records.error_type = 'DependencyFailed'
LEFT JOIN own ON own.task_id = climbs.above
"""
"""Only where the failure of what they depend on is in the record; other dependents stay a cause of their
own."""

_GIVEN_UP = """
CREATE OR REPLACE TEMP TABLE given_up AS
SELECT root, count(*) AS number FROM climbs
JOIN (SELECT DISTINCT task_id FROM ended WHERE event = 'task_cancelled') USING (task_id)
JOIN (SELECT task_id, arg_max(root, attempt) AS root FROM rooted WHERE task_id IS NOT NULL
    GROUP BY task_id) AS upper
    ON upper.task_id = climbs.above
GROUP BY root
"""


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


class WorkerHosts(Struct, kw_only=True):
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


def read_workers(run: Run) -> WorkerHosts:
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
    return WorkerHosts(
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


def lay_to_incidents(connection: RunTables, workers: WorkerHosts) -> None:
    """Mark in `failure_records` what ended with a lost worker or an ended job."""
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
UPDATE failure_records SET incident = nearest.incident FROM (
    SELECT failure_records.rowid AS at_row, arg_min(losses.incident, abs(coalesce(gone_at, 0) -
        coalesce(epoch(moment), 0)))
        AS incident
    FROM failure_records JOIN losses USING (worker)
    WHERE error_type IN (SELECT unnest($types::VARCHAR[])) OR scope = 'worker' GROUP BY failure_records.rowid
) AS nearest WHERE failure_records.rowid = nearest.at_row
"""
"""A name may be used again by a later worker: the loss nearest in time counts."""

_LAY_TASKS = """
UPDATE failure_records SET incident = job_tasks.incident FROM job_tasks
WHERE failure_records.task_id = job_tasks.task_id AND failure_records.incident IS NULL
    AND (error_type IN (SELECT unnest($types::VARCHAR[])) OR signal IS NOT NULL OR scope = 'worker')
"""


MOST_NONFINITE = 20


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


def read_nonfinite(connection: RunTables) -> list[Nonfinite]:
    """The earliest first, from `metrics`, `span_events` and `ended`."""
    found = [Nonfinite(**row) for row in records(connection.execute(_FOUND, {"few": MOST_NONFINITE}))]
    return sorted(found, key=lambda one: (one.at if one.at is not None else 0.0, one.name, one.file))


_FOUND = """
WITH marked AS (
    SELECT 'metrics.jsonl' AS file, 'metric' AS event, name, "timestamp" AS moment, step
    FROM metrics WHERE nonfinite = 'nan'
    UNION ALL
    SELECT 'spans.jsonl', 'span', unnest(json_keys(nonfinite)), "timestamp", NULL
    FROM span_events WHERE event = 'span' AND len(CAST(nonfinite AS VARCHAR)) > 2
        AND contains(CAST(nonfinite AS VARCHAR), '"nan"')
    UNION ALL
    SELECT 'tasks.jsonl', event, unnest(json_keys(nonfinite)), moment, NULL
    FROM ended WHERE len(CAST(nonfinite AS VARCHAR)) > 2 AND contains(CAST(nonfinite AS VARCHAR), '"nan"')
)
SELECT file, any_value(event) AS event, name, count(*) AS count,
    strftime(min(moment), '%Y-%m-%dT%H:%M:%S.%fZ') AS first, epoch(min(moment)) AS at,
    arg_min(step, moment) AS step
FROM marked GROUP BY file, name ORDER BY min(moment), name LIMIT $few
"""


MOST_CAUSES = 30
"""How many causes are diagnosed, those that hit most first."""
NAMES = 20
"""How many tasks and workers of a cause are named; counts are of all."""


class Group(Struct, kw_only=True):
    """Mishaps with one root; texts and facts are of the earliest one that is not a dependent's."""

    root: str
    incident: str | None
    count: int
    """Without the dependents."""
    dependents: int
    first: str | None
    last: str | None
    at: float | None
    """Unix seconds of the example."""
    last_at: float | None
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


class GroupCounts(Struct, frozen=True):
    """Of the whole run."""

    mishaps: int
    roots: int
    tasks_failed: int
    recovered: int


def find_groups(connection: RunTables) -> tuple[list[Group], GroupCounts]:
    """The groups that hit most, from `rooted`, `ended` and `failures`; the order is that of their size."""
    connection.execute(_TOP, {"listed": MOST_CAUSES})
    groups: dict[str, Group] = {}
    for row in records(connection.execute(_GROUPS)):
        groups[row["root"]] = Group(**row)
    for column, field in (("task", "tasks"), ("worker", "workers")):
        for root, value, number in connection.execute(
            _COUNTS.format(column=column), {"names": NAMES}
        ).fetchall():
            getattr(groups[root], field)[value] = number
    for root, recovered, failed, lost in connection.execute(_RECOVERED).fetchall():
        groups[root].recovered, groups[root].failed, groups[root].lost_tasks = recovered, failed, lost
    for root, task, task_id, workers in connection.execute(_SUSPECTS).fetchall():
        groups[root].suspect = (task, task_id, workers)
    _add_attempts(connection, groups)
    _add_texts(connection, groups)
    [whole] = connection.execute(_WHOLE).fetchall()
    return list(groups.values()), GroupCounts(*whole)


def _add_attempts(connection: RunTables, groups: dict[str, Group]) -> None:
    for root, peak, last_peak, *example in connection.execute(_ATTEMPTS).fetchall():
        group = groups[root]
        group.peak_rss_bytes, group.last_peak_bytes = peak, last_peak
        group.component, group.duration_s, nonfinite, args = example
        group.nonfinite = tuple(sorted(_decoded(nonfinite)))
        group.args = _decoded(args) or None


def _add_texts(connection: RunTables, groups: dict[str, Group]) -> None:
    """Tracebacks and outputs of the examples, from `failures`; those of tasks from `tasks` have none."""
    by_task = {(group.task_id, group.attempt): group for group in groups.values() if group.task_id}
    by_cause = {group.root: group for group in groups.values() if not group.task_id}
    rows = connection.execute(_TEXTS, {"ids": [task_id for task_id, _ in by_task]}).fetchall()
    for cause, task_id, attempt, message, traceback, output in rows:
        group = by_task.get((task_id, attempt)) if task_id else by_cause.get(cause)
        if group is None:
            continue
        group.message = message or group.message
        group.traceback, group.output_tail = traceback or group.traceback, output or group.output_tail
        by_cause.pop(cause, None) if not task_id else by_task.pop((task_id, attempt))
    for group in by_task.values():  # no line of theirs is in `failures`
        group.recorded_in = "tasks.jsonl"


def _decoded(text: str | None) -> dict[str, Any]:
    """A JSON object; nothing of what is none, or was cut."""
    try:
        found = msgspec.json.decode(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


_TOP = """
CREATE OR REPLACE TEMP TABLE top AS
SELECT rooted.root, any_value(incident) AS incident, count(*) FILTER (NOT dependent) AS number,
    count(*) FILTER (dependent) AS dependents, min(moment) FILTER (NOT dependent) AS first,
        max(moment) AS last,
    arg_min(rooted, (coalesce(moment, TIMESTAMP '9999-01-01'), coalesce(task_id, ''), attempt))
        FILTER (NOT dependent)
        AS example
FROM rooted GROUP BY rooted.root
ORDER BY count(*) DESC, first, rooted.root LIMIT $listed
"""

_GROUPS = """
SELECT root, incident, number AS count, dependents, strftime(first, '%Y-%m-%dT%H:%M:%S.%fZ') AS first,
    strftime(last, '%Y-%m-%dT%H:%M:%S.%fZ') AS last, epoch(top.first) AS at, epoch(top.last) AS last_at,
    coalesce(example.scope, 'task') AS scope, example.error_type AS error_type, example.words AS message,
    nullif(example.fingerprint, '') AS fingerprint, example.task AS task, example.task_id AS task_id,
    example.attempt AS attempt, example.worker AS worker, example.exit_code AS exit_code,
    example.signal AS signal
FROM top WHERE number > 0 ORDER BY number + dependents DESC, top.first, root
"""

_COUNTS = """
SELECT root, {column}, count(*) AS number FROM rooted
WHERE {column} IS NOT NULL AND NOT dependent AND root IN (SELECT root FROM top WHERE number > 0)
    GROUP BY root, {column}
QUALIFY row_number() OVER (PARTITION BY root ORDER BY count(*) DESC, {column}) <= $names
ORDER BY root, number DESC, {column}
"""

_RECOVERED = """
SELECT root, count(DISTINCT rooted.task_id) FILTER (done.task_id IS NOT NULL),
    count(DISTINCT rooted.task_id) FILTER (done.task_id IS NULL),
    count(DISTINCT rooted.task_id) FILTER (rooted.incident IS NOT NULL)
FROM rooted LEFT JOIN (SELECT DISTINCT task_id FROM ended WHERE event = 'task_completed') AS done
    USING (task_id)
WHERE NOT dependent AND root IN (SELECT root FROM top WHERE number > 0) GROUP BY root
"""

_SUSPECTS = """
SELECT root, any_value(task), task_id, count(DISTINCT worker) AS workers FROM rooted
WHERE incident IS NOT NULL AND task_id IS NOT NULL AND task IS NOT NULL AND NOT dependent
    AND root IN (SELECT root FROM top WHERE number > 0)
GROUP BY root, task_id HAVING count(DISTINCT worker) > 1
QUALIFY row_number() OVER (PARTITION BY root ORDER BY count(DISTINCT worker) DESC, task_id) = 1
    AND count(*) OVER (PARTITION BY root, count(DISTINCT worker)) = 1
"""
"""One alone: where several tasks were on the lost workers, none of them stands out."""

_ATTEMPTS = """
SELECT rooted.root, max(peak_rss_bytes), arg_max(peak_rss_bytes, ended.moment),
    any_value(component) FILTER (is_example), any_value(duration_s) FILTER (is_example),
    any_value(CAST(nonfinite AS VARCHAR)) FILTER (is_example), any_value(args) FILTER (is_example)
FROM (
    SELECT rooted.root, rooted.task_id, rooted.attempt,
        (rooted.task_id, rooted.attempt) IS NOT DISTINCT
            FROM (top.example.task_id, top.example.attempt) AS is_example
    FROM rooted JOIN top USING (root) WHERE NOT rooted.dependent AND number > 0
) AS rooted
JOIN ended ON ended.task_id = rooted.task_id AND ended.attempt = rooted.attempt
    AND ended.event = 'task_failed'
GROUP BY rooted.root
"""

_TEXTS = """
SELECT cause_of(fingerprint, error_type, message), task_id, coalesce(attempt, 1), message, traceback,
    output_tail
FROM failures WHERE task_id IS NULL OR task_id IN (SELECT unnest($ids::VARCHAR[]))
QUALIFY row_number() OVER (PARTITION BY task_id, attempt, cause_of(fingerprint, error_type, message)
    ORDER BY "timestamp") <= 1
ORDER BY scope = 'worker', "timestamp" LIMIT 10000
"""

_WHOLE = """
SELECT (SELECT count(*) FROM rooted), (SELECT count(DISTINCT root) FROM rooted),
    (SELECT count(DISTINCT task_id) FROM ended WHERE event = 'task_failed' AND task_id NOT IN (
        SELECT task_id FROM ended WHERE event = 'task_completed')),
    (SELECT count(DISTINCT task_id) FROM ended WHERE event = 'task_completed' AND task_id IN (
        SELECT task_id FROM rooted))
"""


class RunEnd(NamedTuple):
    """A cause that is the run's own end, and what was under way then."""

    group: Group
    cancelled_by: str | None
    in_flight: int


def run_end(run: Run, connection: RunTables, *, told: bool) -> RunEnd | None:
    """The run's own end as a group; None where it ended well, is running, or its failure is `told` by an
    event.
    """
    status = run.status
    if status not in {"crashed", "interrupted", "failed"} or (status == "failed" and told):
        return None
    info = run.info
    end = info.end_time or _last_sign(run, connection)
    begun, gone = unix_time(info.start_time), unix_time(end)
    tasks: dict[str, int] = {}
    flying = 0
    if status != "failed":
        for task, number in connection.execute(_FLYING).fetchall():
            flying += number
            if len(tasks) < 20:
                tasks[task] = number
    group = Group(
        root=f"the run {status}",
        incident=None,
        count=1,
        dependents=0,
        first=end,
        last=end,
        at=gone,
        last_at=gone,
        duration_s=None if begun is None or gone is None else max(0.0, gone - begun),
        scope="run",
        message=info.error,
        exit_code=info.exit_code,
        signal=info.signal,
        tasks=tasks,
        worker=None,
        recorded_in="run.json",
    )
    by = None
    if status == "interrupted":
        by = info.signal or info.error or "the program was told to stop"
    return RunEnd(group, by, flying)


def _last_sign(run: Run, connection: RunTables) -> str | None:
    """The last heartbeat, end of a task or sample: what a run that was killed is last known by."""
    beats = [run.info.heartbeat, *(writer.heartbeat for writer in run.writers())]
    return latest(*beats, *(stamp for (stamp,) in connection.execute(_LAST).fetchall()))


_LAST = """
SELECT strftime(max(moment), '%Y-%m-%dT%H:%M:%S.%fZ') FROM (
    SELECT moment FROM ended UNION ALL SELECT "timestamp" FROM resources UNION ALL SELECT "timestamp"
        FROM metrics
    UNION ALL SELECT "timestamp" FROM workers UNION ALL SELECT "timestamp" FROM failures
)
"""

_FLYING = """
SELECT task_name(task) AS name, count(*) AS number FROM (
    SELECT task_id, attempt, any_value(task) AS task FROM task_events WHERE event = 'task_started'
        GROUP BY task_id, attempt
) AS begun ANTI JOIN ended ON ended.task_id = begun.task_id AND ended.attempt = begun.attempt
GROUP BY name ORDER BY number DESC, name
"""
