"""What is here of a run that is copied to remote places: its files, what each is and whether more will come;
and the state of copying: from which directory, how far, and what went wrong.

The state stands in `.followers`, which is not part of the run. One process copies a run at a time.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

from msgspec import Struct, field

from flightlog.core.errors import UsageError
from flightlog.core.locks import is_locked, sole_holder
from flightlog.store import layout
from flightlog.store.documents import read_document, write_document
from flightlog.store.layout import RunInfo, WriterInfo
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import Observer, unix_time
from flightlog.store.read.files import last_newline, part_of, read_regular, writer_folders
from flightlog.store.read.writers import read_writer, run_as_it_ended, says_more
from flightlog.store.write.finalize import finalizing

_KINDS = ("document", "tail", "lines")


class LocalFile(Struct, frozen=True):
    """One file of a run directory, as it was listed."""

    path: str
    """Within the run, with `/`."""
    kind: Literal["document", "tail", "lines"]
    device: int
    inode: int
    size: int
    mtime_ns: int

    @property
    def identity(self) -> tuple[int, int]:
        """What file it is, whatever its name."""
        return self.device, self.inode


def name_of(run: Path) -> str:
    """The name under which a run is copied: its folder's, or the one in `run.json`. Raises `UsageError`
    without one.
    """
    info = read_document(run / layout.RUN, RunInfo).value
    for name in (run.resolve().name, info.run_id if info is not None else ""):
        if layout.is_run_id(name):
            return name
    raise UsageError(
        f"{run} bears no name of a run (run-<when>-<project>-<8 hex digits>), so it is not copied"
    )


def list_files(run: Path, *, settled: bool = False) -> list[LocalFile]:
    """The files of a run in the order in which to copy them, so that the copy is never less than its notes
    say.

    Documents count lines, so they are read before the lines; lines move from tails to files, so tails are,
    too. Names that begin with a dot belong to this place and not to the run; links are left out. Pages of
    writers change in place: they are listed only of a run that has `settled`, where they know more than the
    notes. Raises OSError.
    """
    return sorted(_walk(run, "", settled), key=lambda file: (_KINDS.index(file.kind), file.path))


def _walk(folder: Path, prefix: str, settled: bool) -> Iterator[LocalFile]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        if not prefix:
            raise
        return  # a writer's folder that was cleared meanwhile
    for entry in entries:
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        path = f"{prefix}{entry.name}"
        if entry.name == layout.PAGE and not (settled and says_more(folder)):
            continue
        if entry.is_dir():
            yield from _walk(folder / entry.name, f"{path}/", settled)
            continue
        try:
            stat = entry.stat()
        except FileNotFoundError:
            continue
        yield LocalFile(path, _kind(path), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _kind(path: str) -> Literal["document", "tail", "lines"]:
    here = path.count("/") == 0 or (path.startswith(f"{layout.SEGMENTS}/") and path.count("/") == 2)
    part = part_of(Path(path)) if here else None
    if part is None:
        return "document"
    return "tail" if part.kind == "tail" else "lines"


def end_of_lines(source: BinaryIO, start: int) -> int:
    """Where the last whole line of a growing file ends; `start` where no line has ended since."""
    found = last_newline(source.fileno(), start, os.fstat(source.fileno()).st_size)
    return start if found is None else found + 1


def end_of_received(source: BinaryIO, start: int, end: int) -> int:
    """Where the first hole begins between the two: an empty line, where lines from elsewhere are still to
    come.
    """
    at = start
    while at < end:
        block = os.pread(source.fileno(), min(end - at, 1 << 20), at)
        if not block:
            return at
        if at == start and block.startswith(b"\n"):
            return start
        found = block.find(b"\n\n")
        if found >= 0:
            return at + found + 1
        at += max(len(block) - 1, 1) if at + len(block) < end else len(block)
    return end


def has_settled(run: Path, observer: Observer) -> bool:
    """Whether a run has ended, nobody writes into it any more, and nobody is about to close it."""
    info = read_document(run / layout.RUN, RunInfo).value
    if info is None:
        if observer.now - run.stat().st_mtime < StoreLimits.heartbeat_timeout_s:
            return False
    else:
        info = run_as_it_ended(run, info, observer)
        if observer.status(info) == "running":
            return False
    for folder, name in writer_folders(run):
        writer = read_writer(folder, name).value
        if writer is not None and observer.writer_alive(writer) and not _is_of(writer, info):
            return False
    if info is not None and _is_closing(run, info, observer):
        return False
    with finalizing(run) as alone:
        return alone


def _is_of(writer: WriterInfo, info: RunInfo | None) -> bool:
    """The owner's own note stays behind where closing failed; the run itself tells that it is over."""
    return info is not None and writer.writer == info.writer and info.status in layout.ENDED


