"""Steps that stand out by their size: a gap between all values before and all after that dwarfs what either
side does.

Four values on each side are enough to see one, for which their order alone would say little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

CLEAR_SIDE = 4
"""Values on either side of a step that stands out by its size, at least."""
_GAP, _GAP_VALUES = 0.7, 15.0
"""Such a step is a gap of so many times what values range over on either side, or of so many by the number of
values where these are few; by simulation of noise, waves and drifts, of which at most one in a hundred shows
one."""
_EQUAL = 1e-9
"""Values that differ by less than this share of the largest are the same, reckoned in another order."""


def clear_steps(values: Sequence[float]) -> dict[int, float]:
    """The numbers of the values from which on the level is another one, in order, and how likely noise shows
    as much.

    Each stands out up to the next of them. Takes O(n) steps for each.
    """
    found: dict[int, float] = {}
    stretches = [(0, len(values))]
    while stretches:
        low, high = stretches.pop()
        at = _clear_split(values[low:high])
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
    sides = range(CLEAR_SIDE, n - CLEAR_SIDE + 1)
    return math.fsum(2.0 * math.exp(ways[k]) for k in sides if ways[k] <= ways[at] + 1e-9)


def _clear_split(values: Sequence[float]) -> int | None:
    """Where the gap is largest beside what values range over on its sides, if it dwarfs that."""
    n = len(values)
    needed = max(_GAP, _GAP_VALUES / n) if n else 0.0
    lows, highs = list(accumulate(values, min)), list(accumulate(values, max))
    lows_after = list(accumulate(reversed(values), min))[::-1]
    highs_after = list(accumulate(reversed(values), max))[::-1]
    best, most = None, 0.0
    least = _EQUAL * max(map(abs, values), default=0.0)
    for at in range(CLEAR_SIDE, n - CLEAR_SIDE + 1):
        gap = max(lows_after[at] - highs[at - 1], lows[at - 1] - highs_after[at])
        spread = max(highs[at - 1] - lows[at - 1], highs_after[at] - lows_after[at])
        if gap > least and gap >= needed * spread and gap - needed * spread > most:
            best, most = at, gap - needed * spread
    return best
