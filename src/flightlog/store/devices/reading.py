"""One reading of telemetry, whatever it stands in: events one by one in bounded memory, and what was
skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from errno import ENOENT
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from flightlog.events.devices.event import TelemetryEvent
from flightlog.events.devices.identity import stable_legacy_session_id
from flightlog.events.devices.projection import ProjectedTelemetryRecord, project_telemetry_events, unique
from flightlog.events.devices.sessions import SessionSummary, preference, summary_of_events
from flightlog.store.devices.json_events import TelemetryDocument, TelemetryLines
from flightlog.store.devices.manifest import MANIFEST, SinkManifest, read_manifest, segment_paths
from flightlog.store.devices.records import RecordReader, Tally


class TelemetryReading:
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
        self.path = Path(path)
        self.manifest: SinkManifest | None = read_manifest(self.path)
        """The sink folder's manifest, where there is one."""
        self._permissive, self._key = permissive_legacy, events_key
        self._tally = Tally(strict=strict)

    @property
    def read(self) -> int:
        """How many events were given out."""
        return self._tally.read

    @property
    def skipped(self) -> int:
        """How many records were not: each breaks a rule, or is none."""
        return self._tally.skipped

    @property
    def torn(self) -> int:
        """How many files end in the middle of a record."""
        return self._tally.torn

    @property
    def problems(self) -> list[str]:
        """What was skipped and why, in sentences, the first ones one by one."""
        return self._tally.warnings()

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
                    for batch in TelemetryLines(segment, self._reader(segment), self._tally).batches():
                        yield segment, batch
                except FileNotFoundError:
                    self._tally.note_gone(segment)
            return
        if self.path.is_dir():
            raise FileNotFoundError(ENOENT, "no telemetry segments in this folder", str(self.path))
        document = TelemetryDocument(self.path, self._key, self._reader(None), self._tally)
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

    def fail_if_nothing_was_read(self) -> None:
        """Raise the first problem where there were bad records and no others."""
        if self._tally.skipped and not self._tally.read:
            self._tally.raise_first()

    def _is_sink(self) -> bool:
        return self.manifest is not None and (self.path.is_dir() or self.path.name == MANIFEST)

    def _reader(self, segment: Path | None) -> RecordReader:
        if segment is not None:
            return RecordReader(self.session_of(segment), self._permissive)
        session = stable_legacy_session_id(str(self.path.resolve()), self._key or "json")
        return RecordReader(session, self._permissive)


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
