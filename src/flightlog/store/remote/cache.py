"""Local copies of remote runs: where they are kept, what is known of each, and how much room they may take.

    ~/.cache/flightlog/remote/<digest of the address>/    a folder of runs like any other
      run-20260520T035200Z-demo-a1b2c3d4/                 `run.json` alone, or all files .remote/address
      whose copies these are, without secrets .remote/listed                                      its time is
      when the remote was listed last .remote/<run>.json                                  what is here of a
      run, and of which version .remote/<run>.new/                                  files that are being
      fetched .remote/<run>.lock                                  held by the process that fetches the run
      .remote/gone/<run>/                                 whole copies of runs that are no longer at the
      remote

It is a cache: all of it may be removed at any time, and is fetched again when it is needed.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from flightlog.core.locks import locked
from flightlog.store import layout
from flightlog.store.documents import replace_bytes

DOCUMENTS = frozenset({layout.RUN, layout.SUMMARY})
"""What is known of a run that is only listed; these stay when room is made."""
IN_USE_S = 3_600.0
"""A copy that was opened within this time is not removed: somebody may be reading it."""
_STATE = ".remote"


class KeptFile(msgspec.Struct, frozen=True):
    """A file that was fetched and checked."""

    version: str
    """As its note at the remote has it."""
    size_bytes: int
    parts: tuple[str, ...] = ()
    """SHA-256 of the pieces it was put together from: of a file that grows, only what follows them is
    fetched."""


class Kept(msgspec.Struct, kw_only=True):
    """What is here of one run."""

    versions: dict[str, str] = {}
    """Of the documents that were fetched for a list: the version each had, by its path within the run."""
    content: str | None = None
    """The version of the whole run when all its files were fetched; None where they are not all here."""
    files: dict[str, KeptFile] = {}
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

    def kept(self, run_id: str) -> Kept:
        """What is here of a run; nothing where it was never fetched, or the note of it cannot be read."""
        try:
            return msgspec.json.decode((self._notes / f"{run_id}.json").read_bytes(), type=Kept)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return Kept()

    def keep(self, run_id: str, kept: Kept) -> None:
        """Note what is here of a run; to be called with the run locked."""
        replace_bytes(self._notes / f"{run_id}.json", msgspec.json.encode(kept))

    @contextmanager
    def locked(self, run_id: str) -> Iterator[None]:
        """Wait until no other process or thread changes the copy of a run, and keep them off."""
        with locked(self._notes / f"{run_id}.lock", wait_s=None):
            yield

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
            whole = self.kept(run_id).content is not None
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
            kept, used = cache.kept(file.stem), 0.0
            with suppress(OSError):
                used = file.with_suffix(".lock").stat().st_mtime
            copies.append((used, kept.size_bytes, cache, file.stem))
    total, freed = sum(size for _, size, _, _ in copies), 0
    for used, _, cache, run_id in sorted(copies, key=lambda one: one[:2]):
        if total - freed <= max_bytes:
            break
        if now - used > IN_USE_S and cache.path(run_id) not in spare:
            freed += _shrink(cache, run_id)
    return freed


def _shrink(cache: RemoteCache, run_id: str) -> int:
    """Leave the documents of a run alone; gives the bytes freed."""
    with cache.locked(run_id):
        kept, path = cache.kept(run_id), cache.path(run_id)
        before = kept.size_bytes
        stay = {name: file for name, file in kept.files.items() if name in DOCUMENTS}
        kept.content, kept.final, kept.files, kept.problems = None, False, stay, []
        cache.keep(run_id, kept)  # first: a copy that is cut short here is not taken for a whole one
        _remove(cache.aside(run_id))
        for entry in _entries(path):
            if entry.is_dir(follow_symlinks=False):
                _remove(path / entry.name)
            elif entry.name not in DOCUMENTS:
                (path / entry.name).unlink(missing_ok=True)
        return before - kept.size_bytes


def cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """The folder that holds the copies of all addresses: in the user's cache."""
    environ = os.environ if environ is None else environ
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or "~", ".cache")  # noqa: PTH118
    return Path(os.path.expanduser(cache), "flightlog", "remote")  # noqa: PTH111 - never raises


def folder_name(address: str) -> str:
    """The name of the folder with the copies of an address, which holds no secrets any more."""
    return hashlib.sha256(address.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _folders(folder: Path) -> list[os.DirEntry[str]]:
    return [entry for entry in _entries(folder) if entry.is_dir(follow_symlinks=False)]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _remove(folder: Path) -> None:
    if folder.is_dir():
        from shutil import rmtree  # brings every compression module along

        rmtree(folder)
