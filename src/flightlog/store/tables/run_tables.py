"""Everything recorded of runs, as relations of one SQL model: `RunTables` is the only way in.

Streams are views, every event once, with `run_id` before the declared columns.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from uuid import uuid4

import msgspec

from flightlog.core.errors import DamagedSnapshot, FilesMoved, UsageError
from flightlog.core.text import INDEX, first_line
from flightlog.core.time import moment
from flightlog.events import streams
from flightlog.events.columns import columns, projection, quoted
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import latest
from flightlog.store.read.completeness import Coverage
from flightlog.store.read.files import writer_folders
from flightlog.store.read.lines import Scan, watched
from flightlog.store.tables import attempts, intervals, samples, waits, worker_time, workers
from flightlog.store.tables.connection import (
    columns_of,
    create_table,
    is_built_in,
    path_text,
    plain_scratch,
    private_connection,
    records,
    text,
    users_table,
    utc_time,
)
from flightlog.store.tables.sources import Sources
from flightlog.store.tables.views import DERIVED, HIDDEN, KIND, NEEDS, STORED, attempts_of_one

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.read.events import RunReading
    from flightlog.store.run import Run
    from flightlog.store.tables.sources import Sources


RENAMED = {"tasks": "task_events", "spans": "span_events"}
"""Streams whose own names are those of derived views."""


class StreamTables:
    """A connection in which the views of streams are made when they are asked for."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, scratch: Path, runs: Sequence[Run], *, names_alone: bool
    ) -> None:
        self.connection, self.scratch = connection, scratch
        self._runs = _each_once(runs)
        self._found = [(run.run_id, Sources(run, scratch)) for run in self._runs]
        self._names_alone = names_alone
        self._made: set[str] = set()
        self.run_ids = [run_id for run_id, _ in self._found]
        self.sources = [sources for _, sources in self._found]
        self.names = view_names(stream for sources in self.sources for stream in sources.streams())
        """The view of each stream."""
        self.files: list[Path] = []
        """Those that the views read, and nothing else is read."""
        self.stored: dict[str, list[str]] = {}
        """Of derived views, the statements that read the snapshots there are of them."""
        self.columnar: set[str] = set()
        """Streams that are read from snapshots alone."""
        self.unstored: set[str] = set()
        """Derived views that have to be made for some run."""

    def make(self, streams: Collection[str]) -> None:
        """Make the views of these streams, which may be given by the names of their views, in any case.

        Every stream that is declared has a view, empty where no run has it; of users' streams those that are
        there. Raises OSError where the files of a run cannot be read.
        """
        wanted_names = {*streams, *(one.casefold() for one in streams)}
        wanted = [
            stream
            for stream, name in self.names.items()
            if stream not in self._made and (stream in wanted_names or name.casefold() in wanted_names)
        ]
        self._made.update(wanted)
        if self._names_alone:
            unread = [one for one in wanted if not is_built_in(one)]
            views = (f"CREATE VIEW {quoted(self.names[one])} AS SELECT 1" for one in unread)
            self.connection.execute(";".join(views))
            wanted = [one for one in wanted if is_built_in(one)]
        if "spans" in wanted:
            self.note_last_signs()
        checked = {*wanted, *(f"views/{view}" for view, of in STORED.items() if of in wanted)}
        for sources in self.sources:
            sources.check(checked)
        for stream in wanted:
            _create_views(self, stream, self.names[stream], self._found)

    def statement_of_lines(self, stream: str) -> tuple[str, bool]:
        """The select statement that reads a stream of the one run from its lines, in their order; and whether
        some of them lack a field they must have.
        """
        [sources] = self.sources
        source = sources.source(stream, snapshots=False)
        files = [*source.files, *source.misfits]
        table = table_of(self.connection, stream, files, [])
        self._made.add(stream)
        rows = f"FROM {table.lines(_list(files))}" if files else f"FROM ({table.nothing()})"
        unwanted = "the file" if files else "run_id"
        return f"SELECT * EXCLUDE ({quoted(unwanted)}) {rows}", bool(source.misfits)

    def note_last_signs(self) -> None:
        """Make the table of the last signs of life of each run and of each process that wrote to it, once."""
        if LAST_SIGNS in self._made:
            return
        self._made.add(LAST_SIGNS)
        self.connection.execute(
            f"CREATE TABLE {HIDDEN}.{LAST_SIGNS} "
            "(run_id VARCHAR, of_run TIMESTAMP, by_writer MAP(VARCHAR, TIMESTAMP))"
        )
        for run in self._runs:
            beats = {
                one.writer: one.heartbeat for one in run.writers() if utc_time(one.heartbeat) is not None
            }
            silent = not beats or any(writer not in beats for _, writer in writer_folders(run.path))
            # Of a process that left no word, nothing but the last event tells how long the run lived.
            last = run.read().span()[1] if silent and run.info.end_time is None else None
            of_run = run.info.end_time or latest(last, run.info.heartbeat, *beats.values())
            self.connection.execute(
                f"INSERT INTO {HIDDEN}.{LAST_SIGNS} VALUES "  # noqa: S608 - a constant
                "($1, $2, map($3::VARCHAR[], $4::TIMESTAMP[]))",
                [run.run_id, utc_time(of_run), [*beats], [*map(utc_time, beats.values())]],
            )

    def largest(self) -> list[str]:
        """Those of the streams made that there are files of, the largest first."""
        sizes = {one: sum(sources.size_bytes(one) for sources in self.sources) for one in self._made}
        return sorted((one for one in sizes if sizes[one]), key=lambda one: -sizes[one])


