"""The lines of a stream that are events, each once, in files that DuckDB reads without a doubt.

DuckDB's tolerance is another one than the reader's: it takes a number for a text, `NaN` for a number, and the
first of two equal names, and drops lines with blanks of a power cut around them. So the reader goes through
the lines once. A file in which every line is an event as declared is handed over as it is; of any other the
events are written down anew, as the reader understands them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from uuid import uuid4

import msgspec

from flightlog.events import Event
from flightlog.events.base import class_of
from flightlog.events.codec import Decoded, NotAnEvent, StreamDecoder, decode_line, encode_line
from flightlog.events.columns import columns
from flightlog.store.read.files import MAX_LINE_BYTES, Part
from flightlog.store.read.lines import AnyEvent, FileLines, Scan
from flightlog.store.read.progress import forget_place, note_place
from flightlog.store.tables.columns import is_built_in

_CHUNK_BYTES = 8 << 20
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


class Sifted(NamedTuple):
    """The files of a stream, apart those of events that no declaration of their kind fits."""

    files: tuple[Path, ...]
    misfits: tuple[Path, ...]


def sift(
    run: Path, stream: str, scratch: Path, *, settled: bool, listed: Sequence[Part] | None = None
) -> Sifted:
    """Files whose lines are the events `Scan` gives of a stream, each once; new ones are made in `scratch`.

    Where the run is `settled`, files that are all right are given as they are. Else everything is copied, for
    lines move while a run is written. Objects without an `event` are left out. `listed` are the files of the
    stream, where they are known. What users defined has been learnt. Raises OSError.
    """
    return _Sift(run, stream, scratch, listed).files(settled)


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


class _Sift(Scan):
    """A `Scan` that keeps the lines."""

    def __init__(self, run: Path, stream: str, scratch: Path, listed: Sequence[Part] | None) -> None:
        super().__init__(run, stream, listed)
        self._decode = _decoder(stream).decode
        self._of_users = not is_built_in(stream)
        self._scratch = scratch
        self._misfits = _Lines(scratch)

    def files(self, settled: bool) -> Sifted:
        out = _Lines(self._scratch)
        try:
            kept = self._kept_files(out) if settled else self._copy_all(out)
        finally:
            rewritten, misfits = out.close(), self._misfits.close()
        return Sifted((*kept, *rewritten), misfits)

    def _copy_all(self, out: _Lines) -> tuple[Path, ...]:
        for batch, _whole in self._batches():
            for line in batch:
                out.write(self._sifted(line)[1])
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
                    out.write(self._sifted(line)[1])
        forget_place()
        for path, rest in rests:
            plain, taken = self._sifted(rest)
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
            found = [self._sifted(line) for line in batch if line]
            if as_it_is and not (not lines.long and all(plain for plain, _ in found)):
                as_it_is = False
                _copy_bytes(part.path, begun, out)
            if not as_it_is:
                out.write(b"".join(taken for _, taken in found))
            begun = lines.offset
        if as_it_is and lines.long:
            as_it_is = False
            _copy_bytes(part.path, begun, out)
        return as_it_is

    def _sifted(self, line: bytes) -> tuple[bool, bytes]:
        """Whether DuckDB reads the line as the reader does; and the line of the event, empty if it is not
        taken.
        """
        event: AnyEvent | None
        given = line
        try:
            event = self._decode(line)
        except NotAnEvent:
            event = self._mend(line, True, self._decode)
            if event is None:
                return False, b""
            line = line.strip(b"\0 \t\r\xef\xbb\xbf")
        if not self._take(event):
            return False, b""
        if isinstance(event, Event) and self._is_plain(line, event):
            return (
                line == given,
                line + b"\n",
            )  # blanks around a line the reader passes over, and DuckDB does not
        try:
            written = self._rewrite(decode_line(line))
            return False, written if len(written) <= MAX_LINE_BYTES else line + b"\n"
        except NotAnEvent:  # not text, in a field that the event does not know: the reader skips it
            return False, encode_line(event) if isinstance(event, Event) else b""

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
        self._misfits.write(line)
        return b""


def _is_torn(rest: bytes) -> bool:
    """Whether DuckDB passes over a last line: it is no whole object."""
    return not rest.rstrip(b"\0 \t\r").endswith(b"}")


def _leads_out(path: Path, run: Path) -> bool:
    """Whether a file is a link, or stands behind one, to somewhere outside of the run."""
    return not path.resolve().is_relative_to(run.resolve())


def _copy_bytes(path: Path, size: int, out: _Lines) -> None:
    with path.open("rb", buffering=0) as source:
        while size > 0 and (chunk := source.read(min(size, _CHUNK_BYTES))):
            size -= len(chunk)
            out.write(chunk)


@cache
def _decoder(stream: str) -> StreamDecoder:
    """One for all runs: making it takes longer than reading a small run."""
    return StreamDecoder(stream)


@cache
def _columns(stream: str) -> dict[str, str]:
    return columns(stream)
