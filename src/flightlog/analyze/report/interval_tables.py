"""Attempts and spans of a run as intervals in nanoseconds (tables `attempt_intervals` and `span_intervals`),
and merging of intervals in SQL.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flightlog.core.time import FIRST_YEAR, LAST_YEAR, LONGEST, LONGEST_S
from flightlog.events import TaskFailed
from flightlog.store.read.completeness import Coverage
from flightlog.store.read.lines import Scan
from flightlog.store.tables.attempts import (
    LARGE_BYTES,
    MEMORY,
    SPAN_ROWS_WITH_OWN_TIME,
    FromLines,
    attempts_from_lines,
    keep_rows,
    read_spans,
    read_task_lines,
)
from flightlog.store.tables.streams import RENAMED
from flightlog.store.tables.views import KIND

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run
    from flightlog.store.tables.streams import StreamTables

MACROS = f"""
CREATE OR REPLACE TEMP MACRO at_ns(stamp) AS
    CASE WHEN year(stamp) BETWEEN {FIRST_YEAR} AND {LAST_YEAR} THEN epoch_us(stamp) * 1000 END;
CREATE OR REPLACE TEMP MACRO in_ns(s) AS
    CASE WHEN s IS NULL THEN NULL WHEN s <= 0 THEN 0 WHEN s < {LONGEST_S} THEN CAST(round_even(s * 1e9, 0) AS
        BIGINT)
         ELSE {LONGEST} END;
"""
"""Moments and durations in nanoseconds, as `core.time` reads them."""

_HELD = """
WITH moments AS (
    SELECT task, task_id, attempt, component, worker, state, retried, span_id, depends_on,
        depends_on IS NOT NULL AS was_submitted, -- submissions alone have it, if only as an empty list
        at_ns(submitted_at) AS submitted, at_ns(queued_at) AS queued, at_ns(started_at) AS started,
        at_ns(ended_at) AS ended, in_ns(queue_s) AS queued_for,
        queue_s, duration_s, cpu_s, cpu_scope, peak_rss_bytes, rss_scope, read_bytes, write_bytes,
        gpu_peak_bytes, gpu_memory_scope, gpu_s, gpu_scope, result_bytes, metrics, error_type, args
    FROM ({attempts})
)
SELECT * EXCLUDE (queued_for),
    CASE WHEN ended IS NOT NULL AND duration_s IS NOT NULL THEN ended - in_ns(duration_s)
         WHEN ended IS NOT NULL OR state = 'running' THEN started END AS began,
    CASE WHEN ended IS NOT NULL AND (duration_s IS NOT NULL
        OR started IS NOT NULL) THEN greatest(began, ended)
         WHEN state = 'running' AND started IS NOT NULL THEN greatest(started, $until) END AS stopped,
    coalesce(queued, CASE WHEN queued_for IS NOT NULL THEN began - queued_for END,
             CASE WHEN attempt = 1 THEN submitted END) AS waits,
FROM moments
"""

_DEPENDENTS = """
WITH needs AS (
    SELECT task_id, unnest(depends_on) AS needed FROM attempt_intervals WHERE attempt = 1
        AND len(depends_on) > 0
), met AS (
    SELECT needs.task_id, max(ends.stopped) AS moment, bool_and(ends.stopped IS NOT NULL) AS "all"
    FROM needs LEFT JOIN (SELECT task_id, max(stopped) AS stopped FROM attempt_intervals GROUP BY ALL) AS ends
        ON ends.task_id = needs.needed
    GROUP BY ALL
)
UPDATE attempt_intervals SET waits = CASE WHEN met.all OR attempt_intervals.began IS NOT NULL THEN
    greatest(attempt_intervals.waits, met.moment) END
FROM met WHERE met.task_id = attempt_intervals.task_id AND attempt_intervals.attempt = 1
    AND attempt_intervals.queued IS NULL
"""

_SUPERSEDED = """
UPDATE attempt_intervals SET waits = NULL FROM attempt_intervals AS later
WHERE attempt_intervals.state = 'pending' AND later.task_id = attempt_intervals.task_id
    AND later.attempt > attempt_intervals.attempt
