"""Which Parquet snapshots of a run are current: `parquet/snapshot.json` says what each was made from.

`parquet/<stream>.parquet` holds the events of a stream, `parquet/views/<view>.parquet` a derived view that is dear
to make.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from flightlog.events import streams
from flightlog.events.columns import columns, projection
from flightlog.store import layout
from flightlog.store.documents import read_document, write_document
from flightlog.store.parts import Part
from flightlog.store.tables_views import DERIVED, STORED

SNAPSHOT = "snapshot.json"


class Origin(Struct, frozen=True):
    """A file that rows were taken from, as it was then."""

    size_bytes: int
    mtime_ns: int
    sha256: str


class Snapshot(Struct, frozen=True):
    """One stream's Parquet file."""

    rows: int
    size_bytes: int
    made_by: str
    """A digest of the statement that made it: another version of it makes another table."""
    made_from: dict[str, Origin]
    """The run's files of the stream, by their path within the run, with `/`."""


def statement_digest(name: str) -> str:
    """What a snapshot of this name is made by, in this version: `tasks` is a stream's, `views/attempts` a view's."""
    view = name.removeprefix("views/")
    if view != name:
        made_by = DERIVED[view]
    elif name in streams() and not name.startswith("user."):
        made_by = f"{columns(name)} {projection(name)}"
    else:
        made_by = "the columns found in users' lines"
    return hashlib.sha256(made_by.encode()).hexdigest()[:16]


def snapshot_file(folder: Path, name: str) -> Path:
    """Where a snapshot stands."""
    return folder / f"{name}.parquet"


def read_snapshots(folder: Path) -> dict[str, Snapshot]:
    """What is noted of the snapshots in a folder; none where nothing is, or where it cannot be read."""
    return read_document(folder / SNAPSHOT, dict[str, Snapshot]).value or {}


def note_snapshots(folder: Path, made: Mapping[str, Snapshot]) -> None:
    """Note what these snapshots were made from; what is said of other streams stays. Raises OSError."""
    write_document(folder / SNAPSHOT, {**read_snapshots(folder), **made})


def current_snapshots(run: Path, parts: Mapping[str, Sequence[Part]]) -> dict[str, Path]:
    """The snapshots that hold what the run's files hold, by name.

    A snapshot is current where the stream has the same files as when it was made, none of them changed, and this
    version would make the same. A file of the same size and time is taken as unchanged; of the same size alone,
    as in a copy, its checksum decides.
    """
    folder = run / layout.PARQUET
    same: dict[Path, bool] = {}
    found = {}
    for name, snapshot in read_snapshots(folder).items():
        stream = STORED.get(name.removeprefix("views/"), "") if name.startswith("views/") else name
        file = snapshot_file(folder, name)
        if (
            stream
            and snapshot.made_by == statement_digest(name)
            and _is_whole(file, snapshot)
            and _is_current(run, parts.get(stream, ()), snapshot, same)
        ):
            found[name] = file.absolute()
    return found


def origin_of(file: Path) -> Origin:
    """A file as it is now. Raises OSError."""
    stat = file.stat()
    return Origin(stat.st_size, stat.st_mtime_ns, _sha256(file))


def origins(run: Path, files: Sequence[Path]) -> dict[str, Origin]:
    """The files of a run as they are now, by their path within it. Raises OSError."""
    return {_name(run, file): origin_of(file) for file in files}


def are_as_noted(run: Path, files: Sequence[Path], noted: Mapping[str, Origin]) -> bool:
    """Whether files were left alone since they were noted, by their size and time."""
    try:
        stats = {_name(run, file): file.stat() for file in files}
    except OSError:
        return False
    found = {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}
    return found == {name: (origin.size_bytes, origin.mtime_ns) for name, origin in noted.items()}


def _is_whole(file: Path, snapshot: Snapshot) -> bool:
    try:
        return not file.is_symlink() and file.stat().st_size == snapshot.size_bytes
    except OSError:
        return False


def _is_current(run: Path, parts: Sequence[Part], snapshot: Snapshot, same: dict[Path, bool]) -> bool:
    """Whether nothing has changed since; `same` remembers what was found out of each file."""
    if {_name(run, part.path) for part in parts} != snapshot.made_from.keys():
        return False
    for part in parts:
        if part.path not in same:
            same[part.path] = is_unchanged(part.path, snapshot.made_from[_name(run, part.path)])
    return all(same[part.path] for part in parts)


def is_unchanged(file: Path, origin: Origin) -> bool:
    """Whether a file holds what it held: by its size and time, or else by its checksum."""
    try:
        stat = file.stat()
        if stat.st_size != origin.size_bytes:
            return False
        return stat.st_mtime_ns == origin.mtime_ns or _sha256(file) == origin.sha256
    except OSError:
        return False


def _name(run: Path, file: Path) -> str:
    return file.relative_to(run).as_posix()


def _sha256(file: Path) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
