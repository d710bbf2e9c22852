"""A run that took longer than earlier ones with the same tasks, or of the same command, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev

from msgspec import Struct

from flightlog.core.stats import student_quantile
from flightlog.core.text import cut, plural
from flightlog.core.units import format_duration
from flightlog.store.earlier_runs import EarlierRun, EarlierRuns
from flightlog.store.headline import CacheHeadline, Headline, NameHeadline, headline_of
from flightlog.store.layout import RunInfo
from flightlog.store.limits import StoreLimits
from flightlog.store.run import Run


class SlowerThanBefore(Struct, frozen=True, kw_only=True):
    """How much longer a run took than earlier runs with the same tasks, or of the same command."""

    sentence: str
    """By how much, and why."""
    ratio: float
    low: float
    high: float
    """The interval of the ratio at 95 % confidence."""
    runs: int
    """Earlier runs that it was compared with."""
    usual_s: float
    """Their typical duration."""
    task: str | None
    """The task name that took longer, where that is the reason."""


def slowdown_at_end(run: Run) -> SlowerThanBefore | None:
    """The same as `slower_than_before` of a run that has just ended, in the program that it recorded: cheap
    where it was about as fast as others, and unknown of very large runs.
    """
    wall_s, earlier = run.info.duration_s or 0.0, EarlierRuns(run)
    if not any(0 < StoreLimits.min_slowdown * other_s <= wall_s for other_s in earlier.wall_times()):
        return None
    if run.size_bytes() > StoreLimits.max_completed_summary_bytes:
        return None
    return slower_than_before(run.info, headline_of(run), earlier.runs)


def slower_than_before(
    run: RunInfo, counted: Headline, earlier: Sequence[EarlierRun]
) -> SlowerThanBefore | None:
    """How much longer a completed run took than those before; None where it did not, or not by more than they
    vary, or where too little is known. `earlier` are completed runs, the newest first.
    """
    wall_s = run.duration_s or 0.0
    if run.status != "completed" or wall_s <= 0:
        return None
    same = [one for one in earlier if (one.info.duration_s or 0.0) > 0 and _is_comparable(run, counted, one)]
    before = _usual(same[: StoreLimits.max_earlier_runs + StoreLimits.max_slow_earlier_runs])
    if not _is_slow(wall_s, before):
        return None
    difference, spread = _difference(wall_s, before)
    reach = student_quantile(0.975, len(before) - 1) * spread
    ratio, low, high = (math.exp(difference + by) for by in (0.0, -reach, reach))
    usual_s = wall_s / ratio
    reason, task = _reason(counted, wall_s, before, usual_s)
    return SlowerThanBefore(
        sentence=f"{ratio:.1f} times slower than {len(before)} earlier runs "
        f"{'with the same tasks' if counted.tasks.by_name else 'of the same command'} (95 % CI {low:.1f} to "
        f"{high:.1f}; {format_duration(wall_s)}, usually {format_duration(usual_s)}){reason}"
        f"{_elsewhere(run, before)}.",
        ratio=ratio,
        low=low,
        high=high,
        runs=len(before),
        usual_s=usual_s,
        task=task,
    )


def _usual(runs: Sequence[EarlierRun]) -> list[EarlierRun]:
    """Of runs, the newest first, those that were not slow themselves."""
    slowest = sorted(runs, key=lambda run: run.info.duration_s or 0.0, reverse=True)
    for count in range(StoreLimits.max_slow_earlier_runs, 0, -1):
        slow = slowest[:count]
        rest = [run for run in runs if run not in slow]
        if slow and _is_slow(slow[-1].info.duration_s or 0.0, rest, StoreLimits.slow_earlier_run_rate):
            return rest[: StoreLimits.max_earlier_runs]
    return list(runs[: StoreLimits.max_earlier_runs])


def _is_slow(
    wall_s: float, before: Sequence[EarlierRun], chance: float = StoreLimits.false_alarm_rate
) -> bool:
    """Whether a run took longer than these, by more than they vary."""
    if len(before) < StoreLimits.min_earlier_runs:
        return False
    difference, spread = _difference(wall_s, before)
    return difference >= max(
        math.log(StoreLimits.min_slowdown), student_quantile(1 - chance, len(before) - 1) * spread
    )


def _difference(wall_s: float, before: Sequence[EarlierRun]) -> tuple[float, float]:
    """How far the logarithm of a duration is from the mean of these, and the standard error of that."""
    logs = [math.log(run.info.duration_s) for run in before if run.info.duration_s]
    return math.log(wall_s) - fmean(logs), stdev(logs) * math.sqrt(1 + 1 / len(logs))


def _is_comparable(run: RunInfo, counted: Headline, earlier: EarlierRun) -> bool:
    """Whether a run had the same tasks on the same target, about as many of each name, of which as many
    completed and were answered from a cache; without tasks, whether its command line was the same.
    """
    names, info = counted.tasks.by_name, earlier.info
    if info.target != run.target:
        return False
    if not names:
        return bool(run.command) and info.command == run.command and info.tasks_submitted == 0
    headline = earlier.headline
    before = headline.tasks.by_name if headline is not None else {}
    return (
        headline is not None
        and names.keys() == before.keys()
        and all(
            _about_equal(before[name].size, task.size)
            and _about_equal(before[name].completed, task.completed)
            for name, task in names.items()
        )
        and abs(_hits(headline.cache) - _hits(counted.cache)) <= StoreLimits.max_difference_of_work
    )


def _about_equal(before: int, now: int) -> bool:
    return abs(before - now) <= StoreLimits.max_difference_of_work * now


def _hits(cache: CacheHeadline) -> float:
    return (cache.hits or 0) / cache.lookups if cache.lookups else 0.0


def _elsewhere(run: RunInfo, before: Sequence[EarlierRun]) -> str:
    """That none of the earlier runs was on this host, or had this command line."""
    hosts = {one.info.host for one in before}
    commands = [one.info.command for one in before]
    others = min(hosts) if len(hosts) == 1 else "other hosts"
    host = "" if run.host in hosts else f" It ran on {run.host}, and they on {others}"
    command = " Its command line is another one" if run.command not in commands else ""
    return "".join(f".{one}" for one in (host, command) if one)


def _reason(
    counted: Headline, wall_s: float, before: list[EarlierRun], usual_s: float
) -> tuple[str, str | None]:
    """Why it was slower, as far as the record tells, and the task name that was."""
    earlier = [one.headline.tasks.by_name for one in before if one.headline is not None]
    names = counted.tasks.by_name
    now = {name: task.duration_s.total for name, task in names.items()}
    if not earlier or not names or None in now.values():
        return "", None
    usual = {name: median([one[name].duration_s.total or 0.0 for one in earlier]) for name in names}
    retried = [_retried(one) for one in earlier]
    more = {name: (now[name] or 0.0) - usual[name] for name in names}
    slowest = max(more, key=lambda name: more[name])
    busy_s, usually_s = sum(total or 0.0 for total in now.values()), sum(usual.values())
    again = (counted.tasks.retried or 0) - max(retried)
    retries = (
        f"; {plural(counted.tasks.retried or 0, 'attempt')} retried, usually {median(retried):.0f}"
        if again > 0
        else ""
    )
    if usually_s <= 0 or busy_s <= 0:
        return retries, None
    if busy_s / usually_s - 1 >= StoreLimits.min_explained_share * (
        wall_s / usual_s - 1
    ):  # tasks took longer
        mean, of = names[slowest].duration_s.mean, usual[slowest]
        count = names[slowest].duration_s.count
        if (
            more[slowest] >= StoreLimits.min_explained_share * (busy_s - usually_s)
            and mean
            and of > 0
            and count
        ):
            usually = median([one[slowest].duration_s.mean or 0.0 for one in earlier])
            return (
                f", because {cut(slowest, 40)} took {(now[slowest] or 0.0) / of:.1f} times as long (mean "
                f"{format_duration(mean)}, usually {format_duration(usually)}){retries}",
                slowest,
            )
        return f", because its tasks took {busy_s / usually_s:.1f} times as long{retries}", None
    at_once, usually_at_once = busy_s / wall_s, usually_s / usual_s
    return (
        f", though its tasks took {_about(busy_s / usually_s)}: concurrency was {at_once:.1f} on average, "
        f"usually {usually_at_once:.1f}{retries}",
        None,
    )


def _retried(names: Mapping[str, NameHeadline]) -> int:
    return sum(one.retried for one in names.values())


def _about(ratio: float) -> str:
    return "as long as usual" if 0.9 <= ratio <= 1.1 else f"only {ratio:.1f} times as long"
