"""Reading a run again and again in a thread of its own, so that a view never waits for a disk or a
network.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flightlog.analyze.live.results import LiveState


LOOK_S = 0.5
"""A look at a large run takes no longer than that: what is known so far is shown."""


class Follows(Protocol):
    """What gives a run's state; a `FollowedRun`, for one."""

    def update(self, limit_s: float | None = None) -> LiveState:
        """Read what is new, for so many seconds at most, and say how things stand."""
        ...


class Reader:
    """Tells how a run stands, every `interval_s` seconds and at once when another is to be watched.

    `tell(path, state)` is called in the reading thread, with the error in place of a state where a run cannot
    be read. The thread is a daemon: closing never waits for a read that hangs.
    """

    def __init__(
        self,
        open_live: Callable[[Path], Follows],
        tell: Callable[[Path, LiveState | Exception], None],
        *,
        interval_s: float,
    ) -> None:
        self._open, self._tell, self._interval_s = open_live, tell, interval_s
        self._changed = threading.Condition()
        self._path: Path | None = None
        self._due = self._paused = self._closed = False
        self._thread: threading.Thread | None = None

    def watch(self, path: Path) -> None:
        """Read this run from now on; starts the thread the first time."""
        with self._changed:
            self._path, self._due = path, True
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, name="flightlog-top", daemon=True)
            self._thread.start()

    def pause(self, paused: bool) -> None:
        """Read nothing until further notice, or go on at once."""
        with self._changed:
            self._paused, self._due = paused, not paused
            self._changed.notify()

    def close(self) -> None:
        """Read nothing any more, and tell nobody; returns at once."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _read(self) -> None:
        live: Follows | None = None
        watched: Path | None = None
        while (path := self._next()) is not None:
            try:
                if live is None or path != watched:
                    live, watched = self._open(path), path
                found: LiveState | Exception = live.update(LOOK_S)
            except Exception as error:  # noqa: BLE001 - the view says what happened, and tries again
                live, found = None, error
            with self._changed:
                if self._closed:
                    return
            self._tell(path, found)
            if not isinstance(found, Exception) and found.reading is not None:
                self._read_on(path)

    def _read_on(self, path: Path) -> None:
        """There is more to read already: do not wait."""
        with self._changed:
            self._due = self._due or path == self._path

    def _next(self) -> Path | None:
        """The run to read, when it is time; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._due or self._closed, timeout=self._interval_s)
            self._changed.wait_for(lambda: self._closed or not self._paused)
            self._due = False
            return None if self._closed else self._path
