"""Copies of runs in a remote place, written: once, with retries, or beside a run until it has ended.

Only what is new is sent, and checked. The copy is whole at every moment, even if the uploader is killed.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from flightlog.core.errors import RemoteError
from flightlog.core.retry import delays_s
from flightlog.core.time import SECOND, timestamp_of
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.layout import RunInfo
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import Observer, here
from flightlog.store.read.lines import read_tail
from flightlog.store.remote.copies import (
    FOLDER,
    Piece,
    RemoteCopies,
    RemoteFile,
    SyncNote,
    note_name,
    parse_note_name,
)
from flightlog.store.remote.objects import file_chunks, sha256_of
from flightlog.store.remote.state import (
    LocalFile,
    SentFile,
    SyncState,
    begin_state,
    end_of_lines,
    end_of_received,
    has_settled,
    list_files,
    name_of,
    source_of,
    uploader_name,
    write_state,
)


class Synced(Struct, frozen=True, kw_only=True):
    """What came of copying a run once."""

    run_id: str
    address: str
    complete: bool
    """The run has ended, and all of it is there."""
    files: int
    """Files of the run that are there."""
    bytes: int
    """What they hold."""
    sent_files: int
    """Those that something was sent of, this time."""
    sent_bytes: int
    notes: tuple[str, ...] = ()
    """Sentences on what was left as it was, and why."""


class Uploader:
    """Copies one run directory to one place. Not thread-safe; one process at a time, see `sole_uploader`.

    `sync()` may be called again and again: it sends what is new since. `now` gives the moment of each look at
    the run, `pause` waits some seconds while files of the run move.
    """

    def __init__(
        self,
        run: Path,
        remote: RemoteCopies,
        *,
        now: Callable[[], Observer] = here,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.run, self.remote = run, remote
        self._pause = pause
        self.run_id = name_of(run)
        self.state: SyncState = begin_state(run, remote.address)
        self._objects, self.now = remote.objects, now
        self._host = now().host
        source = source_of(run, self._host)
        self.uploader = uploader_name(source, self._host)
        own = SyncNote(
            run_id=self.run_id,
            uploader=self.uploader,
            source=source,
            host=self._host,
            revision=0,
            synced_at="",
            complete=False,
            files=(),
        )
        self._there = Notes(remote, own, lambda: _moment(now()))
        self._sent_bytes = 0
        self._sent_files: set[str] = set()
        self._notes: list[str] = []
        self._again: frozenset[str] = frozenset()

    def sync(self, again: Collection[str] = ()) -> Synced:
        """Copy what is new, and say what there is. Raises `RemoteError`, and `OSError` for the run directory.

        Files whose paths are in `again` are sent whatever is there.

        Whatever it raises, what is there is whole, and the next call goes on from there.
        """
        self._sent_bytes, self._sent_files, self._notes = 0, set(), []
        self._again = frozenset(again)
        try:
            self._there.look()
            newest = self._there.newest
            if newest is None or newest.revision != self.state.revision:
                self.state.files.clear()  # somebody went on elsewhere: what is here is compared by content
            files, complete = self._send_all()
            if files is None:
                files = list(self._there.files().values())
                self._notes.append("the run was moving while it was copied: the next call sends what is new")
            else:
                self._commit(files, complete=complete)
                self._there.sweep()
        except (RemoteError, OSError) as error:
            self.state.problem, self.state.complete = str(error), False
            self._there.forget()
            write_state(self.run, self.state)
            raise
        self.state.problem = None
        self.state.synced_at = _moment(self.now())
        write_state(self.run, self.state)
        return Synced(
            run_id=self.run_id,
            address=self.remote.address,
            complete=complete,
            files=len(files),
            bytes=sum(file.size for file in files),
            sent_files=len(self._sent_files),
            sent_bytes=self._sent_bytes,
            notes=tuple(self._notes),
        )

    # What is sent.

    def _send_all(self) -> tuple[list[RemoteFile] | None, bool]:
        """Send until a listing before and after agree: what moved from file to file meanwhile is then found
        again.

        None where they never did: what was sent may lack lines, and is not to be named.
        """
        staged: dict[str, RemoteFile] = {}
        for number in range(StoreLimits.upload_passes):
            self._pause(number * 0.1)
            settled = has_settled(self.run, self.now())
            listing = list_files(self.run, settled=settled)
            if settled:
                self._announce(listing)
            files, moved = self._send_listed(listing, {**self._there.files(), **staged}, settled)
            if not moved and _agree(listing, list_files(self.run, settled=settled), settled):
                return self._with_those_gone_here(files), settled
            staged |= files
        return None, False

    def _send_listed(
        self, listing: Sequence[LocalFile], there: dict[str, RemoteFile], settled: bool
    ) -> tuple[dict[str, RemoteFile], bool]:
        """Send each file that was listed; whether one of them was no longer there, or another one."""
        files, moved = dict[str, RemoteFile](), False
        renamed = self._renamed_since(listing, there)
        for file in listing:
            before = renamed.get(file.path, there.get(file.path))
            if before is not None and (not self._there.is_own(before) or file.path in self._again):
                before = None
            try:
                sent = self._send(file, before, settled)
            except FileNotFoundError:
                moved = True
                continue
            if sent is not None:
                files[file.path] = sent
        return files, moved

    def _send(self, file: LocalFile, before: RemoteFile | None, settled: bool) -> RemoteFile | None:
        if file.kind == "tail":
            return self._send_tail(file, before, settled)
        with (self.run / file.path).open("rb") as source:
            if _identity(source) != file.identity:
                raise FileNotFoundError(file.path)
            if file.kind == "lines" and not settled:
                return self._send_lines(file, source, before)
            return self._send_whole(file, source, before, settled)

    def _send_tail(self, file: LocalFile, before: RemoteFile | None, settled: bool) -> RemoteFile | None:
        data = read_tail(self.run / file.path)
        if not settled:
            data = data[: data.rfind(b"\n") + 1]
        if not data:
            return None
        digest = hashlib.sha256(data).hexdigest()
        plain = settled and self._may_be_plain()
        if before is not None and before.sha256 == digest and (not settled or self._is_final(before, plain)):
            return before
        return self._put(file.path, iter((data,)), plain=plain)

    def _send_whole(
        self, file: LocalFile, source: BinaryIO, before: RemoteFile | None, settled: bool
    ) -> RemoteFile:
        plain = settled and self._may_be_plain()
        if before is not None and (not settled or self._is_final(before, plain)):
            if self._is_unchanged(file, before):
                return before
            if before.sha256 == sha256_of(file_chunks(source, 0, file.size)):
                self._remember(file, before)
                return before
            if settled and file.kind == "lines" and file.size < before.size:
                self._notes.append(
                    f"{file.path} is shorter here ({file.size} bytes) than there "
                    f"({before.size}): the longer one stays"
                )
                return before
        sent = self._put(file.path, file_chunks(source, 0, file.size), plain=plain)
        self._remember(file, sent)
        return sent

    def _send_lines(self, file: LocalFile, source: BinaryIO, before: RemoteFile | None) -> RemoteFile | None:
        """What was added to a growing file, as further pieces; whole lines alone, and nothing before the
        first one.
        """
        parts = before.parts if before is not None else ()
        if before is not None and not self._is_unchanged(file, before, grown=True):
            parts = _matching(source, parts)
        start = sum(part.size for part in parts)
        end = end_of_lines(source, start)
        if file.path.startswith(f"{layout.SEGMENTS}/"):
            end = end_of_received(source, start, end)
        if end > start:
            keep = joined_from([part.size for part in parts], end - start)
            parts = parts[:keep]
            start = sum(part.size for part in parts)
            for at, size in cut(start, end):
                parts = (*parts, self._put_piece(file.path, file_chunks(source, at, size)))
        if not parts:
            return None
        sent = RemoteFile(path=file.path, size=end, parts=parts)
        self._remember(file, sent)
        return sent

    def _put(self, path: str, chunks: Iterator[bytes], *, plain: bool) -> RemoteFile:
        """Send a file whole: to its own place where the run has ended, as a piece of its own before."""
        if not plain:
            piece = self._put_piece(path, chunks)
            return RemoteFile(path=path, size=piece.size, sha256=piece.sha256, parts=(piece,))
        written = self._objects.write(f"{self.run_id}/{path}", chunks, replaces=True)
        self._there.wrote(path)
        self._count(path, written.size)
        return RemoteFile(path=path, size=written.size, sha256=written.sha256)

    def _put_piece(self, path: str, chunks: Iterator[bytes]) -> Piece:
        name = f"{FOLDER}/{self.uploader}/{path}/{os.urandom(8).hex()}"
        written = self._objects.write(f"{self.run_id}/{name}", chunks)
        self._there.wrote(name)
        self._count(path, written.size)
        return Piece(name, written.size, written.sha256)

    def _count(self, path: str, size: int) -> None:
        self._sent_files.add(path)
        self._sent_bytes += size

    def _may_be_plain(self) -> bool:
        """Whether files of a run that has ended go to their own places, which one uploader alone may write.

        That is the host of the run's owner, or whoever comes first where it has not begun.
        """
        others = self._there.others
        if any(not file.parts for note in others for file in note.files):
            return False
        info = read_document(self.run / layout.RUN, RunInfo).value
        return not others or (info is not None and info.host == self._host)

    def _is_final(self, before: RemoteFile, plain: bool) -> bool:
        """Whether a file is where one of a run that has ended should be: in one object, here or at its own
        place.
        """
        if not before.parts:
            return True
        return not plain and len(before.parts) == 1 and before.sha256 is not None

    # What is remembered of files, so that they are not read again.

    def _remember(self, file: LocalFile, sent: RemoteFile) -> None:
        self.state.files[file.path] = SentFile(
            file.device, file.inode, file.size, file.mtime_ns, sent.version
        )

    def _is_unchanged(self, file: LocalFile, there: RemoteFile, *, grown: bool = False) -> bool:
        seen = self.state.files.get(file.path)
        if seen is None or (seen.version, seen.device) != (there.version, file.device):
            return False
        return seen.is_of(file, grown=grown)

    def _renamed_since(
        self, listing: Sequence[LocalFile], there: dict[str, RemoteFile]
    ) -> dict[str, RemoteFile]:
        """Files of lines that were renamed since, a full one put aside: their pieces stay what they are."""
        was = {(seen.device, seen.inode): path for path, seen in self.state.files.items()}
        found: dict[str, RemoteFile] = {}
        for file in listing:
            old = was.get(file.identity)
            if file.kind == "lines" and old is not None and old != file.path and old in there:
                found[file.path] = msgspec.structs.replace(there[old], path=file.path)
                del self.state.files[old]  # a number may be given again: what it holds is compared
        return found

    def _with_those_gone_here(self, files: dict[str, RemoteFile]) -> list[RemoteFile]:
        """Files that are gone here stay there, but for a writer's whose lines stand elsewhere by now."""
        folded = (self.run / layout.RECORDER).exists()
        for path, file in self._there.files().items():
            if path in files:
                continue
            of_writer = path.startswith(f"{layout.SEGMENTS}/")
            drained = ".tail-" in path and (self.run / path).parent.is_dir()
            if of_writer and (folded or drained):
                continue
            if not of_writer:
                self._notes.append(f"{path} is gone here, and stays there")
            files[path] = file
        self.state.files = {path: seen for path, seen in self.state.files.items() if path in files}
        return [files[path] for path in sorted(files)]

    # What says that it is there.

    def _announce(self, listing: Sequence[LocalFile]) -> None:
        """Say which files at their own places are about to be replaced: a reader takes the old one or the new
        one.
        """
        there = self._there.files()
        coming: dict[str, RemoteFile] = {}
        for file in listing:
            before = there.get(file.path)
            if before is None or before.parts or file.kind == "tail" or self._is_unchanged(file, before):
                continue
            try:
                with (self.run / file.path).open("rb") as source:
                    digest = sha256_of(file_chunks(source, 0, file.size))
            except FileNotFoundError:
                continue
            if digest == before.sha256:
                self._remember(file, before)
            elif file.kind != "lines" or file.size >= before.size:
                coming[file.path] = msgspec.structs.replace(before, next=Piece(file.path, file.size, digest))
        if coming and self._may_be_plain():
            self._there.write([coming.get(path, file) for path, file in there.items()], complete=False)

    def _commit(self, files: list[RemoteFile], *, complete: bool) -> None:
        newest = self._there.newest
        if newest is None or list(newest.files) != files or newest.complete != complete:
            self._there.write(files, complete=complete)
        assert self._there.newest is not None
        self.state.revision, self.state.complete = self._there.newest.revision, complete


