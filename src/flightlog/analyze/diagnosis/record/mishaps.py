"""Everything of a run that went wrong, once each, in tables of a connection: `ended` and `mishaps`.

`ended` has one row for each line that ends an attempt, without the large texts. `mishaps` has one row for
each failed attempt, whichever of its accounts are there, and for each failure of a run, worker or command
without a task. `task_name(task)` is `sim` of `sim[3]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

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


def collect(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the two tables. Goes through `tasks` once and through `failures` once; keeps no tracebacks."""
    connection.execute(_MACROS)
    connection.execute(_ENDED)
    connection.execute(_MISHAPS)
    connection.execute(_FOLD_RUN)


def explain_dependents(connection: duckdb.DuckDBPyConnection) -> None:
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


_MACROS = """
CREATE OR REPLACE TEMP MACRO task_name(task) AS regexp_replace(task, '\\[[0-9]+\\]$', '');
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
CREATE OR REPLACE TEMP TABLE mishaps AS
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
DELETE FROM mishaps WHERE scope = 'run' AND task_id IS NULL AND EXISTS (
    SELECT 1 FROM mishaps AS others WHERE others.task_id IS NOT NULL AND (others.cause = mishaps.cause
        OR (others.error_type = mishaps.error_type AND others.words = mishaps.words)))
"""
"""An error that ended a task and then, raised again, the run is that task's."""

_CLIMBS = """
CREATE OR REPLACE TEMP TABLE climbs AS
SELECT task_id, any_value(needed(words)) AS above FROM (
    SELECT task_id, words FROM mishaps WHERE error_type = 'DependencyFailed'
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
    SELECT task_id, arg_max(coalesce(incident, cause), attempt) AS root FROM mishaps
    WHERE task_id IS NOT NULL AND error_type IS DISTINCT FROM 'DependencyFailed' GROUP BY task_id
)
SELECT mishaps.*, coalesce(own.root, incident, cause) AS root, own.root IS NOT NULL AS dependent
FROM mishaps LEFT JOIN climbs ON climbs.task_id = mishaps.task_id AND mishaps.error_type = 'DependencyFailed'
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
