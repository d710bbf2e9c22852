"""How long what is left still takes, from what tasks of the same names took: arithmetic alone, no clock and
no files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from heapq import heapify, heapreplace
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.analyze.survival import Guess, Observed, Ordered, Seen, of_late

if TYPE_CHECKING:
    from flightlog.core.stats import Distribution

ENOUGH = 3
"""Of a name of which fewer have ended nothing is said."""
LONGEST_S = 1e9
"""Thirty years: what is said to have taken longer did not, and its square may be no number."""
PACE = 0.02
"""By how much a machine's pace may differ, by how the run has gone so far."""
OTHER_DAY = 0.2
"""By how much a task of an earlier run may differ from today's."""
DRAWS = 60
"""The rest of the run is played through so often; the interval leaves out one of them at either end."""
OUT = 1
NAMES, QUEUED, FLYING, SEEN = 20, 240, 400, 500
"""So many names are guessed at anew each time, the largest; so many tasks that wait are placed one by one,
the last; so many that run stand for all of them; and so many that were seen are heard, the last of each name.
They bound the work.
"""
Z90 = 1.6449
_QUANTILES = 20


class Eta(Struct, frozen=True, kw_only=True):
    """Seconds until all that was submitted has ended: a median and an interval for 9 of 10 cases."""

    expected: float
    low: float
    high: float
    at_least: bool = False
    """There are tasks of names that nothing is known of: they come on top."""


class Known(Struct, frozen=True, kw_only=True):
    """What tasks of one name took; in seconds, in the order of their begin; three at least."""

    seen: tuple[Seen, ...]
    whole: bool = True
    """Whether these are all that ended, and not the newest of them alone."""
    spread: tuple[float, ...] = ()
    """As many durations as stand for all of the run, where there were more."""
    scaled: float = PACE


def from_durations(
    seen: Iterable[tuple[float, float]], *, whole: bool = True, spread: Iterable[float] = ()
) -> Known | None:
    """What tasks of this run say: when each ended, so many seconds ago, and how long it took. None where they
    are too few.

    `whole` says whether these are all that ended; else they are the last to end.
    """
    ends = [(max(0.0, ago), max(0.0, took)) for ago, took in seen if took <= LONGEST_S]
    if len(ends) < ENOUGH:
        return None
    things = sorted((Seen(ago + took, took, True) for ago, took in ends), reverse=True)
    usual = tuple(took for took in spread if took <= LONGEST_S)
    return Known(seen=tuple(things), whole=whole, spread=usual)


def of_mean(mean: float) -> Known:
    """Tasks that take so long, as far as is known."""
    return Known(seen=(Seen(math.inf, min(max(0.0, mean), LONGEST_S), True),) * ENOUGH)


def from_earlier(before: Distribution) -> Known | None:
    """What earlier runs say, less surely: another day, another load. None where they say too little."""
    if before.p50 is None or before.p95 is None or before.count < ENOUGH:
        return None
    middle, long = max(before.p50, 1e-9), max(before.p95, before.p50, 1e-9)
    if not long <= LONGEST_S:  # nor where it is no number
        return None
    spread = math.log(long / middle) / Z90
    took = [middle * math.exp(spread * off) for off in _deviations(_QUANTILES)]
    return Known(seen=tuple(Seen(math.inf, each, True) for each in took), scaled=OTHER_DAY)


@cache
def _deviations(count: int) -> tuple[float, ...]:
    """So many that stand for all of the normal distribution, in order."""
    from statistics import NormalDist

    return tuple(NormalDist().inv_cdf((2 * rank + 1) / (2 * count)) for rank in range(count))


class _Left(Struct, frozen=True):
    """What is left of one name."""

    waiting: int
    ages: tuple[float, ...]
    recent: Ordered
    spread: Ordered | None


