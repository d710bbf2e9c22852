"""Bins that grow by a factor, for durations from microseconds to days, and which one a column's value is
in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

STEPS = (16, 8, 4, 2, 1)
"""Bins in a factor of ten, the finest first."""
_LEAST_S, _MOST_S = 1e-9, 2e9
"""Shorter and longer durations, of which the latter are noise, share the first and the last bin."""


def edges(least: float, most: float, bins: int, *, zero: bool = False) -> list[float]:
    """Ascending edges of at most so many bins that hold all values from `least`, which is above 0, to `most`.

    They are powers of ten and equal steps between them, as fine as there are bins for, so that edges of
    different ranges are of one grid. With `zero` the first bin begins at 0.
    """
    least = min(max(least, _LEAST_S), _MOST_S)
    high = min(max(most, least), _MOST_S)
    for step in STEPS:
        first = math.floor(math.log10(least) * step)
        while _edge(first, step) > least:
            first -= 1
        last = max(math.floor(math.log10(high) * step), first)
        while _edge(last, step) <= high:
            last += 1
        if last - first <= bins - zero or step == STEPS[-1]:
            break
    grown = [_edge(number, step) for number in range(first, last + 1)]
    grown[-1] = max(grown[-1], most)
    return [0.0, *grown] if zero or least == _LEAST_S else grown


def _edge(number: int, step: int) -> float:
    return float(f"{10.0 ** (number / step):.6g}")


def bin_of(column: str, found: Sequence[float]) -> str:
    """SQL: the number of the bin a column's value is in, from the edge below it on; 0 below all, the last
    above all.
    """

    def within(low: int, high: int) -> str:
        if high - low <= 1:
            return str(low)
        middle = (low + high) // 2
        return (
            f"CASE WHEN {column} < CAST({found[middle]!r} AS DOUBLE) "
            f"THEN {within(low, middle)} ELSE {within(middle, high)} END"
        )

    return within(0, len(found) - 1)
