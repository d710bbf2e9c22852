"""Records of a file to events, with what the file says of them; and the file itself, packed or not."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from flightlog.events.devices.event import TelemetryEvent
from flightlog.events.devices.records import telemetry_event_from_file_record
from flightlog.store.read.files import open_regular

BOM = b"\xef\xbb\xbf"
CHUNK_BYTES = 1 << 17
HELD_BYTES = 256 << 20
"""So much of a file is held in memory at most, unpacked; lines, and records of an array, are read a piece at
a time."""
TOO_LARGE = (
    f"more than {HELD_BYTES >> 20} MiB, unpacked, stand in one JSON object, which has to be read as a whole: "
    "have the events as JSON lines, or as an array"
)
UNREADABLE = (ValueError, RecursionError)
"""What text that is no JSON raises: broken syntax, broken UTF-8, numbers without end, nesting without end."""
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class RecordReader:
    """How the records of a file become events: `session_id` is the session of those that name none."""

    session_id: str | None
    permissive_legacy: bool = True

    def event(self, record: Mapping[str, Any]) -> TelemetryEvent:
        """The event of a record; raises ValueError for one that breaks a rule."""
        return telemetry_event_from_file_record(
            record, permissive_legacy=self.permissive_legacy, default_session_id=self.session_id
        )


class CutShort(ValueError):  # noqa: N818 - reads as what happened
    """A packed file breaks off; everything before that was given out."""


def chunks_of(path: Path) -> Iterator[bytes]:
    """The file's bytes, a piece at a time, unpacked where it is gzip, whatever its name.

    A byte order mark is left out. Raises OSError, and `CutShort` behind the last byte of a packed file that
    is not whole.
    """
    with open_regular(path) as plain:
        source = gzip.GzipFile(fileobj=plain) if plain.peek(2).startswith(_GZIP) else plain
        begun = False
        while True:
            pieces: list[bytes] = []
            size, cut = 0, False
            while size < CHUNK_BYTES and not cut:
                try:
                    piece = source.read1(CHUNK_BYTES - size)
                except (EOFError, zlib.error, gzip.BadGzipFile):
                    cut = True
                else:
                    if not piece:
                        break
                    pieces.append(piece)
                    size += len(piece)
            if size:
                chunk = b"".join(pieces)
                yield chunk if begun else chunk.removeprefix(BOM)
                begun = True
            if cut:
                raise CutShort(f"{path.name} is packed by gzip, and breaks off or is damaged")
            if size < CHUNK_BYTES:
                return


def joined(chunks: Iterable[bytes], limit: int = HELD_BYTES) -> bytes:
    """The pieces of a file in one; a ValueError where they are more than `limit` bytes."""
    pieces: list[bytes] = []
    for chunk in chunks:
        limit -= len(chunk)
        if limit < 0:
            raise ValueError(TOO_LARGE)
        pieces.append(chunk)
    return b"".join(pieces)


def parse(text: bytes) -> Any:
    """The value of a JSON text, as Python's own parser sees it; raises ValueError."""
    try:
        return json.loads(text.decode())
    except RecursionError:
        raise ValueError("its values stand too deep inside one another") from None


def is_object(value: Any) -> bool:
    """Whether a JSON value is an object."""
    return isinstance(value, Mapping)


def in_batches(events: Iterable[TelemetryEvent], size: int = 1000) -> Iterator[list[TelemetryEvent]]:
    """The events in lists of so many."""
    batch: list[TelemetryEvent] = []
    for event in events:
        batch.append(event)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


MAX_PROBLEMS = 20
"""Problems that are told one by one; all are counted."""


class Tally:
    """Counts of one reading; `strict` makes the first bad record an error instead.

    `read` events were given out. `skipped` records break a rule, or are no records at all. `torn` counts
    files that end in the middle of a record, as those of killed writers do: that is no error even when
    strict.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.read = self.skipped = self.torn = 0
        self.problems: list[str] = []
        self._met = 0

    def skip(self, where: str, error: Exception) -> None:
        """Count a bad record and say what is wrong with it; raise the error when strict."""
        if self.strict:
            raise error
        self.skipped += 1
        self._note(f"{where}: {error}")

    def tear(self, path: Path) -> None:
        """Count a file that ends in the middle of a record."""
        self.torn += 1
        self._note(f"{path.name} ends in the middle of a record")

    def note_gone(self, path: Path) -> None:
        """Say that a file went away, by retention or by hand."""
        self._note(f"{path.name} is not there any more")

    def warnings(self) -> list[str]:
        """All of this in sentences; none for files that are whole."""
        told = list(self.problems)
        if self._met > len(told):
            told.append(f"and {self._met - len(told):,} more")
        return told

    def raise_first(self) -> NoReturn:
        """Fail with the first problem, for a reading that gave nothing at all."""
        raise ValueError(self.problems[0])

    def _note(self, problem: str) -> None:
        self._met += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