def _is_closing(run: Path, info: RunInfo, observer: Observer) -> bool:
    """The final status stands in `run.json` before the files are folded, the checksums when all is done."""
    if info.status not in layout.ENDED or (
        info.to_complete is not True and (run / layout.CHECKSUMS).exists()
    ):
        return False
    ended = unix_time(info.end_time)
    recent = ended is None or observer.now - ended < StoreLimits.heartbeat_timeout_s
    if recent and info.to_complete is True:  # by a process beside, which starts when the run ends
        return True
    return recent and observer.is_alive(info)


_LOCK = "sync.lock"
_SOURCE = "sync-source.json"


class SentFile(Struct, array_like=True):
    """A file as it was when what stands in the note was made of it."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    version: str

    def is_of(self, file: LocalFile, *, grown: bool = False) -> bool:
        """Whether a file is still as it was, or has at most `grown`; numbers of devices are a host's own."""
        if grown:
            return self.inode == file.inode and file.size >= self.size
        return (self.inode, self.size, self.mtime_ns) == (file.inode, file.size, file.mtime_ns)


class SyncState(Struct, kw_only=True):
    """`sync-<address>.json`: one address that a run is copied to. Holds no credentials; losing it costs time
    alone.
    """

    address: str
    revision: int = 0
    complete: bool = False
    """All of the run was there, and the run had ended."""
    synced_at: str | None = None
    """When all that was new had been copied for the last time."""
    problem: str | None = None
    """Why something was not copied; None where the last attempt succeeded."""
    files: dict[str, SentFile] = field(default_factory=dict)


class SourceDirectory(Struct, frozen=True):
    """`sync-source.json`: names a run directory, for all hosts that see it. A copy of the directory is
    another one.
    """

    token: str
    inode: int


def state_file(run: Path, address: str) -> Path:
    """Where the state of copying to an address stands."""
    return run / layout.FOLLOWERS / f"sync-{hashlib.sha256(address.encode()).hexdigest()[:8]}.json"


def begin_state(run: Path, address: str) -> SyncState:
    """The state, or a new one, which is kept at once: that a copy is meant to be there is known before
    anybody answers.
    """
    found = read_document(state_file(run, address), SyncState).value
    if found is not None and found.address == address:
        return found
    new = SyncState(address=address)
    write_state(run, new)
    return new


def write_state(run: Path, state: SyncState) -> None:
    """Keep the state, where the directory can be written to; a read-only run is copied all the same."""
    with suppress(OSError):  # it is a matter of speed
        (run / layout.FOLLOWERS).mkdir(exist_ok=True)
        write_document(state_file(run, state.address), state)


def states_of(run: Path) -> list[SyncState]:
    """The addresses that a run was copied to from here, or should have been, by name."""
    try:
        files = sorted((run / layout.FOLLOWERS).glob("sync-????????.json"))
    except OSError:
        return []  # another user's run
    found = [read_document(file, SyncState).value for file in files]
    return sorted((one for one in found if one is not None), key=lambda one: one.address)


