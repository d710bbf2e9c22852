"""The files from which DuckDB reads the rows of a stream, each event once.

A run that closed in good order has one file per stream, written by the recorder itself: nothing in it is
duplicated, torn or foreign, and it is read as it is. Every other run (running, killed, half-copied, changed
since) is normalized first, by `NormalizedLines`. DuckDB's tolerance differs from the reader's: it takes a
number for a text, `NaN` for a number, and the first of two equal names, and drops lines with NUL bytes of a
power cut around them. So the reader goes through the lines once. A file in which every line is an event as
declared is handed over as it is; of any other file the events are written anew, as the reader understands
them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4

import msgspec

from flightlog.events import Event
from flightlog.events.base import class_of
from flightlog.events.codec import Decoded, NotAnEvent, StreamDecoder, decode_line, encode_line
from flightlog.events.columns import columns
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.integrity import FileSum
from flightlog.store.limits import StoreLimits
from flightlog.store.read.events import learn_definitions
from flightlog.store.read.files import Part, find_parts, has_long_line, size_at, writer_folders
from flightlog.store.read.lines import AnyEvent, FileLines, Scan, forget_place, note_place
from flightlog.store.tables.connection import PlainPaths, is_built_in
from flightlog.store.tables.snapshots import Snapshots
from flightlog.store.tables.views import STORED

if TYPE_CHECKING:
    from flightlog.store.run import Run


@dataclass(frozen=True)
class StreamSource:
    """The files that hold the rows of one stream of one run: JSONL, or the Parquet snapshot of it. Their
    names are plain.
    """

    files: tuple[Path, ...]
    parquet: bool = False
    misfits: tuple[Path, ...] = ()
    """Lines of a known kind that lack a field they must have: rows of the stream, of which no more is
    made."""


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Sources:
    """The files of one run's streams. `scratch` is a folder for what has to be written down anew, with a
    plain name.

    The answer holds for the run as it is now; lines that a running run records later are not in it.
    """

    def __init__(self, run: Run, scratch: Path) -> None:
        self._run = run
        self._scratch = scratch
        self._plain = PlainPaths(scratch)
        self._parts = find_parts(run.path)
        self._learned = False
        self._snapshots = Snapshots(run.path, self._parts, run.tell_damaged_snapshot)

    @cached_property
    def _settled(self) -> bool:
        return is_settled(self._run)

    @cached_property
    def _noted(self) -> tuple[dict[str, FileSum], int]:
        """The sizes of the files when the run closed, and when that was; nothing if something happened to
        it.
        """
        run = self._run
        odd = any(one.died or one.lost or one.reasons or not one.closed for one in run.writers())
        file = run.path / layout.CHECKSUMS
        if (
            odd
            or not run.writers()
            or run.status not in layout.ENDED
            or (run.path / layout.SEGMENTS).exists()
        ):
            return {}, 0
        sums = read_document(file, dict[str, FileSum]).value
        return (sums, file.stat().st_mtime_ns) if sums is not None else ({}, 0)

    def streams(self) -> list[str]:
        """The streams there are files of, by name."""
        return sorted(self._parts)

    def parts(self, stream: str) -> list[Part]:
        """The files of lines of a stream."""
        return self._parts.get(stream, [])

    def size_bytes(self, stream: str) -> int:
        """How large the files of lines of a stream are together, as far as they are there."""
        return sum(size_at(part.path) for part in self.parts(stream))

    def sampled_fields(self, stream: str) -> set[str]:
        """The names of fields that some lines of a stream have, from pieces all over its files."""
        found: set[str] = set()
        for part in self.parts(stream):
            with part.path.open("rb") as source:
                size = os.fstat(source.fileno()).st_size
                for at in range(0, size, max(1, size // StoreLimits.sampled_pieces)):
                    source.seek(at)
                    for line in source.read(StoreLimits.block_bytes).split(b"\n")[1:-1]:
                        with suppress(msgspec.DecodeError):
                            found.update(_FIELDS.decode(line))
        return found

    def check(self, names: Collection[str]) -> None:
        """Check these snapshots at once, which is faster than one after the other."""
        self._snapshots.damaged(names)

    def blame(self, error: str) -> bool:
        """Whether a snapshot can be blamed for an error that came up while it was read; it is not read again
        then.
        """
        return self._snapshots.blame(error)

    def has_moved(self) -> bool:
        """Whether files of lines are no longer where they were: a run that ended is put together by a process
        of its own.
        """
        return not all(part.path.exists() for parts in self._parts.values() for part in parts)

    def view(self, name: str) -> Path | None:
        """The snapshot of a derived view, where it is current and intact."""
        found = self._snapshots.file(f"views/{name}")
        return None if found is None else self._plain.file(found)

    def source(self, stream: str, *, snapshots: bool = True) -> StreamSource:
        """The files of a stream; none where the run has no such stream. Raises OSError.

        Without `snapshots` the files of lines are named, even where a snapshot could be read.
        """
        parts = self._parts.get(stream, [])
        snapshot = self._snapshots.file(stream) if snapshots else None
        if snapshot is not None:
            return StreamSource((self._plain.file(snapshot),), parquet=True)
        if not parts:
            return StreamSource(())
        if self.is_sealed(stream):
            return StreamSource((self._plain.file(parts[0].path),))
        if stream.startswith("user.") and not (self._settled and self._learned):
            learn_definitions(self._run.path, stream)
            self._learned = True
        listed = parts if self._settled else None
        files, misfits = NormalizedLines(self._run.path, stream, self._scratch, listed).files(self._settled)
        return StreamSource(tuple(map(self._plain.file, files)), misfits=misfits)

    def is_sealed(self, stream: str) -> bool:
        """Whether a stream is one file, as it was when the run closed, and nothing happened to its making.

        That is so where every writer closed by itself and lost nothing, the segments are gone, and the file
        has the size that was noted and was not written to since; and no line in it is too long for DuckDB.
        """
        sums, closed = self._noted
        part, *others = self._parts.get(stream, [None])
        expected = None if part is None else sums.get(part.path.name)
        if part is None or others or expected is None or part.writer is not None or part.path.is_symlink():
            return False
        stat = part.path.stat()
        return (
            stat.st_size == expected.size_bytes
            and stat.st_mtime_ns <= closed
            and not has_long_line(part.path)
        )


def is_settled(run: Run) -> bool:
    """Whether nobody writes into the run any more; of a writer that left no word of itself, that is not
    known.
    """
    known = {writer.writer for writer in run.writers()}
    silent = any(writer not in known for _, writer in writer_folders(run.path))
    return not (silent or run.status == "unknown" or run.is_written())


_PYTHON_TYPES: dict[str, Any] = {
    "BIGINT": int,
    "DOUBLE": float,
    "VARCHAR": str,
    "TIMESTAMP": str,
    "BOOLEAN": bool,
    "JSON": Any,
    "VARCHAR[]": list[str],
    "BIGINT[]": list[int],
    "DOUBLE[]": list[float],
    "BOOLEAN[]": list[bool],
}


class _Lines:
    """A file of lines in a folder, there from the first one on."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{uuid4().hex}.jsonl"
        self._file: BinaryIO | None = None

    def write(self, lines: bytes) -> None:
        if lines:
            if self._file is None:
                self._file = self._path.open("wb")
            self._file.write(lines)

    def close(self) -> tuple[Path, ...]:
        """The file, if there is one."""
        if self._file is None:
            return ()
        self._file.close()
        return (self._path,)


