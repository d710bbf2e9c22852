"""A load over time, from samples."""

from __future__ import annotations

from array import array

from msgspec import Struct

from flightlog.analyze.distribution import exact_sum


class Load(Struct, frozen=True, kw_only=True):
    """A load over time: its mean, each sample weighed by the time it covers, and its highest sample."""

    mean: float | None
    max: float | None


def load_of(values: array[float], weights: array[float]) -> Load:
    """The load of samples with the seconds that each covers; the order of samples does not matter."""
    if not values:
        return Load(mean=None, max=None)
    weight = exact_sum(weights)
    if weight > 0:
        mean = exact_sum(p * w for p, w in zip(values, weights, strict=True)) / weight
    else:
        mean = exact_sum(values) / len(values)
    return Load(mean=mean, max=max(values))