@contextmanager
def open_streams(runs: Sequence[Run], *, names_alone: bool = False) -> Iterator[StreamTables]:
    """An in-memory database for the views of all these runs' streams.

    With `names_alone`, the views of users' streams have names and no columns: finding these means reading
    every line. What does not fit into memory is spilled into a folder that goes away with the connection.
    Raises OSError where the files of a run cannot be read.
    """
    with plain_scratch() as scratch:
        settings = {
            "temp_directory": str(scratch / "spill"),
            "preserve_insertion_order": "false",
            "asof_loop_join_threshold": "0",  # chosen by a guess at the number of rows, which may be far off
        }
        with private_connection(settings) as connection:
            connection.execute(f"CREATE SCHEMA {HIDDEN}")
            tables = StreamTables(connection, scratch, runs, names_alone=names_alone)
            with watched(connection, tables.largest):
                yield tables


def _each_once(runs: Sequence[Run]) -> list[Run]:
    """The runs, each once; a `UsageError` where two that stand apart have the same id."""
    by_path = {run.path.resolve(): run for run in runs}
    by_id: dict[str, Run] = {}
    for run in by_path.values():
        other = by_id.setdefault(run.run_id, run)
        if other is not run:
            raise UsageError(
                f"{path_text(other.path)} and {path_text(run.path)} are both {run.run_id}: tables hold "
                "one of them at a time"
            )
    return list(by_path.values())


def stream_of(view: str) -> str:
    """The stream that a view shows; of users' streams, whose names have dots, the view's name itself."""
    back = {name: stream for stream, name in RENAMED.items()}
    return back.get(view, view)


def view_names(there: Iterable[str]) -> dict[str, str]:
    """The view of each declared stream and of each that is there, by stream.

    It has the stream's name, with `_` for `.`, and a number where two streams would share it.
    """
    declared = [name for name in streams() if is_built_in(name)]
    found: dict[str, str] = {}
    taken = set(NEEDS)
    for stream in [*declared, *sorted(set(there) - set(declared))]:
        plain = RENAMED.get(stream, stream.replace(".", "_"))
        name, number = plain, 1
        while name.casefold() in taken:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name.casefold())
        found[stream] = name
    return found


