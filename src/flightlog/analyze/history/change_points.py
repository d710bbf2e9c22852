"""Where a series of values changes its level: steps, told from noise, from single outliers and from slow
drifts.

Values are replaced by normal scores of their ranks, so that nothing depends on how noise is distributed and
no outlier weighs more than its rank. The statistic of a stretch is the largest difference between the scores
before and after a split; how likely noise reaches it is known for every length. A stretch with a step is
split there, and both sides are looked at again. A stretch without is searched for bumps in shorter windows,
each overlapping the next. Neighbouring values that resemble each other make long waves which are no steps:
where they do, the statistic counts for less.

Ranks do not see how large a step is. Where all values before lie so far from all after that the gap dwarfs
what either side does by itself, that is a step as it stands, also in few values; what lies on its sides is
looked at as above.

A slow drift is no step, though a split of it looks good. Steps are taken back where a straight line through a
stretch says as much as levels do; the rest must stand out between their neighbours, by the same statistic.

The same values give the same result. Takes O(n log² n) steps for n values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from statistics import NormalDist, fmean, median

from msgspec import Struct
from msgspec.structs import replace

from flightlog.analyze.limits import HistoryLimits

_TAKEN = 1.5
"""What two levels take of the likeness of the values around them, in values; by simulation."""
_LOCATION = 7.35
"""How far the squared statistic may fall from its peak where the step may be as well, at 95 % confidence."""


_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_NORMAL = NormalDist()


class LevelStep(Struct, frozen=True, kw_only=True):
    """From value number `at` on, counted from 0, the level is another one."""

    at: int
    earliest: int
    latest: int
    """Where the step may have been as well, at 95 % confidence."""
    chance: float
    """How likely noise shows as much somewhere between the neighbouring steps."""


class ChangePoints(Struct, frozen=True, kw_only=True):
    """The steps in order."""

    steps: list[LevelStep]
    drift: float | None
    """By how much the values move over the whole series, slowly, where they do and there is no step."""


def change_points(
    values: Sequence[float],
    *,
    least_gap: float = 0.0,
    clear_side: int = HistoryLimits.min_values_beside_clear_step,
) -> ChangePoints:
    """The steps in a series of finite values, the oldest first. Give logarithms where ratios count.

    A step that stands out by its size is larger than `least_gap`, and has `clear_side` values on either side.
    """
    clear = clear_steps(values, least_gap, clear_side)
    if not clear:
        return _by_order(values, HistoryLimits.false_alarm_rate)
    steps, rate = list[LevelStep](), HistoryLimits.false_alarm_rate
    for low, high in pairwise([0, *clear, len(values)]):
        if low:
            chance = min(clear[low], HistoryLimits.clear_step_false_alarm_rate)
            steps.append(LevelStep(at=low, earliest=low, latest=low, chance=chance))
        steps += [
            replace(step, at=low + step.at, earliest=low + step.earliest, latest=low + step.latest)
            for step in _by_order(values[low:high], rate * (high - low) / len(values)).steps
        ]
    return ChangePoints(steps=steps, drift=None)


def _by_order(values: Sequence[float], level: float) -> ChangePoints:
    """The steps that the order of the values shows; equal ones are put in an order that has no step
    anywhere.
    """
    if len(values) < HistoryLimits.min_values_for_step:
        return ChangePoints(steps=[], drift=None)
    series = _Series(values, [i * _GOLDEN % 1.0 for i in range(len(values))])
    found = sorted(_search(series, level))
    if not found:
        return ChangePoints(steps=[], drift=None)
    fit = _Fit(values, found)
    steps = _confirmed(series, _without_drifts(fit, found), fit, level)
    slope = 0.0 if steps else fit.slope(0, len(values))
    return ChangePoints(steps=steps, drift=slope * (len(values) - 1) if slope else None)


# --- the statistic


class _Peak(Struct, frozen=True):
    """The best split of a stretch."""

    at: int
    statistic: float
    """A standard normal value, were there one split alone."""
    near: tuple[int, int]
    """The first and the last split that are hardly worse."""


class _Series:
    """Values, what orders those that are equal, and what the statistic is worth among them."""

    def __init__(self, values: Sequence[float], ties: Sequence[float], worth: float | None = None) -> None:
        self.values, self.ties = values, ties
        self.worth = _worth(self.scores(0, len(values))) if worth is None else worth

    def scores(self, start: int, end: int) -> list[float]:
        """The normal scores of the values of a stretch, by their ranks in it."""
        values, ties = self.values, self.ties
        order = sorted(range(start, end), key=lambda i: (values[i], ties[i]))
        scored = [0.0] * (end - start)
        for score, i in zip(_scores(end - start), order, strict=True):
            scored[i - start] = score
        return scored

    def peak(self, start: int, end: int) -> _Peak:
        """The best split of a stretch of at least twice `min_values_beside_step` values."""
        n = end - start
        sums = list(accumulate(self.scores(start, end)))
        splits = zip(_weights(n), _splits(n), strict=True)
        explained = [weight * sums[k - 1] * sums[k - 1] for weight, k in splits]
        best = max(explained)
        statistic = self.worth * _deviate(best, n)
        floor = statistic * statistic - _LOCATION
        near = [at for at, share in enumerate(explained) if (self.worth * _deviate(share, n)) ** 2 >= floor]
        first = start + HistoryLimits.min_values_beside_step
        return _Peak(first + explained.index(best), statistic, (first + near[0], first + near[-1]))


def _worth(scores: Sequence[float]) -> float:
    """What a statistic is worth where each value resembles the one before: 1 where it does not.

    How values differ from the next and from the one after tells, and hardly minds steps.
    """
    n = len(scores)
    if n < HistoryLimits.min_values_for_autocorrelation:
        likeness = _around_levels(scores)
    else:
        next_one = math.fsum((b - a) ** 2 for a, b in pairwise(scores)) / (n - 1)
        one_after = math.fsum((b - a) ** 2 for a, b in zip(scores, scores[2:], strict=False)) / (n - 2)
        likeness = one_after / next_one - 1.0 if next_one else 0.0
    likeness = min(likeness, 0.9)
    if likeness <= HistoryLimits.autocorrelation_errors / math.sqrt(n):
        return 1.0
    return math.sqrt((1.0 - likeness) / (1.0 + likeness))


def _around_levels(scores: Sequence[float]) -> float:
    """How much each of few values resembles the one before, around the levels on both sides of their best
    split.

    Differences alone tell too little of so few. What levels take along of the likeness is given back.
    """
    n = len(scores)
    at = max(_splits(n), key=lambda k: math.fsum(scores[:k]) ** 2 / k + math.fsum(scores[k:]) ** 2 / (n - k))
    left, right = fmean(scores[:at]), fmean(scores[at:])
    rest = [score - (left if i < at else right) for i, score in enumerate(scores)]
    square = math.fsum(value * value for value in rest)
    found = math.fsum(a * b for a, b in pairwise(rest)) / square if square else 0.0
    return (found * n + _TAKEN) / (n - 2 * _TAKEN)


def _splits(n: int) -> range:
    """Where n values may be split."""
    return range(HistoryLimits.min_values_beside_step, n - HistoryLimits.min_values_beside_step + 1)


@lru_cache(maxsize=64)
def _scores(n: int) -> list[float]:
    return [_NORMAL.inv_cdf((rank + 0.5) / n) for rank in range(n)]


@lru_cache(maxsize=64)
def _weights(n: int) -> list[float]:
    """By which the square of the sum of the first k scores is multiplied for the share of variance a split
    explains.
    """
    variance = math.fsum(score * score for score in _scores(n)) / n
    return [1.0 / (variance * k * (n - k)) for k in _splits(n)]


def _deviate(explained: float, n: int) -> float:
    """A share of variance as a standard normal value; by Wallace's approximation to Student's t."""
    freedom = n - 2
    return (
        (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(-freedom * math.log(max(1.0 - explained, 1e-300)))
    )


@lru_cache(maxsize=1024)
def chance_of(statistic: float, n: int) -> float:
    """How likely n values in random order reach this statistic at any split.

    The tail of the largest of neighbouring normal values in discrete time, by Siegmund's approximation.
    """
    if statistic < 1.0:
        return 1.0
    first, points, total = HistoryLimits.min_values_beside_step, 48, 0.0
    edge = math.log((n - first) / first)
    for number in range(points):
        share = 1.0 / (1.0 + math.exp(-edge * (2 * number + 1 - points) / points))
        total += math.exp(-0.583 * statistic / math.sqrt(n * share * (1.0 - share)))
    few = 1.0 + 130.0 / (n * n)  # orders of few values are coarse; this covers what simulations show
    return min(1.0, few * statistic * _NORMAL.pdf(statistic) * total * 2 * edge / points)


@lru_cache(maxsize=1024)
def _threshold(n: int, chance: float) -> float:
    """The statistic that n values in random order reach with this chance."""
    low, high = 1.0, 40.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if chance_of(middle, n) > chance else (low, middle)
    return high


# --- the search


def _search(series: _Series, level: float) -> list[int]:
    """Splits that stand out in a stretch or in windows of it, in no order."""
    found: list[int] = []
    stretches = [(0, len(series.values))]
    while stretches:
        start, end = stretches.pop()
        at = _best_split(series, start, end, level * (end - start) / len(series.values))
        if at is not None:
            found.append(at)
            stretches += [(start, at), (at, end)]
    return found


def _best_split(series: _Series, start: int, end: int, level: float) -> int | None:
    if end - start < HistoryLimits.min_values_for_step:
        return None
    peak = series.peak(start, end)
    if peak.statistic > _threshold(end - start, level * HistoryLimits.false_alarm_share_of_whole):
        return peak.at
    windows = (HistoryLimits.shortest_window << power for power in range(32))
    lengths = [length for length in windows if length < end - start]
    best, most = None, 0.0
    for length in lengths:
        starts = [*range(start, end - length, length // 2), end - length]
        needed = _threshold(
            length, level * (1.0 - HistoryLimits.false_alarm_share_of_whole) / len(lengths) / len(starts)
        )
        if needed > math.sqrt(length):  # no order of so few values gets there
            continue
        for first in starts:
            peak = series.peak(first, first + length)
            if peak.statistic - needed > most:
                best, most = peak.at, peak.statistic - needed
    return best


# --- what is taken back


def _without_drifts(fit: _Fit, splits: Sequence[int]) -> list[int]:
    """The splits, less those that a line through a stretch makes needless; where most is saved goes first."""
    kept = list(splits)
    while kept:
        bounds = [0, *kept, fit.size]
        left = [0.0, *accumulate(fit.cost(low, high) for low, high in pairwise(bounds))]
        stretches = [(i, j) for i in range(len(kept)) for j in range(i + 2, len(bounds))]
        saved = [
            left[j] - left[i] + fit.steps_price(j - i - 1) - fit.cost(bounds[i], bounds[j])
            for i, j in stretches
        ]
        if max(saved) < 0:
            break
        i, j = stretches[saved.index(max(saved))]
        del kept[i : j - 1]
    return kept


class _Fit:
    """How well a level or a line fits a stretch, outliers pulled in; costs in units of the noise's
    variance.
    """

    def __init__(self, values: Sequence[float], splits: Sequence[int]) -> None:
        self.size = len(values)
        self._price = math.log(self.size)  # of a number more, as the Bayesian information criterion has it
        levels: list[float] = []
        for low, high in pairwise([0, *splits, self.size]):
            levels += [median(values[low:high])] * (high - low)
        rest = [value - level for value, level in zip(values, levels, strict=True)]
        limit = HistoryLimits.outlier_clip * 1.4826 * median(map(abs, rest)) or math.inf
        rest = [max(-limit, min(limit, value)) for value in rest]
        self._variance = math.fsum(value * value for value in rest) / self.size or 1e-300
        base = median(values)
        pulled = [level - base + value for level, value in zip(levels, rest, strict=True)]
        self._y = [0.0, *accumulate(pulled)]
        self._yy = [0.0, *accumulate(value * value for value in pulled)]
        self._xy = [0.0, *accumulate(i * value for i, value in enumerate(pulled))]

    def cost(self, low: int, high: int) -> float:
        """What a level leaves over in a stretch, or a line and its slope's price, whichever is less."""
        level, line, _ = self._left(low, high)
        return min(level, line + self._price)

    def steps_price(self, count: int) -> float:
        """Of so many steps in a row: one alone is as dear as a slope, but the more there are, the more likely
        a drift.
        """
        return self._price * (3 * count - 2)

    def slope(self, low: int, high: int) -> float:
        """By how much the values of a stretch move from one to the next; 0 where a level does as well."""
        level, line, slope = self._left(low, high)
        return slope if line + self._price < level else 0.0

    def _left(self, low: int, high: int) -> tuple[float, float, float]:
        n = high - low
        y, yy, xy = (sums[high] - sums[low] for sums in (self._y, self._yy, self._xy))
        level = max(0.0, yy - y * y / n)
        along = xy - (low + (n - 1) / 2) * y
        slope = along * 12 / (n * (n * n - 1)) if n > 1 else 0.0
        line = max(0.0, level - slope * along)
        return level / self._variance, line / self._variance, slope


