"""Which Parquet snapshots of a run may be read.

`parquet/<stream>.parquet` holds the events of a stream, `parquet/views/<view>.parquet` a derived view that
takes long to compute, and `parquet/snapshot.json` says what each was made from, and its SHA-256, which is
checked before a file is read. A file with any problem is not read: the lines are.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from flightlog.events.columns import columns, projection
from flightlog.store import layout
from flightlog.store.documents import read_document, write_document
from flightlog.store.integrity import sum_of
from flightlog.store.limits import StoreLimits
from flightlog.store.read.files import Part, Stamp, open_regular, stamp_of
from flightlog.store.tables.connection import is_built_in
from flightlog.store.tables.views import DERIVED, STORED

SNAPSHOT = "snapshot.json"


_FileId = tuple[str, int, Stamp]
_intact: dict[_FileId, str] = {}
"""Files that this process has hashed, and the result: a server is asked for the same files again and
again."""
_distrusted: dict[_FileId, str] = {}
"""Files that DuckDB could not read, whatever their checksum says, and what it said."""


class FileOrigin(Struct, frozen=True):
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
    made_from: dict[str, FileOrigin]
    """The run's files of the stream, by their path within the run, with `/`."""
    sha256: str = ""
    """Of the Parquet file. Earlier versions noted none: what they made is out of date."""


def statement_digest(name: str) -> str:
    """What a snapshot of this name is made by, in this version: `tasks` is a stream's, `views/attempts` a
    view's.
    """
    view = name.removeprefix("views/")
    if view != name:
        made_by = DERIVED[view]
    elif is_built_in(name):
        made_by = f"{columns(name)} {projection(name)}"
    else:
        made_by = "the columns found in users' lines"
    return hashlib.sha256(made_by.encode()).hexdigest()[:16]


def snapshot_file(folder: Path, name: str) -> Path:
    """Where a snapshot stands."""
    return folder / f"{name}.parquet"


