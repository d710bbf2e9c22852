"""Copies of runs in a remote place, read: which runs there are, of which files each is made, and what these
hold.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from flightlog.core.errors import RemoteError
from flightlog.store import layout
from flightlog.store.documents import decode_document
from flightlog.store.remote.errors import make_error
from flightlog.store.remote.manifest import (
    FOLDER,
    FORMAT,
    RemoteFile,
    SyncNote,
    merge_notes,
    note_name,
    parse_note_name,
)
from flightlog.store.remote.objects import Calls, Objects, open_objects

_TRIES = 4


class Remote:
    """The runs under an address. Every method raises `RemoteError`; none writes there. Not thread-safe."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    @classmethod
    def open(
        cls, address: str, *, calls: Calls | None = None, options: dict[str, Any] | None = None
    ) -> Remote:
        """The runs under an address, without asking it anything yet; see `open_objects`."""
        return cls(open_objects(address, calls=calls, options=options))

    @property
    def address(self) -> str:
        """The address, which holds no credentials."""
        return self.objects.address

    def run_ids(self) -> list[str]:
        """The runs there are, by name, from one listing; none where the place is empty or not made yet."""
        return [one.name for one in self.objects.entries("") if one.folder and layout.is_run_id(one.name)]

    def stamp(self, run_id: str) -> str:
        """Changes when anything of the run does, from one listing; empty where there is no such run."""
        return _digest(sorted(f"{one.name} {one.size} {one.stamp}" for one in self._notes_listed(run_id)))

    def notes(self, run_id: str) -> list[SyncNote]:
        """The newest note of each uploader that can be read."""
        for _ in range(_TRIES):
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

    def _notes_listed(self, run_id: str) -> list[Any]:
        return [one for one in self.objects.entries(f"{run_id}/{FOLDER}") if parse_note_name(one.name)]

    def _newest(self, run_id: str) -> Iterator[SyncNote]:
        revisions: dict[str, list[int]] = {}
        for one in self._notes_listed(run_id):
            named = parse_note_name(one.name)
            assert named is not None
            revisions.setdefault(named[0], []).append(named[1])
        for uploader, found in sorted(revisions.items()):
            for revision in sorted(
                found, reverse=True
            ):  # one that was cut off is no note: the one before holds
                name = f"{run_id}/{note_name(uploader, revision)}"
                note = decode_document(self.objects.read(name), SyncNote, name).value
                if note is not None:
                    if note.format > FORMAT:
                        newer = f"{run_id} was copied by a newer Flightlog, in format {note.format}"
                        raise make_error("other", self.address, f"{newer}: update this one")
                    yield note
                    break


def _digest(lines: list[str]) -> str:
    return hashlib.sha256(msgspec.json.encode(lines)).hexdigest()[:16] if lines else ""
