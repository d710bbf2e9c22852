"""The history of runs as Hive-partitioned Parquet, which DuckDB, Spark, Trino, Dask and Arrow read as it is.

    DIR/<table>/project=<project>/date=<UTC date of the start>/<run_id>.parquet
    DIR/_flightlog/<run_id>.json                             what was written of a run, and from what

One file a run and table; the tables are those of `flightlog sql`, less `concurrency`, which `attempts` gives.
A table in which a run has no rows has no file of it. Readers pass over names that begin with `_`: files are
made in `_flightlog`, and moved to their place when they are whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.store import layout
from flightlog.store.documents import read_document, write_document
from flightlog.store.integrity import FileSum
from flightlog.store.liveness import unix_time
from flightlog.store.read.files import find_parts
from flightlog.store.tables.parquet import Written, write_rows
from flightlog.store.tables.run_tables import open_all, table_names
from flightlog.store.tables.snapshots import Origin, are_as_noted, damage_of, is_unchanged, origins

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run

NOTES = "_flightlog"
FORMAT = 1
"""Goes up when the tables of the same run would come out otherwise: every run is then written anew."""
UNKNOWN = "__HIVE_DEFAULT_PARTITION__"
"""What Hive calls the partition of an unknown value."""
LEFT_OUT = frozenset({"concurrency"})


class Noted(Struct, frozen=True, kw_only=True):
    """`_flightlog/<run_id>.json`."""

    format: int
    files: dict[str, int]
    """Rows by file, named from the history's folder on."""
    made_from: dict[str, Origin]
    sums: dict[str, FileSum] = {}
    """What each file holds. Earlier versions noted none: what they wrote is written anew."""


def add_to_history(run: Run, folder: Path) -> dict[str, int]:
    """Bring the files of a run in a history up to date; gives the rows of each that was written, by table.

    Nothing is written where the run is as it was. A run that runs is a `UsageError`. Raises `OSError` or
    `duckdb.Error` where files cannot be read or written.
    """
    if run.status == "running":
        raise UsageError(f"{run.run_id} is running: it goes into a history when it has ended")
    notes = folder / NOTES
    note = notes / f"{_file_name(run.run_id)}.json"
    sources = [part.path for parts in find_parts(run.path).values() for part in parts]
    sources += [file for file in (run.path / layout.RUN,) if file.exists()]
    before = read_document(note, Noted).value
    if before is not None and _is_current(before, run.path, sources, folder):
        return {}
    made_from = origins(run.path, sources)
    notes.mkdir(parents=True, exist_ok=True)
    partition = partition_of(run.info.project, run.info.start_time)
    rows: dict[str, int] = {}
    files: dict[str, int] = {}
    sums: dict[str, FileSum] = {}
    with open_all([run]) as tables:
        for table in table_names([run]):
            name = f"{table}/{partition}/{_file_name(run.run_id)}.parquet"
            if table in LEFT_OUT:
                continue
            written = _write(tables.connection, table, folder / name, notes)
            if written is not None:
                rows[table] = files[name] = written.rows
                sums[name] = FileSum(written.sha256, written.size_bytes)
    for name in (before.files if before is not None else {}).keys() - files.keys():
        (folder / name).unlink(missing_ok=True)
    if are_as_noted(run.path, sources, made_from):
        write_document(note, Noted(format=FORMAT, files=files, made_from=made_from, sums=sums))
    return rows


def partition_of(project: str, start_time: str | None) -> str:
    """The folders of a run within a table's: `project=sir-demo/date=2026-05-20`, escaped as Hive does."""
    started = unix_time(start_time)
    date = UNKNOWN if started is None else f"{datetime.fromtimestamp(started, UTC):%Y-%m-%d}"
    return f"project={quote(project, safe=' ') or UNKNOWN}/date={date}"


def _write(connection: duckdb.DuckDBPyConnection, table: str, target: Path, aside: Path) -> Written | None:
    """Write a table's rows, if it has any; what the folders say is left out of the file."""
    (count,) = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone() or (0,)  # noqa: S608 - one of ours
    if not count:
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    less = "* EXCLUDE (project)" if table == "runs" else "*"
    return write_rows(connection, f'SELECT {less} FROM "{table}"', target, aside=aside)  # noqa: S608 - one of ours


def _is_current(before: Noted, run: Path, sources: Sequence[Path], folder: Path) -> bool:
    return (
        before.format == FORMAT
        and {file.relative_to(run).as_posix() for file in sources} == before.made_from.keys()
        and before.sums.keys() == before.files.keys()
        and not any(damage_of(folder / name, one.size_bytes, one.sha256) for name, one in before.sums.items())
        and all(is_unchanged(run / name, origin) for name, origin in before.made_from.items())
    )


def _file_name(run_id: str) -> str:
    return quote(run_id, safe=" ")
