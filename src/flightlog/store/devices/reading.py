"""Reading device-memory telemetry from JSON, JSON Lines and sink folders, gzipped or not.

Events come one by one in bounded memory, and what was skipped is counted: one bad line or record costs no
other. A sink folder's `manifest.json` names its sessions and its segments.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from errno import ENOENT
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, structs

from flightlog.core.text import words
from flightlog.events.devices.event import (
    SESSION_STATUSES,
    SessionSummary,
    TelemetryEvent,
    preference,
    stable_legacy_session_id,
    summary_of_events,
)
from flightlog.events.devices.projection import ProjectedTelemetryRecord, project_telemetry_events, unique
from flightlog.events.devices.records import BulkDecoder, telemetry_event_from_file_record
from flightlog.store.documents import decode_document, read_document
from flightlog.store.limits import StoreLimits
from flightlog.store.read.files import open_regular

MANIFEST = "manifest.json"
ROLLUPS = "rollups.json"
BUNDLE_EVENTS = "events.json"
"""The events of an out-of-memory bundle of Stormlog's."""
MANIFEST_SCHEMA_VERSION = 2
MANIFEST_FORMAT = "stormlog.append_only_telemetry_sink"
_SEGMENT = re.compile(r"segment-(\d+)\.jsonl(\.gz)?")

T = TypeVar("T", bound=Struct)
_Count = Annotated[int, Meta(ge=0)]


class SinkSegment(Struct):
    """One file of lines in a sink folder. The counts of one that is open lag behind the file."""

    filename: str
    event_count: _Count = 0
    size_bytes: _Count = 0
    closed: bool = True
    session_id: str | None = None


class SinkManifest(Struct):
    """What `manifest.json` says."""

    schema_version: int = MANIFEST_SCHEMA_VERSION
    format: str = MANIFEST_FORMAT
    sessions: list[SessionSummary] = []
    segments: list[SinkSegment] = []


def segment_name(number: int) -> str:
    """The name of the segment of this number, from 1."""
    return f"segment-{number:06d}.jsonl"


def segment_number(name: str) -> int:
    """The number in a segment's name; 0 for a file that is none."""
    found = _SEGMENT.fullmatch(name)
    return int(found[1]) if found else 0


def is_lines_file(path: Path) -> bool:
    """Whether a file's name says that it holds lines."""
    return path.name.endswith((".jsonl", ".jsonl.gz"))


def manifest_path(path: Path) -> Path | None:
    """The manifest of a sink folder, of a segment's folder, or the path itself; None where there is none."""
    of_sink = path.is_file() and (path.name == MANIFEST or is_lines_file(path))
    manifest = (path.parent if of_sink else path) / MANIFEST
    return manifest if manifest.is_file() else None


class _Document(Struct):
    """The manifest as it stands in the file: entries may be anything."""

    schema_version: Any = 1
    format: str = MANIFEST_FORMAT
    sessions: list[Any] = []
    segments: list[Any] = []


def read_manifest(path: Path) -> SinkManifest | None:
    """The manifest of a sink folder, of itself or of a segment's folder; None where there is none to be read.

    Entries that lack what they must have are left out. Numbers may be written as texts, and a status in any
    case. Odd counts are 0: the file itself can be counted.
    """
    where = manifest_path(path)
    found = None if where is None else read_document(where, _Document).value
    if found is None:
        return None
    segments = _entries(found.segments, SinkSegment, closed=False)
    sessions = _entries(found.sessions, SessionSummary, ended_at_ns=None, pid=-1)
    return SinkManifest(
        schema_version=_plain({"is": found.schema_version}, {"is": int}).get("is") or 1,
        format=found.format or MANIFEST_FORMAT,
        sessions=[
            structs.replace(one, status=status, world_size=max(1, one.world_size))
            for one in sessions
            if (status := one.status.strip().lower()) in SESSION_STATUSES
        ],
        segments=[one for one in segments if Path(one.filename).name == one.filename],
    )


