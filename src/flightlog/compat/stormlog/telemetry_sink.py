"""Sink folders: telemetry appended to segments of bounded size, of which the oldest are pruned."""

from __future__ import annotations

import json
import logging
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from flightlog.compat.limits import CompatLimits
from flightlog.compat.stormlog.session import (
    SESSION_STATUS_COMPLETED,
    SESSION_STATUS_INTERRUPTED,
    SessionSummary,
    answer_to_dataclasses,
    create_session_summary,
    normalize_session_status,
)
from flightlog.compat.stormlog.telemetry import load_telemetry_sessions
from flightlog.compat.stormlog.telemetry_rollups import (
    build_telemetry_rollups,
    rollup_coverage_from_manifest,
    write_telemetry_rollups,
)
from flightlog.core.errors import UsageError
from flightlog.devices import TelemetrySink
from flightlog.record.values import clean
from flightlog.store.devices import reading
from flightlog.store.devices.reading import SinkManifest, SinkSegment, read_manifest

MANIFEST_FILENAME = reading.MANIFEST
SEGMENT_PREFIX = "segment-"
SEGMENT_SUFFIX = ".jsonl"
SINK_SCHEMA_VERSION = reading.MANIFEST_SCHEMA_VERSION


log = logging.getLogger(__name__)


_OPENING = threading.RLock()


@dataclass
class TelemetrySinkConfig:
    """Where a sink writes, when it syncs, and how much it retains. Raises ValueError for invalid values."""

    root_dir: Path
    flush_every_events: int = 50
    flush_every_seconds: float = 2.0
    rollover_max_bytes: int = 64 * 1024 * 1024
    rollover_max_events: int = 10000
    retention_max_files: int = 8
    retention_max_total_bytes: int = 512 * 1024 * 1024
    write_rollups: bool = True
    rollup_window_seconds: int = 60

    def __post_init__(self) -> None:
        self.root_dir = Path(self.root_dir)
        for name in (one.name for one in fields(self) if one.name not in ("root_dir", "write_rollups")):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be {'> 0' if name == 'flush_every_seconds' else '>= 1'}")
        if self.retention_max_total_bytes < self.rollover_max_bytes:
            raise ValueError("retention_max_total_bytes must be >= rollover_max_bytes")


TelemetrySinkSegment = SinkSegment
TelemetrySinkManifest = SinkManifest
for _kind in (SinkSegment, SinkManifest):
    answer_to_dataclasses(_kind, _kind.__struct_fields__)


