"""Conditions that fail a comparison, for continuous integration: `p95>10%`, `failures>0`,
`duration:simulate>10%`.

A condition is a metric, for durations and resources perhaps `:` and the name of a task, `>` or `<`, and how
much it may change: with `%` as a share of before, else as a difference in seconds (`30s`, `1m 30s`), bytes
(`500MB`) or a number. `<` asks for less: `hits<-5%`. Where noise is known, a change has to stand out from it,
too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from msgspec import Struct

from flightlog.analyze.compare.results import Change, Comparison, DurationChange, Interval
from flightlog.core.errors import UsageError
from flightlog.core.units import (
    format_bytes,
    format_count,
    format_duration,
    format_percent,
    parse_age,
    parse_size,
)

_CONDITION = re.compile(r"\s*([A-Za-z0-9_]+)\s*(?::(.+?))?\s*([<>])(?!=)\s*([+-]?)\s*([^<>]+?)\s*", re.DOTALL)
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,15})?|\.\d{1,15}", re.ASCII)
_EXAMPLES = "'p95>10%', 'failures>0', 'wall>30s', 'memory>500MB' or 'duration:simulate>10%'"


class Threshold(Struct, frozen=True, kw_only=True):
    """One condition, understood."""

    text: str
    metric: str
    task: str | None
    above: bool
    limit: float
    """A share where `relative`, else in the metric's unit."""
    relative: bool


class ThresholdOutcome(Struct, frozen=True, kw_only=True):
    """What became of one condition."""

    condition: str
    state: Literal["passed", "failed", "unknown"]
    reasons: list[str]
    """What failed it, one sentence each; or why it is unknown."""


def parse_threshold(text: str) -> Threshold:
    """The condition that a text means; a `UsageError` that says what was meant, perhaps, where it means
    none.
    """
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise UsageError(
            f"condition {text[:80]!r} is not understood: write a metric, > or < and a limit, as {_EXAMPLES}"
        )
    name, task, sign, minus, amount = found.groups()
    metric = METRICS.get(name.lower())
    if metric is None:
        close = difflib.get_close_matches(name.lower(), METRICS, n=1, cutoff=0.5)
        hint = f"; perhaps {close[0]!r}" if close else ""
        raise UsageError(
            f"condition {text[:80]!r}: there is no metric {name!r}{hint}. There are {', '.join(METRICS)}"
        )
    if task is not None and not metric.by_task:
        raise UsageError(f"condition {text[:80]!r}: {name!r} is of the whole run and takes no task")
    limit, relative = _limit(amount, metric, text)
    return Threshold(
        text=text.strip(),
        metric=name.lower(),
        task=task,
        above=sign == ">",
        limit=-limit if minus == "-" else limit,
        relative=relative,
    )


def parse_thresholds(texts: Sequence[str]) -> list[Threshold]:
    """Several conditions; commas between them part them, too, where a condition follows."""
    parts = [part for text in texts for part in re.split(r",(?=[^,<>]*[<>])", text)]
    return [parse_threshold(part) for part in parts]


def _limit(amount: str, metric: ThresholdMetric, text: str) -> tuple[float, bool]:
    if amount.endswith("%"):
        number = amount[:-1].strip()
        if _NUMBER.fullmatch(number):
            return float(number) / 100, metric.unit != "points"
        raise UsageError(f"condition {text[:80]!r}: {amount!r} is no share; write it as '10%'")
    if _NUMBER.fullmatch(amount) and (metric.unit == "number" or float(amount) == 0):
        return float(amount), False
    example = {"s": "'30s' or '10%'", "bytes": "'500MB' or '10%'", "number": "'3' or '10%'", "points": "'5%'"}
    with suppress(UsageError):  # which speaks of ages and sizes, and not of the condition
        if metric.unit == "s":
            return parse_age(amount), False
        if metric.unit == "bytes":
            return float(parse_size(amount)), False
    raise UsageError(f"condition {text[:80]!r}: {amount!r} is no limit; write it as {example[metric.unit]}")


class _Seen(NamedTuple):
    """One figure that a condition is held against."""

    label: str
    change: Change
    noise: bool
    """Whether what changed may be noise."""


Finder = Callable[[Comparison, Threshold], Iterator[_Seen]]
"""Gives the figures that a condition is held against."""


class ThresholdMetric(NamedTuple):
    """What a condition may be about."""

    unit: Literal["s", "bytes", "number", "points"]
    by_task: bool
    seen: Finder


def check(
    comparison: Comparison, thresholds: Sequence[Threshold], *, strict: bool = False
) -> list[ThresholdOutcome]:
    """What becomes of each condition, in order. `strict` lets no noise excuse a change.

    Without `strict`, a condition on durations fails if the change stands out from noise and is beyond the
    limit; one on figures that each run has once does so where the sides have runs enough to know their noise.
    A figure that is unknown neither passes nor fails. A task that no side has is a `UsageError`.
    """
    return [_outcome(comparison, threshold, strict) for threshold in thresholds]


def _outcome(comparison: Comparison, threshold: Threshold, strict: bool) -> ThresholdOutcome:
    seen = list(METRICS[threshold.metric].seen(comparison, threshold))
    amounts = [(one, _amount(one.change, threshold)) for one in seen]
    known = [(one, amount) for one, amount in amounts if amount is not None]
    if not known:
        where = f" of {threshold.task}" if threshold.task else ""
        reason = f"{threshold.metric}{where} is unknown on one side at least, or 0 before"
        return ThresholdOutcome(condition=threshold.text, state="unknown", reasons=[reason])
    broken = [
        one
        for one, amount in known
        if (amount > threshold.limit if threshold.above else amount < threshold.limit)
        and (strict or not one.noise)
    ]
    return ThresholdOutcome(
        condition=threshold.text,
        state="failed" if broken else "passed",
        reasons=[_sentence(one, threshold) for one in broken],
    )


