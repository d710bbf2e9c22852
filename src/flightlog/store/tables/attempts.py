"""The attempts and spans of one run, from its lines: each line is read once, into columns.

Most attempts have one line of each kind, and their end says all there is to say but when they were
submitted, queued and started. Of the others (several lines of one kind, no end, lines that disagree) every
line is asked, by the statement of the view `attempts`. Both give the same rows. So it is with spans.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flightlog.store.tables.connection import text
from flightlog.store.tables.views import COVERED, HIDDEN, KIND, ONE, attempts_of_one

if TYPE_CHECKING:
    import duckdb

COLUMNS_BESIDE = "(FORMAT parquet, COMPRESSION lz4_raw, ROW_GROUP_SIZE 40960, DICTIONARY_SIZE_LIMIT 1000)"
"""How columns are kept that are read many times and gone after: fast to write and to read, not small."""

_AT_END = (
    "task",
    "component",
    "worker",
    "span_id",
    "args",
    "duration_s",
    "cpu_s",
    "cpu_scope",
    "peak_rss_bytes",
    "rss_scope",
    "read_bytes",
    "write_bytes",
    "gpu_peak_bytes",
    "gpu_memory_scope",
    "gpu_s",
    "gpu_scope",
    "result_bytes",
    "metrics",
    "error_type",
    "error_message",
    "exit_code",
    "fingerprint",
    "reason",
)
"""What the end of a regular attempt says."""
COLUMNS = (
    "task_id",
    "attempt",
    *_AT_END,
    "depends_on",
    "state",
    "retried",
    "submitted_at",
    "queued_at",
    "started_at",
    "ended_at",
    "queue_s",
)
"""The columns of the attempts made here, as in the view `attempts`."""
_READ = ("timestamp", "writer", "seq", "task_id", "queue_s", "depends_on", *_AT_END)

_PAIRED = """
CREATE OR REPLACE TEMP TABLE paired AS
SELECT *, lines = bit_count(kinds) AND ends = 1 AND agrees AND says_all AS regular FROM (
    SELECT
        task_id,
        attempt,
        max("timestamp") FILTER (kind = 1) AS submitted_at,
        max("timestamp") FILTER (kind = 2) AS queued_at,
        max("timestamp") FILTER (kind = 3) AS started_at,
        max(queue_s) FILTER (kind = 3) AS queue_at_start,
        CAST(count(*) AS INTEGER) AS lines,
        bit_or(1 << CAST(kind AS INTEGER)) AS kinds,
        CAST(count(*) FILTER (kind >= 5) AS INTEGER) AS ends,
        min(hash(task, component)) = max(hash(task, component)) AS agrees,
        bool_and(kind < 5 OR (worker IS NOT NULL AND span_id IS NOT NULL AND args IS NOT NULL)) AS says_all
    FROM task_lines
    GROUP BY task_id, attempt
)
"""
"""One row per attempt; `kinds` has a bit for each kind of its lines."""

_REGULAR = """
SELECT
    task_id, attempt, {at_end}, {needs} AS depends_on,
    CASE ended.kind WHEN 5 THEN 'completed' WHEN 6 THEN 'failed' ELSE 'cancelled' END AS state,
    kinds & 16 > 0 AS retried,
    paired.submitted_at, paired.queued_at, paired.started_at, ended."timestamp" AS ended_at,
    coalesce(ended.queue_s, paired.queue_at_start) AS queue_s
