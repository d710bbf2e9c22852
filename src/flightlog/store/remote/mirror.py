"""Remote runs, read through local copies that are run directories like any other.

Opening an address takes one listing, whatever the number of runs, and one small read for each run whose
`run.json` is new or has changed. The other files of a run are fetched when it is opened: those that are not
here yet, checked by SHA-256, and of one that grows what is new. What has not changed at the remote is never
read again. Copies are a cache: all of it may be removed at any time, and is fetched again when it is needed.

    ~/.cache/flightlog/remote/<digest of the address>/    a folder of runs like any other
      run-20260520T035200Z-demo-a1b2c3d4/                 `run.json` alone, or all files
      .remote/address                                     the address, without secrets
      .remote/listed                                      its time is when the remote was listed last
      .remote/<run>.json                                  what is here of a run, and of which version
      .remote/<run>.new/                                  files that are being fetched
      .remote/<run>.lock                                  held by the process that fetches the run
      .remote/gone/<run>/                                 whole copies of runs that the remote no longer has
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from flightlog.core.errors import RemoteError, RunNotFound
from flightlog.core.locks import locked
from flightlog.core.settings import Settings, read_settings, user_cache
from flightlog.core.time import SECOND, timestamp_of
from flightlog.store import layout
from flightlog.store.documents import read_document, replace_bytes
from flightlog.store.integrity import sum_of
from flightlog.store.limits import StoreLimits
from flightlog.store.read.files import entries_of
from flightlog.store.remote.copies import RemoteCopies, RemoteFile, RunListed, list_remote
from flightlog.store.remote.objects import Calls, Objects, open_objects, parse_address
from flightlog.store.runs_folder import Note

AWAY = frozenset({"timeout", "refused", "server", "credentials"})
"""Kinds of errors after which nothing more is asked: the next answer would be the same, and take its time."""


class Mirror:
    """The runs at an address, and the copies of them here.

    `refresh` first; what the other methods give is as of then. Thread-safe.
    """

    def __init__(self, objects: Objects, cache: RemoteCache, *, max_bytes: int) -> None:
        self.address, self.folder = objects.address, cache.folder
        self._objects, self._cache, self._max_bytes = objects, cache, max_bytes
        self._own = threading.local()
        self._refreshing = threading.Lock()
        # Two pools: what fetches a document waits for a run to be unlocked, and whoever has locked it for its
        # files.
        self._for_documents = ThreadPoolExecutor(
            StoreLimits.max_concurrent_reads, thread_name_prefix="flightlog-reading"
        )
        self._for_files = ThreadPoolExecutor(
            StoreLimits.max_concurrent_reads, thread_name_prefix="flightlog-fetching"
        )
        self._listed: dict[str, RunListed] = {}
        self._away: RemoteError | None = None

    def refresh(self, *, only: str | None = None, note: Note) -> None:
        """Look at the remote: at all runs, or at one. Their `run.json` are here then.

        Where it cannot be reached and there are copies, `note` is told from when they are; else a
        `RemoteError`. A run that is no longer there goes out of the folder, and `note` is told where its copy
        is.
        """
        with self._refreshing, self._cache_errors():
            self._away = None
            try:
                found = list_remote(self._objects, only)
            except RemoteError as error:
                self._listed, self._away = {}, error
                if not (self._cache.run_ids() if only is None else self._cache.path(only).is_dir()):
                    raise
                note(f"{error}; what is shown was copied from there {self._as_of(only)}")
            else:
                self._take_in(found, only, note)

    def _take_in(self, found: dict[str, RunListed], only: str | None, note: Note) -> None:
        self._cache.prepare()
        if only is None:
            self._listed = found
            self._set_aside(self._cache.run_ids() - found.keys(), note)
        else:
            self._listed = {**self._listed, **found}
            if not found:
                self._forget(only)
        failed = self._fetch_documents(found, layout.RUN)
        if failed and not any((self._cache.path(run_id) / layout.RUN).is_file() for run_id in found):
            raise failed[0]
        if failed:
            count = f"{len(failed)} of {len(found)} runs at {self.address}"
            note(f"run.json of {count} could not be read now, and is as it was, or unknown: {failed[0]}")
        elif only is None:
            self._cache.note_listed()

    def fetch_documents(self, run_ids: Iterable[str], name: str) -> None:
        """Have a document of these runs here; one that the remote does not have, or not now, is missing."""
        self._fetch_documents([run_id for run_id in run_ids if run_id in self._listed], name)

    def fetch(self, run_id: str) -> tuple[str, ...]:
        """Have all files of a run here; gives sentences on what is not here, or not as it should be.

        A `RemoteError` where the remote cannot be reached and the files were never here.
        """
        state, listed = self._cache.state_of(run_id), self._listed.get(run_id)
        with self._cache_errors():
            self._cache.note_used(run_id)
            if listed is None:
                return self._as_it_was(run_id, self._away, behind=not state.final)
            if state.content == listed.version:
                return tuple(state.problems)
            try:
                with self._cache.locked(run_id):
                    state = self._cache.state_of(run_id)
                    if state.content == listed.version:  # another process was faster
                        return tuple(state.problems)
                    problems = RunCopying(self._reader, self._cache, run_id, listed, self._for_files).copy()
            except RemoteError as error:
                return self._as_it_was(run_id, error, behind=True)
            make_room(self.folder.parent, self._max_bytes, spare={self._cache.path(run_id)})
            return problems

    def _as_it_was(self, run_id: str, why: RemoteError | None, *, behind: bool) -> tuple[str, ...]:
        state = self._cache.state_of(run_id)
        if state.content is None:
            missing = why or f"{self.address} does not have it"
            raise RemoteError(f"the files of {run_id} are not here: {missing}") from why
        if why is None or not behind:
            return tuple(state.problems)
        return (*state.problems, f"what was recorded after {state.fetched} is not here: {why}")

    def _fetch_documents(self, run_ids: Iterable[str], name: str) -> list[RemoteError]:
        """Have a document of these runs here; gives what went wrong. Once the remote is away, no more is
        asked of it.
        """

        def is_new(run_id: str) -> bool:
            state = self._cache.state_of(run_id)
            known = state.versions.get(name) == self._listed[run_id].document(name)
            return not known or not self._cache.path(run_id).is_dir()

        def fetch(run_id: str) -> RemoteError | None:
            try:
                if self._away is None:
                    self._fetch_document(run_id, name)
            except RemoteError as error:
                if error.kind in AWAY:
                    self._away = error
                return error
            return self._away

        with self._cache_errors():
            self._cache.prepare()
            found = list(self._for_documents.map(fetch, [run_id for run_id in run_ids if is_new(run_id)]))
        return [error for error in found if error is not None]

    def _fetch_document(self, run_id: str, name: str) -> None:
        """Read a document where it stands, or, of a run that goes on, where its note says."""
        listed, reader = self._listed[run_id], self._reader()
        with self._cache.locked(run_id):
            self._cache.bring_back(run_id)
            path, state = self._cache.path(run_id), self._cache.state_of(run_id)
            if not path.is_dir():
                path.mkdir()
                state = CachedRun()  # whatever is known of it is of files that somebody removed
            if listed.stands_alone(name):
                size = listed.objects[name].size
                replace_bytes(path / name, _read_json(reader.objects, f"{run_id}/{name}", size))
            elif listed.has_notes:
                file = next((one for one in reader.files(run_id) if one.path == name), None)
                if file is not None:
                    reader.fetch(run_id, file, path / name)
            state.versions[name] = listed.document(name)
            state.files.pop(name, None)  # it is of another moment than the files that were fetched together
            state.final = state.final and state.content == listed.version
            self._cache.write_state(run_id, state)

    def _forget(self, run_id: str) -> None:
        """The run is no longer at the remote, or never was."""
        self._listed.pop(run_id, None)
        if run_id in self._cache.run_ids():
            self._cache.set_aside(run_id)
        aside = self._cache.aside(run_id)
        if aside.is_dir():
            raise RunNotFound(f"{run_id} is no longer at {self.address}; the copy of it is {aside}")

    @contextmanager
    def _cache_errors(self) -> Iterator[None]:
        """Turn what the disk says into a sentence."""
        try:
            yield
        except OSError as error:
            raise RemoteError(_cache_problem(self.address, self.folder, error)) from error

    def _set_aside(self, run_ids: Iterable[str], note: Note) -> None:
        whole = [run_id for run_id in sorted(run_ids) if self._cache.set_aside(run_id)]
        if whole:
            named = ", ".join(whole[:3]) + (", …" if len(whole) > 3 else "")
            runs, copies = ("run is", "its copy is") if len(whole) == 1 else ("runs are", "their copies are")
            note(
                f"{len(whole)} {runs} no longer at {self.address} ({named}); {copies} kept in "
                f"{self._cache.aside(whole[0]).parent} while there is room"
            )

    def _as_of(self, only: str | None) -> str:
        listed = self._cache.listed()
        of_all = None if listed is None else timestamp_of(round(listed * SECOND))
        moment = of_all if only is None else self._cache.state_of(only).fetched
        return "earlier" if moment is None else f"at {moment[:19]}Z"

    def _reader(self) -> RemoteCopies:
        """The remote for this thread: connections are shared, waiting is not."""
        found: RemoteCopies | None = getattr(self._own, "remote", None)
        if found is None:
            calls = Calls(self.address, timeout_s=StoreLimits.remote_read_timeout_s)
            found = self._own.remote = RemoteCopies(self._objects.sharing(calls))
        return found


def open_mirror(
    address: str, known: MutableMapping[Path, Mirror] | None = None, *, settings: Settings | None = None
) -> Mirror:
    """The mirror of an address: the one in `known`, by its folder, or a new one, which is put there.

    Raises `UsageError` and `MissingExtra` as `Remote.open`, and `RemoteError` where no copies can be kept.
    """
    known = {} if known is None else known
    settings = settings or read_settings()
    shown, folder = parse_address(address), folder_of_copies(address, settings)
    found = known.get(folder)
    if found is not None:
        return found
    objects = open_objects(shown, calls=Calls(shown, timeout_s=StoreLimits.remote_list_timeout_s, attempts=1))
    cache = RemoteCache(folder, shown)
    try:
        cache.prepare()
    except OSError as error:
        raise RemoteError(_cache_problem(shown, folder, error)) from error
    found = known[folder] = Mirror(objects, cache, max_bytes=settings.remote_cache_max_bytes)
    return found


def folder_of_copies(address: str, settings: Settings | None = None) -> Path:
    """Where the copies of an address are, or would be."""
    root = (settings or read_settings()).remote_cache or cache_root()
    return root.absolute() / folder_name(parse_address(address))


def _read_json(objects: Objects, name: str, size: int | None) -> bytes:
    """A document with one request where it is still as large as listed; anything else is read without knowing
    its size.
    """
    try:
        data = b"".join(objects.chunks(name, size)) if size else b""
        msgspec.json.decode(data)
    except msgspec.DecodeError:
        return objects.read(name)
    except RemoteError as error:
        if error.kind != "changed":
            raise
        return objects.read(name)
    return data


def _cache_problem(address: str, folder: Path, error: OSError) -> str:
    return (
        f"copies of the runs at {address} cannot be kept in {folder} ({error.strerror or error}); "
        "FLIGHTLOG_REMOTE_CACHE names another folder"
    )


@dataclass
class RunCopying:
    """Brings the copy of a run up to date; with the run locked.

    `reader` gives the remote for the thread that asks, `pool` the threads. Readers of the copy see the old
    files until all new ones are here; then these come first, and what is no longer part of the run goes last,
    so that no line is missing at any moment. A `RemoteError` leaves the copy as it was.
    """

    reader: Callable[[], RemoteCopies]
    cache: RemoteCache
    run_id: str
    listed: RunListed
    pool: Executor

    def __post_init__(self) -> None:
        self._state, self._here = self.cache.state_of(self.run_id), self.cache.path(self.run_id)
        self._fresh = self.cache.fresh(self.run_id)
        self._fetched: dict[str, CopiedFile] = {}

    def copy(self) -> tuple[str, ...]:
        """Do it; gives sentences on files that could not be had as they were uploaded."""
        shutil.rmtree(self._fresh, ignore_errors=True)  # of a process that was killed
        try:
            files, problems = self._fetch()
            self._put_in_place(files)
        finally:
            shutil.rmtree(self._fresh, ignore_errors=True)
        state, listed = self._state, self.listed
        info = read_document(self._here / layout.RUN, layout.RunInfo).value
        state.content = f"{listed.version}, in part" if problems else listed.version  # and so retried
        state.problems = problems
        state.final = info is not None and info.status in layout.ENDED
        state.fetched = timestamp_of(time.time_ns())
        state.versions = {name: listed.document(name) for name in DOCUMENTS}
        self.cache.write_state(self.run_id, state)
        return tuple(problems)

    def _fetch(self) -> tuple[dict[str, CopiedFile], list[str]]:
        """Fetch what is not here; gives all files that the run has now, and what is wrong with others."""
        had: dict[str, CopiedFile] = {}
        problems: list[str] = []
        for _ in range(StoreLimits.mirror_attempts):
            files, problems = _inside(self.reader().files(self.run_id))
            found = list(self.pool.map(self._fetch_file, files))
            had = {
                file.path: one for file, one in zip(files, found, strict=True) if isinstance(one, CopiedFile)
            }
            if len(had) == len(files):
                break
            problems += [one for one in found if isinstance(one, str)]  # the run went on meanwhile, or damage
        return had, problems

    def _fetch_file(self, file: RemoteFile) -> CopiedFile | str:
        """Have a file among the new ones, unless it is here already; why not, where the remote has another
        one.
        """
        wanted, known = self._as_cached(file), self._state.files.get(file.path)
        here, fresh = self._here / file.path, self._fresh / file.path
        whole = known is not None and _size(here) == known.size_bytes
        if (whole and known == wanted) or self._fetched.get(file.path) == wanted or _holds(here, file):
            return wanted
        try:
            begun = len(known.parts) if known is not None and whole else 0
            if begun and known is not None and wanted.parts[:begun] == known.parts:
                self._fetch_rest(file, begun, here, fresh)
            else:
                self.reader().fetch(self.run_id, file, fresh)
        except RemoteError as error:
            if error.kind not in {"gone", "changed"}:
                raise
            return f"{file.path} is left out: {error}"
        self._fetched[file.path] = wanted
        return wanted

    def _fetch_rest(self, file: RemoteFile, begun: int, here: Path, fresh: Path) -> None:
        """Of a file that grew, the pieces behind those that are here."""
        fresh.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(here, fresh)
        rest = RemoteFile(path=file.path, size=file.size, parts=file.parts[begun:])
        with fresh.open("ab") as out:
            for chunk in self.reader().chunks(self.run_id, rest) if rest.parts else ():
                out.write(chunk)

    def _as_cached(self, file: RemoteFile) -> CopiedFile:
        parts = tuple(part.sha256 for part in file.parts)
        known = file.sha256 is not None or parts
        version = file.version if known else self.listed.stamp(file.path)
        return CopiedFile(version, file.size, parts)

    def _put_in_place(self, files: dict[str, CopiedFile]) -> None:
        self._state.content = None  # first: a copy that is cut short here is not taken for a whole one
        self._state.files = {path: one for path, one in self._state.files.items() if files.get(path) == one}
        self.cache.write_state(self.run_id, self._state)
        for path in sorted(self._fetched.keys() & files.keys(), key=lambda path: (path in DOCUMENTS, path)):
            place = self._here / path
            place.parent.mkdir(parents=True, exist_ok=True)
            (self._fresh / path).replace(place)
        self._state.files = files
        for folder, _, names in os.walk(self._here, topdown=False):
            for name in names:
                if Path(folder, name).relative_to(self._here).as_posix() not in files:
                    Path(folder, name).unlink(missing_ok=True)
            with suppress(OSError):  # there is something in it
                if Path(folder) != self._here:
                    Path(folder).rmdir()


def _inside(files: Iterable[RemoteFile]) -> tuple[list[RemoteFile], list[str]]:
    """The files whose paths stay inside the run, and sentences on the others: a note may say anything."""
    good: list[RemoteFile] = []
    problems: list[str] = []
    for file in files:
        parts = PurePosixPath(file.path).parts
        if parts and "\0" not in file.path and not {"/", ".."} & {*parts} and not parts[0].startswith("."):
            good.append(file)
        else:
            problems.append(f"{file.path!r} is no path inside a run, and was left out")
    return good, problems


def _holds(here: Path, file: RemoteFile) -> bool:
    """Whether a file that is here holds what is wanted: one that grew in pieces is whole when its run has
    ended.
    """
    return file.sha256 is not None and _size(here) == file.size and sum_of(here).sha256 == file.sha256


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None


DOCUMENTS = frozenset({layout.RUN, layout.SUMMARY})
"""What is known of a run that is only listed; these stay when room is made."""

_STATE = ".remote"


class CopiedFile(msgspec.Struct, frozen=True):
    """A file that was fetched and checked."""

    version: str
    """As its note at the remote has it."""
    size_bytes: int
    parts: tuple[str, ...] = ()
    """SHA-256 of the pieces it was put together from: of a file that grows, only what follows them is
    fetched."""


class CachedRun(msgspec.Struct, kw_only=True):
    """What is here of one run."""

    versions: dict[str, str] = {}
    """Of the documents that were fetched for a list: the version each had, by its path within the run."""
    content: str | None = None
    """The version of the whole run when all its files were fetched; None where they are not all here."""
    files: dict[str, CopiedFile] = {}
    """The files that were fetched and checked, by their path within the run."""
    fetched: str | None = None
    """When that was, ISO 8601, UTC."""
    final: bool = False
    """The run had ended then, and nothing is known to have changed since."""
    problems: list[str] = []
    """Sentences on what could not be had, or was not what it should be."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the files that were fetched."""
        return sum(file.size_bytes for file in self.files.values())


