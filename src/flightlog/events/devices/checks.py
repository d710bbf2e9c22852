"""What a device-memory record must hold, checked in a fixed order: the first violation is the error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flightlog.events.devices.event import (
    OPTIONAL_FIELDS,
    RECORD_FIELDS,
    REQUIRED_V2_FIELDS,
    REQUIRED_V3_FIELDS,
    SCHEMA_VERSION_V2,
    SCHEMA_VERSION_V3,
    SCHEMA_VERSION_V4,
    TelemetryEventV2,
    TelemetryEventV3,
    TelemetryEventV4,
    any_text,
    at_least,
    json_object,
    optional_text,
    optional_whole,
    resolve_distributed_identity,
    text,
    whole,
    whole_from,
)

_REQUIRED = {
    SCHEMA_VERSION_V2: REQUIRED_V2_FIELDS,
    SCHEMA_VERSION_V3: REQUIRED_V3_FIELDS,
    SCHEMA_VERSION_V4: REQUIRED_V3_FIELDS,
}
_KNOWN = {version: frozenset(required + OPTIONAL_FIELDS) for version, required in _REQUIRED.items()}


def validate_telemetry_record(record: Mapping[str, Any]) -> None:
    """Raise ValueError unless the record is a whole and valid one of schema v2 or v3."""
    _check(record, (SCHEMA_VERSION_V2, SCHEMA_VERSION_V3))


def validate_v4_record(record: Mapping[str, Any]) -> None:
    """Raise ValueError unless the record is a whole and valid one of schema v4: as v3, but any counter may be
    null.
    """
    _check(record, (SCHEMA_VERSION_V4,))


def telemetry_event_to_dict(event: TelemetryEventV3 | TelemetryEventV2) -> dict[str, Any]:
    """The event as the record that files hold, in the schema's order; `metadata` is a copy."""
    of_v2 = isinstance(event, TelemetryEventV2)
    record = {name: getattr(event, name) for name in RECORD_FIELDS if not (of_v2 and name == "session_id")}
    record["metadata"] = dict(event.metadata)
    return record


def check_event(event: TelemetryEventV3 | TelemetryEventV2) -> None:
    """Raise ValueError unless the event is a valid one of its version."""
    check = validate_v4_record if isinstance(event, TelemetryEventV4) else validate_telemetry_record
    check(telemetry_event_to_dict(event))


def _check(record: Mapping[str, Any], versions: tuple[int, ...]) -> None:
    version = whole(record.get("schema_version"), "schema_version")
    if version not in versions:
        raise ValueError(f"Unsupported schema_version: {version}")
    missing = [name for name in _REQUIRED[version] if name not in record]
    if missing:
        raise ValueError(f"Missing required telemetry fields: {', '.join(missing)}")
    unknown = sorted(str(name) for name in record if name not in _KNOWN[version])
    if unknown:
        raise ValueError(f"Unknown telemetry fields: {', '.join(unknown)}")
    if version != SCHEMA_VERSION_V2:
        text(record["session_id"], "session_id")
    whole_from(0, record["timestamp_ns"], "timestamp_ns")
    text(record["event_type"], "event_type")
    text(record["collector"], "collector")
    whole_from(0, record["sampling_interval_ms"], "sampling_interval_ms")
    whole_from(-1, record["pid"], "pid")
    text(record["host"], "host")
    if "job_id" in record:
        optional_text(record["job_id"], "job_id")
    for name, least in (("rank", 0), ("local_rank", 0), ("world_size", 1)):
        if name in record:
            whole_from(least, record[name], name)
    whole(record["device_id"], "device_id")
    _check_counters(record, nullable=version == SCHEMA_VERSION_V4)
    any_text(record["context"], "context")
    json_object(record["metadata"])
    resolve_distributed_identity(**{name: record.get(name) for name in OPTIONAL_FIELDS})


def _check_counters(record: Mapping[str, Any], *, nullable: bool) -> None:
    """The allocator's counters, then the device's: of each group first the types, then the ranges."""
    sure, when = (optional_whole, " when provided") if nullable else (whole, "")
    for group in (
        (
            ("allocator_allocated_bytes", sure, when),
            ("allocator_reserved_bytes", sure, when),
            ("allocator_active_bytes", optional_whole, " when provided"),
            ("allocator_inactive_bytes", optional_whole, " when provided"),
            ("allocator_change_bytes", sure, None),
        ),
        (
            ("device_used_bytes", sure, when),
            ("device_free_bytes", optional_whole, " when provided"),
            ("device_total_bytes", optional_whole, " when provided"),
        ),
    ):
        values = {name: take(record[name], name) for name, take, _ in group}
        for name, _, said in group:
            if said is not None:  # a change may be negative
                at_least(0, values[name], name, said)
    total = record["device_total_bytes"]
    for name in ("device_used_bytes", "device_free_bytes"):
        if total is not None and record[name] is not None and record[name] > total:
            raise ValueError(f"{name} cannot exceed device_total_bytes")
