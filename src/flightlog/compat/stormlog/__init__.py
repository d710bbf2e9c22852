"""Stormlog's telemetry under its own names: change `stormlog` to `flightlog.compat.stormlog` in an import."""

from flightlog.compat.stormlog.telemetry import (
    TelemetryEventV2,
    load_telemetry_events,
    resolve_distributed_identity,
    telemetry_event_from_record,
    telemetry_event_to_dict,
    validate_telemetry_record,
)

__all__ = [
    "TelemetryEventV2",
    "load_telemetry_events",
    "resolve_distributed_identity",
    "telemetry_event_from_record",
    "telemetry_event_to_dict",
    "validate_telemetry_record",
]
