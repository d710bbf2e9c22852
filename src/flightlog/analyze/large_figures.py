"""Distributions and sums of very many values, counted where they are: the same, to the last digit, as of a
list of them.
"""

from __future__ import annotations

from typing import Any

from flightlog.analyze.distribution import QUANTILES, Distribution, distribution_of, exact_sum, place_of

_SCALE = 83
_MODEST = f"({{0}} = 0 OR abs({{0}}) BETWEEN {2.0**-30!r} AND {2.0**20!r})"
"""Numbers that are whole when multiplied by 2 to the 83rd: so many of them as memory holds add up in 127
bits."""


def exact_total(column: str, where: str) -> str:
    """A select list: how many values a column has, their exact sum in units of 2 to the -83rd, all where that
    has none.
    """
    modest = f"coalesce(bool_and({_MODEST.format(column)}) FILTER ({where}), true)"
    scaled = f"CAST(CASE WHEN {_MODEST.format(column)} THEN {column} ELSE 0 END * {2.0**_SCALE!r} AS HUGEINT)"
    return (
        f"count({column}) FILTER ({where}), sum({scaled}) FILTER ({where}),"
        f" CASE WHEN {modest} THEN NULL ELSE list({column}) FILTER ({where}) END"
    )


def total_of(scaled: int | None, values: list[float] | None) -> float:
    """The sum that `exact_total` found, rounded once."""
    return exact_sum(values) if values is not None else int(scaled or 0) / (1 << _SCALE)


def ordered(column: str, where: str) -> str:
    """An aggregate: the values in order, for `picked`."""
    return f"list({column} ORDER BY {column}) FILTER ({where})"


def picked(values: str) -> str:
    """Of a list in order, what its distribution is made of: the ends, and two values for each quantile."""
    last = f"(len({values}) - 1)"
    places = ", ".join(
        f"{values}[CAST(floor({q!r}::DOUBLE * {last}) AS BIGINT) + 1],"
        f" {values}[least(CAST(floor({q!r}::DOUBLE * {last}) AS BIGINT) + 2, len({values}))]"
        for q in QUANTILES
    )
    return f"[{values}[1], {values}[-1], {places}]"


def spread_of(picks: list[float] | None, count: int, *total: Any) -> Distribution:
    """The distribution, of what `picked` and `exact_total` found."""
    if picks is None or not count:
        return Distribution()
    low, high, *pairs = picks
    quantiles = [
        place_of(q, count).between(*pair)
        for q, pair in zip(QUANTILES, zip(pairs[::2], pairs[1::2], strict=True), strict=True)
    ]
    return distribution_of(count, total_of(*total), low, high, quantiles)
