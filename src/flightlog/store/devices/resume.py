"""A sink folder as its last writer left it, put in order for the next one."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec.structs

from flightlog.events.devices.sessions import INTERRUPTED, RUNNING, SessionSummary
from flightlog.store.devices.loading import load_telemetry_sessions
from flightlog.store.devices.manifest import (
    SinkManifest,
    SinkSegment,
    read_manifest,
    segment_number,
    segment_paths,
)
from flightlog.store.devices.reading import TelemetryReading
from flightlog.store.documents import is_leftover


def resume(folder: Path) -> SinkManifest:
    """The folder's manifest, true again; for the holder of its lock.

    A segment that ends in the middle of a line is cut back to its last whole one. Segments that were open are
    closed, those that the manifest does not know are taken up, those that are gone are dropped. A session
    that was running has been interrupted, at its last event as far as anybody knows.
    """
    for leftover in [file for file in folder.iterdir() if is_leftover(file.name)]:
        leftover.unlink(missing_ok=True)
    found = read_manifest(folder)
    known = {segment.filename: segment for segment in found.segments} if found else {}
    segments = [
        _settled(path, known.get(path.name)) for path in segment_paths(folder, found) if path.is_file()
    ]
    sessions = found.sessions if found else []
    if found is None and segments:
        sessions = [loaded.summary for loaded in load_telemetry_sessions(folder)]
    return SinkManifest(
        sessions=[
            _interrupted(summary, folder) if summary.status == RUNNING else summary for summary in sessions
        ],
        segments=segments,
    )


def next_number(manifest: SinkManifest) -> int:
    """The number of the next segment: never one that was used and is still there."""
    return 1 + max((segment_number(segment.filename) for segment in manifest.segments), default=0)


def _settled(path: Path, known: SinkSegment | None) -> SinkSegment:
    size = path.stat().st_size
    if known is not None and known.closed and known.size_bytes == size:
        return known
    if path.suffix == ".jsonl":
        size = _cut_back(path, size)
    reading = TelemetryReading(path)
    sessions = {event.session_id for event in reading}
    named = known.session_id if known else None
    return SinkSegment(
        filename=path.name,
        event_count=reading.read,
        size_bytes=size,
        closed=True,
        session_id=named or (sessions.pop() if len(sessions) == 1 else None),
    )


def _cut_back(path: Path, size: int) -> int:
    """Cut a file behind its last newline; its size then."""
    with path.open("rb+") as file:
        end = size
        while end > 0:
            begin = max(0, end - 65536)
            newline = os.pread(file.fileno(), end - begin, begin).rfind(b"\n")
            if newline >= 0:
                end = begin + newline + 1
                break
            end = begin
        if end < size:
            os.ftruncate(file.fileno(), end)
            os.fsync(file.fileno())
    return end


def _interrupted(summary: SessionSummary, folder: Path) -> SessionSummary:
    times = (
        event.timestamp_ns for event in TelemetryReading(folder) if event.session_id == summary.session_id
    )
    last = max(times, default=summary.started_at_ns)
    return msgspec.structs.replace(summary, status=INTERRUPTED, ended_at_ns=last)
