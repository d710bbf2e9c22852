"""Device-memory events in a form that does not depend on the backend: resource, attributes, correlation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from flightlog.events.devices.event import OPTIONAL_FIELDS, RECORD_FIELDS, TelemetryEvent, TelemetryEventV3
from flightlog.events.devices.records import telemetry_event_from_record, telemetry_event_to_dict

PROJECTION_SCHEMA_VERSION = 1

_BACKENDS = ("cuda", "rocm", "mps", "cpu", "tensorflow")
_SEVERITIES = {
    "critical": "critical",
    "error": "error",
    "warning": "warning",
    "collector_degraded": "warning",
    **dict.fromkeys(("collector_recovered", "start", "stop", "phase_enter", "phase_exit", "sample"), "info"),
}
_MEASURES = {"sampling.interval_ms": "sampling_interval_ms"} | {
    f"memory.{name.replace('_', '.', 1)}": name for name in RECORD_FIELDS if name.endswith("_bytes")
}


@dataclass(frozen=True)
class ProjectedTelemetryRecord:
    """One event, whatever backend it came from; its mappings cannot be changed.

    `record_id` follows from the event alone: equal events have equal ids. `source_kind` is the backend's
    family. `resource` says where it happened, `attributes` what was measured, `correlation` what it belongs
    to.
    """

    schema_version: int
    record_id: str
    timestamp_ns: int
    observed_timestamp_ns: int
    session_id: str
    source_kind: str
    event_type: str
    stage: str | None
    severity: str | None
    severity_text: str | None
    body: str | None
    resource: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    correlation: Mapping[str, Any] = field(default_factory=dict)


def project_telemetry_event(event: TelemetryEvent | Mapping[str, Any]) -> ProjectedTelemetryRecord:
    """The projection of an event, or of a record of v3, v2 or before; raises ValueError for one that is
    invalid.
    """
    if not isinstance(event, TelemetryEventV3):
        event = telemetry_event_from_record(event)
    return project_record(telemetry_event_to_dict(event), event.timestamp_ns)


def project_record(record: Mapping[str, Any], observed_timestamp_ns: int) -> ProjectedTelemetryRecord:
    """The projection of a record that holds a session, a time, a type and metadata; what else it lacks is
    None.
    """
    metadata = record["metadata"]
    kind = _source_kind(record)
    phase = metadata.get("phase_scope")
    phase = phase if isinstance(phase, Mapping) else {}
    path = phase.get("path")
    names = (phase.get("name"), path[-1] if isinstance(path, list) and path else None)
    said, body = metadata.get("severity_text"), record.get("context")
    digest = hashlib.sha256(json.dumps(thawed(record), sort_keys=True, default=str).encode()).hexdigest()
    return ProjectedTelemetryRecord(
        schema_version=PROJECTION_SCHEMA_VERSION,
        record_id=f"telemetry-{digest[:32]}",
        timestamp_ns=record["timestamp_ns"],
        observed_timestamp_ns=observed_timestamp_ns,
        session_id=record["session_id"],
        source_kind=kind,
        event_type=record["event_type"],
        stage=next((name for name in names if isinstance(name, str) and name.strip()), None),
        severity=severity_of(record),
        severity_text=None if said is None else str(said),
        body=None if body is None else str(body),
        resource=_frozen(
            {"source_kind": kind}
            | {name: record.get(name) for name in ("collector", "host", "pid", "device_id", *OPTIONAL_FIELDS)}
        ),
        attributes=_frozen({**metadata} | {name: record.get(source) for name, source in _MEASURES.items()}),
        correlation=_frozen(
            {name: record.get(name) for name in ("session_id", *OPTIONAL_FIELDS)}
            | {
                f"phase.{name}": phase[name]
                for name in ("scope_id", "parent_scope_id", "sequence")
                if phase.get(name) is not None
            }
        ),
    )


def project_telemetry_events(
    events: Iterable[TelemetryEvent | Mapping[str, Any]],
) -> list[ProjectedTelemetryRecord]:
    """The projections of events, in their order."""
    return [project_telemetry_event(event) for event in events]


def unique(mappings: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each different mapping once, as plain JSON values, in the order of first appearance."""
    found: dict[str, dict[str, Any]] = {}
    for mapping in mappings:
        plain = thawed(mapping)
        found.setdefault(json.dumps(plain, sort_keys=True, default=str), plain)
    return list(found.values())


def _source_kind(record: Mapping[str, Any]) -> str:
    backend, collector = record["metadata"].get("backend"), record.get("collector")
    if isinstance(backend, str) and backend.strip().lower() in _BACKENDS:
        return backend.strip().lower()
    named = collector.lower() if isinstance(collector, str) else ""
    device = record.get("device_id")
    on_device = isinstance(device, int) and device >= 0
    return next((kind for kind in _BACKENDS if kind in named), "gpu" if on_device else "other")


def severity_of(record: Mapping[str, Any]) -> str | None:
    """How serious an event is, by its own word or by its type; None where neither tells."""
    said = record["metadata"].get("severity")
    if isinstance(said, str) and said.strip():
        return said.strip().lower()
    return _SEVERITIES.get(record["event_type"].strip().lower())


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return MappingProxyType({str(name): _frozen(inner) for name, inner in value.items()})
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def thawed(value: Any) -> Any:
    """A frozen value as plain dicts and lists."""
    if isinstance(value, Mapping):
        return {name: thawed(inner) for name, inner in value.items()}
    return list(map(thawed, value)) if isinstance(value, tuple) else value
