"""How much of one resource a task needs: the bound, its evidence, and the arguments that it depends on.

The bound is a one-sided tolerance bound: the share of later values that it covers is at least the wanted one
in a share `assurance` of all histories of this length. With enough values it is one of them (Wilks: no
assumption on their distribution); with fewer it is that of a lognormal distribution, which widens the fewer
there are; below `min_values` there is none. Values that are only known to be larger than something (an
attempt that was killed) are censored (Kaplan and Meier); where too many of the largest are, the lognormal
distribution that fits them all gives the bound.

A dependence on an argument is accepted only where it explains values that it was not fitted to: it is fitted
to every other value and has to come clearly closer to the rest than their median does, and the ranks must
correlate. So an argument that varies along by chance, such as a seed, is not taken for a cause.

Of each task, all its attempts together say what it needed, exactly or as a lower bound. Runs since the last
lasting change of the level count; older ones are corrected for a slow drift. Steps are found as in trends; a
drift is a trend by the test of Mann and Kendall.

Where needs depend on arguments, tasks that were killed at a limit are fitted together with those that
survived: a fit to survivors alone is too low, since of large tasks only those that needed little are among
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from statistics import NormalDist, StatisticsError, correlation, median, pstdev
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from flightlog.analyze.advice.base import round_cpus
from flightlog.analyze.history.attempts import PLAUSIBLE_BYTES, PLAUSIBLE_S, PastAttempt
from flightlog.analyze.history.change_points import change_points
from flightlog.analyze.limits import AdviceLimits, HistoryLimits
from flightlog.analyze.tallies import grouped
from flightlog.core.stats import (
    Observation,
    beyond,
    censored_quantile,
    effective_count,
    fit_lognormal,
    order_rank,
    ranks,
    rising_chance,
    theil_sen,
    tolerance_factor,
)
from flightlog.core.text import plural

Resource = Literal["cpus", "memory", "gpu_memory", "walltime"]
RESOURCES: tuple[Resource, ...] = ("cpus", "memory", "gpu_memory", "walltime")


_PLAUSIBLE: dict[Resource, tuple[float, float]] = {
    "cpus": (1e-6, 1e6),
    "memory": PLAUSIBLE_BYTES,
    "gpu_memory": PLAUSIBLE_BYTES,
    "walltime": PLAUSIBLE_S,
}
"""CPUs, bytes and seconds that something may have used: the rest is damage, and says nothing."""


class ObservedUse(Struct, frozen=True, kw_only=True):
    """What one task, all its attempts together, says of one resource."""

    run_id: str
    args: Mapping[str, Any]
    value: float
    """CPUs, bytes or seconds."""
    exact: bool
    """Whether that is what it needed; otherwise it needed more, or ended before it could."""
    most: float | None = None
    """Where it is not exact: it did not need more than this; None where nobody knows."""
    killed_at: float | None = None
    """The most that any of its attempts had when it was ended for having no more; another may have completed
    with less."""

    @property
    def killed(self) -> bool:
        """Whether it was ended because it had no more than `value`, and never completed."""
        return not self.exact and self.killed_at is not None


Peaks = dict[tuple[str, str, int], float]
"""For each attempt, by run, task and number, the most memory that its worker had had before."""


def uses(attempts: Iterable[PastAttempt], resource: Resource) -> list[ObservedUse]:
    """What each task says, in the order of the attempts given, which are the newest first.

    An attempt that completed counts alone, but for what others of it were killed with. Of a task that never
    did, the one that got furthest counts, and says "at least". Attempts of which nothing is known say
    nothing.
    """
    by_task: dict[tuple[str, str], ObservedUse] = {}
    attempts = list(attempts)
    peaks = _peaks_before(attempts) if resource == "memory" else {}
    for attempt in attempts:
        found = _USES[resource](attempt, peaks)
        least, most = _PLAUSIBLE[resource]
        if found is None or not least <= found.value <= most:
            continue
        key = attempt.run_id, attempt.task_id
        known = by_task.get(key)
        if known is not None:
            limits = [limit for limit in (known.killed_at, found.killed_at) if limit is not None]
            more = (found.exact, found.value) > (known.exact, known.value)
            found = replace(found if more else known, killed_at=max(limits, default=None))
        by_task[key] = found
    return list(by_task.values())


def _cpus(attempt: PastAttempt, _: Peaks) -> ObservedUse | None:
    """Cores kept busy on average; those of an attempt that failed count as well."""
    took, cpu_s = attempt.duration_s, attempt.cpu_s
    if took is None or cpu_s is None or took < AdviceLimits.min_duration_for_cpus_s or cpu_s <= 0:
        return None
    return _made(attempt, cpu_s / took, exact=True)


def _memory(attempt: PastAttempt, peaks: Peaks) -> ObservedUse | None:
    if attempt.memory_killed:
        had = memory_had(attempt)
        return None if had is None else _made(attempt, had, exact=False, killed=True)
    peak = attempt.peak_rss_bytes
    most = peaks.get((attempt.run_id, attempt.task_id, attempt.attempt))
    scope, done = attempt.rss_scope, attempt.state == "completed"
    bounded = scope == "process_at_least" or (scope == "process" and most is not None)
    return _made(attempt, peak, exact=done and not bounded, most=most if done and bounded else None)


def memory_had(attempt: PastAttempt) -> float | None:
    """What an attempt that was killed for its memory had; None if unknown.

    Its request, however little it was seen with: the last moments are not seen. No more than there was on its
    host or in its cgroup, and no less than it was seen with.
    """
    asked, peak, room = attempt.requested.memory_bytes, attempt.peak_rss_bytes, attempt.node_memory_bytes
    if asked is None:
        return peak
    return max(asked if room is None else min(asked, room), peak or 0)


def _peaks_before(attempts: Sequence[PastAttempt]) -> Peaks:
    """For each attempt the largest memory its worker had had before it ended, which its own cannot have been
    above. Of one that started processes, none of them had more than the largest before.
    """
    found: dict[tuple[str, str, int], float] = {}
    highest: dict[tuple[str, str], float] = {}
    trees: dict[tuple[str, str], float] = {}
    ended = [one for one in attempts if one.ended is not None]
    for attempt in sorted(ended, key=lambda one: one.ended or 0.0):
        worker = attempt.run_id, attempt.worker or ""
        key = attempt.run_id, attempt.task_id, attempt.attempt
        peak = float(attempt.peak_rss_bytes or 0.0)
        if attempt.rss_scope == "tree":
            trees[worker] = max(trees.get(worker, 0.0), peak)
        elif attempt.cpu_scope == "tree" and trees.get(worker, 0.0) > peak:
            found[key] = trees[worker]
        if attempt.rss_scope in {"process", "tree"} and attempt.peak_rss_bytes is not None:
            highest[worker] = max(highest.get(worker, 0.0), peak)
        elif worker in highest:
            found.setdefault(key, highest[worker])
    return found


def _gpu_memory(attempt: PastAttempt, _: Peaks) -> ObservedUse | None:
    whole = attempt.state == "completed" and attempt.gpu_memory_scope != "allocator_at_least"
    return _made(attempt, attempt.gpu_peak_bytes, exact=whole, killed=attempt.gpu_memory_killed)


def _walltime(attempt: PastAttempt, _: Peaks) -> ObservedUse | None:
    took = attempt.duration_s
    if attempt.timed_out:
        limits = [limit for limit in (took, attempt.timeout_s) if limit is not None]
        return _made(attempt, max(limits), exact=False, killed=True) if limits else None
    return _made(attempt, took, exact=attempt.state == "completed")


def _made(
    attempt: PastAttempt, value: float | None, *, exact: bool, most: float | None = None, killed: bool = False
) -> ObservedUse | None:
    if value is None or value <= 0 or attempt.state == "running":
        return None
    return ObservedUse(
        run_id=attempt.run_id,
        args=attempt.args,
        value=float(value),
        exact=exact,
        most=most if most is not None and most >= value else None,
        killed_at=float(value) if killed else None,
    )


_USES: dict[Resource, Callable[[PastAttempt, Peaks], ObservedUse | None]] = {
    "cpus": _cpus,
    "memory": _memory,
    "gpu_memory": _gpu_memory,
    "walltime": _walltime,
}


_CHANCE = 0.5 * math.erfc(2.6 / math.sqrt(2.0))
"""How often a random order of the runs may look like a drift: 2.6 standard deviations, so that six runs that
all go one way are enough."""


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
        ahead = min(AdviceLimits.max_runs_ahead, self.runs // 2) if self.drift > 0 else 0
        return float((1.0 + self.drift) ** (self.runs - 1 - run + ahead))


def what_is_recent(runs: Sequence[Sequence[float]], *, least: int) -> Recent:
    """Look at the positive values of each run, the oldest first; `least` values must remain.

    Give values over what their arguments explain, where something is: then runs with larger problems are no
    change.
    """
    there = [number for number, values in enumerate(runs) if values]
    levels = [math.log(median(runs[number])) for number in there]
    steps = change_points(
        levels, clear_side=HistoryLimits.min_values_beside_clear_step_of_few
    ).steps  # two runs are too few to ask for less
    if steps:
        before = steps[-2].at if len(steps) > 1 else 0
        return _since(runs, there, levels, (before, steps[-1].at), least)
    each = _drift(there, levels)
    if each is None:
        return Recent(runs=len(runs))
    # Where two levels tell most of the values.
    off, split = min((_off(levels[:at]) + _off(levels[at:]), at) for at in range(2, len(levels) - 1))
    line = [level - each * number for number, level in zip(there, levels, strict=True)]
    if _off(line) > off:
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
    if abs(change) < AdviceLimits.min_need_change or sum(map(len, runs[since:])) < least:
        return Recent(runs=len(runs))
    return Recent(runs=len(runs), since=since, change=change)


def _drift(there: Sequence[int], levels: Sequence[float]) -> float | None:
    """By how much the logarithm moves from run to run; None where that may be chance, or is hardly
    anything.
    """
    if len(levels) < AdviceLimits.min_runs_for_drift:
        return None
    each = theil_sen(levels, there)
    chance = min(rising_chance(levels), rising_chance([-level for level in levels]))
    moved = abs(each) * (there[-1] - there[0])
    return each if chance <= _CHANCE and moved >= math.log1p(AdviceLimits.min_need_change) else None


def _off(values: Sequence[float]) -> float:
    """How far values lie from their median, all together."""
    middle = median(values)
    return math.fsum(abs(value - middle) for value in values)


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
    since = [pair for pair in zip(found, settled, strict=True) if number[pair[0].run_id] >= recent.since]
    used = [seen for _, seen in since]
    counted = [
        (use, Observation(seen.value * recent.factor(number[use.run_id]), seen.exact)) for use, seen in since
    ]
    values = [seen for _, seen in counted]
    alike = grouped((use.run_id, math.log(seen.value)) for use, seen in counted if seen.exact or use.killed)
    worth = effective_count(list(alike.values())) if counted else None
    bound = upper_bound(values, share, effective=worth)
    most = AdviceLimits.max_bound_ratio * max((use.value for use, _ in counted), default=0.0)
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
        typical=censored_quantile(used, 0.5),
        usual_most=censored_quantile(used, share),
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
    if not exact:
        return (
            f"none of {plural(there, 'attempt')} was measured to the end: {AdviceLimits.min_values} are "
            f"needed to say anything, {enough_for(share)} for a bound without assumptions"
        )
    missing = AdviceLimits.min_values - exact
    more = f"{plural(missing, 'more is', 'more are')} needed to say anything"
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
    return use.most is not None and use.most <= use.value * AdviceLimits.max_bracket_ratio


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
    values: Sequence[float | str] = (
        [name for name, _ in sorted(growth.levels.items(), key=lambda pair: pair[1])]
        if growth.shape == "category"
        else _spread(growth, counted)
    )
    return [
        AtArgument(argument=growth.argument, value=value, bound=middle * above.value)
        for value in values
        if (middle := growth.at_value(value)) is not None and middle * above.value <= most
    ]


def _spread(growth: Growth, counted: Sequence[tuple[ObservedUse, Observation]]) -> list[float]:
    """A few of the values that the argument had, evenly among them, the smallest and the largest included."""
    found = sorted({x for use, _ in counted if (x := argument_of(use.args, growth.argument)) is not None})
    rows = AdviceLimits.max_argument_rows
    if len(found) <= rows:
        return found
    return [found[round(n * (len(found) - 1) / (rows - 1))] for n in range(rows)]


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
    for _ in range(AdviceLimits.max_fit_rounds):
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
    return max(AdviceLimits.min_log_spread, pstdev(off)) if len(off) > 1 else AdviceLimits.min_log_spread


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


LARGEST_LOG = 700.0
"""Largest logarithm of a result: beyond, floats overflow."""

Method = Literal["order statistic", "lognormal", "censored lognormal"]


class Bound(NamedTuple):
    """An upper bound, and how it came about."""

    value: float
    method: Method


def enough_for(share: float) -> int:
    """How many values it takes for one of them to be the bound."""
    return math.ceil(math.log(1.0 - AdviceLimits.assurance) / math.log(share))


def upper_bound(
    values: Sequence[Observation], share: float, *, effective: float | None = None
) -> Bound | None:
    """The bound on this share of later values; None where fewer than `min_values` values are exact.

    `effective` is what the values are worth where they resemble each other in groups, at most their number.
    """
    exact = [one.value for one in values if one.exact]
    if len(exact) < AdviceLimits.min_values:
        return None
    largest, middle = max(exact), median(exact)
    # "More than little" is no news.
    telling = len(exact) + sum(not one.exact and one.value > middle for one in values)
    worth = min(effective or math.inf, float(telling))
    rank = order_rank(math.floor(worth), share, AdviceLimits.assurance)
    if rank is not None:
        found = censored_quantile(values, rank / math.floor(worth) - 1e-9)
        if found is not None:
            return Bound(found, "order statistic")
    mean, spread = fit_lognormal(values)
    factor = tolerance_factor(max(worth, 2.0), share, AdviceLimits.assurance)
    value = math.exp(min(mean + factor * max(spread, AdviceLimits.min_log_spread), LARGEST_LOG))
    unseen = max((one.value for one in values if not one.exact), default=0.0)
    if unseen >= largest:
        return Bound(max(value, unseen), "censored lognormal")
    most = largest * (1.0 + AdviceLimits.min_values / max(worth, AdviceLimits.min_values))
    return Bound(min(max(value, largest), most), "lognormal")


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

    def at_value(self, x: float | str) -> float | None:
        """The median need for a value of the argument; None where the fit makes no sense there."""
        if isinstance(x, str):
            return self.levels.get(x)
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
    return product if abs(product) <= AdviceLimits.max_argument else None


def find_growth(values: Sequence[float], args: Sequence[Mapping[str, Any]]) -> Growth | None:
    """What these positive values depend on; None where no argument explains them better than chance would.

    Of several arguments the one that explains held-out values best; a product of two has to be clearly
    better.
    """
    step = max(1, math.ceil(len(values) / AdviceLimits.max_values_for_growth))
    values, args = values[::step], args[::step]
    few = len(values) < AdviceLimits.min_values_for_growth
    if few or max(values) < min(values) * (1 + AdviceLimits.min_need_change):
        return None
    best: Growth | None = None
    order = ranks(values)
    for name in _numeric(args):
        if _along(order, [argument_of(one, name) for one in args]) < AdviceLimits.min_rank_correlation:
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
    if len(pairs) < AdviceLimits.min_values_for_growth:
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
    found = found[: AdviceLimits.max_arguments]
    return found + [f"{a} * {b}" for a, b in combinations(found[: AdviceLimits.max_argument_products], 2)]


def _categories(args: Sequence[Mapping[str, Any]]) -> list[str]:
    def is_category(texts: Sequence[Any]) -> bool:
        few = 2 <= len({str(text) for text in texts}) <= AdviceLimits.max_categories
        return few and all(isinstance(text, str | bool) for text in texts)

    names = sorted({name for one in args for name in one})
    return [name for name in names if is_category([one.get(name) for one in args])]


Pairs = Sequence[tuple[Any, float]]
"""Values of an argument, each with what was needed there."""


def _fit_numeric(
    values: Sequence[float], args: Sequence[Mapping[str, Any]], name: str, shape: str
) -> Growth | None:
    pairs = [(x, v) for one, v in zip(args, values, strict=True) if (x := argument_of(one, name)) is not None]
    if len(pairs) < AdviceLimits.min_values_for_growth:
        return None
    found = _fit(pairs, lambda some: _line(some, name, shape))
    return found if found is not None and found.slope > 0 else None


def _fit_category(values: Sequence[float], args: Sequence[Mapping[str, Any]], name: str) -> Growth | None:
    def medians(pairs: Pairs) -> Growth:
        levels = {value: median(needs) for value, needs in grouped(pairs).items()}
        return Growth(argument=name, shape="category", levels=levels, held_out=0.0)

    return _fit([(str(one[name]), v) for one, v in zip(args, values, strict=True)], medians)


def _fit(pairs: Pairs, fit: Callable[[Pairs], Growth | None]) -> Growth | None:
    """The fit to all, with how much closer a fit to one half comes to the other, both ways; None where it is
    not clearly closer, or the need hardly grows from the least to the most.

    Halves alternate in the order of the argument, so that both hold all of its range.
    """
    ordered = sorted(pairs)
    halves = [ordered[0::2], ordered[1::2]]
    ours = plain = 0.0
    for part, other in (halves, halves[::-1]):
        found = fit(part)
        if found is None:
            return None
        middle = math.log(median(v for _, v in part))
        for x, v in other:
            guess = found.at_value(x)
            if guess is None or guess <= 0:
                return None
            ours += abs(math.log(v) - math.log(guess))
            plain += abs(math.log(v) - middle)
    whole = None if plain <= 0 or ours > AdviceLimits.max_held_out_error * plain else fit(pairs)
    if whole is None:
        return None
    ends = [need for x, _ in (ordered[0], ordered[-1]) if (need := whole.at_value(x)) is not None]
    if whole.shape == "category":
        ends = [min(whole.levels.values()), max(whole.levels.values())]
    if len(ends) < 2 or ends[1] < ends[0] * (1 + AdviceLimits.min_need_change):
        return None
    return replace(whole, held_out=1.0 - ours / plain)


def _line(pairs: Pairs, name: str, shape: str) -> Growth | None:
    """Base and slope by least squares of relative errors, twice, so that one size weighs as much as another.

    The base is not negative: nothing needs less than nothing for the smallest of problems.
    """
    turn = _SHAPES[shape]
    try:
        points = [(turn(x), v) for x, v in pairs]
    except OverflowError:
        return None
    weights = [1.0 / v for _, v in points]
    low, high = min(x for x, _ in pairs), max(x for x, _ in pairs)
    found: Growth | None = None
    for _ in range(2):
        weighed = [(w * w, x, v) for w, (x, v) in zip(weights, points, strict=True)]
        total = math.fsum(w for w, _, _ in weighed)
        mean_x = math.fsum(w * x for w, x, _ in weighed) / total
        mean_v = math.fsum(w * v for w, _, v in weighed) / total
        spread = math.fsum(w * (x - mean_x) ** 2 for w, x, _ in weighed)
        if spread <= 0 or not math.isfinite(spread):
            return None
        slope = math.fsum(w * (x - mean_x) * (v - mean_v) for w, x, v in weighed) / spread
        base = mean_v - slope * mean_x
        if base < 0:
            slope = math.fsum(w * x * v for w, x, v in weighed) / math.fsum(w * x * x for w, x, _ in weighed)
            base = 0.0
        found = Growth(argument=name, shape=shape, base=base, slope=slope, low=low, high=high, held_out=0.0)
        guesses = [base + slope * x for x, _ in points]
        if min(guesses) <= 0:
            return None
        weights = [1.0 / guess for guess in guesses]
    return found
