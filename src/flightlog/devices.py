"""Device-memory telemetry: its events, their rules and their files.

`load_telemetry_sessions` and `load_telemetry_events` load a file or a sink folder; `TelemetryReading` goes
through one in bounded memory; `TelemetrySink` writes one.
"""

from flightlog.events.devices.event import (
    SCHEMA_VERSION_LATEST,
    SCHEMA_VERSION_V2,
    SCHEMA_VERSION_V3,
    SCHEMA_VERSION_V4,
    SessionSummary,
    TelemetryEvent,
    TelemetryEventV2,
    TelemetryEventV3,
    TelemetryEventV4,
    stable_legacy_session_id,
)
from flightlog.events.devices.projection import (
    ProjectedTelemetryRecord,
    project_telemetry_event,
    project_telemetry_events,
)
from flightlog.events.devices.records import (
    resolve_distributed_identity,
    telemetry_event_from_record,
    telemetry_event_to_dict,
    validate_telemetry_record,
)
from flightlog.store.devices.reading import (
    LoadedTelemetrySession,
    TelemetryReading,
    load_telemetry_events,
    load_telemetry_sessions,
)
from flightlog.store.devices.sink import TelemetrySink

__all__ = [
    "SCHEMA_VERSION_LATEST",
    "SCHEMA_VERSION_V2",
    "SCHEMA_VERSION_V3",
    "SCHEMA_VERSION_V4",
    "LoadedTelemetrySession",
    "ProjectedTelemetryRecord",
    "SessionSummary",
    "TelemetryEvent",
    "TelemetryEventV2",
    "TelemetryEventV3",
    "TelemetryEventV4",
    "TelemetryReading",
    "TelemetrySink",
    "load_telemetry_events",
    "load_telemetry_sessions",
    "project_telemetry_event",
    "project_telemetry_events",
    "resolve_distributed_identity",
    "stable_legacy_session_id",
    "telemetry_event_from_record",
    "telemetry_event_to_dict",
    "validate_telemetry_record",
]