class RemoteCache:
    """The copies of the runs of one address. Several processes and threads may use one folder at once.

    Every method raises OSError where the disk refuses.
    """

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self._address = folder, address
        self._notes = folder / _STATE

    def prepare(self) -> None:
        """Make the folder, where nobody has done so, or somebody removed it."""
        if not (self._notes / "address").is_file():
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(exist_ok=True, mode=0o700)  # runs may be private
            self._notes.mkdir(exist_ok=True)
            replace_bytes(self._notes / "address", f"{self._address}\n".encode())

    def path(self, run_id: str) -> Path:
        """Where the copy of a run is, or would be."""
        return self.folder / run_id

    def state_of(self, run_id: str) -> CachedRun:
        """What is here of a run; nothing where it was never fetched, or the note of it cannot be read."""
        try:
            return msgspec.json.decode((self._notes / f"{run_id}.json").read_bytes(), type=CachedRun)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return CachedRun()

    def write_state(self, run_id: str, state: CachedRun) -> None:
        """Note what is here of a run; to be called with the run locked."""
        replace_bytes(self._notes / f"{run_id}.json", msgspec.json.encode(state))

    def locked(self, run_id: str) -> AbstractContextManager[bool]:
        """Wait until no other process or thread changes the copy of a run, and keep them off."""
        return locked(self._notes / f"{run_id}.lock", wait_s=None)

    def run_ids(self) -> set[str]:
        """The runs of which at least a document is here."""
        return {entry.name for entry in _folders(self.folder) if not entry.name.startswith(".")}

    def listed(self) -> float | None:
        """When the remote was listed last, in Unix seconds; None where it never was."""
        with suppress(OSError):
            return (self._notes / "listed").stat().st_mtime
        return None

    def note_listed(self) -> None:
        """The remote was listed now."""
        (self._notes / "listed").touch()

    def note_used(self, run_id: str) -> None:
        """The copy of a run is in use now."""
        (self._notes / f"{run_id}.lock").touch()

    def set_aside(self, run_id: str) -> bool:
        """Take the copy of a run out of the folder; whether it was a whole one, which is then kept aside."""
        with self.locked(run_id):
            whole = self.state_of(run_id).content is not None
            if not whole:
                _remove(self.path(run_id))
                (self._notes / f"{run_id}.json").unlink(missing_ok=True)
            elif self.path(run_id).is_dir():
                aside = self.aside(run_id)
                aside.parent.mkdir(exist_ok=True)
                _remove(aside)
                self.path(run_id).rename(aside)
        return whole

    def bring_back(self, run_id: str) -> None:
        """Put a copy that was set aside into the folder again, where there is one; to be called with the run
        locked.
        """
        if self.aside(run_id).is_dir() and not self.path(run_id).exists():
            self.aside(run_id).rename(self.path(run_id))

    def fresh(self, run_id: str) -> Path:
        """Where files of a run are put while they are fetched."""
        return self._notes / f"{run_id}.new"

    def aside(self, run_id: str) -> Path:
        """Where the copy of a run is once it is set aside."""
        return self._notes / "gone" / run_id


