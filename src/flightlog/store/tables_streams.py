"""The streams of runs as DuckDB views: every event once, with the declared columns and `run_id` before
them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flightlog.core.errors import UsageError
from flightlog.events import streams
from flightlog.events.columns import quoted
from flightlog.store.at_work import watched
from flightlog.store.columns_found import is_built_in
from flightlog.store.connecting import private_connection
from flightlog.store.plain_paths import path_text, plain_scratch
from flightlog.store.tables_scans import ALL, HIDDEN, bundled, scans_of, snapshots_scan, table_of, union
from flightlog.store.tables_sources import Sources
from flightlog.store.tables_views import NEEDS, STORED

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run

RENAMED = {"tasks": "task_events", "spans": "span_events"}
"""Streams whose own names are those of derived views."""


@dataclass
class StreamTables:
    """A connection with a view a stream. `files` are those that the views read, and nothing else is read."""

    connection: duckdb.DuckDBPyConnection
    scratch: Path
    run_ids: list[str]
    files: list[Path] = field(default_factory=list)
    stored: dict[str, list[str]] = field(default_factory=dict)
    """Of derived views, the statements that read the snapshots there are of them."""
    unstored: set[str] = field(default_factory=set)
    """Derived views that have to be made for some run."""
    sources: list[Sources] = field(default_factory=list)


@contextmanager
def open_streams(
    runs: Sequence[Run], *, only: Collection[str] | None = None, names_alone: bool = False
) -> Iterator[StreamTables]:
    """An in-memory database with one view a stream over all these runs; with `only`, of these streams alone.

    With `names_alone`, the views of users' streams have names and no columns: finding these means reading
    every line.

    Every stream that is declared has a view, empty where no run has it; of users' streams those that are
    there. What does not fit into memory is spilled into a folder that goes away with the connection. Raises
    OSError where the files of a run cannot be read.
    """
    with plain_scratch() as scratch:
        settings = {
            "temp_directory": str(scratch / "spill"),
            "preserve_insertion_order": "false",
            "asof_loop_join_threshold": "0",  # chosen by a guess at the number of rows, which may be far off
        }
        with private_connection(settings) as connection:
            connection.execute(f"CREATE SCHEMA {HIDDEN}")
            found = [(run.run_id, Sources(run, scratch)) for run in _each_once(runs)]
            tables = StreamTables(connection, scratch, [run_id for run_id, _ in found])
            tables.sources += [sources for _, sources in found]
            names = view_names(stream for _, sources in found for stream in sources.streams())
            wanted = [
                stream
                for stream, name in names.items()
                if only is None or stream in only or name.casefold() in only
            ]
            checked = {*wanted, *(f"views/{view}" for view, of in STORED.items() if of in wanted)}
            for _, sources in found:
                sources.check(checked)
            unread = [stream for stream in wanted if names_alone and not is_built_in(stream)]
            if unread:
                connection.execute(
                    ";".join(f"CREATE VIEW {quoted(names[one])} AS SELECT 1" for one in unread)
                )
                wanted = [stream for stream in wanted if is_built_in(stream)]
            for stream in wanted:
                _create_views(tables, stream, names[stream], found)
            with watched(connection, lambda: _by_size(wanted, found)):
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


def _by_size(streams: Sequence[str], runs: Sequence[tuple[str, Sources]]) -> list[str]:
    """Those of the streams that there are files of, the largest first."""
    sizes = {stream: sum(sources.size_bytes(stream) for _, sources in runs) for stream in streams}
    return sorted((stream for stream in streams if sizes[stream]), key=lambda stream: -sizes[stream])


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
