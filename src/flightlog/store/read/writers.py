"""Who wrote into a run, what was recorded and what was lost: `writer.json`, the page and `recorder.json`
combined.

The counts of a writer only grow, so the larger of two is the newer one. On a disk that refuses documents they
lag behind the page; a run that was folded has no page any more, unless something was lost later.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG

from msgspec.structs import replace

from flightlog.store import layout
from flightlog.store.documents import Document, RecorderInfo, read_document
from flightlog.store.layout import RunInfo, WriterInfo
from flightlog.store.liveness import Observer, latest
from flightlog.store.read.files import folder_parts, writer_folders
from flightlog.store.write.page import SIZE, PageInfo, named_reasons, named_streams, read_page


def read_writer(folder: Path, writer: str) -> Document[WriterInfo]:
    """What is known of the writer of a folder; None where it has neither a note nor a page."""
    return _with_page(folder, writer, read_document(folder / layout.WRITER, WriterInfo))


def read_writers(run: Path) -> tuple[list[WriterInfo], list[str]]:
    """Every known writer, and what is wrong with the documents; a folder without any is a writer just
    begun.
    """
    found: dict[str, WriterInfo] = {}
    problems: list[str] = []
    folders = writer_folders(run)  # first: closing a run moves them into `recorder.json`
    notes = [
        (folder, writer, read_document(folder / layout.WRITER, WriterInfo)) for folder, writer in folders
    ]
    recorder: Document[RecorderInfo] = Document(None)
    if os.path.exists(run / layout.RECORDER):  # noqa: PTH110 - False where nobody may look
        recorder = read_document(run / layout.RECORDER, RecorderInfo)
    folded = {info.writer: info for info in (recorder.value.writers if recorder.value else [])}
    for folder, writer, note in notes:
        there = os.path.exists(folder / layout.WRITER)  # noqa: PTH110 - as above
        before = note.value or folded.get(writer)
        read = _with_page(folder, writer, Document(before, note.problem if there else None))
        if read.value is not None:
            found[read.value.writer] = read.value
        if read.problem:
            problems.append(f"{layout.SEGMENTS}/{folder.name}/{read.problem}")
    if recorder.problem:
        problems.append(recorder.problem)
    return [*found.values(), *(info for name, info in folded.items() if name not in found)], problems


def run_as_it_ended(path: Path, info: RunInfo, observer: Observer) -> RunInfo:
    """`run.json`, with the end of the run and the loss as its owner's page tells them where a disk refused to
    write them.
    """
    if info.status != "running" or not info.writer:
        return info
    page = _page_of(layout.writer_folder(path, info.writer)).value
    if page is None:
        return info
    lost = sum(lines for _, lines in page.streams.values())
    if lost:
        info = replace(info, lines_lost=lost)
    if page.status not in layout.ENDED:
        return info
    if not page.closed and observer.writer_alive(page.writer(info.writer)):
        return info  # it is just closing
    return replace(
        info,
        status=page.status,
        end_time=page.end_time,
        duration_s=info.duration_s if page.duration_s is None else page.duration_s,
        exit_code=page.exit_code if info.exit_code is None else info.exit_code,
        signal=info.signal or page.signal,
        error=info.error or page.error,
        heartbeat=latest(info.heartbeat, page.process.heartbeat),
    )


def tells_of_loss(path: Path) -> bool:
    """Whether the page of any writer tells of lines that were lost, or that waited in memory."""
    pages = (_page_of(folder).value for folder, _ in writer_folders(path))
    return any(page.reasons or any(lost for _, lost in page.streams.values()) for page in pages if page)


def refused_from_the_start(path: Path) -> bool:
    """Whether the disk refused even the page of a writer: its file is there, and holds nothing."""
    for folder, _ in writer_folders(path):
        with suppress(OSError):
            page = (folder / layout.PAGE).stat()
            if S_ISREG(page.st_mode) and not page.st_size:
                return True
    return False


def has_said_its_end(info: WriterInfo, run: RunInfo | None) -> bool:
    """Whether a writer that is dead said before that it would end: it owns the run, and a signal ended both.

    Its files are open to the last moment then, so that what its threads record until it dies is not lost.
    """
    return info.owner and run is not None and run.writer == info.writer and run.status in layout.ENDED


def says_more(folder: Path) -> bool:
    """Whether the page of a folder knows anything that its writer's note does not: a disk refused the
    note.
    """
    note, page = read_document(folder / layout.WRITER, WriterInfo).value, _page_of(folder).value
    if note is None or page is None or page.status:
        return True
    merged = merge_page(note, page, folder)
    return (merged.lines, merged.lost, merged.closed) != (note.lines, note.lost, note.closed)


def remove_page(folder: Path) -> PageInfo | None:
    """Remove a page, and give what stood in it at the last moment: a line may be lost meanwhile. Raises
    OSError.
    """
    file = folder / layout.PAGE
    with suppress(FileNotFoundError), _opened(file) as fd:
        file.unlink()
        return read_page(os.read(fd, SIZE + 1))
    return None


def merge_page(info: WriterInfo, page: PageInfo, folder: Path) -> WriterInfo:
    """A writer's note, with what its page knows beyond it; unchanged where that is nothing."""
    known = {*info.lines, *info.lost}
    if not page.streams.keys() <= known:
        known |= {part.stream for part in folder_parts(folder, None)}
        known |= {part.stream for part in folder_parts(folder.parent.parent, None)}
    streams = named_streams(page, known)
    reasons = named_reasons(page, info.reasons)
    closed = info.closed or page.closed
    if (
        page.closed and not info.closed
    ):  # a disk refused the last note: what stands in it was true at some time before
        info = replace(info, drain_s=None, background_cpu_s=None, bytes=None)
    return replace(
        info,
        heartbeat=latest(info.heartbeat, page.process.heartbeat) or info.heartbeat,
        closed=closed,
        counted=True,
        lines=_larger(info.lines, {name: given for name, (given, _) in streams.items() if given}),
        lost=_larger(info.lost, {name: lost for name, (_, lost) in streams.items() if lost}),
        reasons=_larger(
            info.reasons, {why: number for why, number in reasons.items() if number or not closed}
        ),
    )


def _with_page(folder: Path, writer: str, note: Document[WriterInfo]) -> Document[WriterInfo]:
    page = _page_of(folder)
    problem = "; ".join(one for one in (note.problem, page.problem) if one) or None
    if page.value is None:
        return Document(note.value, problem)
    return Document(merge_page(note.value or page.value.writer(writer), page.value, folder), problem)


def _page_of(folder: Path) -> Document[PageInfo]:
    """What the page of a folder says; no problem where there is none."""
    file = folder / layout.PAGE
    try:
        with _opened(file) as fd:
            data = os.read(fd, SIZE + 1) if S_ISREG(os.fstat(fd).st_mode) else b""
    except FileNotFoundError:
        return Document(None)
    except OSError as error:
        return Document(None, f"{file.name}: {error.strerror or error}")
    page = read_page(data)
    return Document(page, None if page is not None else f"{file.name}: not a page, or not a whole one")


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield fd
    finally:
        os.close(fd)


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {**one, **{name: max(number, one.get(name, 0)) for name, number in other.items()}}