def _amount(change: Change, threshold: Threshold) -> float | None:
    if not threshold.relative:
        return change.difference
    if change.ratio is None and change.before == 0 and change.after is not None and change.after > 0:
        return float("inf")
    if change.before == 0 and change.after == 0:
        return 0.0
    return None if change.ratio is None else change.ratio - 1


def _sentence(one: _Seen, threshold: Threshold) -> str:
    change, unit = one.change, METRICS[threshold.metric].unit
    show: Callable[[float | None], str] = {
        "s": format_duration,
        "bytes": format_bytes,
        "number": format_count,
        "points": format_percent,
    }[unit]
    moved = "rose" if (change.difference or 0) > 0 else "fell"
    by = "" if change.ratio is None or unit == "points" else f" by {format_percent(abs(change.ratio - 1))}"
    return f"{one.label} {moved}{by}, {show(change.before)} → {show(change.after)}"


def _named(comparison: Comparison, threshold: Threshold) -> Iterator[DurationChange]:
    if threshold.task is None:
        yield from (change for change in comparison.durations if change.kind == "task")
        return
    found = [change for change in comparison.durations if change.name == threshold.task]
    if not found:
        _check_name(comparison, threshold.task)
    yield from found


def _check_name(comparison: Comparison, task: str) -> None:
    names = {change.name for change in comparison.durations}
    names |= {one.name for one in (*comparison.appeared, *comparison.vanished)}
    names |= {one.name for one in comparison.resources if one.name is not None}
    if task not in names:
        close = difflib.get_close_matches(task, sorted(names), n=3, cutoff=0.5) or sorted(names)[:5]
        raise UsageError(f"no task or span {task!r} in these runs; there are {', '.join(close) or 'none'}")


def _label(change: DurationChange) -> str:
    of = "cached" if change.cached else "with other arguments" if change.other_arguments else ""
    return f"{change.name} ({of})" if of else change.name


def _durations(label: str, ratio: str, scale: str, is_noise: Callable[[DurationChange], bool]) -> Finder:
    """A ratio of durations, as a change of the figure that is called `scale`."""

    def seen(comparison: Comparison, threshold: Threshold) -> Iterator[_Seen]:
        for change in _named(comparison, threshold):
            interval: Interval | None = getattr(change, ratio)
            if interval is not None and change.before is not None:
                found = _scaled(getattr(change.before, scale), interval.ratio)
                yield _Seen(f"{label} {_label(change)}", found, is_noise(change))

    return seen


def _scaled(before: float, ratio: float) -> Change:
    """The ratio of what was matched, as a change of the whole."""
    return Change(before=before, after=before * ratio, difference=before * (ratio - 1), ratio=ratio)


def _resource(label: str, field: str) -> Finder:
    def seen(comparison: Comparison, threshold: Threshold) -> Iterator[_Seen]:
        if threshold.task is not None:
            _check_name(comparison, threshold.task)
        for one in comparison.resources:
            if threshold.task is None or one.name == threshold.task:
                change: Change = getattr(one, field)
                yield _Seen(f"{label} of {one.name or 'the run'}", change, _is_noise(change.interval))

    return seen


def _is_noise(interval: Interval | None, *, unknown: bool = False) -> bool:
    """Whether no change lies within an interval; `unknown` where there is none."""
    if interval is None or interval.low is None or interval.high is None:
        return unknown
    return interval.low <= 1 <= interval.high


def _whole(label: str, pick: Callable[[Comparison], Change]) -> Finder:
    def seen(comparison: Comparison, _: Threshold) -> Iterator[_Seen]:
        change = pick(comparison)
        yield _Seen(label, change, _is_noise(change.interval))

    return seen


def _failures(comparison: Comparison, _: Threshold) -> Iterator[_Seen]:
    failed = comparison.tasks["failed"]
    counts = [
        (value or 0) + sum(run.status not in {"completed", "running"} for run in side.runs) / len(side.runs)
        for value, side in ((failed.before, comparison.before), (failed.after, comparison.after))
    ]
    yield _Seen("failures", Change.of(*counts), False)


METRICS = {
    "wall": ThresholdMetric("s", False, _whole("wall time", lambda found: found.wall_s)),
    "worker": ThresholdMetric("s", False, _whole("worker time", lambda found: found.worker_s)),
    "duration": ThresholdMetric(
        "s",
        True,
        _durations("a typical", "typical", "p50_s", lambda one: one.verdict not in {"slower", "faster"}),
    ),
    "mean": ThresholdMetric(
        "s", True, _durations("the mean of", "mean", "mean_s", lambda one: _is_noise(one.mean, unknown=True))
    ),
    "p95": ThresholdMetric(
        "s", True, _durations("p95 of", "p95", "p95_s", lambda one: not one.p95_stands_out)
    ),
    "memory": ThresholdMetric("bytes", True, _resource("peak memory", "peak_rss_bytes")),
    "cpu": ThresholdMetric("s", True, _resource("CPU time", "cpu_s")),
    "read": ThresholdMetric("bytes", True, _resource("bytes read", "read_bytes")),
    "write": ThresholdMetric("bytes", True, _resource("bytes written", "write_bytes")),
    "failures": ThresholdMetric("number", False, _failures),
    "retries": ThresholdMetric("number", False, _whole("retries", lambda found: found.tasks["retried"])),
    "hits": ThresholdMetric("points", False, _whole("cache hit rate", lambda found: found.cache.hit_rate)),
    "cost": ThresholdMetric("number", False, _whole("cost", lambda found: found.cost)),
}
"""The metrics; those `by_task` take `:TASK`, and mean every task without it."""
