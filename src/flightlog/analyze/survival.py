"""How long things of one kind last, from those that ended and those that go on, which last longer than they
have so far.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import NamedTuple

from msgspec import Struct

MARGIN = 0.02
"""By so much of its length the longest that was seen is thought to be passed at least, where one is longer
still."""
FEWEST = 0.05
"""What lasts beyond all that was seen goes on for its measure over a share of 1, this one at the smallest."""
_INVERSE = -math.log(FEWEST) / (1 - FEWEST)
_SQUARED = (1 / FEWEST - 1) / (1 - FEWEST) - 2 * _INVERSE + 1
WINDOWS = (8, 11, 15, 20, 27, 36, 48, 64)
CHANGED = 3.5
"""From so many deviations on, those that began last are of another kind than those before."""


class Seen(NamedTuple):
    """One that was seen: how long ago it began, for how long it lasted, or has so far, and whether it ended;
    in seconds.
    """

    ago: float
    lasted: float
    ended: bool


class Observed(Struct, frozen=True):
    """Things of one kind: all that began since some moment, in the order of their begin."""

    things: tuple[Seen, ...]
    scaled: float = 0.0
    """By how much all of them together may be off, as a share."""


class Ordered:
    """What does not change from one `Guess` at the same things to the next, reckoned once."""

    __slots__ = ("ended", "marks", "oldest", "unsure")

    def __init__(self, observed: Observed) -> None:
        self.marks = sorted((each.lasted, not each.ended) for each in observed.things)
        self.ended = [value for value, goes_on in self.marks if not goes_on]
        self.oldest = max((value for value, goes_on in self.marks if goes_on), default=0.0)
        self.unsure = math.hypot(observed.scaled, _unsure(self.ended))


class Guess:
    """A distribution that the observations may come from: one of many, drawn by `dice`, and `off` by so many
    deviations.

    Each observation counts for more or less by chance, those that go on as lasting at least so long (Kaplan
    and Meier); beside them stands one that lasted longer than all. What is beyond the longest is drawn from a
    wide tail, the wider the longer something has gone on already.
    """

    __slots__ = ("_below", "_beyond", "_late", "_longest", "_times", "deviation", "mean")

    def __init__(self, observed: Ordered, dice: Random, off: float) -> None:
        marks, ended, oldest = observed.marks, observed.ended, observed.oldest
        factor = math.exp(observed.unsure * off)
        self._longest = factor * ended[-1] if ended else oldest
        reach = factor * (ended[-1] - ended[len(ended) // 2]) if ended else oldest
        few = 4 / max(1, len(ended))
        self._beyond = max(reach * (0.5 + math.sqrt(few)), max(MARGIN, few) * self._longest)
        self._late = max(0.0, oldest - self._longest)
        weights = [dice.expovariate(1.0) for _ in marks]
        longer = dice.expovariate(1.0) * (dice.random() < 0.5)
        at_risk, surviving = math.fsum(weights) + longer, 1.0
        self._times: list[float] = []
        masses: list[float] = []
        for (value, goes_on), weight in zip(marks, weights, strict=True):
            if not goes_on:
                mass = surviving * weight / max(weight, at_risk)
                surviving -= mass
                self._times.append(factor * value)
                masses.append(mass)
            at_risk -= weight
        self._below = list(accumulate(masses))
        first = math.fsum(time * mass for time, mass in zip(self._times, masses, strict=True))
        second = math.fsum(time * time * mass for time, mass in zip(self._times, masses, strict=True))
        beyond = self._longest + self._beyond + self._late * (_INVERSE - 1)
        self.mean = first + surviving * beyond
        second += surviving * (beyond**2 + self._beyond**2 + self._late**2 * (_SQUARED - (_INVERSE - 1) ** 2))
        self.deviation = math.sqrt(max(0.0, second - self.mean**2))

    def lasts(self, dice: Random) -> float:
        """How long one lasts that has not begun."""
        return self._drawn(dice.random(), dice)

    def rest(self, age: float, dice: Random) -> float:
        """How long one still lasts that has gone on for so long."""
        passed = bisect_right(self._times, age)
        below = self._below[passed - 1] if passed else 0.0
        return max(0.0, self._drawn(below + (1.0 - below) * dice.random(), dice, age) - age)

    def _drawn(self, chance: float, dice: Random, age: float = 0.0) -> float:
        place = bisect_left(self._below, chance)
        # Drawn always, so that the next draws stay what they are.
        share, beyond = FEWEST + (1 - FEWEST) * dice.random(), dice.expovariate(1.0)
        if place < len(self._times) and self._times[place] > age:
            return self._times[place]
        late = max(0.0, age - self._longest) if age else self._late
        return max(self._longest, age) + beyond * self._beyond + late * (1 / share - 1)

    def together(self, count: int, deviations: float) -> float:
        """How long so many last together, so many deviations from what they do on average; never less for
        more of them.
        """
        return max(0.0, count * self.mean + deviations * self.deviation * math.sqrt(count))


def _unsure(ended: Sequence[float]) -> float:
    """By what share the mean of so many may be off."""
    mean = math.fsum(ended) / len(ended) if ended else 0.0
    if mean <= 0:
        return 0.0
    off = math.sqrt(math.fsum((value - mean) ** 2 for value in ended)) / mean / len(ended)
    return min(1.0, off * (1 + 15 / len(ended)))


def of_late(observed: Observed) -> Observed:
    """Those that began last alone, where they clearly last longer or shorter than those before; else all.

    The ends of both are held against each other at each moment of their lives (the log-rank test), so that
    those that go on say what they can: ten that have not ended by the time all others had are of another
    kind.
    """
    every = [(each.lasted, int(each.ended)) for each in observed.things]
    most, kept = CHANGED, observed
    for size in WINDOWS:
        if len(every) - size < WINDOWS[0]:
            break
        differs = abs(_log_rank(every[-size:], every[:-size]))
        if differs > most:
            most, kept = differs, Observed(observed.things[-size:], observed.scaled)
    return kept


def _log_rank(late: Sequence[tuple[float, int]], early: Sequence[tuple[float, int]]) -> float:
    """By how many deviations the first end sooner, or later, than if they were like the second."""
    marks = sorted([(value, -over, 1) for value, over in late] + [(value, -over, 0) for value, over in early])
    ours, at_risk = len(late), len(marks)
    found = expected = variance = 0.0
    place = 0
    while place < len(marks):
        value, ends, our_ends, our_all, size = marks[place][0], 0, 0, 0, 0
        while place < len(marks) and marks[place][0] == value:
            ends -= marks[place][1]
            our_ends -= marks[place][1] * marks[place][2]
            our_all += marks[place][2]
            size += 1
            place += 1
        if ends and at_risk > 1:
            share = ours / at_risk
            found += our_ends
            expected += ends * share
            variance += ends * share * (1 - share) * (at_risk - ends) / (at_risk - 1)
        ours -= our_all
        at_risk -= size
    return (found - expected) / math.sqrt(variance) if variance > 0 else 0.0