def _create_views(tables: StreamTables, stream: str, name: str, runs: Sequence[tuple[str, Sources]]) -> None:
    """Make the view of a stream, and those of its events that derived views are made from."""
    connection = tables.connection
    stored = is_built_in(stream) or len(runs) == 1  # users' columns may differ from run to run
    found = [(run_id, sources.source(stream, snapshots=stored)) for run_id, sources in runs]
    lines = [(run_id, file) for run_id, source in found if not source.parquet for file in source.files]
    snapshots = [(run_id, file) for run_id, source in found if source.parquet for file in source.files]
    misfits = [(run_id, file) for run_id, source in found for file in source.misfits]
    table = table_of(
        connection, stream, *([file for _, file in of] for of in ([*lines, *misfits], snapshots))
    )
    views = {
        view: {run_id: file for run_id, sources in runs if (file := sources.view(view)) is not None}
        for view, of in STORED.items()
        if of == stream
    }
    lines, bundle = bundled(lines, tables.scratch, less={run_id for of in views.values() for run_id in of})
    tables.files += [file for _, file in (*lines, *snapshots, *misfits)] + bundle
    small = table.bundle(bundle)
    scans = small + scans_of(connection, f"{stream} lines", [*lines, *misfits], table.rows(), table.lines)
    scans += scans_of(connection, f"{stream} snapshots", snapshots, table.rows(), snapshots_scan)
    connection.execute(f"CREATE VIEW {quoted(name)} AS {union(scans or [table.nothing()])}")
    if snapshots and not (lines or misfits or bundle):
        tables.columnar.add(stream)
    for view, made in views.items():
        tables.files += made.values()
        tables.stored[view] = scans_of(connection, f"{view} stored", list(made.items()), ALL, snapshots_scan)
        rest = [[(run_id, file) for run_id, file in of if run_id not in made] for of in (lines, snapshots)]
        scans = small + scans_of(connection, f"{view} lines", rest[0], table.rows(), table.lines)
        scans += scans_of(connection, f"{view} snapshots", rest[1], table.rows(), snapshots_scan)
        connection.execute(f"CREATE VIEW {HIDDEN}.for_{view} AS {union(scans or [table.nothing()])}")
        if scans or not made:
            tables.unstored.add(view)


ALL = '* EXCLUDE ("the run", "the file")'
"""What was recorded: not the columns that say where a row stands, whose names no event has."""


@dataclass(frozen=True)
class StreamTable:
    """How the rows of one stream are read."""

    read: Mapping[str, str]
    selected: str
    """The select list that makes rows of lines."""

    def rows(self) -> str:
        """The select list of what was read; a user's column that is called as ours is gets another name."""
        own = next((name for name in self.read if name.casefold() == "run_id"), None)
        return ALL if own is None else f"{ALL} RENAME ({quoted(own)} AS event_run_id)"

    def lines(self, files: str, *, ours: str = "") -> str:
        """The scan of JSONL files; `ours` is a column of the bundle's."""
        read = {**self.read, **({ours: "VARCHAR"} if ours else {})}
        table = ", ".join(f"{text(name)}: {text(kind)}" for name, kind in read.items())
        more = f", {quoted(ours)}" if ours else ""
        return (
            # Names are quoted.
            f'(SELECT {self.selected}, "the file"{more} FROM read_json({files}, '  # noqa: S608
            "format='newline_delimited', ignore_errors=true, hive_partitioning=false, "
            f"maximum_object_size={StoreLimits.max_line_bytes}, filename='the file', columns={{{table}}}) "
            "WHERE event IS NOT NULL)"
        )

    def bundle(self, files: Sequence[Path]) -> list[str]:
        """Select statements over what `bundled` made."""
        scan = self.lines(_list(files), ours="the run")
        return [f'SELECT "the run" AS run_id, {self.rows()} FROM {scan}'] if files else []  # noqa: S608

    def nothing(self) -> str:
        """A select statement without rows."""
        kinds = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind in self.read.items())
        return f"SELECT CAST(NULL AS VARCHAR) AS run_id, {kinds} WHERE false"


def table_of(
    connection: duckdb.DuckDBPyConnection, stream: str, lines: Sequence[Path], stored: Sequence[Path]
) -> StreamTable:
    """How a stream is read from these files of lines and these snapshots."""
    if is_built_in(stream):
        return StreamTable(columns(stream), projection(stream))
    selected, read = users_table(connection, stream, lines)
    return StreamTable({**read, **(columns_of(connection, stored[0]) if stored else {})}, selected)


def snapshots_scan(files: str) -> str:
    """The scan of Parquet files."""
    return f"read_parquet({files}, hive_partitioning=false, union_by_name=true, filename='the file')"


