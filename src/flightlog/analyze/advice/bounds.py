"""How much is enough for nearly all: an upper bound on a share of values, from few or many, some known only
in part.

The bound is a one-sided tolerance bound: the share of later values that it covers is at least the wanted one
in `ASSURANCE` of all histories of this length. With enough values it is one of them (Wilks: no assumption on
how they are distributed); with fewer it is that of a lognormal distribution, which widens the fewer there
are; below `LEAST` there is none. Values that are only known to be larger than something (an attempt that was
killed) keep their place as such (Kaplan and Meier); where too many of the largest are like that, the
lognormal distribution that fits them all tells what lies beyond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, median, pstdev, stdev
from typing import Literal, NamedTuple

ASSURANCE = 0.80
"""In how many histories of a length the bound covers at least the share that was asked for."""
LEAST = 5
"""Values that it takes to say anything."""
LARGEST_LOG = 700.0
"""Of what is reckoned: beyond, numbers end."""
_LEAST_SPREAD = 0.01
"""Of logarithms: nothing measured is closer together than a hundredth, whatever a few values look like."""
_STEPS = 60
_NORMAL = NormalDist()

Method = Literal["order statistic", "lognormal", "censored lognormal"]


class Seen(NamedTuple):
    """One value; where it is not exact the true one is larger. Positive and finite."""

    value: float
    exact: bool = True


class Bound(NamedTuple):
    """An upper bound, and how it came about."""

    value: float
    method: Method


def enough_for(share: float, assurance: float = ASSURANCE) -> int:
    """How many values it takes for one of them to be the bound."""
    return math.ceil(math.log(1.0 - assurance) / math.log(share))


def order_rank(count: int, share: float, assurance: float = ASSURANCE) -> int | None:
    """Which of so many ascending values, from 1, is the bound; None where there are too few."""
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


def tolerance_factor(count: float, share: float, assurance: float = ASSURANCE) -> float:
    """How many standard deviations above the mean of so many normal values the bound lies; for 2 at least.

    Natrella's closed form, which is good to a few hundredths of the exact one from five values on.
    """
    z_share, z_sure = _NORMAL.inv_cdf(share), _NORMAL.inv_cdf(assurance)
    a = max(0.05, 1.0 - z_sure**2 / (2.0 * (max(count, 2.0) - 1.0)))
    b = z_share**2 - z_sure**2 / max(count, 2.0)
    return (z_share + math.sqrt(max(0.0, z_share**2 - a * b))) / a


def quantile_seen(values: Sequence[Seen], share: float) -> float | None:
    """The smallest exact value that at least this share lies at or below, as Kaplan and Meier reckon.

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


def upper_bound(
    values: Sequence[Seen], share: float, *, effective: float | None = None, assurance: float = ASSURANCE
) -> Bound | None:
    """The bound on this share of later values; None where fewer than `LEAST` values are exact.

    `effective` is what the values are worth where they resemble each other in groups, at most their number.
    """
    exact = [one.value for one in values if one.exact]
    if len(exact) < LEAST:
        return None
    largest, middle = max(exact), median(exact)
    telling = len(exact) + sum(
        not one.exact and one.value > middle for one in values
    )  # "more than little" is no news
    worth = min(effective or math.inf, float(telling))
    rank = order_rank(math.floor(worth), share, assurance)
    if rank is not None:
        found = quantile_seen(values, rank / math.floor(worth) - 1e-9)
        if found is not None:
            return Bound(found, "order statistic")
    mean, spread = lognormal(values)
    factor = tolerance_factor(max(worth, 2.0), share, assurance)
    value = math.exp(min(mean + factor * max(spread, _LEAST_SPREAD), LARGEST_LOG))
    unseen = max((one.value for one in values if not one.exact), default=0.0)
    if unseen >= largest:
        return Bound(max(value, unseen), "censored lognormal")
    return Bound(min(max(value, largest), largest * (1.0 + LEAST / max(worth, LEAST))), "lognormal")


def lognormal(values: Sequence[Seen]) -> tuple[float, float]:
    """Mean and standard deviation of the logarithms; values known in part count as what lies beyond them.

    Two exact ones at least.
    """
    exact = [math.log(one.value) for one in values if one.exact]
    limits = [math.log(one.value) for one in values if not one.exact]
    mean, spread = fmean(exact), stdev(exact)
    if not limits or spread == 0.0:
        return mean, spread
    for _ in range(_STEPS):
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
