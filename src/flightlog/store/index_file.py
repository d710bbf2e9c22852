"""The file that an index of runs is kept in.

It is replaced in one step and never locked: processes that do so at once cost each other a little reading
later, and nothing else. Its name holds the version of its form and the user, who alone can read it: runs may
be private. It stands in the folder of runs, or in the user's cache where that cannot be written. A file that
is damaged, foreign or of another version counts as none. It may be removed at any time.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from flightlog.store.documents import is_leftover
from flightlog.store.layout import RunInfo
from flightlog.store.regular_files import open_regular
from flightlog.store.stamps import Stamp

VERSION = 1
"""Of the form of the file, and of what is taken from the documents: another version reads everything
again."""
_LEFTOVER_S = 3_600.0
_NOTHING = msgspec.Raw(b"null")


class Entry(msgspec.Struct, array_like=True):
    """What the index keeps of one run: two documents, each with the stamp it had when it was read."""

    run_stamp: Stamp | None = None
    info: RunInfo | None = None
    problem: str | None = None
    """Of `run.json`, as `Document.problem`."""
    summary_stamp: Stamp | None = None
    figures: msgspec.Raw = _NOTHING
    """`Figures`, or null where `summary.json` is none; left encoded until somebody asks."""
    events_digest: str | None = None
    """Of the stamps of all files of a run without summary, where figures were reckoned from its events."""


_ENTRIES = msgspec.json.Decoder(dict[str, Entry])


class Draft:
    """The next index: made before anything is read, since its own time tells what the file system's clock
    says.

    An OSError says that none can be kept there.
    """

    def __init__(self, file: Path, *, make_folder: bool = False) -> None:
        if make_folder:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = file.with_name(f".{file.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._out: BinaryIO = os.fdopen(fd, "wb")
        self.made_ns = os.fstat(fd).st_mtime_ns

    def publish(self, data: bytes, file: Path) -> None:
        """Put it in the place of the old index; an OSError leaves that as it was."""
        with self._out:
            self._out.write(data)
        self.path.replace(file)
        _clear_leftovers(file)

    def drop(self) -> None:
        """Take it away."""
        with suppress(OSError):
            self._out.close()
        with suppress(OSError):
            self.path.unlink()


def index_file(
    runs_dir: Path, environ: Mapping[str, str] | None = None, writable: bool | None = None
) -> Path:
    """Where the index of a folder of runs is, or would be: in it, or in the user's cache where it is
    read-only.
    """
    environ = os.environ if environ is None else environ
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    name = f".index-v{VERSION}-{user}.json"
    if os.access(runs_dir, os.W_OK | os.X_OK) if writable is None else writable:
        return runs_dir / name
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or "~", ".cache")  # noqa: PTH118
    digest = hashlib.sha256(os.fsencode(os.path.realpath(runs_dir))).hexdigest()[:32]
    folder = Path(os.path.expanduser(cache), "flightlog", "runs")  # noqa: PTH111 - never raises
    return folder / f"{digest}{name}"


def load_index(file: Path) -> dict[str, Entry]:
    """What the index holds; nothing where it is missing, damaged, foreign, or another user's."""
    try:
        with open_regular(file) as source:
            if hasattr(os, "geteuid") and os.fstat(source.fileno()).st_uid != os.geteuid():
                return {}
            data = source.read()
    except OSError:
        return {}
    head, _, body = data.partition(b"\n")
    if head != _head(body):
        return {}
    try:
        return _ENTRIES.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def encode_index(entries: Mapping[str, Entry]) -> bytes:
    """The bytes of an index that holds these entries, by the name of the run's folder."""
    body = msgspec.json.encode(entries)
    return _head(body) + b"\n" + body


def _head(body: bytes) -> bytes:
    return b"flightlog index %d %08x" % (VERSION, zlib.crc32(body))


def _clear_leftovers(file: Path) -> None:
    """Remove drafts of processes that were killed long ago."""
    with suppress(OSError), os.scandir(file.parent) as found:
        for entry in found:
            draft = entry.name.startswith(f".{file.name}.") and is_leftover(entry.name)
            if draft and time.time() - entry.stat().st_mtime > _LEFTOVER_S:
                os.unlink(entry.path)  # noqa: PTH108
