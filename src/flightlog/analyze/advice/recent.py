"""What of a history still holds: runs since the last lasting change of the level, and older ones brought up
to a slow drift.

Steps are found as in trends. What is no step may be a drift: the levels of the runs go one way by far more
pairs than chance would have it (Mann and Kendall), by a slope that is the median of all pairs' (Theil and
Sen), and a straight line tells more of them than any two levels do. A history of few runs has neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import median

from msgspec import Struct

from flightlog.analyze.change_points import change_points

AHEAD = 5
"""Of a need that grows from run to run, how many runs ahead the advice is for; never more than half as many
as were seen."""
LEAST_RUNS = 6
"""Runs that it takes to see a drift."""
_LEAST_CHANGE = 0.05
"""Changes of the level by less are not worth leaving out, or changing, history for."""
_SURE = 2.6
"""Standard deviations of chance that the order of the runs has to lie beyond: six that all go one way are
enough."""


class Recent(Struct, frozen=True, kw_only=True):
    """What to make of the values of each run."""

    runs: int
    since: int = 0
    """Runs before this one, counted from 0 and the oldest first, do not count any more."""
    change: float | None = None
    """By which share the level of the need changed then; None where nothing did."""
    drift: float | None = None
    """By which share the need moves from run to run, slowly; None where it does not."""

    def factor(self, run: int) -> float:
        """By what a value of this run is to be multiplied to be one of the runs to come."""
        if self.drift is None:
            return 1.0
        ahead = min(AHEAD, self.runs // 2) if self.drift > 0 else 0
        return float((1.0 + self.drift) ** (self.runs - 1 - run + ahead))


def what_is_recent(runs: Sequence[Sequence[float]], *, least: int) -> Recent:
    """Look at the positive values of each run, the oldest first; `least` values must remain.

    Give values over what their arguments explain, where something is: then runs with larger problems are no
    change.
    """
    there = [number for number, values in enumerate(runs) if values]
    levels = [math.log(median(runs[number])) for number in there]
    steps = change_points(levels).steps
    if steps:
        before = steps[-2].at if len(steps) > 1 else 0
        return _since(runs, there, levels, (before, steps[-1].at), least)
    each = _drift(there, levels)
    if each is None:
        return Recent(runs=len(runs))
    split = _split(levels)
    line = [level - each * number for number, level in zip(there, levels, strict=True)]
    if _off(line) > _off(levels[:split]) + _off(levels[split:]):
        return _since(runs, there, levels, (0, split), least)
    return Recent(runs=len(runs), drift=math.exp(each) - 1.0)


def _since(
    runs: Sequence[Sequence[float]],
    there: Sequence[int],
    levels: Sequence[float],
    between: tuple[int, int],
    least: int,
) -> Recent:
    """Only runs since the second of two steps, if they hold values enough and it was worth it."""
    before, at = between
    change = math.exp(median(levels[at:]) - median(levels[before:at])) - 1.0
    since = there[at]
    if abs(change) < _LEAST_CHANGE or sum(map(len, runs[since:])) < least:
        return Recent(runs=len(runs))
    return Recent(runs=len(runs), since=since, change=change)


def _drift(there: Sequence[int], levels: Sequence[float]) -> float | None:
    """By how much the logarithm moves from run to run; None where that may be chance, or is hardly
    anything.
    """
    count = len(levels)
    if count < LEAST_RUNS:
        return None
    pairs = [(there[b] - there[a], levels[b] - levels[a]) for a, b in combinations(range(count), 2)]
    score = abs(sum((rise > 0) - (rise < 0) for _, rise in pairs)) - 1
    chance = math.sqrt(count * (count - 1) * (2 * count + 5) / 18.0)
    each = median(rise / apart for apart, rise in pairs)
    moved = abs(each) * (there[-1] - there[0])
    return each if score / chance >= _SURE and moved >= math.log1p(_LEAST_CHANGE) else None


def _split(levels: Sequence[float]) -> int:
    """Where two levels tell most of the values."""
    return min(range(2, len(levels) - 1), key=lambda at: _off(levels[:at]) + _off(levels[at:]))


def _off(values: Sequence[float]) -> float:
    """How far values lie from their median, all together."""
    middle = median(values)
    return math.fsum(abs(value - middle) for value in values)
