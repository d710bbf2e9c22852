"""Which folder of runs is meant: a local folder, or the local copies of the runs at an address.

Remote runs come in here alone: beyond it they are run directories like any other. A list needs their
documents, which are there once the folder is; the other files of a run are fetched when the run is opened.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from flightlog.core.errors import FlightlogError, RunNotFound
from flightlog.core.settings import expanded, read_settings, runs_address
from flightlog.store.limits import StoreLimits

if TYPE_CHECKING:
    from flightlog.store.remote.mirror import Mirror

Given = str | os.PathLike[str] | None
Note = Callable[[str], None]
"""Is told, in a sentence, what to know of the answer: that it is from before the remote went away, say."""

_ADDRESS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+(?:::[A-Za-z][A-Za-z0-9+.-]+)*):/(?P<rest>.*)", re.DOTALL
)

_mirrors: dict[Path, Mirror] = {}
"""The addresses this process reads from, by the folder of their copies."""


def warn(message: str) -> None:
    """Tell by a Python warning: what is done where nobody says otherwise."""
    import warnings

    warnings.warn(message, stacklevel=3)


def address_of(given: Given) -> str | None:
    """The address that is meant, such as `s3://bucket/runs`; None for a path.

    A `Path` has lost one of the two slashes, and is understood all the same.
    """
    if given is None:
        return None
    text = os.fspath(given)
    found = _ADDRESS.fullmatch(text)
    if found is None or (isinstance(given, str) and "://" not in text):
        return None
    if isinstance(given, str):
        return text
    return f"{found['scheme']}://{'/' if found['scheme'] == 'file' else ''}{found['rest']}"


def folder_of_runs(given: Given = None, *, run_id: str | None = None, note: Note = warn) -> Path:
    """The folder of runs: as given, else as configured; of an address, the copies of its runs, up to date.

    `run_id` is the one run that is wanted, if that is known: no other is looked at then. Where the remote
    cannot be reached, the copies there are do, and `note` is told; a `RemoteError` where there are none.
    """
    settings = read_settings()
    given = settings.runs_address or settings.runs_dir if given is None else given
    address = address_of(given)
    if address is None:
        return expanded(given)
    from flightlog.store.remote.mirror import open_mirror

    for problem in settings.problems:
        if problem.startswith("FLIGHTLOG_REMOTE_CACHE"):  # the others are the recorder's to say
            note(problem)
    mirror = open_mirror(address, _mirrors, settings=settings)
    mirror.refresh(only=run_id, note=note)
    return mirror.folder


def folder_at_hand(given: Given = None) -> Path:
    """As `folder_of_runs`, at once: of an address, the copies as they are."""
    address = address_of(runs_address() if given is None else given)
    if address is None:
        return folder_of_runs(given)
    from flightlog.store.remote.mirror import folder_of_copies

    return folder_of_copies(address)


def remote_run(address: str, *, note: Note = warn) -> Path:
    """The copy of the run at an address, up to date; `RunNotFound` where there is none."""
    parent, _, run_id = address.rstrip("/").rpartition("/")
    if "://" not in parent or parent.endswith("/"):
        raise RunNotFound(
            f"{address} is no address of a run; one looks like "
            "s3://bucket/runs/run-20260520T035200Z-demo-a1b2c3d4"
        )
    folder = folder_of_runs(parent, run_id=run_id, note=note)
    if not (folder / run_id).is_dir():
        raise RunNotFound(
            f"there is no run {run_id} in {place(folder)}; a folder of runs is named with --runs-dir"
        )
    return folder / run_id


def place(folder: Path) -> str:
    """What people call a folder of runs: its path, or the address that its runs are copies of."""
    mirror = _mirrors.get(folder)
    return str(folder) if mirror is None else mirror.address


def is_copy(path: Path) -> bool:
    """Whether a run directory is a copy of a remote run, which is only read."""
    return path.parent in _mirrors


def fetch_run(path: Path) -> tuple[str, ...]:
    """Have all files of a run here, where it is a copy; gives sentences on what is not, or is not as it
    should be.
    """
    mirror = _mirrors.get(path.parent) if _mirrors else None
    return () if mirror is None else mirror.fetch(path.name)


def refresh_run(path: Path, *, note: Note = warn) -> None:
    """Ask the remote how a run is now, where it is a copy: opening it fetches what is new then. Nothing for
    any other run.

    Where the remote cannot be reached, `note` is told from when the copy is.
    """
    mirror = _mirrors.get(path.parent) if _mirrors else None
    if mirror is not None:
        mirror.refresh(only=path.name, note=note)


def fetch_documents(paths: Iterable[Path], name: str) -> None:
    """Have one document of these runs here, where they are copies; what cannot be had is missing as in any
    run.
    """
    if not _mirrors:
        return
    wanted: dict[Path, list[str]] = {}
    for path in paths:
        if path.parent in _mirrors:
            wanted.setdefault(path.parent, []).append(path.name)
    for folder, run_ids in wanted.items():
        _mirrors[folder].fetch_documents(run_ids, name)


class RunsPlace:
    """Where runs are: as given, else as configured. Thread-safe; `clock` gives seconds.

    A remote that does not answer is said in `notes`, and the copies there are do; a folder that is missing is
    none.
    """

    def __init__(self, given: Given = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._given, self._clock = given, clock
        self._lock = threading.Lock()
        self._next = 0.0
        self._folder: Path | None = None
        self._notes: tuple[str, ...] = ()

    @property
    def is_remote(self) -> bool:
        """Whether runs are read from an address."""
        return address_of(runs_address() if self._given is None else self._given) is not None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is wrong with the remote, in sentences, as of when it was asked last; nothing where all is
        well.
        """
        return self._notes

    def folder(self) -> Path:
        """The folder of runs; of an address the copies, brought up to date where the last look is a while
        ago. Never raises for a remote.
        """
        if not self.is_remote:
            return folder_of_runs(self._given)
        with self._lock:
            began = self._clock()
            if self._folder is None or began >= self._next:
                notes: list[str] = []
                try:
                    self._folder = folder_of_runs(self._given, note=notes.append)
                except FlightlogError as error:
                    notes.append(str(error))
                    self._folder = folder_at_hand(self._given)
                ended = self._clock()
                self._notes, self._next = (
                    tuple(notes),
                    began + max(StoreLimits.remote_refresh_s, 5 * (ended - began)),
                )
            return self._folder
