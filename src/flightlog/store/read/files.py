"""The files of a run directory: which hold which stream, regular files alone, whether one has changed, and
whether it has a line that is too long.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Literal, NamedTuple

from flightlog.core.descriptors import Descriptor, folder_names, read_bytes, retried
from flightlog.store import layout
from flightlog.store.limits import StoreLimits

_ROTATED = re.compile(r"^(?P<stream>.+)-(?P<number>\d{6,})\.jsonl$")
_PLAIN = re.compile(r"^(?P<stream>.+)\.jsonl$")
_TAIL = re.compile(r"^(?P<stream>.+)\.tail-[ab]$")


@dataclass(frozen=True)
class Part:
    """One file with lines of one stream. `writer` is None for the file of the whole run."""

    path: Path
    stream: str
    kind: Literal["rotated", "active", "tail"]
    writer: str | None
    number: int = 0


def part_of(path: Path, writer: str | None = None) -> Part | None:
    """What a file is, by its name alone; None if it holds no lines."""
    name = path.name
    if name.startswith("."):
        return None
    if match := _ROTATED.match(name):
        return Part(path, match["stream"], "rotated", writer, int(match["number"]))
    if match := _PLAIN.match(name):
        return Part(path, match["stream"], "active", writer)
    if match := _TAIL.match(name):
        return Part(path, match["stream"], "tail", writer)
    return None


def find_parts(run: Path, stream: str = "") -> dict[str, list[Part]]:
    """Every stream's files: the run's own first, then writer by writer, and of each its oldest lines first.

    With `stream` those of others may be left out. A folder that is gone or cannot be read has none.
    """
    found: dict[str, list[Part]] = {}
    for folder, writer in [(run, None), *writer_folders(run)]:
        for part in sorted(folder_parts(folder, writer, stream), key=_age):
            found.setdefault(part.stream, []).append(part)
    return found


def folder_parts(folder: Path, writer: str | None, stream: str = "") -> Iterator[Part]:
    """The files with lines that stand in one folder, in no order; only those whose names begin with
    `stream`.
    """
    for name in _names_in(folder):
        part = part_of(folder / name, writer) if name.startswith(stream) else None
        if part is not None and os.path.isfile(part.path):  # noqa: PTH113 - thousands of them
            yield part


def writer_folders(run: Path) -> list[tuple[Path, str]]:
    """The folders of the writers, with the writers' names, in order of the names."""
    segments = run / layout.SEGMENTS
    folders = sorted((segments / name, name) for name in _names_in(segments))
    return [one for one in folders if os.path.isdir(one[0])]  # noqa: PTH112 - thousands of them


def _names_in(folder: Path) -> list[str]:
    """The names in a folder, none where it cannot be read; safe in a program that closes descriptors."""
    try:
        return folder_names(folder)
    except OSError:
        return []


def _age(part: Part) -> tuple[int, int, str]:
    return ("rotated", "active", "tail").index(part.kind), part.number, part.path.name


def entries_of(folder: Path) -> list[os.DirEntry[str]]:
    """What a folder holds; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


_FLAGS = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """A regular file, opened for reading its bytes; never waits. `OSError` for anything else, which is not
    opened.
    """
    _check(path, os.stat(path))  # noqa: PTH116 - thousands of them
    fd = os.open(path, _FLAGS)
    try:
        _check(path, os.fstat(fd))  # it may have been replaced meanwhile
    except BaseException:
        os.close(fd)
        raise
    return open(fd, "rb")  # noqa: PTH123 - a descriptor, and the caller's to close


def open_lines(path: Path) -> Descriptor:
    """A regular file, opened for reading beside a program that may close descriptors, and beside processes
    that may replace it; as `open_regular`.
    """
    _check(path, os.stat(path))  # noqa: PTH116 - thousands of them
    file = retried(lambda: Descriptor.open(path, _FLAGS))
    _check(path, os.fstat(file.fd))  # it may have been replaced meanwhile
    return file


def read_regular(path: str | os.PathLike[str], limit: int = StoreLimits.max_document_bytes) -> bytes:
    """All bytes of a regular file; `OSError` for anything else, and for one of more than `limit` bytes."""
    _check(path, os.stat(path))  # noqa: PTH116 - thousands of them
    return _within(read_bytes(path, _FLAGS, limit + 1), limit)


def read_within(source: BufferedReader, limit: int = StoreLimits.max_document_bytes) -> bytes:
    """What is left of an open file; `OSError` where it is more than `limit` bytes."""
    size = os.fstat(source.fileno()).st_size
    data = source.read(min(size, limit) + 1)
    while data and size < len(data) <= limit and (more := source.read(limit + 1 - len(data))):
        data += more  # it grows, or the system does not tell its size
    return _within(data, limit)


def _within(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit >> 20} MiB")
    return data


def _check(path: str | os.PathLike[str], found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))


class Stamp(NamedTuple):
    """What the file system tells of a file without opening it; any change to the file changes one of
    these.
    """

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @property
    def changed_ns(self) -> int:
        """When the file changed last, in nanoseconds."""
        return max(self.mtime_ns, self.ctime_ns)


def stamp_at(file: str) -> Stamp | None:
    """The stamp of a file; None where there is none, or it cannot be looked at."""
    try:
        return stamp_of(os.stat(file))  # noqa: PTH116 - thousands of them
    except OSError:
        return None


def size_at(file: Path) -> int:
    """Bytes of a file; 0 where there is none, or it cannot be looked at."""
    stamp = stamp_at(os.fspath(file))
    return 0 if stamp is None else stamp.size


def stamp_of(found: os.stat_result) -> Stamp:
    """The stamp in what the system says of a file."""
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


class Files(NamedTuple):
    """All files of a run, as one stamp."""

    digest: str
    newest: Stamp


def all_files(path: Path) -> Files:
    """What the file system tells of every file of a run, in one; of a run that vanishes, of what is still
    there.
    """
    digest, newest = hashlib.sha256(), Stamp(0, 0, 0, 0)
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            file = os.path.join(folder, name)  # noqa: PTH118
            stamp = stamp_at(file)
            digest.update(f"{file[len(str(path)) :]}\0{stamp}\0".encode("utf-8", "surrogateescape"))
            newest = max(newest, stamp or newest, key=lambda one: one.changed_ns)
    return Files(digest.hexdigest(), newest)


def has_long_line(path: Path, longest: int = StoreLimits.max_line_bytes) -> bool:
    """Whether a line of a file has more bytes than that, its newline not counted. Raises OSError.

    Not all of the file is read: it is enough to find one newline in each stretch of so many bytes.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        begun, end = 0, os.fstat(fd).st_size
        while end - begun > longest:
            newline = last_newline(fd, begun, begun + longest + 1)
            if newline is None:
                return True
            begun = newline + 1
        return False
    finally:
        os.close(fd)


def last_newline(fd: int, since: int, until: int) -> int | None:
    """Where the last newline stands in these bytes of a file; None without one. Reads from their end."""
    while until > since:
        begun = max(since, until - StoreLimits.block_bytes)
        found = os.pread(fd, until - begun, begun).rfind(b"\n")
        if found >= 0:
            return begun + found
        until = begun
    return None
