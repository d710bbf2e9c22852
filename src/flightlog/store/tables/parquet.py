"""Parquet files of runs, made by DuckDB: snapshots of one run's streams and views, and a history of many
runs.

Snapshots stand in the run; `store/tables/snapshots.py` says which may be read. A history is Hive-partitioned,
and DuckDB, Spark, Trino, Dask and Arrow read it as it is:

    DIR/<table>/project=<project>/date=<UTC date of the start>/<run_id>.parquet
    DIR/_flightlog/<run_id>.json                             what was written of a run, and from what

It has one file per run and table; the tables are those of `flightlog sql`, less `concurrency`, which follows
from `attempts`. A table in which a run has no rows has no file of it. Readers pass over names that begin with
`_`: files are made in `_flightlog`, and moved to their place when they are whole.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote
from uuid import uuid4

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.core.settings import expanded
from flightlog.store import layout
from flightlog.store.documents import decode_document, read_document, sync_folder, write_document
from flightlog.store.integrity import FileSum
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import unix_time
from flightlog.store.read.files import find_parts, stamp_at
from flightlog.store.remote.objects import Objects, file_chunks, is_address, open_objects
from flightlog.store.tables.connection import Executes, PlainPaths, path_text, plain_scratch, text
from flightlog.store.tables.run_tables import RunTables, open_streams, open_tables, table_names
from flightlog.store.tables.snapshots import (
    FileOrigin,
    Snapshot,
    Snapshots,
    are_as_noted,
    damage_of,
    is_unchanged,
    origins,
    snapshot_file,
    statement_digest,
    write_notes,
)
from flightlog.store.tables.views import STORED

if TYPE_CHECKING:
    from flightlog.store.run import Run


_FORMAT = (
    "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, DICTIONARY_SIZE_LIMIT 1000, "
    "ROW_GROUP_SIZE 61440, WRITE_BLOOM_FILTER false, USE_TMP_FILE false)"
)
"""Nobody looks up single values by a filter. Dictionaries of what differs in each row cost memory, and so do
larger groups of rows: what they take is missing where lines are joined, which then waits for the disk."""


class WrittenFile(NamedTuple):
    """A Parquet file that was written."""

    rows: int
    size_bytes: int
    sha256: str


def snapshot_run(run: Run) -> dict[str, int]:
    """Bring the snapshots in `parquet/` up to date; gives the rows of those that were made, by name.

    Every stream gets one, with each event once, and so do the derived views that take long to make:
    `views/attempts` and `views/spans`. What is current and intact stays as it is; what is damaged is made
    again. A run that runs is a `UsageError`, and so is a folder `parquet` that leads elsewhere. Raises
    `OSError` or `duckdb.Error` where files cannot be read or written; the lines are never touched.
    """
    from concurrent.futures import ThreadPoolExecutor

    if run.status == "running":
        raise UsageError(f"{run.run_id} is running: it can be compacted when it has ended")
    folder = run.path / layout.PARQUET
    parts = find_parts(run.path)
    found = Snapshots(run.path, parts)
    intact = found.current - found.damaged().keys()
    stale = [stream for stream in sorted(parts) if not {stream, *_views_of(stream)} <= intact]
    if not stale:
        return {}
    for one in (folder, folder / "views"):
        _check_own_folder(one)
    folder.mkdir(parents=True, exist_ok=True)
    # Nothing is said of a file while it is replaced, so that a compaction cut short leaves nothing that looks
    # damaged.
    remade = {name for stream in stale for name in (stream, *_views_of(stream))}
    notes = {name: one for name, one in found.noted.items() if name in intact and name not in remade}
    if found.problem is not None or notes.keys() != found.noted.keys():
        write_notes(folder, notes)
    rows: dict[str, int] = {}
    unnoted = 0
    try:
        with open_streams([run]) as lines, ThreadPoolExecutor(1) as pool:
            lines.connection.execute("SET preserve_insertion_order = true")
            for stream in stale:
                files = [part.path for part in parts[stream]]
                stamps = [stamp_at(os.fspath(file)) for file in files]
                hashing = pool.submit(origins, run.path, files)
                statement, misfits = lines.statement_of_lines(stream)
                made = {stream: write_rows(lines.connection, statement, snapshot_file(folder, stream))}
                before = hashing.result()
                changed = misfits or stamps != [stamp_at(os.fspath(file)) for file in files]
                fresh = {} if changed else _notes(made, before)
                if _views_of(stream):
                    _note(folder, notes | fresh)  # the views are made from it
                    made |= {name: _write_view(run, name, folder) for name in _views_of(stream)}
                    fresh = {} if changed else _notes(made, before)
                if stamps == [stamp_at(os.fspath(file)) for file in files]:
                    notes |= fresh
                unnoted += sum(one.size_bytes for one in before.values())
                if unnoted >= StoreLimits.snapshot_note_bytes:
                    _note(folder, notes)
                    unnoted = 0
                rows |= {name: written.rows for name, written in made.items()}
    finally:
        _note(folder, notes)
    return rows


def _views_of(stream: str) -> list[str]:
    return [f"views/{view}" for view, of in STORED.items() if of == stream]


def _note(folder: Path, notes: Mapping[str, Snapshot]) -> None:
    """Make snapshots current: the names of their files are on the disk before it is said what they hold."""
    for one in (folder, folder / "views"):
        if one.is_dir():
            sync_folder(one)
    write_notes(folder, notes)


def _check_own_folder(folder: Path) -> None:
    """Raise a `UsageError` where a folder to write into is a link or no folder: nothing is written
    elsewhere.
    """
    try:
        mode = folder.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise UsageError(
            f"{path_text(folder)} is a link to {path_text(folder.readlink())}, and nothing is written "
            "through it: remove the link, then compact again"
        )
    if not stat.S_ISDIR(mode):
        raise UsageError(f"{path_text(folder)} is not a folder: remove it, then compact again")


def _write_view(run: Run, name: str, folder: Path) -> WrittenFile:
    """Write a derived view, made from the stream's snapshot where that is current."""
    view = name.removeprefix("views/")
    target = snapshot_file(folder, name)
    target.parent.mkdir(exist_ok=True)
    with open_tables([run]) as tables:
        return write_rows(tables, f"SELECT * EXCLUDE (run_id) FROM {view}", target)  # noqa: S608


