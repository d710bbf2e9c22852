"""Device-memory events: their schema, and loading them from files."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any

from flightlog import devices
from flightlog.compat.stormlog.session import SessionSummary, from_core, select_default_loaded_session
from flightlog.compat.stormlog.telemetry_model import (
    ProjectedTelemetryRecord,
    unique_projected_correlations,
    unique_projected_resources,
)
from flightlog.devices import (
    SCHEMA_VERSION_LATEST,
    SCHEMA_VERSION_V2,
    SCHEMA_VERSION_V3,
    SCHEMA_VERSION_V4,
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

OPTIONAL_V2_FIELDS = OPTIONAL_V3_FIELDS = OPTIONAL_FIELDS
KNOWN_V2_FIELD_SET = frozenset(REQUIRED_V2_FIELDS + OPTIONAL_V2_FIELDS)
KNOWN_V3_FIELD_SET = frozenset(REQUIRED_V3_FIELDS + OPTIONAL_V3_FIELDS)


def _answer_to_dataclasses(
    kind: type[TelemetryEventV2 | TelemetryEventV3], required: tuple[str, ...]
) -> None:
    """Make `dataclasses.asdict`, `fields` and `replace` work on events, which are msgspec structs."""
    names = [name for name in required if name != "metadata"]
    defaults = {"job_id": None, "rank": 0, "local_rank": 0, "world_size": 1}
    shape: list[Any] = [(name, Any) for name in names]
    shape += [(name, Any, field(default=value)) for name, value in defaults.items()]
    shape.append(("metadata", dict[str, Any], field(default_factory=dict)))
    shadow: Any = make_dataclass(kind.__name__, shape)
    kind.__dataclass_fields__ = shadow.__dataclass_fields__


_answer_to_dataclasses(TelemetryEventV2, REQUIRED_V2_FIELDS)
_answer_to_dataclasses(TelemetryEventV3, REQUIRED_V3_FIELDS)


@dataclass
class LoadedTelemetrySession:
    """One session: its summary, its events by time, the files they came from, and warnings on skipped
    records.
    """

    summary: SessionSummary
    events: list[TelemetryEvent]
    sources_loaded: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def telemetry_records(self) -> list[ProjectedTelemetryRecord]:
        """The events in a form that does not depend on the backend."""
        return project_telemetry_events(self.events)

    def resources(self) -> list[dict[str, Any]]:
        """The resources of the events, each once."""
        return unique_projected_resources(self.telemetry_records())

    def correlations(self) -> list[dict[str, Any]]:
        """The contexts of the events, each once."""
        return unique_projected_correlations(self.telemetry_records())


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
    if session_id is None or not sessions:
        chosen = select_default_loaded_session(sessions)
    else:
        chosen = next((one for one in sessions if one.summary.session_id == session_id), None)
        if chosen is None:
            raise ValueError(f"Requested session_id not found: {session_id}")
    return list(chosen.events) if chosen is not None else []


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
