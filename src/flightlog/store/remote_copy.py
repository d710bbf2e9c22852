"""The files of one remote run brought here: those that are not here yet, each checked, and seen together."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from flightlog.core.errors import RemoteError
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.remote import Remote
from flightlog.store.remote_cache import DOCUMENTS, KeptFile, RemoteCache
from flightlog.store.remote_listing import RunListed
from flightlog.store.remote_manifest import RemoteFile

TRIES = 4
"""So often a run is looked at again that goes on while it is read."""


def copy_run(
    reader: Callable[[], Remote], cache: RemoteCache, run_id: str, listed: RunListed, pool: Executor
) -> tuple[str, ...]:
    """Bring the copy of a run up to date; gives sentences on files that could not be had as they were
    uploaded.

    To be called with the run locked; `reader` gives the remote for the thread that asks, `pool` the threads.
    Readers of the copy see the old files until all new ones are here; then these come first, and what is no
    longer part of the run goes last, so that no line is missing at any moment. A `RemoteError` leaves the
    copy as it was.
    """
    return _Copying(reader, cache, run_id, listed, pool).copy()


class _Copying:
    def __init__(
        self, reader: Callable[[], Remote], cache: RemoteCache, run_id: str, listed: RunListed, pool: Executor
    ) -> None:
        self._reader, self._cache, self._run_id, self._listed, self._pool = (
            reader,
            cache,
            run_id,
            listed,
            pool,
        )
        self._kept, self._here = cache.kept(run_id), cache.path(run_id)
        self._fresh = cache.fresh(run_id)
        self._fetched: dict[str, KeptFile] = {}

    def copy(self) -> tuple[str, ...]:
        shutil.rmtree(self._fresh, ignore_errors=True)  # of a process that was killed
        try:
            files, problems = self._fetch()
            self._put_in_place(files)
        finally:
            shutil.rmtree(self._fresh, ignore_errors=True)
        kept, listed = self._kept, self._listed
        info = read_document(self._here / layout.RUN, layout.RunInfo).value
        kept.content = f"{listed.version}, in part" if problems else listed.version  # and so tried again
        kept.problems = problems
        kept.final = info is not None and info.status in layout.ENDED
        kept.fetched = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        kept.versions = {name: listed.document(name) for name in DOCUMENTS}
        self._cache.keep(self._run_id, kept)
        return tuple(problems)

    def _fetch(self) -> tuple[dict[str, KeptFile], list[str]]:
        """Fetch what is not here; gives all files that the run has now, and what is wrong with others."""
        had: dict[str, KeptFile] = {}
        problems: list[str] = []
        for _ in range(TRIES):
            files, problems = _inside(self._reader().files(self._run_id))
            found = list(self._pool.map(self._fetch_file, files))
            had = {
                file.path: one for file, one in zip(files, found, strict=True) if isinstance(one, KeptFile)
            }
            if len(had) == len(files):
                break
            problems += [one for one in found if isinstance(one, str)]  # the run went on meanwhile, or damage
        return had, problems

    def _fetch_file(self, file: RemoteFile) -> KeptFile | str:
        """Have a file among the new ones, unless it is here already; why not, where the remote has another
        one.
        """
        wanted, known = self._as_kept(file), self._kept.files.get(file.path)
        here, fresh = self._here / file.path, self._fresh / file.path
        whole = known is not None and _size(here) == known.size_bytes
        if (whole and known == wanted) or self._fetched.get(file.path) == wanted or _holds(here, file):
            return wanted
        try:
            begun = len(known.parts) if known is not None and whole else 0
            if begun and known is not None and wanted.parts[:begun] == known.parts:
                self._fetch_rest(file, begun, here, fresh)
            else:
                self._reader().fetch(self._run_id, file, fresh)
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
            for chunk in self._reader().chunks(self._run_id, rest) if rest.parts else ():
                out.write(chunk)

    def _as_kept(self, file: RemoteFile) -> KeptFile:
        parts = tuple(part.sha256 for part in file.parts)
        known = file.sha256 is not None or parts
        version = file.version if known else self._listed.stamp(file.path)
        return KeptFile(version, file.size, parts)

    def _put_in_place(self, files: dict[str, KeptFile]) -> None:
        self._kept.content = None  # first: a copy that is cut short here is not taken for a whole one
        self._kept.files = {path: one for path, one in self._kept.files.items() if files.get(path) == one}
        self._cache.keep(self._run_id, self._kept)
        for path in sorted(self._fetched.keys() & files.keys(), key=lambda path: (path in DOCUMENTS, path)):
            place = self._here / path
            place.parent.mkdir(parents=True, exist_ok=True)
            (self._fresh / path).replace(place)
        self._kept.files = files
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
    if file.sha256 is None or _size(here) != file.size:
        return False
    with here.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest() == file.sha256


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None
