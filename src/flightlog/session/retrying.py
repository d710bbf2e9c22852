"""Attempts that wait for their time: one thread for all of them."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count

FIRST_S = 0.05
LONGEST_S = 5.0


def delay_before(attempt: int) -> float:
    """Seconds to wait before this attempt, the second or a later one: each time twice as long, up to a
    limit.
    """
    return min(FIRST_S * 2.0 ** min(attempt - 2, 16), LONGEST_S)


class Delays:
    """Calls functions later, each once, in order of their times; thread-safe. A thread is started when
    needed.

    The functions must not raise and must be short. What is still waiting at `close` is never called.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call the function in so many seconds."""
        with self._changed:
            if self._closed:
                return
            heapq.heappush(self._waiting, (time.monotonic() + seconds, next(self._numbers), action))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="flightlog-retries", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Call nothing any more; a function that runs now is waited for."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (not self._waiting or self._waiting[0][0] > time.monotonic()):
                    self._changed.wait(self._waiting[0][0] - time.monotonic() if self._waiting else None)
                if self._closed:
                    return
                action = heapq.heappop(self._waiting)[2]
            action()
