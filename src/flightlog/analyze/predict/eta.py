"""How long tasks take together: the rest of a run, from how long tasks of the same names took (those that
ended, and those that still run, which last longer than they have so far), and a plan, by a list schedule of
known or predicted durations. Arithmetic alone.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from heapq import heapify, heappop, heappush, heapreplace
from itertools import accumulate
from random import Random
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from flightlog.analyze.limits import PredictLimits
from flightlog.analyze.predict.baseline import Z90, Estimate
from flightlog.core.stats import quantile

if TYPE_CHECKING:
    from flightlog.core.stats import Distribution


_QUANTILES = 20


class ScheduleSpread(Struct, frozen=True, kw_only=True):
    """Seconds: a median, and the interval that holds 90 %."""

    expected: float
    low: float
    high: float


class Eta(ScheduleSpread, frozen=True, kw_only=True):
    """Seconds until all that was submitted has ended."""

    at_least: bool = False
    """There are tasks of names that nothing is known of: they come on top."""


class KnownDurations(Struct, frozen=True, kw_only=True):
    """What tasks of one name took; in seconds, in the order of their begin; three at least."""

    seen: tuple[Lifetime, ...]
    whole: bool = True
    """Whether these are all that ended, and not the newest of them alone."""
    spread: tuple[float, ...] = ()
    """As many durations as stand for all of the run, where there were more."""
    scaled: float = PredictLimits.pace_deviation


def from_durations(
    seen: Iterable[tuple[float, float]], *, whole: bool = True, spread: Iterable[float] = ()
) -> KnownDurations | None:
    """What tasks of this run say: when each ended, so many seconds ago, and how long it took. None where they
    are too few.

    `whole` says whether these are all that ended; else they are the last to end.
    """
    ends = [(max(0.0, ago), max(0.0, took)) for ago, took in seen if took <= PredictLimits.max_duration_s]
    if len(ends) < PredictLimits.min_ended_tasks:
        return None
    things = sorted((Lifetime(ago + took, took, True) for ago, took in ends), reverse=True)
    usual = tuple(took for took in spread if took <= PredictLimits.max_duration_s)
    return KnownDurations(seen=tuple(things), whole=whole, spread=usual)


def of_mean(mean: float) -> KnownDurations:
    """Tasks that take so long, as far as is known."""
    one = Lifetime(math.inf, min(max(0.0, mean), PredictLimits.max_duration_s), True)
    return KnownDurations(seen=(one,) * PredictLimits.min_ended_tasks)


def from_earlier(before: Distribution) -> KnownDurations | None:
    """What earlier runs say, less surely: another day, another load. None where they say too little."""
    if before.p50 is None or before.p95 is None or before.count < PredictLimits.min_ended_tasks:
        return None
    middle, long = max(before.p50, 1e-9), max(before.p95, before.p50, 1e-9)
    if not long <= PredictLimits.max_duration_s:  # nor where it is no number
        return None
    spread = math.log(long / middle) / Z90
    took = [middle * math.exp(spread * off) for off in _deviations(_QUANTILES)]
    return KnownDurations(
        seen=tuple(Lifetime(math.inf, each, True) for each in took), scaled=PredictLimits.other_run_deviation
    )


@cache
def _deviations(count: int) -> tuple[float, ...]:
    """`count` values that represent the normal distribution, in order."""
    return tuple(NormalDist().inv_cdf((2 * rank + 1) / (2 * count)) for rank in range(count))


class _Left(Struct, frozen=True):
    """What is left of one name."""

    waiting: int
    ages: tuple[float, ...]
    recent: Ordered
    spread: Ordered | None


def remaining(
    left: Mapping[str, int],
    known: Mapping[str, KnownDurations],
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
    longest = {name: max(each.lasted for each in one.seen) for name, one in known.items()}
    # Long tasks first: an order that does not change with how many are left.
    there = [name for name, count in left.items() if count > 0 and name in known]
    names = sorted(there, key=lambda name: (-longest[name], name))
    if running <= 0 or not names:
        return None
    flying = sum(len(since.get(name, ())) for name in names)
    part = min(1.0, PredictLimits.max_running_tasks / flying) if flying else 1.0
    heard = PredictLimits.max_ended_tasks // min(PredictLimits.max_eta_names, len(names))
    told = [
        _left(left[name], known[name], since.get(name, []), part, heard)
        for name in names[: PredictLimits.max_eta_names]
    ]
    beside = 0.0
    for name in names[PredictLimits.max_eta_names :]:
        took = [each.lasted for each in known[name].seen]
        beside += part * left[name] * math.fsum(took) / len(took)
    ends = sorted(_played(told, beside, running * part, draw) for draw in range(PredictLimits.eta_draws))
    return Eta(
        expected=ends[PredictLimits.eta_draws // 2],
        low=ends[PredictLimits.eta_draws_outside],
        high=ends[-1 - PredictLimits.eta_draws_outside],
        at_least=at_least,
    )


def _left(count: int, known: KnownDurations, since: list[float], part: float, heard: int) -> _Left:
    """What is left of a name, by the last so many that were seen.

    Of very many that run, every other or tenth stands for all, and so of those that wait.
    """
    every = sorted(max(0.0, age) for age in since)[:count]
    ages = tuple(
        every[math.floor(n / part)] for n in range(math.ceil(len(every) * part)) if n / part < len(every)
    )
    things = sorted([*known.seen, *(Lifetime(age, age, False) for age in ages)], reverse=True)
    if not known.whole:
        things = _all_since(max(each.ago - each.lasted for each in known.seen), things)
    things = things[-max(heard, PredictLimits.min_ended_tasks + len(ages)) :]
    recent = of_late(things)
    spread = None
    if known.spread and len(recent) == len(things):
        step = math.ceil(len(known.spread) / heard)
        longest_first = sorted(known.spread, reverse=True)[::step]
        spread = Ordered([Lifetime(math.inf, each, True) for each in longest_first], known.scaled)
    return _Left(math.ceil((count - len(every)) * part), ages, Ordered(recent, known.scaled), spread)


def _all_since(ago: float, things: list[Lifetime]) -> list[Lifetime]:
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
    most = max(1, PredictLimits.max_queued_tasks // len(told))
    rests: list[float] = []
    queue: list[float] = []
    for place, one in enumerate(told):
        own = Random(draw * PredictLimits.max_eta_names + place)
        # Each once, in another order for each name.
        off = _deviations(PredictLimits.eta_draws)[(37 * draw + 23 * place) % PredictLimits.eta_draws]
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


_LEAST = PredictLimits.min_survival_share
_INVERSE = -math.log(_LEAST) / (1 - _LEAST)
_SQUARED = (1 / _LEAST - 1) / (1 - _LEAST) - 2 * _INVERSE + 1
WINDOWS = (8, 11, 15, 20, 27, 36, 48, 64)


class Lifetime(NamedTuple):
    """One that was seen: how long ago it began, for how long it lasted, or has so far, and whether it ended;
    in seconds.
    """

    ago: float
    lasted: float
    ended: bool


class Ordered:
    """What does not change from one `Guess` at the same things to the next, reckoned once."""

    __slots__ = ("ended", "marks", "oldest", "unsure")

    def __init__(self, things: Sequence[Lifetime], scaled: float) -> None:
        """`scaled` is by how much all of them together may be off, as a share."""
        self.marks = sorted((each.lasted, not each.ended) for each in things)
        self.ended = [value for value, goes_on in self.marks if not goes_on]
        self.oldest = max((value for value, goes_on in self.marks if goes_on), default=0.0)
        self.unsure = math.hypot(scaled, _unsure(self.ended))


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
        self._beyond = max(
            reach * (0.5 + math.sqrt(few)), max(PredictLimits.min_excess_share, few) * self._longest
        )
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
        share, beyond = _LEAST + (1 - _LEAST) * dice.random(), dice.expovariate(1.0)
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
    """The relative standard error of the mean, larger for few values."""
    mean = math.fsum(ended) / len(ended) if ended else 0.0
    if mean <= 0:
        return 0.0
    off = math.sqrt(math.fsum((value - mean) ** 2 for value in ended)) / mean / len(ended)
    return min(1.0, off * (1 + 15 / len(ended)))


def of_late(things: Sequence[Lifetime]) -> Sequence[Lifetime]:
    """Those that began last alone, where they clearly last longer or shorter than those before; else all.

    The ends of both are held against each other at each moment of their lives (the log-rank test), so that
    those that go on say what they can: ten that have not ended by the time all others had are of another
    kind.
    """
    every = [(each.lasted, int(each.ended)) for each in things]
    most, kept = PredictLimits.changed_deviations, things
    for size in WINDOWS:
        if len(every) - size < WINDOWS[0]:
            break
        differs = abs(_log_rank(every[-size:], every[:-size]))
        if differs > most:
            most, kept = differs, things[-size:]
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


ROUNDS = 20, 400
"""Tasks drawn in all rounds together, and the fewest and most rounds."""
_GRID = 40
"""So many values stand for a task's distribution."""


