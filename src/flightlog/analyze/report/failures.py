"""Failures grouped by cause: a thousand tasks with one fault are one fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from flightlog.analyze.tallies import Least, copied
from flightlog.events import Event, Failure, TaskFailed
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

    A failed task stands in `failures` and, without its traceback, in `tasks`. Each counts once, wherever it
    was found: a group has as many task failures as the longer of its two accounts. An error that ended a task
    and then the run, too, is one failure.
    """

    count: int
    groups: int
    by_cause: list[FailureGroup]


class FailureTally:
    """Takes the events of the streams `failures` and `tasks`, in any order."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, ...], _CauseGroup] = {}

    def add(self, event: Event) -> None:
        """Take one event; other kinds are ignored."""
        if isinstance(event, Failure):
            key = cause_of(event.fingerprint, event.error_type, event.message)
            group = self._groups.setdefault(key, _CauseGroup())
            group.scopes.add(event.scope)
            if event.task_id is not None:
                group.in_tasks += 1
            elif event.scope == "run":
                group.in_run += 1
            else:
                group.elsewhere += 1
            group.failures.add(
                (event.timestamp, event.writer, event.seq, event.task_id or "", event.message or ""), event
            )
        elif isinstance(event, TaskFailed):
            key = cause_of(event.fingerprint, event.error_type, event.error_message)
            group = self._groups.setdefault(key, _CauseGroup())
            group.scopes.add("task")
            group.failed_tasks.add((event.timestamp, event.writer, event.seq, event.task_id), event)

    def summary(self) -> FailureSummary:
        """The result."""
        groups = [group.summary(key) for key, group in self._groups.items()]
        groups.sort(
            key=lambda group: (
                -group.count,
                group.example.timestamp,
                group.fingerprint or "",
                group.error_type or "",
                group.message or "",
            )
        )
        return FailureSummary(
            count=sum(group.count for group in groups), groups=len(groups), by_cause=groups[:LISTED]
        )


class _CauseGroup:
    def __init__(self) -> None:
        self.scopes: set[str] = set()
        self.in_tasks = self.in_run = self.elsewhere = 0
        self.failures: Least[Failure] = Least(1)
        self.failed_tasks: Least[TaskFailed] = Least(1)

    def summary(self, key: tuple[str, ...]) -> FailureGroup:
        failure = next(iter(self.failures.items()), None)
        task = next(iter(self.failed_tasks.items()), None)
        earliest: Failure | TaskFailed
        if failure is not None:
            same = task if task is not None and task.task_id == failure.task_id else None
            earliest, message = failure, failure.message
            example = copied(
                FailureExample,
                failure,
                args=same.args if same else None,
                worker=failure.worker or (same.worker if same else None),
                traceback=_end(failure.traceback),
                output_tail=_end(failure.output_tail),
            )
        else:
            assert task is not None
            earliest, message = task, task.error_message
            example = copied(FailureExample, task, signal=None, traceback=None, output_tail=None)
        return FailureGroup(
            fingerprint=key[0] if len(key) == 1 else None,
            scopes=sorted(self.scopes),
            error_type=earliest.error_type,
            message=message,
            count=max(self.in_tasks, self.failed_tasks.count) + self.elsewhere or self.in_run,
            example=example,
        )


def cause_of(fingerprint: str | None, error_type: str | None, message: str | None) -> tuple[str, ...]:
    """What failures with one cause share: the fingerprint, or else the kind of error and its first line."""
    if fingerprint:
        return (fingerprint,)
    return (error_type or "", (message or "").partition("\n")[0])


def _end(text: str | None) -> str | None:
    if text is None or len(text) <= TRACEBACK_CHARS:
        return text
    return "…" + text[-TRACEBACK_CHARS:]


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
    """The causes that the summary lists, in its order, from the run's `failures`, `task_events` and
    `attempt_intervals`.

    A failed attempt stands in `failures` and in `tasks`; here it counts once, and the count is the summary's.
    An error that ended a task and then the run, too, is that task's.
    """
    if not summary.count:
        return []
    tables.execute(_CASES)
    spans = {cause: (first, last) for cause, first, last in tables.execute(_BOUNDS).fetchall()}
    counts = {column: _counts(tables, column) for column in ("task", "worker", "attempt")}
    cases: dict[str, list[FailureCase]] = {}
    for cause, *case in tables.execute(_EXAMPLES, {"few": EXAMPLES}).fetchall():
        cases.setdefault(cause, []).append(_case(*case))
    found = []
    for group in summary.by_cause:
        key = group.fingerprint or f"{group.error_type or ''}\n{(group.message or '').partition(chr(10))[0]}"
        first, last = spans.get(key, (None, None))
        found.append(
            copied(
                FailureCause,
                group,
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


def _counts(tables: RunTables, column: str) -> dict[str, dict[str, int]]:
    """By cause how often each value occurs, the most frequent first."""
    rows = tables.execute(
        f"""
        SELECT cause, {column}::VARCHAR AS value, count(*) AS number FROM cases WHERE {column} IS NOT NULL
        GROUP BY cause, value
        QUALIFY row_number() OVER (PARTITION BY cause ORDER BY count(*) DESC, value) <= $listed
        ORDER BY cause, number DESC, value
        """,  # noqa: S608 - the column is one of three
        {"listed": LISTED_IN_DETAIL},
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
    SELECT task_id, arg_min(args, attempt) AS args FROM attempt_intervals
        WHERE task_id IN (SELECT task_id FROM few)
        GROUP BY task_id
)
SELECT cause, strftime(moment, '%Y-%m-%dT%H:%M:%S.%fZ'), task, few.task_id, attempt, worker, args
FROM few LEFT JOIN arguments USING (task_id) ORDER BY cause, moment, few.task_id, attempt
"""
