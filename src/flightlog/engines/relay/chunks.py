"""Chunks: pieces of a writer's files on their way into a run directory that the writer cannot see; and their
receiver.

The receiver is in the process that sees the run directory, and writes them into it: any order, any repetition
and any splitting of them gives the same files.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import zlib
from bisect import bisect_right
from collections import deque
from contextlib import suppress
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Literal

import msgspec

from flightlog.core.intervals import length, union
from flightlog.engines.limits import RelayLimits
from flightlog.record.context import active_runs
from flightlog.store import layout
from flightlog.store.documents import decode_document, read_document, replace_bytes, write_document
from flightlog.store.read.files import folder_parts

log = logging.getLogger("flightlog")

ROOM_BYTES = RelayLimits.max_chunk_bytes - (1 << 12)
"""What fits into one; the rest is for names."""

_MARK = b"flp1"
_WRITER = r"segments/(?P<writer>[0-9a-f]{8})"
_NAME = r"[^/\\\0\n.][^/\\\0\n]{0,199}"
_LINES = re.compile(rf"{_WRITER}/{_NAME}-\d{{6,9}}\.jsonl")
_WRITER_NOTE = re.compile(rf"{_WRITER}/{re.escape(layout.WRITER)}")
_IN_BUNDLE = re.compile(rf"{layout.OOM}/(?P<number>\d{{1,3}})-(?P<stamp>\d{{8}}T\d{{6}}Z)/(?P<file>{_NAME})")


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """A piece of one file. Where it belongs stands in it, so that chunks may come in any order, and
    twice.
    """

    trace_id: str
    """Of the run: a chunk for another one is not taken."""
    spool: str
    """Where it comes from: 16 hex digits that no other spool has."""
    name: str
    """The file, relative to the run directory. A growing file of lines goes by the name it will have when it
    is full."""
    kind: Literal["lines", "bytes", "document"]
    """A range of a file of lines, a range of another file, or all of a document."""
    at: int
    """Where a range begins in its file, in bytes; of a document its version: the highest one counts."""
    data: bytes


class NotAChunk(ValueError):  # noqa: N818 - the name says what it is
    """These bytes are no chunk, or none that may be taken; the text says why."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Chunk).decode


def pack(chunk: Chunk) -> bytes:
    """A chunk as bytes; `NotAChunk` for one that nobody would take."""
    check_name(chunk)
    body = _encode(chunk)
    if len(_MARK) + 4 + len(body) > RelayLimits.max_chunk_bytes:
        raise NotAChunk(f"{chunk.name}: {len(chunk.data):,} bytes do not fit into a chunk")
    return _MARK + zlib.crc32(body).to_bytes(4, "big") + body


def unpack(data: bytes) -> Chunk:
    """The chunk that these bytes are; `NotAChunk` where they are none, were damaged, or name a file they may
    not.
    """
    if len(data) > RelayLimits.max_chunk_bytes:
        raise NotAChunk(f"{len(data):,} bytes are too many for a chunk")
    if data[:4] != _MARK:
        raise NotAChunk("it does not begin as a chunk of this version does")
    body = data[8:]
    if zlib.crc32(body) != int.from_bytes(data[4:8], "big"):
        raise NotAChunk("it was damaged on its way")
    try:
        chunk = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAChunk(f"it does not decode: {error}") from None
    check_name(chunk)
    return chunk


def check_name(chunk: Chunk) -> None:
    """Let through what is a writer's own file or part of a bundle, by a name that leads nowhere else."""
    if not re.fullmatch(r"[0-9a-f]{16}", chunk.spool):
        raise NotAChunk(f"{chunk.spool[:40]!r} is no spool")
    fits = {"lines": (_LINES,), "bytes": (_IN_BUNDLE,), "document": (_WRITER_NOTE, _IN_BUNDLE)}[chunk.kind]
    if not any(one.fullmatch(chunk.name) for one in fits):
        raise NotAChunk(f"{chunk.name[:200]!r} is no file that may come as {chunk.kind}")
    if chunk.at < 0:
        raise NotAChunk(f"{chunk.name} from byte {chunk.at} on")


def writer_of(name: str) -> str | None:
    """The writer whose folder a file is in; None for a file of a bundle."""
    found = re.match(_WRITER + "/", name)
    return found["writer"] if found else None


def landing_name(chunk: Chunk) -> str:
    """Where its file stands in the run directory.

    Writers' names are unique. Bundles are numbered in each spool anew, so those of spools get numbers of
    their own: the same ones each time, above all that are given out in the run directory itself.
    """
    found = _IN_BUNDLE.fullmatch(chunk.name)
    if found is None:
        return chunk.name
    number = int(found["number"]) * 1_000_000 + int(chunk.spool, 16) % 1_000_000
    return f"{layout.OOM}/{number}-{found['stamp']}/{found['file']}"


