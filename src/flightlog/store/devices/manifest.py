"""A sink folder's `manifest.json`: its sessions and its segments; and where the segments of a path stand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from flightlog.events.devices.event import SessionSummary
from flightlog.store.documents import read_document

MANIFEST = "manifest.json"
ROLLUPS = "rollups.json"
MANIFEST_SCHEMA_VERSION = 2
MANIFEST_FORMAT = "stormlog.append_only_telemetry_sink"
_SEGMENT = re.compile(r"segment-(\d+)\.jsonl(\.gz)?")

T = TypeVar("T")


class SinkSegment(Struct):
    """One file of lines in a sink folder. The counts of one that is open lag behind the file."""

    filename: str
    event_count: int = 0
    size_bytes: int = 0
    closed: bool = True
    session_id: str | None = None


class SinkManifest(Struct):
    """What `manifest.json` says."""

    schema_version: int = MANIFEST_SCHEMA_VERSION
    format: str = MANIFEST_FORMAT
    sessions: list[SessionSummary] = field(default_factory=list)
    segments: list[SinkSegment] = field(default_factory=list)


def segment_name(number: int) -> str:
    """The name of the segment of this number, from 1."""
    return f"segment-{number:06d}.jsonl"


def segment_number(name: str) -> int:
    """The number in a segment's name; 0 for a file that is none."""
    found = _SEGMENT.fullmatch(name)
    return int(found[1]) if found else 0


def is_lines_file(path: Path) -> bool:
    """Whether a file's name says that it holds lines."""
    return path.name.endswith((".jsonl", ".jsonl.gz"))


def read_manifest(path: Path) -> SinkManifest | None:
    """The manifest of a sink folder, of itself or of a segment's folder; None where there is none to be read.

    Entries that are not as they should be are left out.
    """
    folder = _sink_folder(path)
    found = read_document(folder / MANIFEST, dict[str, Any]).value if folder is not None else None
    if found is None:
        return None
    sessions = ({"ended_at_ns": None, "pid": -1, **entry} for entry in _entries(found, "sessions"))
    return SinkManifest(
        schema_version=_convert(found.get("schema_version"), int) or 1,
        format=_convert(found.get("format"), str) or MANIFEST_FORMAT,
        sessions=[summary for entry in sessions if (summary := _convert(entry, SessionSummary))],
        segments=[
            segment
            for entry in _entries(found, "segments")
            if (segment := _segment(entry)) and Path(segment.filename).name == segment.filename
        ],
    )


def segment_paths(path: Path, manifest: SinkManifest | None) -> list[Path]:
    """The files of lines that a path stands for, by name: one of them itself, or all of a sink folder."""
    if is_lines_file(path) and path.is_file():
        return [path]
    folder = _sink_folder(path) if path.is_dir() or (path.name == MANIFEST and path.is_file()) else None
    if folder is None:
        return []
    named = {segment.filename for segment in manifest.segments} if manifest else set()
    there = {file.name for file in folder.iterdir() if _SEGMENT.fullmatch(file.name)}
    return [folder / name for name in sorted(named | there)]


def _sink_folder(path: Path) -> Path | None:
    if path.is_dir():
        return path
    return path.parent if path.name == MANIFEST or is_lines_file(path) else None


def _entries(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = document.get(name)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _segment(entry: dict[str, Any]) -> SinkSegment | None:
    """A segment whose name is known; counts that are none are 0, for the file itself can be counted."""
    session_id = entry.get("session_id")
    return _convert(
        {
            "filename": entry.get("filename"),
            "event_count": _count(entry.get("event_count")),
            "size_bytes": _count(entry.get("size_bytes")),
            "closed": bool(entry.get("closed", False)),
            "session_id": session_id if isinstance(session_id, str) else None,
        },
        SinkSegment,
    )


def _count(value: Any) -> int:
    try:
        return max(0, int(value))
    except (TypeError, ValueError, OverflowError):
        return 0


def _convert(value: Any, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None
