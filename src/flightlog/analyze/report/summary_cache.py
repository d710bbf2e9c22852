"""The summary of a compacted run, cached beside its snapshots and used while no file of the run changes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from flightlog.analyze.report.summary import Summary, summarize
from flightlog.store import layout
from flightlog.store.documents import decode_document, read_document, replace_bytes
from flightlog.store.integrity import covered_files
from flightlog.store.read.files import find_parts
from flightlog.store.tables.attempts import LARGE_BYTES
from flightlog.store.tables.parquet import move_folder_aside
from flightlog.store.tables.snapshots import FileOrigin, Snapshots, are_as_noted, is_unchanged, origins
from flightlog.version import __version__

if TYPE_CHECKING:
    from flightlog.store.run import Run

KEPT = "summary.json"


class Sealed(Struct, frozen=True):
    """What the file holds: the summary as it was encoded, and its SHA-256."""

    sha256: str
    kept: msgspec.Raw


class CachedSummary(Struct, frozen=True, kw_only=True):
    """A summary, and what it was made by and from."""

    made_by: str
    """A digest of its schema and of the version: another version may count in another way."""
    made_from: dict[str, FileOrigin]
    """All files of the run but its snapshots, by their path within it."""
    summary: Summary


class _Older(Struct, frozen=True):
    made_by: str


def keep_summary(run: Run, *, from_bytes: int = LARGE_BYTES) -> bool:
    """Summarize a run of at least `from_bytes` and cache the result in `parquet/`; whether that was done.

    What is current stays as it is. Raises `OSError` where files cannot be read or written.
    """
    folder = run.path / layout.PARQUET
    if _read(run)[1] is not None:  # damaged: gone, even where none is needed
        move_folder_aside(folder / KEPT)
        (folder / KEPT).unlink(missing_ok=True)
    if run.size_bytes() < from_bytes or not folder.is_dir() or cached_summary(run) is not None:
        return False
    files = [run.path / name for name in sorted(covered_files(run.path))]
    before = origins(run.path, files)
    summary = summarize(run)
    if covered_files(run.path) != before.keys() or not are_as_noted(run.path, files, before):
        return False
    kept = CachedSummary(made_by=_digest(), made_from=before, summary=summary)
    encoded = msgspec.json.encode(kept)
    sealed = Sealed(hashlib.sha256(encoded).hexdigest(), msgspec.Raw(encoded))
    replace_bytes(folder / KEPT, msgspec.json.encode(sealed), durable=True)
    return True


def cached_summary(run: Run) -> Summary | None:
    """The summary that was kept, if it is what counting would give: no file has changed, and this version
    made it.

    A file of the same size and time is taken as unchanged; of the same size alone, as in a copy, its checksum
    decides. None where the snapshots that go with it are not current and intact.
    """
    kept, damage = _read(run)
    if damage is not None:
        run.tell_damaged_snapshot(f"{layout.PARQUET}/{KEPT} {damage}")
    if kept is None or kept.made_by != _digest() or kept.summary.run.status != run.status:
        return None
    if kept.made_from.keys() != covered_files(run.path):
        return None
    if not all(is_unchanged(run.path / name, origin) for name, origin in kept.made_from.items()):
        return None
    parts = find_parts(run.path)
    needed = {
        f"views/{view}" for view, stream in (("attempts", "tasks"), ("spans", "spans")) if stream in parts
    }
    snapshots = Snapshots(run.path, parts)
    return kept.summary if all(snapshots.file(name) is not None for name in needed) else None


def cached_damage(run: Run) -> str | None:
    """What is wrong with the summary that was kept, as the end of a sentence; None where nothing is, or there
    is none.
    """
    return _read(run)[1]


def _read(run: Run) -> tuple[CachedSummary | None, str | None]:
    """The summary that was kept, and what is wrong with its file. One that another version kept is passed
    over.
    """
    file = run.path / layout.PARQUET / KEPT
    read = read_document(file, Sealed)
    if read.value is None:
        return None, None if not os.path.lexists(file) or _is_older(file) else "is damaged: it cannot be read"
    if hashlib.sha256(read.value.kept).hexdigest() != read.value.sha256:
        return None, "is damaged: it has another SHA-256 than when it was written"
    return decode_document(bytes(read.value.kept), CachedSummary, KEPT).value, None


def _is_older(file: Path) -> bool:
    """Whether the file is that of a version which noted no SHA-256."""
    return read_document(file, _Older).value is not None


def _digest() -> str:
    schema = msgspec.json.encode(msgspec.json.schema(Summary), order="deterministic")
    return hashlib.sha256(__version__.encode() + schema).hexdigest()[:16]