def simulate(
    tasks: Sequence[Estimate],
    workers: int,
    after: Sequence[Sequence[int]] = (),
    *,
    between_runs: float = 0.0,
    handover_s: float = 0.0,
) -> ScheduleSpread:
    """The time that these tasks take together, each with `handover_s` on top; the same input gives the same
    answer.

    Each is drawn many times from its own interval. What makes a whole run slow or fast is drawn once a round
    for all: without that, the errors of many tasks would cancel out as they do on no real machine.
    """
    dice = Random(0)
    curves = [_curve(each) for each in tasks]
    least, most = ROUNDS
    rounds = min(max(PredictLimits.max_drawn_tasks // max(1, len(tasks)), least), most)

    def total() -> float:
        common, drawn = dice.gauss(0.0, between_runs), []
        for mid, down, up in curves:
            z = dice.gauss(0.0, 1.0)
            drawn.append(handover_s + math.exp(min(700.0, mid + common + z * (up if z > 0 else down))))
        return makespan(drawn, workers, after)

    totals = sorted(total() for _ in range(rounds))
    return ScheduleSpread(
        expected=quantile(totals, 0.5),
        low=quantile(totals, (1 - PredictLimits.confidence) / 2),
        high=quantile(totals, (1 + PredictLimits.confidence) / 2),
    )


def mean_of(each: Estimate) -> float:
    """The mean of a task, which is more than its median where the interval reaches further up than down."""
    mid, down, up = _curve(each)
    return fmean(math.exp(min(700.0, mid + z * (up if z > 0 else down))) for z in _deviations(_GRID))


def _curve(each: Estimate) -> tuple[float, float, float]:
    """Middle, and how far one standard deviation goes down and up, as logarithms."""
    mid = math.log(each.expected)
    return mid, (mid - math.log(each.low)) / Z90, (math.log(each.high) - mid) / Z90


def makespan(durations: Sequence[float], workers: int, needs: Sequence[Sequence[int]] = ()) -> float:
    """Seconds from the first start to the last end of tasks that are all there from the start, on workers
    that are, too.

    `durations` are in the order of submission; the rest is as in `replay`. Fewer than 1 worker count as 1.
    """
    there = min(max(1, workers), max(1, len(durations)))
    return replay([0.0] * len(durations), durations, [0.0] * there, needs)


def replay(
    releases: Sequence[float],
    durations: Sequence[float],
    ready: Sequence[float],
    needs: Sequence[Sequence[int]] = (),
) -> float:
    """Seconds from 0 to the last end of tasks that come one after another to workers that come one after
    another.

    Task n can run from `releases[n]` on (in rising order), and from the end of the tasks in `needs[n]`, where
    that is given. What can run first goes first, to the worker that is free first; worker w takes tasks from
    `ready[w]` on, and there has to be one. What waits in a circle, as a damaged line may say, is never begun
    and counts for nothing. No tasks take no time. Takes n log(n + k) steps for n tasks on k workers.
    """
    if not ready:
        raise ValueError("a schedule needs at least 1 worker, not 0")
    free = list(ready)
    heapify(free)
    last = 0.0
    if not any(needs):
        for release, duration in zip(releases, durations, strict=True):
            first = free[0]  # no `max` here, nor below: plans are drawn hundreds of times
            end = (first if first > release else release) + duration
            heapreplace(free, end)
            last = last if last > end else end
        return last
    missing = [len(set(needed)) for needed in needs]
    followers: list[list[int]] = [[] for _ in needs]
    for number, needed in enumerate(needs):
        for other in set(needed):
            followers[other].append(number)
    able = list(releases)
    waiting = [(able[number], number) for number, count in enumerate(missing) if not count]
    heapify(waiting)
    while waiting:
        # What becomes able later does so at the end of one that starts now, or after: the order holds.
        since, number = heappop(waiting)
        first = free[0]
        end = (first if first > since else since) + durations[number]
        heapreplace(free, end)
        last = last if last > end else end
        for follower in followers[number]:
            able[follower] = max(able[follower], end)
            missing[follower] -= 1
            if not missing[follower]:
                heappush(waiting, (able[follower], follower))
    return last