def _agree(before: Sequence[LocalFile], after: Sequence[LocalFile], settled: bool) -> bool:
    """Whether the same files of lines are there as before: a listing may miss one that is renamed
    meanwhile. Of a run that ended, whether nothing changed at all.
    """
    if settled:
        return list(before) == list(after)
    found, there = (
        {file.path: file.identity for file in files if file.kind == "lines"} for files in (before, after)
    )
    return found == there


def _matching(source: BinaryIO, parts: Sequence[Piece]) -> tuple[Piece, ...]:
    """The pieces, from the first on, that a file begins with."""
    at, kept = 0, list[Piece]()
    with suppress(OSError):
        for part in parts:
            if sha256_of(file_chunks(source, at, part.size)) != part.sha256:
                break
            kept.append(part)
            at += part.size
    return tuple(kept)


def _identity(source: BinaryIO) -> tuple[int, int]:
    stat = os.fstat(source.fileno())
    return stat.st_dev, stat.st_ino


def _moment(observer: Observer) -> str:
    return timestamp_of(round(observer.now * SECOND))


class Notes:
    """The notes of one run, as one uploader reads and writes them. Raises `RemoteError`.

    `own` says which run and uploader that is, `moment` gives the time.
    """

    def __init__(self, remote: RemoteCopies, own: SyncNote, moment: Callable[[], str]) -> None:
        self.newest: SyncNote | None = None
        """The newest of this source, whoever wrote it."""
        self.others: list[SyncNote] = []
        """Those of other uploaders."""
        self._remote, self._objects, self._own, self._moment = remote, remote.objects, own, moment
        self._run_id, self._uploader = own.run_id, own.uploader
        self._begun = self._swept = False
        self._attempted = 0  # the revision last tried: a note that timed out may still arrive
        self._unnamed: set[str] = set()  # objects of ours that no note names any more

    def look(self) -> None:
        """Read the notes that are there, unless that was done and nothing has failed since."""
        if self._begun:
            return
        notes = self._remote.notes(self._run_id)
        ours = [note for note in notes if note.source == self._own.source]
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

    def is_own(self, file: RemoteFile) -> bool:
        """Whether a file that is there stays: its pieces are ours, and not of somebody who may remove them
        meanwhile.
        """
        return all(part.name.startswith(f"{FOLDER}/{self._uploader}/") for part in file.parts)

    def write(self, files: Sequence[RemoteFile], *, complete: bool) -> None:
        """Say that these files are there, in place of what was said before."""
        before = self.newest
        known = [note.revision for note in (*self.others, *([before] if before else []))]
        self._attempted = max(*known, self._attempted, 0) + 1
        note = msgspec.structs.replace(
            self._own,
            revision=self._attempted,
            synced_at=self._moment(),
            complete=complete,
            files=tuple(files),
        )
        data = msgspec.json.encode(note)
        chunks = (
            data[at : at + StoreLimits.transfer_chunk_bytes]
            for at in range(0, len(data), StoreLimits.transfer_chunk_bytes)
        )
        self._objects.write(f"{self._run_id}/{note_name(self._uploader, note.revision)}", chunks)
        self.newest = note
        if before is not None:
            self._unnamed |= self._ours(before) - self._ours(note)

    def wrote(self, name: str) -> None:
        """An object was written, which the next note names, or else nobody does."""
        self._unnamed.add(name)

    def sweep(self) -> None:
        """Remove what this uploader wrote and no note names any more: older notes first, then their
        objects.
        """
        assert self.newest is not None
        notes = (self.newest, *self.others)
        plain = {file.path for note in notes for file in note.files if not file.parts}
        needed = self._ours(self.newest) | plain
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


