"""A sink folder's `rollups.json`: peaks, counts and the hidden gap by session, rank and time window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from flightlog.events.devices.event import (
    OOM_DUMP,
    SessionSummary,
    TelemetryEvent,
    marks_out_of_memory,
    summary_of_events,
)
from flightlog.store.devices.reading import MANIFEST, SinkManifest, TelemetryReading

ROLLUPS_FORMAT = "stormlog.telemetry_rollups"
ROLLUPS_SCHEMA_VERSION = 1
_ALERTS = ("warning", "critical", "error")
_DEGRADED, _RECOVERED = "collector_degraded", "collector_recovered"

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


def rollups_of_folder(
    folder: Path, manifest: SinkManifest, *, window_ns: int, generated_at_ns: int, coverage: RollupCoverage
) -> TelemetryRollupFile:
    """The rollups of what the folder holds now, in one pass; windows count from a session's start."""
    reading = TelemetryReading(folder)
    sessions = {summary.session_id: SessionTotals(summary, window_ns) for summary in manifest.sessions}
    sources: dict[str, set[str]] = {session_id: set() for session_id in sessions}
    for source, batch in reading.by_source():
        for event in batch:
            if event.session_id not in sessions:
                summary = summary_of_events([event], source=f"artifact:{folder.name}")
                sessions[event.session_id] = SessionTotals(summary, window_ns)
            sessions[event.session_id].add(event)
        for session_id in {event.session_id for event in batch}:
            sources.setdefault(session_id, set()).add(source.name)
    return rollup_file(
        [totals.rollup(sources[name], reading.problems) for name, totals in sessions.items()],
        manifest,
        window_ns=window_ns,
        generated_at_ns=generated_at_ns,
        coverage=coverage,
    )


def rollup_file(
    sessions: list[SessionRollup],
    manifest: SinkManifest | None,
    *,
    window_ns: int,
    generated_at_ns: int,
    coverage: RollupCoverage | None = None,
) -> TelemetryRollupFile:
    """The whole document of these sessions; the coverage is the manifest's unless it is given."""
    return TelemetryRollupFile(
        schema_version=ROLLUPS_SCHEMA_VERSION,
        format=ROLLUPS_FORMAT,
        generated_at_ns=generated_at_ns,
        source_manifest=None if manifest is None else MANIFEST,
        source_manifest_schema_version=None if manifest is None else manifest.schema_version,
        window_duration_ns=window_ns,
        coverage=coverage or rollup_coverage_from_manifest(manifest),
        sessions=sessions,
    )


def rollup_coverage_from_manifest(
    manifest: SinkManifest | None, *, pruned_segment_count: int | None = None, pruned_bytes: int | None = None
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
        self.peaks: dict[str, PeakValue] = vars(CounterSummary()).copy()

    def add(self, event: TelemetryEvent) -> None:
        now = event.timestamp_ns
        self.types[event.event_type] += 1
        severity = _severity_said(event)
        if event.event_type in _ALERTS or severity in _ALERTS:
            self.alerts[event.event_type] += 1
            self.severities[severity or ("warning" if event.event_type == "warning" else "critical")] += 1
        if marks_out_of_memory(event):
            self.out_of_memory += 1
            if isinstance(dump := event.metadata.get(OOM_DUMP), str) and dump.strip():
                self.dumps.add(dump)
        self.first = now if self.first is None else min(self.first, now)
        self.last = now if self.last is None else max(self.last, now)
        for name, peak in self.peaks.items():
            value = getattr(event, name)
            if value is not None and (peak.value is None or value > peak.value):
                self.peaks[name] = PeakValue(value, now, event.rank, event.device_id)

    def number(self, *types: str) -> int:
        return sum(self.types[name] for name in types)

    def counts(self) -> dict[str, Any]:
        """What all rollups have."""
        return {
            "event_count": self.types.total(),
            "sample_count": self.number("sample"),
            "counters": CounterSummary(**self.peaks),
        }

    def times(self) -> dict[str, Any]:
        return {"first_timestamp_ns": self.first, "last_timestamp_ns": self.last}


class _Rank(_Group):
    """One rank; its hidden gap is by samples."""

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

    def rollup(self) -> RankRollup:
        (begun, first), (ended, latest), highest = self.gaps or ((0, None), (0, None), None)
        change = None if first is None or latest is None else latest - first
        seconds = (ended - begun) / 1e9
        return RankRollup(
            **self.identity,
            **self.counts(),
            **self.times(),
            hidden_gap_first_bytes=first,
            hidden_gap_latest_bytes=latest,
            hidden_gap_peak_bytes=highest,
            hidden_gap_delta_bytes=change,
            hidden_gap_drift_bytes_per_second=round(change / seconds, 6)
            if change is not None and seconds > 0
            else None,
        )


class SessionTotals(_Group):
    """One session, its ranks and its windows, of events that are added in order of time."""

    def __init__(self, summary: SessionSummary, window_ns: int) -> None:
        super().__init__()
        self._summary, self._window_ns = summary, window_ns
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
        index = max(0, (event.timestamp_ns - self._summary.started_at_ns) // self._window_ns)
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

    def rollup(self, sources: Iterable[str], warnings: list[str]) -> SessionRollup:
        """The rollup of what was added, out of these files; a degraded collector is so to the end."""
        ended = self._summary.ended_at_ns
        end = self.last or 0 if ended is None else ended
        away = max(0, end - self._away_since) if self._away_since >= 0 else 0
        loaded = sorted(sources)
        return SessionRollup(
            session=self._summary,
            **self.counts(),
            **self.times(),
            source_count=len(loaded),
            sources_loaded=loaded,
            warnings=warnings,
            alerts=AlertSummary(
                self.alerts.total(), dict(sorted(self.severities.items())), dict(sorted(self.alerts.items()))
            ),
            collector_health=CollectorHealthSummary(
                transition_count=self.number(_DEGRADED, _RECOVERED),
                degraded_count=self.types[_DEGRADED],
                recovered_count=self.types[_RECOVERED],
                degraded_time_ns=self._away_ns + away,
                last_status=self._status,
            ),
            oom=OomSummary(self.out_of_memory, self.out_of_memory, len(self.dumps)),
            ranks=[self._ranks[rank].rollup() for rank in sorted(self._ranks)],
            windows=[self._window(index) for index in sorted(self._windows)],
        )

    def _window(self, index: int) -> WindowRollup:
        window, ranks = self._windows[index]
        start = self._summary.started_at_ns + index * self._window_ns
        return WindowRollup(
            index=index,
            start_ns=start,
            end_ns=start + self._window_ns,
            rank_count=len(ranks),
            **window.counts(),
            alert_count=window.alerts.total(),
            collector_transition_count=window.number(_DEGRADED, _RECOVERED),
            oom_count=window.out_of_memory,
        )


def _severity_said(event: TelemetryEvent) -> str | None:
    said = event.metadata.get("severity")
    return said.strip().lower() if isinstance(said, str) and said.strip() else None
