"""Sealing a run that has ended: the lines of every writer are folded into the top-level files.

Folding goes in steps that may each be cut off at any byte and done again:

1. settle: what a killed writer left in its tails goes to the end of its file, as the writer would have done;
2. plan: `segments/seal.json` says which file goes to which offset of which top-level file;
3. copy, wait for the disk, delete the file; the offsets are fixed, so doing it again writes the same bytes;
4. note the writers in `recorder.json`, then delete their folders.

A reader finds every line at every moment, and takes those that stand twice once. One process seals at a time.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import msgspec
from msgspec import Struct

from flightlog.core.locks import locked
from flightlog.store import layout
from flightlog.store.documents import (
    RecorderInfo,
    is_leftover,
    read_document,
    replace_bytes,
    sync_folder,
    write_document,
)
from flightlog.store.layout import RunInfo, WriterInfo
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import here
from flightlog.store.read.completeness import Coverage
from flightlog.store.read.files import Part, folder_parts, last_newline, writer_folders
from flightlog.store.read.lines import FileLines, read_tail
from flightlog.store.read.writers import (
    has_said_its_end,
    merge_page,
    read_writer,
    remove_page,
    run_as_it_ended,
)

PLAN = "seal.json"


class Move(Struct, frozen=True):
    """One file and its place in the top-level file of its stream."""

    part: str
    stream: str
    offset: int
    size: int


class FoldPlan(Struct, frozen=True):
    """`segments/seal.json`."""

    moves: list[Move]


def seal(
    path: Path, *, writers_alive: Callable[[WriterInfo], bool], step: Step = lambda _done: None
) -> str | None:
    """Fold the lines of every writer that is closed or dead into the run's top-level files.

    For whoever is inside `finalizing`. Nothing is done while the owner of the run is alive and not closed,
    since it writes these files itself. Folders of writers that live, of writers that left no `writer.json`,
    and those that hold other files stay as they are. May be run again at any time, and after a crash at any
    point. Gives why it stopped where a disk refuses: every line is readable all the same, and sealing again
    goes on. `step` is told what was just done, for tests.
    """
    try:
        folders = {writer: folder for folder, writer in writer_folders(path)}
        infos = {writer: _writer_info(path, folder, writer) for writer, folder in folders.items()}
        owner = _owner(path, infos)
        if owner is not None and not owner.closed and writers_alive(owner):
            return None
        known = {writer: info for writer, info in infos.items() if info is not None}
        done = {writer: info for writer, info in known.items() if info.closed or not writers_alive(info)}
        run = read_document(path / layout.RUN, RunInfo).value
        ended = None if run is None else run_as_it_ended(path, run, here())
        for info in done.values():
            info.closed = info.closed or has_said_its_end(info, ended)
        _carry_out(path, step)
        settle(path, {writer: info.owner for writer, info in done.items()}, step)
        _write_plan(path, [folders[writer] for writer in done])
        step("planned")
        _carry_out(path, step)
        if done:
            _note_writers(path, done.values())
            step("noted the writers")
        if ended is not None and ended is not run:  # the page goes, and is all that knows the end of the run
            write_document(path / layout.RUN, ended, durable=True)
        for writer, info in done.items():
            _clear(path, folders[writer], info)
            step(f"cleared {writer}")
        _remove_empty(path / layout.SEGMENTS)
    except OSError as error:
        return error.strerror or str(error)
    return None


_TIMESTAMP = re.compile(rb'"timestamp":"([^"]*)"')
_WRITER = re.compile(rb'"writer":"([^"]*)"')


def order_tasks(path: Path) -> None:
    """Put the lines of tasks into the order of time, so that starts, which workers write, stand before ends.

    Joined files have the lines of one process behind those of another. The lines of one stay in their order,
    also where its clock was set back. Large files stay as they are. Lines without a time stay behind the one
    before them. Raises OSError.
    """
    file = layout.stream_file(path, "tasks")
    if not 0 < _size(file) <= StoreLimits.max_ordered_tasks_bytes:
        return
    *lines, torn = file.read_bytes().split(b"\n")
    moments, moment, latest = list[bytes](), b"", dict[bytes, bytes]()
    for line in lines:
        if found := _TIMESTAMP.search(line):
            writer = wrote[1] if (wrote := _WRITER.search(line)) else b""
            moment = latest[writer] = max(found[1], latest.get(writer, b""))
        moments.append(moment)
    ordered = sorted(range(len(lines)), key=moments.__getitem__)
    if ordered != list(range(len(lines))):
        replace_bytes(file, b"\n".join([*(lines[number] for number in ordered), torn]), durable=True)


def finalizing(path: Path, wait_s: float = 0.0) -> AbstractContextManager[bool]:
    """Keep other processes from sealing this run; gives whether none of them does, after waiting `wait_s`."""
    return locked(path, wait_s=wait_s, create=False)


def is_to_complete(path: Path) -> bool:
    """Whether a run has ended and is not in its final form, or processes that outlived it have left lines
    since.
    """
    info = read_document(path / layout.RUN, RunInfo).value
    if info is None:
        return False
    observer = here()
    if info.status not in layout.ENDED:  # a disk that was full may have refused to write the end down
        return run_as_it_ended(path, info, observer).status in layout.ENDED
    if info.to_complete is True:
        return True
    for folder, writer in writer_folders(path):
        wrote = read_document(folder / layout.WRITER, WriterInfo).value
        if wrote is not None and not observer.writer_alive(wrote) and any(folder_parts(folder, writer)):
            return (path / layout.CHECKSUMS).exists()
    return False


def _writer_info(path: Path, folder: Path, writer: str) -> WriterInfo | None:
    """Who a folder belongs to; of the owner of the run `run.json` tells too."""
    info = read_writer(folder, writer).value
    if info is None:
        run = read_document(path / layout.RUN, RunInfo).value
        if run is not None and run.writer == writer:
            return _owner_of(run)
    return info


def _owner(path: Path, infos: dict[str, WriterInfo | None]) -> WriterInfo | None:
    recorder = read_document(path / layout.RECORDER, RecorderInfo).value
    known = [*infos.values(), *(recorder.writers if recorder else [])]
    for info in known:
        if info is not None and info.owner:
            return info
    run = read_document(path / layout.RUN, RunInfo).value
    return _owner_of(run) if run is not None else None


def _owner_of(run: RunInfo) -> WriterInfo:
    return WriterInfo(
        writer=run.writer,
        pid=run.pid,
        host=run.host,
        pid_start=run.pid_start,
        started=run.start_time,
        heartbeat=run.heartbeat or "",
        closed=run.status in layout.ENDED,
        owner=True,
    )


def _write_plan(path: Path, folders: Iterable[Path]) -> None:
    """Lay the files of the folders end to end behind the top-level files; settling made all end in a
    newline.
    """
    parts = [part for folder in folders for part in folder_parts(folder, folder.name)]
    ends: dict[str, int] = {}
    moves: list[Move] = []
    for part in sorted(
        parts, key=lambda part: (part.stream, part.writer, part.kind == "active", part.number)
    ):
        offset = ends.get(part.stream)
        if offset is None:
            offset = _size(layout.stream_file(path, part.stream))
        size = part.path.stat().st_size
        moves.append(Move(f"{part.writer}/{part.path.name}", part.stream, offset, size))
        ends[part.stream] = offset + size
    if moves:
        write_document(path / layout.SEGMENTS / PLAN, FoldPlan(moves), durable=True)


def _carry_out(path: Path, step: Step) -> None:
    """Do what the plan says, as far as it has not been done.

    A plan that does not fit what is there, as in a half-copied directory, is dropped: planning anew may put
    lines twice, and never loses one.
    """
    file = path / layout.SEGMENTS / PLAN
    if not file.exists():
        return
    plan = read_document(file, FoldPlan).value
    for stream, moves in groupby(plan.moves if plan else (), key=lambda move: move.stream):
        _fold(path, layout.stream_file(path, stream), list(moves), step)
    file.unlink()
    step("carried out the plan")


def _fold(path: Path, top: Path, moves: list[Move], step: Step) -> None:
    there = [(move, path / layout.SEGMENTS / move.part) for move in moves]
    there = [(move, part) for move, part in there if part.exists()]
    if not there or not _fits(top, moves, there):
        return
    with os.fdopen(
        os.open(top, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644), "r+b", buffering=0
    ) as target:
        copied: list[Path] = []
        unsynced = 0
        for move, part in there:
            with part.open("rb", buffering=0) as source:
                _copy(source.fileno(), target.fileno(), move)
            step(f"copied {move.part}")
            copied.append(part)
            unsynced += move.size
            if unsynced >= StoreLimits.finalize_sync_bytes or part == there[-1][1]:
                os.fsync(target.fileno())
                sync_folder(path)
                step(f"synced {top.name}")
                while copied:
                    copied.pop(0).unlink()
                    step("unlinked a file")
                unsynced = 0


def _fits(top: Path, moves: list[Move], there: list[tuple[Move, Path]]) -> bool:
    size = _size(top)
    return there[0][0].offset <= size <= moves[-1].offset + moves[-1].size and all(
        part.stat().st_size == move.size for move, part in there
    )


def _copy(source: int, target: int, move: Move) -> None:
    """Copy a file to its place, inside the kernel where that can be done."""
    done = 0
    while done < move.size:
        step = min(move.size - done, StoreLimits.finalize_chunk_bytes)
        count = _copy_in_kernel(source, target, step, done, move.offset + done)
        if not count:
            chunk = os.pread(source, step, done)
            if not chunk:
                raise OSError(errno.EIO, "the file has become shorter", move.part)
            count = os.pwrite(target, chunk, move.offset + done)
        done += count


def _copy_in_kernel(source: int, target: int, count: int, start: int, offset: int) -> int:
    try:
        return os.copy_file_range(source, target, count, start, offset)
    except AttributeError:  # macOS has none
        return 0
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
            raise
        return 0


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _note_writers(path: Path, done: Iterable[WriterInfo]) -> None:
    """Add the writers to `recorder.json`; what it says of others stays."""
    file = path / layout.RECORDER
    recorder = read_document(file, RecorderInfo).value
    writers = {info.writer: info for info in (recorder.writers if recorder else [])}
    for info in done:
        info.died = info.died or not info.closed
        info.closed = True  # nothing will follow, and nothing it had recorded is missing
        writers[info.writer] = info
    ordered = sorted(writers.values(), key=lambda info: (not info.owner, info.started, info.writer))
    write_document(file, RecorderInfo(writers=ordered), durable=True)


def _clear(path: Path, folder: Path, info: WriterInfo) -> None:
    """Delete a writer's folder, now that its lines stand elsewhere, unless it holds files that are not ours.

    Where its process lives, a thread of it may lose a line meanwhile: what the page says last is noted, and a
    page that is made after that stays.
    """
    names = sorted(entry.name for entry in folder.iterdir())
    if not all(name in {layout.WRITER, layout.PAGE} or is_leftover(name) for name in names):
        return
    page = remove_page(folder)
    if page is not None and (last := merge_page(info, page, folder)) != info:
        _note_writers(path, [last])
    for name in names:
        if name != layout.PAGE:
            (folder / name).unlink()
    _remove_empty(folder)


def _remove_empty(folder: Path) -> None:
    """Delete a folder, if there is nothing in it; it may be gone."""
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT}:
            raise


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
        newline = last_newline(out.fileno(), 0, size)
        start = 0 if newline is None else newline + 1
        rest = os.pread(out.fileno(), size - start, start)
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
