"""What of a spool is still to be sent, as parcels."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from flightlog.engines.relay.chunk import ROOM_BYTES, Parcel
from flightlog.store import layout
from flightlog.store.documents import is_leftover, read_document, write_document
from flightlog.store.layout import WriterInfo
from flightlog.store.read.files import folder_parts, writer_folders
from flightlog.store.read.writers import read_writer
from flightlog.store.write.recovery import settle

NOTE_S = 5.0
"""A writer that says nothing new is told to live this often."""


class SpooledFiles:
    """The files under a spool's run folder, and how far each has been sent. Not thread-safe.

    `clock` gives seconds. Offsets are kept in memory alone: who takes a spool over sends it again from its
    beginning, which changes nothing where it lands.
    """

    def __init__(
        self, run: Path, trace_id: str, spool: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run, self._trace_id, self._spool, self._clock = run, trace_id, spool, clock
        self._sent: dict[str, int] = {}
        self._notes: dict[str, tuple[int, float]] = {}

    def forget(self) -> None:
        """Send everything again from its beginning."""
        self._sent.clear()
        self._notes.clear()

    def parcels(
        self, flush: Callable[[], None] = lambda: None, *, everything: bool = False
    ) -> Iterator[Parcel]:
        """What is new, in the order in which it should land; asking for the next one says that the last was
        sent.

        Of files that grow, whole lines. Writers' notes, which count lines, are read before the lines (`flush`
        brings what was counted into the files) and come after them: what has landed is never less than what
        is counted. A note that says nothing new but that its writer lives comes every `NOTE_S`, or where
        `everything` is asked for. Raises OSError.
        """
        notes = {writer: _version(folder / layout.WRITER) for folder, writer in writer_folders(self._run)}
        flush()
        for folder, writer in writer_folders(self._run):
            spoken = False
            for name, fd in _line_files(folder, writer):
                for parcel in self._ranges(name, "lines", fd):
                    yield parcel
                    spoken = True
            note = notes.get(writer)
            if note is not None and self._is_due(writer, note, spoken or everything):
                name = f"{layout.SEGMENTS}/{writer}/{layout.WRITER}"
                yield Parcel(self._trace_id, self._spool, name, "document", *note)
                self._notes[writer] = (note[0], self._clock())
        yield from self._bundles()

    def _is_due(self, writer: str, note: tuple[int, bytes], wanted: bool) -> bool:
        version, when = self._notes.get(writer, (-1, 0.0))
        last_word = b'"closed": true' in note[1]
        return note[0] != version and (wanted or last_word or version < 0 or self._clock() - when >= NOTE_S)

    def _ranges(self, name: str, kind: Literal["lines", "bytes"], fd: int) -> Iterator[Parcel]:
        while True:
            start = self._sent.get(name, 0)
            data = os.pread(fd, ROOM_BYTES, start)
            if kind == "lines":
                whole = data.rfind(b"\n") + 1
                if whole or len(data) < ROOM_BYTES:  # a line that fills a parcel goes in pieces
                    data = data[:whole]
            if not data:
                return
            yield Parcel(self._trace_id, self._spool, name, kind, start, data)
            self._sent[name] = start + len(data)

    def _bundles(self) -> Iterator[Parcel]:
        """Files of bundles that are complete; what says what is in one comes last."""
        home = self._run / layout.OOM
        for folder in sorted(_entries(home)):
            if folder.name.startswith("."):  # being filled
                continue
            files = sorted(_entries(folder), key=lambda file: (file.suffix == ".json", file.name))
            for file in files:
                if is_leftover(file.name):
                    continue
                name = f"{layout.OOM}/{folder.name}/{file.name}"
                note = _version(file) if file.suffix == ".json" else None
                if note is not None and len(note[1]) <= ROOM_BYTES:
                    if self._sent.get(name) != note[0]:
                        yield Parcel(self._trace_id, self._spool, name, "document", *note)
                        self._sent[name] = note[0]
                    continue
                fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    yield from self._ranges(name, "bytes", fd)
                finally:
                    os.close(fd)


def settle_dead(run: Path, alive: Callable[[WriterInfo], bool], *, orphaned: bool) -> bool:
    """Bring what killed writers of a spool left in their tails into their files; whether a writer is left
    that lives.

    Their notes say that they died, and what they lost. A writer without a note is taken for dead
    in a spool that is `orphaned`, and for one that just begins in another. Raises OSError.
    """
    living = False
    for folder, writer in writer_folders(run):
        file = folder / layout.WRITER
        note = read_document(file, WriterInfo).value
        if note is not None and note.closed:
            continue
        info = read_writer(folder, writer).value
        if not orphaned if info is None else alive(info):
            living = True
            continue
        settle(run, {writer: False}, lambda _done: None)
        if info is not None:
            info.died = info.died or not info.closed
            info.closed = True
            write_document(file, info)
    return living


def _line_files(folder: Path, writer: str) -> Iterator[tuple[str, int]]:
    """Each file of lines, open until the next is asked for, by the name it will land under.

    That is the name of a full file, which it keeps when it becomes one.
    """
    home = f"{layout.SEGMENTS}/{writer}"
    for stream in sorted({part.stream for part in folder_parts(folder, writer) if part.kind != "tail"}):
        active = _open(
            layout.stream_file(folder, stream)
        )  # before the full ones are listed: it may become one
        try:
            full = _full(folder, writer, stream)
            for _, path in full:
                fd = _open(path)
                if fd is not None:
                    try:
                        if active is not None and _same(fd, active):
                            os.close(active)
                            active = None
                        yield f"{home}/{path.name}", fd
                    finally:
                        os.close(fd)
            if active is not None:
                number = full[-1][0] + 1 if full else 1
                yield f"{home}/{layout.rotated_file(folder, stream, number).name}", active
        finally:
            if active is not None:
                os.close(active)


def _full(folder: Path, writer: str, stream: str) -> list[tuple[int, Path]]:
    return sorted(
        (part.number, part.path)
        for part in folder_parts(folder, writer)
        if part.kind == "rotated" and part.stream == stream
    )


def _same(one: int, other: int) -> bool:
    here, there = os.fstat(one), os.fstat(other)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _version(path: Path) -> tuple[int, bytes] | None:
    """When a document was written, in nanoseconds, and what it says; None if there is none."""
    fd = _open(path)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        return os.fstat(fd).st_mtime_ns, file.read()


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
