"""How much of one resource a task needs: the bound, its evidence, and the arguments that it depends on.

The bound is a one-sided tolerance bound: the share of later values that it covers is at least the wanted one
in `ASSURANCE` of all histories of this length. With enough values it is one of them (Wilks: no assumption on
their distribution); with fewer it is that of a lognormal distribution, which widens the fewer there are;
below `LEAST` there is none. Values that are only known to be larger than something (an attempt that was
killed) are censored (Kaplan and Meier); where too many of the largest are, the lognormal distribution that
fits them all gives the bound.

A dependence on an argument is accepted only where it explains values that it was not fitted to: it is fitted
to every other value and has to come clearly closer to the rest than their median does, and the ranks must
correlate. So an argument that varies along by chance, such as a seed, is not taken for a cause.

Where needs depend on arguments, tasks that were killed at a limit are fitted together with those that
survived: a fit to survivors alone is too low, since of large tasks only those that needed little are among
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import NormalDist, StatisticsError, correlation, fmean, median, pstdev, stdev
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from flightlog.analyze.advice.base import round_cpus
from flightlog.analyze.advice.observations import ObservedUse, Recent, Resource, what_is_recent
from flightlog.core.stats import ranks

_CLOSE = 1.1
"""A value that lies between two that are no further apart is known well enough: the larger one counts."""
_FARTHEST = 100.0
"""No bound is larger than this multiple of what was seen."""
_ROWS = 5


class AtArgument(Struct, frozen=True, kw_only=True):
    """What it takes for one value of the argument that a need depends on."""

    argument: str
    value: float | str
    bound: float


class Need(Struct, frozen=True, kw_only=True):
    """What a task needs of one resource, in CPUs, bytes or seconds; None is unknown."""

    resource: Resource
    share: float
    """Of later attempts that `bound` is to be enough for."""
    bound: float | None
    method: str | None
    """`order statistic`, `lognormal` or `censored lognormal`."""
    problem: str | None
    """Why there is no bound."""
    tasks: int
    """That say anything, in the runs that count."""
    runs: int
    worth: float | None
    """How many independent ones they are worth: fewer where those of a run resemble each other."""
    at_least: int
    """Of the tasks, those that say no more than "at least"."""
    killed: int
    """Of the tasks, those of which an attempt was ended at a limit."""
    killed_at: float | None
    """The largest limit that ended one; `bound` is not below it."""
    typical: float | None
    """The median of use."""
    usual_most: float | None
    """What the wanted share of the tasks used at most: the bound without any allowance."""
    largest: float | None
    growth: Growth | None = None
    """What it depends on, where it depends on an argument."""
    table: list[AtArgument] = []
    """Of a need that depends on an argument, what to ask for, from the smallest to the largest seen."""
    since: str | None = None
    """The run from which on runs count, where the level changed then; None where all do."""
    change: float | None = None
    """By which share it changed."""
    drift: float | None = None
    """By which share it moves from run to run, slowly; the bound looks ahead."""


def find_need(resource: Resource, found: Sequence[ObservedUse], share: float, runs: Sequence[str]) -> Need:
    """What these tasks say together; `runs` are the ids of the runs, the oldest first. The order of tasks
    does not matter.
    """
    growth = None if resource == "cpus" else _growth(found)
    growth, killed = _with_killed(found, growth)
    settled = [killed.get(n) or _settled(one, growth) for n, one in enumerate(found)]
    recent = _recent(found, settled, growth, runs)
    number = {run_id: n for n, run_id in enumerate(runs)}
    counted = [
        (use, Observation(seen.value * recent.factor(number[use.run_id]), seen.exact))
        for use, seen in zip(found, settled, strict=True)
        if number[use.run_id] >= recent.since
    ]
    values = [seen for _, seen in counted]
    used = [seen for use, seen in zip(found, settled, strict=True) if number[use.run_id] >= recent.since]
    worth = effective_count(_by_run(counted)) if counted else None
    bound = upper_bound(values, share, effective=worth)
    most = _FARTHEST * max((use.value for use, _ in counted), default=0.0)
    limits = [use.killed_at for use, _ in counted if use.killed_at is not None]
    killed_at = max(limits, default=None)
    exact = [seen.value for seen in values if seen.exact]
    return Need(
        resource=resource,
        share=share,
        bound=None if bound is None else max(min(_whole(resource, bound, exact), most), killed_at or 0.0),
        method=None if bound is None else bound.method,
        problem=_problem(len(exact), len(values), share) if bound is None else None,
        tasks=len(values),
        runs=len({use.run_id for use, _ in counted}),
        worth=worth,
        at_least=sum(not seen.exact for seen in values),
        killed=len(limits),
        killed_at=killed_at,
        typical=quantile_seen(used, 0.5),
        usual_most=quantile_seen(used, share),
        largest=max((seen.value for seen in used if seen.exact), default=None),
        growth=growth,
        table=_table(growth, counted, share, most) if growth is not None and bound is not None else [],
        since=runs[recent.since] if recent.since else None,
        change=recent.change,
        drift=recent.drift,
    )


def _whole(resource: Resource, bound: Bound, exact: Sequence[float]) -> float:
    """The bound; of CPUs no more than the whole ones in use: few attempts on one core are no sign of a second
    one.
    """
    if resource != "cpus" or bound.method != "lognormal":
        return bound.value
    return min(bound.value, max(1.0, round_cpus(max(exact))))


def _problem(exact: int, there: int, share: float) -> str:
    if not there:
        return "nothing was measured"
    if not exact:
        return (
            f"none of {there} attempt{'s' * (there != 1)} was measured to the end: {LEAST} are needed to "
            f"say anything, {enough_for(share)} for a bound without assumptions"
        )
    more = f"{LEAST - exact} more {'is' if LEAST - exact == 1 else 'are'} needed to say anything"
    part = "" if exact == there else f", of {there} that say at least something,"
    known = (
        f"only {exact} attempt{'s' * (exact != 1)}{part} {'was' if exact == 1 else 'were'} measured to the "
        "end"
    )
    return f"{known}: {more}, {max(0, enough_for(share) - exact)} more for a bound without assumptions"


def _growth(found: Sequence[ObservedUse]) -> Growth | None:
    known = [use for use in found if use.exact or _is_close(use)]
    return find_growth([use.most or use.value for use in known], [use.args for use in known])


def _with_killed(
    found: Sequence[ObservedUse], growth: Growth | None
) -> tuple[Growth | None, dict[int, Observation]]:
    """The dependence, fitted anew with the killed tasks where there are any; and those, by their number."""
    dead = [n for n, use in enumerate(found) if use.killed]
    if growth is None or not dead:
        return growth, {}
    known = [use for use in found if use.exact]
    fitted, needs = fit_with_killed(known, [found[n] for n in dead], growth)
    told = zip(dead, needs, strict=True)
    return fitted, {n: Observation(need) for n, need in told if fitted.at(found[n].args) is not None}


def _is_close(use: ObservedUse) -> bool:
    return use.most is not None and use.most <= use.value * _CLOSE


def _settled(use: ObservedUse, growth: Growth | None) -> Observation:
    """What a task is taken to have needed: what was measured; else what its arguments say, within what is
    known.
    """
    if use.exact:
        return Observation(use.value)
    if _is_close(use):
        return Observation(use.most or use.value)
    expected = growth.at(use.args) if growth is not None else None
    if expected is not None and use.most is not None:
        return Observation(min(max(expected, use.value), use.most))
    if expected is not None and expected > use.value:
        return Observation(expected)
    return Observation(use.value, exact=False)


def _recent(
    found: Sequence[ObservedUse], settled: Sequence[Observation], growth: Growth | None, runs: Sequence[str]
) -> Recent:
    by_run: dict[str, list[float]] = {run_id: [] for run_id in runs}
    for use, seen in zip(found, settled, strict=True):
        expected = growth.at(use.args) if growth is not None else 1.0
        if seen.exact and expected is not None:
            by_run[use.run_id].append(seen.value / expected)
    return what_is_recent(list(by_run.values()), least=enough_for(0.95))


def _by_run(counted: Sequence[tuple[ObservedUse, Observation]]) -> list[list[float]]:
    groups: dict[str, list[float]] = {}
    for use, seen in counted:
        if seen.exact or use.killed:
            groups.setdefault(use.run_id, []).append(math.log(seen.value))
    return list(groups.values())


def _table(
    growth: Growth, counted: Sequence[tuple[ObservedUse, Observation]], share: float, most: float
) -> list[AtArgument]:
    """The dependence by the bound on how far values lie above it, as far as that is not above `most`."""
    ratios = [
        Observation(seen.value / expected, seen.exact)
        for use, seen in counted
        if (expected := growth.at(use.args)) is not None
    ]
    above = upper_bound(ratios, share)
    if above is None:
        return []
    pairs: list[tuple[float | str, float | None]] = []
    if growth.shape == "category":
        by_need = sorted(growth.levels.items(), key=lambda pair: pair[1])
        pairs += by_need
    else:
        pairs += [(x, growth.at_value(x)) for x in _spread(growth, counted)]
    return [
        AtArgument(argument=growth.argument, value=value, bound=middle * above.value)
        for value, middle in pairs
        if middle is not None and middle * above.value <= most
    ]


def _spread(growth: Growth, counted: Sequence[tuple[ObservedUse, Observation]]) -> list[float]:
    """A few of the values that the argument had, evenly among them, the smallest and the largest included."""
    found = sorted({x for use, _ in counted if (x := argument_of(use.args, growth.argument)) is not None})
    if len(found) <= _ROWS:
        return found
    return [found[round(n * (len(found) - 1) / (_ROWS - 1))] for n in range(_ROWS)]


_ROUNDS = 6
_LEAST_SPREAD = 0.01
_NORMAL = NormalDist()


def fit_with_killed(
    known: Sequence[ObservedUse], killed: Sequence[ObservedUse], first: Growth
) -> tuple[Growth, list[float]]:
    """The dependence that killed tasks agree with, and what each of them is taken to have needed, in their
    order.

    `known` are exact. What killed ones needed is spread over all that lies beyond their limits, evenly by
    chance and the same for the same tasks. Ones whose arguments say nothing get their limit.
    """
    growth = first
    for _ in range(_ROUNDS):
        spread = _residual_spread(known, growth)
        guesses = [_middle(use, growth, spread) for use in killed]
        again = find_growth(
            [*(use.value for use in known), *guesses],
            [*(use.args for use in known), *(use.args for use in killed)],
        )
        if again is None or again.argument != growth.argument:
            break
        growth = replace(again, low=first.low, high=first.high)  # the range in which something completed
    spread = _residual_spread(known, growth)
    order = sorted(range(len(killed)), key=lambda n: (growth.at(killed[n].args) or 0.0, killed[n].value))
    needs = [use.value for use in killed]
    for place, n in enumerate(order):
        needs[n] = _drawn(killed[n], growth, spread, (place * 0.6180339887 + 0.5) % 1.0)
    return growth, needs


def _residual_spread(known: Sequence[ObservedUse], growth: Growth) -> float:
    off = [math.log(use.value / middle) for use in known if (middle := growth.at(use.args)) is not None]
    return max(_LEAST_SPREAD, pstdev(off)) if len(off) > 1 else _LEAST_SPREAD


def _middle(use: ObservedUse, growth: Growth, spread: float) -> float:
    expected = growth.at(use.args)
    if expected is None:
        return use.value
    return math.exp(min(beyond(math.log(use.value), math.log(expected), spread)[0], LARGEST_LOG))


def _drawn(use: ObservedUse, growth: Growth, spread: float, share: float) -> float:
    """The value at this share of all that lies beyond the limit."""
    expected = growth.at(use.args)
    if expected is None:
        return use.value
    below = _NORMAL.cdf((math.log(use.value) - math.log(expected)) / spread)
    at = below + share * (1.0 - below)
    if not 0.0 < at < 1.0 - 1e-9:
        return _middle(use, growth, spread)
    return max(use.value, math.exp(min(math.log(expected) + spread * _NORMAL.inv_cdf(at), LARGEST_LOG)))


ASSURANCE = 0.80
"""In how many histories of a length the bound covers at least the share that was asked for."""
LEAST = 5
"""Values that it takes to say anything."""
LARGEST_LOG = 700.0
"""Largest logarithm of a result: beyond, floats overflow."""
"""Of logarithms: nothing measured is closer together than a hundredth, whatever a few values look like."""
_STEPS = 60

Method = Literal["order statistic", "lognormal", "censored lognormal"]


class Observation(NamedTuple):
    """One value; where it is not exact the true one is larger. Positive and finite."""

    value: float
    exact: bool = True


class Bound(NamedTuple):
    """An upper bound, and how it came about."""

    value: float
    method: Method


def enough_for(share: float, assurance: float = ASSURANCE) -> int:
    """How many values it takes for one of them to be the bound."""
    return math.ceil(math.log(1.0 - assurance) / math.log(share))


def order_rank(count: int, share: float, assurance: float = ASSURANCE) -> int | None:
    """Which of `count` ascending values, from 1, is the bound; None where there are too few."""
    if (1.0 - share**count) < assurance:
        return None
    # The rank r is enough when at least r-1 values lie below the true quantile with the assurance: P(Bin <=
    # r-1).
    total, term = 0.0, count * math.log1p(-share)  # P(Bin(count, share) = 0), as a logarithm
    odds = math.log(share) - math.log1p(-share)
    for rank in range(1, count + 1):
        total += math.exp(term)
        if total >= assurance:
            return rank
        term += math.log(count - rank + 1) - math.log(rank) + odds
    return count


def tolerance_factor(count: float, share: float, assurance: float = ASSURANCE) -> float:
    """How many standard deviations above the mean of `count` normal values the bound lies; for 2 at least.

    Natrella's closed form, which is good to a few hundredths of the exact one from five values on.
    """
    z_share, z_sure = _NORMAL.inv_cdf(share), _NORMAL.inv_cdf(assurance)
    a = max(0.05, 1.0 - z_sure**2 / (2.0 * (max(count, 2.0) - 1.0)))
    b = z_share**2 - z_sure**2 / max(count, 2.0)
    return (z_share + math.sqrt(max(0.0, z_share**2 - a * b))) / a


def quantile_seen(values: Sequence[Observation], share: float) -> float | None:
    """The smallest exact value that at least this share lies at or below: the Kaplan-Meier estimate.

    None where more of the largest values than that are known only in part.
    """
    ordered = sorted(values, key=lambda one: (one.value, not one.exact))
    surviving, left = 1.0, len(ordered)
    wanted = 1.0 - share + 1e-12
    for value, exact in ordered:
        if exact:
            surviving *= 1.0 - 1.0 / left
            if surviving <= wanted:
                return value
        left -= 1
    return None


def upper_bound(
    values: Sequence[Observation],
    share: float,
    *,
    effective: float | None = None,
    assurance: float = ASSURANCE,
) -> Bound | None:
    """The bound on this share of later values; None where fewer than `LEAST` values are exact.

    `effective` is what the values are worth where they resemble each other in groups, at most their number.
    """
    exact = [one.value for one in values if one.exact]
    if len(exact) < LEAST:
        return None
    largest, middle = max(exact), median(exact)
    telling = len(exact) + sum(
        not one.exact and one.value > middle for one in values
    )  # "more than little" is no news
    worth = min(effective or math.inf, float(telling))
    rank = order_rank(math.floor(worth), share, assurance)
    if rank is not None:
        found = quantile_seen(values, rank / math.floor(worth) - 1e-9)
        if found is not None:
            return Bound(found, "order statistic")
    mean, spread = lognormal(values)
    factor = tolerance_factor(max(worth, 2.0), share, assurance)
    value = math.exp(min(mean + factor * max(spread, _LEAST_SPREAD), LARGEST_LOG))
    unseen = max((one.value for one in values if not one.exact), default=0.0)
    if unseen >= largest:
        return Bound(max(value, unseen), "censored lognormal")
    return Bound(min(max(value, largest), largest * (1.0 + LEAST / max(worth, LEAST))), "lognormal")


def lognormal(values: Sequence[Observation]) -> tuple[float, float]:
    """Mean and standard deviation of the logarithms; values known in part count as what lies beyond them.

    Two exact ones at least.
    """
    exact = [math.log(one.value) for one in values if one.exact]
    limits = [math.log(one.value) for one in values if not one.exact]
    mean, spread = fmean(exact), stdev(exact)
    if not limits or spread == 0.0:
        return mean, spread
    for _ in range(_STEPS):
        guesses = [beyond(limit, mean, spread) for limit in limits]
        means = [*exact, *(first for first, _ in guesses)]
        new_mean = fmean(means)
        new_spread = math.sqrt(pstdev(means) ** 2 + math.fsum(rest for _, rest in guesses) / len(means))
        moved = abs(new_mean - mean) + abs(new_spread - spread)
        mean, spread = new_mean, new_spread
        if moved < 1e-6:
            break
    return mean, spread * math.sqrt(len(values) / (len(values) - 1))


def beyond(limit: float, mean: float, spread: float) -> tuple[float, float]:
    """Mean and variance of a normal value that is known to lie above a limit."""
    z = (limit - mean) / spread
    tail = 1.0 - _NORMAL.cdf(z)
    if tail < 1e-9:  # far out, the mean excess of a normal tail is spread / z
        return limit + spread / max(z, 1.0), (spread / max(z, 1.0)) ** 2
    ratio = _NORMAL.pdf(z) / tail
    return mean + spread * ratio, spread**2 * max(0.0, 1.0 + z * ratio - ratio * ratio)


def effective_count(groups: Sequence[Sequence[float]]) -> float:
    """What values in groups are worth as independent ones: fewer where those of a group resemble each other.

    By the share of the variance that lies between groups, where that is more than chance; the number of
    values where it is not. Give logarithms where ratios count.
    """
    groups = [group for group in groups if group]
    count, many = sum(map(len, groups)), len(groups)
    if many < 2 or count <= many:
        return float(count)
    mean = math.fsum(math.fsum(group) for group in groups) / count
    means = [fmean(group) for group in groups]
    between = math.fsum(len(g) * (m - mean) ** 2 for g, m in zip(groups, means, strict=True)) / (many - 1)
    within = math.fsum((x - m) ** 2 for g, m in zip(groups, means, strict=True) for x in g) / (count - many)
    if within <= 0.0:
        return float(count) if between <= 0.0 else float(many)
    size = (count - math.fsum(len(g) ** 2 for g in groups) / count) / (many - 1)
    chance = 1.0 + 3.0 * math.sqrt(2.0 / (many - 1))
    if between / within <= chance or size <= 1.0:
        return float(count)
    alike = (between - within) / (between + (size - 1.0) * within)
    return max(float(many), count / (1.0 + (size - 1.0) * alike))


LEAST_FOR_GROWTH = 15
"""Values that it takes to see a dependence."""
LOOKED_AT = 1000
"""Most values that are used, evenly spread over all."""
_BETTER = 0.7
"""How far from held-out values a dependence may be at most, as a share of how far their median is."""
_ALONG = 0.3
"""The rank correlation that a numeric argument must have at least."""
_ARGUMENTS = 12
"""Numeric arguments that are tried, the first by name; of the first few, products of two as well."""
_PRODUCTS = 5
_LARGEST = 1e30
"""Arguments beyond are no sizes of anything, and the square of their cube would be no number."""
_CATEGORIES = 8
"""Values that a category may have at most."""
_SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda x: x,
    "squared": lambda x: x * x,
    "cubed": lambda x: x * x * x,
    "root": math.sqrt,
}


class Growth(Struct, frozen=True, kw_only=True):
    """A dependence on arguments."""

    argument: str
    """`n`, `nx * ny` for a product, or the name of a category."""
    shape: str
    """`linear`, `squared`, `cubed`, `root` in the argument, or `category`."""
    base: float = 0.0
    slope: float = 0.0
    """The need is `base + slope * shape(argument)`, at the median; of no meaning for a category."""
    levels: dict[str, float] = {}
    """For a category: the median by value."""
    low: float = 0.0
    high: float = 0.0
    """The smallest and the largest argument seen."""
    held_out: float
    """How much closer it comes to values it was not fitted to than their median: 0 is nothing, 1 is all the
    way."""

    def at(self, args: Mapping[str, Any]) -> float | None:
        """The median need with these arguments; None where they do not say, or name an unknown category."""
        if self.shape == "category":
            value = args.get(self.argument)
            return self.levels.get(str(value)) if isinstance(value, str | bool) else None
        x = argument_of(args, self.argument)
        return None if x is None else self.at_value(x)

    def at_value(self, x: float) -> float | None:
        """The median need for a value of the argument; None where the fit makes no sense there."""
        try:
            found = self.base + self.slope * _SHAPES[self.shape](x)
        except (OverflowError, ValueError):
            return None
        return found if found > 0 and math.isfinite(found) else None


def argument_of(args: Mapping[str, Any], name: str) -> float | None:
    """A numeric argument, or the product of two whose names have ` * ` between them; None where it is no
    number.
    """
    product = 1.0
    for part in (name,) if name in args else name.split(" * "):
        value = args.get(part)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        try:
            product *= float(value)
        except OverflowError:
            return None
    return product if abs(product) <= _LARGEST else None


def find_growth(values: Sequence[float], args: Sequence[Mapping[str, Any]]) -> Growth | None:
    """What these positive values depend on; None where no argument explains them better than chance would.

    Of several arguments the one that explains held-out values best; a product of two has to be clearly
    better.
    """
    step = max(1, math.ceil(len(values) / LOOKED_AT))
    values, args = values[::step], args[::step]
    if len(values) < LEAST_FOR_GROWTH or max(values) <= min(values) * 1.02:
        return None
    best: Growth | None = None
    order = ranks(values)
    for name in _numeric(args):
        if _along(order, [argument_of(one, name) for one in args]) < _ALONG:
            continue
        for shape in _SHAPES:
            best = _better(best, _fit_numeric(values, args, name, shape))
    for name in _categories(args):
        best = _better(best, _fit_category(values, args, name))
    return best


def _along(order: Sequence[float], xs: Sequence[float | None]) -> float:
    """Spearman's rank correlation of values, given by their ranks, with an argument; those without it are
    passed over.
    """
    pairs = [(rank, x) for rank, x in zip(order, xs, strict=True) if x is not None]
    if len(pairs) < LEAST_FOR_GROWTH:
        return 0.0
    try:
        return correlation([rank for rank, _ in pairs], ranks([x for _, x in pairs]))
    except StatisticsError:  # it does not vary
        return 0.0


def _better(old: Growth | None, new: Growth | None) -> Growth | None:
    if old is None or new is None:
        return new or old
    margin = 0.02 if " * " in new.argument and " * " not in old.argument else 0.005
    return new if new.held_out > old.held_out + margin else old


def _numeric(args: Sequence[Mapping[str, Any]]) -> list[str]:
    """Arguments that are numbers in nearly all attempts and vary, then products of the first few."""
    names = sorted({name for one in args for name in one})
    found = []
    for name in names:
        numbers = [x for one in args if (x := argument_of({name: one.get(name)}, name)) is not None]
        if len(numbers) >= 0.9 * len(args) and len(set(numbers)) >= 3 and min(numbers) >= 0:
            found.append(name)
    found = found[:_ARGUMENTS]
    return found + [f"{a} * {b}" for a, b in combinations(found[:_PRODUCTS], 2)]


def _categories(args: Sequence[Mapping[str, Any]]) -> list[str]:
    found = []
    for name in sorted({name for one in args for name in one}):
        texts = [one.get(name) for one in args]
        kinds = {str(text) for text in texts if isinstance(text, str | bool)}
        known = sum(isinstance(text, str | bool) for text in texts)
        if known == len(args) and 2 <= len(kinds) <= _CATEGORIES:
            found.append(name)
    return found


def _fit_numeric(
    values: Sequence[float], args: Sequence[Mapping[str, Any]], name: str, shape: str
) -> Growth | None:
    pairs = [(x, v) for one, v in zip(args, values, strict=True) if (x := argument_of(one, name)) is not None]
    if len(pairs) < LEAST_FOR_GROWTH:
        return None
    gained = _gain(pairs, lambda some: _line(some, shape))
    line = _line(pairs, shape)
    if gained is None or line is None or line[1] <= 0:
        return None
    xs = [x for x, _ in pairs]
    return Growth(
        argument=name, shape=shape, base=line[0], slope=line[1], low=min(xs), high=max(xs), held_out=gained
    )


def _fit_category(values: Sequence[float], args: Sequence[Mapping[str, Any]], name: str) -> Growth | None:
    pairs = [(str(one[name]), v) for one, v in zip(args, values, strict=True)]
    gained = _gain(pairs, _levels)
    levels = _levels(pairs)
    if gained is None or levels is None:
        return None
    return Growth(argument=name, shape="category", levels=levels, held_out=gained)


def _gain(
    pairs: Sequence[tuple[Any, float]], fit: Callable[[Sequence[tuple[Any, float]]], Any]
) -> float | None:
    """How much closer a fit to one half comes to the other, both ways; None where it is not clearly closer.

    Halves alternate in the order of the argument, so that both hold all of its range.
    """
    ordered = sorted(pairs, key=lambda pair: (str(pair[0]) if isinstance(pair[0], str) else pair[0], pair[1]))
    halves = [ordered[0::2], ordered[1::2]]
    ours = plain = 0.0
    for part, other in (halves, halves[::-1]):
        found = fit(part)
        if found is None:
            return None
        middle = math.log(median(v for _, v in part))
        for x, v in other:
            guess = found.get(x) if isinstance(found, dict) else _value(found, x)
            if guess is None or guess <= 0:
                return None
            ours += abs(math.log(v) - math.log(guess))
            plain += abs(math.log(v) - middle)
    return None if plain <= 0 or ours > _BETTER * plain else 1.0 - ours / plain


def _levels(pairs: Sequence[tuple[str, float]]) -> dict[str, float] | None:
    groups: dict[str, list[float]] = {}
    for name, value in pairs:
        groups.setdefault(name, []).append(value)
    return {name: median(group) for name, group in groups.items()} if groups else None


Line = tuple[float, float, str]
"""Base, slope and shape."""


def _value(line: Line, x: float) -> float:
    return line[0] + line[1] * _SHAPES[line[2]](x)


def _line(pairs: Sequence[tuple[float, float]], shape: str) -> Line | None:
    """Base and slope by least squares of relative errors, twice, so that one size weighs as much as another.

    The base is not negative: nothing needs less than nothing for the smallest of problems.
    """
    turn = _SHAPES[shape]
    try:
        points = [(turn(x), v) for x, v in pairs]
    except OverflowError:
        return None
    weights = [1.0 / v for _, v in points]
    found: Line | None = None
    for _ in range(2):
        squares = [w * w for w in weights]
        total = math.fsum(squares)
        mean_x = math.fsum(w * x for w, (x, _) in zip(squares, points, strict=True)) / total
        mean_v = math.fsum(w * v for w, (_, v) in zip(squares, points, strict=True)) / total
        spread = math.fsum(w * (x - mean_x) ** 2 for w, (x, _) in zip(squares, points, strict=True))
        if spread <= 0 or not math.isfinite(spread):
            return None
        slope = (
            math.fsum(w * (x - mean_x) * (v - mean_v) for w, (x, v) in zip(squares, points, strict=True))
            / spread
        )
        base = mean_v - slope * mean_x
        if base < 0:
            across = math.fsum(w * x * x for w, (x, _) in zip(squares, points, strict=True))
            slope = math.fsum(w * x * v for w, (x, v) in zip(squares, points, strict=True)) / across
            base = 0.0
        found = (base, slope, shape)
        guesses = [_value(found, x) for x, _ in pairs]
        if min(guesses) <= 0:
            return None
        weights = [1.0 / guess for guess in guesses]
    return found