FROM task_lines AS ended JOIN paired USING (task_id, attempt) {join}
WHERE ended.kind >= 5 AND paired.regular
"""

_NEEDS = """LEFT JOIN (
    SELECT task_id, attempt, depends_on FROM task_lines WHERE kind = 1 AND len(depends_on) > 0
) AS needs USING (task_id, attempt)"""

_OTHERS = """(
    SELECT * EXCLUDE (kind), NULL AS args_digest, NULL AS tags, NULL AS parent_id, NULL AS scheduler_s,
        NULL AS transfer_s, NULL AS spill_s, NULL AS requests,
        ['task_submitted', 'task_queued', 'task_started', 'task_retried', 'task_completed', 'task_failed',
            'task_cancelled'][kind] AS event
    FROM task_lines SEMI JOIN (SELECT task_id, attempt FROM paired WHERE NOT regular) USING (task_id, attempt)
)"""


def read_task_lines(connection: duckdb.DuckDBPyConnection, file: Path | None) -> None:
    """Make `task_lines`: the lines that `attempts` is made from as columns, in memory or in `file`."""
    rows = f"""
        SELECT CAST({KIND} AS UTINYINT) AS kind, attempt, {", ".join(_READ)}
        FROM {HIDDEN}.for_attempts WHERE kind IS NOT NULL
    """  # noqa: S608 - constants
    keep_rows(connection, "task_lines", rows, file)


def keep_rows(
    connection: duckdb.DuckDBPyConnection, name: str, rows: str, file: Path | None, parameters: Any = None
) -> None:
    """Make a temporary table of a select statement; with `file` its rows stand there, as Parquet."""
    if file is None:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {rows}", parameters)
        return
    kept = text(str(file))
    connection.execute(f"COPY ({rows}) TO {kept} {COLUMNS_BESIDE}", parameters)
    connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS FROM read_parquet({kept})")


class FromLines(NamedTuple):
    """How the attempts of a run are made of its lines."""

    attempts: str
    """A select statement with `COLUMNS`."""
    entangled: bool
    """Whether some wait for others, or were superseded before they began."""
    irregular: bool
    """Whether all lines of some are asked, which takes memory."""


def attempts_from_lines(connection: duckdb.DuckDBPyConnection, run_id: str) -> FromLines:
    """The attempts of `task_lines`."""
    connection.execute(_PAIRED)
    [(dependent, superseded, others)] = connection.execute(
        """
        SELECT (SELECT count(*) FROM task_lines WHERE len(depends_on) > 0) > 0,
            coalesce(bool_or(kinds & 248 = 0) AND max(attempt) > 1, false),
            coalesce(bool_or(NOT regular), false)
        FROM paired
        """
    ).fetchall()
    # Each part of the statement reads all lines again: none is asked that has nothing to say.
    attempts = _REGULAR.format(
        at_end=", ".join(f"ended.{name}" for name in _AT_END),
        needs="needs.depends_on" if dependent else "CAST(NULL AS VARCHAR[])",
        join=_NEEDS if dependent else "",
    )
    if others:
        made = attempts_of_one(run_id, _OTHERS)
        attempts += f"UNION ALL BY NAME SELECT {', '.join(COLUMNS)} FROM ({made})"  # noqa: S608 - constants
    return FromLines(attempts, dependent or superseded, others)


_SPAN_COLUMNS = (
    "writer",
    "seq",
    "event",
    "span_id",
    "name",
    "parent_id",
    "duration_s",
    "elapsed_s",
    "status",
    "tags",
    "metrics",
    "error_type",
    "error_message",
    "thread",
)


def read_spans(connection: duckdb.DuckDBPyConnection, file: Path | None) -> bool:
    """Make `span_rows` of the lines that `spans` is made from, one row per span, in memory or in `file`.

    Gives whether lines had to be put together, which takes memory: spans that are open, or told twice.
    """
    lines = f"""
        SELECT run_id, "timestamp", {", ".join(_SPAN_COLUMNS)}
        FROM {HIDDEN}.for_spans WHERE event IN ('span', 'span_open')
    """  # noqa: S608 - constants
    keep_rows(connection, "span_lines", lines, file)
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
WITH one AS (FROM span_rows),{COVERED}
SELECT one.name, one.span_id, one.parent_id, one.status, one."open", one.started_at, one.duration_s,
    coalesce(covered.covered, 0) AS covered_ns
FROM one LEFT JOIN covered ON covered.parent_id = one.span_id
"""  # noqa: S608 - constants
"""The spans of one run, each with the nanoseconds that spans inside it cover, from `span_rows`."""
