"""What engines have in common that hand everything to a pool: started once, used after that, closed by their
own process.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Sequence
from typing import Any

from flightlog.core.errors import UsageError
from flightlog.engines.contract import Work, WorkerView


class PooledEngine:
    """An engine whose `_pool` has `submit`, `cancel`, `workers` and `close`; `start` is the engine's own.

    That calls `_begin` first, and `_close_at_exit` when the pool has started.
    """

    _pool: Any

    def __init__(self) -> None:
        self._pid: int | None = None
        self._lock = threading.Lock()

    def submit(self, work: Work) -> None:
        """Take an attempt; its end will be reported, in whatever thread it comes about."""
        if self._pid is None:
            raise UsageError("the engine has not been started")
        self._pool.submit(work)

    def cancel(self, task_id: str, reason: str) -> bool:
        """Give an attempt up; whether it will be reported as cancelled."""
        return self._pid is not None and bool(self._pool.cancel(task_id, reason))

    def workers(self) -> Sequence[WorkerView]:
        """The workers there are."""
        found: Sequence[WorkerView] = self._pool.workers() if self._pid is not None else ()
        return found

    def close(self, timeout_s: float = 10.0) -> None:
        """End all workers; what still runs after so many seconds is ended, or written off, and reported as
        cancelled.

        May be called twice. In a forked child it does nothing: the workers are its parent's.
        """
        if self._pid != os.getpid():
            return
        self._pool.close(timeout_s)
        atexit.unregister(self._at_exit)
        self._closed()

    def _begin(self) -> None:
        with self._lock:
            if self._pid is not None:
                raise UsageError("the engine has been started already")
            self._pid = os.getpid()

    def _close_at_exit(self) -> None:
        atexit.register(self._at_exit)

    def _closed(self) -> None:
        """What is to do after the pool has closed."""

    def _at_exit(self) -> None:
        self.close(timeout_s=0.0)