def write_rows(tables: Executes, query: str, target: Path, *, aside: Path | None = None) -> WrittenFile:
    """Write what a query gives into a Parquet file.

    The file appears whole or not at all; it is made in the folder `aside`, by default beside it. The disk has
    it before it gets its name. No link is followed: what stands at `target` is replaced, and a folder there
    is moved aside.
    """
    with plain_scratch() as scratch:
        made = PlainPaths(scratch).folder(aside or target.parent) / f".{uuid4().hex}.parquet"
        fd = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            found = tables.execute(f"COPY ({query}) TO {text(os.fspath(made))} {_FORMAT}").fetchone()
            assert found is not None
            os.fsync(fd)
            with os.fdopen(fd, "rb", buffering=0, closefd=False) as source:
                digest = hashlib.file_digest(source, "sha256").hexdigest()
            size = os.fstat(fd).st_size
            move_folder_aside(target)
            made.replace(target)
        finally:
            os.close(fd)
            made.unlink(missing_ok=True)
    return WrittenFile(int(found[0]), size, digest)


def move_folder_aside(target: Path) -> None:
    """Give a folder another name that stands where a file belongs; anything else can be replaced. Raises
    OSError.
    """
    if target.is_dir() and not target.is_symlink():
        target.rename(target.with_name(f"{target.name}.moved-{uuid4().hex[:8]}"))


def _notes(made: Mapping[str, WrittenFile], made_from: dict[str, FileOrigin]) -> dict[str, Snapshot]:
    return {
        name: Snapshot(file.rows, file.size_bytes, statement_digest(name), made_from, file.sha256)
        for name, file in made.items()
    }


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
    made_from: dict[str, FileOrigin]
    sums: dict[str, FileSum] = {}
    """What each file holds. Earlier versions noted none: what they wrote is written anew."""


class HistoryFolder:
    """A history in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Where files are made."""

    def noted(self, name: str) -> Noted | None:
        """What was noted of a run, in the file of this name; None where that is not there, or damaged."""
        return read_document(self.folder / name, Noted).value

    def has(self, name: str, file: FileSum) -> bool:
        """Whether a file is there as it was written."""
        return damage_of(self.folder / name, file.size_bytes, file.sha256) is None

    def publish(self, names: Iterable[str]) -> None:
        """These files were made."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, as far as they are there."""
        for name in names:
            (self.folder / name).unlink(missing_ok=True)