def make_room(root: Path, max_bytes: int, *, spare: Collection[Path] = (), now: float | None = None) -> int:
    """Remove the files of whole runs, of all addresses, until the rest takes `max_bytes` at most; gives the
    bytes freed.

    The longest unused go first. What was used within the last hour, and the runs in `spare`, stay. Of a run
    that is still at its remote `run.json` and `summary.json` stay, so that it is listed as before.
    """
    now = time.time() if now is None else now
    copies: list[tuple[float, int, RemoteCache, str]] = []
    for place in _folders(root):
        if not (root / place.name / _STATE / "address").is_file():
            continue  # somebody else's
        cache = RemoteCache(root / place.name, "")
        for file in (cache.folder / _STATE).glob("*.json"):
            state, used = cache.state_of(file.stem), 0.0
            with suppress(OSError):
                used = file.with_suffix(".lock").stat().st_mtime
            copies.append((used, state.size_bytes, cache, file.stem))
    total, freed = sum(size for _, size, _, _ in copies), 0
    for used, _, cache, run_id in sorted(copies, key=lambda one: one[:2]):
        if total - freed <= max_bytes:
            break
        if now - used > StoreLimits.mirror_in_use_s and cache.path(run_id) not in spare:
            freed += _shrink(cache, run_id)
    return freed


