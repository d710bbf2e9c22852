"""The streams of runs as DuckDB views: every event once, with `run_id` before the declared columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from flightlog.core.errors import UsageError
from flightlog.events import streams
from flightlog.events.columns import columns, projection, quoted
from flightlog.store.liveness import latest
from flightlog.store.read.lines import watched
from flightlog.store.tables.connection import (
    LONGEST_LINE_BYTES,
    columns_of,
    is_built_in,
    path_text,
    plain_scratch,
    private_connection,
    text,
    users_table,
    utc_time,
)
from flightlog.store.tables.sources import Sources
from flightlog.store.tables.views import HIDDEN, NEEDS, STORED

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run

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
            self._note_last_signs()
        checked = {*wanted, *(f"views/{view}" for view, of in STORED.items() if of in wanted)}
        for sources in self.sources:
            sources.check(checked)
        for stream in wanted:
            _create_views(self, stream, self.names[stream], self._found)

    def _note_last_signs(self) -> None:
        """Make the table of the last signs of life of each run and of each process that wrote to it."""
        self.connection.execute(
            f"CREATE TABLE {HIDDEN}.last_signs "
            "(run_id VARCHAR, of_run TIMESTAMP, by_writer MAP(VARCHAR, TIMESTAMP))"
        )
        for run in self._runs:
            beats = {
                one.writer: one.heartbeat for one in run.writers() if utc_time(one.heartbeat) is not None
            }
            of_run = run.info.end_time or latest(run.info.heartbeat, *beats.values()) or run.read().span()[1]
            self.connection.execute(
                f"INSERT INTO {HIDDEN}.last_signs VALUES "  # noqa: S608 - a constant
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
UNIONS = 8
"""So many runs are read one by one. More are read by one scan, and their small files from one bundle."""
SMALL_BYTES = 1 << 20


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
            f"maximum_object_size={LONGEST_LINE_BYTES}, filename='the file', columns={{{table}}}) "
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
    if len(by_run) <= UNIONS:
        return [
            f'SELECT "the run" AS run_id, {selected} '  # noqa: S608 - all quoted
            f'FROM (SELECT *, CAST({text(run_id)} AS VARCHAR) AS "the run" FROM {scan(_list(of))})'
            for run_id, of in by_run.items()
        ]
    owners = f"{HIDDEN}.{quoted(name)}"
    connection.execute(f'CREATE TABLE {owners} ("the run" VARCHAR, "the file" VARCHAR)')
    connection.execute(
        f"INSERT INTO {owners} SELECT unnest($runs), unnest($files)",
        {"runs": [run_id for run_id, _ in files], "files": [os.fspath(file) for _, file in files]},
    )
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
    if len({run_id for run_id, _ in files}) <= UNIONS:
        return list(files), []
    rest: list[tuple[str, Path]] = []
    bundle = scratch / f"{uuid4().hex}.jsonl"
    with bundle.open("wb") as out:
        for run_id, file in files:
            if run_id in less or file.stat().st_size > SMALL_BYTES:
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