"""

_TIMED = """
CREATE OR REPLACE TEMP TABLE span_intervals AS
SELECT name, span_id, parent_id, status, "open", in_ns(duration_s) AS lasted, in_ns(self_s) AS own,
    duration_s, at_ns(started_at) AS began, at_ns(started_at) + in_ns(duration_s) AS stopped
FROM spans
"""

_TIMED_ROWS = f"""
CREATE OR REPLACE TEMP TABLE span_intervals AS
SELECT name, span_id, parent_id, status, "open", in_ns(duration_s) AS lasted,
    in_ns(greatest(0, greatest(0, duration_s) - covered_ns / 1e9)) AS own, duration_s,
    at_ns(started_at) AS began, at_ns(started_at) + in_ns(duration_s) AS stopped
FROM ({SPAN_ROWS_WITH_OWN_TIME})
"""  # noqa: S608 - constants

_ENTANGLED = """
SELECT coalesce(bool_or(len(depends_on) > 0), false)
    OR (coalesce(bool_or(state = 'pending'), false) AND max(attempt) > min(attempt))
FROM attempts
"""

_NO_SPANS = """
CREATE OR REPLACE TEMP TABLE span_intervals (
    name VARCHAR, span_id VARCHAR, parent_id VARCHAR, status VARCHAR, "open" BOOLEAN, lasted BIGINT,
    own BIGINT, duration_s DOUBLE, began BIGINT, stopped BIGINT
)
"""

_GOES_ON = """
WITH RECURSIVE over AS (
    SELECT span_id FROM attempt_intervals WHERE state <> 'running' AND span_id IS NOT NULL
    UNION
    SELECT span_intervals.span_id FROM span_intervals JOIN over ON span_intervals.parent_id = over.span_id
        WHERE span_intervals."open"
)
UPDATE span_intervals SET stopped = greatest(stopped, $until)
WHERE "open" AND NOT EXISTS (SELECT 1 FROM over WHERE over.span_id = span_intervals.span_id)
"""


def scalar(connection: duckdb.DuckDBPyConnection, sql: str, parameters: object = None) -> Any:
    """The only value of the only row that a statement gives."""
    [(value,)] = connection.execute(sql, parameters).fetchall()
    return value


def hold(connection: duckdb.DuckDBPyConnection, until: int | None) -> None:
    """Make `attempt_intervals` of `attempts` and `span_intervals` of `spans`; `until` is when the run ended
    or its last heartbeat.

    An attempt holds its worker from `began` to `stopped`: the duration it measured, before its end; where it
    measured none, from its start to its end, its retry or `until`. `waits` is since when it could have run:
    when its engine queued it; else before its start by its queueing time; else from its submission, or from
    the end of the last task it depends on. All three are nanoseconds since 1970, and null where they are
    unknown.

    Reads every attempt and span once, and keeps a few hundred bytes of each in the connection.
    """
    hold_attempts(connection, until, "FROM attempts")
    connection.execute(_TIMED)


_TASK_EVENTS = f"(SELECT *, {KIND} AS kind FROM task_events)"  # noqa: S608 - a constant
_LINES = {"tasks": ("task_lines", "attempts"), "spans": ("span_lines", "spans")}
_STAMP = "%Y-%m-%dT%H:%M:%S.%fZ"


class RunLines:
    """The lines of tasks and spans of one run as columns, each read once, and the intervals made from them.

    Where snapshots of the attempts or spans are current, those are read, and no line.
    """

    def __init__(self, run: Run, tables: StreamTables, streams: Collection[str] = ("tasks", "spans")) -> None:
        self._run, self._tables, self._connection = run, tables, tables.connection
        [self._sources] = tables.sources
        self._large = {stream for stream in streams if self._sources.size_bytes(stream) >= LARGE_BYTES}
        there = {stream for stream in streams if stream == "tasks" or self._sources.parts(stream)}
        self.streams = tuple(stream for stream in streams if stream in there)
        """Those that were read: spans are not where there are none."""
        if self._large:
            self._connection.execute(f"SET memory_limit = '{MEMORY}'")
        self._connection.execute(MACROS)
        if "tasks" in self.streams and self._from_lines("attempts"):
            read_task_lines(self._connection, self._file("tasks", "task_lines"))
        if "spans" in self.streams:
            self._read_spans()
        else:
            self._connection.execute(_NO_SPANS)

    @property
    def task_lines(self) -> str:
        """The lines of tasks as a table, with the number of their `kind`."""
        return "task_lines" if self._from_lines("attempts") else _TASK_EVENTS

    def scan(self, stream: str) -> Scan | None:
        """What a pass over the events of a stream would count; None where only that can tell.

        That is so unless the file is as it was when the run closed, and its lines are numbered.
        """
        if not self._sources.is_sealed(stream):
            return None
        lines, view = _LINES.get(stream, (stream, stream))
        rows = self._connection.execute(
            f"""
            SELECT writer, count(*), min(seq), max(seq), count("timestamp"),
                strftime(min("timestamp"), '{_STAMP}'), strftime(max("timestamp"), '{_STAMP}')
            FROM {lines if self._from_lines(view) else RENAMED.get(stream, stream)} GROUP BY writer
            """  # noqa: S608 - constants
        ).fetchall()
        scan = Scan(self._run.path, stream)
        for writer, count, lowest, highest, stamped, first, last in rows:
            if not writer or lowest != 0 or highest != count - 1 or stamped != count:
                return None
            scan.coverage[writer] = Coverage.up_to(count)
            scan.first = min(scan.first or first, first)
            scan.last = max(scan.last, last)
        return scan

    def failed(self) -> Iterator[TaskFailed]:
        """The failed attempts, in no particular order, with what tells their causes apart."""
        found = self._connection.execute(
            f"""
            SELECT strftime("timestamp", '{_STAMP}') AS timestamp, writer, seq, task, task_id, attempt, args,
                worker, duration_s, error_type, error_message, exit_code, fingerprint
            FROM {self.task_lines} WHERE kind = 6
            """  # noqa: S608 - constants
        )
        names = [column[0] for column in found.description or ()]
        while batch := found.fetchmany(1000):
            for row in batch:
                fields = dict(zip(names, row, strict=True))
                fields["args"] = msgspec.json.decode(fields["args"] or "{}")
                for name in ("timestamp", "writer", "seq"):
                    if fields[name] is None:  # a line that does not say it
                        del fields[name]
                yield TaskFailed(**fields)

    def hold(self, until: int | None, *, going_on: bool = False) -> None:
        """Make `attempt_intervals` and `span_intervals`, as `hold` does, of the streams that were read.

        With `going_on` the run has no end on record: what is open lasts until its last heartbeat.
        """
        if "tasks" in self.streams:
            self._hold_attempts(until)
        if "spans" in self.streams:
            timed = _TIMED_ROWS if self._from_lines("spans") else _TIMED
            self._connection.execute(timed)
            if going_on and until is not None:
                hold_open(self._connection, until)

    def _hold_attempts(self, until: int | None) -> None:
        if self._from_lines("attempts"):
            made = attempts_from_lines(self._connection, self._run.run_id)
        else:
            made = FromLines("FROM attempts", bool(scalar(self._connection, _ENTANGLED)), irregular=False)
        if made.entangled or made.irregular:
            self._use_memory()
        file = None if made.entangled else self._file("tasks", "attempt_intervals")
        hold_attempts(self._connection, until, made.attempts, file=file)

    def _read_spans(self) -> None:
        if not self._from_lines("spans"):
            self._connection.execute("CREATE OR REPLACE TEMP VIEW span_rows AS FROM spans")
        elif read_spans(self._connection, self._file("spans", "span_lines")):
            self._use_memory()

    def _from_lines(self, view: str) -> bool:
        return view in self._tables.unstored

    def _file(self, stream: str, name: str) -> Path | None:
        return self._tables.scratch / f"{name}.parquet" if stream in self._large else None

    def _use_memory(self) -> None:
        if self._large:
            self._connection.execute("RESET memory_limit")  # these are put together in memory


def hold_open(connection: duckdb.DuckDBPyConnection, until: int) -> None:
    """Let spans of `span_intervals` that are open last until the run's last heartbeat, but for those in
    attempts that are over.

    Their lines say how long they had been open when the recorder noted them, which it does once.
    """
    connection.execute(_GOES_ON, {"until": until})


def hold_attempts(
    connection: duckdb.DuckDBPyConnection, until: int | None, attempts: str, *, file: Path | None = None
) -> None:
    """Make `attempt_intervals` of a statement that gives the attempts, with the columns of `attempts` that
    `attempt_intervals` has.

    With `file` it is kept there, as Parquet, and not in memory: for attempts none of which depends on another
    or was superseded before it began.
    """
    connection.execute(MACROS)
    keep_rows(connection, "attempt_intervals", _HELD.format(attempts=attempts), file, {"until": until})
    if file is None:
        connection.execute(_DEPENDENTS)
        connection.execute(_SUPERSEDED)


def merge(connection: duckdb.DuckDBPyConnection, name: str, key: str, intervals: str) -> None:
    """Make the table `name` of `key`, `since`, `until` and `before`: the union of each key's intervals, in
    nanoseconds.

    `before` is the time covered before each piece. `intervals` is a select statement of the first three
    columns, none of them null and `until` never before `since`.
    """
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE {name} AS
        WITH ordered AS (
            SELECT {key}, since, until, max(until) OVER (
                PARTITION BY {key} ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS reached FROM ({intervals})
        ), begun AS ( -- what had been reached when the next piece began is where this one ends
            SELECT {key}, since, lead(reached) OVER (PARTITION BY {key} ORDER BY since) AS until
            FROM ordered WHERE reached IS NULL OR since > reached
        ), merged AS (
            SELECT begun.{key}, begun.since, coalesce(begun.until, last.until) AS until
            FROM begun JOIN (SELECT {key}, max(until) AS until FROM ordered GROUP BY {key}) AS last
                USING ({key})
        )
        SELECT *, coalesce(sum(until - since) OVER (
            PARTITION BY {key} ORDER BY since ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0)::BIGINT AS before FROM merged
        """  # noqa: S608 - names and statements of ours
    )


