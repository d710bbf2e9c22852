"""The attempts and spans of one run, from its lines: each line is read once, into columns.

Most attempts have one line of each kind, and their end says all there is to say but when they were
submitted, queued and started. Of the others (several lines of one kind, no end, lines that disagree) every
line is asked, by the statement of the view `attempts`. Both give the same rows. So it is with spans.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flightlog.events.columns import columns
from flightlog.store.tables.connection import Executes, text
from flightlog.store.tables.views import (
    COLUMNS,
    COVERED,
    HIDDEN,
    KIND,
    OF_ONE,
    ONE,
    TASKS,
    USED,
    attempts_of_one,
)

if TYPE_CHECKING:
    import duckdb


_BESIDE = "(FORMAT parquet, COMPRESSION lz4_raw, ROW_GROUP_SIZE 40960, DICTIONARY_SIZE_LIMIT 1000)"
"""How columns are kept that are read many times and gone after: fast to write and to read, not small."""

_AT_END = (
    *("task", "component", "worker", "span_id", "parent_id", "args", "duration_s", *USED, "result_bytes"),
    "metrics",
    *("error_type", "error_message", "exit_code", "fingerprint", "reason"),
)
"""What the end of a regular attempt says."""
_MORE_AT_END = ("args_digest", "tags", "scheduler_s", "transfer_s", "spill_s", "requests")
"""What else it says, for those who want whole attempts."""
_OPTIONAL = {
    "tasks": (
        *(*USED, "result_bytes", "error_type", "error_message", "exit_code", "fingerprint", "reason"),
        *("delay_s", "scheduler_s", "transfer_s", "spill_s", "requests"),
    ),
    "spans": ("elapsed_s", "error_type", "error_message", "thread"),
}
"""Columns that lines of many runs do without."""
_READ = ("timestamp", "writer", "seq", "task_id", "queue_s", "depends_on", "delay_s", *_AT_END)
_JOINED = (
    *("task_id", "attempt", "depends_on", "state", "retried"),
    *("submitted_at", "queued_at", "started_at", "ended_at", "queue_s"),
)
"""Columns of attempts that are not those of one line."""

_TOLD_BEFORE = ("worker", "span_id", "parent_id", "args")
_MORE_TOLD_BEFORE = ("args_digest",)
"""What lines before the end may tell, too: of a regular attempt the end says it, or nobody does."""


def _marks(told: Sequence[str]) -> str:
    """What a line is and tells, as bits, so that one number says it of all lines of an attempt: its kind;
    from bit 8 on what it tells; from 16 on what the end tells; 24 and 25, that a retry or the end has a
    reason.
    """
    bits = [
        f"CASE WHEN {name} IS NULL THEN 0 WHEN kind >= 5 THEN {257 << 8 + place} ELSE {1 << 8 + place} END"
        for place, name in enumerate(told)
    ]
    reason = f"CASE WHEN reason IS NULL OR kind < 4 THEN 0 WHEN kind = 4 THEN {1 << 24} ELSE {1 << 25} END"
    return " + ".join(["(1 << CAST(kind AS INTEGER))", *bits, reason])


_PAIRED = """
CREATE OR REPLACE TEMP TABLE paired AS
SELECT * EXCLUDE (marks), marks & 255 AS kinds,
    lines = bit_count(marks & 255) AND bit_count(marks & 224) = 1 AND agrees
        AND (marks >> 16) & 255 = (marks >> 8) & 255 AND marks >> 24 < 3 AS regular
