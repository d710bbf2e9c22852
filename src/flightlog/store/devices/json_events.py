"""Events out of JSON Lines, a block at a time: bounded memory, and one bad line costs no other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from flightlog.events.devices.event import TelemetryEvent
from flightlog.events.devices.records import BulkDecoder
from flightlog.store.devices.records import (
    CHUNK_BYTES,
    HELD_BYTES,
    TOO_LARGE,
    UNREADABLE,
    CutShort,
    RecordReader,
    Tally,
    chunks_of,
    in_batches,
    is_object,
    joined,
    parse,
)
from flightlog.store.read.files import MAX_LINE_BYTES

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


_SPACE = b" \t\r\n"
_TRIES = 4
_EVENT_KEYS = frozenset(
    {
        "schema_version",
        "event_type",
        "type",
        "memory_allocated",
        "memory_mb",
        "timestamp",
        "timestamp_ns",
    }
)


class TelemetryDocument:
    """The events of one JSON document, in its order; iterate once.

    A document that is no telemetry raises ValueError, strict or not. When strict, and where the document is
    an object, it is held in memory as a whole; its events are not.
    """

    def __init__(self, path: Path, events_key: str | None, reader: RecordReader, tally: Tally) -> None:
        self._path, self._key, self._reader, self._tally = path, events_key, reader, tally
        self._bulk = BulkDecoder()
        self._index = 0

    def batches(self) -> Iterator[list[TelemetryEvent]]:
        """Lists of events, none of them empty. Raises OSError."""
        for events in self._batches():
            if events:
                self._tally.read += len(events)
                yield events

    def _batches(self) -> Iterator[list[TelemetryEvent]]:
        chunks = chunks_of(self._path)
        if self._tally.strict:
            document = parse(joined(chunks))
            yield from in_batches(self._convert(self._records(document, lambda value: value)))
            return
        head = next(chunks, b"").lstrip(_SPACE)
        if head.startswith(b"["):
            yield from self._array(head[1:], chunks)
            return
        members = _members(joined(chain([head], chunks)))
        records = self._records(members, lambda raw: _value(bytes(raw)))
        if isinstance(records, _Text):
            yield from self._array(b"", _pieces(records[1:]))
        else:
            yield from in_batches(self._convert(records))

    def _records(self, document: Any, value: Callable[[Any], Any]) -> Any:
        """The list of records in a document; `value` gives a member's, which may be a text still."""
        if isinstance(document, list):
            return document
        if not isinstance(document, Mapping):
            raise ValueError("Telemetry payload must be a JSON object or array")  # noqa: TRY004 - it is the file
        if self._key is not None:
            records = value(document[self._key]) if self._key in document else None
            if not isinstance(records, list | _Text):
                raise ValueError(f"Top-level key '{self._key}' must contain a list of events")
            return records
        if "events" in document and isinstance(records := value(document["events"]), list | _Text):
            return records
        if _EVENT_KEYS & document.keys():
            return [{name: _whole(value(member)) for name, member in document.items()}]
        raise ValueError("JSON payload does not contain telemetry events")

    def _array(self, window: bytes, chunks: Iterator[bytes]) -> Iterator[list[TelemetryEvent]]:
        """The events of an array whose bracket has been read, as far as it can be read."""
        enough, ended = CHUNK_BYTES, False
        while not ended:
            pieces, size = [window], len(window)
            while size < enough and not ended:
                piece = self._next(chunks)
                pieces.append(piece)
                size += len(piece)
                ended = not piece
            window = b"".join(pieces)
            if ended:
                break
            cut, events = len(window), None
            for _ in range(_TRIES):
                cut = window.rfind(b"},", 0, cut)
                events = self._window(b"[%b}]" % window[:cut]) if cut >= 0 else None
                if events is not None or cut < 0:
                    break
            if events is None:
                enough = 2 * len(window)  # a longer window ends elsewhere
                if enough > HELD_BYTES:
                    raise ValueError(TOO_LARGE)
                continue
            yield events
            window, enough = window[cut + 2 :], CHUNK_BYTES
        yield self._rest(window)

    def _next(self, chunks: Iterator[bytes]) -> bytes:
        try:
            return next(chunks, b"")
        except CutShort:  # what is missing shows at the end of the array
            return b""

    def _window(self, text: bytes) -> list[TelemetryEvent] | None:
        events = self._bulk.array(text)
        if events is not None:
            self._index += len(events)
            return events
        try:
            records = parse(text)
        except UNREADABLE:
            return None
        return list(self._convert(records))

    def _rest(self, window: bytes) -> list[TelemetryEvent]:
        """The end of an array; of one that breaks off, every record before that."""
        events = self._window(b"[" + window)
        if events is not None:
            return events
        found: list[Any] = []
        text = window.decode("utf-8", "replace")
        decoder, at = json.JSONDecoder(), 0
        try:
            while (at := len(text) - len(text[at:].lstrip(" \t\r\n,"))) < len(text):
                record, at = decoder.raw_decode(text, at)
                found.append(record)
        except UNREADABLE:
            self._tally.tear(self._path)
        return list(self._convert(found))

    def _convert(self, records: list[Any]) -> Iterator[TelemetryEvent]:
        if self._tally.strict:
            for index, record in enumerate(records):
                if not is_object(record):
                    raise ValueError(f"Event at index {index} must be an object")
        for record in records:
            place = f"{self._path.name}, record {self._index}"
            if is_object(record):
                try:
                    yield self._reader.event(record)
                except ValueError as error:
                    self._tally.skip(place, error)
            else:
                self._tally.skip(place, ValueError(f"Event at index {self._index} must be an object"))
            self._index += 1


class _Text(bytes):
    """The JSON text of an array."""


def _members(text: bytes) -> Any:
    """A document's members as texts, or its value where it is no object; raises ValueError for no JSON."""
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = parse(text)
    if isinstance(value, dict):
        return {name: json.dumps(member).encode() for name, member in value.items()}
    return value


def _value(text: bytes) -> Any:
    bare = text.lstrip(_SPACE)
    return _Text(bare) if bare.startswith(b"[") else parse(bare)


def _pieces(text: bytes) -> Iterator[bytes]:
    return (text[at : at + CHUNK_BYTES] for at in range(0, len(text), CHUNK_BYTES))


def _whole(value: Any) -> Any:
    return parse(value) if isinstance(value, _Text) else value
