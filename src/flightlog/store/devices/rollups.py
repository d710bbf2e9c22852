"""A sink folder's `rollups.json`: peaks, counts and the hidden gap by session, rank and time window."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from flightlog.events.devices.event import TelemetryEvent
from flightlog.store.devices.manifest import MANIFEST, SinkManifest
from flightlog.store.devices.reading import TelemetryReading

ROLLUPS_FORMAT = "stormlog.telemetry_rollups"
ROLLUPS_SCHEMA_VERSION = 1
_COUNTERS = ("allocator_allocated_bytes", "allocator_reserved_bytes", "device_used_bytes")
_ALERTS = ("warning", "critical", "error")
_NO_PEAK: dict[str, int | None] = dict.fromkeys(("device_id", "rank", "timestamp_ns", "value"))
_DUMP = "oom_dump_path"
_OOM_MARKS = frozenset({"oom_reason", _DUMP})
_DEGRADED, _RECOVERED = "collector_degraded", "collector_recovered"


def rollups(
    folder: Path,
    manifest: SinkManifest,
    *,
    window_ns: int,
    generated_at_ns: int,
    pruned_segments: int = 0,
    pruned_bytes: int = 0,
) -> dict[str, Any]:
    """The document, of what the folder holds now, in one pass; windows count from a session's start."""
    reading = TelemetryReading(folder)
    sessions = {
        summary.session_id: SessionTotals(summary.started_at_ns, window_ns) for summary in manifest.sessions
    }
    for source, batch in reading.by_source():
        for event in batch:
            if event.session_id not in sessions:
                sessions[event.session_id] = SessionTotals(event.timestamp_ns, window_ns)
            sessions[event.session_id].add(event)
        for session_id in {event.session_id for event in batch}:
            sessions[session_id].sources.add(source.name)
    known = {summary.session_id: summary for summary in manifest.sessions}
    return {
        "coverage": {
            "pruned_bytes": pruned_bytes,
            "pruned_segment_count": pruned_segments,
            "retained_bytes": sum(segment.size_bytes for segment in manifest.segments),
            "retained_event_count": sum(segment.event_count for segment in manifest.segments),
            "retained_segment_count": len(manifest.segments),
            "retained_segment_filenames": [segment.filename for segment in manifest.segments],
        },
        "format": ROLLUPS_FORMAT,
        "generated_at_ns": generated_at_ns,
        "schema_version": ROLLUPS_SCHEMA_VERSION,
        "sessions": [
            {
                "session": msgspec.to_builtins(known.get(session_id)),
                "warnings": reading.problems,
                **session.document(known[session_id].ended_at_ns if session_id in known else None),
            }
            for session_id, session in sessions.items()
        ],
        "source_manifest": MANIFEST,
        "source_manifest_schema_version": manifest.schema_version,
        "window_duration_ns": window_ns,
    }


class _Group:
    """Events of one group: how many, from when to when, and the peaks; of equal peaks the first."""

    def __init__(self) -> None:
        self.types: Counter[str] = Counter()
        self.alerts: Counter[str] = Counter()
        self.severities: Counter[str] = Counter()
        self.out_of_memory = 0
        self.dumps: set[str] = set()
        self.first: int | None = None
        self.last: int | None = None
        self.peaks: dict[str, dict[str, int] | None] = dict.fromkeys(_COUNTERS)

    def add(self, event: TelemetryEvent) -> None:
        now = event.timestamp_ns
        self.types[event.event_type] += 1
        severity = _severity_said(event)
        if event.event_type in _ALERTS or severity in _ALERTS:
            self.alerts[event.event_type] += 1
            self.severities[severity or ("warning" if event.event_type == "warning" else "critical")] += 1
        if event.event_type == "error" and _OOM_MARKS & event.metadata.keys():
            self.out_of_memory += 1
            if isinstance(dump := event.metadata.get(_DUMP), str) and dump.strip():
                self.dumps.add(dump)
        self.first = now if self.first is None else min(self.first, now)
        self.last = now if self.last is None else max(self.last, now)
        for name, peak in self.peaks.items():
            value = getattr(event, name)
            if value is not None and (peak is None or value > peak["value"]):
                self.peaks[name] = {
                    "device_id": event.device_id,
                    "rank": event.rank,
                    "timestamp_ns": now,
                    "value": value,
                }

    def number(self, *types: str) -> int:
        return sum(self.types[name] for name in types)

    def counters(self) -> dict[str, Any]:
        return {name: peak or _NO_PEAK for name, peak in self.peaks.items()}

    def document(self) -> dict[str, Any]:
        return {
            "counters": self.counters(),
            "event_count": self.types.total(),
            "first_timestamp_ns": self.first,
            "last_timestamp_ns": self.last,
            "sample_count": self.number("sample"),
        }