def joined_from(sizes: Sequence[int], fresh: int) -> int:
    """How many of the pieces to keep, where `fresh` bytes are new; the rest is sent again together with
    these.

    Small pieces are joined when there are `joined_pieces` of them, then those, and so on up to the largest of
    the steps: each byte is sent a few times at the most, and a file has a few dozen pieces beside the large
    ones, however often it was sent.
    """
    keep, size = len(sizes), fresh
    for limit in StoreLimits.piece_size_steps_bytes:
        first = keep
        while first > 0 and sizes[first - 1] < limit:
            first -= 1
        if size >= limit or keep - first + 1 < StoreLimits.joined_pieces:
            break
        size += sum(sizes[first:keep])
        keep = first
    return keep


def cut(start: int, end: int) -> list[tuple[int, int]]:
    """Bytes from `start` to `end` as pieces: where each begins, and how long it is."""
    return [
        (at, min(StoreLimits.max_piece_bytes, end - at))
        for at in range(start, end, StoreLimits.max_piece_bytes)
    ]


Sleep = Callable[[float], None]
Clock = Callable[[], float]


def sync_with_patience(
    uploader: Uploader,
    *,
    again: Collection[str] = (),
    sleep: Sleep = time.sleep,
    clock: Clock = time.monotonic,
) -> Synced:
    """Copy once, and once more while something passing is in the way, for `upload_timeout_s` at the most;
    then it is raised.

    Files whose paths are in `again` are sent whatever is there.
    """
    began, pauses_s = clock(), delays_s(*StoreLimits.upload_retry_s, jitter=0.5)
    while True:
        try:
            return uploader.sync(again)
        except RemoteError as error:
            wait_s = next(pauses_s)
            if not error.passing or clock() - began + wait_s > StoreLimits.upload_timeout_s:
                raise
        sleep(wait_s)


