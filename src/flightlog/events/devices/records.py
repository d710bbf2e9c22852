"""Records of any version to events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import StructMeta

from flightlog.events.devices.bulk import event_from_plain_record
from flightlog.events.devices.checks import validate_telemetry_record, validate_v4_record
from flightlog.events.devices.event import (
    ENVELOPE_FIELDS,
    OPTIONAL_FIELDS,
    SCHEMA_VERSION_V2,
    SCHEMA_VERSION_V3,
    SCHEMA_VERSION_V4,
    DeviceMemory,
    TelemetryEvent,
    TelemetryEventV3,
    TelemetryEventV4,
)
from flightlog.events.devices.identity import resolve_distributed_identity, stable_legacy_session_id
from flightlog.events.devices.legacy import UNKNOWN_HOST, UNKNOWN_PID, fields_of_legacy_record
from flightlog.events.devices.values import is_whole, json_object, whole

_KIND_IN_A_RUN = DeviceMemory.__struct_config__.tag


def telemetry_event_from_record(
    record: Mapping[str, Any],
    permissive_legacy: bool = True,
    default_collector: str = "legacy.unknown",
    default_sampling_interval_ms: int = 0,
    default_session_id: str | None = None,
) -> TelemetryEvent:
    """The event of a record of schema v3 or v2, or of one from before there were versions.

    Legacy records, those without `schema_version`, raise ValueError unless `permissive_legacy`. A record that
    names no session belongs to `default_session_id`, or to one made of its time, host and process. Raises
    ValueError for a record that breaks a rule.
    """
    if not isinstance(record, Mapping):
        raise ValueError("record must be a mapping")  # noqa: TRY004 - one error type for all bad records
    plain = event_from_plain_record(record)
    if plain is not None:
        return plain
    if "schema_version" in record:
        version = whole(record["schema_version"], "schema_version")
        if version not in {SCHEMA_VERSION_V2, SCHEMA_VERSION_V3}:
            raise ValueError(f"Unsupported schema_version: {version}")
        fields = _complete(record, SCHEMA_VERSION_V3, default_session_id)
        validate_telemetry_record({**record, **_named(fields)})
        return _build(TelemetryEventV3, fields)
    if not permissive_legacy:
        raise ValueError("Legacy record conversion is disabled")
    fields = fields_of_legacy_record(
        record,
        default_collector=default_collector,
        default_sampling_interval_ms=default_sampling_interval_ms,
    )
    fields["session_id"] = _session_id(record, fields["metadata"], default_session_id)
    fields["metadata"].pop("session_id", None)
    fields["schema_version"] = SCHEMA_VERSION_V3
    validate_telemetry_record(fields)
    return _build(TelemetryEventV3, fields)


def telemetry_event_from_file_record(
    record: Mapping[str, Any], *, permissive_legacy: bool = True, default_session_id: str | None = None
) -> TelemetryEvent:
    """As `telemetry_event_from_record`; takes what else files hold too: schema v4, and the lines of a run."""
    if record.get("event") == _KIND_IN_A_RUN:
        record = {name: value for name, value in record.items() if name not in ENVELOPE_FIELDS}
    version = record.get("schema_version")
    if is_whole(version) and version == SCHEMA_VERSION_V4:
        try:
            fields = _complete(record, SCHEMA_VERSION_V4, default_session_id)
            validate_v4_record({**record, **_named(fields)})
        except ValueError as error:
            raise ValueError(f"Unsupported schema_version: 4, for it is not whole: {error}") from error
        return _build(TelemetryEventV4, fields)
    return telemetry_event_from_record(
        record, permissive_legacy=permissive_legacy, default_session_id=default_session_id
    )


def _complete(record: Mapping[str, Any], version: int, default_session_id: str | None) -> dict[str, Any]:
    """The record with its version, its session and its place among the ranks."""
    metadata = json_object(record.get("metadata", {}))
    identity = resolve_distributed_identity(**{name: record.get(name) for name in OPTIONAL_FIELDS})
    session_id = _session_id(record, metadata, default_session_id)
    return {
        **record,
        **identity,
        "schema_version": version,
        "session_id": session_id,
        "metadata": metadata,
    }


def _named(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in ("schema_version", "session_id")}


def _session_id(record: Mapping[str, Any], metadata: Mapping[str, Any], default: str | None) -> str:
    named = record.get("session_id")
    if named is None:
        named = metadata.get("session_id")
    if isinstance(named, str) and named.strip():
        return named
    if default is not None:
        return default
    return stable_legacy_session_id(
        record.get("timestamp_ns", record.get("timestamp", "unknown")),
        record.get("host", UNKNOWN_HOST),
        record.get("pid", UNKNOWN_PID),
    )


def _build(kind: type[TelemetryEventV3], fields: Mapping[str, Any]) -> TelemetryEvent:
    """The event of fields that have been checked."""
    event: TelemetryEvent = StructMeta.__call__(kind, **fields)
    return event
