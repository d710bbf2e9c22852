"""Failures grouped by cause: a thousand tasks with one fault are one fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from flightlog.analyze.failures import (
    Texts,
    collect_failures,
    counts_by_root,
    find_roots,
    list_roots,
    texts_of,
)
from flightlog.analyze.tallies import copied
from flightlog.core.text import cut_end
from flightlog.events.base import Json

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables

LISTED = 100
"""How many groups a summary lists; `groups` is of all."""
TRACEBACK_CHARS = 8000
"""How much of a traceback a summary keeps, from its end."""


class FailureExample(Struct, frozen=True, kw_only=True):
    """The earliest failure of a group."""

    timestamp: str
    task: str | None
    task_id: str | None
    args: Json | None
    worker: str | None
    exit_code: int | None
    signal: str | None
    traceback: str | None
    output_tail: str | None


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Failures with one cause."""

    fingerprint: str | None
    scopes: list[str]
    error_type: str | None
    message: str | None
    """Of the earliest."""
    count: int
    example: FailureExample


class FailureSummary(Struct, frozen=True, kw_only=True):
    """All failures, the most frequent cause first.

    A failed attempt stands in `failures` and, without its traceback, in `tasks`. Each counts once, wherever
    it was found. An error that ended a task and then the run, too, is one failure. Failures of tasks that
    depend on a failed one count with the cause of that one.
    """

    count: int
    groups: int
    by_cause: list[FailureGroup]


def failure_summary(tables: RunTables) -> FailureSummary:
    """The failures of one run, by cause."""
    _group(tables)
    rows = tables.records(_GROUPS)
    texts = texts_of(tables, {row["root"]: (row["task_id"], row["attempt"]) for row in rows})
    found = []
    for row in rows:
        said = texts.get(row["root"], Texts(None, None, None))
        example = FailureExample(
            timestamp=row["first"],
            task=row["task"],
            task_id=row["task_id"],
            args=_object(row["args"]),
            worker=row["worker"],
            exit_code=row["exit_code"],
            signal=row["signal"],
            traceback=cut_end(said.traceback, TRACEBACK_CHARS + 1),
            output_tail=cut_end(said.output_tail, TRACEBACK_CHARS + 1),
        )
        found.append(
            FailureGroup(
                fingerprint=row["fingerprint"],
                scopes=row["scopes"],
                error_type=row["error_type"],
                message=said.message or row["message"],
                count=row["count"],
                example=example,
            )
        )
    [(count, groups)] = tables.execute("SELECT count(*), count(DISTINCT root) FROM rooted").fetchall()
    return FailureSummary(count=count, groups=groups, by_cause=found)


def _group(tables: RunTables) -> None:
    """Make `rooted` and `top`, unless they are there."""
    if not tables.scalar("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'top'"):
        collect_failures(tables, _ENDS)
        find_roots(tables)
        list_roots(tables, LISTED)


def _object(text: str | None) -> Json | None:
    found = msgspec.json.decode(text) if text else None
    return found if isinstance(found, dict) else None


_ENDS = """
SELECT 1 AS rank, task, task_id, attempt, worker, error_type, left(error_message, 500) AS words, exit_code,
    fingerprint, "timestamp" AS moment
FROM task_lines WHERE kind = 6
"""

_GROUPS = """
WITH arguments AS (
    SELECT task_id, arg_min(args, attempt) AS args FROM attempt_intervals
    WHERE task_id IN (SELECT example.task_id FROM top) GROUP BY task_id
)
SELECT root, number + dependents AS count, strftime(example.moment, '%Y-%m-%dT%H:%M:%S.%fZ') AS first,
    scopes, nullif(example.fingerprint, '') AS fingerprint, example.error_type AS error_type,
    example.words AS message, example.task AS task, example.task_id AS task_id, example.attempt AS attempt,
    example.worker AS worker, example.exit_code AS exit_code, example.signal AS signal, args
FROM top LEFT JOIN arguments ON arguments.task_id = example.task_id
ORDER BY count DESC, top.first, root
"""


EXAMPLES = 3
"""How many failures of a cause are listed, the earliest; `count` is of all."""
LISTED_IN_DETAIL = 20
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


def failure_groups(tables: RunTables, summary: FailureSummary) -> list[FailureCause]:
    """The causes that the summary lists, in its order, with when, where, of what and at which attempt."""
    if not summary.count:
        return []
    _group(tables)
    tasks, workers, attempts = (
        counts_by_root(tables, column, LISTED_IN_DETAIL) for column in ("task", "worker", "of_attempt")
    )
    cases: dict[str, list[FailureCase]] = {}
    for root, moment, task, task_id, attempt, worker, args in tables.execute(
        _EXAMPLES, {"few": EXAMPLES}
    ).fetchall():
        case = FailureCase(
            timestamp=moment,
            task=task,
            task_id=task_id,
            args=_object(args),
            worker=worker,
            attempt=attempt,
        )
        cases.setdefault(root, []).append(case)
    bounds = tables.execute(_BOUNDS).fetchall()
    return [
        copied(
            FailureCause,
            group,
            first=first,
            last=last,
            tasks=tasks.get(root, {}),
            workers=workers.get(root, {}),
            attempts=attempts.get(root, {}),
            cases=cases.get(root, []),
            traceback=group.example.traceback,
        )
        for group, (root, first, last) in zip(summary.by_cause, bounds, strict=False)
    ]


_BOUNDS = """
SELECT root, strftime(min(moment), '%Y-%m-%dT%H:%M:%S.%fZ'), strftime(max(moment), '%Y-%m-%dT%H:%M:%S.%fZ')
FROM rooted JOIN top USING (root) GROUP BY root, number, dependents, top.first
ORDER BY number + dependents DESC, top.first, root
"""

_EXAMPLES = """
WITH few AS (
    SELECT * FROM rooted WHERE root IN (SELECT root FROM top)
    QUALIFY row_number() OVER (PARTITION BY root ORDER BY dependent, moment, task_id, attempt) <= $few
), arguments AS (
    SELECT task_id, arg_min(args, attempt) AS args FROM attempt_intervals
    WHERE task_id IN (SELECT task_id FROM few) GROUP BY task_id
)
SELECT root, strftime(moment, '%Y-%m-%dT%H:%M:%S.%fZ'), task, few.task_id, of_attempt, worker, args
FROM few LEFT JOIN arguments USING (task_id) ORDER BY root, moment, few.task_id, attempt
"""