def follow(
    uploader: Uploader,
    *,
    give_up_s: float = StoreLimits.ended_upload_timeout_s,
    every_s: tuple[float, float] = StoreLimits.upload_interval_s,
    on_trouble: Callable[[str], None] = lambda _message: None,
    sleep: Sleep = time.sleep,
    clock: Clock = time.monotonic,
) -> Synced:
    """Copy what is new of a run until it has ended and all of it is there.

    While the run goes on no error ends it: `on_trouble` is told each kind once, and pauses grow. An error
    that is still there `give_up_s` after the run has ended, or that will not pass, is raised then; copying
    again goes on from there.
    """
    pace_s, pauses_s = every_s[0], delays_s(*StoreLimits.upload_retry_s, jitter=0.5)
    told: set[str] = set()
    ended: float | None = None
    while True:
        try:
            synced = uploader.sync()
            if synced.complete:
                return synced
            pauses_s, wait_s = delays_s(*StoreLimits.upload_retry_s, jitter=0.5), pace_s
            pace_s = min(pace_s * 1.05, every_s[1])
            told.clear()
        except RemoteError as error:
            if error.kind not in told:
                told.add(error.kind)
                on_trouble(str(error))
            wait_s = next(pauses_s)
            if _has_settled(uploader):
                ended = clock() if ended is None else ended
                if not error.passing or clock() - ended + wait_s > give_up_s:
                    raise
        _wait(uploader, wait_s, ended is not None, sleep, clock)


def _wait(uploader: Uploader, wait_s: float, has_ended: bool, sleep: Sleep, clock: Clock) -> None:
    """Wait so long, or until the run ends: what came last should not wait."""
    until = clock() + wait_s
    stamp = _stamp(uploader.run)
    while (left := until - clock()) > 0:
        sleep(min(left, StoreLimits.upload_poll_s))
        before, stamp = stamp, _stamp(uploader.run)
        closing = stamp[1] != 0  # checksums are there, and whoever wrote them lets go in a moment
        if not has_ended and (stamp != before or closing) and _has_settled(uploader):
            return


def _stamp(run: Path) -> tuple[int, ...]:
    """Changes when a run is closed; a heartbeat changes it, too."""
    found: list[int] = []
    for name in (layout.RUN, layout.CHECKSUMS):
        try:
            found.append((run / name).stat().st_mtime_ns)
        except OSError:
            found.append(0)
    return tuple(found)


def _has_settled(uploader: Uploader) -> bool:
    try:
        return has_settled(uploader.run, uploader.now())
    except OSError:
        return True  # the directory is gone
