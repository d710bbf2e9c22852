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

import re
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from flightlog.store.parts import part_of

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
