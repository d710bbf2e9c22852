"""The failures of a run, each once, and what each came of: one grouping for reports and diagnoses.

A failed attempt stands in `failures` and, without its traceback, in `tasks`. `collect_failures` makes one row
of both in `failure_records`, and one for each failure of a run, worker or command without a task.
`find_roots` makes `rooted` of them, with the `root` that each stands under: its cause, or that of the task
that it depends on, however far away. Grouped by cause, a thousand tasks with one fault are one fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from flightlog.analyze.limits import DiagnosisLimits
from flightlog.analyze.tallies import by_two_keys, copied, grouped, json_object
from flightlog.core.text import cut_end
from flightlog.events import DEPENDENCY_FAILED
from flightlog.events.base import Json
from flightlog.store.tables.views import ERROR_IN_REASON, PUT_BACK

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables


_NAMED_TASK = r" \([^()\s]+\), which "
_VARIABLE = r"0x[0-9a-fA-F]+|\b[0-9a-fA-F-]*[0-9][0-9a-fA-F-]{7,}\b|[0-9]+"
"""What differs each time: addresses, ids and numbers."""


def collect_failures(tables: RunTables) -> None:
    """Make `failure_records`; goes through `failures` once, and keeps no tracebacks."""
    tables.execute(MACROS)
    tables.execute(_RECORDS)
    tables.execute(_FOLD_RUN)


def find_roots(tables: RunTables, others: str = "") -> None:
    """Make `rooted`, and `climbs`: of each task that failed for another one, which; `others` selects more of
    those.
    """
    tables.execute(_CLIMBS.format(others=others))
    for _ in range(DiagnosisLimits.max_dependency_rounds):
        if not tables.scalar(_CLIMB):
            break
    tables.execute(_ROOTS)


def list_roots(tables: RunTables, listed: int) -> None:
    """Make `top`: the roots that most failures stand under, each with an example that is no dependent's."""
    tables.execute(_TOP, {"listed": listed})


def counts_by_root(
    tables: RunTables, column: str, most: int, where: str = "true"
) -> dict[str, dict[str, int]]:
    """By root of `top` how often each value of a column of `rooted` occurs, the most frequent first."""
    return by_two_keys(tables.rows(_COUNTS.format(column=column, where=where), {"most": most}))


class Texts(NamedTuple):
    """What `failures` holds of an example."""

    message: str | None
    traceback: str | None
    output_tail: str | None


def texts_of(tables: RunTables, examples: Mapping[str, tuple[str | None, int | None]]) -> dict[str, Texts]:
    """The texts of examples, which are task id and attempt by root; those of tasks in `tasks` have none."""
    by_task = {task: root for root, task in examples.items() if task[0] is not None}
    found: dict[str, Texts] = {}
    rows = tables.execute(_TEXTS, {"ids": [task_id for task_id, _ in by_task]}).fetchall()
    root: str
    for cause, task_id, attempt, *texts in rows:
        root = by_task.get((task_id, attempt), "") if task_id else cause
        if root in examples and (task_id or examples[root][0] is None):
            found.setdefault(root, Texts(*texts))
    return found


MACROS = rf"""
CREATE OR REPLACE TEMP MACRO needed(words) AS
    nullif(regexp_extract(words, '^[^\n]*? \(([^()\s]+)\), which [^\n]*? depends on, ', 1), '');
CREATE OR REPLACE TEMP MACRO cause_of(fingerprint, error_type, message) AS
    CASE WHEN fingerprint <> '' THEN fingerprint ELSE coalesce(error_type, '') || chr(10) || regexp_replace(
        regexp_replace(left(split_part(coalesce(message, ''), chr(10), 1), 300), '{_NAMED_TASK}',
            ' (#), which ', 'g'), '{_VARIABLE}', '#', 'g') END;
"""