def _shrink(cache: RemoteCache, run_id: str) -> int:
    """Leave the documents of a run alone; gives the bytes freed."""
    with cache.locked(run_id):
        state, path = cache.state_of(run_id), cache.path(run_id)
        before = state.size_bytes
        stay = {name: file for name, file in state.files.items() if name in DOCUMENTS}
        state.content, state.final, state.files, state.problems = None, False, stay, []
        cache.write_state(run_id, state)  # first: a copy that is cut short here is not taken for a whole one
        _remove(cache.aside(run_id))
        for entry in entries_of(path):
            if entry.is_dir(follow_symlinks=False):
                _remove(path / entry.name)
            elif entry.name not in DOCUMENTS:
                (path / entry.name).unlink(missing_ok=True)
        return before - state.size_bytes


def cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """The folder that holds the copies of all addresses: in the user's cache."""
    environ = os.environ if environ is None else environ
    return user_cache(environ) / "remote"


def folder_name(address: str) -> str:
    """The name of the folder with the copies of an address, which holds no secrets any more."""
    return hashlib.sha256(address.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _folders(folder: Path) -> list[os.DirEntry[str]]:
    return [entry for entry in entries_of(folder) if entry.is_dir(follow_symlinks=False)]


def _remove(folder: Path) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)
