"""Failures of two sides by their cause: those that are new, those that are gone, those that stayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flightlog.analyze.changes import FailureChange

if TYPE_CHECKING:
    import duckdb

_CAUSES = """
WITH recorded AS (
    SELECT run_id, CASE WHEN fingerprint <> '' THEN fingerprint
            ELSE coalesce(error_type, '') || chr(0) || split_part(coalesce(message, ''), chr(10), 1)
                END AS cause,
        fingerprint, error_type, message, task, timestamp AS seen,
        CASE WHEN task_id IS NOT NULL THEN 'task' WHEN scope = 'run' THEN 'run' ELSE 'elsewhere' END AS place
    FROM failures WHERE event = 'failure'
    UNION ALL
    SELECT run_id, CASE WHEN fingerprint <> '' THEN fingerprint
            ELSE coalesce(error_type, '') || chr(0) || split_part(coalesce(error_message, ''), chr(10), 1)
                END,
        fingerprint, error_type, error_message, task, timestamp, 'attempt'
    FROM failed_tasks
)
SELECT cause, sides.side, sides.run, count(*) FILTER (place = 'task'), count(*) FILTER (place = 'attempt'),
    count(*) FILTER (place = 'elsewhere'), count(*) FILTER (place = 'run'),
    any_value(fingerprint), arg_min(error_type, seen), arg_min(message, seen), list(DISTINCT task)
        FILTER (task IS NOT NULL)
FROM recorded JOIN sides USING (run_id) GROUP BY cause, sides.side, sides.run ORDER BY cause, sides.side,
    sides.run
"""
"""Grouped as `analyze.failures` does."""


def compare_failures(connection: duckdb.DuckDBPyConnection) -> list[FailureChange]:
    """Every cause with its count on both sides, all runs of a side together; new ones first, then gone, by
    count.

    A failed task stands in `failures` and in `tasks`, and counts once, wherever it was found.
    """
    found: dict[str, list[tuple[Any, ...]]] = {}
    for cause, *rest in connection.execute(_CAUSES).fetchall():
        found.setdefault(cause, []).append(tuple(rest))
    changes = [_change(rows) for rows in found.values()]
    rank = {"appeared": 0, "vanished": 1, "both": 2}
    return sorted(
        changes,
        key=lambda change: (
            rank[change.state],
            -(change.before + change.after),
            change.error_type or "",
            change.message or "",
        ),
    )


def _change(rows: list[tuple[Any, ...]]) -> FailureChange:
    counts = [0, 0]
    for side, _, in_tasks, attempts, elsewhere, in_run, *_ in rows:
        counts[side] += max(in_tasks, attempts) + elsewhere or in_run
    fingerprint, error_type, message = rows[-1][6:9]
    return FailureChange(
        state="appeared" if not counts[0] else "vanished" if not counts[1] else "both",
        fingerprint=fingerprint or None,
        error_type=error_type,
        message=message,
        tasks=sorted({task for row in rows for task in row[9] or ()}),
        before=counts[0],
        after=counts[1],
    )
