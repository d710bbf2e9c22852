"""Reading device-memory telemetry from JSON, JSON Lines and sink folders, gzipped or not.

Events come one by one in bounded memory, and what was skipped is counted: one bad line or record costs no
other.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from errno import ENOENT
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from flightlog.core.text import words
from flightlog.events.devices.event import (
    SessionSummary,
    TelemetryEvent,
    preference,
    stable_legacy_session_id,
    summary_of_events,
)
from flightlog.events.devices.projection import ProjectedTelemetryRecord, project_telemetry_events, unique
from flightlog.events.devices.records import BulkDecoder, telemetry_event_from_file_record
from flightlog.store.devices.manifest import MANIFEST, SinkManifest, read_manifest, segment_paths
from flightlog.store.read.files import MAX_LINE_BYTES, open_regular

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
        self._told: list[str] = []
        self._met = 0

    @property
    def problems(self) -> list[str]:
        """What was skipped and why, in sentences, the first ones one by one."""
        more = self._met - len(self._told)
        return [*self._told, f"and {more:,} more"] if more else list(self._told)

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

    def fail_if_nothing_was_read(self) -> None:
        """Raise the first problem where there were bad records and no others."""
        if self.skipped and not self.read:
            raise ValueError(self._told[0])

    def _note(self, problem: str) -> None:
        self._met += 1
        if len(self._told) < MAX_PROBLEMS:
            self._told.append(problem)


class TelemetryReading(Tally):
    """The events of a JSON file, a file of JSON lines, either of them packed by gzip, or a sink folder.

    Iterate once: events come in the order of the files, and the counts `read`, `skipped`, `torn` and
    `problems` are right when the iteration has ended. Memory does not grow with the number of events. Bad
    records are skipped and counted; with `strict` the first one raises ValueError. What cannot be opened
    raises OSError.

    Records that name no session belong to one made of the path: the same file has the same session each time.
    """

    def __init__(
        self,
        path: str | Path,
        permissive_legacy: bool = True,
        events_key: str | None = None,
        *,
        strict: bool = False,
    ) -> None:
        super().__init__(strict=strict)
        self.path = Path(path)
        self.manifest: SinkManifest | None = read_manifest(self.path)
        """The sink folder's manifest, where there is one."""
        self._permissive, self._key = permissive_legacy, events_key

    def __iter__(self) -> Iterator[TelemetryEvent]:
        return chain.from_iterable(self.batches())

    def batches(self) -> Iterator[list[TelemetryEvent]]:
        """The events in lists of about a thousand, none of them empty."""
        for _, batch in self.by_source():
            if batch:
                yield batch

    def by_source(self) -> Iterator[tuple[Path, list[TelemetryEvent]]]:
        """The events with the file they stand in; each file comes at least once, with an empty list if need
        be.
        """
        segments = segment_paths(self.path, self.manifest)
        if segments or self._is_sink():
            for segment in segments:
                yield segment, []
                try:
                    for batch in TelemetryLines(segment, self._reader(segment), self).batches():
                        yield segment, batch
                except FileNotFoundError:
                    self.note_gone(segment)
            return
        if self.path.is_dir():
            raise FileNotFoundError(ENOENT, "no telemetry segments in this folder", str(self.path))
        document = TelemetryDocument(self.path, self._key, self._reader(None), self)
        for batch in document.batches():
            yield self.path.resolve(), batch

    def session_of(self, segment: Path) -> str:
        """The session of a segment's records that name none: the manifest's, or one made of the path."""
        named = (
            entry.session_id
            for entry in (self.manifest.segments if self.manifest else [])
            if entry.filename == segment.name
        )
        return next(named, None) or stable_legacy_session_id(str(self.path.resolve()), "sink")

    def _is_sink(self) -> bool:
        return self.manifest is not None and (self.path.is_dir() or self.path.name == MANIFEST)

    def _reader(self, segment: Path | None) -> RecordReader:
        """How the records of a file become events; those that name no session are of the file's."""
        whole = stable_legacy_session_id(str(self.path.resolve()), self._key or "json")
        return partial(
            telemetry_event_from_file_record,
            permissive_legacy=self._permissive,
            default_session_id=whole if segment is None else self.session_of(segment),
        )


@dataclass
class LoadedTelemetrySession:
    """One session: its summary, its events by time, the files they stood in, and what was skipped there."""

    summary: SessionSummary
    events: list[TelemetryEvent]
    sources_loaded: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def telemetry_records(self) -> list[ProjectedTelemetryRecord]:
        """The events in a shape that does not depend on the backend."""
        return project_telemetry_events(self.events)

    def resources(self) -> list[dict[str, Any]]:
        """Where the events happened, each resource once."""
        return unique(record.resource for record in self.telemetry_records())

    def correlations(self) -> list[dict[str, Any]]:
        """What the events belong to, each context once."""
        return unique(record.correlation for record in self.telemetry_records())