FROM (
    SELECT
        task_id,
        attempt,
        max("timestamp") FILTER (kind = 1) AS submitted_at,
        max("timestamp") FILTER (kind = 2) AS queued_at,
        max("timestamp") FILTER (kind = 3) AS started_at,
        max(queue_s) FILTER (kind = 3) AS queue_at_start,
        CAST(count(*) AS INTEGER) AS lines,
        bit_or(marks) AS marks,
        min(label) = max(label) AND coalesce(min(parent) = max(parent), true) AS agrees
    FROM task_lines
    GROUP BY task_id, attempt
)
"""
"""One row per attempt; `kinds` has a bit for each kind of its lines."""

_REGULAR = """
SELECT
    task_id, attempt, {at_end},
    CASE WHEN kinds & 2 > 0 THEN {needs} END AS depends_on,
    CASE ended.kind WHEN 5 THEN 'completed' WHEN 6 THEN 'failed' ELSE 'cancelled' END AS state,
    kinds & 16 > 0 AS retried,
    paired.submitted_at, paired.queued_at, paired.started_at, ended."timestamp" AS ended_at,
    coalesce(ended.queue_s, paired.queue_at_start) AS queue_s
FROM task_lines AS ended JOIN paired USING (task_id, attempt) {joins}
WHERE ended.kind >= 5 AND paired.regular
"""

_NEEDS = """LEFT JOIN (
    SELECT task_id, attempt, depends_on FROM task_lines WHERE kind = 1 AND len(depends_on) > 0
) AS needs USING (task_id, attempt)"""

_RETRIES = """LEFT JOIN (
    SELECT task_id, attempt, reason FROM task_lines WHERE kind = 4
) AS retries USING (task_id, attempt)"""

_OTHERS = """(
    SELECT * EXCLUDE (kind, marks, label, parent), {others}
        ['task_submitted', 'task_queued', 'task_started', 'task_retried', 'task_completed', 'task_failed',
            'task_cancelled'][kind] AS event
    FROM task_lines SEMI JOIN (SELECT task_id, attempt FROM paired WHERE NOT regular) USING (task_id, attempt)
)"""


def rare_columns(stream: str, common: Collection[str]) -> dict[str, str]:
    """The columns of a stream that lines may do without and those of a sample, `common`, do; with their
    types.
    """
    kinds = columns(stream)
    return {name: kinds[name] for name in _OPTIONAL[stream] if name not in common}


def read_task_lines(
    connection: duckdb.DuckDBPyConnection,
    file: Path | None,
    *,
    whole: bool = False,
    stored: bool = False,
    rare: Mapping[str, str] | None = None,
) -> None:
    """Make `task_lines`: the lines that `attempts` is made from as columns, in memory or in `file`; a view
    where they are `stored` as columns already.

    All columns of attempts are made from them if the lines are read `whole`. `rare` is as in `keep_rows`.
    """
    read = (*_READ, *(_MORE_AT_END if whole else ()))
    names = ", ".join(read)
    told = (*_TOLD_BEFORE, *(_MORE_TOLD_BEFORE if whole else ()))
    rows = f"""
        SELECT CAST({KIND} AS UTINYINT) AS kind, attempt, {names},
            CAST({_marks(told)} AS INTEGER) AS marks, hash(task, component) AS label,
            CASE WHEN parent_id IS NOT NULL THEN hash(parent_id) END AS parent
        FROM {HIDDEN}.for_attempts WHERE kind IS NOT NULL
    """  # noqa: S608 - constants
    few = {name: kind for name, kind in (rare or {}).items() if name in read}
    _keep_lines(connection, "task_lines", rows, file, stored, few)


def _keep_lines(
    connection: Executes, name: str, rows: str, file: Path | None, stored: bool, rare: Mapping[str, str]
) -> None:
    if stored:
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {rows}")
    else:
        keep_rows(connection, name, rows, file, rare=rare)


def keep_rows(
    connection: Executes,
    name: str,
    rows: str,
    file: Path | None,
    parameters: Any = None,
    *,
    rare: Mapping[str, str] | None = None,
) -> None:
    """Make a temporary table of a select statement; with `file` its rows stand there, as Parquet.

    `rare` are columns, with their types, that are null in most rows, if not in all: in the file they are one
    column, because writing a null takes as long as writing a number.
    """
    if file is None:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {rows}", parameters)
        return
    kept, names = text(str(file)), ", ".join(rare or ())
    if rare:
        some = " OR ".join(f"{one} IS NOT NULL" for one in rare)
        packed = ", ".join(f"{one} := {one}" for one in rare)
        rows = f"""
            SELECT * EXCLUDE ({names}), CASE WHEN {some} THEN to_json(struct_pack({packed})) END AS rare
            FROM ({rows})
        """  # noqa: S608 - names and statements of ours
    _copy(connection, f"COPY ({rows}) TO {kept} {_BESIDE}", parameters)
    selected = "*"
    if rare:
        counting = f"SELECT count(rare) FROM read_parquet({kept})"  # noqa: S608 - quoted
        [(found,)] = connection.execute(counting).fetchall()
        structure = text(msgspec.json.encode(rare).decode())
        nothing = ", ".join(f"CAST(NULL AS {kind}) AS {one}" for one, kind in rare.items())
        selected = f"* EXCLUDE (rare), {f'unnest(from_json(rare, {structure}))' if found else nothing}"
    rows = f"SELECT {selected} FROM read_parquet({kept})"  # noqa: S608 - names of ours
    connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {rows}")


def _copy(connection: Executes, statement: str, parameters: Any) -> None:
    """Write rows to a file; where they do not fit into the memory there is, because some lines are very long,
    with as much as DuckDB takes otherwise.
    """
    import duckdb

    try:
        connection.execute(statement, parameters)
    except duckdb.OutOfMemoryException:
        connection.execute("RESET memory_limit")
        connection.execute(statement, parameters)


class FromLines(NamedTuple):
    """How the attempts of a run are made of its lines."""

    attempts: str
    """A select statement with columns of the view `attempts`."""
    entangled: bool
    """Whether some wait for others, or were superseded before they began."""
    irregular: bool
    """Whether all lines of some are asked, which takes memory."""


def attempts_from_lines(
    connection: duckdb.DuckDBPyConnection, run_id: str, *, whole: bool = False
) -> FromLines:
    """The attempts of `task_lines`, which were read `whole` or not."""
    connection.execute(_PAIRED)
    [(dependent, superseded, retried, others)] = connection.execute(
        """
        SELECT (SELECT count(*) FROM task_lines WHERE len(depends_on) > 0) > 0,
            coalesce(bool_or(kinds & 248 = 0) AND max(attempt) > min(attempt), false),
            coalesce(bool_or(regular AND kinds & 16 > 0), false), coalesce(bool_or(NOT regular), false)
        FROM paired
        """
    ).fetchall()
    at_end = (*_AT_END, *(_MORE_AT_END if whole else ()))
    reason = "coalesce(retries.reason, ended.reason) AS reason"
    # Each part of the statement reads all lines again: none is asked that has nothing to say.
    attempts = _REGULAR.format(
        at_end=", ".join(reason if retried and name == "reason" else f"ended.{name}" for name in at_end),
        needs="coalesce(needs.depends_on, [])" if dependent else "CAST([] AS VARCHAR[])",
        joins=f"{_NEEDS if dependent else ''} {_RETRIES if retried else ''}",
    )
    if others:
        missing = "" if whole else "".join(f"NULL AS {name}, " for name in _MORE_AT_END)
        made = attempts_of_one(run_id, _OTHERS.format(others=missing))
        names = ", ".join((*_JOINED, *at_end))
        attempts += f"UNION ALL BY NAME SELECT {names} FROM ({made})"  # noqa: S608 - constants
    return FromLines(attempts, dependent or superseded, others)


_SPAN_COLUMNS = (
    *("writer", "seq", "event", "span_id", "name", "parent_id", "duration_s", "elapsed_s"),
    *("status", "tags", "metrics", "error_type", "error_message", "thread"),
)


def read_spans(
    connection: duckdb.DuckDBPyConnection,
    file: Path | None,
    *,
    stored: bool = False,
    rare: Mapping[str, str] | None = None,
) -> bool:
    """Make `span_rows` of the lines that `spans` is made from, one row per span, in memory or in `file`; a
    view where the lines are `stored` as columns already. `rare` is as in `keep_rows`.

    Gives whether lines had to be put together, which takes memory: spans that are open, or told twice.
    """
    lines = f"""
        SELECT run_id, "timestamp", {", ".join(_SPAN_COLUMNS)}
        FROM {HIDDEN}.for_spans WHERE event IN ('span', 'span_open')
    """  # noqa: S608 - constants
    _keep_lines(connection, "span_lines", lines, file, stored, rare or {})
    [(odd, ids, count)] = connection.execute(
        """
        SELECT count(*) FILTER (event <> 'span' OR coalesce(span_id, '') = ''), count(DISTINCT span_id),
            count(*)
        FROM span_lines
        """
    ).fetchall()
    if not odd and ids == count:
        connection.execute(
            """
            CREATE OR REPLACE TEMP VIEW span_rows AS
            SELECT * EXCLUDE (event, elapsed_s, writer, seq) RENAME ("timestamp" AS started_at),
                false AS "open"
            FROM span_lines
            """
        )
        return False
    one = ONE.replace(f"{HIDDEN}.for_spans", "span_lines")
    keep_rows(connection, "span_rows", one, None)
    return True


SPAN_ROWS_WITH_OWN_TIME = f"""
WITH one AS NOT MATERIALIZED (FROM span_rows),{COVERED}
SELECT one.name, one.span_id, one.parent_id, one.status, one."open", one.started_at, one.duration_s,
    CASE WHEN one.duration_s IS NOT NULL
        THEN greatest(0, greatest(0, one.duration_s) - coalesce(covered.covered, 0) / 1e9) END AS self_s
