"""Statistics in plain Python: distributions and quantiles, ranks and trends, intervals and tests, and values
that are only known to be larger than something.

The same values give the same figures, in whatever order they came.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import NormalDist, fmean, median, pstdev, stdev, variance
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
    (p50, p95, p99), mean = quantiles, mean_of(count, total, low, high)
    return Distribution(count=count, total=total, mean=mean, min=low, p50=p50, p95=p95, p99=p99, max=high)


def mean_of(count: int, total: float, low: float, high: float) -> float:
    """The mean, which never leaves the values: a rounded sum over a count may fall a hair outside of equal
    ones.
    """
    return min(max(total / count, low), high)


def quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of ascending values, of which there must be one, with linear interpolation."""
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    share = position - below
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    # From the nearer end, so that it never leaves the two.
    return low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share)


def exact_sum(values: Iterable[float]) -> float:
    """The sum, rounded once, so that order does not matter; infinite where it leaves the range of floats."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def theil_sen(values: Sequence[float], places: Sequence[float] | None = None) -> float:
    """The median of the slopes between all pairs of values, of which there must be two at least; they are
    evenly spaced unless their places are given, which rise.
    """
    at = range(len(values)) if places is None else places
    return median((values[b] - values[a]) / (at[b] - at[a]) for b in range(1, len(values)) for a in range(b))


def rising_chance(values: Sequence[float]) -> float:
    """How often values in a random order rise as these do or more: Mann-Kendall, one-sided, corrected for
    ties.

    The normal approximation, which is close from six values on.
    """
    count = len(values)
    score = sum((values[b] > values[a]) - (values[b] < values[a]) for b in range(1, count) for a in range(b))
    ties = Counter(values).values()
    spread = count * (count - 1) * (2 * count + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)
    if spread <= 0:
        return 1.0
    z = (score - (score > 0) + (score < 0)) / math.sqrt(spread / 18)
    return 0.5 * math.erfc(z / math.sqrt(2))


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value, equal ones sharing theirs."""
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_right(ordered, value) - 1) / 2 for value in values]


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


class Observation(NamedTuple):
    """One value; where it is not exact the true one is larger. Positive and finite."""

    value: float
    exact: bool = True


def order_rank(count: int, share: float, assurance: float) -> int | None:
    """Which of `count` ascending values, from 1, is the bound; None where there are too few."""
    if (1.0 - share**count) < assurance:
        return None
    # The rank r is enough when at least r-1 values lie below the true quantile with the assurance: P(Bin <=
    # r-1).
    total, term = 0.0, count * math.log1p(-share)  # P(Bin(count, share) = 0), as a logarithm
    odds = math.log(share) - math.log1p(-share)
    for rank in range(1, count + 1):
        total += math.exp(term)
        if total >= assurance:
            return rank
        term += math.log(count - rank + 1) - math.log(rank) + odds
    return count


def tolerance_factor(count: float, share: float, assurance: float) -> float:
    """How many standard deviations above the mean of `count` normal values the bound lies; for 2 at least.

    Natrella's closed form, which is good to a few hundredths of the exact one from five values on.
    """
    z_share, z_sure = _NORMAL.inv_cdf(share), _NORMAL.inv_cdf(assurance)
    a = max(0.05, 1.0 - z_sure**2 / (2.0 * (max(count, 2.0) - 1.0)))
    b = z_share**2 - z_sure**2 / max(count, 2.0)
    return (z_share + math.sqrt(max(0.0, z_share**2 - a * b))) / a


def censored_quantile(values: Sequence[Observation], share: float) -> float | None:
    """The smallest exact value that at least this share lies at or below: the Kaplan-Meier estimate.

    None where more of the largest values than that are known only in part.
    """
    ordered = sorted(values, key=lambda one: (one.value, not one.exact))
    surviving, left = 1.0, len(ordered)
    wanted = 1.0 - share + 1e-12
    for value, exact in ordered:
        if exact:
            surviving *= 1.0 - 1.0 / left
            if surviving <= wanted:
                return value
        left -= 1
    return None


def fit_lognormal(values: Sequence[Observation]) -> tuple[float, float]:
    """Mean and standard deviation of the logarithms; values known in part count as what lies beyond them.

    Two exact ones at least.
    """
    exact = [math.log(one.value) for one in values if one.exact]
    limits = [math.log(one.value) for one in values if not one.exact]
    mean, spread = fmean(exact), stdev(exact)
    if not limits or spread == 0.0:
        return mean, spread
    for _ in range(60):
        guesses = [beyond(limit, mean, spread) for limit in limits]
        means = [*exact, *(first for first, _ in guesses)]
        new_mean = fmean(means)
        new_spread = math.sqrt(pstdev(means) ** 2 + math.fsum(rest for _, rest in guesses) / len(means))
        moved = abs(new_mean - mean) + abs(new_spread - spread)
        mean, spread = new_mean, new_spread
        if moved < 1e-6:
            break
    return mean, spread * math.sqrt(len(values) / (len(values) - 1))


def beyond(limit: float, mean: float, spread: float) -> tuple[float, float]:
    """Mean and variance of a normal value that is known to lie above a limit."""
    z = (limit - mean) / spread
    tail = 1.0 - _NORMAL.cdf(z)
    if tail < 1e-9:  # far out, the mean excess of a normal tail is spread / z
        return limit + spread / max(z, 1.0), (spread / max(z, 1.0)) ** 2
    ratio = _NORMAL.pdf(z) / tail
    return mean + spread * ratio, spread**2 * max(0.0, 1.0 + z * ratio - ratio * ratio)


def effective_count(groups: Sequence[Sequence[float]]) -> float:
    """What values in groups are worth as independent ones: fewer where those of a group resemble each other.

    By the share of the variance that lies between groups, where that is more than chance; the number of
    values where it is not. Give logarithms where ratios count.
    """
    groups = [group for group in groups if group]
    count, many = sum(map(len, groups)), len(groups)
    if many < 2 or count <= many:
        return float(count)
    mean = math.fsum(math.fsum(group) for group in groups) / count
    means = [fmean(group) for group in groups]
    between = math.fsum(len(g) * (m - mean) ** 2 for g, m in zip(groups, means, strict=True)) / (many - 1)
    within = math.fsum((x - m) ** 2 for g, m in zip(groups, means, strict=True) for x in g) / (count - many)
    if within <= 0.0:
        return float(count) if between <= 0.0 else float(many)
    size = (count - math.fsum(len(g) ** 2 for g in groups) / count) / (many - 1)
    chance = 1.0 + 3.0 * math.sqrt(2.0 / (many - 1))
    if between / within <= chance or size <= 1.0:
        return float(count)
    alike = (between - within) / (between + (size - 1.0) * within)
    return max(float(many), count / (1.0 + (size - 1.0) * alike))
