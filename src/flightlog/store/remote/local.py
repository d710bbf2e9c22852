"""The files of a run directory that are to be copied, what each is, and whether more will come."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.layout import RunInfo, WriterInfo
from flightlog.store.liveness import HEARTBEAT_LIMIT_S, Observer, unix_time
from flightlog.store.read.files import last_newline, part_of, writer_folders
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
        if observer.now - run.stat().st_mtime < HEARTBEAT_LIMIT_S:
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
    recent = ended is None or observer.now - ended < HEARTBEAT_LIMIT_S
    if recent and info.to_complete is True:  # by a process beside, which starts when the run ends
        return True
    return recent and observer.is_alive(info)
