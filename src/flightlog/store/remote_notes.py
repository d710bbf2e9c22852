"""The notes that an uploader writes: each a commit of a whole copy, and what is removed when one has taken
hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from flightlog.store.remote import Remote
from flightlog.store.remote_manifest import FOLDER, RemoteFile, SyncNote, note_name, parse_note_name
from flightlog.store.remote_objects import CHUNK_BYTES


class Notes:
    """The notes of one run, as one uploader reads and writes them; `moment` gives the time. Raises
    `RemoteError`.
    """

    def __init__(
        self, remote: Remote, run_id: str, *, uploader: str, source: str, host: str, moment: Callable[[], str]
    ) -> None:
        self.newest: SyncNote | None = None
        """The newest of this source, whoever wrote it."""
        self.others: list[SyncNote] = []
        """Those of other uploaders."""
        self._remote, self._objects, self._moment = remote, remote.objects, moment
        self._run_id, self._uploader, self._source, self._host = run_id, uploader, source, host
        self._begun = self._swept = False
        self._attempted = 0  # the revision last tried: a note that timed out may still arrive
        self._unnamed: set[str] = set()  # objects of ours that no note names any more

    def look(self) -> None:
        """Read the notes that are there, unless that was done and nothing has failed since."""
        if self._begun:
            return
        notes = self._remote.notes(self._run_id)
        ours = [note for note in notes if note.source == self._source]
        self.newest = max(
            ours, key=lambda note: (note.revision, note.uploader == self._uploader), default=None
        )
        self.others = [note for note in notes if note.uploader != self._uploader]
        self._begun = True

    def forget(self) -> None:
        """Whether the last call took effect is not known: look again."""
        self._begun = self._swept = False

    def files(self) -> dict[str, RemoteFile]:
        """What the newest note names, by path."""
        return {file.path: file for file in self.newest.files} if self.newest else {}

    def is_kept(self, file: RemoteFile) -> bool:
        """Whether a file that is there stays: its pieces are ours, and not of somebody who may remove them
        meanwhile.
        """
        return all(part.name.startswith(f"{FOLDER}/{self._uploader}/") for part in file.parts)

    def write(self, files: Sequence[RemoteFile], *, complete: bool) -> None:
        """Say that these files are there, in place of what was said before."""
        before = self.newest
        known = [note.revision for note in (*self.others, *([before] if before else []))]
        self._attempted = max(*known, self._attempted, 0) + 1
        note = SyncNote(
            run_id=self._run_id,
            uploader=self._uploader,
            source=self._source,
            host=self._host,
            revision=self._attempted,
            synced_at=self._moment(),
            complete=complete,
            files=tuple(files),
        )
        data = msgspec.json.encode(note)
        chunks = (data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))
        self._objects.write(f"{self._run_id}/{note_name(self._uploader, note.revision)}", chunks)
        self.newest = note
        if before is not None:
            self._unnamed |= self._ours(before) - self._ours(note)

    def wrote(self, name: str) -> None:
        """A piece was written, which the next note names, or else nobody does."""
        self._unnamed.add(name)

    def sweep(self) -> None:
        """Remove what this uploader wrote and no note names any more: older notes first, then their
        objects.
        """
        assert self.newest is not None
        needed = self._ours(self.newest)
        if not self._swept:  # what an earlier process left when it was killed
            found = self._objects.find(f"{self._run_id}/{FOLDER}")
            names = {one.name.removeprefix(f"{self._run_id}/") for one in found}
            self._unnamed |= {name for name in names if self._is_ours(name)}
        gone = sorted(self._unnamed - needed, key=lambda name: (parse_note_name(name) is None, name))
        gone = [name for name in gone if ".." not in name.split("/")]  # a note may have been tampered with
        self._objects.remove(f"{self._run_id}/{name}" for name in gone)
        self._unnamed.clear()
        self._swept = True

    def _ours(self, note: SyncNote) -> set[str]:
        """The objects that a note needs and this uploader wrote, the note itself included."""
        pieces = {part.name for file in note.files for part in file.parts}
        named = {name for name in pieces if name.startswith(f"{FOLDER}/{self._uploader}/")}
        if note.uploader != self._uploader:
            return named
        plain = {file.path for file in note.files if not file.parts}
        return named | plain | {note_name(self._uploader, note.revision)}

    def _is_ours(self, name: str) -> bool:
        note = parse_note_name(name) if name.count("/") == 1 else None
        return note[0] == self._uploader if note else name.startswith(f"{FOLDER}/{self._uploader}/")
