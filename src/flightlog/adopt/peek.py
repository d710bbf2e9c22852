"""The beginning of a file, to tell what it is by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flightlog.adopt.lines import parse_object
from flightlog.store.devices.records import CutShort, chunks_of
from flightlog.store.documents import read_document

_HEAD = 1 << 20


def head(path: Path) -> bytes:
    """The first bytes of a file, unpacked where it is gzip, without a byte order mark; empty where there are
    none to be read.
    """
    if not path.is_file():
        return b""
    found = b""
    try:
        for chunk in chunks_of(path):
            found += chunk
            if len(found) >= _HEAD:
                break
    except (OSError, CutShort):
        pass  # what was read until then may tell
    return found


def first_objects(path: Path, number: int = 5) -> list[dict[str, Any]]:
    """The first JSON objects among the first lines of a file; lines that hold none are passed over."""
    found: list[dict[str, Any]] = []
    for line in head(path).split(b"\n")[: 20 * number]:
        parsed = parse_object(line.strip())
        if parsed is not None:
            found.append(parsed)
            if len(found) == number:
                break
    return found


def document(path: Path) -> dict[str, Any]:
    """A small JSON document; empty where there is none to be read."""
    return read_document(path, dict[str, Any]).value or {}


def folders(path: Path) -> list[Path]:
    """The folders in a folder, by name; none where it cannot be read."""
    try:
        return sorted(one for one in path.iterdir() if one.is_dir())
    except OSError:
        return []


def files(path: Path) -> list[Path]:
    """The files in a folder, by name, hidden ones left out; none where it cannot be read."""
    try:
        return sorted(one for one in path.iterdir() if one.is_file() and not one.name.startswith("."))
    except OSError:
        return []