class Snapshots:
    """The snapshots of one run: which are current, and which of these are intact.

    A snapshot is current where the stream has the same files as when it was made, none of them changed, and
    this version would make the same. A file of lines of the same size and time is taken as unchanged; of the
    same size alone, as in a copy, its checksum decides. `tell` gets a sentence for each damaged file that was
    to be read.
    """

    def __init__(
        self, run: Path, parts: Mapping[str, Sequence[Part]], tell: Callable[[str], None] | None = None
    ) -> None:
        self._folder = run / layout.PARQUET
        self._tell = tell
        self._damage: dict[str, str | None] = {}
        self._given: set[str] = set()
        file = self._folder / SNAPSHOT
        read = read_document(file, dict[str, Snapshot])
        self.noted = read.value or {}
        """What `snapshot.json` says."""
        self.problem = read.problem if read.value is None and os.path.lexists(file) else None
        """Why `snapshot.json` cannot be read; None where it can, or where there is none."""
        same: dict[Path, bool] = {}
        self.current = {
            name
            for name, one in self.noted.items()
            if one.sha256
            and (stream := _stream_of(name))
            and one.made_by == statement_digest(name)
            and _is_current(run, parts.get(stream, ()), one, same)
        }
        """The names of those that hold what the lines hold, if their files are intact."""

    def file(self, name: str) -> Path | None:
        """The file of a snapshot that is current and intact; None where the lines have to be read."""
        if self.problem is not None and self._tell is not None:
            self._tell(f"{layout.PARQUET}/{self.problem}")
        if name not in self.current:
            return None
        damage = self.damaged([name]).get(name)
        if damage is not None and self._tell is not None:
            self._tell(f"{layout.PARQUET}/{name}.parquet {damage}")
        if damage is not None:
            return None
        self._given.add(name)
        return snapshot_file(self._folder, name).absolute()

    def blame(self, error: str) -> bool:
        """Whether one of the files that were given out can be blamed for an error that came up while they
        were read.

        It can where it is damaged by now, or the error names it. It is not given out again by this process.
        """
        blamed = False
        for name in self._given:
            file, noted = snapshot_file(self._folder, name), self.noted[name]
            if f"{name}.parquet" in error or damage_of(file, noted.size_bytes, noted.sha256, again=True):
                distrust(file, "could not be read")
                blamed = True
        return blamed

    def damaged(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """What is wrong with the files of these current snapshots, by default of all; those that are intact
        are left out.
        """
        wanted = sorted(self.current if names is None else self.current.intersection(names))
        unknown = [name for name in wanted if name not in self._damage]
        large = sum(self.noted[name].size_bytes for name in unknown) >= StoreLimits.threaded_hash_bytes
        if large and len(unknown) > 1:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(min(len(unknown), os.cpu_count() or 1)) as pool:
                self._damage.update(zip(unknown, pool.map(self._check, unknown), strict=True))
        else:
            self._damage.update((name, self._check(name)) for name in unknown)
        return {name: damage for name in wanted if (damage := self._damage[name]) is not None}

    def _check(self, name: str) -> str | None:
        noted = self.noted[name]
        return damage_of(snapshot_file(self._folder, name), noted.size_bytes, noted.sha256)


def write_notes(folder: Path, notes: Mapping[str, Snapshot]) -> None:
    """Say what the snapshots in a folder are, once the files themselves are on the disk. Raises OSError."""
    write_document(folder / SNAPSHOT, notes, durable=True)


def damage_of(file: Path, size_bytes: int, sha256: str, *, again: bool = False) -> str | None:
    """What is wrong with a file that should hold these bytes, as the end of a sentence; None where it does.

    Only a regular file is opened. A file that this process has hashed before is not hashed again while the
    file system says that it has not changed, and the last change is some seconds ago; `again` hashes it in
    any case.
    """
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return "is not a regular file"
            if found.st_size != size_bytes:
                return f"holds {found.st_size:,} bytes instead of {size_bytes:,}"
            identity = _identity(file, found)
            if identity in _distrusted:
                return _distrusted[identity]
            known = None if again else _intact.get(identity)
            digest = known or _hashed(fd, identity)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return "is a link" if error.errno == errno.ELOOP else f"cannot be read: {error.strerror or error}"
    return None if digest == sha256 else "is damaged: it has another SHA-256 than when it was written"


def _hashed(fd: int, identity: _FileId) -> str:
    with os.fdopen(fd, "rb", buffering=0, closefd=False) as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
    if time.time_ns() - identity[2].changed_ns > StoreLimits.file_settled_ns:
        if len(_intact) >= StoreLimits.max_known_hashes:
            _intact.clear()
        _intact[identity] = digest
    return digest


def distrust(file: Path, why: str) -> None:
    """Let this process not read a file of snapshots again, until it is another file."""
    with suppress(OSError):
        _distrusted[_identity(file, file.stat())] = why


def _identity(file: Path, found: os.stat_result) -> _FileId:
    return os.path.abspath(file), found.st_dev, stamp_of(found)  # noqa: PTH100 - links stay


def _stream_of(name: str) -> str:
    """The stream that a snapshot is made from; empty for a view that this version does not know."""
    view = name.removeprefix("views/")
    return name if view == name else STORED.get(view, "")


def origins(run: Path, files: Sequence[Path]) -> dict[str, FileOrigin]:
    """The files of a run as they are now, by their path within it. Raises OSError."""
    return {_name(run, file): origin_of(file) for file in files}


def origin_of(file: Path) -> FileOrigin:
    """A file as it is now. Raises OSError.

    Its checksum is of the bytes that are there, not the one noted when the run closed: what is made from a
    file that was damaged since is not to pass for what its repaired bytes give. As in `damage_of`, a file is
    not hashed again that this process has hashed before.
    """
    with open_regular(file) as source:
        found = os.fstat(source.fileno())
        identity = _identity(file, found)
        known = None if is_mapped(file) else _intact.get(identity)
        return FileOrigin(found.st_size, found.st_mtime_ns, known or _hashed(source.fileno(), identity))


def is_mapped(file: Path) -> bool:
    """Whether a file is written through memory, so that its times may stay as they are."""
    return file.name == layout.PAGE or ".tail-" in file.name


def are_as_noted(run: Path, files: Sequence[Path], noted: Mapping[str, FileOrigin]) -> bool:
    """Whether files were left alone since they were noted, by their size and time."""
    try:
        stats = {_name(run, file): file.stat() for file in files}
    except OSError:
        return False
    found = {name: (one.st_size, one.st_mtime_ns) for name, one in stats.items()}
    return found == {name: (origin.size_bytes, origin.mtime_ns) for name, origin in noted.items()}


def _is_current(run: Path, parts: Sequence[Part], snapshot: Snapshot, same: dict[Path, bool]) -> bool:
    """Whether nothing has changed since; `same` remembers what was found out of each file."""
    if {_name(run, part.path) for part in parts} != snapshot.made_from.keys():
        return False
    for part in parts:
        if part.path not in same:
            same[part.path] = is_unchanged(part.path, snapshot.made_from[_name(run, part.path)])
    return all(same[part.path] for part in parts)


def is_unchanged(file: Path, origin: FileOrigin, *, by_time: bool = True) -> bool:
    """Whether a file holds what it held: by its size and time, or else by its checksum; by that alone without
    `by_time`.
    """
    try:
        found = file.stat()
        if found.st_size != origin.size_bytes:
            return False
        return (by_time and found.st_mtime_ns == origin.mtime_ns) or sum_of(file).sha256 == origin.sha256
    except OSError:
        return False


def _name(run: Path, file: Path) -> str:
    return file.relative_to(run).as_posix()
