"""Failures by cause, with everything that tells one from another: when, where, of what, at which attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from flightlog.analyze.failures import FailureSummary
from flightlog.events.base import Json

if TYPE_CHECKING:
    import duckdb

EXAMPLES = 3
"""How many failures of a cause are listed, the earliest; `count` is of all."""
LISTED = 20
"""How many workers, tasks and attempts are listed of a cause, the most frequent first."""


class FailureCase(Struct, frozen=True, kw_only=True):
    """One failure."""

    timestamp: str | None
    task: str | None
    task_id: str | None
    args: Json | None
    worker: str | None
    attempt: int | None


class FailureCause(Struct, frozen=True, kw_only=True):
    """All failures with one cause."""

    fingerprint: str | None
    error_type: str | None
    message: str | None
    """Of the earliest."""
    count: int
    first: str | None
    last: str | None
    tasks: dict[str, int]
    """How often, by name of the task."""
    workers: dict[str, int]
    attempts: dict[str, int]
    """How often, by which attempt it was."""
    cases: list[FailureCase]
    traceback: str | None


def failure_groups(connection: duckdb.DuckDBPyConnection, summary: FailureSummary) -> list[FailureCause]:
    """The causes that the summary lists, in its order, from the run's `failures`, `task_events` and `held`.

    A failed attempt stands in `failures` and in `tasks`; here it counts once, and the count is the summary's.
    An error that ended a task and then the run, too, is that task's.
    """
    if not summary.count:
        return []
    connection.execute(_CASES)
    spans = {cause: (first, last) for cause, first, last in connection.execute(_BOUNDS).fetchall()}
    counts = {column: _counts(connection, column) for column in ("task", "worker", "attempt")}
    cases: dict[str, list[FailureCase]] = {}
    for cause, *case in connection.execute(_EXAMPLES, {"few": EXAMPLES}).fetchall():
        cases.setdefault(cause, []).append(_case(*case))
    found = []
    for group in summary.by_cause:
        key = group.fingerprint or f"{group.error_type or ''}\n{(group.message or '').partition(chr(10))[0]}"
        first, last = spans.get(key, (None, None))
        found.append(
            FailureCause(
                fingerprint=group.fingerprint,
                error_type=group.error_type,
                message=group.message,
                count=group.count,
                first=first,
                last=last,
                tasks=counts["task"].get(key, {}),
                workers=counts["worker"].get(key, {}),
                attempts=counts["attempt"].get(key, {}),
                cases=cases.get(key, []),
                traceback=group.example.traceback,
            )
        )
    return found


def _counts(connection: duckdb.DuckDBPyConnection, column: str) -> dict[str, dict[str, int]]:
    """By cause how often each value occurs, the most frequent first."""
    rows = connection.execute(
        f"""
        SELECT cause, {column}::VARCHAR AS value, count(*) AS number FROM cases WHERE {column} IS NOT NULL
        GROUP BY cause, value
        QUALIFY row_number() OVER (PARTITION BY cause ORDER BY count(*) DESC, value) <= $listed
        ORDER BY cause, number DESC, value
        """,  # noqa: S608 - the column is one of three
        {"listed": LISTED},
    ).fetchall()
    found: dict[str, dict[str, int]] = {}
    for cause, value, number in rows:
        found.setdefault(cause, {})[value] = number
    return found


def _case(
    moment: str | None,
    task: str | None,
    task_id: str | None,
    attempt: int | None,
    worker: str | None,
    args: str | None,
) -> FailureCase:
    known = msgspec.json.decode(args) if args else None
    return FailureCase(
        timestamp=moment,
        task=task,
        task_id=task_id,
        attempt=attempt,
        worker=worker,
        args=known if isinstance(known, dict) else None,
    )


_CASES = """
CREATE OR REPLACE TEMP TABLE cases AS
WITH accounts AS (
    SELECT fingerprint, error_type, message, "timestamp" AS moment, task, task_id, attempt, worker,
        scope = 'run' AND task_id IS NULL AS of_run FROM failures
    UNION ALL
    SELECT fingerprint, error_type, error_message, "timestamp", task, task_id, attempt, worker, false
    FROM task_events WHERE event = 'task_failed'
), told AS (
    SELECT CASE WHEN fingerprint <> '' THEN fingerprint
        ELSE coalesce(error_type, '') || chr(10) || split_part(coalesce(message, ''), chr(10), 1)
            END AS cause, *
    FROM accounts
)
SELECT cause, min(moment) AS moment, max(task) AS task, task_id, coalesce(attempt, 1) AS attempt,
    max(worker) AS worker
FROM told WHERE task_id IS NOT NULL GROUP BY cause, task_id, coalesce(attempt, 1)
UNION ALL
SELECT cause, moment, task, NULL, attempt, worker FROM told WHERE task_id IS NULL
    AND (NOT of_run OR cause NOT IN (SELECT cause FROM told WHERE NOT of_run))
"""

_BOUNDS = """
SELECT cause, strftime(min(moment), '%Y-%m-%dT%H:%M:%S.%fZ'), strftime(max(moment), '%Y-%m-%dT%H:%M:%S.%fZ')
FROM cases GROUP BY cause
"""

_EXAMPLES = """
WITH few AS (
    SELECT * FROM cases QUALIFY row_number() OVER (PARTITION BY cause
        ORDER BY moment, task_id, attempt) <= $few
), arguments AS (
    SELECT task_id, arg_min(args, attempt) AS args FROM held WHERE task_id IN (SELECT task_id FROM few)
        GROUP BY task_id
)
SELECT cause, strftime(moment, '%Y-%m-%dT%H:%M:%S.%fZ'), task, few.task_id, attempt, worker, args
FROM few LEFT JOIN arguments USING (task_id) ORDER BY cause, moment, few.task_id, attempt
"""
