"""How long tasks take together on so many workers: a list schedule, of known durations or of predicted
ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from statistics import NormalDist, fmean

from msgspec import Struct

from flightlog.analyze.predict.baseline import CONFIDENCE, Z90, Estimate

WORK = 200_000
DRAWS = 20, 400
"""Tasks drawn in all rounds together, and the fewest and most rounds."""
_GRID = [NormalDist().inv_cdf((n + 0.5) / 40) for n in range(40)]


class ScheduleSpread(Struct, frozen=True, kw_only=True):
    """A median, and the interval that holds 90 %."""

    expected: float
    low: float
    high: float


def simulate(
    tasks: Sequence[Estimate],
    workers: int,
    after: Sequence[Sequence[int]] = (),
    *,
    between_runs: float = 0.0,
    handover_s: float = 0.0,
    seed: int = 0,
) -> ScheduleSpread:
    """The time that these tasks take together, each with `handover_s` on top; the same input gives the same
    answer.

    Each is drawn many times from its own interval. What makes a whole run slow or fast is drawn once a round
    for all: without that, the errors of many tasks would cancel out as they do on no real machine.
    """
    dice = random.Random(seed)
    curves = [_curve(each) for each in tasks]
    least, most = DRAWS
    totals = sorted(
        _round(curves, workers, after, dice.gauss(0.0, between_runs), handover_s, dice)
        for _ in range(min(max(WORK // max(1, len(tasks)), least), most))
    )
    return ScheduleSpread(
        expected=quantile_of(totals, 0.5),
        low=quantile_of(totals, (1 - CONFIDENCE) / 2),
        high=quantile_of(totals, (1 + CONFIDENCE) / 2),
    )


def mean_of(each: Estimate) -> float:
    """The mean of a task, which is more than its median where the interval reaches further up than down."""
    mid, down, up = _curve(each)
    return fmean(math.exp(min(700.0, mid + z * (up if z > 0 else down))) for z in _GRID)


def quantile_of(ordered: Sequence[float], q: float) -> float:
    """The nearest rank of a sorted list that is not empty."""
    return ordered[min(len(ordered) - 1, max(0, math.ceil(q * len(ordered)) - 1))]


def _curve(each: Estimate) -> tuple[float, float, float]:
    """Middle, and how far one standard deviation goes down and up, as logarithms."""
    mid = math.log(each.expected)
    return mid, (mid - math.log(each.low)) / Z90, (math.log(each.high) - mid) / Z90


def _round(
    curves: Sequence[tuple[float, float, float]],
    workers: int,
    after: Sequence[Sequence[int]],
    common: float,
    handover_s: float,
    dice: random.Random,
) -> float:
    drawn = []
    for mid, down, up in curves:
        z = dice.gauss(0.0, 1.0)
        drawn.append(handover_s + math.exp(min(700.0, mid + common + z * (up if z > 0 else down))))
    return makespan(drawn, workers, after)


def makespan(durations: Sequence[float], workers: int, needs: Sequence[Sequence[int]] = ()) -> float:
    """Seconds from the first start to the last end of tasks that are all there from the start, on workers
    that are, too.

    `durations` are in the order of submission; the rest is as in `replay`. Fewer than 1 worker count as 1.
    """
    there = min(max(1, workers), max(1, len(durations)))
    return replay([0.0] * len(durations), durations, [0.0] * there, needs)


def replay(
    releases: Sequence[float],
    durations: Sequence[float],
    ready: Sequence[float],
    needs: Sequence[Sequence[int]] = (),
) -> float:
    """Seconds from 0 to the last end of tasks that come one after another to workers that come one after
    another.

    Task n can run from `releases[n]` on (in rising order), and from the end of the tasks in `needs[n]`, where
    that is given. What can run first goes first, to the worker that is free first; worker w takes tasks from
    `ready[w]` on, and there has to be one. What waits in a circle, as a damaged line may say, is never begun
    and counts for nothing. No tasks take no time. Takes n log(n + k) steps for n tasks on k workers.
    """
    if not ready:
        raise ValueError("a schedule needs at least 1 worker, not 0")
    free = list(ready)
    heapify(free)
    last = 0.0
    if not any(needs):
        for release, duration in zip(releases, durations, strict=True):
            first = free[0]  # no `max` here, nor below: plans are drawn hundreds of times
            end = (first if first > release else release) + duration
            heapreplace(free, end)
            last = last if last > end else end
        return last
    missing = [len(set(needed)) for needed in needs]
    followers: list[list[int]] = [[] for _ in needs]
    for number, needed in enumerate(needs):
        for other in set(needed):
            followers[other].append(number)
    able = list(releases)
    waiting = [(able[number], number) for number, count in enumerate(missing) if not count]
    heapify(waiting)
    while waiting:
        # What becomes able later does so at the end of one that starts now, or after: the order holds.
        since, number = heappop(waiting)
        first = free[0]
        end = (first if first > since else since) + durations[number]
        heapreplace(free, end)
        last = last if last > end else end
        for follower in followers[number]:
            able[follower] = max(able[follower], end)
            missing[follower] -= 1
            if not missing[follower]:
                heappush(waiting, (able[follower], follower))
    return last
