"""Finish what a killed writer could not: its tails go into its file, and every file ends with a whole
line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from flightlog.store import layout
from flightlog.store.documents import sync_folder
from flightlog.store.read.completeness import Coverage
from flightlog.store.read.files import Part, folder_parts
from flightlog.store.read.lines import FileLines, read_tail

Step = Callable[[str], None]


class _Numbered(msgspec.Struct):
    writer: str = ""
    seq: int = -1


_NUMBERED = msgspec.json.Decoder(_Numbered)


@dataclass(frozen=True)
class _Stream:
    """One stream of one writer that is done: where its lines belong, and where they stand."""

    writer: str
    home: Path
    """The file its tails drain into."""
    files: tuple[Part, ...]
    tails: tuple[Part, ...]


def settle(run: Path, writers: Mapping[str, bool], step: Step) -> None:
    """Bring the tails of these writers into their files; True marks the owner, who writes the top-level
    files.

    The owner goes first: only its tails hold the whole form of a torn line in a top-level file. A line of a
    tail that stands in a file already is left out, by its number. A last line that was cut off is replaced
    where a tail holds it whole, and closed with a newline where not. The writers must be dead or closed. Cut
    off at any point, it may be done again. Raises OSError.
    """
    for writer, owns in sorted(writers.items(), key=lambda item: (not item[1], item[0])):
        folder = layout.writer_folder(run, writer)
        parts: dict[str, list[Part]] = {}
        for part in folder_parts(folder, writer):
            parts.setdefault(part.stream, []).append(part)
        for stream, found in sorted(parts.items()):
            files = tuple(part for part in found if part.kind != "tail")
            tails = tuple(sorted((p for p in found if p.kind == "tail"), key=lambda p: p.path.name))
            home = layout.stream_file(run if owns else folder, stream)
            _settle_stream(_Stream(writer, home, files, tails), layout.stream_file(run, stream), step)


def _settle_stream(stream: _Stream, top: Path, step: Step) -> None:
    lines: list[bytes] = []
    for tail in stream.tails:
        lines += [line for line in read_tail(tail.path).split(b"\n") if line]
    for file in {top, stream.home, *(part.path for part in stream.files)}:
        end_with_a_newline(file, lines)
    step(f"mended {stream.writer} {stream.home.name}")
    if lines:
        files = {top, stream.home, *(part.path for part in stream.files)}
        there = _numbers_in([file for file in files if file.exists()], stream.writer)
        missing = [line for line in lines if not _stands_in(there, line, stream.writer)]
        if missing:
            with stream.home.open("ab", buffering=0) as out:
                _write(out.fileno(), b"\n".join(missing) + b"\n")
                step(f"appended {stream.writer} {stream.home.name}")
                os.fsync(out.fileno())
            sync_folder(stream.home.parent)
    for tail in stream.tails:
        tail.path.unlink()
        step(f"unlinked {stream.writer} {tail.path.name}")


def end_with_a_newline(file: Path, whole: list[bytes]) -> None:
    """Cut a torn last line off if one of the `whole` lines begins with it, or else end it where it stops."""
    try:
        size = file.stat().st_size
    except FileNotFoundError:
        return
    with file.open("r+b", buffering=0) as out:
        start = size
        rest = b""
        while start > 0 and b"\n" not in rest:
            step = min(start, 1 << 16)
            start -= step
            rest = os.pread(out.fileno(), step, start) + rest
        rest = rest[rest.rfind(b"\n") + 1 :]
        if not rest:
            return
        if any(len(line) > len(rest) and line.startswith(rest) for line in whole):
            out.truncate(size - len(rest))
        else:
            out.seek(size)
            _write(out.fileno(), b"\n")


def _numbers_in(files: list[Path], writer: str) -> Coverage:
    seen = Coverage()
    for file in files:
        for batch in FileLines(file).batches():
            for line in batch:
                if (number := _number(line, writer)) is not None:
                    seen.add(number)
    return seen


def _stands_in(there: Coverage, line: bytes, writer: str) -> bool:
    number = _number(line, writer)
    return number is not None and not there.add(number)


def _number(line: bytes, writer: str) -> int | None:
    try:
        found = _NUMBERED.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found.seq if found.writer == writer and found.seq >= 0 else None


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
