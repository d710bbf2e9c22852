"""A sink folder's rollups: peaks, counts and the hidden gap of each session, rank and window of time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import msgspec
from msgspec import Meta

from flightlog.compat.stormlog.session import SessionSummary, now_ns, session_summary_from_dict
from flightlog.compat.stormlog.telemetry import LoadedTelemetrySession
from flightlog.compat.stormlog.telemetry_sink import (
    MANIFEST_FILENAME,
    TelemetrySinkManifest,
    read_telemetry_sink_manifest,
    resolve_telemetry_sink_manifest_path,
)
from flightlog.store.devices.manifest import ROLLUPS
from flightlog.store.devices.rollups import ROLLUPS_FORMAT, ROLLUPS_SCHEMA_VERSION, SessionTotals
from flightlog.store.documents import write_document

TELEMETRY_ROLLUP_SCHEMA_VERSION = ROLLUPS_SCHEMA_VERSION
ROLLUP_FILENAME = ROLLUPS
DEFAULT_ROLLUP_WINDOW_SECONDS = 60
DEFAULT_ROLLUP_WINDOW_NS = DEFAULT_ROLLUP_WINDOW_SECONDS * 1_000_000_000

_Count = Annotated[int, Meta(ge=0)]
_Least1 = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True)
class PeakValue:
    """The peak of a counter, and where it was seen first; None without events."""

    value: int | None = None
    timestamp_ns: _Count | None = None
    rank: _Count | None = None
    device_id: int | None = None


@dataclass(frozen=True)
class CounterSummary:
    """The peaks of a session, a rank or a window, in bytes."""

    allocator_allocated_bytes: PeakValue = field(default_factory=PeakValue)
    allocator_reserved_bytes: PeakValue = field(default_factory=PeakValue)
    device_used_bytes: PeakValue = field(default_factory=PeakValue)


@dataclass(frozen=True)
class AlertSummary:
    """How many alerts, by severity and by type of event."""

    total_count: _Count = 0
    severity_counts: dict[str, _Count] = field(default_factory=dict)
    event_type_counts: dict[str, _Count] = field(default_factory=dict)


@dataclass(frozen=True)
class CollectorHealthSummary:
    """How often the collector lost and recovered its source, and the time in between."""

    transition_count: _Count = 0
    degraded_count: _Count = 0
    recovered_count: _Count = 0
    degraded_time_ns: _Count = 0
    last_status: str | None = None


@dataclass(frozen=True)
class OomSummary:
    """How often memory ran out."""

    marker_count: _Count = 0
    event_count: _Count = 0
    bundle_path_count: _Count = 0


@dataclass(frozen=True)
class RollupCoverage:
    """The segments that the rollups cover, and what was pruned before; None is unknown."""

    retained_segment_filenames: list[str] = field(default_factory=list)
    retained_segment_count: _Count = 0
    retained_event_count: _Count = 0
    retained_bytes: _Count = 0
    pruned_segment_count: _Count | None = None
    pruned_bytes: _Count | None = None


@dataclass(frozen=True)
class RankRollup:
    """One rank; its hidden gap is the device memory in use beyond what the rank's allocator reserved."""

    rank: _Count
    local_rank: _Count
    world_size: _Least1
    event_count: _Count
    sample_count: _Count
    first_timestamp_ns: _Count | None
    last_timestamp_ns: _Count | None
    counters: CounterSummary
    hidden_gap_first_bytes: int | None = None
    hidden_gap_latest_bytes: int | None = None
    hidden_gap_peak_bytes: int | None = None
    hidden_gap_delta_bytes: int | None = None
    hidden_gap_drift_bytes_per_second: float | None = None


@dataclass(frozen=True)
class WindowRollup:
    """One window of time, counted from the session's start."""

    index: _Count
    start_ns: _Count
    end_ns: _Count
    event_count: _Count
    sample_count: _Count
    rank_count: _Count
    counters: CounterSummary
    alert_count: _Count = 0
    collector_transition_count: _Count = 0
    oom_count: _Count = 0