def scans_of(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    files: Sequence[tuple[str, Path]],
    selected: str,
    scan: Callable[[str], str],
) -> list[str]:
    """Select statements over files, each with its run; one for all where there are many runs.

    `name` is that of a table which then says whose file is whose.
    """
    by_run: dict[str, list[Path]] = {}
    for run_id, file in files:
        by_run.setdefault(run_id, []).append(file)
    if len(by_run) <= StoreLimits.max_union_runs:
        return [
            f'SELECT "the run" AS run_id, {selected} '  # noqa: S608 - all quoted
            f'FROM (SELECT *, CAST({text(run_id)} AS VARCHAR) AS "the run" FROM {scan(_list(of))})'
            for run_id, of in by_run.items()
        ]
    owners = f"{HIDDEN}.{quoted(name)}"
    rows = [(run_id, os.fspath(file)) for run_id, file in files]
    create_table(connection, owners, {'"the run"': "VARCHAR", '"the file"': "VARCHAR"}, rows, temporary=False)
    read = scan(_list([file for _, file in files]))
    joined = f'{read} JOIN {owners} USING ("the file")'
    return [f'SELECT "the run" AS run_id, {selected} FROM {joined}']  # noqa: S608


def bundled(
    files: Sequence[tuple[str, Path]], scratch: Path, *, less: Collection[str] = ()
) -> tuple[list[tuple[str, Path]], list[Path]]:
    """Put the small files of very many runs into one; gives the other files, and the bundle if there is one.

    To open a file takes DuckDB longer than to read a small one. Every line of the bundle says first whose it
    is. The files of the runs `less` stay as they are. Raises OSError.
    """
    if len({run_id for run_id, _ in files}) <= StoreLimits.max_union_runs:
        return list(files), []
    rest: list[tuple[str, Path]] = []
    bundle = scratch / f"{uuid4().hex}.jsonl"
    with bundle.open("wb") as out:
        for run_id, file in files:
            if run_id in less or file.stat().st_size > StoreLimits.max_bundled_file_bytes:
                rest.append((run_id, file))
                continue
            mark = b'{"the run":' + msgspec.json.encode(run_id) + b","
            lines = file.read_bytes().split(b"\n")  # a line feed stands in no string
            out.writelines(
                mark + line[1:] + b"\n" for line in lines if line[:1] == b"{" and line[-1:] == b"}"
            )
    return rest, [bundle]


def union(statements: Sequence[str]) -> str:
    """One statement that gives the rows of all; columns that one of them lacks are null."""
    return " UNION ALL BY NAME ".join(statements)


def _list(files: Sequence[Path]) -> str:
    return f"[{', '.join(text(os.fspath(file)) for file in files)}]"


P = ParamSpec("P")
T = TypeVar("T")

_NAMED = re.compile(r"\b(?:FROM|JOIN|UPDATE|INTO|DESCRIBE)\s+\"?(\w+)", re.IGNORECASE)
"""Where a statement of ours names a relation; none stands behind a comma, as columns do."""
_CREATED = re.compile(r"\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP\s+)?(?:TABLE|VIEW)\s+(\w+)", re.IGNORECASE)
"""Where it makes a table of the caller's own, which no stream of that name stands for."""
_WITHIN = re.compile(r"\b(\w+)\s+AS\s+(?:(?:NOT\s+)?MATERIALIZED\s+)?\(", re.IGNORECASE)
"""What it names by WITH, which is of this statement alone."""
LAST_SIGNS = "last_signs"
_OF_WORKERS = ("worker_launches", "worker_lives", "worker_facts")
"""Relations that are made together, from the events of workers and from attempts."""
BASE_NAME = f"CREATE MACRO base_name(task) AS regexp_replace(task, '{INDEX}', '\\1')"
"""The name of a task without an index, as `core.text.base_name` has it."""
_STAMP = "%Y-%m-%dT%H:%M:%S.%fZ"


