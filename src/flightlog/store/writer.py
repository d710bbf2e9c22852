"""Everything one process writes into one run: its streams, and the note of who it is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from flightlog.store import layout
from flightlog.store.documents import write_document
from flightlog.store.liveness import process_start
from flightlog.store.stream import ROTATE_BYTES, StreamWriter


class RunWriter:
    """The streams of one process in one run, opened as they are first used.

    The owner, the process that made the run, writes the top-level files; any other process writes files of its
    own in its folder. `on_trouble` is told the kind and the story each time the disk refuses, `on_open` each time a stream opens its file.
    Thread-safe; a forked child must call
    `abandon` and make a writer of its own.
    """

    def __init__(
        self,
        run: Path,
        info: layout.WriterInfo,
        *,
        rotate_bytes: int = ROTATE_BYTES,
        on_trouble: Callable[[str, str], None] = lambda _kind, _message: None,
        on_open: Callable[[], None] = lambda: None,
    ) -> None:
        self.info = info
        self.folder = layout.writer_folder(run, info.writer)
        self._run = run
        self._rotate_bytes = rotate_bytes
        self._on_trouble = on_trouble
        self._on_open = on_open
        self._lock = threading.RLock()  # a signal handler may record in the middle of it
        self._streams: dict[str, StreamWriter] = {}
        self._closed = False

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
                    )
                    if self._closed:
                        writer.close()
        return writer

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
        for writer in self._streams.values():
            writer.abandon()

    def tally(self) -> layout.WriterInfo:
        """The note of who writes, brought up to date."""
        info, streams = self.info, list(self._streams.items())
        info.lines = {name: writer.lines for name, writer in streams if writer.lines}
        info.lost = {name: writer.lost for name, writer in streams if writer.lost}
        reasons: dict[str, int] = {}
        for _, writer in streams:
            for reason, number in writer.reasons.items():
                reasons[reason] = reasons.get(reason, 0) + number
        info.reasons = reasons
        info.bytes = sum(writer.written for _, writer in streams)
        info.drain_s = sum(writer.drain_s for _, writer in streams)
        return info

    def save(self) -> None:
        """Write the note; a process that joined and has written nothing leaves none."""
        info = self.tally()
        if not info.lines and not info.owner:
            return
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
