"""The relations of a run that goes on, brought up to date as its lines come.

New lines are appended to typed tables. Attempts of which a line has come are made anew, from all of their
lines, by the statement that a report uses. So late, doubled and disordered lines give the same rows as
reading everything at the end. Most spans have one line, which is their row; the others, open ones and those
told twice, are made by the statement of `spans`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flightlog.events.columns import columns, projection
from flightlog.store.limits import StoreLimits
from flightlog.store.tables import intervals
from flightlog.store.tables.connection import plain_scratch, private_connection, text, utc_time
from flightlog.store.tables.run_tables import BASE_NAME, RENAMED, RunTables, StreamTable
from flightlog.store.tables.views import HIDDEN, KIND, ONE, attempts_of_one

if TYPE_CHECKING:
    from collections.abc import Iterable

    import duckdb

_LINE = ("event", "timestamp", "writer", "seq")
_COLUMNS: dict[str, tuple[str, ...]] = {
    "tasks": (
        *(*_LINE, "task", "task_id", "attempt", "worker", "args", "queue_s", "duration_s"),
        *("depends_on", "error_type", "error_message", "exit_code", "fingerprint", "reason", "delay_s"),
    ),
    "spans": (*_LINE, "name", "span_id", "parent_id", "duration_s", "elapsed_s", "status", "tags"),
    "metrics": (*_LINE, "name", "value", "step", "nonfinite"),
    "cache": (*_LINE, "result", "saved_s"),
}
"""Of streams with very many lines, the columns that are followed; of the others all are."""
FOLLOWED = (*_COLUMNS, "resources", "failures", "devices")
"""The streams whose lines become rows."""
_OF_ATTEMPTS = (
    *("task", "task_id", "attempt", "state", "retried", "worker", "depends_on", "args"),
    *("submitted_at", "started_at", "ended_at", "queue_s", "duration_s"),
)
_TASK_KEY = "task_id, attempt"
_STATE = "ENUM ('pending', 'running', 'completed', 'failed', 'cancelled')"
"""Every question tells attempts apart by it: as a number, that takes a fifth less time than as a text."""

_TABLES = f"""
CREATE TABLE touched_lines AS FROM task_events;
CREATE VIEW task_lines AS SELECT *, {KIND} AS kind FROM task_events;
CREATE TABLE {HIDDEN}.last_signs (run_id VARCHAR, of_run TIMESTAMP, by_writer MAP(VARCHAR, TIMESTAMP));
CREATE VIEW last_signs AS FROM {HIDDEN}.last_signs;
CREATE TABLE odd_spans (span_id VARCHAR);
CREATE TABLE {HIDDEN}.for_spans AS SELECT *, NULL AS metrics, NULL AS error_type, NULL AS error_message,
    NULL AS thread FROM span_events;
