"""Statistics in plain Python: distributions and quantiles, ranks and trends, intervals and tests.

The same values give the same figures, in whatever order they came.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist, fmean, median, variance
from typing import NamedTuple

from msgspec import Struct

_NORMAL = NormalDist()
_SURE = _NORMAL.inv_cdf(0.975)


class Distribution(Struct, frozen=True, kw_only=True):
    """Count, total, mean, extremes and quantiles; all but count and total are null where there is no
    value.
    """

    count: int = 0
    total: float = 0.0
    mean: float | None = None
    min: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


QUANTILES = (0.50, 0.95, 0.99)


def distribution(values: Iterable[float]) -> Distribution:
    """The distribution of these values. Quantiles interpolate linearly, as pandas and NumPy do."""
    ordered = sorted(values)
    if not ordered:
        return Distribution()
    quantiles = [quantile(ordered, q) for q in QUANTILES]
    return distribution_of(len(ordered), exact_sum(ordered), ordered[0], ordered[-1], quantiles)


def distribution_of(
    count: int, total: float, low: float, high: float, quantiles: Sequence[float]
) -> Distribution:
    """The distribution of so many values, of which there is one at least; `quantiles` are those of
    `QUANTILES`.
    """
    p50, p95, p99 = quantiles
    return Distribution(
        count=count,
        total=total,
        mean=mean_of(count, total, low, high),
        min=low,
        p50=p50,
        p95=p95,
        p99=p99,
        max=high,
    )


def mean_of(count: int, total: float, low: float, high: float) -> float:
    """The mean, which never leaves the values: a rounded sum over a count may fall a hair outside of equal
    ones.
    """
    return min(max(total / count, low), high)


def quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of ascending values, of which there must be one, with linear interpolation."""
    place = place_of(q, len(ordered))
    return place.between(ordered[place.below], ordered[min(place.below + 1, len(ordered) - 1)])


class Place(NamedTuple):
    """Where a quantile lies among ascending values: `share` of the way from the one at `below` to the
    next.
    """

    below: int
    share: float

    def between(self, low: float, high: float) -> float:
        """The value there; reckoned from the nearer end, so that it never leaves the two."""
        if self.share < 0.5:
            return low + (high - low) * self.share
        return high - (high - low) * (1 - self.share)


def place_of(q: float, count: int) -> Place:
    """Where the q-quantile of so many values lies."""
    position = q * (count - 1)
    below = math.floor(position)
    return Place(below, position - below)


def exact_sum(values: Iterable[float]) -> float:
    """The sum, rounded once, so that order does not matter; infinite where it leaves the range of floats."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def theil_sen(values: Sequence[float]) -> float:
    """The median of the slopes between all pairs of evenly spaced values; there must be two at least."""
    return median((values[b] - values[a]) / (b - a) for b in range(1, len(values)) for a in range(b))


def rising_chance(values: Sequence[float]) -> float:
    """How often values in a random order rise as these do or more: Mann-Kendall, one-sided, corrected for
    ties.

    The normal approximation, which is close from six values on.
    """
    count = len(values)
    score = sum((values[b] > values[a]) - (values[b] < values[a]) for b in range(1, count) for a in range(b))
    ties: dict[float, int] = {}
    for value in values:
        ties[value] = ties.get(value, 0) + 1
    spread = count * (count - 1) * (2 * count + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties.values())
    if spread <= 0:
        return 1.0
    z = (score - (score > 0) + (score < 0)) / math.sqrt(spread / 18)
    return 0.5 * math.erfc(z / math.sqrt(2))


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value, equal ones sharing theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for i in order[start : end + 1]:
            found[i] = (start + end) / 2
        start = end + 1
    return found


def student_tail(t: float, df: float) -> float:
    """How likely Student's t with so many degrees of freedom is at least this far from 0, to about 1 %."""
    if math.isinf(t):
        return 0.0
    z = (8 * df + 1) / (8 * df + 3) * math.sqrt(df * math.log1p(t * t / df))
    return math.erfc(z / math.sqrt(2))


def student_quantile(probability: float, df: float) -> float:
    """Student's t below which this share lies; the inverse of `student_tail`."""
    z = _NORMAL.inv_cdf(probability) * (8 * df + 3) / (8 * df + 1)
    return math.copysign(math.sqrt(df * math.expm1(min(700.0, z * z / df))), z)


def stand_out(p_values: Iterable[float], rate: float) -> list[bool]:
    """Which of many p-values stand out, so that among those at most `rate` are false (Benjamini and
    Hochberg).
    """
    values = list(p_values)
    limit, count = 0.0, len(values)
    for rank, value in enumerate(sorted(values), start=1):
        if value <= rate * rank / count:
            limit = rate * rank / count
    return [value <= limit for value in values]


def mean_interval(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Between which bounds the mean moved, at 95 % confidence; of two values on each side at least."""
    moved = fmean(after) - fmean(before)
    reach = _SURE * math.sqrt(variance(before) / len(before) + variance(after) / len(after))
    return moved - reach, moved + reach


def shift_interval(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Between which bounds values shifted, at 95 % confidence: of all differences, those that ranks allow
    for.

    After Hodges and Lehmann: no outlier matters, whatever its size.
    """
    shifts = sorted(b - a for a in before for b in after)
    m, n = len(before), len(after)
    outside = m * n / 2 - _SURE * math.sqrt(m * n * (m + n + 1) / 12)
    cut = max(0, math.floor(outside))
    return shifts[cut], shifts[len(shifts) - 1 - cut]