class _Rank(_Group):
    """One rank; its hidden gap is what the device has in use beyond what the rank's allocator holds, by
    samples.
    """

    def __init__(self, event: TelemetryEvent) -> None:
        super().__init__()
        self.identity = {name: getattr(event, name) for name in ("rank", "local_rank", "world_size")}
        self.gaps: tuple[tuple[int, int], tuple[int, int], int] | None = None  # first, latest, highest

    def add(self, event: TelemetryEvent) -> None:
        super().add(event)
        used, reserved = event.device_used_bytes, event.allocator_reserved_bytes
        if event.event_type != "sample" or used is None or reserved is None:
            return
        gap = (event.timestamp_ns, used - reserved)
        first, _, highest = self.gaps or (gap, gap, gap[1])
        self.gaps = (first, gap, max(highest, gap[1]))

    def document(self) -> dict[str, Any]:
        (begun, first), (ended, latest), highest = self.gaps or ((0, None), (0, None), None)
        change = None if first is None or latest is None else latest - first
        seconds = (ended - begun) / 1e9
        return {
            **super().document(),
            **self.identity,
            "hidden_gap_delta_bytes": change,
            "hidden_gap_drift_bytes_per_second": round(change / seconds, 6)
            if change is not None and seconds > 0
            else None,
            "hidden_gap_first_bytes": first,
            "hidden_gap_latest_bytes": latest,
            "hidden_gap_peak_bytes": highest,
        }


class SessionTotals(_Group):
    """One session, its ranks and its windows, of events that are added in order of time."""

    def __init__(self, started_at_ns: int, window_ns: int) -> None:
        super().__init__()
        self.sources: set[str] = set()
        self._start, self._window_ns = started_at_ns, window_ns
        self._ranks: dict[int, _Rank] = {}
        self._windows: dict[int, tuple[_Group, set[int]]] = {}
        self._away_ns, self._away_since = 0, -1
        self._status: str | None = None

    def add(self, event: TelemetryEvent) -> None:
        """Take one event in."""
        super().add(event)
        rank = self._ranks.get(event.rank)
        if rank is None:
            rank = self._ranks[event.rank] = _Rank(event)
        rank.add(event)
        index = max(0, (event.timestamp_ns - self._start) // self._window_ns)
        window, ranks = self._windows.setdefault(index, (_Group(), set()))
        window.add(event)
        ranks.add(event.rank)
        self._follow_health(event)

    def _follow_health(self, event: TelemetryEvent) -> None:
        if event.event_type == _DEGRADED:
            self._status = "degraded"
            self._away_since = event.timestamp_ns if self._away_since < 0 else self._away_since
        elif event.event_type == _RECOVERED:
            self._status = "healthy"
            if self._away_since >= 0:
                self._away_ns += event.timestamp_ns - self._away_since
                self._away_since = -1
        elif isinstance(status := event.metadata.get("collector_health_status"), str) and status.strip():
            self._status = status.strip().lower()

    def document(self, ended_at_ns: int | None = None) -> dict[str, Any]:
        """What `rollups.json` says of it, but for its summary and warnings; a degraded collector is so to the
        end.
        """
        end = self.last or 0 if ended_at_ns is None else ended_at_ns
        away = max(0, end - self._away_since) if self._away_since >= 0 else 0
        return {
            **super().document(),
            "source_count": len(self.sources),
            "sources_loaded": sorted(self.sources),
            "alerts": {
                "event_type_counts": dict(sorted(self.alerts.items())),
                "severity_counts": dict(sorted(self.severities.items())),
                "total_count": self.alerts.total(),
            },
            "collector_health": {
                "degraded_count": self.types[_DEGRADED],
                "degraded_time_ns": self._away_ns + away,
                "last_status": self._status,
                "recovered_count": self.types[_RECOVERED],
                "transition_count": self.number(_DEGRADED, _RECOVERED),
            },
            "oom": {
                "bundle_path_count": len(self.dumps),
                "event_count": self.out_of_memory,
                "marker_count": self.out_of_memory,
            },
            "ranks": [self._ranks[rank].document() for rank in sorted(self._ranks)],
            "windows": [self._window(index) for index in sorted(self._windows)],
        }

    def _window(self, index: int) -> dict[str, Any]:
        window, ranks = self._windows[index]
        return {
            "alert_count": window.alerts.total(),
            "collector_transition_count": window.number(_DEGRADED, _RECOVERED),
            "counters": window.counters(),
            "end_ns": self._start + (index + 1) * self._window_ns,
            "event_count": window.types.total(),
            "index": index,
            "oom_count": window.out_of_memory,
            "rank_count": len(ranks),
            "sample_count": window.number("sample"),
            "start_ns": self._start + index * self._window_ns,
        }


def _severity_said(event: TelemetryEvent) -> str | None:
    said = event.metadata.get("severity")
    return said.strip().lower() if isinstance(said, str) and said.strip() else None
