"""How long a session still takes, from what its own tasks took so far, and from earlier runs where none has
ended yet.

On the way of a task this costs an entry in a dict at its start and its duration in a short list at its end.
Everything else happens when somebody looks, at most once a second, in bounded time, and more rarely where
that takes long.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from flightlog.analyze.predict.eta import Eta, Known, from_durations, from_earlier, remaining

if TYPE_CHECKING:
    from flightlog.core.stats import Distribution

__all__ = [
    "EVERY_S",
    "NAMES",
    "RECENT",
    "Eta",
    "Known",
    "Pace",
    "from_durations",
    "from_earlier",
    "remaining",
]

RECENT = 100
"""So many durations of a name are kept, the newest."""
NAMES = 200
"""So many names are looked at; where there are more, the rest is on top."""
EVERY_S = 1.0
RESTS, LONGEST_REST_S = 50, 30.0
"""So many times as long as an answer took passes until the next, which leaves the program its time; but no
longer than this."""


class Pace:
    """Counts a session's tasks by name. Written by the tracker under its lock, read by whoever draws."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: dict[str, int] = {}
        self._recent: dict[str, deque[tuple[float, float]]] = {}
        self._running: dict[str, tuple[str, float]] = {}
        self._due = -math.inf
        self._told: Eta | None = None

    def submitted(self, names: Iterable[str]) -> None:
        """Tasks of these names are to be run."""
        left = self._left
        for name in names:
            left[name] = left.get(name, 0) + 1

    def started(self, task_id: str, name: str) -> None:
        """A worker executes it."""
        self._running[task_id] = name, self._clock()

    def stopped(self, task_id: str) -> None:
        """An attempt is over, and the task will be tried again."""
        self._running.pop(task_id, None)

    def ended(self, task_id: str, name: str, duration_s: float | None) -> None:
        """A task is over; the duration of one that completed, None of any other."""
        self._running.pop(task_id, None)
        self._left[name] = self._left.get(name, 1) - 1
        if duration_s is not None:
            recent = self._recent.get(name)
            if recent is None:
                recent = self._recent[name] = deque(maxlen=RECENT)
            recent.append((self._clock(), duration_s))

    def eta(self, earlier: Mapping[str, Distribution] | None = None) -> Eta | None:
        """What is left, as of about a second ago at most; None where nothing runs, or nothing is known."""
        now = self._clock()
        if now >= self._due:
            with suppress(RuntimeError):  # a dict grew while it was read: the next look is soon
                self._told = self._reckon(now, earlier or {})
            self._due = now + max(EVERY_S, min(LONGEST_REST_S, RESTS * (self._clock() - now)))
        return self._told

    def _reckon(self, now: float, earlier: Mapping[str, Distribution]) -> Eta | None:
        running = list(self._running.values())
        left = {name: count for name, count in list(self._left.items()) if count > 0}
        most = sorted(left, key=lambda name: -left[name])[:NAMES]
        known = {name: found for name in most if (found := self._known(name, earlier, now)) is not None}
        since: dict[str, list[float]] = {}
        for name, began in running:
            since.setdefault(name, []).append(now - began)
        return remaining(left, known, since, len(running), at_least=len(known) < len(left))

    def _known(self, name: str, earlier: Mapping[str, Distribution], now: float) -> Known | None:
        recent = list(self._recent.get(name) or ())
        found = from_durations([(now - when, took) for when, took in recent], whole=len(recent) < RECENT)
        before = None if found is not None else earlier.get(name)
        return found if before is None else from_earlier(before)
