"""An allocator's snapshot in files of bounded size: all of it where it fits, and always its segments in
short.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

PICKLE, SHORT = "snapshot.pickle", "snapshot.json"
MAX_SEGMENTS = 2000
_SIZES = ("total_size", "allocated_size", "active_size", "requested_size")
_ROOM_OF_SEGMENT = 256
"""Bytes of JSON that a segment takes at most."""


class TooLargeError(Exception):
    """The snapshot does not fit."""


class _Bounded:
    """A file that refuses to grow past its limit."""

    def __init__(self, file: Any, limit: int) -> None:
        self._file, self._left = file, limit

    def write(self, data: bytes) -> int:
        self._left -= len(data)
        if self._left < 0:
            raise TooLargeError
        return int(self._file.write(data))


def write_snapshot(folder: Path, snapshot: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Write what fits into `limit` bytes, and say what that is: files, whether all is there, and why not.

    `snapshot.json` holds the largest segments without their blocks; `snapshot.pickle` the snapshot as the
    framework gave it, which its own viewer opens. Raises OSError.
    """
    said: dict[str, Any] = {"files": [], "complete": False}
    short = shortened(snapshot, max(min(MAX_SEGMENTS, limit // 4 // _ROOM_OF_SEGMENT), 0))
    data = msgspec.json.encode(short)
    if len(data) <= limit:
        (folder / SHORT).write_bytes(data)
        said["files"].append(SHORT)
        limit -= len(data)
    try:
        with (folder / PICKLE).open("wb") as file:
            pickle.dump(dict(snapshot), _Bounded(file, limit), protocol=4)
        said["files"].append(PICKLE)
        said["complete"] = True
    except TooLargeError:
        (folder / PICKLE).unlink()
        said["note"] = f"{PICKLE} would be larger than the {limit:,} bytes there are for it"
    return said


def shortened(snapshot: Mapping[str, Any], most: int = MAX_SEGMENTS) -> dict[str, Any]:
    """The totals of a snapshot and its largest segments: sizes, kinds, numbers of blocks, largest free
    block.
    """
    segments = [s for s in _listed(snapshot.get("segments")) if isinstance(s, Mapping)]
    short = [_segment(segment) for segment in segments]
    short.sort(key=lambda segment: -(segment["total_size"] or 0))
    return {
        "segments_total": len(short),
        **{name: sum(segment[name] or 0 for segment in short) for name in _SIZES},
        "blocks": sum(segment["blocks"] for segment in short),
        "largest_free_block": max((segment["largest_free_block"] for segment in short), default=0),
        "free_in_split_segments": sum(
            (segment["total_size"] or 0) - (segment["active_size"] or 0)
            for segment in short
            if segment["active_size"]
        ),
        "history_entries": sum(len(_listed(trace)) for trace in _listed(snapshot.get("device_traces"))),
        "segments": short[:most],
    }


def _segment(segment: Mapping[str, Any]) -> dict[str, Any]:
    blocks = [b for b in _listed(segment.get("blocks")) if isinstance(b, Mapping)]
    free = [_number(b.get("size")) or 0 for b in blocks if b.get("state") == "inactive"]
    return {
        "device": _number(segment.get("device")),
        "segment_type": str(segment.get("segment_type"))[:20],
        **{name: _number(segment.get(name)) for name in _SIZES},
        "blocks": len(blocks),
        "largest_free_block": max(free, default=0),
    }


def _listed(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