class RemoteHistory(HistoryFolder):
    """A history at an address. Files are made in a folder here, which must be empty, and sent from there.

    What is there is listed once. Every method may raise `RemoteError`.
    """

    def __init__(self, objects: Objects, folder: Path) -> None:
        super().__init__(folder)
        self._objects = objects
        self._sizes = {one.name: one.size for one in objects.find("")}

    def noted(self, name: str) -> Noted | None:
        """What was noted of a run."""
        if name not in self._sizes:
            return None
        return decode_document(self._objects.read(name), Noted, name).value

    def has(self, name: str, file: FileSum) -> bool:
        """Whether an object of its size is there; what was sent was checked then."""
        return self._sizes.get(name) == file.size_bytes

    def publish(self, names: Iterable[str]) -> None:
        """Send files."""
        for name in names:
            path = self.folder / name
            with path.open("rb") as made:
                chunks = file_chunks(made, 0, path.stat().st_size)
                self._objects.write(name, chunks, replaces=name in self._sizes)
            path.unlink()

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects, as far as they are there."""
        self._objects.remove(names)


@contextmanager
def open_history(place: str) -> Iterator[HistoryFolder]:
    """The history in a folder, or at an address such as `s3://bucket/history`. Raises `UsageError`,
    `MissingExtra` or `RemoteError` for an address.
    """
    if not is_address(place):
        yield HistoryFolder(expanded(place))
        return
    with TemporaryDirectory(prefix="flightlog-history-") as folder:
        yield RemoteHistory(open_objects(place), Path(folder))


def add_to_history(run: Run, history: HistoryFolder) -> dict[str, int]:
    """Bring the files of a run in a history up to date; gives the rows of each that was written, by table.

    Nothing is written where the run is as it was. A run that runs is a `UsageError`. Raises `OSError`,
    `RemoteError` or `duckdb.Error` where files cannot be read or written.
    """
    if run.status == "running":
        raise UsageError(f"{run.run_id} is running: it goes into a history when it has ended")
    folder, note = history.folder, f"{NOTES}/{_file_name(run.run_id)}.json"
    sources = [part.path for parts in find_parts(run.path).values() for part in parts]
    sources += [file for file in (run.path / layout.RUN,) if file.exists()]
    before = history.noted(note)
    if before is not None and _is_current(before, run.path, sources, history):
        return {}
    made_from = origins(run.path, sources)
    (folder / NOTES).mkdir(parents=True, exist_ok=True)
    partition = partition_of(run.info.project, run.info.start_time)
    rows: dict[str, int] = {}
    files: dict[str, int] = {}
    sums: dict[str, FileSum] = {}
    with open_tables([run]) as tables:
        for table in table_names([run]):
            name = f"{table}/{partition}/{_file_name(run.run_id)}.parquet"
            if table in LEFT_OUT:
                continue
            written = _write(tables, table, folder / name, folder / NOTES)
            if written is not None:
                rows[table] = files[name] = written.rows
                sums[name] = FileSum(written.sha256, written.size_bytes)
    history.publish(files)
    history.remove((before.files if before is not None else {}).keys() - files.keys())
    if are_as_noted(run.path, sources, made_from):
        write_document(folder / note, Noted(format=FORMAT, files=files, made_from=made_from, sums=sums))
        history.publish([note])
    return rows


def partition_of(project: str, start_time: str | None) -> str:
    """The folders of a run within a table's: `project=sir-demo/date=2026-05-20`, escaped as Hive does."""
    started = unix_time(start_time)
    date = UNKNOWN if started is None else f"{datetime.fromtimestamp(started, UTC):%Y-%m-%d}"
    return f"project={quote(project, safe=' ') or UNKNOWN}/date={date}"


def _write(tables: RunTables, table: str, target: Path, aside: Path) -> WrittenFile | None:
    """Write a table's rows, if it has any; what the folders say is left out of the file."""
    tables.make([table])
    # One of ours.
    (count,) = tables.execute(f'SELECT count(*) FROM "{table}"').fetchone() or (0,)  # noqa: S608
    if not count:
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    less = "* EXCLUDE (project)" if table == "runs" else "*"
    # One of ours.
    return write_rows(tables, f'SELECT {less} FROM "{table}"', target, aside=aside)  # noqa: S608


def _is_current(before: Noted, run: Path, sources: Sequence[Path], history: HistoryFolder) -> bool:
    return (
        before.format == FORMAT
        and {file.relative_to(run).as_posix() for file in sources} == before.made_from.keys()
        and before.sums.keys() == before.files.keys()
        and all(history.has(name, one) for name, one in before.sums.items())
        and all(is_unchanged(run / name, origin) for name, origin in before.made_from.items())
    )


def _file_name(run_id: str) -> str:
    return quote(run_id, safe=" ")
