"""Whether levels grow steadily: a robust slope, a rank test, and what tells a leak from warm-up, steps and
saw teeth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from msgspec import Struct

LEAST = 8
"""Levels that it takes, those of the warm-up included."""
WARM_UP = 2
"""Levels at the start that never count; of more than 20, a tenth."""
MOST = 192
"""Levels that are compared; of more, as many medians of neighbours."""
CHANCE = 0.005
"""A trend that levels in a random order show more often is none."""
STEADY = 0.4
"""Each third must rise at so much of the whole slope: steps and what levels off do not."""
DROP = 0.4
"""A fall between neighbours by so much of the whole growth is a reset: a saw tooth."""
NOISE = 3.0
"""The growth must be so many times the scatter around the line."""
FLOOR_BYTES = 1 << 20


class Growth(Struct, frozen=True, kw_only=True):
    """A steady growth; `slope` is bytes a level as they were given, `chance` the one-sided Mann-Kendall
    probability.
    """

    slope: float
    total: float
    tested: int
    chance: float


def steady_growth(levels: Sequence[float], *, floor_bytes: float = FLOOR_BYTES) -> Growth | None:
    """The growth of levels in their order, if it is steady; None for all others.

    It is if, without the warm-up, ranks rise (Mann-Kendall), each third rises at a good part of the whole
    slope (Theil-Sen), no single fall takes much of it back, the last levels lie above the first, and the
    growth is more than the scatter around the line and than `floor_bytes`.
    """
    if len(levels) < LEAST:
        return None
    settled = levels[max(WARM_UP, len(levels) // 10) :]
    part = math.ceil(len(settled) / MOST)
    values = [median(settled[n : n + part]) for n in range(0, len(settled) - part + 1, part)]
    count = len(values)
    if values[-1] <= values[0]:
        return None
    slope = theil_sen(values)
    total = slope * (count - 1)
    third = count // 3
    thirds = (values[:third], values[third : count - third], values[count - third :])
    if total < floor_bytes or total <= NOISE * _scatter(values, slope):
        return None
    if max(before - after for before, after in zip(values, values[1:], strict=False)) > DROP * total:  # noqa: RUF007
        return None
    if min(thirds[2]) <= median(thirds[0]) or median(thirds[2]) <= max(thirds[0]):
        return None
    if any(len(one) > 1 and theil_sen(one) < STEADY * slope for one in thirds):
        return None
    chance = rising_chance(values)
    if chance > CHANCE:
        return None
    return Growth(slope=slope / part, total=total, tested=count, chance=chance)


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


def _scatter(values: Sequence[float], slope: float) -> float:
    """The median distance from the line, made comparable to a standard deviation."""
    rest = [value - slope * n for n, value in enumerate(values)]
    middle = median(rest)
    return 1.4826 * median(abs(value - middle) for value in rest)
