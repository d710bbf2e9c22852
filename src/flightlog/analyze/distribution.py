"""How values are spread: the same figures for the same values, in whatever order they came."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct


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
