"""Events out of JSON Lines, a block at a time: bounded memory, and one bad line costs no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flightlog.events.devices.bulk import BulkDecoder
from flightlog.events.devices.event import TelemetryEvent
from flightlog.store.devices.records import (
    UNREADABLE,
    CutShort,
    RecordReader,
    chunks_of,
    is_object,
    parse,
)
from flightlog.store.devices.tally import Tally
from flightlog.store.long_lines import MAX_LINE_BYTES

_PADDING = b"\0 \t\r"  # blanks, and what a power cut leaves


class TelemetryLines:
    """The events of one file of lines, in the order of the file; iterate once.

    Lines end with a newline and with nothing else. A byte order mark is ignored. The last line may lack its
    newline, and is torn where it holds no whole record. Where the tally is not strict, a block of lines in
    which every event is valid is decoded in one step, and its records need not stand on lines of their own.
    """

    def __init__(self, path: Path, reader: RecordReader, tally: Tally) -> None:
        self._path, self._reader, self._tally = path, reader, tally
        self._bulk = BulkDecoder()
        self._line = self._offset = 0

    def batches(self) -> Iterator[list[TelemetryEvent]]:
        """Lists of events, none of them empty. Raises OSError."""
        rest = b""
        for block, whole in self._blocks():
            if whole:
                events = self._events(block)
                self._offset += len(block)
                if events:
                    self._tally.read += len(events)
                    yield events
            else:
                rest = block
        last = self._last(rest)
        if last is not None:
            self._tally.read += 1
            yield [last]

    def _blocks(self) -> Iterator[tuple[bytes, bool]]:
        """Blocks of whole lines, newlines included; then what stands behind the last newline, marked
        False.
        """
        rest, skipping = b"", False
        try:
            for chunk in chunks_of(self._path):
                cut = chunk.rfind(b"\n") + 1
                if skipping and cut:
                    skipping = False
                    begin = chunk.index(b"\n") + 1
                    self._offset += begin
                    yield chunk[begin:cut], True
                elif cut:
                    yield rest + chunk[:cut], True
                elif skipping or len(rest) + len(chunk) > MAX_LINE_BYTES:
                    if not skipping:
                        self._skip_too_long()
                    self._offset += len(rest) + len(chunk)
                    skipping = True
                    rest = b""
                    continue
                rest = chunk[cut:] if cut else rest + chunk
        except CutShort:
            self._tally.tear(self._path)
            return
        yield rest, False

    def _events(self, block: bytes) -> list[TelemetryEvent]:
        if not self._tally.strict:
            events = self._bulk.lines(block)
            if events is not None:
                return events
        found: list[TelemetryEvent] = []
        offset = self._offset
        for line in block.split(b"\n")[:-1]:
            self._line += 1
            event = self._event(line, offset)
            if event is not None:
                found.append(event)
            offset += len(line) + 1
        return found

    def _event(self, line: bytes, offset: int) -> TelemetryEvent | None:
        bare = line.strip() if self._tally.strict else line.strip(_PADDING)
        if not bare:
            if line.strip():
                self._tally.skip(self._place(offset), ValueError("zeros where a line was not written"))
            return None
        events = self._bulk.lines(bare)
        if events is not None and len(events) == 1:
            return events[0]
        try:
            record = parse(bare)
        except UNREADABLE as error:
            self._refuse_malformed(offset, error)
            return None
        if not is_object(record):
            self._tally.skip(
                self._place(offset), ValueError(self._complaint("Telemetry record", "must be an object"))
            )
            return None
        try:
            return self._reader.event(record)
        except ValueError as error:
            self._tally.skip(self._place(offset), error)
            return None

    def _last(self, line: bytes) -> TelemetryEvent | None:
        """The event of a last line without newline, if it holds one."""
        if not line.strip(_PADDING):
            return None
        self._line += 1
        try:
            parse(line.strip(_PADDING))
        except UNREADABLE:
            self._tally.tear(self._path)
            return None
        return self._event(line, self._offset)

    def _refuse_malformed(self, offset: int, cause: Exception) -> None:
        if self._tally.strict:
            raise ValueError(self._complaint("Malformed telemetry JSONL record")) from cause
        self._tally.skip(self._place(offset), ValueError("no JSON object"))

    def _skip_too_long(self) -> None:
        self._line += 1
        place = self._place(self._offset)
        self._tally.skip(place, ValueError(self._complaint("Malformed telemetry JSONL record")))

    def _complaint(self, what: str, how: str = "") -> str:
        if self._tally.strict:
            return f"{what} in {self._path} at line {self._line} {how}".rstrip()
        return f"{what} {how}".rstrip()

    def _place(self, offset: int) -> str:
        return f"{self._path.name}, byte {offset:,}"