def _confirmed(series: _Series, splits: Sequence[int], fit: _Fit, level: float) -> list[LevelStep]:
    """The splits that stand out between their neighbours, each moved to where it does most."""
    kept, moves = list(splits), HistoryLimits.max_step_moves
    while True:
        steps: list[LevelStep] = []
        for number, at in enumerate(kept):
            low, high = steps[-1].at if steps else 0, [*kept, fit.size][number + 1]
            steps.append(_between(series, low, at, high, fit))
        weakest = max(steps, key=lambda step: step.chance, default=None)
        moved = [step.at for step in steps]
        if weakest is not None and weakest.chance > level / len(kept):
            del kept[steps.index(weakest)]
        elif moved != kept and moves:
            kept, moves = moved, moves - 1
        else:
            return steps


def _between(series: _Series, low: int, at: int, high: int, fit: _Fit) -> LevelStep:
    """The best step in a stretch that is thought to have one, the slopes on both its sides taken out."""
    before, after = fit.slope(low, at), fit.slope(at, high)
    level = [series.values[i] - (before if i < at else after) * (i - at) for i in range(low, high)]
    peak = _Series(level, series.ties[low:high], series.worth).peak(0, high - low)
    return LevelStep(
        at=low + peak.at,
        earliest=low + peak.near[0],
        latest=low + peak.near[1],
        chance=chance_of(peak.statistic, high - low),
    )


