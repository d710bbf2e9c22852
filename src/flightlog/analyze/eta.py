"""How long what is left still takes, from what tasks of the same names took: arithmetic alone, no clock and no files."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from flightlog.analyze.distribution import Distribution

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
    running: float,
    *,
    at_least: bool = False,
) -> Eta | None:
    """The time until all of these have ended, where so many run at once, now or on average.

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
    idle = max(0.0, 1 - 1 / running)
    # The last tasks do not end together: about half a long one is waited for, and a whole one at worst.
    expected = max(work / running + 0.5 * idle * tail, longest)
    low = max(0.0, (work - off) / running)
    high = max((work + off) / running + idle * tail, longest, longest_sure)
    return Eta(expected=expected, low=min(low, expected), high=max(high, expected), at_least=at_least)
