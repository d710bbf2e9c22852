"""Many viewers, one reader: the state of a run is worked out once, however many ask for it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from flightlog.analyze.live.follow import FollowedRun
from flightlog.analyze.live.results import LiveState

EVERY_S = 1.0
FORGET_S = 60.0
SLICE_S = 0.4
"""So long one run is read at a stretch before the next has its turn."""
_NICE = 10


class _ReadState:
    def __init__(self, run: FollowedRun, asked: float) -> None:
        self.run = run
        self.asked = asked
        self.worked_out = -1e300
        self.state: LiveState | None = None
        self.problem: str | None = None


class FollowedRuns:
    """The states of runs, by their folders. Thread-safe; one thread reads, at low priority, and only while
    somebody asks.

    A state is worked out once in `every_s` at most. A run that nobody asked for in `forget_s` is forgotten,
    and read anew when somebody does. Without anybody to ask the thread sleeps.
    """

    def __init__(
        self,
        *,
        every_s: float = EVERY_S,
        forget_s: float = FORGET_S,
        clock: Callable[[], float] = time.monotonic,
        open_run: Callable[[Path], FollowedRun] = FollowedRun,
        background: bool = True,
    ) -> None:
        """Without `background` there is no thread: whoever calls `turn` reads."""
        self._every_s, self._forget_s = every_s, forget_s
        self._clock, self._open, self._background = clock, open_run, background
        self._runs: dict[Path, _ReadState] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def state(self, path: Path, *, wait_s: float = 0.0) -> LiveState | None:
        """The last state known of a run, and see to it that there will be a newer one. Reads nothing itself.

        None before the first one is there; `wait_s` waits so long for it.
        """
        with self._changed:
            looked = self._runs.get(path)
            if looked is None:
                looked = self._runs[path] = _ReadState(self._open(path), self._clock())
            looked.asked = self._clock()
            self._start()
            self._changed.notify_all()
            if looked.state is None and wait_s > 0:
                self._changed.wait_for(lambda: looked.state is not None or self._closed, wait_s)
            return looked.state

    def problem(self, path: Path) -> str | None:
        """Why there is no newer state of a run, in a sentence; None where all is well."""
        with self._changed:
            looked = self._runs.get(path)
            return None if looked is None else looked.problem

    def close(self) -> None:
        """Stop reading, and wait for the reader to have stopped; asking afterwards gives what is known."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5.0)

    def __len__(self) -> int:
        """How many runs are followed."""
        with self._changed:
            return len(self._runs)

    def _start(self) -> None:
        if self._background and self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._read, name="flightlog-live", daemon=True)
            self._thread.start()

    def turn(self) -> bool:
        """Read on in the run whose turn it is, for a moment; False where none is due."""
        with self._changed:
            due = self._next()
            if due is None:
                return False
            looked = self._runs[due]
        state, problem = looked.state, None
        try:
            state = looked.run.update(limit_s=SLICE_S)
        except Exception as error:  # noqa: BLE001 - the reader serves all runs; the next look may go well
            problem = f"{type(error).__name__}: {error}"
        with self._changed:
            looked.state, looked.problem = state, problem
            reading = state is not None and state.reading is not None and problem is None
            looked.worked_out = self._clock() - (self._every_s if reading else 0.0)
            self._changed.notify_all()
        return True

    def _read(self) -> None:
        _lower_priority()
        while not self._closed:
            if self.turn():
                continue
            with self._changed:
                if not self._closed and self._next() is None:
                    self._changed.wait(self._pause_s())

    def _next(self) -> Path | None:
        """The run that has waited longest for its turn; those nobody asks for are forgotten on the way."""
        now = self._clock()
        for path in [path for path, one in self._runs.items() if now - one.asked > self._forget_s]:
            del self._runs[path]
        due = [
            (one.worked_out, str(path), path) for path, one in self._runs.items() if self._is_due(one, now)
        ]
        return min(due)[2] if due else None

    def _is_due(self, one: _ReadState, now: float) -> bool:
        """A state that nobody has asked for since it was worked out need not be made newer."""
        return now - one.worked_out >= self._every_s and one.asked >= one.worked_out

    def _pause_s(self) -> float | None:
        now = self._clock()
        waits = [
            one.worked_out + self._every_s - now for one in self._runs.values() if one.asked >= one.worked_out
        ]
        if waits:
            return max(0.01, min(waits))
        return self._forget_s if self._runs else None


def _lower_priority() -> None:
    """On Linux a thread has a priority of its own; elsewhere that of the process is left alone."""
    if hasattr(os, "setpriority") and os.uname().sysname == "Linux":
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        except OSError:
            return