class AppendOnlyTelemetrySink:
    """Appends records to a folder, one session after another; thread-safe.

    A record is with the kernel when `append` returns, so that a killed process loses none; it is synced every
    so many events and seconds. A session that its writer left running was interrupted. Within one process the
    newest sink has the folder: an older one is ended as interrupted, and appending to it raises `UsageError`,
    as does opening a folder that another process writes.
    """

    def __init__(self, config: TelemetrySinkConfig) -> None:
        self.config = config
        self.root_dir = config.root_dir
        self._lock = threading.RLock()
        self._sinks: list[TelemetrySink] = []
        self._unwaited, self._waited_s = 0, time.monotonic()
        self._superseded = False
        self._sink: TelemetrySink | None = self._open()

    def start_session(self, summary: SessionSummary | None = None) -> SessionSummary:
        """Start this session, or a new one of this process; returns the one that is open already, if any."""
        with self._lock:
            sink = self._opened()
            sink.begin(summary or create_session_summary(source="stormlog.telemetry_sink"))
            assert sink.session is not None
            return sink.session

    def current_session(self) -> SessionSummary | None:
        """The session being written, if any."""
        with self._lock:
            return self._sink.session if self._sink is not None else None

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record to the current session, or to a new one.

        Values without a JSON form are written as text, NaN and infinities as null. Raises ValueError for a
        record of another session.
        """
        session_id = record.get("session_id")
        if session_id is not None and not isinstance(session_id, str):
            raise ValueError("telemetry sink record session_id must be a string")
        line = _line(record)
        with self._lock:
            sink = self._opened()
            session = sink.session
            if session is None:
                session = create_session_summary(source="stormlog.telemetry_sink", session_id=session_id)
            elif session_id is not None and session_id != session.session_id:
                raise ValueError("telemetry sink record session_id does not match the active session")
            sink.append_line(line, session)
            self._unwaited += 1
            self.flush()

    def flush(self, force: bool = False) -> None:
        """Sync to disk, if `force` or due by the config's events or seconds."""
        with self._lock:
            due = (
                self._unwaited >= self.config.flush_every_events
                or time.monotonic() - self._waited_s >= self.config.flush_every_seconds
            )
            if self._sink is not None and self._unwaited and (force or due):
                self._sink.flush()
                self._unwaited, self._waited_s = 0, time.monotonic()

    def close(self, session_status: str = SESSION_STATUS_COMPLETED) -> None:
        """End the session with this status and write the rollups; a later record starts another session."""
        status = normalize_session_status(session_status)
        with self._lock:
            sink, self._sink = self._sink, None
            if sink is None:
                return
            sink.close(status)
            self._unwaited = 0
            if _OPEN.get(self._key()) is self:
                del _OPEN[self._key()]
            if self.config.write_rollups:
                self._write_rollups()

    def get_diagnostics(self) -> dict[str, int]:
        """Numbers of full and pruned segments, and what the folder holds."""
        with self._lock:
            manifest = read_telemetry_sink_manifest(self.root_dir)
            kept = self._sink.segments if self._sink else manifest.segments if manifest else ()
            return {
                "rollover_count": sum(sink.filled for sink in self._sinks),
                **self._pruned(),
                "final_retained_files": len(kept),
                "final_retained_bytes": sum(segment.size_bytes for segment in kept),
            }

    def _key(self) -> str:
        return str(self.root_dir.resolve())

    def _opened(self) -> TelemetrySink:
        if self._superseded:
            raise UsageError(f"another sink of this process writes {self.root_dir} now: use that one")
        if self._sink is None:
            self._sink = self._open()
        return self._sink

    def _open(self) -> TelemetrySink:
        with _OPENING:
            older = _OPEN.get(self._key())
            if older is not None and older is not self:
                older._give_way()
            sink = TelemetrySink(
                self.root_dir,
                rollover_events=self.config.rollover_max_events,
                rollover_bytes=self.config.rollover_max_bytes,
                retain_files=self.config.retention_max_files,
                retain_bytes=self.config.retention_max_total_bytes,
                rollup_window_s=None,
            )
            _OPEN[self._key()] = self
            self._sinks.append(sink)
            return sink

    def _give_way(self) -> None:
        with self._lock:
            sink, self._sink, self._superseded = self._sink, None, True
            if sink is not None:
                sink.close(SESSION_STATUS_INTERRUPTED)

    def _pruned(self) -> dict[str, int]:
        files, sizes = zip(*(sink.pruned for sink in self._sinks), strict=True)
        return {"pruned_segment_count": sum(files), "pruned_bytes": sum(sizes)}

    def _write_rollups(self) -> None:
        """Write the rollups, which can be rebuilt from the segments: a failure is logged and does not fail
        the close.
        """
        try:
            manifest = read_telemetry_sink_manifest(self.root_dir)
            sessions = load_telemetry_sessions(self.root_dir)
            _require_any_readable(sessions, manifest)
            rollups = build_telemetry_rollups(
                sessions,
                manifest,
                window_duration_ns=self.config.rollup_window_seconds * 1_000_000_000,
                coverage=rollup_coverage_from_manifest(manifest, **self._pruned()),
            )
            write_telemetry_rollups(self.root_dir, rollups)
        except (OSError, ValueError) as error:
            log.warning("telemetry rollup write failed: %s", error)


_OPEN: weakref.WeakValueDictionary[str, AppendOnlyTelemetrySink] = weakref.WeakValueDictionary()
"""The sinks of this process by folder."""


def resolve_telemetry_sink_segment_paths(path: str | Path) -> list[Path]:
    """The segments at a path, by name: the file itself, or all of a sink folder."""
    found = Path(path)
    return [segment for segment in reading.segment_paths(found, read_manifest(found)) if segment.exists()]


def resolve_telemetry_sink_manifest_path(path: str | Path) -> Path | None:
    """The manifest of a sink folder or of a segment's folder, or the path itself; None where there is
    none.
    """
    return reading.manifest_path(Path(path))


def read_telemetry_sink_manifest(path: str | Path) -> TelemetrySinkManifest | None:
    """The manifest, without invalid entries; None where it cannot be read."""
    found = read_manifest(Path(path))
    return found and structs.replace(found, schema_version=max(1, found.schema_version))


def _line(record: Mapping[str, Any]) -> bytes:
    with suppress(TypeError, ValueError):
        return json.dumps(dict(record), sort_keys=True, allow_nan=False).encode() + b"\n"
    try:
        return msgspec.json.encode(dict(record), order="sorted", enc_hook=str) + b"\n"
    except Exception:  # noqa: BLE001 - somebody's `__str__`, or keys that are no texts: as good as it gets
        plain, _ = clean(record, limit=CompatLimits.max_line_text, keys_secret=False)
        return msgspec.json.encode(plain, order="sorted") + b"\n"


def _require_any_readable(sessions: list[Any], manifest: TelemetrySinkManifest | None) -> None:
    written = sum(segment.event_count for segment in manifest.segments) if manifest else 0
    if written and not any(session.events for session in sessions):
        problems = [problem for session in sessions for problem in session.warnings]
        raise ValueError(problems[0] if problems else "no record of the folder is an event")


__all__ = [
    "MANIFEST_FILENAME",
    "SEGMENT_PREFIX",
    "SEGMENT_SUFFIX",
    "SINK_SCHEMA_VERSION",
    "AppendOnlyTelemetrySink",
    "TelemetrySinkConfig",
    "TelemetrySinkManifest",
    "TelemetrySinkSegment",
    "read_telemetry_sink_manifest",
    "resolve_telemetry_sink_manifest_path",
    "resolve_telemetry_sink_segment_paths",
]
