"""What a server has accepted of a run, stored beside it: the next export resumes there and sends nothing twice.

A request without an answer may have been accepted: it is sent again with the same ids and times, by which
servers recognize it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field

from flightlog.core.errors import FlightlogError
from flightlog.core.locks import try_lock
from flightlog.export.otlp.batches import Batch
from flightlog.store import layout
from flightlog.store.documents import read_document, write_document
from flightlog.store.read.completeness import Coverage

_SIGNAL = re.compile(r"/v1/(traces|metrics|logs)(?=\?|$)")


class Notes(Struct, kw_only=True):
    """The document: lines by stream and writer as ranges of their numbers, and how far the rest has come."""

    address: str = ""
    lines: dict[str, dict[str, list[tuple[int, int]]]] = field(default_factory=dict)
    unnumbered: dict[str, int] = field(default_factory=dict)
    counted_until_ns: int = 0
    durations_ns: int = 0
    endings: int = 0
    taken: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)


class Sent:
    """What has been taken so far. `path` None keeps nothing beyond this process.

    `problem` says why notes could not be read or written; sending goes on then.
    """

    def __init__(self, path: Path | None = None, *, address: str = "", again: bool = False) -> None:
        self.problem: str | None = None
        self._path, self._changed = path, False
        read = None if path is None or again else read_document(path, Notes).value
        if path is not None and read is None and not again and path.is_file():
            self.problem = (
                f"{path} could not be read, where it is noted what was sent before: all of it was sent again"
            )
        self.notes = read or Notes()
        self.notes.address = address
        self._lines = {
            stream: {writer: Coverage.of(ranges) for writer, ranges in writers.items()}
            for stream, writers in self.notes.lines.items()
        }

    def has(self, stream: str, writer: str, number: int) -> bool:
        """Whether a line has been dealt with; of lines without a number, the first so many have."""
        if not writer:
            return number < self.notes.unnumbered.get(stream, 0)
        found = self._lines.get(stream, {}).get(writer)
        return found is not None and number in found

    def accept(self, batch: Batch, refused: int = 0) -> None:
        """A batch was taken, less so many items that the server will never take."""
        self._changed = True
        for stream, writer, number in batch.marks:
            if writer:
                self._lines.setdefault(stream, {}).setdefault(writer, Coverage()).add(number)
            else:
                self.notes.unnumbered[stream] = max(self.notes.unnumbered.get(stream, 0), number + 1)
        self.notes.counted_until_ns = max(self.notes.counted_until_ns, batch.counted_until_ns)
        self.notes.durations_ns = max(self.notes.durations_ns, batch.durations_ns)
        self.notes.endings += batch.endings
        taken, signal = self.notes.taken, batch.signal
        taken[signal] = taken.get(signal, 0) + len(batch.items) - refused
        if refused:
            self.notes.refused[signal] = self.notes.refused.get(signal, 0) + refused

    def save(self) -> None:
        """Write the notes down; a folder that refuses them is a problem to tell, and no more."""
        if self._path is None or not self._changed:
            return
        self._changed = False
        self.notes.lines = {
            stream: {writer: seen.ranges() for writer, seen in writers.items()}
            for stream, writers in self._lines.items()
        }
        try:
            self._path.parent.mkdir(exist_ok=True)
            write_document(self._path, self.notes)
        except OSError as error:
            self.problem = (
                f"what was sent cannot be noted in {self._path.parent} ({error.strerror or error}): "
                "another export will send it again"
            )


def notes_file(run: Path, addresses: Iterable[str]) -> Path:
    """Where it is noted what these addresses have taken of a run; the name tells no address, which may hold
    secrets.

    One server has one file, whichever signals it is sent: an export of all after one of traces sends the
    rest.
    """
    places = sorted({_SIGNAL.sub("", address, count=1) for address in addresses})
    token = hashlib.sha256("\n".join(places).encode()).hexdigest()[:12]
    return run / layout.FOLLOWERS / f"otlp-{token}.json"


@contextmanager
def alone(path: Path, where: str) -> Iterator[None]:
    """Send to one place from one process at a time; raises `FlightlogError` where another one does.

    A folder that cannot be written guards nothing.
    """
    file = path.with_suffix(".lock")
    try:
        path.parent.mkdir(exist_ok=True)
        lock = try_lock(file, mode=0o644)
    except OSError:
        yield
        return
    if lock is None:
        pid = file.read_bytes().decode("ascii", "replace").strip() or "unknown"
        raise FlightlogError(
            f"the run is being sent to {where} already, by process {pid}: wait until it has ended, "
            "or end that process and send again, which goes on where it stopped"
        )
    try:
        lock.write(f"{os.getpid()}\n".encode())
        yield
    finally:
        lock.release()