FROM one LEFT JOIN covered ON covered.parent_id = one.span_id
"""  # noqa: S608 - constants
"""The spans of one run with the time that no span inside covers, from `span_rows`."""


_OF_SINGLE_ATTEMPTS = """
SELECT run_id, task, task_id, component,
    CASE WHEN retried AND state <> 'completed' THEN 'pending' ELSE state END AS state,
    CAST(state <> 'pending' AS BIGINT) AS attempts, submitted_at, started_at AS first_started_at,
    CASE WHEN NOT retried OR state = 'completed' THEN ended_at END AS ended_at, queue_s, duration_s,
    duration_s AS total_s, cpu_s, peak_rss_bytes, gpu_peak_bytes,
    CASE WHEN gpu_peak_bytes IS NOT NULL THEN gpu_memory_scope END AS gpu_memory_scope, gpu_s, gpu_scope,
    scheduler_s, transfer_s, spill_s, requests, args, args_digest, error_type, error_message, worker
FROM attempts ANTI JOIN again USING (task_id)
"""
"""The rows of `tasks` that have one attempt each, as most have."""


def with_run_id(run_id: str, statement: str) -> str:
    """The attempts that a statement gives, with the columns of the view `attempts`."""
    run, names = f"CAST({text(run_id)} AS VARCHAR) AS run_id", ", ".join(COLUMNS)
    return f"SELECT {run}, {names} FROM ({statement})"  # noqa: S608 - ours


def tasks_of_one(connection: duckdb.DuckDBPyConnection) -> str:
    """The tasks of one run, from `attempts`; makes `again`, the tasks that were tried more than once."""
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE again AS SELECT DISTINCT task_id FROM attempts WHERE attempt <> 1"
    )
    several = TASKS.replace("FROM attempts", "FROM attempts SEMI JOIN again USING (task_id)")
    return f"{_OF_SINGLE_ATTEMPTS} UNION ALL BY NAME {several}"


_ROWS_OF_ONE = "SELECT * REPLACE (CAST(0 AS UTINYINT) AS run_id) FROM span_rows"


def spans_of_one(run_id: str) -> str:
    """The spans of one run, from `span_rows`; to compare its id in every join takes a fifth of the time."""
    spans = f"WITH RECURSIVE one AS NOT MATERIALIZED ({_ROWS_OF_ONE}),{OF_ONE}"
    return f"SELECT * REPLACE (CAST({text(run_id)} AS VARCHAR) AS run_id) FROM ({spans})"  # noqa: S608 - ours
