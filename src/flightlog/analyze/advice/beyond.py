"""What killed tasks would have needed, where needs depend on arguments: fitted together with those that
survived.

A fit to survivors alone is too low: of large tasks, only those that happened to need little are among them.
So killed ones are put in as what lies beyond their limit by the fit and its scatter, and the fit is made
again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, pstdev

from msgspec.structs import replace

from flightlog.analyze.advice.bounds import LARGEST_LOG, beyond
from flightlog.analyze.advice.growth import Growth, find_growth
from flightlog.analyze.advice.use import Use

_ROUNDS = 6
_LEAST_SPREAD = 0.01
_NORMAL = NormalDist()


def fit_with_killed(known: Sequence[Use], killed: Sequence[Use], first: Growth) -> tuple[Growth, list[float]]:
    """The dependence that killed tasks agree with, and what each of them is taken to have needed, in their
    order.

    `known` are exact. What killed ones needed is spread over all that lies beyond their limits, evenly by
    chance and the same for the same tasks. Ones whose arguments say nothing get their limit.
    """
    growth = first
    for _ in range(_ROUNDS):
        spread = _spread(known, growth)
        guesses = [_middle(use, growth, spread) for use in killed]
        again = find_growth(
            [*(use.value for use in known), *guesses],
            [*(use.args for use in known), *(use.args for use in killed)],
        )
        if again is None or again.argument != growth.argument:
            break
        growth = replace(again, low=first.low, high=first.high)  # the range in which something completed
    spread = _spread(known, growth)
    order = sorted(range(len(killed)), key=lambda n: (growth.at(killed[n].args) or 0.0, killed[n].value))
    needs = [use.value for use in killed]
    for place, n in enumerate(order):
        needs[n] = _drawn(killed[n], growth, spread, (place * 0.6180339887 + 0.5) % 1.0)
    return growth, needs


def _spread(known: Sequence[Use], growth: Growth) -> float:
    off = [math.log(use.value / middle) for use in known if (middle := growth.at(use.args)) is not None]
    return max(_LEAST_SPREAD, pstdev(off)) if len(off) > 1 else _LEAST_SPREAD


def _middle(use: Use, growth: Growth, spread: float) -> float:
    expected = growth.at(use.args)
    if expected is None:
        return use.value
    return math.exp(min(beyond(math.log(use.value), math.log(expected), spread)[0], LARGEST_LOG))


def _drawn(use: Use, growth: Growth, spread: float, share: float) -> float:
    """The value at this share of all that lies beyond the limit."""
    expected = growth.at(use.args)
    if expected is None:
        return use.value
    below = _NORMAL.cdf((math.log(use.value) - math.log(expected)) / spread)
    at = below + share * (1.0 - below)
    if not 0.0 < at < 1.0 - 1e-9:
        return _middle(use, growth, spread)
    return max(use.value, math.exp(min(math.log(expected) + spread * _NORMAL.inv_cdf(at), LARGEST_LOG)))
