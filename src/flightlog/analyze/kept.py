"""The summary of a large run that was compacted, kept beside its snapshots: used as long as no file of the run has changed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from flightlog.analyze.large import LARGE_BYTES, LargeStreams
from flightlog.analyze.summary import Summary, summarize, summary_schema
from flightlog.store import layout
from flightlog.store.documents import replace_bytes
from flightlog.store.integrity import covered_files
from flightlog.store.parts import find_parts
from flightlog.store.snapshots import Origin, are_as_noted, current_snapshots, is_unchanged, origins
from flightlog.store.tables import open_all
from flightlog.version import __version__

if TYPE_CHECKING:
    from flightlog.store.run import Run

KEPT = "summary.json"


class Kept(Struct, frozen=True, kw_only=True):
    """A summary, and what it was made by and from."""

    made_by: str
    """A digest of its schema and of the version: another version may count in another way."""
    made_from: dict[str, Origin]
    """All files of the run but its snapshots, by their path within it."""
    summary: Summary


def keep_summary(run: Run, *, from_bytes: int = LARGE_BYTES) -> bool:
    """Count a run of so many bytes or more and keep the result in `parquet/`; whether that was done.

    What is current stays as it is. Raises `OSError` where files cannot be read or written.
    """
    folder = run.path / layout.PARQUET
    if run.size_bytes() < from_bytes or not folder.is_dir() or kept_summary(run) is not None:
        return False
    files = [run.path / name for name in sorted(covered_files(run.path))]
    before = origins(run.path, files)
    with open_all([run], only={"attempts", "spans"}) as tables:
        summary = summarize(run, LargeStreams(run, tables, from_bytes))
    if covered_files(run.path) != before.keys() or not are_as_noted(run.path, files, before):
        return False
    kept = Kept(made_by=_digest(), made_from=before, summary=summary)
    replace_bytes(folder / KEPT, msgspec.json.encode(kept))
    return True


def kept_summary(run: Run) -> Summary | None:
    """The summary that was kept, if it is what counting would give: no file has changed, and this version made it.

    A file of the same size and time is taken as unchanged; of the same size alone, as in a copy, its checksum decides.
    None where the snapshots that go with it are not current.
    """
    file = run.path / layout.PARQUET / KEPT
    if not file.is_file():
        return None
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError):  # torn, or of a version that kept something else
        return None
    if kept.made_by != _digest() or kept.summary.run.status != run.status:
        return None
    if kept.made_from.keys() != covered_files(run.path):
        return None
    if not all(is_unchanged(run.path / name, origin) for name, origin in kept.made_from.items()):
        return None
    parts = find_parts(run.path)
    needed = {
        f"views/{view}" for view, stream in (("attempts", "tasks"), ("spans", "spans")) if stream in parts
    }
    return kept.summary if needed <= current_snapshots(run.path, parts).keys() else None


def _digest() -> str:
    schema = msgspec.json.encode(summary_schema(), order="deterministic")
    return hashlib.sha256(__version__.encode() + schema).hexdigest()[:16]
