"""Columnar snapshots of a run's streams, made from its lines by DuckDB."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from flightlog.errors import UsageError
from flightlog.store import layout
from flightlog.store.at_work import watched
from flightlog.store.columns_found import LONGEST_LINE_BYTES, READ, text, users_table
from flightlog.store.connecting import private_connection
from flightlog.store.lines import read_lines
from flightlog.store.long_lines import has_long_line
from flightlog.store.parts import find_parts
from flightlog.store.plain_paths import PlainPaths, plain_scratch
from flightlog.store.snapshots import (
    Origin,
    Snapshot,
    are_as_noted,
    current_snapshots,
    note_snapshots,
    origins,
    snapshot_file,
    statement_digest,
)
from flightlog.store.tables import open_all
from flightlog.store.tables_sources import Sources
from flightlog.store.tables_views import STORED

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run

_LINES = READ.format(f"maximum_object_size={LONGEST_LINE_BYTES}, columns=$columns")
_FORMAT = "(FORMAT parquet, COMPRESSION zstd)"


def snapshot_run(run: Run) -> dict[str, int]:
    """Bring the snapshots in `parquet/` up to date; gives the rows of those that were made, by name.

    Every stream gets one, with each event once, and so do the derived views that take long to make: `views/attempts`
    and `views/spans`. What is current stays as it is. A run that runs is a `UsageError`. Raises `OSError` or
    `duckdb.Error` where files cannot be read or written; the lines are never touched.
    """
    if run.status == "running":
        raise UsageError(f"{run.run_id} is running: it can be compacted when it has ended")
    folder = run.path / layout.PARQUET
    parts = find_parts(run.path)
    current = current_snapshots(run.path, parts)
    rows: dict[str, int] = {}
    with plain_scratch() as scratch:
        sources = Sources(run, scratch)
        for stream in sources.streams():
            views = [f"views/{view}" for view, of in STORED.items() if of == stream]
            if {stream, *views} <= current.keys():
                continue
            files = [part.path for part in parts[stream]]
            before = origins(run.path, files)
            source = sources.source(stream, snapshots=False)
            made = write_snapshot({stream: (*source.files, *source.misfits)}, folder)
            note_snapshots(folder, {} if source.misfits else _notes(folder, made, before))
            made |= {name: _write_view(run, name, folder) for name in views}
            if not source.misfits and are_as_noted(run.path, files, before):
                note_snapshots(folder, _notes(folder, made, before))
            rows |= made
    return rows


def write_snapshot(files: Mapping[str, Sequence[Path]], folder: Path) -> dict[str, int]:
    """Write each stream's JSONL files as `folder/<stream>.parquet`; gives the number of rows by stream.

    One row a line that has an `event`, in the order of the files; lines that are torn or foreign are skipped,
    and values that do not fit their column are null. Built-in streams have their declared columns, with the
    defaults that lines leave out filled in. Streams of users' events also have what is found in the lines, for
    this process may not know their declarations. Each file appears whole or not at all, in place of an earlier
    one. Streams without files are left out. Raises `OSError` or `duckdb.Error` where files cannot be read or
    written; the JSONL files are never touched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, int] = {}
    with plain_scratch() as scratch:
        plain = PlainPaths(scratch)
        # What does not fit in memory is spilled next to the result, not into the working directory.
        with private_connection({"temp_directory": str(plain.folder(folder))}) as connection:
            for stream, paths in files.items():
                if paths:
                    named = [plain.file(path) for path in paths]
                    rows[stream] = _write_stream(connection, stream, named, plain.folder(folder))
    return rows


def _write_stream(
    connection: duckdb.DuckDBPyConnection, stream: str, paths: Sequence[Path], folder: Path
) -> int:
    made = folder / f".{uuid4().hex}.parquet"
    cleaned = made.with_suffix(".jsonl")
    try:
        if any(map(has_long_line, paths)):
            _drop_long_lines(paths, cleaned)
            paths = [cleaned]
        with watched(connection, lambda: [stream]):
            rows = _copy(connection, stream, paths, made)
        made.replace(snapshot_file(folder, stream))
    finally:
        made.unlink(missing_ok=True)
        cleaned.unlink(missing_ok=True)
    return rows


def _copy(connection: duckdb.DuckDBPyConnection, stream: str, paths: Sequence[Path], made: Path) -> int:
    selected, table = users_table(connection, stream, paths)
    written = connection.execute(
        f"COPY (SELECT {selected} FROM {_LINES} WHERE event IS NOT NULL) TO {text(os.fspath(made))} {_FORMAT}",  # noqa: S608 - quoted
        {"files": [os.fspath(path) for path in paths], "columns": table},
    ).fetchone()
    assert written is not None
    return int(written[0])


def _write_view(run: Run, name: str, folder: Path) -> int:
    """Write a derived view, made from the stream's snapshot where that is current."""
    view = name.removeprefix("views/")
    target = snapshot_file(folder, name)
    target.parent.mkdir(exist_ok=True)
    with open_all([run], only={view}) as tables:
        return write_rows(tables.connection, f"SELECT * EXCLUDE (run_id) FROM {view}", target)  # noqa: S608 - ours


def write_rows(
    connection: duckdb.DuckDBPyConnection, query: str, target: Path, *, aside: Path | None = None
) -> int:
    """Write what a query gives into a Parquet file; gives the number of rows.

    The file appears whole or not at all; it is made in the folder `aside`, by default beside it.
    """
    with plain_scratch() as scratch:
        made = PlainPaths(scratch).folder(aside or target.parent) / f".{uuid4().hex}.parquet"
        try:
            written = connection.execute(f"COPY ({query}) TO {text(os.fspath(made))} {_FORMAT}").fetchone()
            made.replace(target)
        finally:
            made.unlink(missing_ok=True)
    assert written is not None
    return int(written[0])


def _notes(folder: Path, made: Mapping[str, int], made_from: dict[str, Origin]) -> dict[str, Snapshot]:
    return {
        name: Snapshot(rows, snapshot_file(folder, name).stat().st_size, statement_digest(name), made_from)
        for name, rows in made.items()
    }


def _drop_long_lines(paths: Sequence[Path], cleaned: Path) -> None:
    """Copy the lines of the files, except those that are too long; holds one line in memory."""
    with cleaned.open("wb") as out:
        for path in paths:
            out.writelines(line + b"\n" for line in read_lines(path))
