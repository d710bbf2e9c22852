"""The summary of a run with very many tasks and spans: its lines are read once, into columns, and counted
there.

The result equals that of going through the events one by one, to the last digit. That holds for streams that
are as they were when the run closed and contain nothing twice; others are gone through event by event. The
summary of a compacted run is cached beside its snapshots, and used while no file of the run has changed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from flightlog.analyze.report.critical_path import order_attempts
from flightlog.analyze.report.interval_tables import COLUMNS_BESIDE, MACROS, merge, scalar
from flightlog.analyze.report.large_tasks import (
    HeldWork,
    exact_total,
    hold_tasks,
    hold_views,
    metrics_by_owner,
    ordered,
    pair_up,
    picked,
    spread_of,
    task_summary,
)
from flightlog.analyze.report.spans import SpanNameTally, SpanSummary, listed_names
from flightlog.analyze.report.summary import Summary, summarize, summary_schema
from flightlog.core.stats import Distribution
from flightlog.core.time import seconds
from flightlog.events import TaskFailed
from flightlog.events.columns import columns
from flightlog.store import layout
from flightlog.store.documents import decode_document, read_document, replace_bytes
from flightlog.store.integrity import covered_files
from flightlog.store.read.completeness import Coverage
from flightlog.store.read.files import find_parts
from flightlog.store.read.lines import Scan
from flightlog.store.tables.connection import LONGEST_LINE_BYTES, READ, text
from flightlog.store.tables.parquet import move_folder_aside
from flightlog.store.tables.run_tables import open_all
from flightlog.store.tables.snapshots import FileOrigin, Snapshots, are_as_noted, is_unchanged, origins
from flightlog.store.tables.sources import Sources, StreamSource
from flightlog.store.tables.views import KIND
from flightlog.version import __version__

if TYPE_CHECKING:
    import duckdb

    from flightlog.analyze.report.spans import SpanSummary
    from flightlog.analyze.report.tasks import TaskSummary
    from flightlog.store.run import Run
    from flightlog.store.tables.streams import StreamTables

LARGE_BYTES = 16 << 20
"""A stream of at least this many bytes is read into columns."""
MEMORY = "340MB"
"""What DuckDB may hold of them at once; the rest waits on disk."""

_COLUMNS: Mapping[str, Sequence[str]] = {
    "tasks": (
        "timestamp",
        "writer",
        "seq",
        "task",
        "task_id",
        "component",
        "worker",
        "queue_s",
        "duration_s",
        "cpu_s",
        "cpu_scope",
        "peak_rss_bytes",
        "rss_scope",
        "read_bytes",
        "write_bytes",
        "result_bytes",
        "gpu_peak_bytes",
        "gpu_memory_scope",
        "gpu_s",
        "gpu_scope",
        "args",
        "metrics",
        "error_type",
        "error_message",
        "exit_code",
        "fingerprint",
        "reason",
        "span_id",
        "depends_on",
    ),
    "spans": (
        "event",
        "timestamp",
        "writer",
        "seq",
        "name",
        "span_id",
        "parent_id",
        "duration_s",
        "status",
        "metrics",
    ),
}
"""What is needed of each stream."""
_MORE = {"tasks": f"CAST({KIND} AS UTINYINT) AS kind, coalesce(attempt, 1) AS attempt,", "spans": ""}
"""And what is made of others: attempts leave out that they are the first."""


class LargeStreams:
    """The streams `tasks` and `spans` of one run, as far as they are large and regular: those are in `scans`.

    Their events are in the connection's views `tasks_read` and `spans_read`.
    """

    def __init__(
        self,
        run: Run,
        tables: StreamTables,
        from_bytes: int = LARGE_BYTES,
        *,
        counted: bool = False,
        only: Collection[str] = ("tasks", "spans"),
    ) -> None:
        """Read them, but for those of a run that was `counted`: of that, what is stored is enough.

        Of the streams that `only` does not name nothing is read.
        """
        self._run, self._connection, self._scratch = run, tables.connection, tables.scratch
        self.scans: dict[str, Scan] = {}
        """How complete each is."""
        self.in_turn = False
        """Whether attempts took turns on each worker, and there is a table `turns`; known once `tasks` was
        asked."""
        sources = Sources(run, tables.scratch)
        sizes = {stream: sum(part.path.stat().st_size for part in sources.parts(stream)) for stream in only}
        large = [stream for stream, size in sizes.items() if size >= max(1, from_bytes)]
        self.held: set[str] = set()
        """The streams whose tables `held` and `span_intervals` are there."""
        self._work: HeldWork | None = None
        self._stored = counted and "tasks" in large
        for stream in large if not counted else ():
            if sources.is_sealed(stream):
                self._read(stream, sources.source(stream))
        if len(self.scans) < len(large) and not counted:  # what is put together another way may take more
            self._connection.execute("RESET memory_limit")

    def _read(self, stream: str, source: StreamSource) -> None:
        connection = self._connection
        connection.execute(f"SET memory_limit = '{MEMORY}'")
        files = f"[{', '.join(text(str(file)) for file in source.files)}]"
        copy = text(str(self._scratch / f"{stream}.parquet"))
        selected = f"{_MORE[stream]} {', '.join(_COLUMNS[stream])}"
        if source.parquet:
            parquet = f"read_parquet({files}, hive_partitioning=false)"
            read = f"SELECT {selected} FROM {parquet}"  # noqa: S608 - quoted
        else:
            kinds = columns(stream)
            wanted = {name: kinds[name] for name in ("event", "attempt", *_COLUMNS[stream]) if name in kinds}
            lines = READ.format(f"maximum_object_size={LONGEST_LINE_BYTES}, columns={wanted}").replace(
                "$files", files
            )
            known = f"SELECT {selected} FROM {lines} WHERE event IS NOT NULL"  # noqa: S608 - quoted
            connection.execute(f"COPY ({known}) TO {copy} {COLUMNS_BESIDE}")
            read = f"SELECT * FROM read_parquet({copy})"  # noqa: S608 - quoted
        connection.execute(f"CREATE TEMP VIEW {stream}_read AS {read}")
        scan = self._scan(stream)
        regular = pair_up if stream == "tasks" else are_regular
        if scan is not None and regular(connection):
            self.scans[stream] = scan

    def _scan(self, stream: str) -> Scan | None:
        """What a pass over the events would have counted; None where some are of no known kind, or not
        numbered.
        """
        scan = Scan(self._run.path, stream)
        known = "kind IS NOT NULL" if stream == "tasks" else "event IN ('span', 'span_open')"
        rows = self._connection.execute(
            f"""
            SELECT writer, count(*), min(seq), max(seq), bool_and({known}),
                strftime(min("timestamp"), '{_STAMP}'), strftime(max("timestamp"), '{_STAMP}'),
                    count("timestamp")
            FROM {stream}_read GROUP BY writer
            """  # noqa: S608 - constants
        ).fetchall()
        for writer, lines, lowest, highest, are_known, first, last, stamped in rows:
            if not writer or lowest != 0 or highest != lines - 1 or not are_known or stamped != lines:
                return None
            scan.coverage[writer] = Coverage.up_to(lines)
            scan.first = min(scan.first or first, first)
            scan.last = max(scan.last, last)
        return scan

    def failed(self) -> Iterator[TaskFailed]:
        """The failed attempts, in no particular order, with what tells their causes apart."""
        found = self._connection.execute(
            f"""
            SELECT strftime("timestamp", '{_STAMP}') AS timestamp, writer, seq, task, task_id, attempt, args,
                worker,
                duration_s, error_type, error_message, exit_code, fingerprint
            FROM tasks_read WHERE kind = 6
            """  # noqa: S608 - a constant
        )
        names = [column[0] for column in found.description or ()]
        while rows := found.fetchmany(1000):
            for row in rows:
                fields = dict(zip(names, row, strict=True))
                yield TaskFailed(**{**fields, "args": msgspec.json.decode(fields["args"] or "{}")})

    def tasks(self, until: int | None) -> tuple[TaskSummary, HeldWork]:
        """What became of the tasks, and what the workers had to do; makes the table `held`."""
        hold_tasks(self._connection, self._run.run_id, until, self._scratch)
        self.in_turn = order_attempts(self._connection)
        self.held.add("tasks")
        summary = task_summary(self._connection, until)
        self._work = HeldWork(self._connection, self.in_turn)
        return summary, self._work

    @property
    def most(self) -> tuple[int, int] | None:
        """How many attempts were at once at most, and when first, where that was found on the way."""
        return self._work.most if self._work is not None else None

    def hold_stored(self, until: int | None) -> None:
        """Make the table `held` of the attempts that are stored, where they are many; nothing is counted."""
        if not self._stored:
            return
        self._connection.execute(f"SET memory_limit = '{MEMORY}'")
        if hold_views(self._connection, until, self._scratch):
            self.in_turn = order_attempts(self._connection)
            self.held.add("tasks")
        else:
            self._connection.execute("RESET memory_limit")

    def spans(self) -> SpanSummary:
        """Where the time of spans went; makes the table `span_intervals`."""
        read_spans(self._connection, self._run.info.span_id)
        self.held.add("spans")
        return span_summary(self._connection)


_STAMP = "%Y-%m-%dT%H:%M:%S.%fZ"


_TIMED = """
CREATE OR REPLACE TEMP TABLE span_intervals AS
WITH times AS (
    SELECT name, span_id, parent_id, status, in_ns(duration_s) AS lasted,
        at_ns("timestamp") AS began, at_ns("timestamp") + in_ns(duration_s) AS stopped
    FROM spans_read
), inside AS (
    SELECT child.parent_id, greatest(child.began, parent.began) AS since,
        least(child.stopped, parent.stopped) AS until
    FROM times AS child JOIN times AS parent ON parent.span_id = child.parent_id
    WHERE child.parent_id <> $root AND child.stopped IS NOT NULL AND parent.stopped IS NOT NULL
        AND since < until
), covered AS (
    SELECT parent_id, sum(greatest(0, until - greatest(since, coalesce(reached, since)))) AS covered
    FROM (
        SELECT *, max(until) OVER (
            PARTITION BY parent_id ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached FROM inside
    )
    GROUP BY parent_id
)
SELECT name, span_id, times.parent_id, status, false AS "open", lasted,
    lasted - CAST(coalesce(covered.covered, 0) AS BIGINT) AS own, began, stopped
FROM times LEFT JOIN covered ON covered.parent_id = times.span_id
"""


def are_regular(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether each of `spans_read` has ended, and has an id of its own that is not its parent's."""
    [(odd, ids, lines)] = connection.execute(
        """
        SELECT count(*) FILTER (event <> 'span' OR coalesce(span_id, '') = '' OR span_id = parent_id),
            count(DISTINCT span_id), count(*)
        FROM spans_read
        """
    ).fetchall()
    return not odd and ids == lines


def read_spans(connection: duckdb.DuckDBPyConnection, root: str) -> None:
    """Make the table `span_intervals` of `spans_read`; `root` is the id of the run itself, inside which all
    spans are.
    """
    connection.execute(MACROS)
    connection.execute(_TIMED, {"root": root})


class _CountedName(SpanNameTally):
    """The tally of a name whose durations were counted in their table."""

    durations_spread = Distribution()

    def spread(self) -> Distribution:
        """Of all durations."""
        return self.durations_spread


def span_summary(connection: duckdb.DuckDBPyConnection) -> SpanSummary:
    """All spans, from `span_intervals` and `spans_read`."""
    names: dict[str, _CountedName] = {}
    answer = connection.execute(
        """
        SELECT name, count(*), count(*) FILTER (status = 'error'), coalesce(sum(own), 0) FROM span_intervals
            GROUP BY name
        """
    )
    for name, count, errors, own in answer.fetchall():
        tally = names[name] = _CountedName()
        tally.count, tally.errors, tally.own = count, errors, int(own)
    answer = connection.execute(
        f"""
        SELECT name, {picked("durations")}, * EXCLUDE (name, durations) FROM (
            SELECT name, {ordered("duration_s", "true")} AS durations, {exact_total("duration_s", "true")}
            FROM spans_read WHERE duration_s IS NOT NULL GROUP BY name
        )
        """  # noqa: S608 - constants
    )
    while row := answer.fetchone():
        names[row[0]].durations_spread = spread_of(*row[1:])
    measured = metrics_by_owner(
        connection, 'SELECT name AS owner, metrics, "timestamp", writer, seq FROM spans_read'
    )
    for name, metrics in measured.items():
        names[name].metrics = metrics
    merge(
        connection,
        "open_by_name",
        "name",
        "SELECT name, began AS since, stopped AS until FROM span_intervals WHERE began IS NOT NULL AND "
        "stopped IS "
        "NOT NULL",
    )
    walls = connection.execute("SELECT name, sum(until - since) FROM open_by_name GROUP BY name").fetchall()
    wall = {name: int(length) for name, length in walls}
    merge(connection, "open_at_all", "all_of_them", "SELECT 0 AS all_of_them, since, until FROM open_by_name")
    at_all = scalar(connection, "SELECT coalesce(sum(until - since), 0) FROM open_at_all")
    return SpanSummary(
        count=sum(name.count for name in names.values()),
        errors=sum(name.errors for name in names.values()),
        open_in_flight=0,
        wall_s=seconds(int(at_all)),
        busy_s=seconds(sum(name.own for name in names.values())),
        names=len(names),
        by_name={name: names[name].summary(wall.get(name, 0)) for name in listed_names(names)},
        in_flight=[],
    )


KEPT = "summary.json"


class Sealed(Struct, frozen=True):
    """What the file holds: the summary as it was encoded, and its SHA-256."""

    sha256: str
    kept: msgspec.Raw


class CachedSummary(Struct, frozen=True, kw_only=True):
    """A summary, and what it was made by and from."""

    made_by: str
    """A digest of its schema and of the version: another version may count in another way."""
    made_from: dict[str, FileOrigin]
    """All files of the run but its snapshots, by their path within it."""
    summary: Summary


class _Older(Struct, frozen=True):
    made_by: str


def keep_summary(run: Run, *, from_bytes: int = LARGE_BYTES) -> bool:
    """Summarize a run of at least `from_bytes` and cache the result in `parquet/`; whether that was done.

    What is current stays as it is. Raises `OSError` where files cannot be read or written.
    """
    folder = run.path / layout.PARQUET
    if _read(run)[1] is not None:  # damaged: gone, even where none is needed
        move_folder_aside(folder / KEPT)
        (folder / KEPT).unlink(missing_ok=True)
    if run.size_bytes() < from_bytes or not folder.is_dir() or cached_summary(run) is not None:
        return False
    files = [run.path / name for name in sorted(covered_files(run.path))]
    before = origins(run.path, files)
    with open_all([run], only={"attempts", "spans"}) as tables:
        summary = summarize(run, LargeStreams(run, tables, from_bytes))
    if covered_files(run.path) != before.keys() or not are_as_noted(run.path, files, before):
        return False
    kept = CachedSummary(made_by=_digest(), made_from=before, summary=summary)
    encoded = msgspec.json.encode(kept)
    sealed = Sealed(hashlib.sha256(encoded).hexdigest(), msgspec.Raw(encoded))
    replace_bytes(folder / KEPT, msgspec.json.encode(sealed), durable=True)
    return True


def cached_summary(run: Run) -> Summary | None:
    """The summary that was kept, if it is what counting would give: no file has changed, and this version
    made it.

    A file of the same size and time is taken as unchanged; of the same size alone, as in a copy, its checksum
    decides. None where the snapshots that go with it are not current and intact.
    """
    kept, damage = _read(run)
    if damage is not None:
        run.tell_damaged_snapshot(f"{layout.PARQUET}/{KEPT} {damage}")
    if kept is None or kept.made_by != _digest() or kept.summary.run.status != run.status:
        return None
    if kept.made_from.keys() != covered_files(run.path):
        return None
    if not all(is_unchanged(run.path / name, origin) for name, origin in kept.made_from.items()):
        return None
    parts = find_parts(run.path)
    needed = {
        f"views/{view}" for view, stream in (("attempts", "tasks"), ("spans", "spans")) if stream in parts
    }
    snapshots = Snapshots(run.path, parts)
    return kept.summary if all(snapshots.file(name) is not None for name in needed) else None


def cached_damage(run: Run) -> str | None:
    """What is wrong with the summary that was kept, as the end of a sentence; None where nothing is, or there
    is none.
    """
    return _read(run)[1]


def _read(run: Run) -> tuple[CachedSummary | None, str | None]:
    """The summary that was kept, and what is wrong with its file. One that another version kept is passed
    over.
    """
    file = run.path / layout.PARQUET / KEPT
    read = read_document(file, Sealed)
    if read.value is None:
        return None, None if not os.path.lexists(file) or _is_older(file) else "is damaged: it cannot be read"
    if hashlib.sha256(read.value.kept).hexdigest() != read.value.sha256:
        return None, "is damaged: it has another SHA-256 than when it was written"
    return decode_document(bytes(read.value.kept), CachedSummary, KEPT).value, None


def _is_older(file: Path) -> bool:
    """Whether the file is that of a version which noted no SHA-256."""
    return read_document(file, _Older).value is not None


def _digest() -> str:
    schema = msgspec.json.encode(summary_schema(), order="deterministic")
    return hashlib.sha256(__version__.encode() + schema).hexdigest()[:16]
