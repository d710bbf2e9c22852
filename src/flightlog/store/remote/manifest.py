"""What stands in a remote place: the notes that say which objects make up which files of a run.

    ADDRESS/<run_id>/<path in the run>                              a file of a run that has ended, as it is
    ADDRESS/<run_id>/.flightlog-sync/<uploader>.<revision>.json     what this uploader has brought: a
    `SyncNote` ADDRESS/<run_id>/.flightlog-sync/<uploader>/<path>/<object>     pieces of files, of a run that
    goes on

An uploader is one copy of the run directory on one host, so no two ever write the same object. Objects with a
number or token in their name are written once. A note is the commit: what it names is all there when it
appears, and what an older one names goes away only afterwards. So at every moment the highest readable note
of each uploader names a whole copy.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from flightlog.store import layout
from flightlog.store.read.files import part_of
from flightlog.store.remote.objects import Listed, Objects

FOLDER = ".flightlog-sync"
FORMAT = 1
_NOTE = re.compile(r"^(?P<uploader>.+)\.(?P<revision>\d{8,})\.json$")


class Piece(Struct, frozen=True):
    """One object that was written once, and holds a part of a file or all of it."""

    name: str
    """From the run's folder on, with `/`."""
    size: int
    sha256: str


class RemoteFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a run in a remote place."""

    path: str
    """Within the run, with `/`, as in the run directory."""
    size: int
    sha256: str | None = None
    """Of all of it; None of one in several pieces, which have their own, and where nothing is known."""
    parts: tuple[Piece, ...] = ()
    """The pieces, in order, whose bytes one behind the other are the file; none where it stands at `path` as
    it is."""
    next: Piece | None = None
    """What is being written at `path` in place of it: until that is done, either of the two is right."""

    @property
    def version(self) -> str:
        """Tells this content of the file from any other; the same for the same content in the same pieces."""
        return self.sha256 or "+".join(part.sha256[:16] for part in self.parts) or f"{self.size}"


class SyncNote(Struct, frozen=True, kw_only=True):
    """`<uploader>.<revision>.json`."""

    run_id: str
    uploader: str
    source: str
    """Tells the copy of the run directory: several hosts that see the same one share it."""
    host: str
    revision: int
    """Goes up with each note of the same source, whoever writes it."""
    synced_at: str
    complete: bool
    """The run had ended, and all of it is here."""
    files: tuple[RemoteFile, ...]
    format: int = FORMAT


def note_name(uploader: str, revision: int) -> str:
    """A note's name, from the run's folder on."""
    return f"{FOLDER}/{uploader}.{revision:08d}.json"


def parse_note_name(name: str) -> tuple[str, int] | None:
    """Uploader and revision of a note, by the last part of its name; None for anything else."""
    found = _NOTE.match(name.rpartition("/")[2])
    return (found["uploader"], int(found["revision"])) if found else None


def merge_notes(notes: Iterable[SyncNote]) -> list[RemoteFile]:
    """The files of a run that all uploaders together have brought, each once, by path.

    Of one source the newest note counts alone: it was made of the same directory. Where two sources hold a
    file of the same name, the longer one of lines is taken, which has all lines of the other, and the later
    one of anything else.
    """
    newest: dict[str, SyncNote] = {}
    for note in notes:
        known = newest.get(note.source)
        if known is None or (note.revision, note.synced_at) > (known.revision, known.synced_at):
            newest[note.source] = note
    files: dict[str, RemoteFile] = {}
    for note in sorted(newest.values(), key=lambda note: (note.synced_at, note.uploader)):
        for file in note.files:
            before = files.get(file.path)
            if before is None or not _has_lines(file.path) or file.size >= before.size:
                files[file.path] = file
    return [files[path] for path in sorted(files)]


def _has_lines(path: str) -> bool:
    found = part_of(Path(path))
    return found is not None and found.kind != "tail"


class RunListed(Struct, frozen=True):
    """The objects of one run, by their names from the run's folder on."""

    objects: Mapping[str, Listed]

    @property
    def version(self) -> str:
        """Changes when anything of the run does."""
        return _digest(f"{name} {self.stamp(name)}" for name in sorted(self.objects))

    def stamp(self, name: str) -> str:
        """Changes when an object does; empty where there is none."""
        found = self.objects.get(name)
        return "" if found is None else f"{found.size} {found.stamp}"

    @property
    def has_notes(self) -> bool:
        """Whether notes say which objects make up which files; else the objects are the files."""
        return any(_is_note(name) for name in self.objects)

    def stands_alone(self, document: str) -> bool:
        """Whether a document is the object of its name; of a run that goes on it may be a piece that a note
        names.
        """
        pieces = (name for name in self.objects if name.startswith(f"{FOLDER}/") and f"/{document}/" in name)
        return document in self.objects and next(pieces, None) is None

    def document(self, name: str) -> str:
        """Changes when a document of the run may have changed; empty where there is none."""
        if self.stands_alone(name):
            return self.stamp(name)
        return _digest(sorted(name for name in self.objects if _is_note(name))) if self.has_notes else ""


def list_remote(objects: Objects, only: str | None = None) -> dict[str, RunListed]:
    """The runs under an address by their folders' names, or one of them; none where nothing stands there.

    What is neither named as a run nor holds a `run.json` is none.
    """
    runs: dict[str, dict[str, Listed]] = {}
    for one in objects.find("" if only is None else only):
        run_id, _, name = one.name.partition("/")
        if name and not one.folder and run_id and not run_id.startswith("."):
            runs.setdefault(run_id, {})[name] = one
    return {
        run_id: RunListed(found)
        for run_id, found in runs.items()
        if layout.is_run_id(run_id) or layout.RUN in found
    }


def _is_note(name: str) -> bool:
    return name.startswith(f"{FOLDER}/") and name.count("/") == 1 and parse_note_name(name) is not None


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:32]