_OUTLIER_LEAST = math.log(1.2)


def outliers(logs: Sequence[float], steps: Sequence[LevelStep]) -> list[int]:
    """The numbers of logarithms that are far from the level they stand in, and by a fifth at least."""
    found = []
    for low, high in pairwise([0, *(step.at for step in steps), len(logs)]):
        level = median(logs[low:high]) if high > low else 0.0
        deviation = 1.4826 * median([abs(value - level) for value in logs[low:high]] or [0.0])
        limit = max(_OUTLIER_LEAST, HistoryLimits.outlier_deviations * deviation)
        if high - low >= HistoryLimits.min_values_for_outlier:
            found += [at for at in range(low, high) if abs(logs[at] - level) > limit]
    return found


_GAPS = {2: 3.0, 3: 2.0}
_GAP, _GAP_VALUES = 0.7, 15.0
"""Such a step is a gap of so many times what values range over on either side, by how many stand on the
shorter one, or of so many by the number of values where these are few; by simulation of noise, waves and
drifts, of which at most one in a hundred shows one."""
_EQUAL = 1e-9
"""Values that differ by less than this share of the largest are the same, reckoned in another order."""


def clear_steps(
    values: Sequence[float], least_gap: float = 0.0, side: int = HistoryLimits.min_values_beside_clear_step
) -> dict[int, float]:
    """The numbers of the values from which on the level is another one, in order, and how likely noise shows
    as much.

    Each stands out up to the next of them. Takes O(n) steps for each.
    """
    found: dict[int, float] = {}
    stretches = [(0, len(values))]
    while stretches:
        low, high = stretches.pop()
        at = _clear_split(values[low:high], least_gap, side)
        if at is not None:
            found[low + at] = _chance_of_order(high - low, at)
            stretches += [(low, low + at), (low + at, high)]
    return dict(sorted(found.items()))


