"""A place of runs that is looked at again and again: a folder, or an address that is asked from time to
time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from flightlog.core.errors import FlightlogError
from flightlog.store.runs_folder import Given, address_of, folder_at_hand, folder_of_runs

REMOTE_S = 10.0
"""A remote is asked no more often than that, and seldom enough to take a fifth of the time at most."""


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
        from flightlog.core.settings import runs_address

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
                self._notes, self._next = tuple(notes), began + max(REMOTE_S, 5 * (ended - began))
            return self._folder
