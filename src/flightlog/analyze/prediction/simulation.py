"""How long tasks take together where each is only predicted: many rounds of one schedule, drawn from their
intervals.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import NormalDist, fmean

from msgspec import Struct

from flightlog.analyze.prediction.base import CONFIDENCE, Estimate
from flightlog.analyze.schedule import makespan

Z90 = 1.6449
"""The 95 % point of the normal distribution: the ends of a 90 % interval."""
WORK = 200_000
DRAWS = 20, 400
"""So many tasks are drawn in all, in no fewer and no more rounds than these."""
_GRID = [NormalDist().inv_cdf((n + 0.5) / 40) for n in range(40)]


class Spread(Struct, frozen=True, kw_only=True):
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
) -> Spread:
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
    return Spread(
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