class NormalizedLines(Scan):
    """A `Scan` that keeps the lines; new files are made in `scratch`. What users defined has been learnt."""

    def __init__(self, run: Path, stream: str, scratch: Path, listed: Sequence[Part] | None) -> None:
        super().__init__(run, stream, listed)
        self._decode = _decoder(stream).decode
        self._of_users = not is_built_in(stream)
        self._scratch = scratch
        self._misfits = _Lines(scratch)
        self._set_aside: Callable[[bytes], object] = self._misfits.write
        self.line = b""
        """Of the event that was given last, as DuckDB is to read it; empty where none is to be read."""

    def events_and_pauses(self) -> Iterator[AnyEvent | None]:
        """Every event once, each with its `line`, and null after each stretch that was read.

        An event that no declaration of its kind fits has a line, too, but for those that views are derived
        from.
        """
        misfits: list[bytes] = []
        self._set_aside = misfits.append
        for batch, whole in self._batches():
            for line in batch:
                event, _, self.line = self._normalize(line, whole)
                if misfits:
                    misfit = misfits.pop()
                    self.line = b"" if self.stream in STORED.values() else misfit
                if event is not None:
                    yield event
            yield None

    def files(self, settled: bool) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """Files whose lines are the events `Scan` gives of a stream, each once; apart those of events that no
        declaration of their kind fits.

        Where the run is `settled`, files that are all right are given as they are. Else everything is copied,
        for lines move while a run is written. Objects without an `event` are left out. Raises OSError.
        """
        out = _Lines(self._scratch)
        try:
            kept = self._kept_files(out) if settled else self._copy_all(out)
        finally:
            rewritten, misfits = out.close(), self._misfits.close()
        return (*kept, *rewritten), misfits

    def _copy_all(self, out: _Lines) -> tuple[Path, ...]:
        for batch, _whole in self._batches():
            for line in batch:
                out.write(self._normalize(line)[2])
        return ()

    def _kept_files(self, out: _Lines) -> tuple[Path, ...]:
        """The files that need no change; what tails and other files hold is written out."""
        kept: dict[Path, bytes] = {}
        rests: list[tuple[Path | None, bytes]] = []
        parts = self._parts()
        for part in parts:
            if part.kind != "tail":
                lines = FileLines(part.path)
                try:
                    as_it_is = self._sift_file(part, lines, out)
                except OSError as error:
                    self._note(part.path, error)
                    continue
                rests.append((part.path if as_it_is else None, lines.rest))
                if as_it_is:
                    kept[part.path] = lines.rest
        for part in parts:
            if part.kind == "tail":
                for line in self._read_tail(part).split(b"\n"):
                    out.write(self._normalize(line)[2])
        forget_place()
        for path, rest in rests:
            _, plain, taken = self._normalize(rest)
            if path is None:
                out.write(taken)
            elif not plain and (taken or not _is_torn(rest)):
                del kept[path]  # its last line counts elsewhere, or otherwise than DuckDB would read it
                _copy_bytes(path, path.stat().st_size - len(rest), out)
                out.write(taken)
        return tuple(path.absolute() for path in kept)

    def _sift_file(self, part: Part, lines: FileLines, out: _Lines) -> bool:
        """Whether a file may be read as it is, its last line without newline aside; else its events go
        `out`.
        """
        as_it_is = not _leads_out(part.path, self._run)
        begun = 0
        size = part.path.stat().st_size
        for batch in lines.batches():
            note_place(self.stream, lines.offset, size)
            found = [self._normalize(line) for line in batch if line]
            if as_it_is and not (not lines.long and all(plain for _, plain, _ in found)):
                as_it_is = False
                _copy_bytes(part.path, begun, out)
            if not as_it_is:
                out.write(b"".join(taken for _, _, taken in found))
            begun = lines.offset
        if as_it_is and lines.long:
            as_it_is = False
            _copy_bytes(part.path, begun, out)
        return as_it_is

    def _normalize(self, line: bytes, whole: bool = True) -> tuple[AnyEvent | None, bool, bytes]:
        """The event, null if it is not taken; whether DuckDB reads the line as the reader does; and the line
        of the event, empty where there is none.
        """
        event: AnyEvent | None
        given = line
        try:
            event = self._decode(line)
        except NotAnEvent:
            event = self._mend(line, whole, self._decode)
            if event is None:
                return None, False, b""
            line = line.strip(b"\0 \t\r\xef\xbb\xbf")
        if not self._take(event):
            return None, False, b""
        if isinstance(event, Event) and self._is_plain(line, event):
            # Blanks around a line the reader passes over, and DuckDB does not.
            return event, line == given, line + b"\n"
        try:
            written = self._rewrite(decode_line(line))
            return event, False, written if len(written) <= StoreLimits.max_line_bytes else line + b"\n"
        except NotAnEvent:  # not text, in a field that the event does not know: the reader skips it
            return event, False, encode_line(event) if isinstance(event, Event) else b""

    def _is_plain(self, line: bytes, event: Event) -> bool:
        """Whether the line is made as the recorder makes them, so that there is one way to read it."""
        return encode_line(event)[:-1] == line

    def _rewrite(self, decoded: Decoded) -> bytes:
        event = decoded.event
        if isinstance(event, Event):
            if not self._of_users or not decoded.extra:
                return encode_line(event)
            known = msgspec.to_builtins(event)
            return msgspec.json.encode({**decoded.extra, **known}) + b"\n"
        if event.kind is None:
            return b""
        if self._of_users:
            return msgspec.json.encode(event.data) + b"\n"
        kept: dict[str, Any] = {}
        for name, kind in _columns(self.stream).items():
            if name in event.data:
                try:
                    kept[name] = msgspec.convert(event.data[name], _PYTHON_TYPES[kind])
                except msgspec.ValidationError:
                    continue
        line = msgspec.json.encode(kept) + b"\n"
        if class_of(event.kind) is None:
            return line
        self._set_aside(line)
        return b""


def _is_torn(rest: bytes) -> bool:
    """Whether DuckDB passes over a last line: it is no whole object."""
    return not rest.rstrip(b"\0 \t\r").endswith(b"}")


def _leads_out(path: Path, run: Path) -> bool:
    """Whether a file is a link, or stands behind one, to somewhere outside of the run."""
    return not path.resolve().is_relative_to(run.resolve())


def _copy_bytes(path: Path, size: int, out: _Lines) -> None:
    with path.open("rb", buffering=0) as source:
        while size > 0 and (chunk := source.read(min(size, StoreLimits.repair_chunk_bytes))):
            size -= len(chunk)
            out.write(chunk)


@cache
def _decoder(stream: str) -> StreamDecoder:
    """One for all runs: making it takes longer than reading a small run."""
    return StreamDecoder(stream)


@cache
def _columns(stream: str) -> dict[str, str]:
    return columns(stream)
