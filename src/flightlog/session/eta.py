"""How long a session still takes, from what its own tasks took so far, and from earlier runs where none has ended yet.

On the way of a task this costs an entry in a dict at its start and its duration in a short list at its end. Everything else
happens when somebody looks, at most once a second and in bounded time.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from flightlog.analyze.distribution import Distribution

RECENT = 100
"""So many durations of a name are kept, the newest."""
NAMES, RUNNING = 200, 2_000
"""So many names, and so many tasks that run, are looked at; where there are more, the rest is on top."""
EVERY_S = 1.0
OTHER_DAY = 0.2
"""By how much a task of an earlier run may differ from today's."""
Z90 = 1.6449


class Eta(Struct, frozen=True, kw_only=True):
    """Seconds until all that was submitted has ended: a median and an interval for 9 of 10 cases."""

    expected: float
    low: float
    high: float
    at_least: bool = False
    """There are tasks of names that nothing is known of: they come on top."""


class Known(Struct, frozen=True, kw_only=True):
    """What tasks of one name take, in seconds."""

    mean: float
    deviation: float
    error: float
    """Of the mean itself."""
    long: float
    """Nineteen of twenty take less."""
    seen: tuple[float, ...] = ()
    """Durations of this session, in order of size."""

    def left(self, elapsed: float) -> float:
        """What one that has run so long still takes: as those did that took longer."""
        longer = self.seen[bisect_right(self.seen, elapsed) :]
        if longer:
            return sum(longer) / len(longer) - elapsed
        return max(self.mean - elapsed, 0.1 * elapsed)


class Pace:
    """Counts a session's tasks by name. Written by the tracker under its lock, read by whoever draws."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: dict[str, int] = {}
        self._recent: dict[str, deque[float]] = {}
        self._running: dict[str, tuple[str, float]] = {}
        self._told: tuple[float, Eta | None] = (-math.inf, None)

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
            recent.append(duration_s)

    def eta(self, earlier: Mapping[str, Distribution] | None = None) -> Eta | None:
        """What is left, as of a second ago at most; None where nothing runs, or nothing is known."""
        now = self._clock()
        when, told = self._told
        if now - when >= EVERY_S:
            with suppress(RuntimeError):  # a dict grew while it was read: the next look is soon
                told = self._reckon(now, earlier or {})
            self._told = now, told
        return told

    def _reckon(self, now: float, earlier: Mapping[str, Distribution]) -> Eta | None:
        running = list(self._running.values())
        left = {name: count for name, count in list(self._left.items()) if count > 0}
        most = sorted(left, key=lambda name: -left[name])[:NAMES]
        known = {name: found for name in most if (found := self._known(name, earlier)) is not None}
        since: dict[str, list[float]] = {}
        for name, began in running[:RUNNING]:
            since.setdefault(name, []).append(now - began)
        partly = len(known) < len(left) or len(running) > RUNNING
        return remaining(left, known, since, min(len(running), sum(left.values())), at_least=partly)

    def _known(self, name: str, earlier: Mapping[str, Distribution]) -> Known | None:
        seen = sorted(self._recent.get(name) or ())
        if seen:
            return from_durations(seen)
        before = earlier.get(name)
        return None if before is None else from_earlier(before)


def from_durations(seen: Iterable[float]) -> Known:
    """What durations of this session say; one alone says little of how they differ, and is taken to differ by half."""
    ordered = tuple(sorted(seen))
    mean = math.fsum(ordered) / len(ordered)
    variance = math.fsum((each - mean) ** 2 for each in ordered) / len(ordered)
    deviation = math.sqrt(variance) if len(ordered) > 1 else 0.5 * mean
    rank = min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)
    long = ordered[rank] if len(ordered) > 4 else mean + Z90 * deviation
    return Known(
        mean=mean,
        deviation=deviation,
        error=deviation / math.sqrt(len(ordered)),
        long=max(long, mean),
        seen=ordered,
    )


def from_earlier(before: Distribution) -> Known | None:
    """What earlier runs say, less surely: another day, another load."""
    if before.p50 is None or before.p95 is None or not before.count:
        return None
    deviation = max(0.0, before.p95 - before.p50) / Z90
    mean = before.mean if before.mean is not None else before.p50
    return Known(
        mean=mean, deviation=deviation, long=max(before.p95, mean),
        error=OTHER_DAY * mean + deviation / math.sqrt(before.count),
    )  # fmt: skip


def remaining(
    left: Mapping[str, int],
    known: Mapping[str, Known],
    since: Mapping[str, list[float]],
    running: int,
    *,
    at_least: bool = False,
) -> Eta | None:
    """The time until all of these have ended, on as many workers as run tasks now.

    `left` counts the tasks of each name that have not ended, those that run included; `since` holds for how long each of
    these has run. Names that are not `known` are left out. None where nothing runs, or nothing is known of what is left.
    """
    if running <= 0 or not any(name in known for name, count in left.items() if count > 0):
        return None
    work = variance = error = longest = tail = longest_sure = 0.0
    for name, count in left.items():
        each = known.get(name)
        if each is None or count <= 0:
            continue
        ages = since.get(name, [])[:count]
        pending = count - len(ages)
        rest = [each.left(age) for age in ages]
        work += pending * each.mean + sum(rest)
        variance += count * each.deviation**2
        error += count * each.error
        longest = max([longest, *rest])
        longest_sure = max([longest_sure, *(each.long - age for age in ages)])
        if pending > 0:
            tail = max(tail, each.long)
            longest = max(longest, each.mean)
    off = Z90 * math.sqrt(variance + error**2)
    idle = 1 - 1 / running
    # The last tasks do not end together: about half a long one is waited for, and a whole one at worst.
    expected = max(work / running + 0.5 * idle * (tail), longest)
    low = max(0.0, (work - off) / running)
    high = max((work + off) / running + idle * tail, longest, longest_sure)
    return Eta(expected=expected, low=min(low, expected), high=max(high, expected), at_least=at_least)
