"""A sink folder's rollups: peaks, counts and the hidden gap of each session, rank and window of time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from flightlog.compat.stormlog.session import now_ns, session_summary_from_dict, session_summary_to_dict
from flightlog.compat.stormlog.telemetry import LoadedTelemetrySession
from flightlog.store.devices.reading import ROLLUPS, SinkManifest, manifest_path, read_manifest
from flightlog.store.devices.rollups import (
    ROLLUPS_FORMAT,
    ROLLUPS_SCHEMA_VERSION,
    AlertSummary,
    CollectorHealthSummary,
    CounterSummary,
    OomSummary,
    PeakValue,
    RankRollup,
    RollupCoverage,
    SessionRollup,
    SessionTotals,
    TelemetryRollupFile,
    WindowRollup,
    rollup_coverage_from_manifest,
    rollup_file,
)
from flightlog.store.documents import write_document

TELEMETRY_ROLLUP_SCHEMA_VERSION = ROLLUPS_SCHEMA_VERSION
ROLLUP_FILENAME = ROLLUPS
DEFAULT_ROLLUP_WINDOW_SECONDS = 60
DEFAULT_ROLLUP_WINDOW_NS = DEFAULT_ROLLUP_WINDOW_SECONDS * 1_000_000_000


def build_telemetry_rollups(
    sessions: Sequence[LoadedTelemetrySession],
    manifest: SinkManifest | None,
    *,
    window_duration_ns: int = DEFAULT_ROLLUP_WINDOW_NS,
    coverage: RollupCoverage | None = None,
) -> TelemetryRollupFile:
    """The rollups of sessions, the earliest first; the coverage is the manifest's unless it is given."""
    if window_duration_ns <= 0:
        raise ValueError("window_duration_ns must be >= 1")
    ordered = sorted(sessions, key=lambda one: (one.summary.started_at_ns, one.summary.session_id))
    return rollup_file(
        [_session_rollup(loaded, window_duration_ns) for loaded in ordered],
        manifest,
        window_ns=window_duration_ns,
        generated_at_ns=now_ns(),
        coverage=coverage,
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
    manifest = read_manifest(where.parent)
    return rollups if manifest is None or _matches(rollups, manifest) else None


def resolve_telemetry_rollup_path(path: str | Path) -> Path:
    """The path of the rollups of a sink folder, or of one of its files."""
    found = Path(path)
    if found.is_file() and found.name == ROLLUP_FILENAME:
        return found
    manifest = manifest_path(found)
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
    if payload.get("schema_version") != TELEMETRY_ROLLUP_SCHEMA_VERSION:
        raise ValueError("unsupported telemetry rollup schema_version")
    if payload.get("format") != ROLLUPS_FORMAT:
        raise ValueError("unsupported telemetry rollup format")
    if not isinstance(payload.get("sessions"), list):
        raise ValueError("sessions must be a list")  # noqa: TRY004 - one error for bad documents
    try:
        summaries = [session_summary_from_dict(session["session"]) for session in payload["sessions"]]
        sessions = [
            {**session, "session": session_summary_to_dict(summary)}
            for session, summary in zip(payload["sessions"], summaries, strict=True)
        ]
        found = msgspec.convert({**payload, "sessions": sessions}, TelemetryRollupFile)
    except (msgspec.ValidationError, TypeError, KeyError) as error:
        raise ValueError(f"invalid telemetry rollups: {error}") from error
    _require_fields(telemetry_rollup_file_to_dict(found), {**payload, "sessions": sessions})
    whole = [replace(one, session=of) for one, of in zip(found.sessions, summaries, strict=True)]
    return replace(found, sessions=whole)


def _session_rollup(loaded: LoadedTelemetrySession, window_ns: int) -> SessionRollup:
    totals = SessionTotals(loaded.summary, window_ns)
    for event in sorted(loaded.events, key=attrgetter("timestamp_ns")):
        totals.add(event)
    return totals.rollup(loaded.sources_loaded, list(loaded.warnings))


def _matches(rollups: TelemetryRollupFile, manifest: SinkManifest) -> bool:
    kept = attrgetter("retained_segment_filenames", "retained_event_count", "retained_bytes")
    is_current = kept(rollups.coverage) == kept(rollup_coverage_from_manifest(manifest))
    return is_current and rollups.source_manifest_schema_version == manifest.schema_version


def _require_fields(whole: Any, given: Any) -> None:
    """Raise ValueError unless what was given has every field of the whole: files have no defaults."""
    if isinstance(whole, dict):
        for name, value in whole.items():
            if name not in given:
                raise ValueError(f"missing required {name}")
            _require_fields(value, given[name])
    elif isinstance(whole, list):
        for part, of in zip(whole, given, strict=True):
            _require_fields(part, of)


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
