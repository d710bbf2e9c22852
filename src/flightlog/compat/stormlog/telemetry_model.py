"""Projection of events to a form that does not depend on the backend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal, cast

from flightlog.events.devices.projection import ProjectedTelemetryRecord, project_record, thawed, unique
from flightlog.events.devices.records import is_whole

TELEMETRY_PROJECTION_SCHEMA_VERSION: Literal[1] = 1


def project_telemetry_mapping(
    record: Mapping[str, Any], *, observed_timestamp_ns: int | None = None
) -> ProjectedTelemetryRecord:
    """The projection of a record; missing fields are None.

    The time of observation is that of the event, unless given. Raises ValueError for a record without
    session, time or type, for metadata that is no mapping, and for an invalid time.
    """
    observed = record.get("timestamp_ns") if observed_timestamp_ns is None else observed_timestamp_ns
    _require(_is_text(record.get("session_id")), "session_id")
    _require(is_whole(record.get("timestamp_ns")), "integer timestamp_ns")
    _require(is_whole(observed), "integer observed_timestamp_ns")
    _require(
        observed_timestamp_ns is None or observed_timestamp_ns >= 0, "non-negative observed_timestamp_ns"
    )
    _require(_is_text(record.get("event_type")), "event_type")
    metadata = record.get("metadata", {})
    if not isinstance(metadata, Mapping):
        # As for others.
        raise ValueError("projected telemetry record metadata must be a mapping")  # noqa: TRY004
    return project_record({"metadata": metadata, **record}, cast(int, observed))


def projected_record_to_dict(record: ProjectedTelemetryRecord) -> dict[str, Any]:
    """The projection as JSON values, in the order of its fields."""
    return {field.name: thawed(getattr(record, field.name)) for field in fields(record)}


def unique_projected_resources(records: Iterable[ProjectedTelemetryRecord]) -> list[dict[str, Any]]:
    """The resources of events, each once, in order of first appearance."""
    return unique(record.resource for record in records)


def unique_projected_correlations(records: Iterable[ProjectedTelemetryRecord]) -> list[dict[str, Any]]:
    """The contexts of events, each once, in order of first appearance."""
    return unique(record.correlation for record in records)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"projected telemetry record requires {what}")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


__all__ = [
    "TELEMETRY_PROJECTION_SCHEMA_VERSION",
    "ProjectedTelemetryRecord",
    "project_telemetry_mapping",
    "projected_record_to_dict",
    "unique_projected_correlations",
    "unique_projected_resources",
]
