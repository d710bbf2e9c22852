"""Device-memory events: their schema, and loading them from files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flightlog import devices
from flightlog.compat.stormlog.session import SessionSummary, answer_to_dataclasses, from_core
from flightlog.devices import (
    SCHEMA_VERSION_LATEST,
    SCHEMA_VERSION_V2,
    SCHEMA_VERSION_V3,
    SCHEMA_VERSION_V4,
    ProjectedTelemetryRecord,
    TelemetryEvent,
    TelemetryEventV2,
    TelemetryEventV3,
    TelemetryEventV4,
    project_telemetry_event,
    project_telemetry_events,
    resolve_distributed_identity,
    telemetry_event_from_record,
    telemetry_event_to_dict,
    validate_telemetry_record,
)
from flightlog.events.devices.event import OPTIONAL_FIELDS, REQUIRED_V2_FIELDS, REQUIRED_V3_FIELDS
from flightlog.events.devices.records import UNKNOWN_HOST, UNKNOWN_PID
from flightlog.store.devices.reading import events_of

OPTIONAL_V2_FIELDS = OPTIONAL_V3_FIELDS = OPTIONAL_FIELDS
KNOWN_V2_FIELD_SET = frozenset(REQUIRED_V2_FIELDS + OPTIONAL_V2_FIELDS)
KNOWN_V3_FIELD_SET = frozenset(REQUIRED_V3_FIELDS + OPTIONAL_V3_FIELDS)


for _kind, _required in ((TelemetryEventV2, REQUIRED_V2_FIELDS), (TelemetryEventV3, REQUIRED_V3_FIELDS)):
    answer_to_dataclasses(_kind, [*_required[:-1], *OPTIONAL_FIELDS, _required[-1]])


@dataclass
class LoadedTelemetrySession(devices.LoadedTelemetrySession):
    """One session: its summary, its events by time, the files they came from, and warnings on skipped
    records.
    """

    summary: SessionSummary


def load_telemetry_sessions(
    path: str | Path, permissive_legacy: bool = True, events_key: str | None = None
) -> list[LoadedTelemetrySession]:
    """The sessions in a JSON file, a file of JSON lines or a sink folder, the preferred one first.

    Bad records are skipped and listed in `warnings`. Raises ValueError where every record is bad.
    """
    return [
        LoadedTelemetrySession(
            from_core(loaded.summary), loaded.events, loaded.sources_loaded, list(loaded.warnings)
        )
        for loaded in devices.load_telemetry_sessions(path, permissive_legacy, events_key)
    ]


def load_telemetry_events(
    path: str | Path,
    permissive_legacy: bool = True,
    events_key: str | None = None,
    session_id: str | None = None,
) -> list[TelemetryEvent]:
    """The events of one session, by time: the given one, or the preferred one of those with events.

    Raises ValueError for an unknown session; empty where there is no session at all.
    """
    sessions = load_telemetry_sessions(path, permissive_legacy, events_key)
    return list(events_of(sessions, session_id)) if sessions else []


__all__ = [
    "KNOWN_V2_FIELD_SET",
    "KNOWN_V3_FIELD_SET",
    "OPTIONAL_V2_FIELDS",
    "OPTIONAL_V3_FIELDS",
    "REQUIRED_V2_FIELDS",
    "REQUIRED_V3_FIELDS",
    "SCHEMA_VERSION_LATEST",
    "SCHEMA_VERSION_V2",
    "SCHEMA_VERSION_V3",
    "SCHEMA_VERSION_V4",
    "UNKNOWN_HOST",
    "UNKNOWN_PID",
    "LoadedTelemetrySession",
    "ProjectedTelemetryRecord",
    "TelemetryEvent",
    "TelemetryEventV2",
    "TelemetryEventV3",
    "TelemetryEventV4",
    "load_telemetry_events",
    "load_telemetry_sessions",
    "project_telemetry_event",
    "project_telemetry_events",
    "resolve_distributed_identity",
    "telemetry_event_from_record",
    "telemetry_event_to_dict",
    "validate_telemetry_record",
]