def _plain(record: Mapping[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a record in these types where they can be read so, such as numbers in texts; the others
    are left out.
    """
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        with suppress(msgspec.ValidationError):
            if name in record:
                found[name] = msgspec.convert(record[name], kind, strict=False)
    return found


def segment_paths(path: Path, manifest: SinkManifest | None) -> list[Path]:
    """The files of lines that a path stands for, by name: one of them itself, or all of a sink folder."""
    if is_lines_file(path) and path.is_file():
        return [path]
    folder = path.parent if path.name == MANIFEST and path.is_file() else path
    if not folder.is_dir():
        return []
    named = {segment.filename for segment in manifest.segments} if manifest else set()
    there = {file.name for file in folder.iterdir() if _SEGMENT.fullmatch(file.name)}
    return [folder / name for name in sorted(named | there)]


def _entries(found: list[Any], kind: type[T], **defaults: Any) -> list[T]:
    """The entries that are of this kind."""
    kinds = {field.name: field.type for field in structs.fields(kind)}
    records = (_plain(entry, kinds) for entry in found if isinstance(entry, dict))
    texts = (msgspec.json.encode({**defaults, **record}) for record in records)
    read = (decode_document(text, kind, MANIFEST).value for text in texts)
    return [entry for entry in read if entry is not None]


class Tally:
    """Counts of one reading; `strict` makes the first bad record an error instead.

    `read` events were given out. `skipped` records break a rule, or are no records at all. `torn` counts
    files that end in the middle of a record, as those of killed writers do: that is no error even when
    strict.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.read = self.skipped = self.torn = 0
        self._listed: list[str] = []
        self._noted = 0

    @property
    def problems(self) -> list[str]:
        """What was skipped and why, in sentences, the first ones one by one."""
        more = self._noted - len(self._listed)
        return [*self._listed, f"and {more:,} more"] if more else list(self._listed)

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
            raise ValueError(self._listed[0])

    def _note(self, problem: str) -> None:
        self._noted += 1
        if len(self._listed) < StoreLimits.max_listed_problems:
            self._listed.append(problem)


class TelemetryReading(Tally):
    """The events of a JSON file, a file of JSON lines, either of them packed by gzip, a sink folder, or an
    out-of-memory bundle.

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
        return (batch for _, batch in self.by_source() if batch)

    def by_source(self) -> Iterator[tuple[Path, list[TelemetryEvent]]]:
        """The events with the file they stand in; each file comes at least once, with an empty list if need
        be.
        """
        segments = segment_paths(self.path, self.manifest)
        bundle = self.path / BUNDLE_EVENTS
        document = bundle if not segments and bundle.is_file() else self.path
        if segments or (document is self.path and self._is_sink()):
            for segment in segments:
                yield segment, []
                try:
                    for batch in TelemetryLines(
                        segment, self._reader(self.session_of(segment)), self
                    ).batches():
                        self.read += len(batch)
                        yield segment, batch
                except FileNotFoundError:
                    self.note_gone(segment)
            return
        if document.is_dir():
            raise FileNotFoundError(ENOENT, "no telemetry segments in this folder", str(self.path))
        whole = document.resolve()
        reader = self._reader(stable_legacy_session_id(str(whole), self._key or "json"))
        for batch in TelemetryDocument(document, self._key, reader, self).batches():
            self.read += len(batch)
            yield whole, batch

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

    def _reader(self, session_id: str) -> RecordReader:
        """How the records of a file become events; those that name no session are of this one."""
        return partial(
            telemetry_event_from_file_record,
            permissive_legacy=self._permissive,
            default_session_id=session_id,
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
    path: str | Path, permissive_legacy: bool = True, events_key: str | None = None, *, strict: bool = False
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
    return events_of(load_telemetry_sessions(path, permissive_legacy, events_key, strict=strict), session_id)


def events_of(sessions: Iterable[LoadedTelemetrySession], session_id: str | None) -> list[TelemetryEvent]:
    """The events of the session that is named, or of the first that has any; ValueError without the named
    one.
    """
    for session in sessions:
        if session.summary.session_id == session_id or (session_id is None and session.events):
            return session.events
    if session_id is None:
        return []
    raise ValueError(f"Requested session_id not found: {session_id}")


BOM = b"\xef\xbb\xbf"


TOO_LARGE = (
    f"more than {StoreLimits.max_device_object_bytes >> 20} MiB, unpacked, stand in one JSON object, "
    "which has to be read as a whole: "
    "have the events as JSON lines, or as an array"
)
UNREADABLE = (ValueError, RecursionError)
"""What text that is no JSON raises: broken syntax, broken UTF-8, numbers without end, nesting without end."""
_GZIP = b"\x1f\x8b"


RecordReader = Callable[[Mapping[str, Any]], TelemetryEvent]
"""Gives the event of a record; raises ValueError for one that breaks a rule."""


class CutShort(ValueError):  # noqa: N818 - reads as what happened
    """A packed file breaks off; everything before that was given out."""


@contextmanager
def unpacked(path: Path) -> Iterator[Any]:
    """The file, open to be read, unpacked where it is gzip, whatever its name.

    Raises OSError, and `CutShort` behind the last byte of a packed file that is not whole.
    """
    with open_regular(path) as plain:
        try:
            yield gzip.GzipFile(fileobj=plain) if plain.peek(2).startswith(_GZIP) else plain
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise CutShort(f"{path.name} is packed by gzip, and breaks off or is damaged") from None


def chunks_of(path: Path) -> Iterator[bytes]:
    """The file's bytes as `unpacked` reads them, a piece at a time; a byte order mark is left out."""
    with unpacked(path) as source:
        yield source.read1(StoreLimits.device_chunk_bytes).removeprefix(BOM)
        while chunk := source.read1(StoreLimits.device_chunk_bytes):
            yield chunk


def joined(chunks: Iterable[bytes]) -> bytes:
    """The pieces of a file in one; a ValueError where they are more than may be held."""
    whole = bytearray()
    for chunk in chunks:
        whole += chunk
        if len(whole) > StoreLimits.max_device_object_bytes:
            raise ValueError(TOO_LARGE)
    return bytes(whole)


def parse(text: bytes) -> Any:
    """The value of a JSON text, as Python's own parser sees it; raises ValueError."""
    try:
        return json.loads(text.decode())
    except RecursionError:
        raise ValueError("its values stand too deep inside one another") from None


def _readable(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces of a file as far as it can be unpacked: that the rest is missing shows in its text."""
    with suppress(CutShort):
        yield from chunks


class _RecordsFile:
    """A file of records; what is wrong with it goes to the tally."""

    def __init__(self, path: Path, reader: RecordReader, tally: Tally) -> None:
        self._path, self._reader, self._tally = path, reader, tally
        self._bulk = BulkDecoder()

    def _event(self, record: Any, where: str, no_object: str) -> TelemetryEvent | None:
        """The event of a record; None where it was skipped."""
        error = ValueError(no_object)
        if isinstance(record, Mapping):
            try:
                return self._reader(record)
            except ValueError as broken:
                error = broken
        self._tally.skip(where, error)
        return None


_PADDING = b"\0 \t\r"  # blanks, and what a power cut leaves


class TelemetryLines(_RecordsFile):
    """The events of one file of lines, in the order of the file; iterate once.

    Lines end with a newline and with nothing else. A byte order mark is ignored. The last line may lack its
    newline, and is torn where it holds no whole record. Where the tally is not strict, a block of lines in
    which every event is valid is decoded in one step, and its records need not stand on lines of their own.
    """

    _line = _offset = 0

    def batches(self) -> Iterator[list[TelemetryEvent]]:
        """Lists of events. Raises OSError."""
        rest, too_long = b"", False
        try:
            for chunk in chunks_of(self._path):
                begin = chunk.find(b"\n") + 1 or len(chunk) if too_long else 0
                self._offset += begin
                end = chunk.rfind(b"\n") + 1
                too_long = too_long and not end
                if end > begin:
                    yield self._block(rest + chunk[begin:end])
                    rest = b""
                rest += chunk[max(begin, end) :]
                if len(rest) > StoreLimits.max_line_bytes:
                    self._line += 1
                    self._refuse("Malformed telemetry JSONL record", "Malformed telemetry JSONL record {}")
                    self._offset += len(rest)
                    rest, too_long = b"", True
        except CutShort:
            self._tally.tear(self._path)
            return
        if rest.strip(_PADDING):
            last = self._of_line(rest, is_last=True)
            yield [last] if last is not None else []

    def _block(self, block: bytes) -> list[TelemetryEvent]:
        """The events of whole lines."""
        events = None if self._tally.strict else self._bulk.lines(block)
        if events is not None:
            self._offset += len(block)
            return events
        found: list[TelemetryEvent] = []
        for line in block.split(b"\n")[:-1]:
            event = self._of_line(line)
            if event is not None:
                found.append(event)
            self._offset += len(line) + 1
        return found

    def _of_line(self, line: bytes, *, is_last: bool = False) -> TelemetryEvent | None:
        self._line += 1
        bare = line.strip() if self._tally.strict else line.strip(_PADDING)
        if not bare:
            if line.strip():
                self._refuse("zeros where a line was not written", "")
            return None
        events = self._bulk.lines(bare)
        if events is not None and len(events) == 1:
            return events[0]
        try:
            record = parse(bare)
        except UNREADABLE:
            if is_last:
                self._tally.tear(self._path)
            else:
                self._refuse("no JSON object", "Malformed telemetry JSONL record {}")
            return None
        where = f" {self._place}" if self._tally.strict else ""
        return self._event(record, self._where, f"Telemetry record{where} must be an object")

    def _refuse(self, said: str, said_when_strict: str) -> None:
        text = said_when_strict.format(self._place) if self._tally.strict else said
        self._tally.skip(self._where, ValueError(text))

    @property
    def _where(self) -> str:
        return f"{self._path.name}, byte {self._offset:,}"

    @property
    def _place(self) -> str:
        return f"in {self._path} at line {self._line}"


_SPACE = b" \t\r\n"
_MEMBER = re.compile(r'\s*[{,]\s*("(?:[^"\\]|\\.)*")\s*:\s*')

_EVENT_KEYS = words("schema_version event_type type memory_allocated memory_mb timestamp timestamp_ns")


class TelemetryDocument(_RecordsFile):
    """The events of one JSON document, in its order; iterate once.

    A document that is no telemetry raises ValueError, strict or not, and so does one that breaks off before
    its first record ends. When strict, and where the document is an object, it is held in memory as a whole;
    its events are not.
    """

    def __init__(self, path: Path, events_key: str | None, reader: RecordReader, tally: Tally) -> None:
        super().__init__(path, reader, tally)
        self._key, self._member = events_key, "events" if events_key is None else events_key
        self._index = 0

    def batches(self) -> Iterator[list[TelemetryEvent]]:
        """Lists of events. Raises OSError."""
        chunks = chunks_of(self._path)
        head = next(chunks, b"").lstrip(_SPACE)
        if head.startswith(b"[") and not self._tally.strict:
            yield from self._array(chain([head[1:]], chunks))
        elif self._tally.strict:
            yield from self._batches_of(parse(joined(chain([head], chunks))))
        else:
            yield from self._object(joined(chain([head], _readable(chunks))))

    def _object(self, text: bytes) -> Iterator[list[TelemetryEvent]]:
        """The events of an object: its array, a piece at a time, or what only Python can read."""
        array = self._array_in(text)
        if not array:
            try:
                document = parse(text)
            except UNREADABLE:
                array = self._array_in_torn(text)
                if not array:
                    raise
            else:
                yield from self._batches_of(document)
                return
        starts = range(1, len(array), StoreLimits.device_chunk_bytes)
        yield from self._array(array[at : at + StoreLimits.device_chunk_bytes] for at in starts)

    def _batches_of(self, document: Any) -> Iterator[list[TelemetryEvent]]:
        events = self._convert(self._records(document))
        return iter(lambda: list(islice(events, 1000)), [])

    def _array_in(self, text: bytes) -> bytes:
        """The array of events in an object; empty where there is none, or only Python can tell."""
        try:
            members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return b""
        array = bytes(members.get(self._member, b""))
        return array if array.startswith(b"[") else b""

    def _array_in_torn(self, text: bytes) -> bytes:
        """The array of events in an object that breaks off, and all that follows; empty where it is not
        reached.
        """
        whole = text.decode("utf-8", "replace")
        decoder, at = json.JSONDecoder(), 0
        with suppress(*UNREADABLE):
            while found := _MEMBER.match(whole, at):
                if decoder.decode(found[1]) == self._member and whole.startswith("[", found.end()):
                    return whole[found.end() :].encode()
                _, at = decoder.raw_decode(whole, found.end())
        return b""

    def _records(self, document: Any) -> list[Any]:
        """The list of records in a document."""
        if isinstance(document, list):
            return document
        if not isinstance(document, Mapping):
            # It is the file.
            raise ValueError("Telemetry payload must be a JSON object or array")  # noqa: TRY004
        records = document.get(self._member)
        if isinstance(records, list):
            return records
        if self._key is not None:
            raise ValueError(f"Top-level key '{self._key}' must contain a list of events")
        if _EVENT_KEYS & document.keys():
            return [document]
        raise ValueError("JSON payload does not contain telemetry events")

    def _array(self, chunks: Iterable[bytes]) -> Iterator[list[TelemetryEvent]]:
        """The events of an array whose bracket has been read, as far as it can be read."""
        window, enough = bytearray(), StoreLimits.device_chunk_bytes
        for chunk in _readable(chunks):
            window += chunk
            if len(window) < enough:
                continue
            cut, events = len(window), None
            for _ in range(StoreLimits.device_read_attempts):
                cut = window.rfind(b"},", 0, cut)
                events = self._window(b"[" + window[:cut] + b"}]") if cut >= 0 else None
                if events is not None or cut < 0:
                    break
            if events is not None:
                yield events
                del window[: cut + 2]
                enough = StoreLimits.device_chunk_bytes
            elif 2 * len(window) > StoreLimits.max_device_object_bytes:
                raise ValueError(TOO_LARGE)
            else:
                enough = 2 * len(window)  # a longer window ends elsewhere
        yield self._rest(bytes(window))

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
        with suppress(*UNREADABLE):
            while (at := len(text) - len(text[at:].lstrip(" \t\r\n,"))) < len(text):
                record, at = decoder.raw_decode(text, at)
                found.append(record)
        if not found and not self._index:
            raise ValueError(f"{self._path.name} breaks off before its first record ends")
        self._tally.tear(self._path)
        return list(self._convert(found))

    def _convert(self, records: Iterable[Any]) -> Iterator[TelemetryEvent]:
        for record in records:
            where = f"{self._path.name}, record {self._index}"
            event = self._event(record, where, f"Event at index {self._index} must be an object")
            self._index += 1
            if event is not None:
                yield event