class ChunkReceiver:
    """Takes chunks, in any order and however often, and writes them into a run directory.

    `take` only puts a chunk into a queue: a thread of its own writes, so that an event loop may call it.
    Nothing of it raises. Bytes that are no chunk for this run are refused, counted in `refused` and said
    once. Close it before the run is closed: that notes which writers were not heard to their end, and what
    comes later is refused. Without a run (None) it is closed from the beginning.
    """

    def __init__(self, run_path: str | PathLike[str] | None) -> None:
        self.taken = 0
        """Chunks that were written, or had been before."""
        self.refused = 0
        """Chunks that were not for this run, or no chunks at all."""
        self.dropped = 0
        """Chunks that came faster than the disk took them, or that it never took."""
        self._files = ReceivedFiles(Path(run_path or os.devnull))
        self._changed = threading.Condition()
        self._queue: deque[bytes] = deque()
        self._bytes = 0
        self._thread: threading.Thread | None = None
        self._closed = run_path is None
        self._told: set[str] = set()
        for run in active_runs():
            if str(run.path) == str(run_path):
                run.before_reading.append(self.flush)

    def take(self, chunk: bytes) -> None:
        """Write a chunk into the run directory, soon."""
        with self._changed:
            if not isinstance(chunk, bytes | bytearray):
                self.refused += 1
                problem = f"a chunk was refused: {type(chunk).__name__} is not bytes"
            elif self._closed:
                self.refused += 1
                problem = "chunks came after the run was closed: what they hold is not in it"
            elif self._bytes + len(chunk) > RelayLimits.max_backlog_bytes:
                self.dropped += 1
                problem = "chunks of workers come faster than the disk takes them: some are lost"
            else:
                self._queue.append(chunk)
                self._bytes += len(chunk)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="flightlog-landing", daemon=True)
                    self._thread.start()
                self._changed.notify_all()
                return
        self._tell(problem)

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until everything that was taken is written; whether that was so in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue or self._closed, timeout_s)

    def close(self, timeout_s: float = 10.0) -> bool:
        """Write what has come and take nothing more; whether every writer was heard to its end, and nothing
        is missing.

        Writers that left a moment ago may have chunks on the way: it waits for `LAST_WORDS_S` for those it
        knows.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: not self._files.unheard or self._closed, min(RelayLimits.close_wait_s, timeout_s)
            )
        self.flush(timeout_s)
        with self._changed:
            if not self._closed:
                self._closed = True
                self.dropped += len(self._queue)
                self._queue.clear()
                self._changed.notify_all()
        for run in active_runs():
            with suppress(ValueError):
                run.before_reading.remove(self.flush)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)
            if thread.is_alive():  # the disk hangs: its files are not to be touched
                return False
        try:
            self._files.end()
        except OSError as error:
            self._tell(f"cannot note which workers were not heard to their end: {error.strerror or error}")
        return not self._files.unheard and not self._files.missing()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                chunk = self._queue[0]
            written = self._write(chunk)
            with self._changed:
                if written and self._queue:
                    self._queue.popleft()
                    self._bytes -= len(chunk)
                    self._changed.notify_all()
            if not written:
                time.sleep(RelayLimits.write_retry_s)

    def _write(self, chunk: bytes) -> bool:
        """Write one; False where the disk refuses it for now."""
        try:
            self._files.write(unpack(chunk))
            self.taken += 1
        except NotAChunk as problem:
            self.refused += 1
            self._tell(f"a chunk was refused: {problem}")
        except OSError as error:
            self._tell(f"what workers have recorded cannot be written: {error.strerror or error}")
            return False
        except Exception as error:  # noqa: BLE001 - the thread must go on with the next one
            self.refused += 1
            self._tell(f"a chunk could not be taken: {error!r}")
        return True

    def _tell(self, problem: str) -> None:
        kind = problem.partition(":")[0]
        if kind not in self._told:
            self._told.add(kind)
            log.warning("%s", problem)


class ReceivedFiles:
    """The files of a run that come from elsewhere. Raises `NotAChunk` for what may not be taken, OSError for
    the disk.

    Not thread-safe. What is missing in the middle of a file of lines is filled with newlines until it comes,
    so that a reader finds every whole line at every moment.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        info = read_document(run / layout.RUN, layout.RunInfo).value
        self._trace_id, self._owner = (info.trace_id, info.writer) if info is not None else ("", "")
        self._ranges: dict[str, _Ranges] = {}
        self._holes = 0
        self._bundle_bytes = 0
        self._notes: dict[str, tuple[int, bytes]] = {}
        self._spools: dict[str, str] = {}  # writer to the spool it comes from
        self.unheard: set[str] = set()
        """Writers that have spoken, and not said that they are done."""

    def write(self, chunk: Chunk) -> None:
        """Put a chunk where it belongs."""
        if not self._trace_id or chunk.trace_id != self._trace_id:
            raise NotAChunk(f"it is for the run with trace id {chunk.trace_id[:40]!r}, which is not this one")
        name = landing_name(chunk)
        writer = writer_of(name)
        if writer is not None:
            self._check_writer(writer, chunk.spool)
        if chunk.kind == "document":
            self._write_document(name, writer, chunk)
        else:
            self._write_range(name, chunk)

    def missing(self) -> dict[str, int]:
        """Bytes that have not come although later ones of the same file have, by file."""
        return {name: holes for name, ranges in list(self._ranges.items()) if (holes := ranges.holes)}

    def end(self) -> None:
        """Nothing will come any more: note that writers which were not heard to their end have closed all the
        same.
        """
        for writer in self.unheard:
            file = layout.writer_folder(self._run, writer) / layout.WRITER
            info = read_document(file, layout.WriterInfo).value
            if info is not None:
                info.closed = info.unheard = True
                write_document(file, info)

    def _check_writer(self, writer: str, spool: str) -> None:
        known = self._spools.get(writer)
        if known is None:
            folder = layout.writer_folder(self._run, writer)
            if writer == self._owner or any(part.kind == "tail" for part in folder_parts(folder, writer)):
                raise NotAChunk(f"writer {writer} writes here itself")
            if len(self._spools) >= RelayLimits.max_files:
                raise NotAChunk(f"there are more than {RelayLimits.max_files:,} writers")
            self._spools[writer] = spool
            self.unheard.add(writer)
        elif known != spool:
            raise NotAChunk(f"writer {writer} comes from another spool")

    def _write_document(self, name: str, writer: str | None, chunk: Chunk) -> None:
        """The latest version; of two that are as new, always the same one."""
        version = chunk.at, chunk.data
        if name in self._notes and self._notes[name] >= version:
            return
        file = self._run / name
        if writer is None:
            self._make_room(len(chunk.data))
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_bytes(file, chunk.data)
        else:
            found = decode_document(chunk.data, layout.WriterInfo, name)
            info = found.value
            if info is None or info.writer != writer or info.owner:
                raise NotAChunk(found.problem or f"{name} is the note of another writer")
            info.unheard = not info.closed
            file.parent.mkdir(parents=True, exist_ok=True)
            write_document(file, info)
            if info.closed:
                self.unheard.discard(writer)
        self._notes[name] = version

    def _write_range(self, name: str, chunk: Chunk) -> None:
        start, data = chunk.at, chunk.data
        end = start + len(data)
        ranges = self._ranges.get(name)
        if ranges is None:
            if len(self._ranges) >= RelayLimits.max_files:
                raise NotAChunk(f"there are more than {RelayLimits.max_files:,} files")
            ranges = _Ranges()
        if not data or ranges.has(start, end):
            return
        beyond = max(start - ranges.end, 0)
        if self._holes + beyond > RelayLimits.max_gap_bytes:
            raise NotAChunk(f"{name} from byte {start:,} on, of which only {ranges.end:,} have come")
        if chunk.kind == "bytes":
            self._make_room(len(data) + beyond)
        file = self._run / name
        base = ranges.base
        if ranges.end and not file.exists():  # folded into the run's own file, or removed
            base = ranges.end
        if end <= base:
            raise NotAChunk(f"{name} up to byte {end:,}, which comes after all behind it was folded")
        file.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(file, flags, 0o644)
        try:
            size = os.fstat(fd).st_size
            place = max(start - base, 0)
            if chunk.kind == "lines":
                while size < place:
                    size += os.pwrite(fd, b"\n" * min(place - size, 1 << 20), size)
            _write_at(fd, data[max(base - start, 0) :], place)
        finally:
            os.close(fd)
        before = ranges.holes
        ranges.base = base
        ranges.add(start, end)
        self._ranges[name] = ranges
        self._holes += ranges.holes - before

    def _make_room(self, size: int) -> None:
        if self._bundle_bytes + size > RelayLimits.max_bundle_bytes:
            raise NotAChunk(f"bundles take more than {RelayLimits.max_bundle_bytes >> 20} MiB")
        self._bundle_bytes += size


class _Ranges(msgspec.Struct):
    """Which bytes of a file have come, as sorted ranges that do not touch; of most files there is one."""

    parts: list[tuple[int, int]] = []
    base: int = 0
    """The byte that stands first in the file there is now."""

    @property
    def end(self) -> int:
        """One past the last byte that has come."""
        return self.parts[-1][1] if self.parts else 0

    @property
    def holes(self) -> int:
        """Bytes that have not come before those that have."""
        return self.end - length(self.parts)

    def has(self, start: int, end: int) -> bool:
        """Whether all of a range has come."""
        before = bisect_right(self.parts, start, key=itemgetter(0))
        return before > 0 and end <= self.parts[before - 1][1]

    def add(self, start: int, end: int) -> None:
        """Note a range, which may overlap others."""
        self.parts = union([*self.parts, (start, end)])


def _write_at(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count
