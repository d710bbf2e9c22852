"""A sink folder's `manifest.json`: its sessions and its segments; and where the segments of a path stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from flightlog.events.devices.event import SessionSummary
from flightlog.store.documents import decode_document, read_document

MANIFEST = "manifest.json"
ROLLUPS = "rollups.json"
MANIFEST_SCHEMA_VERSION = 2
MANIFEST_FORMAT = "stormlog.append_only_telemetry_sink"
_SEGMENT = re.compile(r"segment-(\d+)\.jsonl(\.gz)?")

T = TypeVar("T")
_Count = Annotated[int, Meta(ge=0)]


class SinkSegment(Struct):
    """One file of lines in a sink folder. The counts of one that is open lag behind the file."""

    filename: str
    event_count: _Count = 0
    size_bytes: _Count = 0
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


def manifest_path(path: Path) -> Path | None:
    """The manifest of a sink folder, of a segment's folder, or the path itself; None where there is none."""
    of_sink = path.is_file() and (path.name == MANIFEST or is_lines_file(path))
    manifest = (path.parent if of_sink else path) / MANIFEST
    return manifest if manifest.is_file() else None


class _Document(Struct):
    """The manifest as it stands in the file: entries may be anything."""

    schema_version: int = 1
    format: str = MANIFEST_FORMAT
    sessions: list[Any] = field(default_factory=list)
    segments: list[Any] = field(default_factory=list)


def read_manifest(path: Path) -> SinkManifest | None:
    """The manifest of a sink folder, of itself or of a segment's folder; None where there is none to be read.

    Entries that lack what they must have are left out. Odd counts are 0: the file itself can be counted.
    """
    where = manifest_path(path)
    found = None if where is None else read_document(where, _Document).value
    if found is None:
        return None
    segments = _entries(found.segments, SinkSegment, closed=False)
    return SinkManifest(
        schema_version=found.schema_version or 1,
        format=found.format or MANIFEST_FORMAT,
        sessions=_entries(found.sessions, SessionSummary, ended_at_ns=None, pid=-1),
        segments=[one for one in segments if Path(one.filename).name == one.filename],
    )


def segment_paths(path: Path, manifest: SinkManifest | None) -> list[Path]:
    """The files of lines that a path stands for, by name: one of them itself, or all of a sink folder."""
    if is_lines_file(path) and path.is_file():
        return [path]
    folder = path.parent if path.name == MANIFEST and path.is_file() else path
    if not folder.is_dir():
        return []
    named = {segment.filename for segment in manifest.segments} if manifest else set()
    there = {file.name for file in folder.iterdir() if _SEGMENT.fullmatch(file.name)}
    return [folder / name for name in sorted(named | there)]


def _entries(found: list[Any], kind: type[T], **defaults: Any) -> list[T]:
    """The entries that are of this kind."""
    texts = (msgspec.json.encode({**defaults, **entry}) for entry in found if isinstance(entry, dict))
    read = (decode_document(text, kind, MANIFEST).value for text in texts)
    return [entry for entry in read if entry is not None]
