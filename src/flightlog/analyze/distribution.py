"""How values are spread: the same figures for the same values, in whatever order they came."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct


class Distribution(Struct, frozen=True, kw_only=True):
    """Count, total, mean, extremes and quantiles; all but count and total are null where there is no value."""

    count: int = 0
    total: float = 0.0
    mean: float | None = None
    min: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


def distribution(values: Iterable[float]) -> Distribution:
    """The distribution of these values. Quantiles interpolate linearly, as pandas and NumPy do."""
    ordered = sorted(values)
    if not ordered:
        return Distribution()
    total = exact_sum(ordered)
    return Distribution(
        count=len(ordered), total=total, mean=_mean(total, ordered), min=ordered[0],
        p50=quantile(ordered, 0.50), p95=quantile(ordered, 0.95), p99=quantile(ordered, 0.99),
        max=ordered[-1],
    )  # fmt: skip


def _mean(total: float, ordered: Sequence[float]) -> float:
    # A rounded sum over a count may fall a hair outside of equal values: a mean never does.
    return min(max(total / len(ordered), ordered[0]), ordered[-1])


def quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of ascending values, of which there must be one, with linear interpolation."""
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    low, high, share = ordered[below], ordered[above], position - below
    # Reckoned from the nearer end, so that the result never leaves the two values.
    return low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share)


def exact_sum(values: Iterable[float]) -> float:
    """The sum, rounded once, so that order does not matter; infinite where it leaves the range of floats."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf
