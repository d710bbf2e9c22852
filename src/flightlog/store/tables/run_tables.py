"""Everything recorded of runs, as relations of one SQL model: `RunTables` is the only way in."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from flightlog.core.errors import DamagedSnapshot
from flightlog.core.text import INDEX, first_line
from flightlog.core.time import moment
from flightlog.store.liveness import latest
from flightlog.store.read.completeness import Coverage
from flightlog.store.read.lines import Scan
from flightlog.store.tables import attempts, intervals, workers
from flightlog.store.tables.connection import create_table, path_text, records, utc_time, within_64_bits
from flightlog.store.tables.streams import RENAMED, StreamTables, open_streams, stream_of, union, view_names
from flightlog.store.tables.views import DERIVED, KIND, NEEDS, STORED, attempts_of_one

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.read.events import RunReading
    from flightlog.store.run import Run
    from flightlog.store.tables.sources import Sources


P = ParamSpec("P")
T = TypeVar("T")

_NAMED = re.compile(r"\b(?:FROM|JOIN|UPDATE|INTO|DESCRIBE)\s+\"?(\w+)", re.IGNORECASE)
"""Where a statement of ours names a relation; none stands behind a comma, as columns do."""
_CREATED = re.compile(r"\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP\s+)?(?:TABLE|VIEW)\s+(\w+)", re.IGNORECASE)
"""Where it makes a table of the caller's own, which no stream of that name stands for."""
_OF_ONE_RUN = {
    "task_lines": "tasks",
    "attempt_intervals": "tasks",
    "span_rows": "spans",
    "span_intervals": "spans",
}
"""Relations of one run alone, and the streams that they are made from."""
_OF_WORKERS = {"worker_launches", "worker_lives", "worker_facts"}
"""Relations of one run alone that are made together, from the events of workers and from attempts."""
BASE_NAME = f"CREATE MACRO base_name(task) AS regexp_replace(task, '{INDEX}', '\\1')"
"""The name of a task without an index, as `core.text.base_name` has it."""
_STAMP = "%Y-%m-%dT%H:%M:%S.%fZ"


class RunTables:
    """The relations of one run or several, each made when a statement first names it and kept from then on.

    Streams, with every event once: `task_events`, `span_events`, `workers`, `resources`, `cache`, `failures`,
    …; users' streams under their names with `_` for `.`. Made from them: `attempts`, `tasks`, `spans`,
    `concurrency`, `runs`. Every one has `run_id` first, and timestamps in UTC. The macro `base_name(task)`
    gives `sim` of `sim[3]`. Of one run, also:

    - `task_lines` and `span_rows`: the lines of tasks as columns, with the number of their `kind`, and what
      the lines of each span say together.
    - `attempt_intervals` and `span_intervals`: when each attempt and span ran, in nanoseconds since 1970, up
      to the last sign of life where it is open (`store.tables.intervals`).
    - `worker_launches`, `worker_lives` and `worker_facts`: when each worker was launched, ready and up, and a
      row per worker with what is known of it (`store.tables.workers`).

    Of a run that goes on, each stream is read as it was when it was first needed. What is large waits on
    disk.
    """

    def __init__(self, streams: StreamTables, runs: Sequence[Run]) -> None:
        self.runs = tuple(runs)
        self._streams, self._connection = streams, streams.connection
        self._made: set[str] = set()
        self._entangled = False

    def execute(self, statement: str, parameters: Any = None) -> duckdb.DuckDBPyConnection:
        """Run a statement of ours, after making the relations that it names; gives what can be fetched from.

        It may make temporary tables, which are the caller's own. Raises OSError where files cannot be read.
        """
        self._made.update(_CREATED.findall(statement))
        self.make(_NAMED.findall(statement))
        return self._connection.execute(statement, parameters)

    def records(self, statement: str, parameters: Any = None) -> list[dict[str, Any]]:
        """The rows that a statement gives, each by the names of its columns."""
        return records(self.execute(statement, parameters))

    def scalar(self, statement: str, parameters: Any = None) -> Any:
        """The only value of the only row that a statement gives."""
        [(value,)] = self.execute(statement, parameters).fetchall()
        return value

    def rows(self, statement: str, parameters: Any = None) -> Iterator[tuple[Any, ...]]:
        """The rows that a statement gives, in bounded memory, however many there are."""
        found = self.execute(statement, parameters)
        while batch := found.fetchmany(2000):
            yield from batch

    def keep(self, name: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
        """Make a temporary table of rows that the caller has; `columns` are their names with their types."""
        create_table(self._connection, name, columns, rows)

    def cursor(self) -> RunTables:
        """The tables of several runs for another thread: what was made so far, and nothing more."""
        return _Cursor(self)

    @property
    def scratch(self) -> Path:
        """A folder for files of the caller's, which goes away with the tables."""
        return self._streams.scratch

    def close(self) -> None:
        """Close a cursor."""
        self._connection.close()

    def make(self, names: Iterable[str]) -> None:
        """Make relations; names that are none are passed over."""
        for name in dict.fromkeys(names):
            if name not in self._made:
                self._made.add(name)
                self._make(name)

    def _make(self, name: str) -> None:
        if name == "runs":
            create_runs(self._connection, self.runs)
        elif name in DERIVED:
            self._make_derived(name)
        elif name in _OF_WORKERS and len(self.runs) == 1:
            self.make_workers()
        elif name in _OF_ONE_RUN and len(self.runs) == 1:
            self._streams.make([_OF_ONE_RUN[name]])
            {
                "task_lines": self._make_task_lines,
                "attempt_intervals": self._make_attempt_intervals,
                "span_rows": self._make_span_rows,
                "span_intervals": self._make_span_intervals,
            }[name]()
        else:
            self._streams.make([stream_of(name)])

    def _make_derived(self, name: str) -> None:
        """A view over snapshots where they are current; of one run, else, over its lines as columns."""
        if name in {"tasks", "concurrency"}:
            self.make(["attempts"])
        else:
            self._streams.make([STORED[name]])
        statements = list(self._streams.stored.get(name, ()))
        if name not in STORED or name in self._streams.unstored:
            statements.insert(0, self._of_one_run(name) if len(self.runs) == 1 else DERIVED[name])
        # What is made of temporary tables is temporary; the rest is there for every cursor.
        kind = "TEMP VIEW" if len(self.runs) == 1 else "VIEW"
        self._connection.execute(f"CREATE OR REPLACE {kind} {name} AS {union(statements)}")

    def _of_one_run(self, name: str) -> str:
        """The statement of a derived relation of one run, of which each line is read once."""
        if name == "attempts":
            self._make_task_lines(whole=True)
            return attempts.with_run_id(self._streams.run_ids[0], self._lines_to_attempts(whole=True))
        if name == "spans":
            self.make(["span_rows"])
            return attempts.SPANS_FROM_ROWS
        return attempts.tasks_of_one(self._connection) if name == "tasks" else DERIVED[name]

    @cached_property
    def _large(self) -> frozenset[str]:
        """Streams so large that their rows are kept on disk; DuckDB's memory is limited from then on."""
        [sources] = self._streams.sources
        found = {one for one in ("tasks", "spans") if sources.size_bytes(one) >= attempts.LARGE_BYTES}
        if found:
            self._connection.execute(f"SET memory_limit = '{attempts.MEMORY}'")
        return frozenset(found)

    def _file(self, name: str) -> Path | None:
        return self._streams.scratch / f"{name}.parquet" if _OF_ONE_RUN[name] in self._large else None

    def _use_memory(self) -> None:
        """Let DuckDB hold in memory what has to be put together there."""
        if self._large:
            self._connection.execute("RESET memory_limit")

    def _make_task_lines(self, *, whole: bool = False) -> None:
        self._made.add("task_lines")
        if "attempts" in self._streams.unstored:
            file = self._file("task_lines")
            attempts.read_task_lines(self._connection, file, whole=whole)
        else:
            self.make(["task_events"])
            rows = f"SELECT *, {KIND} AS kind FROM task_events"  # noqa: S608 - a constant
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW task_lines AS {rows}")

    def _lines_to_attempts(self, *, whole: bool) -> str:
        found = attempts.attempts_from_lines(self._connection, self._streams.run_ids[0], whole=whole)
        self._entangled = found.entangled
        if found.irregular:
            self._use_memory()
        return found.attempts

    def _make_attempt_intervals(self) -> None:
        if "attempts" in self._made or "attempts" not in self._streams.unstored:
            self.make(["attempts"])
            statement = "FROM attempts"
            self._entangled = bool(self.scalar(intervals.ENTANGLED))
        else:
            self.make(["task_lines"])
            statement = self._lines_to_attempts(whole=False)
        if self._entangled:
            self._use_memory()
        file = None if self._entangled else self._file("attempt_intervals")
        intervals.make_attempt_intervals(self._connection, self.until, statement, file=file)
        if file is not None and "attempts" not in self._made:
            self._connection.execute("DROP TABLE paired")  # nobody asks for it again, and it is large

    def _make_span_rows(self) -> None:
        if "spans" not in self._streams.unstored:
            self.make(["spans"])
            self._connection.execute("CREATE OR REPLACE TEMP VIEW span_rows AS FROM spans")
        elif attempts.read_spans(self._connection, self._file("span_rows")):
            self._use_memory()

    def _make_span_intervals(self) -> None:
        self.make(["span_rows"])
        stored = "spans" not in self._streams.unstored
        intervals.make_span_intervals(
            self._connection, "spans" if stored else attempts.SPAN_ROWS_WITH_OWN_TIME
        )
        if self.scalar('SELECT count(*) FROM span_rows WHERE "open"'):
            self.make(["attempt_intervals"])
            intervals.end_open_spans(self._connection)

    def make_workers(self, *, with_attempts: bool = True) -> None:
        """Make the relations of workers, if need be from their events alone: tasks are not read then."""
        self._made |= _OF_WORKERS
        if with_attempts:
            self.make(["attempt_intervals"])
        events = self.runs[0].events("workers")
        workers.make_workers(self._connection, self.until, events, attempts=with_attempts)

    @cached_property
    def streams(self) -> frozenset[str]:
        """The streams there are files of."""
        return frozenset(stream for run in self.runs for stream in run.streams())

    @cached_property
    def reading(self) -> RunReading:
        """A reading of the one run, in which the streams that SQL has counted are counted."""
        [run] = self.runs
        reading = run.read()
        for stream in ("tasks", "spans", "metrics", "resources", "cache", "artifacts"):
            scan = self._scan(stream) if stream in self._streams.sources[0].streams() else None
            if scan is not None:
                reading.take(scan)
        return reading

    @cached_property
    def until(self) -> int | None:
        """When the one run ended, or gave its last sign of life: what is open lasts until then."""
        return moment(self.runs[0].info.end_time or self.last_seen)

    @cached_property
    def last_seen(self) -> str | None:
        """The last event or heartbeat of the one run, whichever is later."""
        [run] = self.runs
        _, last = self.reading.span()
        return latest(last, run.info.heartbeat, *(writer.heartbeat for writer in run.writers()))

    def _scan(self, stream: str) -> Scan | None:
        """What a pass over the events of a stream would count; None where only that can tell.

        That is so unless the file is as it was when the run closed, and its lines are numbered.
        """
        [sources], [run] = self._streams.sources, self.runs
        if not sources.is_sealed(stream):
            return None
        lines = {"tasks": "task_lines", "spans": "span_lines"}
        from_lines = bool({view for view, of in STORED.items() if of == stream} & self._streams.unstored)
        name = lines[stream] if from_lines and stream in lines else RENAMED.get(stream, stream)
        rows = self.execute(
            f"""
            SELECT writer, count(*), min(seq), max(seq), count("timestamp"),
                strftime(min("timestamp"), '{_STAMP}'), strftime(max("timestamp"), '{_STAMP}')
            FROM {name} GROUP BY writer
            """  # noqa: S608 - constants
        ).fetchall()
        scan = Scan(run.path, stream)
        for writer, count, lowest, highest, stamped, first, last in rows:
            if not writer or lowest != 0 or highest != count - 1 or stamped != count:
                return None
            scan.coverage[writer] = Coverage.up_to(count)
            scan.first = min(scan.first or first, first)
            scan.last = max(scan.last, last)
        return scan


class _Cursor(RunTables):
    def __init__(self, tables: RunTables) -> None:
        super().__init__(tables._streams, tables.runs)
        self._connection = tables._connection.cursor()

    def make(self, names: Iterable[str]) -> None:
        """Nothing: the connection of the tables may be at work in its own thread."""


@contextmanager
def open_tables(runs: Sequence[Run]) -> Iterator[RunTables]:
    """The tables of these runs, on a private connection that goes away with the context.

    Raises OSError where files cannot be read, `DamagedSnapshot` where a snapshot turns out to be damaged
    while it is read: the next reading takes the lines (`read_again`).
    """
    with open_streams(runs) as streams, _blaming(streams.sources):
        streams.connection.execute(f"{BASE_NAME}; {intervals.MACROS}")
        yield RunTables(streams, runs)


@contextmanager
def open_views(
    runs: Sequence[Run], names: Collection[str] | None, *, names_alone: bool = False
) -> Iterator[StreamTables]:
    """The tables of these runs as views that read the files anew at each use, for statements of users.

    `names` are those that are needed, None means all; `names_alone` as in `open_streams`.
    """
    with open_streams(runs, names_alone=names_alone) as streams, _blaming(streams.sources):
        wanted = [*NEEDS, *streams.names] if names is None else names
        streams.make(streams.names if names is None else _streams_for(names))
        if "runs" in wanted:
            create_runs(streams.connection, runs)
        one = streams.run_ids[0] if len(streams.run_ids) == 1 else None
        for name, statement in DERIVED.items():
            if name in wanted or (name == "attempts" and {"tasks", "concurrency"} & set(wanted)):
                lean = attempts_of_one(one) if one is not None and name == "attempts" else statement
                made = [lean] if name not in STORED or name in streams.unstored else []
                view = union([*made, *streams.stored.get(name, ())])
                streams.connection.execute(f"CREATE VIEW {name} AS {view}")
        yield streams


@contextmanager
def _blaming(sources: Sequence[Sources]) -> Iterator[None]:
    """Turn an error of DuckDB's for which a snapshot is to blame into a `DamagedSnapshot`."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        blamed = [one for one in sources if one.blame(str(error))]
        if blamed:
            raise DamagedSnapshot(
                f"a Parquet snapshot could not be read ({first_line(str(error))}): ask again, "
                "and the lines are read"
            ) from error
        raise


def read_again(function: Callable[P, T]) -> Callable[P, T]:
    """The function, called once more where a snapshot fails while it is read: it reads the lines then."""

    @wraps(function)
    def called(*args: P.args, **options: P.kwargs) -> T:
        try:
            return function(*args, **options)
        except DamagedSnapshot:
            return function(*args, **options)

    return called


def table_names(runs: Sequence[Run]) -> list[str]:
    """The names of all tables there are of these runs, the derived ones first."""
    found = {stream for run in runs for stream in run.streams()}
    return [*NEEDS, *sorted(view_names(found).values())]


def _streams_for(views: Collection[str]) -> set[str]:
    streams = {stream_of(view) for view in views if view not in NEEDS}
    return streams.union(*(NEEDS[view] for view in views if view in NEEDS))


RUNS = {
    "run_id": "VARCHAR",
    "project": "VARCHAR",
    "status": "VARCHAR",
    "started_at": "TIMESTAMP",
    "ended_at": "TIMESTAMP",
    "duration_s": "DOUBLE",
    "target": "VARCHAR",
    "provider": "VARCHAR",
    "host": "VARCHAR",
    "python": "VARCHAR",
    "git_commit": "VARCHAR",
    "tasks_submitted": "BIGINT",
    "tasks_completed": "BIGINT",
    "tasks_failed": "BIGINT",
    "path": "VARCHAR",
}
"""The columns of `runs`."""


def create_runs(connection: duckdb.DuckDBPyConnection, runs: Sequence[Run]) -> None:
    """Make the table. A run that was killed ended with its last event, for which its lines are gone
    through.
    """
    table = ", ".join(f"{name} {kind}" for name, kind in RUNS.items())
    connection.execute(f"CREATE TABLE runs ({table})")
    rows = [_row(run) for run in runs]
    if rows:
        lists = ", ".join(f"unnest(${name})" for name in RUNS)
        values = {name: [row[number] for row in rows] for number, name in enumerate(RUNS)}
        connection.execute(f"INSERT INTO runs SELECT {lists}", values)


def _row(run: Run) -> list[Any]:
    info, ending = run.info, run.ending()
    return [
        run.run_id,
        info.project,
        run.status,
        utc_time(info.start_time),
        utc_time(ending.end_time),
        ending.duration_s,
        info.target,
        info.provider,
        info.host or None,
        info.python,
        info.git_commit,
        within_64_bits(info.tasks_submitted),
        within_64_bits(info.tasks_completed),
        within_64_bits(info.tasks_failed),
        path_text(run.path),
    ]
