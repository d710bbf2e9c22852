"""Calls that end: whatever a client library waits for, whoever asked it goes on after a bounded time."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from flightlog.core.errors import RemoteError
from flightlog.store.remote_errors import remote_error

T = TypeVar("T")
BYTES_PER_S = 64 << 10
"""A connection slower than this counts as one that hangs."""


class Calls:
    """Makes calls one after the other, each within `timeout_s` seconds and more for what it carries.

    What a call raises comes out as a `RemoteError` in a sentence. One that does not end is left behind on its
    thread, a daemon that keeps nobody from exiting, and the next has a thread of its own; it may still take
    effect much later. With `attempts` over 1 a call that met something passing, other than silence, is made
    again, after a pause that doubles, with jitter. Not thread-safe. `shown` is the address that messages
    name; `sleep` waits some seconds.
    """

    def __init__(
        self,
        shown: str,
        *,
        timeout_s: float = 30.0,
        attempts: int = 3,
        pause_s: float = 0.5,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.shown, self.timeout_s = shown, timeout_s
        self._attempts, self._pause_s, self._sleep = attempts, pause_s, sleep
        self._worker: _Worker | None = None
        self.made = 0
        """Calls so far, each attempt counted."""

    def __call__(self, what: Callable[[], T], *, carries: int = 0, again: bool = True) -> T:
        """What `what()` gives; `carries` are the bytes that go over the line, `again` whether it may be
        repeated.
        """
        pause_s = self._pause_s
        for attempt in range(1, self._attempts + 1):
            try:
                return self._once(what, self.timeout_s + carries / BYTES_PER_S)
            except RemoteError as error:
                passing = error.passing and error.kind != "timeout"  # that has taken long enough
                if not (again and passing) or attempt == self._attempts:
                    raise
            self._sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s *= 2
        raise AssertionError("no attempt was made")

    def __del__(self) -> None:
        """Nobody asks any more: let the thread end."""
        worker = getattr(self, "_worker", None)
        if worker is not None:
            worker.asked.put(None)

    def _once(self, what: Callable[[], T], timeout_s: float) -> T:
        worker, self._worker = self._worker or _Worker(), None
        self.made += 1
        worker.asked.put(what)
        try:
            value, error = worker.answers.get(timeout=timeout_s)
        except queue.Empty:
            worker.asked.put(None)  # let the thread end, if the call ever does
            problem = TimeoutError(f"no answer within {timeout_s:.0f} seconds")
            raise remote_error(problem, self.shown) from None
        self._worker = worker
        if isinstance(error, Exception):
            raise remote_error(error, self.shown) from error
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]


class _Worker:
    """A thread that makes the calls it is asked for."""

    def __init__(self) -> None:
        self.asked: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="flightlog-remote", daemon=True).start()

    def _work(self) -> None:
        while (what := self.asked.get()) is not None:
            try:
                answer: tuple[Any, BaseException | None] = (what(), None)
            except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
                answer = (None, error)
            self.answers.put(answer)
            del what, answer  # which keep alive whoever asked, and with it this thread