def source_of(run: Path, host: str) -> str:
    """Eight hex digits that name this directory, also on other hosts that see it."""
    inode = run.stat().st_ino
    file = run / layout.FOLLOWERS / _SOURCE
    known = read_document(file, SourceDirectory).value
    if known is None or known.inode != inode:
        known = SourceDirectory(os.urandom(8).hex(), inode)
        try:
            file.parent.mkdir(exist_ok=True)
            write_document(file, known, durable=True)
        except OSError:  # read-only: then this host's name and the place tell it
            known = SourceDirectory(f"{host} {run.resolve()}", inode)
    return hashlib.sha256(f"{known.token} {known.inode}".encode()).hexdigest()[:8]


def uploader_name(source: str, host: str) -> str:
    """The name under which this host copies a directory."""
    label = re.sub(r"[^A-Za-z0-9_-]+", "-", host)[:40].strip("-") or "host"
    return f"{label}-{source}"


@contextmanager
def sole_uploader(run: Path) -> Iterator[str | None]:
    """Keep other processes from copying this run; gives None, or else who copies it now.

    In a folder that cannot be written one process copies at a time by custom.
    """
    us = f"process {os.getpid()} on {os.uname().nodename}"
    with sole_holder(run / layout.FOLLOWERS / _LOCK, us, wait_s=StoreLimits.sync_lock_wait_s) as other:
        yield other or (None if other is None else "another process")


def is_followed(run: Path) -> bool:
    """Whether a process copies this run at this moment; keeps nobody from it."""
    return is_locked(run / layout.FOLLOWERS / _LOCK)


class CopyStatus(Struct, frozen=True, kw_only=True):
    """How far the copy of one run at one address is."""

    run_id: str
    address: str | None
    """None where the run was never copied."""
    state: str
    """`complete`, `behind`, `copying` while a process copies it, or `never`."""
    synced_at: str | None = None
    """When all that was new had been copied for the last time."""
    unsent_bytes: int | None = None
    """What stands in files that are new or have changed since; None where nothing was ever copied."""
    problem: str | None = None
    """Why the last attempt failed."""


def copies_of(run: Path) -> list[CopyStatus]:
    """The copies of a run, by address; one of no address where it has none. Raises OSError."""
    states = states_of(run)
    if not states:
        return [CopyStatus(run_id=run.name, address=None, state="never", problem=_failed(run))]
    busy = is_followed(run)
    return [_status(run, state, busy) for state in states]


def unfinished_copies(run: Path) -> list[CopyStatus]:
    """The copies of a run that should be whole and are not; none where one of them is, or where none was
    asked for.

    Cheap where all is well: the run's files are then not looked at, so a change to them since is not seen.
    """
    states = states_of(run)
    if any(state.complete for state in states) or (not states and _failed(run) is None):
        return []
    try:
        return copies_of(run)
    except OSError:
        return []  # it is being removed


def _status(run: Path, state: SyncState, busy: bool) -> CopyStatus:
    unsent = _unsent(run, state)
    behind = "copying" if busy else "behind"
    return CopyStatus(
        run_id=run.name,
        address=state.address,
        state="complete" if state.complete and not unsent else behind,
        synced_at=state.synced_at,
        unsent_bytes=unsent,
        problem=state.problem,
    )


def _failed(run: Path) -> str | None:
    """Why the process that should have copied the run ended before it knew where to; None where none did."""
    try:
        code, said = (
            read_regular(run / layout.FOLLOWERS / f"sync.{end}").decode("utf-8", "replace")
            for end in ("exit", "log")
        )
    except OSError:
        return None
    last = said.strip().rpartition("\n")[2].removeprefix("flightlog: ")
    return None if code.strip() == "0" else last or f"`flightlog sync` ended with {code.strip()}"


def _unsent(run: Path, state: SyncState) -> int:
    """Bytes of files that are not as they were; of one that grew, what was added."""
    unsent = 0
    for file in list_files(run):
        seen = state.files.get(file.path)
        if file.kind == "tail" or (seen is not None and seen.is_of(file)):
            continue
        grew = seen is not None and file.kind == "lines" and file.size >= seen.size
        unsent += file.size - (seen.size if grew and seen is not None else 0)
    return unsent
