"""Checksums of a closed run, and what has changed since."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec import Struct

from flightlog.store import layout
from flightlog.store.documents import is_leftover, read_document, write_document
from flightlog.store.read.files import open_regular


class FileSum(Struct, frozen=True):
    """What a file held when the run closed."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class FileProblem:
    """One file that is not as it was when the run closed."""

    kind: Literal["changed", "missing", "added", "unreadable"]
    file: str
    """Its path within the run, with `/`."""
    detail: str


def write_checksums(path: Path, pending: Mapping[str, bytes] | None = None) -> dict[str, FileSum]:
    """Write `checksums.json` over all files of a run that has closed, and give what it says.

    It leaves out itself, the snapshots in `parquet/`, which can be made again, the notes of followers, the
    pages of writers, which change while their processes live, and links. `pending` are the contents that
    files are about to get: what stands there now does not count. Raises OSError.
    """
    soon = {
        name: FileSum(hashlib.sha256(data).hexdigest(), len(data)) for name, data in (pending or {}).items()
    }
    sums = {name: soon.get(name) or sum_of(path / name) for name in sorted({*covered_files(path), *soon})}
    write_document(path / layout.CHECKSUMS, sums, durable=True)
    return sums


def note_checksum(path: Path, *names: str) -> None:
    """Note in `checksums.json` what these files hold now; nothing where there are no checksums. Raises
    OSError.
    """
    sums = read_document(path / layout.CHECKSUMS, dict[str, FileSum]).value
    found = {name: sum_of(path / name) for name in names}
    if sums is not None and any(sums.get(name) != one for name, one in found.items()):
        write_document(path / layout.CHECKSUMS, {**sums, **found}, durable=True)


def verify_files(path: Path) -> list[FileProblem]:
    """The files that were changed, removed or added since the run closed, by name; none if all is as it was.

    A run that was not closed in good order has no checksums, which is the one finding then.
    """
    file = path / layout.CHECKSUMS
    if not file.exists():
        return [
            FileProblem(
                "missing", layout.CHECKSUMS, "the run was not closed, there is nothing to compare with"
            )
        ]
    read = read_document(file, dict[str, FileSum])
    if read.value is None:
        return [FileProblem("unreadable", layout.CHECKSUMS, read.problem or "")]
    noted, there = read.value, covered_files(path)
    findings = [_compare(path, name, expected) for name, expected in noted.items() if name in there]
    findings += [
        FileProblem("missing", name, f"held {expected.size_bytes} bytes")
        for name, expected in noted.items()
        if name not in there
    ]
    findings += [FileProblem("added", name, "not there when the run closed") for name in there - noted.keys()]
    return sorted((finding for finding in findings if finding), key=lambda finding: finding.file)


def _compare(path: Path, name: str, expected: FileSum) -> FileProblem | None:
    try:
        found = sum_of(path / name)
    except OSError as error:
        return FileProblem("unreadable", name, error.strerror or str(error))
    if found.size_bytes != expected.size_bytes:
        return FileProblem("changed", name, f"held {expected.size_bytes} bytes, holds {found.size_bytes}")
    if found.sha256 != expected.sha256:
        return FileProblem("changed", name, f"SHA-256 was {expected.sha256}, is {found.sha256}")
    return None


def sum_of(file: Path) -> FileSum:
    """What a file holds now."""
    with open_regular(file) as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
        return FileSum(digest, source.tell())


def covered_files(path: Path) -> set[str]:
    """The files of a run that its checksums are of, by their path within it, with `/`."""
    names = files_in(path, but={layout.PARQUET, layout.FOLLOWERS})
    return {name for name in names if not name.endswith(layout.PAGE)} - {layout.CHECKSUMS}


def files_in(path: Path, *, but: Collection[str]) -> Iterator[str]:
    """The regular files of a run by their paths within it, with `/`: no links, no documents that were cut
    short, nothing in these folders.
    """
    for folder, folders, files in os.walk(path):
        if Path(folder) == path:
            folders[:] = [name for name in folders if name not in but]
        for name in files:
            file = Path(folder, name)
            if file.is_file() and not file.is_symlink() and not is_leftover(name):
                yield file.relative_to(path).as_posix()
