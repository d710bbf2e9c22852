"""The cache's files: results by key, in a folder that any number of processes and hosts use at once without
locks. A result is one file: a line of JSON that describes it, then the pickled value; written whole or not at
all.

    <folder>/ab/cd/abcd…      the result of the key abcd…
    <folder>/functions/       what misses are explained with, see `Index`

A result is written beside its place and renamed into it. Two processes that make the same result write the
same content: whichever is last stays.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import pickle
import platform
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from io import BufferedReader, FileIO
from math import inf
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.core.settings import cache_folder, expanded
from flightlog.core.time import SECOND, timestamp_of
from flightlog.session.limits import SessionLimits
from flightlog.store.documents import is_leftover, read_document, replace_bytes
from flightlog.store.liveness import unix_time

log = logging.getLogger("flightlog")

DEFAULT_FOLDER = Path(".flightlog/cache")
EXPIRED, DAMAGED, RECOMPUTE = "expired", "damaged", "recompute asked for"

_chosen: Path | None = None
_chosen_here: ContextVar[Path | None] = ContextVar("flightlog_cache_folder", default=None)
_said: set[str] = set()

NEVER_SEEN, CODE_CHANGED, ARGUMENTS_CHANGED = "never seen", "code changed", "arguments changed"
FUNCTIONS, LAST_MISS = "functions", "last-miss.json"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")
FORMAT = 1
PROTOCOL = 5
"""Of pickle; every Python this package runs on reads it."""

_encode = msgspec.json.Encoder().encode


class Hit(Struct, frozen=True, kw_only=True):
    """A result that was there."""

    value: Any
    cost_s: float | None
    """How long it took to make."""
    size_bytes: int
    created: str


class Miss(Struct, frozen=True, kw_only=True):
    """No result, and why."""

    reason: str
    """`never seen`, `code changed`, `arguments changed`, `expired`, `damaged` or `recompute asked for`."""
    detail: str | None = None
    refused: bool = False
    """Files that others can write to, as the reason says: nothing is read, and nothing is written."""


class StoredResult(Struct, frozen=True, kw_only=True):
    """What became of a result that was handed over."""

    size_bytes: int | None = None
    """Bytes of the entry's payload; None if it was not kept."""
    problem: str | None = None
    """Why it was not kept."""
    unpicklable: bool = False
    """Whether that is because of the value, and not of the disk."""


class CacheFolder:
    """Results by key in a folder; thread-safe, and it travels to other processes by pickle.

    No method raises for what stands on the disk or for what the disk refuses. `user` is who must own the
    files, `clock` gives Unix seconds.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        user: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = expanded(folder if folder is not None else default_folder()).absolute()
        self._root = str(self.folder)
        self.index = Index(self.folder)
        self.not_kept = 0
        """Results that the disk refused, in this process."""
        self._user, self._clock = this_user() if user is None else user, clock

    def __repr__(self) -> str:
        return f"Cache({str(self.folder)!r})"

    def path(self, key: str) -> Path:
        """Where the result of a key is, if there is one."""
        return self.folder / key[:2] / key[2:4] / key

    def refusal(self) -> str | None:
        """Why the folder is not to be trusted; None if it is, or does not exist yet."""
        try:
            return refusal(self._root, os.stat(self._root), self._user)  # noqa: PTH116 - at every lookup
        except OSError:
            return None

    def lookup(
        self, key: str, about: About | None = None, *, ttl_s: float | None = None, recompute: bool = False
    ) -> Hit | Miss:
        """The result of a key, not older than `ttl_s`; with `about`, a miss says what has changed. With
        `recompute` it is always a miss.
        """
        why_not = self.refusal()
        if why_not is not None:
            return self._refused(why_not)
        if recompute:
            return Miss(reason=RECOMPUTE)
        path = f"{self._root}/{key[:2]}/{key[2:4]}/{key}"
        try:
            header, payload, used = read_entry(path, key, self._user)
            now = self._clock()
            created = unix_time(header.created)
            if ttl_s is not None and now - (-inf if created is None else created) > ttl_s:
                return Miss(reason=EXPIRED, detail=f"made {header.created}")
            if now - used > SessionLimits.last_use_resolution_s:
                with suppress(OSError):
                    os.utime(path, (now, now))
            # Owner and mode were checked, and the content against its checksum.
            value = pickle.loads(payload)  # noqa: S301
            return Hit(value=value, cost_s=header.cost_s, size_bytes=len(payload), created=header.created)
        except (FileNotFoundError, NotADirectoryError):
            return Miss(reason=NEVER_SEEN if about is None else self.index.reason(about))
        except Untrusted as error:
            return self._refused(str(error))
        # Unpickling runs code of all kinds; the result is made again.
        except Exception as error:  # noqa: BLE001
            text = str(error) if isinstance(error, Damaged) else f"{type(error).__name__}: {error}"
            return Miss(reason=DAMAGED, detail=f"{path}: {text}")

    def put(self, key: str, value: Any, cost_s: float | None, about: About | None = None) -> StoredResult:
        """Keep a result, in place of any that is there; `cost_s` is how long it took to make."""
        try:
            payload = pickle.dumps(value, protocol=PROTOCOL)
        except Exception as error:  # noqa: BLE001 - pickling runs the user's code
            text = (
                f"result of type {type(value).__qualname__} cannot be kept ({type(error).__name__}: {error})"
            )
            return StoredResult(problem=text, unpicklable=True)
        why_not = self.refusal()
        if why_not is not None:
            return StoredResult(problem=why_not)
        try:
            self._write(key, payload, cost_s, about)
        except OSError as error:
            self.not_kept += 1
            text = f"the cache {self.folder} takes no results: {error.strerror or error}"
            _say_once(f"{text}; the program goes on and makes them again the next time")
            return StoredResult(problem=text)
        return StoredResult(size_bytes=len(payload))

    def note_miss(self, key: str, miss: Miss, about: About) -> None:
        """Remember why a result was missing, where the disk allows it."""
        with suppress(OSError):
            self.index.note_miss(
                LastMiss(when=self._now(), key=key, reason=miss.reason, about=about, detail=miss.detail)
            )

    def _write(self, key: str, payload: bytes, cost_s: float | None, about: About | None) -> None:
        path = self.path(key)
        header = Header(
            key=key,
            created=self._now(),
            cost_s=cost_s,
            size=len(payload),
            sha256=hashlib.sha256(payload).hexdigest(),
            format=FORMAT,
            about=about,
            python=platform.python_version(),
            protocol=PROTOCOL,
        )
        in_folder(path, self.folder, lambda: write_entry(path, header, payload))
        if about is not None:
            with suppress(OSError):  # the result is kept; a later miss may be explained less well
                self.index.note_kept(about)

    def _now(self) -> str:
        return timestamp_of(round(self._clock() * SECOND))

    def _refused(self, reason: str) -> Miss:
        _say_once(f"{reason}. Nothing is read from it, and nothing kept")
        return Miss(reason=reason, refused=True)


def default_folder() -> Path:
    """Where results are kept: what `use_folder` said last, else `FLIGHTLOG_CACHE_DIR`, else
    `.flightlog/cache` here.
    """
    return _chosen_here.get() or _chosen or cache_folder() or DEFAULT_FOLDER


def use_folder(folder: str | os.PathLike[str] | None, *, here: bool = False) -> None:
    """Keep results there from now on, in this process, or in this context alone; None for the default
    again.
    """
    global _chosen
    chosen = None if folder is None else expanded(folder).absolute()
    _chosen_here.set(chosen)
    if not here:
        _chosen = chosen


def _say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        log.warning("%s", message)


class LastMiss(msgspec.Struct, frozen=True, kw_only=True):
    """`last-miss.json`."""

    when: str
    key: str
    reason: str
    about: About
    detail: str | None = None


class Index:
    """The tiny files of one cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / FUNCTIONS

    def function_folder(self, function: str) -> Path:
        """Where a function's files are; the function need not be known."""
        name = _UNSAFE.sub("-", function).strip("-.")[-80:] or "function"
        return self.folder / f"{name}-{hashlib.sha256(function.encode('utf-8', 'replace')).hexdigest()[:8]}"

    def reason(self, about: About) -> str:
        """Why there is no result of this call, as far as is known."""
        folder = self.function_folder(about.function)
        try:
            code = _call_file(folder, about).read_text("ascii", "replace")
        except OSError:
            code = ""
        if code:
            return NEVER_SEEN if code == about.code else CODE_CHANGED  # the same code: its result was removed
        return ARGUMENTS_CHANGED if (folder / _code_name(about.code)).exists() else NEVER_SEEN

    def note_kept(self, about: About) -> None:
        """A result of this call was kept; an OSError where that cannot be noted."""
        folder = self.function_folder(about.function)
        call = _call_file(folder, about)
        in_folder(call, self.folder.parent, lambda: replace_bytes(call, about.code.encode()))
        (folder / _code_name(about.code)).touch(0o600)

    def note_miss(self, miss: LastMiss) -> None:
        """Why a result was missing just now; an OSError where that cannot be noted."""
        file = self.function_folder(miss.about.function) / LAST_MISS
        in_folder(file, self.folder.parent, lambda: replace_bytes(file, msgspec.json.encode(miss)))

    def last_miss(self, function: str) -> LastMiss | None:
        """Why the last result of a function was missing; None where none was, or it cannot be read."""
        return read_document(self.function_folder(function) / LAST_MISS, LastMiss).value

    def forget(self, about: About) -> None:
        """The result of this call is gone."""
        call = _call_file(self.function_folder(about.function), about)
        with suppress(OSError):
            if call.read_text("ascii", "replace") == about.code:
                call.unlink()

    def forget_code(self, function: str, code: str) -> None:
        """No result of this code is left."""
        with suppress(OSError):
            (self.function_folder(function) / _code_name(code)).unlink()


