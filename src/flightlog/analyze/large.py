"""A run of very many tasks and spans: its lines are read once, into columns, and counted there.

What comes out is what going through the events one by one gives, to the last digit. That holds for streams
that are as they were when the run closed, and in which nothing is told twice. Others are gone through event
by event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from flightlog.analyze.held import COLUMNS_BESIDE
from flightlog.analyze.large_spans import are_regular, read_spans, span_summary
from flightlog.analyze.large_tasks import HeldWork, hold_tasks, hold_views, pair_up, task_summary
from flightlog.analyze.turns import take_turns
from flightlog.events import TaskFailed
from flightlog.events.columns import columns
from flightlog.store.columns_found import LONGEST_LINE_BYTES, READ, text
from flightlog.store.coverage import Coverage
from flightlog.store.lines import Scan
from flightlog.store.tables_sources import Source, Sources
from flightlog.store.tables_views import KIND

if TYPE_CHECKING:
    from flightlog.analyze.spans import SpanSummary
    from flightlog.analyze.tasks import TaskSummary
    from flightlog.store.run import Run
    from flightlog.store.tables_streams import StreamTables

LARGE_BYTES = 16 << 20
"""A stream of so many bytes is read into columns."""
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
        """The streams whose tables `held` and `timed` are there."""
        self._work: HeldWork | None = None
        self._stored = counted and "tasks" in large
        for stream in large if not counted else ():
            if sources.is_sealed(stream):
                self._read(stream, sources.source(stream))
        if len(self.scans) < len(large) and not counted:  # what is put together another way may take more
            self._connection.execute("RESET memory_limit")

    def _read(self, stream: str, source: Source) -> None:
        connection = self._connection
        connection.execute(f"SET memory_limit = '{MEMORY}'")
        files = f"[{', '.join(text(str(file)) for file in source.files)}]"
        copy = text(str(self._scratch / f"{stream}.parquet"))
        selected = f"{_MORE[stream]} {', '.join(_COLUMNS[stream])}"
        if source.parquet:
            read = f"SELECT {selected} FROM read_parquet({files}, hive_partitioning=false)"  # noqa: S608 - quoted
        else:
            kinds = columns(stream)
            wanted = {name: kinds[name] for name in ("event", "attempt", *_COLUMNS[stream]) if name in kinds}
            lines = READ.format(f"maximum_object_size={LONGEST_LINE_BYTES}, columns={wanted}").replace(
                "$files", files
            )
            connection.execute(
                f"COPY (SELECT {selected} FROM {lines} WHERE event IS NOT NULL) TO {copy} {COLUMNS_BESIDE}"  # noqa: S608 - quoted
            )
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
        self.in_turn = take_turns(self._connection)
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
            self.in_turn = take_turns(self._connection)
            self.held.add("tasks")
        else:
            self._connection.execute("RESET memory_limit")

    def spans(self) -> SpanSummary:
        """Where the time of spans went; makes the table `timed`."""
        read_spans(self._connection, self._run.info.span_id)
        self.held.add("spans")
        return span_summary(self._connection)


_STAMP = "%Y-%m-%dT%H:%M:%S.%fZ"