class RunTables:
    """The relations of one run or several, each made when a statement first names it and kept from then on.

    Streams, with every event once: `task_events`, `span_events`, `workers`, `resources`, `cache`, `failures`,
    …; users' streams under their names with `_` for `.`. Made from them: `attempts`, `tasks`, `spans`,
    `concurrency`, `runs`. Every one has `run_id` first, and timestamps in UTC. The macro `base_name(task)`
    gives `sim` of `sim[3]`. `last_signs` has the last signs of life of each run and of its processes. Of one
    run, also:

    - `task_lines` and `span_rows`: the lines of tasks as columns, with the number of their `kind`, and what
      the lines of each span say together.
    - `attempt_intervals` and `span_intervals`: when each attempt and span ran, in nanoseconds since 1970, up
      to the last sign of life where it is open (`store.tables.intervals`).
    - `worker_launches`, `worker_lives` and `worker_facts`: when each worker was launched, ready and up, and a
      row per worker with what is known of it (`store.tables.workers`).
    - `uptimes`, `waiting`, `astir`, `gaps`, `measured`, `retry_waits`, …: where the time of workers went
      (`store.tables.worker_time`).
    - `nodes`, `needs`, `bound` and `bases`: what each attempt waited for (`store.tables.waits`).
    - `samples_of_run`: the samples, each process in one tree (`store.tables.samples`).

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
        within = set(_WITHIN.findall(statement))
        self.make(name for name in _NAMED.findall(statement) if name not in within)
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
        self._made.add(name)
        create_table(self._connection, name, columns, rows)

    def cursor(self, window: tuple[int | None, int | None] = (None, None)) -> RunTables:
        """The tables of several runs for another thread: what was made so far, and nothing more.

        Where the caller makes the intervals and workers of one of the runs, which began and ended so, what
        follows from these is made, too.
        """
        return _Cursor(self, window)

    def query_progress(self) -> float:
        """How far the statement is that runs, in percent, from any thread; below 0 where none is known."""
        return float(self._connection.query_progress())

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
        elif name == LAST_SIGNS:
            self._streams.note_last_signs()
            self._connection.execute(f"CREATE TEMP VIEW {LAST_SIGNS} AS FROM {HIDDEN}.{LAST_SIGNS}")
        elif name in OF_ONE_RUN and len(self.runs) == 1:
            OF_ONE_RUN[name](self)
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
            return attempts.spans_of_one(self._streams.run_ids[0])
        return attempts.tasks_of_one(self._connection) if name == "tasks" else DERIVED[name]

    @cached_property
    def _large(self) -> frozenset[str]:
        """Streams so large that their rows are kept on disk; DuckDB's memory is limited from then on."""
        [sources] = self._streams.sources
        found = {
            one for one in ("tasks", "spans") if sources.size_bytes(one) >= StoreLimits.large_stream_bytes
        }
        if found:
            self._connection.execute(f"SET memory_limit = '{StoreLimits.large_run_memory}'")
        return frozenset(found)

    def _file(self, name: str, stream: str) -> Path | None:
        return self._streams.scratch / f"{name}.parquet" if stream in self._large else None

    def _kept_as(self, stream: str) -> dict[str, Any]:
        """How the lines of a stream are kept as columns: where they are in a snapshot, or which are rare."""
        return {"stored": stream in self._streams.columnar, "rare": self._rare(stream)}

    def _rare(self, stream: str) -> dict[str, str]:
        """The columns of a large stream that a sample of its lines does without."""
        [sources] = self._streams.sources
        return attempts.rare_columns(stream, sources.sampled_fields(stream)) if stream in self._large else {}

    def _use_memory(self) -> None:
        """Let DuckDB hold in memory what has to be put together there."""
        if self._large:
            self._connection.execute("RESET memory_limit")

    def _make_task_lines(self, *, whole: bool = False) -> None:
        self._made.add("task_lines")
        self._streams.make(["tasks"])
        if "attempts" in self._streams.unstored:
            attempts.read_task_lines(
                self._connection, self._file("task_lines", "tasks"), whole=whole, **self._kept_as("tasks")
            )
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
        self._streams.make(["tasks"])
        if "attempts" in self._made or "attempts" not in self._streams.unstored:
            self.make(["attempts"])
            statement = "FROM attempts"
            self._entangled = bool(self.scalar(intervals.ENTANGLED))
        else:
            self.make(["task_lines"])
            statement = self._lines_to_attempts(whole=False)
        if self._entangled:
            self._use_memory()
        file = None if self._entangled else self._file("attempt_intervals", "tasks")
        intervals.make_attempt_intervals(
            self._connection, self.until, statement, file=file, rare=self._rare("tasks")
        )
        if file is not None and "attempts" not in self._made:
            self._connection.execute("DROP TABLE paired")  # nobody asks for it again, and it is large

    def _make_span_rows(self) -> None:
        self._streams.make(["spans"])
        if "spans" not in self._streams.unstored:
            self.make(["spans"])
            self._connection.execute("CREATE OR REPLACE TEMP VIEW span_rows AS FROM spans")
        elif attempts.read_spans(
            self._connection, self._file("span_rows", "spans"), **self._kept_as("spans")
        ):
            self._use_memory()

    def _make_span_intervals(self) -> None:
        self.make(["span_rows"])
        stored = "spans" not in self._streams.unstored
        intervals.make_span_intervals(
            self._connection, "spans" if stored else attempts.SPAN_ROWS_WITH_OWN_TIME
        )
        if self.scalar('SELECT count(*) FROM span_rows WHERE "open"'):
            self.make(["attempt_intervals"])
            self._connection.execute(intervals.END_OPEN_SPANS)

    def make_workers(self, *, with_attempts: bool = True) -> None:
        """Make the relations of workers, if need be from their events alone: tasks are not read then."""
        self._made.update(_OF_WORKERS)
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

    @property
    def window(self) -> tuple[int | None, int | None]:
        """When the one run began, and ended or gave its last sign of life; nanoseconds since 1970."""
        return moment(self.runs[0].info.start_time), self.until

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


