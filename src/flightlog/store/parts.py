"""Which files of a run directory hold which stream."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flightlog.store import layout

_ROTATED = re.compile(r"^(?P<stream>.+)-(?P<number>\d{6,})\.jsonl$")
_PLAIN = re.compile(r"^(?P<stream>.+)\.jsonl$")
_TAIL = re.compile(r"^(?P<stream>.+)\.tail-[ab]$")


@dataclass(frozen=True)
class Part:
    """One file with lines of one stream. `writer` is None for the file of the whole run."""

    path: Path
    stream: str
    kind: Literal["rotated", "active", "tail"]
    writer: str | None
    number: int = 0


def part_of(path: Path, writer: str | None = None) -> Part | None:
    """What a file is, by its name alone; None if it holds no lines."""
    name = path.name
    if name.startswith("."):
        return None
    if match := _ROTATED.match(name):
        return Part(path, match["stream"], "rotated", writer, int(match["number"]))
    if match := _PLAIN.match(name):
        return Part(path, match["stream"], "active", writer)
    if match := _TAIL.match(name):
        return Part(path, match["stream"], "tail", writer)
    return None


def find_parts(run: Path, stream: str = "") -> dict[str, list[Part]]:
    """Every stream's files: the run's own first, then writer by writer, and of each its oldest lines first.

    With `stream` those of others may be left out. A folder that is gone or cannot be read has none.
    """
    found: dict[str, list[Part]] = {}
    for folder, writer in [(run, None), *writer_folders(run)]:
        for part in sorted(folder_parts(folder, writer, stream), key=_age):
            found.setdefault(part.stream, []).append(part)
    return found


def folder_parts(folder: Path, writer: str | None, stream: str = "") -> Iterator[Part]:
    """The files with lines that stand in one folder, in no order; only those whose names begin with
    `stream`.
    """
    for entry in _entries(folder):
        if (
            entry.name.startswith(stream)
            and entry.is_file()
            and (part := part_of(folder / entry.name, writer))
        ):
            yield part


def writer_folders(run: Path) -> list[tuple[Path, str]]:
    """The folders of the writers, with the writers' names, in order of the names."""
    segments = run / layout.SEGMENTS
    return sorted((segments / entry.name, entry.name) for entry in _entries(segments) if entry.is_dir())


def _age(part: Part) -> tuple[int, int, str]:
    return ("rotated", "active", "tail").index(part.kind), part.number, part.path.name


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
