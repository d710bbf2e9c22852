"""How much a task's duration changed between two sets of runs, and how sure that is.

Three ratios, after over before: `typical` (the mean of logarithms, with far outliers drawn in, so that a few
stuck tasks do not decide), `mean` (which they may) and `p95`. The intervals come from a bootstrap that draws
blocks of tasks next to each other in time rather than single tasks: a busy minute slows all tasks in it, and
counts as one accident. Where neighbouring blocks resemble each other, as in busy spells longer than a block,
the intervals are wider by as much. What differs from run to run is added: as measured where a side has
several runs, and never less than `RUN_TO_RUN`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from typing import NamedTuple

from msgspec import Struct

from flightlog.core.stats import student_quantile, student_tail

DRAWS = 500
"""How often the blocks are drawn. The standard error is then good to 3 %, and 40 blocks take some 10 ms."""
LEAST_BLOCKS = 4
"""Fewer values than this on a side are inconclusive."""
LEAST_FOR_P95 = 40
"""Fewer values than this hold no more than two above their p95."""
CONFIDENCE = 0.95
ENOUGH_RUNS = 4
"""Runs beyond one per side that are enough to measure how much runs differ."""
RUN_TO_RUN = 0.01
"""How far a whole run is off its twin at least, as a standard deviation of the logarithm: heat, neighbours,
layout."""

LIKENESS = 1.0
"""Standard errors of the correlation beyond which neighbouring blocks resemble each other."""

_CERTAIN = 1e6
"""Degrees of freedom of what is taken as known."""


class Interval(Struct, frozen=True, kw_only=True):
    """A ratio, after over before, with its confidence interval; both bounds are null where there are too few
    values.
    """

    ratio: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    """How likely at least so large a change is where nothing changed, for this ratio alone."""


class Block(NamedTuple):
    """Tasks next to each other in time, or pairs of them: their number and their sums."""

    tasks: int
    log_sum: float
    """Sum of the logarithms of the durations, far outliers drawn in."""
    seconds: float
    below: int
    """How many are at or below the p95 of their side."""


class Sample(Struct, frozen=True, kw_only=True):
    """The durations of one name on both sides, in blocks.

    `paired` blocks go together by position: they hold the same arguments. Their `log_sum` is 0 before, and
    after it is that of the ratios.
    """

    paired: bool
    before: Sequence[Block]
    after: Sequence[Block]
    p95_before: float | None = None
    p95_after: float | None = None
    p95_slopes: tuple[float, float] | None = None
    """How steeply the logarithm of the quantile rises around p95, a unit of probability; before and after."""
    run_offsets: Sequence[Sequence[float]] = ((), ())
    """The mean logarithm of each run, up to a constant a side: what tells how runs of one side differ."""
    runs: tuple[int, int] = (1, 1)


class Estimates(Struct, frozen=True, kw_only=True):
    """The three ratios of one name; `p95` is null where there are too few values."""

    typical: Interval
    mean: Interval
    p95: Interval | None


def estimate(sample: Sample, *, draws: int = DRAWS) -> Estimates:
    """The ratios of a sample. The same sample gives the same result: the draws are the same for all."""
    before, after = _total(sample.before), _total(sample.after)
    typical = after.log_sum / after.tasks - before.log_sum / before.tasks
    mean = _log(after.seconds / after.tasks) - _log(before.seconds / before.tasks)
    p95 = None
    if sample.p95_before and sample.p95_after and sample.p95_slopes is not None:
        p95 = math.log(sample.p95_after / sample.p95_before)
    if min(len(sample.before), len(sample.after)) < LEAST_BLOCKS:
        return Estimates(
            typical=Interval(ratio=_exp(typical)),
            mean=Interval(ratio=_exp(mean)),
            p95=None if p95 is None else Interval(ratio=_exp(p95)),
        )
    spreads = _with_runs(sample, _spreads(sample, draws))
    return Estimates(
        typical=_interval(typical, spreads[0]),
        mean=_interval(mean, spreads[1]),
        p95=None if p95 is None else _interval(p95, spreads[2]),
    )


def ratio_of_runs(before: Sequence[float], after: Sequence[float]) -> Interval | None:
    """The ratio of a figure that each run has once, such as its wall time; None where it is unknown or not
    positive.

    The bounds are there where the sides have four runs together, so that their spread is known.
    """
    if not before or not after or min(*before, *after) <= 0:
        return None
    logs = [[math.log(value) for value in values] for values in (before, after)]
    point = math.fsum(logs[1]) / len(logs[1]) - math.fsum(logs[0]) / len(logs[0])
    df = len(before) + len(after) - 2
    if df < 2:
        return Interval(ratio=math.exp(point))
    within = sum(_variance(values) * (len(values) - 1) for values in logs if len(values) > 1) / df
    sizes = 1 / len(before) + 1 / len(after)
    if within <= RUN_TO_RUN**2:
        return _interval(point, _LogSpread(RUN_TO_RUN**2 * sizes, _CERTAIN))
    return _interval(point, _LogSpread(within * sizes, df))


class _LogSpread(NamedTuple):
    """A part of the variance of the logarithm of a ratio, and the degrees of freedom it is known with."""

    variance: float
    df: float


def _with_runs(sample: Sample, tasks: Sequence[_LogSpread]) -> list[_LogSpread]:
    """The spreads of the three ratios with what differs from run to run.

    Where runs of one side differ by more than their tasks and `RUN_TO_RUN` explain, or there are enough of
    them, the spread is that between runs, known as well as so few runs can tell it.
    """
    sizes = math.fsum(1 / count for count in sample.runs)
    assumed = _LogSpread(RUN_TO_RUN**2 * sizes, _CERTAIN)
    several = [offsets for offsets in sample.run_offsets if len(offsets) > 1]
    df = sum(len(offsets) - 1 for offsets in several)
    if df:
        between = math.fsum(_variance(offsets) * (len(offsets) - 1) for offsets in several) / df * sizes
        more = between - tasks[0].variance
        if more > assumed.variance or df >= ENOUGH_RUNS:
            return [_LogSpread(spread.variance + max(more, assumed.variance), df) for spread in tasks]
    return [_sum_of([spread, assumed]) for spread in tasks]


def _total(blocks: Sequence[Block]) -> Block:
    tasks, logs, seconds, below = zip(*blocks, strict=True)
    return Block(sum(tasks), math.fsum(logs), math.fsum(seconds), sum(below))


def _spreads(sample: Sample, draws: int) -> list[_LogSpread]:
    """How far tasks alone spread the three ratios."""
    slopes = sample.p95_slopes or (0.0, 0.0)
    sides = [
        _draw(blocks, slope, draws, 0 if sample.paired else side)
        for side, (blocks, slope) in enumerate(zip((sample.before, sample.after), slopes, strict=True))
    ]
    sizes = [len(sample.before), len(sample.after)]
    times = _waves(sample)
    if sample.paired:
        together = ([b - a for a, b in zip(*both, strict=True)] for both in zip(*sides, strict=True))
        return [_spread(values, sizes[0], more) for values, more in zip(together, times, strict=True)]
    return [
        _sum_of([_spread(values, size, more) for values, size in zip(both, sizes, strict=True)])
        for both, more in zip(zip(*sides, strict=True), times, strict=True)
    ]


def _spread(drawn: Sequence[float], blocks: int, times: float) -> _LogSpread:
    """What draws of so many blocks spread by, where the blocks resemble each other so many times as much."""
    freedom = (blocks - 1) / times
    return _LogSpread(_variance(drawn) * times * blocks / (blocks - 1), max(1.0, freedom))


def _waves(sample: Sample) -> list[float]:
    """By how much blocks that resemble the ones before make the three ratios spread wider; 1 where they do
    not.

    A busy spell longer than a block slows several of them. Correlations are added up over ever longer
    distances, two at a time, while they stay positive (Geyer's initial sequence), and only if those of
    neighbours are more than chance.
    """
    found = []
    for residuals in zip(*(_residuals(blocks) for blocks in _series(sample)), strict=True):
        square = math.fsum(value * value for values in residuals for value in values)
        count = sum(map(len, residuals))
        if not square or count < 2 * LEAST_BLOCKS:
            found.append(1.0)
            continue

        def alike(lag: int, residuals: tuple[list[float], ...] = residuals, square: float = square) -> float:
            return (
                sum(a * b for values in residuals for a, b in zip(values, values[lag:], strict=False))
                / square
            )

        total, lag = 1.0 + alike(1), 2
        if total - 1.0 <= LIKENESS / math.sqrt(count):
            found.append(1.0)
            continue
        farthest = min(map(len, residuals)) // 2
        while lag < farthest and (pair := alike(lag) + alike(lag + 1)) > 0:
            total, lag = total + pair, lag + 2
        found.append(max(1.0, min(2 * total - 1.0, count / 8)))
    return found


def _series(sample: Sample) -> list[Sequence[Block]]:
    """What happened in order of time: each side, or the pairs of both."""
    if not sample.paired:
        return [sample.before, sample.after]
    return [
        [
            Block(b.tasks, b.log_sum, b.seconds - a.seconds, b.below - a.below)
            for a, b in zip(sample.before, sample.after, strict=True)
        ]
    ]


def _residuals(blocks: Sequence[Block]) -> list[list[float]]:
    """How far each block is off the mean, for the sums of logarithms, of seconds and of those below p95."""
    total = _total(blocks)
    return [
        [block[field] - total[field] / total.tasks * block.tasks for block in blocks] for field in (1, 2, 3)
    ]


def _draw(
    blocks: Sequence[Block], slope: float, draws: int, stream: int
) -> tuple[list[float], list[float], list[float]]:
    """Drawn again and again: the mean logarithm, the logarithm of the mean, and how far the p95 moved."""
    tasks, logs, seconds, below = zip(*blocks, strict=True)
    typical, mean, p95 = [], [], []
    for pick in _picks(len(blocks), draws, stream):
        count = sum(pick(tasks))
        typical.append(sum(pick(logs)) / count)
        mean.append(_log(sum(pick(seconds)) / count))
        p95.append(-slope * sum(pick(below)) / count if slope else 0.0)
    return typical, mean, p95


@cache
def _picks(blocks: int, draws: int, stream: int) -> list[Callable[[Sequence[float]], tuple[float, ...]]]:
    """Draws of blocks with replacement; always the same for the same numbers."""
    chance = random.Random(f"{blocks} {stream}")
    return [itemgetter(*chance.choices(range(blocks), k=blocks)) for _ in range(draws)]


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _sum_of(parts: Sequence[_LogSpread]) -> _LogSpread:
    """Independent parts together, with the degrees of freedom of Welch and Satterthwaite."""
    total = math.fsum(part.variance for part in parts)
    unsure = math.fsum(part.variance**2 / part.df for part in parts)
    return _LogSpread(total, total**2 / unsure if unsure else _CERTAIN)


def _interval(point: float, whole: _LogSpread) -> Interval:
    error = math.sqrt(whole.variance)
    reach = error * student_quantile(0.5 + CONFIDENCE / 2, whole.df)
    return Interval(
        ratio=_exp(point),
        low=_exp(point - reach),
        high=_exp(point + reach),
        p=student_tail(point / error, whole.df),
    )


def log_slope(quantiles: Sequence[float], probabilities: Sequence[float]) -> float:
    """How steeply the logarithm of a quantile rises from the first to the last of these, a unit of
    probability.
    """
    return (_log(quantiles[-1]) - _log(quantiles[0])) / (probabilities[-1] - probabilities[0])


def _log(value: float) -> float:
    return math.log(max(value, 1e-9))


def _exp(value: float) -> float:
    return math.exp(min(700.0, value))