@dataclass(frozen=True)
class SessionRollup:
    """One session, its ranks and its windows."""

    session: SessionSummary
    event_count: _Count
    sample_count: _Count
    first_timestamp_ns: _Count | None
    last_timestamp_ns: _Count | None
    source_count: _Count
    sources_loaded: list[str]
    warnings: list[str]
    counters: CounterSummary
    alerts: AlertSummary
    collector_health: CollectorHealthSummary
    oom: OomSummary
    ranks: list[RankRollup] = field(default_factory=list)
    windows: list[WindowRollup] = field(default_factory=list)


@dataclass(frozen=True)
class TelemetryRollupFile:
    """The content of `rollups.json`."""

    schema_version: _Least1
    format: str
    generated_at_ns: _Count
    source_manifest: str | None
    source_manifest_schema_version: _Least1 | None
    window_duration_ns: _Least1
    coverage: RollupCoverage
    sessions: list[SessionRollup] = field(default_factory=list)


def build_telemetry_rollups(
    sessions: Sequence[LoadedTelemetrySession],
    manifest: TelemetrySinkManifest | None,
    *,
    window_duration_ns: int = DEFAULT_ROLLUP_WINDOW_NS,
    coverage: RollupCoverage | None = None,
) -> TelemetryRollupFile:
    """The rollups of sessions, the earliest first; the coverage is the manifest's unless it is given."""
    if window_duration_ns <= 0:
        raise ValueError("window_duration_ns must be >= 1")
    return TelemetryRollupFile(
        schema_version=TELEMETRY_ROLLUP_SCHEMA_VERSION,
        format=ROLLUPS_FORMAT,
        generated_at_ns=now_ns(),
        source_manifest=None if manifest is None else MANIFEST_FILENAME,
        source_manifest_schema_version=None if manifest is None else manifest.schema_version,
        window_duration_ns=window_duration_ns,
        coverage=coverage or rollup_coverage_from_manifest(manifest),
        sessions=[
            _session_rollup(loaded, window_duration_ns)
            for loaded in sorted(
                sessions, key=lambda one: (one.summary.started_at_ns, one.summary.session_id)
            )
        ],
    )


def rollup_coverage_from_manifest(
    manifest: TelemetrySinkManifest | None,
    *,
    pruned_segment_count: int | None = None,
    pruned_bytes: int | None = None,
) -> RollupCoverage:
    """The coverage of a manifest's segments."""
    segments = manifest.segments if manifest is not None else []
    return RollupCoverage(
        retained_segment_filenames=[segment.filename for segment in segments],
        retained_segment_count=len(segments),
        retained_event_count=sum(segment.event_count for segment in segments),
        retained_bytes=sum(segment.size_bytes for segment in segments),
        pruned_segment_count=pruned_segment_count,
        pruned_bytes=pruned_bytes,
    )


