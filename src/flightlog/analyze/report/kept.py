"""A report that is kept beside a run, with what was drawn of the same reading.

It stands in `parquet/report.json`, and is used while no file changes that a report is made from.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from flightlog.store import layout
from flightlog.store.documents import decode_document, read_document, replace_bytes
from flightlog.store.read.files import Stamp, find_parts, size_at, stamp_at, writer_folders
from flightlog.store.run import Run
from flightlog.store.tables.connection import path_text
from flightlog.store.tables.parquet import move_folder_aside
from flightlog.store.tables.snapshots import FileOrigin, is_mapped, is_unchanged, origin_of
from flightlog.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

_EARLIER = "summary.json"
"""What earlier versions kept: a summary alone."""

_DOCUMENTS = (layout.RUN, layout.ENVIRONMENT, layout.RECORDER, layout.PLAN)
_BUNDLES = f"{layout.OOM}/*/*.json"
_SOURCES = ("analyze", "core", "events", "store")
"""The packages that decide what a report says."""

FileStamps = dict[Path, Stamp | None]
"""The files that a report is made from, each with its stamp; None where it vanished meanwhile."""


class Kept(Struct, frozen=True, kw_only=True):
    """A report, and what it was made by and from."""

    made_by: str
    """A digest of the version, its sources and the schema of reports: others may count in another way."""
    status: str
    """That of the run, which may change although no file does."""
    made_from: dict[str, FileOrigin]
    """The files that a report is made from, by their path within the run, spelled out where it is not
    UTF-8."""
    report: msgspec.Raw
    also: dict[str, msgspec.Raw]
    """What was made of the same reading, by the name of the function that made it."""


class Sealed(Struct, frozen=True):
    """What the file holds: the report as it was encoded, and its SHA-256."""

    sha256: str
    kept: msgspec.Raw


def files_of(run: Run) -> FileStamps:
    """The files that a report is made from, as they are now: documents, lines, and what writers and devices
    left. Of a link, what it leads to.
    """
    path = run.path
    files = [path / name for name in _DOCUMENTS]
    files += [part.path for parts in find_parts(path).values() for part in parts]
    files += [folder / name for folder, _ in writer_folders(path) for name in (layout.WRITER, layout.PAGE)]
    files += path.glob(_BUNDLES)
    return {file: stamp_at(os.fspath(file)) for file in files if os.path.lexists(file)}


def lines_bytes(run: Run) -> int:
    """How large the files of lines of a run are together, which decides how long a report takes."""
    return sum(size_at(part.path) for parts in find_parts(run.path).values() for part in parts)


def may_be_kept(run: Run) -> bool:
    """Whether a run is over and no process may write into it any more."""
    return run.status in layout.ENDED and not run.is_written()


def keep(
    run: Run, report: bytes, also: Mapping[str, bytes], schema: Mapping[str, object], before: FileStamps
) -> bool:
    """Keep an encoded report that was made of the files `before`; whether that was done.

    Nothing is kept of a run that may still be written to, whose files have changed meanwhile, or whose
    documents have changed since it was opened, and nothing is written through a link. Raises OSError where
    files cannot be read or written.
    """
    folder = run.path / layout.PARQUET
    if folder.is_symlink() or not may_be_kept(run) or None in before.values() or not _is_as_opened(run):
        return False
    made_from = {_name(run, file): origin_of(file) for file in before}
    if files_of(run) != before:
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
    decides, as it does for files that are written through memory, whose time may stay.
    """
    kept, damage = _read(run)
    if damage is not None:
        run.tell_damaged_snapshot(f"{layout.PARQUET}/{layout.KEPT_REPORT} {damage}")
    if kept is None or kept.status != run.status or not may_be_kept(run) or kept.made_by != _digest(schema):
        return None
    files = {_name(run, file): file for file in files_of(run)}
    if kept.made_from.keys() != files.keys():
        return None
    unchanged = all(
        is_unchanged(file, kept.made_from[name], by_time=not is_mapped(file)) for name, file in files.items()
    )
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


def _is_as_opened(run: Run) -> bool:
    """Whether the documents of a run say what they said when it was opened."""
    now = Run(run.path, observer=run.observer)
    return (now.info, now.writers(), now.problems) == (run.info, run.writers(), run.problems)


def _name(run: Run, file: Path) -> str:
    return path_text(file.relative_to(run.path).as_posix())


def _digest(schema: Mapping[str, object]) -> str:
    encoded = msgspec.json.encode(schema, order="deterministic")
    return hashlib.sha256(__version__.encode() + encoded + _sources_digest()).hexdigest()[:16]


@cache
def _sources_digest() -> bytes:
    """Of the code that makes reports: between two releases many states of it have one version."""
    package, digest = Path(__file__).parents[2], hashlib.sha256()
    for file in sorted(file for name in _SOURCES for file in (package / name).rglob("*.py")):
        digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.digest()
