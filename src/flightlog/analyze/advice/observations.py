"""What each attempt says of a task's need, exactly or as a lower bound, and which runs of a history still
hold.

Runs since the last lasting change of the level count; older ones are corrected for a slow drift. Steps are
found as in trends; a drift is a trend by the test of Mann and Kendall.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from flightlog.analyze.history.attempts import PastAttempt
from flightlog.analyze.history.change_points import change_points

Resource = Literal["cpus", "memory", "gpu_memory", "walltime"]
RESOURCES: tuple[Resource, ...] = ("cpus", "memory", "gpu_memory", "walltime")

_LONG_ENOUGH_S = 0.1
"""Attempts that are shorter say nothing of CPUs: clocks tick at a hundredth of a second."""
_PLAUSIBLE: dict[Resource, tuple[float, float]] = {
    "cpus": (1e-6, 1e6),
    "memory": (1.0, 2.0**60),
    "gpu_memory": (1.0, 2.0**60),
    "walltime": (1e-9, 2e9),
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
        found = _use(attempt, resource, peaks)
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


def _use(
    attempt: PastAttempt, resource: Resource, peaks: Mapping[tuple[str, str, int], float]
) -> ObservedUse | None:
    if resource == "cpus":
        return _cpus(attempt)
    if resource == "memory":
        return _memory(attempt, peaks)
    if resource == "gpu_memory":
        return _gpu_memory(attempt)
    return _walltime(attempt)


def _cpus(attempt: PastAttempt) -> ObservedUse | None:
    """Cores kept busy on average; those of an attempt that failed count as well."""
    took, cpu_s = attempt.duration_s, attempt.cpu_s
    if took is None or cpu_s is None or took < _LONG_ENOUGH_S or cpu_s <= 0:
        return None
    return _made(attempt, cpu_s / took, exact=True)


def _memory(attempt: PastAttempt, peaks: Mapping[tuple[str, str, int], float]) -> ObservedUse | None:
    if attempt.memory_killed:
        had = memory_had(attempt)
        return None if had is None else _made(attempt, had, exact=False, killed=True)
    peak = attempt.peak_rss_bytes
    if attempt.state == "completed" and attempt.rss_scope == "process_at_least":
        most = peaks.get((attempt.run_id, attempt.task_id, attempt.attempt))
        return _made(attempt, peak, exact=False, most=most)
    return _made(attempt, peak, exact=attempt.state == "completed")


def memory_had(attempt: PastAttempt) -> float | None:
    """What an attempt that was killed for its memory had; None if unknown.

    Its request, however little it was seen with: the last moments are not seen. No more than there was on its
    host or in its cgroup, and no less than it was seen with.
    """
    asked, peak, room = attempt.requested.memory_bytes, attempt.peak_rss_bytes, attempt.node_memory_bytes
    if asked is None:
        return peak
    return max(asked if room is None else min(asked, room), peak or 0)


def _peaks_before(attempts: Sequence[PastAttempt]) -> dict[tuple[str, str, int], float]:
    """For each attempt the largest memory its worker had had before it ended, which its own cannot have been
    above.
    """
    found: dict[tuple[str, str, int], float] = {}
    highest: dict[tuple[str, str], float] = {}
    for attempt in sorted(
        (one for one in attempts if one.ended is not None), key=lambda one: one.ended or 0.0
    ):
        worker = attempt.run_id, attempt.worker or ""
        if attempt.rss_scope in {"process", "tree"} and attempt.peak_rss_bytes is not None:
            highest[worker] = max(highest.get(worker, 0.0), float(attempt.peak_rss_bytes))
        elif worker in highest:
            found[attempt.run_id, attempt.task_id, attempt.attempt] = highest[worker]
    return found


def _gpu_memory(attempt: PastAttempt) -> ObservedUse | None:
    whole = attempt.state == "completed" and attempt.gpu_memory_scope != "allocator_at_least"
    return _made(attempt, attempt.gpu_peak_bytes, exact=whole, killed=attempt.gpu_memory_killed)


def _walltime(attempt: PastAttempt) -> ObservedUse | None:
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