CREATE TABLE odd_span_rows AS {ONE};
CREATE VIEW span_rows AS
SELECT name, span_id, parent_id, "timestamp" AS started_at, duration_s, status, tags, false AS "open"
FROM span_events ANTI JOIN odd_spans USING (span_id) WHERE event = 'span'
UNION ALL BY NAME SELECT name, span_id, parent_id, started_at, duration_s, status, tags, "open"
FROM odd_span_rows;
"""  # noqa: S608 - constants

_TOUCH = f"""
INSERT INTO touched_lines FROM task_events SEMI JOIN (
    SELECT {_TASK_KEY} FROM task_events WHERE rowid >= $since
) AS new USING ({_TASK_KEY})
"""  # noqa: S608 - constants
_OPEN = "state IN ('pending', 'running')"
_TALLIES = f"""
CREATE TABLE remade AS FROM attempt_intervals;
CREATE TABLE ended_tallies AS {intervals.tallies_of("attempt_intervals")};
CREATE VIEW open_attempts AS FROM attempt_intervals WHERE {_OPEN};
CREATE VIEW attempt_tallies AS FROM ended_tallies UNION ALL {intervals.tallies_of("open_attempts")};
"""
"""Attempts that have ended are counted once, and then only again where a line of one comes late."""
_COUNT_ENDED = f"""
CREATE OR REPLACE TABLE ended_tallies AS
{intervals.tallies_of(f"(FROM attempt_intervals WHERE NOT {_OPEN})")}
"""
_COUNT_REMADE = f"""
PREPARE count_remade AS INSERT INTO ended_tallies
{intervals.tallies_of(f"(FROM remade WHERE NOT {_OPEN})")}
"""
_FORGET = f"""
DELETE FROM attempt_intervals USING (SELECT DISTINCT {_TASK_KEY} FROM touched_lines) AS touched
WHERE attempt_intervals.task_id = touched.task_id AND attempt_intervals.attempt = touched.attempt
RETURNING {_OPEN}
"""  # noqa: S608 - constants
_ODD_SPANS = """
INSERT INTO odd_spans
SELECT span_id FROM span_events SEMI JOIN (
    SELECT span_id FROM span_events WHERE rowid >= $since AND span_id <> ''
) AS new USING (span_id) ANTI JOIN odd_spans USING (span_id)
GROUP BY span_id HAVING count(*) > 1 OR bool_or(event = 'span_open')
"""
_LINES_OF_ODD_SPANS = f"""
INSERT INTO {HIDDEN}.for_spans SELECT *, NULL, NULL, NULL, NULL FROM span_events
WHERE span_id IN (FROM odd_spans) OR (span_id = '' AND event = 'span_open')
"""  # noqa: S608 - constants


class FollowedTables(RunTables):
    """The relations of one run as far as its lines were given: `add` takes lines, `update` makes of them what
    is derived. Not thread-safe.

    Of the relations that `RunTables` describes there are `task_events`, `task_lines`, `attempt_intervals`,
    `attempt_tallies`, `span_events`, `span_rows` and those of the streams `FOLLOWED`, without the columns
    that live views do not show. `stopped` of an attempt that runs is its start. Rows that do not fit into
    memory wait on disk.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, scratch: Path, run_id: str) -> None:
        self.runs = ()
        self._connection, self._scratch, self._run_id = connection, scratch, run_id
        self._made = set()
        self._tables: dict[str, tuple[str, StreamTable]] = {}
        self.rows_of = dict.fromkeys(FOLLOWED, 0)
        """How many rows each stream has."""
        self._derived = {"tasks": 0, "spans": 0}
        """How many of them are in what is derived."""
        self._deleted = self._odd_lines = self._tallies = 0
        self._last_signs: dict[str, str] | None = None
        for stream in FOLLOWED:
            known = columns(stream)
            names = _COLUMNS.get(stream, tuple(known))
            table = StreamTable({name: known[name] for name in names}, projection(stream, names))
            self._tables[stream] = RENAMED.get(stream, stream), table
            connection.execute(f"CREATE TABLE {self._tables[stream][0]} AS {table.nothing()}")
        connection.execute(_TABLES)
        connection.execute(f"CREATE TABLE attempt_intervals AS {self._attempts('task_events')} LIMIT 0")
        connection.execute(_TALLIES + _COUNT_REMADE)
        # To plan the statement takes longer than to make the attempts of a moment.
        connection.execute(f"PREPARE remake AS INSERT INTO remade {self._attempts('touched_lines')}")

    def make(self, names: Iterable[str]) -> None:
        """Nothing: all relations are there from the beginning."""

    @property
    def scratch(self) -> Path:
        """A folder for files of the caller's, which goes away with the tables."""
        return self._scratch

    @property
    def streams(self) -> frozenset[str]:
        """The streams of which there are rows."""
        return frozenset(stream for stream, rows in self.rows_of.items() if rows)

    def add(self, stream: str, lines: Sequence[bytes]) -> None:
        """Append lines of a stream, each once, as `NormalizedLines` gives them."""
        if not lines:
            return
        name, table = self._tables[stream]
        file = self._scratch / "lines.jsonl"
        file.write_bytes(b"".join(lines))
        if not self.rows_of[stream]:  # to plan the statement takes longer than to read the lines of a moment
            rows = table.lines(f"[{text(str(file))}]")
            columns = f'{text(self._run_id)}, * EXCLUDE ("the file")'
            self._connection.execute(
                f"PREPARE add_{stream} AS INSERT INTO {name} SELECT {columns} FROM {rows}"  # noqa: S608
            )
        row = self._connection.execute(f"EXECUTE add_{stream}").fetchone()
        self.rows_of[stream] += row[0] if row else 0

    def update(self, until: str | None, last_signs: Mapping[str, str]) -> None:
        """Bring attempts and spans up to date.

        What is open lasts until the last sign of life of the process that wrote of it, if that is one of
        `last_signs`, else `until`.
        """
        if self.rows_of["tasks"] > self._derived["tasks"]:
            self._update_attempts(self._derived["tasks"])
            self._derived["tasks"] = self.rows_of["tasks"]
        if self.rows_of["spans"] > self._derived["spans"]:
            self._connection.execute(_ODD_SPANS, {"since": self._derived["spans"]})
            self._connection.execute(f"TRUNCATE {HIDDEN}.for_spans")
            inserted = self._connection.execute(_LINES_OF_ODD_SPANS).fetchone()
            self._odd_lines = inserted[0] if inserted else 0
            self._derived["spans"] = self.rows_of["spans"]
        if (
            self._odd_lines or self._last_signs != last_signs
        ):  # the end of the run is that of open spans alone
            self._last_signs = dict(last_signs)
            self._connection.execute(f"TRUNCATE {HIDDEN}.last_signs")
            self._connection.execute(
                f"INSERT INTO {HIDDEN}.last_signs "  # noqa: S608 - a constant
                "VALUES ($1, $2, map($3::VARCHAR[], $4::TIMESTAMP[]))",
                [self._run_id, utc_time(until), [*last_signs], [*map(utc_time, last_signs.values())]],
            )
        if self._odd_lines:
            self._connection.execute(f"TRUNCATE odd_span_rows; INSERT INTO odd_span_rows {ONE}")

    def _update_attempts(self, known: int) -> None:
        if self.rows_of["tasks"] > 2 * known:
            made = self._attempts("task_events")
            self._connection.execute(f"CREATE OR REPLACE TABLE attempt_intervals AS {made}; {_COUNT_ENDED}")
            return
        self._connection.execute("TRUNCATE touched_lines; TRUNCATE remade")
        self._connection.execute(_TOUCH, {"since": known})
        forgotten = self._connection.execute(_FORGET).fetchall()
        self._deleted += len(forgotten)
        self._connection.execute("EXECUTE remake")
        self._connection.execute("INSERT INTO attempt_intervals FROM remade")
        counted = self._connection.execute("EXECUTE count_remade").fetchone()
        self._tallies += counted[0] if counted else 0
        if not all(was_open for (was_open,) in forgotten) or self._tallies > StoreLimits.max_added_tallies:
            self._connection.execute(_COUNT_ENDED)
            self._tallies = 0
        if self._deleted > self.rows_of["tasks"]:  # rows that are deleted still take memory
            self._connection.execute("CREATE OR REPLACE TABLE attempt_intervals AS FROM attempt_intervals")
            self._deleted = 0

    def _attempts(self, lines: str) -> str:
        made = attempts_of_one(self._run_id, lines, _OF_ATTEMPTS)
        made = f"SELECT * REPLACE (CAST(state AS {_STATE}) AS state) FROM ({made})"  # noqa: S608 - ours
        return intervals.intervals_of(made, "CAST(NULL AS BIGINT)", whole=False)


@contextmanager
def follow_tables(run_id: str, memory: str) -> Iterator[FollowedTables]:
    """Tables of a run, empty at first, which go away with the context; `memory` is what DuckDB may hold."""
    with plain_scratch() as scratch:
        settings: dict[str, Any] = {
            "temp_directory": str(scratch / "spill"),
            "preserve_insertion_order": "true",  # rows of a table are told apart by when they came
            "memory_limit": memory,
            "threads": "1",  # what follows a run must not slow it down
        }
        with private_connection(settings) as connection:
            connection.execute(f"CREATE SCHEMA {HIDDEN}; {BASE_NAME}; {intervals.MACROS}")
            yield FollowedTables(connection, scratch, run_id)