_RECORDS = f"""
CREATE OR REPLACE TEMP TABLE failure_records AS
WITH accounts AS (
    SELECT 0 AS rank, scope, error_type, left(message, 500) AS words, fingerprint, task, task_id,
        coalesce(attempt, 1) AS attempt, worker, exit_code, signal, "timestamp" AS moment
    FROM failures WHERE event = 'failure'
    UNION ALL
    SELECT 1, 'task', error_type, left(error_message, 500), fingerprint, task, task_id, attempt, worker,
        exit_code, NULL, "timestamp"
    FROM task_lines WHERE kind = 6
    UNION ALL
    SELECT 2, 'task', {ERROR_IN_REASON}, left(reason, 500), NULL, task, task_id, attempt, worker, NULL, NULL,
        "timestamp"
    FROM task_lines WHERE kind = 4 AND NOT coalesce({PUT_BACK}, false)
), told AS (
    SELECT min(rank) AS rank, arg_min(scope, rank) AS scope, arg_min(error_type, rank) AS error_type,
        arg_min(words, rank) AS words, arg_min(fingerprint, rank) AS fingerprint, max(task) AS task, task_id,
        attempt, max(worker) AS worker, max(exit_code) AS exit_code, max(signal) AS signal,
        min(moment) AS moment
    FROM accounts WHERE task_id IS NOT NULL GROUP BY task_id, attempt, scope = 'worker'
    UNION ALL
    SELECT rank, scope, error_type, words, fingerprint, task, NULL, attempt, worker, exit_code, signal, moment
    FROM accounts WHERE task_id IS NULL
)
SELECT cause_of(fingerprint, error_type, words) AS cause, *, base_name(task) AS name,
    CASE WHEN task_id IS NOT NULL THEN attempt END AS of_attempt,
    CAST(NULL AS VARCHAR) AS incident
FROM told
"""  # noqa: S608 - a constant
"""Of the accounts of one attempt that in `failures` comes first: it knows most. What a batch system says of
an attempt that has its own account (scope `worker`) stands beside it. Kinds of lines: 6 is a failed attempt,
4 one that is retried, which has failed unless its engine put it back by itself."""

_FOLD_RUN = """
DELETE FROM failure_records WHERE scope = 'run' AND task_id IS NULL AND EXISTS (
    SELECT 1 FROM failure_records AS others WHERE others.task_id IS NOT NULL
        AND (others.cause = failure_records.cause
        OR (others.error_type = failure_records.error_type AND others.words = failure_records.words)))
"""
"""An error that ended a task and then, raised again, the run is that task's."""

_CLIMBS = f"""
CREATE OR REPLACE TEMP TABLE climbs AS
SELECT task_id, any_value(needed(words)) AS above FROM (
    SELECT task_id, words FROM failure_records WHERE error_type = '{DEPENDENCY_FAILED}' {{others}}
) WHERE needed(words) <> task_id GROUP BY task_id
"""  # noqa: S608 - a constant

_CLIMB = """
UPDATE climbs SET above = higher.above FROM climbs AS higher
WHERE climbs.above = higher.task_id AND higher.above <> climbs.above AND higher.above <> climbs.task_id
"""

_ROOTS = f"""
CREATE OR REPLACE TEMP TABLE rooted AS
WITH own AS (
    SELECT task_id, arg_max(coalesce(incident, cause), attempt) AS root FROM failure_records
    WHERE task_id IS NOT NULL AND error_type IS DISTINCT FROM '{DEPENDENCY_FAILED}' GROUP BY task_id
)
SELECT failure_records.*, coalesce(own.root, incident, cause) AS root, own.root IS NOT NULL AS dependent
FROM failure_records LEFT JOIN climbs ON climbs.task_id = failure_records.task_id
    AND failure_records.error_type = '{DEPENDENCY_FAILED}'
LEFT JOIN own ON own.task_id = climbs.above
"""  # noqa: S608 - a constant
"""Only where the failure of what they depend on is in the record; other dependents stay a cause of their
own."""