def in_folder(file: Path, root: Path, write: Callable[[], None]) -> None:
    """Write a file. Folders that are missing, from `root` down, are made before, such that only their owner
    may write to them; none is changed.
    """
    try:
        write()
    except FileNotFoundError:
        missing = list(file.parents)
        root.parent.mkdir(parents=True, exist_ok=True)
        for one in reversed(missing[: missing.index(root) + 1]):
            with suppress(FileExistsError):
                os.mkdir(one, 0o700)  # noqa: PTH102 - the mode holds whatever the umask
        write()


def _call_file(folder: Path, about: About) -> Path:
    call = about.call
    return folder / "calls" / call[:2] / call[2:]


def _code_name(code: str) -> str:
    return f"code-{code[:32]}"


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
        return _header(file.readline(SessionLimits.max_entry_header_bytes))


def read_entry(path: str, key: str, user: int | None) -> tuple[Header, memoryview, float]:
    """Header and payload of the entry of a key, checked in full, and the Unix time of its last use, to within
    an hour; a `Damaged`, an `Untrusted` or an OSError where it is not there, or not to be used.
    """
    with _opened(path) as file:
        # The open file is looked at, and not the path: nobody can exchange one for the other meanwhile.
        found = os.fstat(file.fileno())
        why_not = refusal(path, found, user)
        if why_not is not None:
            raise Untrusted(why_not)
        data = file.readall()
    end = data.find(b"\n", 0, SessionLimits.max_entry_header_bytes) + 1
    header, payload = _header(data[:end]), memoryview(data)[end:]
    if header.key != key:
        raise Damaged("it is the entry of another key")
    if header.size != len(payload):
        raise Damaged(f"it has {len(payload)} of {header.size} bytes")
    if hashlib.sha256(payload).hexdigest() != header.sha256:
        raise Damaged("its content is not what was written")
    return header, payload, found.st_mtime


def write_entry(path: Path, header: Header, payload: bytes) -> None:
    """Write an entry, replacing what is there in one step; an OSError leaves nothing behind. The folder must
    exist.
    """
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
        return (
            f"{what} {path} belongs to user {found.st_uid}, not to user {user}: {why}; use a folder of "
            "your own"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(found.st_mode)
        return (
            f"{what} {path} can be written to by others (mode {mode:04o}): {why}; see who did, then chmod "
            "-R go-w"
        )
    return None