def write_telemetry_rollups(root_dir: str | Path, rollups: TelemetryRollupFile) -> Path:
    """Write the rollups beside a sink's manifest, atomically."""
    path = resolve_telemetry_rollup_path(root_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_document(path, telemetry_rollup_file_to_dict(rollups), durable=True)
    return path


def read_telemetry_rollups(path: str | Path) -> TelemetryRollupFile | None:
    """The rollups of a sink; None where they are missing, broken, or older than the manifest."""
    where = resolve_telemetry_rollup_path(path)
    try:
        rollups = telemetry_rollup_file_from_dict(json.loads(where.read_text("utf-8")))
    except (OSError, ValueError, RecursionError):
        return None
    manifest = read_telemetry_sink_manifest(where.parent / MANIFEST_FILENAME)
    return rollups if manifest is None or _matches(rollups, manifest) else None


def resolve_telemetry_rollup_path(path: str | Path) -> Path:
    """The path of the rollups of a sink folder, or of one of its files."""
    found = Path(path)
    if found.is_file() and found.name == ROLLUP_FILENAME:
        return found
    manifest = resolve_telemetry_sink_manifest_path(found)
    if manifest is not None:
        return manifest.parent / ROLLUP_FILENAME
    return (found.parent if found.is_file() else found) / ROLLUP_FILENAME


def telemetry_rollup_file_to_dict(rollups: TelemetryRollupFile) -> dict[str, Any]:
    """The rollups as JSON values."""
    return asdict(rollups)


def telemetry_rollup_file_from_dict(payload: Mapping[str, Any]) -> TelemetryRollupFile:
    """The rollups from JSON values. Raises ValueError for another version or format, and for invalid
    fields.
    """
    if not isinstance(payload, Mapping):
        raise ValueError("telemetry rollups must be an object")  # noqa: TRY004 - one error for bad documents
    _require_fields(TelemetryRollupFile, payload)
    if payload["schema_version"] != TELEMETRY_ROLLUP_SCHEMA_VERSION:
        raise ValueError("unsupported telemetry rollup schema_version")
    if payload["format"] != ROLLUPS_FORMAT:
        raise ValueError("unsupported telemetry rollup format")
    sessions = [
        {**session, "session": session_summary_from_dict(session["session"])}
        for session in payload["sessions"]
    ]
    try:
        return msgspec.convert({**payload, "sessions": sessions}, TelemetryRollupFile)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def _session_rollup(loaded: LoadedTelemetrySession, window_ns: int) -> SessionRollup:
    totals = SessionTotals(loaded.summary.started_at_ns, window_ns)
    for event in sorted(loaded.events, key=attrgetter("timestamp_ns")):
        totals.add(event)
    document = {
        **totals.document(loaded.summary.ended_at_ns),
        "session": loaded.summary,
        "source_count": len(loaded.sources_loaded),
        "sources_loaded": sorted(loaded.sources_loaded),
        "warnings": list(loaded.warnings),
    }
    return msgspec.convert(document, SessionRollup)


def _matches(rollups: TelemetryRollupFile, manifest: TelemetrySinkManifest) -> bool:
    now, then = rollup_coverage_from_manifest(manifest), rollups.coverage
    return (
        rollups.source_manifest_schema_version == manifest.schema_version
        and then.retained_segment_filenames == now.retained_segment_filenames
        and then.retained_event_count == now.retained_event_count
        and then.retained_bytes == now.retained_bytes
    )


def _require_fields(kind: Any, value: object) -> None:
    """Raise ValueError unless an object, and all objects in it, have every field: files have no defaults."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{kind.__name__} must be an object")  # noqa: TRY004 - one error for bad documents
    hints = get_type_hints(kind)
    for name in (one.name for one in fields(kind)):
        if name not in value:
            raise ValueError(f"missing required {name}")
        inner = hints[name]
        if inner is SessionSummary:
            continue
        if is_dataclass(inner):
            _require_fields(inner, value[name])
        elif args := [arg for arg in get_args(inner) if is_dataclass(arg)]:
            if not isinstance(value[name], list):
                raise ValueError(f"{name} must be a list")
            for item in value[name]:
                _require_fields(args[0], item)


__all__ = [
    "DEFAULT_ROLLUP_WINDOW_NS",
    "DEFAULT_ROLLUP_WINDOW_SECONDS",
    "ROLLUP_FILENAME",
    "TELEMETRY_ROLLUP_SCHEMA_VERSION",
    "AlertSummary",
    "CollectorHealthSummary",
    "CounterSummary",
    "OomSummary",
    "PeakValue",
    "RankRollup",
    "RollupCoverage",
    "SessionRollup",
    "TelemetryRollupFile",
    "WindowRollup",
    "build_telemetry_rollups",
    "read_telemetry_rollups",
    "resolve_telemetry_rollup_path",
    "rollup_coverage_from_manifest",
    "telemetry_rollup_file_from_dict",
    "telemetry_rollup_file_to_dict",
    "write_telemetry_rollups",
]
