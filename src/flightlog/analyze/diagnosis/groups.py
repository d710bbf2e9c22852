"""Failures grouped by what they have in common, with counts, an example and its texts; and how the run
ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from flightlog.events.base import Json
from flightlog.store.liveness import latest, unix_time

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run

LISTED = 30
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


def find_groups(connection: duckdb.DuckDBPyConnection) -> tuple[list[Group], GroupCounts]:
    """The groups that hit most, from `rooted`, `ended` and `failures`; the order is that of their size."""
    connection.execute(_TOP, {"listed": LISTED})
    groups: dict[str, Group] = {}
    for row in connection.execute(_GROUPS).fetchall():
        group = Group(**dict(zip(_FIELDS, row, strict=True)))
        groups[group.root] = group
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


def _add_attempts(connection: duckdb.DuckDBPyConnection, groups: dict[str, Group]) -> None:
    for root, peak, last_peak, *example in connection.execute(_ATTEMPTS).fetchall():
        group = groups[root]
        group.peak_rss_bytes, group.last_peak_bytes = peak, last_peak
        group.component, group.duration_s, nonfinite, args = example
        group.nonfinite = tuple(sorted(_decoded(nonfinite)))
        group.args = _decoded(args) or None


def _add_texts(connection: duckdb.DuckDBPyConnection, groups: dict[str, Group]) -> None:
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

_FIELDS = (
    "root",
    "incident",
    "count",
    "dependents",
    "first",
    "last",
    "at",
    "last_at",
    "scope",
    "error_type",
    "message",
    "fingerprint",
    "task",
    "task_id",
    "attempt",
    "worker",
    "exit_code",
    "signal",
)

_GROUPS = """
SELECT root, incident, number, dependents, strftime(first, '%Y-%m-%dT%H:%M:%S.%fZ'),
    strftime(last, '%Y-%m-%dT%H:%M:%S.%fZ'), epoch(first), epoch(last), coalesce(example.scope, 'task'),
    example.error_type, example.words, nullif(example.fingerprint, ''), example.task, example.task_id,
    example.attempt, example.worker, example.exit_code, example.signal
FROM top WHERE number > 0 ORDER BY number + dependents DESC, first, root
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


def run_end(run: Run, connection: duckdb.DuckDBPyConnection, *, told: bool) -> RunEnd | None:
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


def _last_sign(run: Run, connection: duckdb.DuckDBPyConnection) -> str | None:
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