_TOP = """
CREATE OR REPLACE TEMP TABLE top AS
SELECT rooted.root, any_value(incident) AS incident, count(*) FILTER (NOT dependent) AS number,
    count(*) FILTER (dependent) AS dependents, min(moment) FILTER (NOT dependent) AS first,
    max(moment) AS last, list_sort(list_distinct(list(scope))) AS scopes,
    arg_min(rooted, (coalesce(moment, TIMESTAMP '9999-01-01'), coalesce(task_id, ''), attempt))
        FILTER (NOT dependent) AS example
FROM rooted GROUP BY rooted.root HAVING number > 0
ORDER BY count(*) DESC, first, rooted.root LIMIT $listed
"""

_COUNTS = """
SELECT root, {column}::VARCHAR AS value, count(*) AS number FROM rooted
WHERE value IS NOT NULL AND {where} AND root IN (SELECT root FROM top) GROUP BY root, value
QUALIFY row_number() OVER (PARTITION BY root ORDER BY count(*) DESC, value) <= $most
ORDER BY root, number DESC, value
"""

_TEXTS = """
SELECT cause_of(fingerprint, error_type, message), task_id, coalesce(attempt, 1), message, traceback,
    output_tail
FROM failures WHERE event = 'failure' AND (task_id IS NULL OR task_id IN (SELECT unnest($ids::VARCHAR[])))
QUALIFY row_number() OVER (PARTITION BY task_id, attempt, cause_of(fingerprint, error_type, message)
    ORDER BY "timestamp") <= 1
ORDER BY scope = 'worker', "timestamp" LIMIT 10000
"""


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
        example = copied(
            FailureExample,
            row,
            args=json_object(row["args"]),
            traceback=cut_end(said.traceback, DiagnosisLimits.max_traceback_characters + 1),
            output_tail=cut_end(said.output_tail, DiagnosisLimits.max_traceback_characters + 1),
        )
        found.append(copied(FailureGroup, row, message=said.message or row["message"], example=example))
    [(count, groups)] = tables.execute("SELECT count(*), count(DISTINCT root) FROM rooted").fetchall()
    return FailureSummary(count=count, groups=groups, by_cause=found)


def _group(tables: RunTables) -> None:
    """Make `rooted` and `top`, unless they are there."""
    if not tables.scalar("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'top'"):
        collect_failures(tables)
        find_roots(tables)
        list_roots(tables, DiagnosisLimits.max_listed_causes)


_GROUPS = """
WITH arguments AS (
    SELECT task_id, arg_min(args, attempt) AS args FROM attempt_intervals
    WHERE task_id IN (SELECT example.task_id FROM top) GROUP BY task_id
)
SELECT root, number + dependents AS count, strftime(example.moment, '%Y-%m-%dT%H:%M:%S.%fZ') AS timestamp,
    scopes, nullif(example.fingerprint, '') AS fingerprint, example.error_type AS error_type,
    example.words AS message, example.task AS task, example.task_id AS task_id, example.attempt AS attempt,
    example.worker AS worker, example.exit_code AS exit_code, example.signal AS signal, args
FROM top LEFT JOIN arguments ON arguments.task_id = example.task_id
ORDER BY count DESC, top.first, root
"""


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
    columns = {"tasks": "task", "workers": "worker", "attempts": "of_attempt"}
    counts = {
        field: counts_by_root(tables, column, DiagnosisLimits.max_listed_per_cause)
        for field, column in columns.items()
    }
    examples = tables.records(_EXAMPLES, {"few": DiagnosisLimits.max_examples})
    cases = grouped(
        (row["root"], copied(FailureCase, row, args=json_object(row["args"]))) for row in examples
    )
    bounds = tables.execute(_BOUNDS).fetchall()
    return [
        copied(
            FailureCause,
            group,
            first=first,
            last=last,
            **{field: by_root.get(root, {}) for field, by_root in counts.items()},
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
SELECT root, strftime(moment, '%Y-%m-%dT%H:%M:%S.%fZ') AS timestamp, task, few.task_id, of_attempt AS attempt,
    worker, args
FROM few LEFT JOIN arguments USING (task_id) ORDER BY root, moment, few.task_id, few.attempt
"""
