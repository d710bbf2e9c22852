"""What happened to device memory in a run, or in a recording of device telemetry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import heappop, heappush
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flightlog.analyze.device_advice import advice
from flightlog.analyze.device_bundles import read_bundles
from flightlog.analyze.device_counters import AnyDeviceEvent
from flightlog.analyze.device_driver import gpu_samples
from flightlog.analyze.device_gap import fragmentation, hidden_gaps
from flightlog.analyze.device_leaks import headroom, leaks
from flightlog.analyze.device_oom import running_out
from flightlog.analyze.device_ranks import align, stragglers
from flightlog.analyze.device_results import Curve, DeviceReport, HiddenGap, PhaseUse, SessionUse
from flightlog.analyze.device_track import NotInOrder, Phase, Track
from flightlog.errors import UsageError
from flightlog.events.devices import DeviceMemory
from flightlog.events.devices.sessions import COMPLETED, INCOMPLETE, INTERRUPTED, RUNNING
from flightlog.store.devices.reading import TelemetryReading
from flightlog.store.plain_paths import path_text

if TYPE_CHECKING:
    from flightlog.analyze.device_bundles import Bundle
    from flightlog.analyze.device_results import GpuSamples
    from flightlog.store.run import Run

NEAR = 32
"""Events of a session that wait to be put in order: threads of a process write past each other."""
NOTHING = (
    "this run recorded no device memory; record it with `flightlog.track_device_memory()` "
    "or `flightlog run --device-memory`"
)


def devices_of_run(run: Run) -> DeviceReport:
    """What the run's device events, GPU samples and bundles say; a `UsageError` where it has none of them.

    Memory does not grow with the number of events, unless they stand out of order.
    """
    bundles, problems = read_bundles(run.path)
    tracks = _tracks(lambda: _run_events(run))
    gpus = gpu_samples(run.events("resources"))
    if not tracks and not bundles:
        raise UsageError(f"{run.run_id}: {NOTHING}")
    unstopped = {"running": RUNNING, "crashed": INTERRUPTED, "interrupted": INTERRUPTED}
    status = unstopped.get(run.status, INCOMPLETE)
    return _report(run.run_id, tracks, {}, status, bundles, gpus, [*problems, *run.problems])


def devices_of_path(path: str | Path) -> DeviceReport:
    """The same of a telemetry file, of any tool that writes the schema, or of a sink folder.

    A `UsageError` where it cannot be opened or holds no event.
    """
    readings: list[TelemetryReading] = []

    def events() -> Iterator[AnyDeviceEvent]:
        readings.append(TelemetryReading(path))
        yield from readings[-1]

    try:
        tracks = _tracks(events)
        reading = readings[-1]
        if not tracks:
            reading.fail_if_nothing_was_read()
            raise UsageError(f"{path} holds no device-memory events")
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"{path} cannot be read as device telemetry: {said}") from error
    statuses = {one.session_id: one.status for one in (reading.manifest.sessions if reading.manifest else [])}
    return _report(path_text(path), tracks, statuses, INCOMPLETE, [], [], reading.problems)


def only(report: DeviceReport, *, ranks: Collection[int] = (), phase: str | None = None) -> DeviceReport:
    """The report of these ranks and this phase alone; what was compared with the others stays compared.

    A `UsageError` where there is no such rank or phase.
    """
    sessions = [session for session in report.sessions if not ranks or session.rank in ranks]
    missing = set(ranks) - {session.rank for session in report.sessions}
    if missing:
        have = ", ".join(map(str, sorted({session.rank for session in report.sessions})))
        raise UsageError(f"there is no rank {min(missing)} in {report.source}; its ranks are {have}")
    if phase is not None:
        names = sorted({one.phase for session in sessions for one in session.phases if one.phase})
        if phase not in names:
            raise UsageError(
                f"there is no phase {phase!r} in {report.source}; its phases are {', '.join(names)}"
            )
        sessions = [_in_phase(session, phase) for session in sessions]
    kept = msgspec.structs.replace(
        report,
        sessions=sessions,
        stragglers=[
            one
            for one in report.stragglers
            if (not ranks or one.rank in ranks) and phase in {None, one.phase}
        ],
        out_of_memory=[
            one
            for one in report.out_of_memory
            if (not ranks or one.rank in ranks) and phase in {None, one.phase}
        ],
    )
    return msgspec.structs.replace(kept, advice=advice(kept))


def devices_schema() -> dict[str, Any]:
    """The JSON Schema of a device report."""
    schema = msgspec.json.schema(DeviceReport)
    title = "Flightlog device-memory report"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


def _run_events(run: Run) -> Iterator[AnyDeviceEvent]:
    return (event for event in run.events("devices") if isinstance(event, DeviceMemory))


def _tracks(events: Callable[[], Iterable[AnyDeviceEvent]]) -> list[Track]:
    """The events by session and device; read a second time, and sorted, where they are far out of order."""
    try:
        return _sorted_out(events())
    except NotInOrder:
        return _sorted_out(sorted(events(), key=attrgetter("timestamp_ns")))


def _sorted_out(events: Iterable[AnyDeviceEvent]) -> list[Track]:
    tracks: dict[tuple[object, ...], Track] = {}
    waiting: dict[tuple[object, ...], list[tuple[int, int, AnyDeviceEvent]]] = {}

    def release(key: tuple[object, ...]) -> None:
        _, _, event = heappop(waiting[key])
        track = tracks.get(key)
        if track is None:
            track = tracks[key] = Track(event)
        track.add(event)

    for number, event in enumerate(events):
        key = (event.session_id, event.device_id, event.rank, event.host, event.pid)
        heappush(waiting.setdefault(key, []), (event.timestamp_ns, number, event))
        if len(waiting[key]) > NEAR:
            release(key)
    for of, left in waiting.items():
        while left:
            release(of)
        tracks[of].finish()
    return sorted(tracks.values(), key=_order)


def _order(track: Track) -> tuple[object, ...]:
    first = track.first
    return (first.rank, first.host, first.device_id, track.start_ns, first.session_id, first.pid)


def _report(
    source: str,
    tracks: list[Track],
    statuses: dict[str, str],
    unstopped: str,
    bundles: list[Bundle],
    gpus: list[GpuSamples],
    problems: list[str],
) -> DeviceReport:
    gaps = hidden_gaps(tracks)
    sessions = [
        _session(track, statuses.get(track.first.session_id, COMPLETED if track.stopped else unstopped), gap)
        for track, gap in zip(tracks, gaps, strict=True)
    ]
    alignment = align(sessions)
    report = DeviceReport(
        source=source,
        events=sum(track.events for track in tracks),
        sessions=sessions,
        gpus=gpus,
        alignment=alignment,
        stragglers=stragglers(sessions, alignment),
        out_of_memory=running_out(tracks, sessions, bundles, alignment),
        advice=[],
        problems=problems,
    )
    return msgspec.structs.replace(report, advice=advice(report))


def _session(track: Track, status: str, gap: HiddenGap | None) -> SessionUse:
    first = track.first
    groups = track.heights.groups
    phases = [_phase(name, phase) for name, phase in track.phases.items()]
    return SessionUse(
        session_id=first.session_id,
        rank=first.rank,
        local_rank=first.local_rank,
        world_size=first.world_size,
        host=first.host,
        pid=first.pid,
        device_id=first.device_id,
        device_uuid=track.uuid,
        job_id=first.job_id,
        collector=first.collector,
        status=status,
        events=track.events,
        start_ns=track.start_ns,
        end_ns=track.end_ns,
        duration_s=(track.end_ns - track.start_ns) / 1e9,
        sampling_interval_ms=first.sampling_interval_ms,
        clock_offset_ns=track.offset_ns,
        capacity_bytes=track.capacity,
        peak_allocated=track.peaks[0],
        peak_reserved=track.peaks[1],
        peak_device_used=track.peaks[2],
        unknown=track.unseen,
        phases=sorted(phases, key=lambda one: (-_height(one), one.phase or "")),
        phases_left_out=len(track.phases_left_out),
        fragmentation=fragmentation(track),
        hidden=gap,
        leaks=leaks(track, headroom(track)),
        warnings=track.warnings,
        criticals=track.criticals,
        errors=track.errors,
        curve=Curve(
            after_s=[(at - track.start_ns) / 1e9 for at, _ in groups],
            allocated_bytes=[highest[0] for _, highest in groups],
            reserved_bytes=[highest[1] for _, highest in groups],
            device_used_bytes=[highest[2] for _, highest in groups],
        ),
    )


def _phase(name: str | None, phase: Phase) -> PhaseUse:
    return PhaseUse(
        phase=name,
        repetitions=phase.repetitions,
        events=phase.events,
        first_ns=phase.first_ns,
        duration_s=phase.duration_ns / 1e9,
        peak_allocated_bytes=phase.peaks[0],
        peak_reserved_bytes=phase.peaks[1],
        peak_device_used_bytes=phase.peaks[2],
        growth_bytes=phase.growth,
    )


def _height(phase: PhaseUse) -> int:
    known = (phase.peak_allocated_bytes, phase.peak_device_used_bytes)
    return next((value for value in known if value is not None), -1)


def _in_phase(session: SessionUse, phase: str) -> SessionUse:
    return msgspec.structs.replace(
        session,
        phases=[one for one in session.phases if one.phase == phase],
        leaks=[leak for leak in session.leaks if leak.phase == phase],
    )
