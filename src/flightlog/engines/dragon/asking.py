"""Questions to Dragon's global services, one at a time in this process.

Dragon 0.15 has the thread that waits for an answer read those of all others. Where two threads ask at once,
the one that reads may leave just as the other begins to wait: the answer lies there, nobody reads it, and the
thread waits for ever, unless any thread asks anything after that. So the threads of an engine take turns; and
as the program may ask, too, one that has waited for its turn for long asks all the same, which wakes the
other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STUCK_S = 2.0
"""A question that has gone without an answer for so long may have lost it."""

_turn = threading.RLock()


@contextmanager
def one_at_a_time(patience_s: float = STUCK_S) -> Iterator[None]:
    """Whatever makes Dragon ask its global services: a queue or a process made, ended, destroyed, looked
    for.
    """
    mine = _turn.acquire(timeout=patience_s)
    try:
        yield
    finally:
        if mine:
            _turn.release()


def wake_who_waits(ask: Callable[[], object] | None = None, patience_s: float = STUCK_S) -> None:
    """Ask Dragon anything if a question of someone else has been waiting for its answer for long; else do
    nothing.

    Takes up to `patience_s` seconds to see which.
    """
    if _turn.acquire(timeout=patience_s):
        _turn.release()
        return
    (ask or _ask_anything)()


def _ask_anything() -> None:
    from dragon.globalservices.process import query
    from dragon.infrastructure.parameters import this_process

    query(this_process.my_puid)
