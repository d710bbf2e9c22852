"""Everything one process writes into one run: its streams, and the note of who it is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from flightlog.core import threads
from flightlog.store import layout
from flightlog.store.documents import write_document
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import process_start
from flightlog.store.write.page import Page
from flightlog.store.write.stream import StreamWriter


class RunWriter:
    """The streams of one process in one run, opened as they are first used.

    The owner, the process that made the run, writes the top-level files; any other process writes files of
    its own in its folder. `on_trouble` is told the kind and the story each time the disk refuses, `on_open`
    each time a stream opens its file. What was given out and lost stands in a page that a full disk cannot
    refuse, from before the first file is made. Thread-safe; a forked child must call `abandon` and make a
    writer of its own.
    """

    def __init__(
        self,
        run: Path,
        info: layout.WriterInfo,
        *,
        rotate_bytes: int = StoreLimits.rotate_bytes,
        on_trouble: Callable[[str, str], None] = lambda _kind, _message: None,
        on_open: Callable[[], None] = lambda: None,
    ) -> None:
        self.info = info
        self.folder = layout.writer_folder(run, info.writer)
        self._run = run
        self._rotate_bytes = rotate_bytes
        self._on_trouble = on_trouble
        self._on_open = on_open
        self._lock = threads.RLock()  # a signal handler may record in the middle of it
        self._streams: dict[str, StreamWriter] = {}
        self._closed = self._abandoned = False
        self._page: Page | None = None
        self._ended: layout.RunInfo | None = None
        self._page_retry_at = 0.0
        self._settled: dict[str, int] = {}
        self._latest: tuple[float, dict[str, int]] = (0.0, {})

    def stream(self, name: str) -> StreamWriter:
        """The writer of a stream."""
        writer = self._streams.get(name)
        if writer is None:
            with self._lock:
                writer = self._streams.get(name)
                if writer is None:
                    home = self._run if self.info.owner else self.folder
                    writer = self._streams[name] = StreamWriter(
                        layout.stream_file(home, name),
                        self.folder,
                        name,
                        rotate_bytes=self._rotate_bytes,
                        on_trouble=self._on_trouble,
                        on_open=self._on_open,
                        before_open=self.open_page,
                        on_count=self._count,
                    )
                    if self._closed:
                        writer.close()
        return writer

    def open_page(self) -> Page | None:
        """The page, made if there is none yet; None while the disk refuses it, which whatever is written next
        tells.
        """
        if self._page is not None or self._abandoned or time.monotonic() < self._page_retry_at:
            return self._page
        with self._lock:
            if self._page is None:
                try:
                    self.folder.mkdir(parents=True, exist_ok=True)
                    page = Page(self.folder / layout.PAGE, self.info)
                except OSError:
                    self._page_retry_at = time.monotonic() + StoreLimits.disk_retry_s
                    return None
                self._fill(page)
                self._page = page
        return self._page

    def note_end(self, run: layout.RunInfo) -> None:
        """Say how the run ended, where a full disk cannot refuse it; for the owner."""
        self._ended = run
        page = self.open_page()
        if page is not None:
            page.end(run)

    def _count(self, stream: StreamWriter) -> None:
        """Lines of a stream were lost, or wait in memory."""
        page = self.open_page()
        if page is None:
            return
        self._settled[stream.name] = stream.lines  # what waits in memory would be lost with the process
        page.count(stream.name, stream.lines, stream.lost)
        page.explain(self._reasons())
        if self._closed and self._run.is_dir():  # this came later than the end
            self._renew(page)

    def _renew(self, page: Page) -> Page | None:
        """The page, made again where its file is gone: folded with the run, or removed."""
        if page.path.exists():
            return page
        self._page, self._page_retry_at = None, 0.0
        return self.open_page()

    def _fill(self, page: Page) -> None:
        given = self._given_out()
        for name, writer in list(self._streams.items()):
            if writer.lines:
                page.count(name, given.get(name, 0), writer.lost)
        page.explain(self._reasons())
        page.beat(self.info.heartbeat, closed=self.info.closed)
        if self._ended is not None:
            page.end(self._ended)

    def _given_out(self) -> dict[str, int]:
        """Numbers given out, by stream; while the process records, without those of the last moment.

        Between its number and its line an event is not recorded yet: a kill there must not look like a loss.
        """
        now, given = time.monotonic(), {name: writer.lines for name, writer in list(self._streams.items())}
        if self._closed:
            return given
        then, before = self._latest
        if now - then >= StoreLimits.line_settled_s:
            self._settled |= {
                name: max(number, self._settled.get(name, 0)) for name, number in before.items()
            }
            self._latest = now, given
        return {name: self._settled.get(name, 0) for name in given}

    def _reasons(self) -> dict[str, int]:
        """Why lines were lost, with counts; 0 for what makes lines wait."""
        reasons: dict[str, int] = {}
        for writer in list(self._streams.values()):
            for reason, number in list(writer.reasons.items()):
                reasons[reason] = reasons.get(reason, 0) + number
            if writer.waiting_for is not None:
                reasons.setdefault(writer.waiting_for, 0)
        return reasons

    def flush(self) -> None:
        """Bring what stands in the tails into the files."""
        for writer in list(self._streams.values()):
            writer.check()
            writer.flush()

    def sync(self) -> None:
        """Flush, and wait until the disk has it."""
        for writer in list(self._streams.values()):
            writer.sync()

    def close(self) -> None:
        """Flush and close every stream; what is recorded after this is counted as lost."""
        self._closed = True
        for writer in list(self._streams.values()):
            writer.check()
            writer.close()

    def abandon(self) -> None:
        """Forget everything without touching the disk, in a forked child."""
        self._page, self._abandoned = None, True
        for writer in self._streams.values():
            writer.abandon()

    def tally(self) -> layout.WriterInfo:
        """The note of who writes, brought up to date."""
        info, streams = self.info, list(self._streams.items())
        info.lines = {name: number for name, number in self._given_out().items() if number}
        info.lost = {name: writer.lost for name, writer in streams if writer.lost}
        info.reasons = {reason: number for reason, number in self._reasons().items() if number}
        info.counted = self._page is not None
        info.bytes = sum(writer.written for _, writer in streams)
        info.drain_s = sum(writer.drain_s for _, writer in streams)
        return info

    def save(self) -> None:
        """Write the note; a process that joined and has written nothing leaves none."""
        info = self.tally()
        if not info.owner and not any(writer.lines for writer in list(self._streams.values())):
            return
        page = self.open_page()
        if page is not None:
            self._fill(page)
            info.counted = self._renew(page) is not None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_document(self.folder / layout.WRITER, info)
        except OSError as error:
            reason = error.strerror or str(error)
            self._on_trouble(reason, f"cannot write {self.folder / layout.WRITER}: {reason}")


def make_writer_info(
    writer: str, host: str, *, owner: bool, started: str, anchor_ns: int
) -> layout.WriterInfo:
    """The note of this very process."""
    pid = os.getpid()
    return layout.WriterInfo(
        writer=writer,
        pid=pid,
        host=host,
        pid_start=process_start(pid),
        started=started,
        heartbeat=started,
        owner=owner,
        wall_anchor_ns=anchor_ns,
    )


def new_token() -> str:
    """Eight hex digits that no other writer or run has; no state that a fork could copy."""
    return os.urandom(4).hex()