def remaining(
    left: Mapping[str, int],
    known: Mapping[str, Known],
    since: Mapping[str, list[float]],
    running: float,
    *,
    at_least: bool = False,
) -> Eta | None:
    """The time until all of these have ended, where so many run at once, on average of late.

    `left` counts the tasks of each name that have not ended, those that run included; `since` holds for how
    long each of these has run. Names that are not `known` are left out. None where nothing runs, or nothing
    is known of what is left. The same arguments give the same answer; more tasks never end sooner.
    """
    names = sorted((name for name, count in left.items() if count > 0 and name in known), key=_by(known))
    if running <= 0 or not names:
        return None
    flying = sum(len(since.get(name, ())) for name in names)
    part = min(1.0, FLYING / flying) if flying else 1.0
    heard = SEEN // min(NAMES, len(names))
    told = [_left(left[name], known[name], since.get(name, []), part, heard) for name in names[:NAMES]]
    beside = 0.0
    for name in names[NAMES:]:
        took = [each.lasted for each in known[name].seen]
        beside += part * left[name] * math.fsum(took) / len(took)
    ends = sorted(_played(told, beside, running * part, draw) for draw in range(DRAWS))
    return Eta(expected=ends[DRAWS // 2], low=ends[OUT], high=ends[-1 - OUT], at_least=at_least)


def _by(known: Mapping[str, Known]) -> Callable[[str], tuple[float, str]]:
    """Names of long tasks first: an order that does not change with how many are left."""
    return lambda name: (-max(each.lasted for each in known[name].seen), name)


def _left(count: int, known: Known, since: list[float], part: float, heard: int) -> _Left:
    """What is left of a name, by the last so many that were seen.

    Of very many that run, every other or tenth stands for all, and so of those that wait.
    """
    every = sorted(max(0.0, age) for age in since)[:count]
    ages = tuple(
        every[math.floor(n / part)] for n in range(math.ceil(len(every) * part)) if n / part < len(every)
    )
    things = sorted([*known.seen, *(Seen(age, age, False) for age in ages)], reverse=True)
    if not known.whole:
        things = _all_since(max(each.ago - each.lasted for each in known.seen), things)
    things = things[-max(heard, ENOUGH + len(ages)) :]
    recent = of_late(Observed(tuple(things), known.scaled))
    spread = None
    if known.spread and len(recent.things) == len(things):
        step = math.ceil(len(known.spread) / heard)
        longest_first = sorted(known.spread, reverse=True)[::step]
        spread = Ordered(Observed(tuple(Seen(math.inf, each, True) for each in longest_first), known.scaled))
    return _Left(math.ceil((count - len(every)) * part), ages, Ordered(recent), spread)


def _all_since(ago: float, things: list[Seen]) -> list[Seen]:
    """All that began since the first end that is known: long ones and short ones alike, as all of them are
    known.

    Among those that began before, the short ones are forgotten. Where hardly any began since, all are taken.
    """
    since = [each for each in things if each.ago <= ago]
    return since if 2 * len(since) >= len(things) else things


def _played(told: list[_Left], beside: float, running: float, draw: int) -> float:
    """How long it takes, if everything goes as one draw of the dice has it."""
    dice = Random(draw)
    flying = sum(len(one.ages) for one in told)
    at_once = running + dice.random() * max(0.0, flying - running)
    slots = max(1, math.floor(at_once) + (dice.random() < at_once % 1))
    most = max(1, QUEUED // len(told))
    rests: list[float] = []
    queue: list[float] = []
    for place, one in enumerate(told):
        own = Random(draw * NAMES + place)
        off = _deviations(DRAWS)[
            (37 * draw + 23 * place) % DRAWS
        ]  # each once, in another order for each name
        guess = Guess(one.spread if one.spread is not None and draw % 2 else one.recent, own, off)
        rests += [guess.rest(age, own) for age in one.ages]
        beside += guess.together(max(0, one.waiting - most), own.gauss(0.0, 1.0))
        queue += [guess.lasts(own) for _ in range(min(one.waiting, most))]
    rests.sort(reverse=True)
    free = _poured(sorted([*rests[:slots], *[0.0] * (slots - len(rests))]), beside)
    heapify(free)
    for each in [*rests[slots:], *queue]:
        heapreplace(free, free[0] + each)
    return max(free) / min(1.0, running)


def _poured(free: list[float], work: float) -> list[float]:
    """When each is free after work that can be cut at will went to whoever was free first; in order of
    size.
    """
    reached, taken = 0.0, 0.0
    for count, until in enumerate(free, 1):
        taken += until
        reached = (work + taken) / count
        if count == len(free) or reached <= free[count]:
            return [reached] * count + free[count:]
    return free
