"""Copies of runs in a remote place, read: which runs there are, which objects make up the files of each, and
whether they still hold what they should.

    ADDRESS/<run_id>/<path in the run>
        a file of a run that has ended, as it is
    ADDRESS/<run_id>/.flightlog-sync/<uploader>.<revision>.json
        what this uploader has copied: a `SyncNote`
    ADDRESS/<run_id>/.flightlog-sync/<uploader>/<path>/<object>
        pieces of files of a run that is still running

An uploader is one copy of the run directory on one host, so no two ever write the same object. Objects with a
number or token in their name are written once. A note is the commit: what it names is all there when it
appears, and what an older one names is removed only afterwards. So at every moment the highest readable note
of each uploader names a whole copy.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from flightlog.core.errors import RemoteError
from flightlog.core.grouping import grouped
from flightlog.store import layout
from flightlog.store.documents import decode_document
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import Observer
from flightlog.store.read.files import part_of
from flightlog.store.read.lines import read_tail
from flightlog.store.remote.objects import Listed, Objects, file_chunks, make_error, open_objects, sha256_of
from flightlog.store.remote.state import has_settled, list_files


class RemoteCopies:
    """The runs under an address. Every method raises `RemoteError`; none writes there. Not thread-safe."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    @classmethod
    def open(cls, address: str) -> RemoteCopies:
        """The runs under an address, without asking it anything yet; see `open_objects`."""
        return cls(open_objects(address))

    @property
    def address(self) -> str:
        """The address, which holds no credentials."""
        return self.objects.address

    def notes(self, run_id: str) -> list[SyncNote]:
        """The newest note of each uploader that can be read."""
        for _ in range(StoreLimits.copy_list_attempts):
            try:
                return list(self._newest(run_id))
            except RemoteError as error:
                if error.kind != "gone":  # an uploader went on meanwhile
                    raise
        raise make_error(
            "changed", self.address, f"the notes of {run_id} change faster than they can be read"
        )

    def files(self, run_id: str) -> list[RemoteFile]:
        """The files of a run, by path; a folder of files without notes, as other tools copy one, counts as it
        is.
        """
        notes = self.notes(run_id)
        if notes:
            return merge_notes(notes)
        found = self.objects.find(run_id)
        return [
            RemoteFile(path=path, size=one.size or 0)
            for one in found
            if not one.folder and not (path := one.name.removeprefix(f"{run_id}/")).startswith(".")
        ]

    def fetch(self, run_id: str, file: RemoteFile, to: Path) -> None:
        """Bring a file here, whole or not at all, and check it against what its note says.

        A `RemoteError` of kind `gone` or `changed` says that the run went on meanwhile: ask for `files`
        again.
        """
        fresh = to.with_name(f".{to.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            with fresh.open("wb") as out:
                for chunk in self.chunks(run_id, file):
                    out.write(chunk)
            fresh.replace(to)
        finally:
            fresh.unlink(missing_ok=True)

    def chunks(self, run_id: str, file: RemoteFile) -> Iterator[bytes]:
        """What a file holds, in chunks of bounded size, each piece checked when its last chunk has been
        taken.
        """
        if file.parts:
            for part in file.parts:
                yield from self._checked(f"{run_id}/{part.name}", part.size, {part.sha256})
        else:
            known = {file.sha256, file.next.sha256 if file.next else None} - {None}
            size = None if file.next else file.size
            yield from self._checked(f"{run_id}/{file.path}", size, {one for one in known if one})

    def _checked(self, name: str, size: int | None, known: set[str]) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for chunk in self.objects.chunks(name, size):
            digest.update(chunk)
            yield chunk
        if known and digest.hexdigest() not in known:
            raise make_error("changed", self.address, f"{name}: SHA-256 is not the one that its note says")

    def _newest(self, run_id: str) -> Iterator[SyncNote]:
        names = (parse_note_name(one.name) for one in self.objects.find(f"{run_id}/{FOLDER}", deep=False))
        revisions = grouped(filter(None, names))
        for uploader, found in sorted(revisions.items()):
            for revision in sorted(found, reverse=True):  # one that was cut off is none: the one before holds
                name = f"{run_id}/{note_name(uploader, revision)}"
                note = decode_document(self.objects.read(name), SyncNote, name).value
                if note is not None:
                    if note.format > FORMAT:
                        newer = f"{run_id} was copied by a newer Flightlog, in format {note.format}"
                        raise make_error("other", self.address, f"{newer}: update this one")
                    yield note
                    break


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
        return _digest_of_lines(f"{name} {self.stamp(name)}" for name in sorted(self.objects))

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
        notes = sorted(name for name in self.objects if _is_note(name))
        return _digest_of_lines(notes) if notes else ""


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


def _digest_of_lines(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:32]


class RemoteCheck(Struct, frozen=True, kw_only=True):
    """What came of reading a remote copy again."""

    run_id: str
    address: str
    files: int
    bytes: int
    problems: tuple[str, ...]
    """Sentences; none where all is as it should be."""
    broken: tuple[str, ...] = ()
    """The files that they are about, by their paths: what `Uploader.sync` should send again."""


def check_copy(run: Path, run_id: str, remote: RemoteCopies, observer: Observer) -> RemoteCheck:
    """Read a copy again, in bounded memory. Of a run that has ended each file is also held against the one
    here. Raises `RemoteError` where the place does not answer.
    """
    broken: dict[str, str] = {}
    digests: dict[str, str] = {}
    files = remote.files(run_id)
    for file in files:
        try:
            digests[file.path] = sha256_of(remote.chunks(run_id, file))
        except RemoteError as error:
            if error.kind not in {"gone", "changed"}:
                raise
            broken[file.path] = str(error)
    if has_settled(run, observer):
        broken = {**_differences(run, digests), **broken}
    problems = [f"{path}: {why}" for path, why in sorted(broken.items())]
    if not files and list_files(run):
        problems = ["nothing of it is there"]
    return RemoteCheck(
        run_id=run_id,
        address=remote.address,
        files=len(files),
        bytes=sum(file.size for file in files),
        problems=tuple(problems),
        broken=tuple(sorted(broken)),
    )


def _differences(run: Path, there: dict[str, str]) -> dict[str, str]:
    """What differs between a run that has ended and its copy, by path."""
    found: dict[str, str] = {}
    for file in list_files(run, settled=True):
        if file.kind == "tail":
            data = read_tail(run / file.path)
            if not data:
                continue
            here = sha256_of([data])
        else:
            with (run / file.path).open("rb") as source:
                here = sha256_of(file_chunks(source, 0, file.size))
        if there.get(file.path) != here:
            found[file.path] = "it is not the same there as here" if file.path in there else "it is not there"
    return found
