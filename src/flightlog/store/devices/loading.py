"""Telemetry loaded as a whole, by session."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from flightlog.events.devices.event import TelemetryEvent
from flightlog.events.devices.projection import ProjectedTelemetryRecord, project_telemetry_events, unique
from flightlog.events.devices.sessions import SessionSummary, preference, summary_of_events
from flightlog.store.devices.reading import TelemetryReading


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