def uncovered(outer: str, inner: str, key: str) -> str:
    """A select statement of `name`, `since` and `until`: what is left of the outer intervals without the
    inner ones of their key.

    `outer` is a select statement of `key`, which no two of them share, `name`, `since` and `until`; `inner`
    one of `key`, `since` and `until`. None of these is null, and `until` never before `since`.
    """
    return f"""
        WITH outers AS ({outer}), steps AS ( -- the last gap ends where the outer interval ends
            {inner} UNION ALL SELECT {key}, until, until FROM outers
        ), gaps AS (
            SELECT outers.name, least(steps.since, outers.until) AS until,
                greatest(outers.since, max(steps.until) OVER (
                PARTITION BY {key} ORDER BY steps.since, steps.until ROWS BETWEEN UNBOUNDED PRECEDING
                    AND 1 PRECEDING
            )) AS since
            FROM steps JOIN outers USING ({key})
        )
        SELECT name, since, until FROM gaps WHERE since < until
    """  # noqa: S608 - names and statements of ours


def most_at_once(connection: duckdb.DuckDBPyConnection, intervals: str) -> tuple[int, int] | None:
    """How many of these intervals run at once at most, and when first; None where there are none.

    `intervals` is a select statement of `since` and `until`. An empty interval counts for its moment;
    touching ones do not overlap.
    """
    row = connection.execute(
        f"""
        WITH intervals AS ({intervals}), steps AS (
            SELECT since AS moment, 1 AS step FROM intervals
            UNION ALL SELECT greatest(until, since + 1), -1 FROM intervals
        ), counted AS (
            SELECT moment, sum(step) OVER (ORDER BY moment, step ROWS UNBOUNDED PRECEDING) AS running
                FROM steps
        )
        SELECT max(running), min(moment) FILTER (running = (SELECT max(running) FROM counted)) FROM counted
        """  # noqa: S608 - a statement of ours
    ).fetchone()
    return None if row is None or row[0] is None else (int(row[0]), int(row[1]))
