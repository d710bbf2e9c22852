"""A report that is kept beside a run, with what was drawn of the same reading.

It stands in `parquet/report.json`, and is used while no file of the run changes.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from flightlog.store import layout
from flightlog.store.documents import decode_document, read_document, replace_bytes
from flightlog.store.integrity import covered_files
from flightlog.store.tables.parquet import move_folder_aside
from flightlog.store.tables.snapshots import FileOrigin, are_as_noted, is_unchanged, origins
from flightlog.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flightlog.store.run import Run

_EARLIER = "summary.json"
"""What earlier versions kept: a summary alone."""

FileTimes = dict[str, tuple[int, int]]
"""Size and time of each file of a run, by its path within it."""


class Kept(Struct, frozen=True, kw_only=True):
    """A report, and what it was made by and from."""

    made_by: str
    """A digest of the version and of the schema of reports: another version may count in another way."""
    status: str
    """That of the run, which may change although no file does."""
    made_from: dict[str, FileOrigin]
    """All files of the run but its snapshots, by their path within it."""
    report: msgspec.Raw
    also: dict[str, msgspec.Raw]
    """What was made of the same reading, by the name of the function that made it."""


class Sealed(Struct, frozen=True):
    """What the file holds: the report as it was encoded, and its SHA-256."""

    sha256: str
    kept: msgspec.Raw


def files_of(run: Run) -> FileTimes:
    """The files that a report is made from, as they are now. Raises OSError."""
    stats = {name: (run.path / name).stat() for name in covered_files(run.path)}
    return {name: (one.st_size, one.st_mtime_ns) for name, one in stats.items()}


def keep(
    run: Run, report: bytes, also: Mapping[str, bytes], schema: Mapping[str, object], before: FileTimes
) -> bool:
    """Keep an encoded report that was made of the files `before`; whether that was done.

    Nothing is kept of a run that goes on, or whose files have changed meanwhile, and nothing is written
    through a link. Raises OSError where files cannot be read or written.
    """
    folder = run.path / layout.PARQUET
    if folder.is_symlink() or run.status not in layout.ENDED or files_of(run) != before:
        return False
    files = [run.path / name for name in sorted(before)]
    made_from = origins(run.path, files)
    if not are_as_noted(run.path, files, made_from) or files_of(run) != before:
        return False
    kept = Kept(
        made_by=_digest(schema),
        status=run.status,
        made_from=made_from,
        report=msgspec.Raw(report),
        also={name: msgspec.Raw(one) for name, one in also.items()},
    )
    encoded = msgspec.json.encode(kept)
    sealed = Sealed(hashlib.sha256(encoded).hexdigest(), msgspec.Raw(encoded))
    folder.mkdir(exist_ok=True)
    move_folder_aside(folder / layout.KEPT_REPORT)
    replace_bytes(folder / layout.KEPT_REPORT, msgspec.json.encode(sealed), durable=True)
    forget(run, _EARLIER)
    return True


def find_kept(run: Run, schema: Mapping[str, object]) -> Kept | None:
    """What was kept, if it is what a new report would be: no file has changed, and this version made it.

    A file of the same size and time is taken as unchanged; of the same size alone, as in a copy, its checksum
    decides.
    """
    kept, damage = _read(run)
    if damage is not None:
        run.tell_damaged_snapshot(f"{layout.PARQUET}/{layout.KEPT_REPORT} {damage}")
    if kept is None or kept.made_by != _digest(schema) or kept.status != run.status:
        return None
    if kept.made_from.keys() != covered_files(run.path):
        return None
    unchanged = all(is_unchanged(run.path / name, origin) for name, origin in kept.made_from.items())
    return kept if unchanged else None


def kept_damage(run: Run) -> str | None:
    """What is wrong with the file of the report that was kept, as the end of a sentence; None where nothing
    is, or there is none.
    """
    return _read(run)[1]


def forget(run: Run, name: str = layout.KEPT_REPORT) -> None:
    """Remove what was kept, if anything is there."""
    file = run.path / layout.PARQUET / name
    move_folder_aside(file)
    file.unlink(missing_ok=True)


def _read(run: Run) -> tuple[Kept | None, str | None]:
    file = run.path / layout.PARQUET / layout.KEPT_REPORT
    read = read_document(file, Sealed)
    if read.value is None:
        return None, "is damaged: it cannot be read" if os.path.lexists(file) else None
    if hashlib.sha256(read.value.kept).hexdigest() != read.value.sha256:
        return None, "is damaged: it has another SHA-256 than when it was written"
    return decode_document(bytes(read.value.kept), Kept, layout.KEPT_REPORT).value, None


def _digest(schema: Mapping[str, object]) -> str:
    encoded = msgspec.json.encode(schema, order="deterministic")
    return hashlib.sha256(__version__.encode() + encoded).hexdigest()[:16]