OF_ONE_RUN: dict[str, Callable[[RunTables], object]] = {
    "task_lines": RunTables._make_task_lines,
    "attempt_intervals": RunTables._make_attempt_intervals,
    "attempt_tallies": lambda tables: tables.execute(
        f"CREATE OR REPLACE TEMP VIEW attempt_tallies AS {intervals.tallies_of('attempt_intervals')}"
    ),
    "span_rows": RunTables._make_span_rows,
    "span_intervals": RunTables._make_span_intervals,
    **dict.fromkeys(_OF_WORKERS, RunTables.make_workers),
    **worker_time.RELATIONS,
    **waits.RELATIONS,
    **samples.RELATIONS,
}
"""Relations of one run alone, and what makes each of them from others."""


class _Cursor(RunTables):
    def __init__(self, tables: RunTables, window: tuple[int | None, int | None]) -> None:
        super().__init__(tables._streams, tables.runs)
        self._connection, self._window = tables._connection.cursor(), window

    @property
    def window(self) -> tuple[int | None, int | None]:
        return self._window

    def _make(self, name: str) -> None:
        """What follows from temporary tables alone: the connection may be at work in its own thread."""
        if name in worker_time.RELATIONS:
            worker_time.RELATIONS[name](self)


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
        needed = {stream for name in names or () for stream in NEEDS.get(name, {stream_of(name)})}
        streams.make(streams.names if names is None else needed)
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
    """Turn an error of DuckDB's into one after which it helps to read again: a `DamagedSnapshot` where a
    snapshot is to blame, `FilesMoved` where a run was completed meanwhile.
    """
    import duckdb

    try:
        yield
    except (duckdb.Error, FileNotFoundError) as error:
        if any(one.has_moved() for one in sources):
            raise FilesMoved(f"files of a run went away while they were read: {error}") from error
        blamed = [one for one in sources if one.blame(str(error))]
        if blamed:
            raise DamagedSnapshot(
                f"a Parquet snapshot could not be read ({first_line(str(error))}): ask again, "
                "and the lines are read"
            ) from error
        raise


def read_again(function: Callable[P, T]) -> Callable[P, T]:
    """The function, called once more where a snapshot fails while it is read, or where files of a run that
    has just ended are put together meanwhile: it reads the lines then, from where they stand.
    """

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
    create_table(connection, "runs", RUNS, [_row(run) for run in runs], temporary=False)


def _row(run: Run) -> list[Any]:
    info, ending = run.info, run.ending()
    known = {
        "run_id": run.run_id,
        "status": run.status,
        "started_at": utc_time(info.start_time),
        "ended_at": utc_time(ending.end_time),
        "duration_s": ending.duration_s,
        "host": info.host or None,
        "path": path_text(run.path),
    }
    return [known[name] if name in known else getattr(info, name) for name in RUNS]
