"""One result in a file: a line of JSON that says what it is, then the pickled value; written whole or not at
all.
"""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import platform
import stat
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from flightlog.store.documents import is_leftover

FORMAT = 1
PROTOCOL = 5
"""Of pickle; every Python this package runs on reads it."""
MAX_HEADER = 1 << 20
UNUSED_S = 3600.0
"""A file's time of change is when it was used last, to within an hour: noting each use would cost a write
each."""

_encode = msgspec.json.Encoder().encode


class About(msgspec.Struct, frozen=True, kw_only=True):
    """Whose result it is: what misses are explained with."""

    function: str
    """`module.qualname`."""
    code: str
    """Digest of its code."""
    arguments: dict[str, str]
    """Digest of each argument, by name."""

    @property
    def call(self) -> str:
        """The digest of all arguments by name."""
        names = sorted(self.arguments)
        return hashlib.sha256(_encode([(name, self.arguments[name]) for name in names])).hexdigest()


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the first line of an entry says."""

    key: str
    created: str
    """Timestamp, UTC."""
    cost_s: float | None
    """How long the result took to make."""
    size: int
    """Bytes of the payload."""
    sha256: str
    """Of the payload."""
    format: int = 0
    about: About | None = None
    python: str = ""
    protocol: int = 0


class Damaged(Exception):  # noqa: N818 - says what the entry is
    """A file that is no whole entry of its key."""


class Untrusted(Exception):  # noqa: N818 - says what the entry is
    """A file that others could have written."""


def read_header(path: Path) -> Header:
    """What an entry is, without its value; a `Damaged` or OSError where that cannot be told."""
    with BufferedReader(_opened(os.fspath(path))) as file:
        return _header(file.readline(MAX_HEADER))


class Entry(NamedTuple):
    """An entry as it was read, checked in full."""

    header: Header
    payload: memoryview
    used: float
    """Unix time of its last use, to within an hour."""


def read_entry(path: str, key: str, user: int | None) -> Entry:
    """The entry of a key; a `Damaged`, an `Untrusted` or an OSError where it is not there, or not to be
    used.
    """
    with _opened(path) as file:
        # The open file is looked at, and not the path: nobody can exchange one for the other meanwhile.
        found = os.fstat(file.fileno())
        why_not = refusal(path, found, user)
        if why_not is not None:
            raise Untrusted(why_not)
        data = file.readall()
    end = data.find(b"\n", 0, MAX_HEADER) + 1
    header, payload = _header(data[:end]), memoryview(data)[end:]
    if header.key != key:
        raise Damaged("it is the entry of another key")
    if header.size != len(payload):
        raise Damaged(f"it has {len(payload)} of {header.size} bytes")
    if hashlib.sha256(payload).hexdigest() != header.sha256:
        raise Damaged("its content is not what was written")
    return Entry(header, payload, found.st_mtime)


def write_entry(
    path: Path, key: str, payload: bytes, *, created: str, cost_s: float | None, about: About | None
) -> None:
    """Write an entry, replacing what is there in one step; an OSError leaves nothing behind. The folder must
    exist.
    """
    header = Header(
        key=key,
        created=created,
        cost_s=cost_s,
        size=len(payload),
        sha256=hashlib.sha256(payload).hexdigest(),
        format=FORMAT,
        about=about,
        python=platform.python_version(),
        protocol=PROTOCOL,
    )
    fresh = path.with_name(f".{path.name[:16]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:  # noqa: PTH123 - of a descriptor
            file.write(_encode(header) + b"\n")
            file.write(payload)
            file.flush()
            os.fsync(fd)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def dump(value: Any) -> bytes:
    """A value as payload; any exception where it cannot be pickled."""
    return pickle.dumps(value, protocol=PROTOCOL)


def load(payload: memoryview) -> Any:
    """The value of a payload that is trusted; any exception where its classes are not what they were."""
    return pickle.loads(payload)  # noqa: S301 - owner and mode were checked, and the content against its checksum


def is_entry(name: str) -> bool:
    """Whether a file's name is that of an entry: 64 hex digits."""
    return len(name) == 64 and not is_leftover(name) and set(name) <= set("0123456789abcdef")


def _opened(path: str) -> FileIO:
    """A regular file, open; a `Damaged` for anything else, links included. A pipe is not waited for."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise Damaged("it is no regular file") from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Damaged("it is no regular file")
    return FileIO(fd)


def _header(line: bytes) -> Header:
    if not line.endswith(b"\n"):
        raise Damaged("its first line is not whole")
    try:
        header = msgspec.json.decode(line, type=Header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"its first line is not that of an entry ({error})") from None
    if header.format != FORMAT:
        raise Damaged(f"it is of format {header.format}, not {FORMAT}")
    return header


def this_user() -> int | None:
    """The user this process acts for; None where files have no owners."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def refusal(path: str | os.PathLike[str], found: os.stat_result, user: int | None) -> str | None:
    """Why a file or folder is not to be trusted, and what to do; None if it is.

    It must belong to the user, or to root, and nobody else may be able to write to it.
    """
    if user is None:
        return None
    what = "the cache folder" if stat.S_ISDIR(found.st_mode) else "the cache entry"
    why = "results are unpickled from there, which can run code"
    if found.st_uid not in (user, 0):
        return f"{what} {path} belongs to user {found.st_uid}, not to user {user}: {why}; use a folder of your own"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(found.st_mode)
        return f"{what} {path} can be written to by others (mode {mode:04o}): {why}; see who did, then chmod -R go-w"
    return None
