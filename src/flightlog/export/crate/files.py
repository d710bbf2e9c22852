"""The files of a crate: the run directory as it stands, and the artifacts that can be taken along."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from flightlog.events import ArtifactRecorded
from flightlog.export.crate.vocabulary import Entity, known
from flightlog.store import layout
from flightlog.store.documents import is_leftover

if TYPE_CHECKING:
    from flightlog.store.run import Run

RUN_FOLDER = "run"
ARTIFACTS = "artifacts"
INPUT = "input"
MAX_COPY_BYTES = 100_000_000
"""Largest artifact that is copied into a crate; a larger one is described."""
MAX_ARTIFACTS = 1000
MAX_NAME_BYTES = 200
"""Longest name that a copied artifact keeps: what goes before it must fit beside it."""
_CHUNK = 1 << 20
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+://(?:\[[0-9A-Fa-f:.]+\])?)(.*)", re.DOTALL)
"""An address: its scheme, with a host that is an IPv6 number, and the rest."""

_FORMATS = {
    ".csv": "text/csv",
    ".html": "text/html",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".log": "text/plain",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".sh": "application/x-sh",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
_DESCRIPTIONS = {
    layout.RUN: "Who, what and when of the run",
    layout.ENVIRONMENT: "Machine, Python and packages of the run",
    layout.RECORDER: "What recording cost, and what was lost",
    layout.SUMMARY: "Figures of the run",
    layout.CHECKSUMS: "Checksums of the run's files",
    layout.PLAN: "What the manifest came to",
    layout.LOCK: "Hashes and versions the run was made of",
    layout.MANIFEST: "What was asked for",
}


@dataclass(frozen=True)
class Artifact:
    """An artifact as the graph names it."""

    entity: Entity
    task_id: str | None
    is_input: bool
    """Whether it was recorded as an input: `kind="input"`."""

    @property
    def identifier(self) -> str:
        """Its `@id`."""
        return str(self.entity["@id"])


def copy_run(run: Run, crate: Path) -> list[Entity]:
    """Copy the files of the run into the crate, and describe each; hidden ones and leftovers stay where they
    are.
    """
    found: list[Entity] = []
    root = run.path.resolve()
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            source = Path(folder) / name
            if name.startswith(".") or is_leftover(name) or source.is_symlink() or not source.is_file():
                continue
            inside = Path(RUN_FOLDER) / source.relative_to(root)
            try:
                digest, size = _copy(source, crate / inside)
            except FileNotFoundError:  # a tail that was folded meanwhile: its lines are in another file
                continue
            found.append(file_entity(inside, size, digest, description=_DESCRIPTIONS.get(name)))
    return found


def place_artifacts(run: Run, crate: Path) -> tuple[list[Artifact], list[str]]:
    """The artifacts of a run, the files among them copied where they still are what was recorded; with notes.

    Addresses stay addresses. What is gone, cannot be read, has changed, is a folder or is too large is
    described by its name, size and checksum. Of one that was recorded more than once, the latest counts.
    """
    events: dict[str, ArtifactRecorded] = {}
    more = False
    for event in run.events(ArtifactRecorded.stream):
        if isinstance(event, ArtifactRecorded):
            if len(events) < MAX_ARTIFACTS or event.uri in events:
                events[event.uri] = event
            else:
                more = True
    found: list[Artifact] = []
    left: dict[str, int] = {}
    for number, event in enumerate(events.values()):
        entity, why = _placed(event, number, run.path.resolve(), crate)
        found.append(Artifact(entity, event.task_id, event.kind == INPUT))
        if why:
            left[why] = left.get(why, 0) + 1
    notes = [f"not copied, only described: {number:,} {why}" for why, number in left.items()]
    if more:
        notes.append(f"only the first {MAX_ARTIFACTS:,} artifacts stand in the crate")
    return found, notes


def file_entity(
    inside: Path, size: int, digest: str, *, name: str | None = None, description: str | None = None
) -> Entity:
    """A file of the crate."""
    return {
        "@id": _path_id(inside),
        "@type": "File",
        "name": name or os.fsencode(inside.name).decode(errors="backslashreplace"),
        **known(description=description, encodingFormat=_FORMATS.get(inside.suffix)),
        "contentSize": str(size),
        "sha256": digest,
    }


def _placed(event: ArtifactRecorded, number: int, run: Path, crate: Path) -> tuple[Entity, str | None]:
    more = known(
        name=event.name,
        description=event.kind,
        contentSize=None if event.size_bytes is None else str(event.size_bytes),
        sha256=event.sha256,
    )
    address = _ADDRESS.fullmatch(event.uri)
    if address is not None:
        rest = quote(address[2], safe="/:?#@!$&'()*+,;=%~")  # blanks, and what stands for a secret
        return {"@id": f"{address[1]}{rest}", "@type": "File", **more}, None
    described: Entity = {"@id": f"#artifact-{number}", "@type": "CreativeWork", **more}
    source = Path(event.uri)
    if source.is_relative_to(run):
        inside = Path(RUN_FOLDER) / source.relative_to(run)
        if (crate / inside).is_file():
            return {**described, "@id": _path_id(inside), "@type": "File"}, None
    if event.files is not None:
        return described, "folders"
    if not source.is_file():
        return described, "artifacts that are gone"
    try:
        with source.open("rb"):
            large = source.stat().st_size > MAX_COPY_BYTES
    except OSError:
        return described, "artifacts that cannot be read"
    if large:
        return described, f"artifacts of over {MAX_COPY_BYTES // 1_000_000} MB"
    kept = source.name if len(os.fsencode(source.name)) <= MAX_NAME_BYTES else "artifact"
    inside = Path(ARTIFACTS) / f"{number}-{kept}"
    digest, size = _copy(source, crate / inside)
    if event.sha256 is not None and digest != event.sha256:
        (crate / inside).unlink()
        return described, "artifacts that have changed since"
    return file_entity(inside, size, digest, name=event.name, description=event.kind), None


def _path_id(inside: Path) -> str:
    """The `@id` of a file of the crate; names that are no text go by their bytes."""
    return quote(os.fsencode(inside.as_posix()))


def _copy(source: Path, target: Path) -> tuple[str, int]:
    """Copy a file as it is now; gives the checksum and the size of the copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with source.open("rb") as read, target.open("wb") as written:
        while chunk := read.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            written.write(chunk)
    shutil.copystat(source, target)
    return digest.hexdigest(), size