def _chance_of_order(n: int, at: int) -> float:
    """How likely n values in random order have the smallest or the largest ones first, up to a split as
    unlikely as this.

    No more than that: that there is a gap as well is less likely still, by how much depends on the noise.
    """
    ways = [math.lgamma(k + 1) + math.lgamma(n - k + 1) - math.lgamma(n + 1) for k in range(n + 1)]
    side = HistoryLimits.min_values_beside_clear_step
    return math.fsum(2.0 * math.exp(way) for way in ways[side : n - side + 1] if way <= ways[at] + 1e-9)


def _clear_split(values: Sequence[float], least_gap: float, side: int) -> int | None:
    """Where the gap is largest beside what values range over on its sides, if it dwarfs that."""
    n = len(values)
    lows, highs = list(accumulate(values, min)), list(accumulate(values, max))
    lows_after = list(accumulate(reversed(values), min))[::-1]
    highs_after = list(accumulate(reversed(values), max))[::-1]
    best, most = None, 0.0
    least = max(least_gap, _EQUAL * max(map(abs, values), default=0.0))
    shortest = (
        side if n >= HistoryLimits.min_values_for_step else HistoryLimits.min_values_beside_clear_step_of_few
    )
    for at in range(shortest, n - shortest + 1):
        gap = max(lows_after[at] - highs[at - 1], lows[at - 1] - highs_after[at])
        spread = max(highs[at - 1] - lows[at - 1], highs_after[at] - lows_after[at])
        needed = _GAPS.get(min(at, n - at), _GAP) * max(1.0, _GAP_VALUES / _GAP / n) * spread
        if gap > least and gap >= needed and gap - needed > most:
            best, most = at, gap - needed
    return best
