"""How much of one resource a task needs: the bound and its evidence.

Where needs depend on arguments, tasks that were killed at a limit are fitted together with those that
survived: a fit to survivors alone is too low, since of large tasks only those that needed little are among
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, pstdev

from msgspec import Struct
from msgspec.structs import replace

from flightlog.analyze.advice.amounts import round_cpus
from flightlog.analyze.advice.bounds import (
    LARGEST_LOG,
    LEAST,
    Bound,
    Seen,
    beyond,
    effective_count,
    enough_for,
    quantile_seen,
    upper_bound,
)
from flightlog.analyze.advice.growth import Growth, argument_of, find_growth
from flightlog.analyze.advice.observations import ObservedUse, Recent, Resource, what_is_recent

_CLOSE = 1.1
"""A value that lies between two that are no further apart is known well enough: the larger one counts."""
_FARTHEST = 100.0
"""Nothing is reckoned to be more than so many times what was seen."""
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
        (use, Seen(seen.value * recent.factor(number[use.run_id]), seen.exact))
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
) -> tuple[Growth | None, dict[int, Seen]]:
    """The dependence, fitted anew with the killed tasks where there are any; and those, by their number."""
    dead = [n for n, use in enumerate(found) if use.killed]
    if growth is None or not dead:
        return growth, {}
    known = [use for use in found if use.exact]
    fitted, needs = fit_with_killed(known, [found[n] for n in dead], growth)
    told = zip(dead, needs, strict=True)
    return fitted, {n: Seen(need) for n, need in told if fitted.at(found[n].args) is not None}


def _is_close(use: ObservedUse) -> bool:
    return use.most is not None and use.most <= use.value * _CLOSE


def _settled(use: ObservedUse, growth: Growth | None) -> Seen:
    """What a task is taken to have needed: what was measured; else what its arguments say, within what is
    known.
    """
    if use.exact:
        return Seen(use.value)
    if _is_close(use):
        return Seen(use.most or use.value)
    expected = growth.at(use.args) if growth is not None else None
    if expected is not None and use.most is not None:
        return Seen(min(max(expected, use.value), use.most))
    if expected is not None and expected > use.value:
        return Seen(expected)
    return Seen(use.value, exact=False)


def _recent(
    found: Sequence[ObservedUse], settled: Sequence[Seen], growth: Growth | None, runs: Sequence[str]
) -> Recent:
    by_run: dict[str, list[float]] = {run_id: [] for run_id in runs}
    for use, seen in zip(found, settled, strict=True):
        expected = growth.at(use.args) if growth is not None else 1.0
        if seen.exact and expected is not None:
            by_run[use.run_id].append(seen.value / expected)
    return what_is_recent(list(by_run.values()), least=enough_for(0.95))


def _by_run(counted: Sequence[tuple[ObservedUse, Seen]]) -> list[list[float]]:
    groups: dict[str, list[float]] = {}
    for use, seen in counted:
        if seen.exact or use.killed:
            groups.setdefault(use.run_id, []).append(math.log(seen.value))
    return list(groups.values())


def _table(
    growth: Growth, counted: Sequence[tuple[ObservedUse, Seen]], share: float, most: float
) -> list[AtArgument]:
    """The dependence by the bound on how far values lie above it, as far as that is not above `most`."""
    ratios = [
        Seen(seen.value / expected, seen.exact)
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


def _spread(growth: Growth, counted: Sequence[tuple[ObservedUse, Seen]]) -> list[float]:
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