def load_telemetry_sessions(
    path: str | Path,
    permissive_legacy: bool = True,
    events_key: str | None = None,
    *,
    strict: bool = False,
) -> list[LoadedTelemetrySession]:
    """The sessions in a JSON file, a file of JSON lines or a sink folder, the preferred one first.

    Completed sessions come before interrupted, incomplete and running ones, later ones before earlier. A
    sink's manifest says how its sessions ended; of others a `stop` event tells. Events are sorted by time.
    Bad records are skipped and counted in `warnings`; with `strict` they raise ValueError. So does a file in
    which every record is bad.
    """
    reading = TelemetryReading(path, permissive_legacy, events_key, strict=strict)
    events: dict[str, list[TelemetryEvent]] = {}
    sources: dict[str, set[str]] = {}
    empty: dict[Path, bool] = {}
    for source, batch in reading.by_source():
        empty[source] = empty.get(source, True) and not batch
        ids = {event.session_id for event in batch}
        for session_id in ids:
            mine = batch if len(ids) == 1 else [event for event in batch if event.session_id == session_id]
            events.setdefault(session_id, []).extend(mine)
            sources.setdefault(session_id, set()).add(str(source))
    manifest = reading.manifest
    summaries = {summary.session_id: summary for summary in (manifest.sessions if manifest else [])}
    if not events and not summaries:
        reading.fail_if_nothing_was_read()
    if manifest is not None:
        for source in (source for source, nothing in empty.items() if nothing):
            sources.setdefault(reading.session_of(source), set()).add(str(source))
    for found in events.values():
        found.sort(key=attrgetter("timestamp_ns"))
    whole = reading.path.resolve()
    loaded = [
        LoadedTelemetrySession(
            summary=summaries.get(session_id)
            or summary_of_events(events[session_id], source=f"artifact:{reading.path.name or whole}"),
            events=events.get(session_id, []),
            sources_loaded=sorted(sources.get(session_id, {str(whole)})),
            warnings=reading.problems,
        )
        for session_id in events.keys() | summaries.keys()
    ]
    return sorted(loaded, key=lambda session: preference(session.summary))


def load_telemetry_events(
    path: str | Path,
    permissive_legacy: bool = True,
    events_key: str | None = None,
    session_id: str | None = None,
    *,
    strict: bool = False,
) -> list[TelemetryEvent]:
    """The events of one session, by time: the one named, or the preferred one of those that have any.

    As `load_telemetry_sessions`; a session that is not there raises ValueError.
    """
    sessions = load_telemetry_sessions(path, permissive_legacy, events_key, strict=strict)
    if session_id is None:
        return next((session.events for session in sessions if session.events), [])
    for session in sessions:
        if session.summary.session_id == session_id:
            return session.events
    raise ValueError(f"Requested session_id not found: {session_id}")


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


RecordReader = Callable[[Mapping[str, Any]], TelemetryEvent]
"""Gives the event of a record; raises ValueError for one that breaks a rule."""


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


def joined(chunks: Iterable[bytes]) -> bytes:
    """The pieces of a file in one; a ValueError where they are more than may be held."""
    whole = bytearray()
    for chunk in chunks:
        whole += chunk
        if len(whole) > HELD_BYTES:
            raise ValueError(TOO_LARGE)
    return bytes(whole)


def parse(text: bytes) -> Any:
    """The value of a JSON text, as Python's own parser sees it; raises ValueError."""
    try:
        return json.loads(text.decode())
    except RecursionError:
        raise ValueError("its values stand too deep inside one another") from None


def in_batches(events: Iterator[TelemetryEvent]) -> Iterator[list[TelemetryEvent]]:
    """The events in lists of a thousand."""
    while batch := list(islice(events, 1000)):
        yield batch


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
        if not isinstance(record, Mapping):
            self._tally.skip(
                self._place(offset), ValueError(self._complaint("Telemetry record", "must be an object"))
            )
            return None
        try:
            return self._reader(record)
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
_EVENT_KEYS = words("schema_version event_type type memory_allocated memory_mb timestamp timestamp_ns")


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
            # It is the file.
            raise ValueError("Telemetry payload must be a JSON object or array")  # noqa: TRY004
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
                if not isinstance(record, Mapping):
                    raise ValueError(f"Event at index {index} must be an object")  # noqa: TRY004
        for record in records:
            place = f"{self._path.name}, record {self._index}"
            if isinstance(record, Mapping):
                try:
                    yield self._reader(record)
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
