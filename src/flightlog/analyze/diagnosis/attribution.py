"""Which cause stands above which: what ended when a disk was full or a job's time was up is no cause of its
own.

Also silent failures: values that became NaN and device memory that ran out in a run in which nothing failed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import msgspec

from flightlog.analyze.diagnosis.base import Case, Rule, RunFacts
from flightlog.analyze.diagnosis.failures import Nonfinite
from flightlog.analyze.diagnosis.reading import Reading
from flightlog.analyze.diagnosis.results import Cause, Evidence, Explained
from flightlog.analyze.diagnosis.scoring import weigh
from flightlog.analyze.diagnosis.wording import certainty
from flightlog.store.liveness import unix_time

FOR_ALL = frozenset({"disk_full", "time_limit", "preempted"})
"""Classes that end whatever is there at that moment."""
UNEXPLAINED = frozenset({"unknown", "worker_lost", "cancelled"})
"""Classes that say how something ended, and not why."""
CANCELLED = """
SELECT words, count(DISTINCT task_id) AS number FROM ended
WHERE event = 'task_cancelled' AND words IS NOT NULL AND task_id NOT IN (SELECT task_id FROM climbs
    WHERE task_id IS NOT NULL)
GROUP BY words ORDER BY number DESC, words LIMIT 100
"""
"""Why tasks were given up that depend on no failed one, and how many."""
BEFORE_S = 2.0
AFTER_S = 15.0
MOMENT_S = 60.0
"""What went on for longer was no moment: that something else ended meanwhile says nothing."""


def fold(causes: Sequence[Cause]) -> list[Cause]:
    """The causes without those that another one explains; that one says how many failures they were.

    Full disks of one host are one cause, wherever in the code they were met.
    """
    left = _one_disk(list(causes))
    for above in [cause for cause in left if cause.failure_class in FOR_ALL and cause.confidence >= 0.5]:
        taken = [other for other in left if other is not above and _explains(above, other)]
        if taken:
            count = sum(max(other.count, 1) + other.explains.count for other in taken)
            explains = msgspec.structs.replace(
                above.explains, at_that_moment=above.explains.at_that_moment + count
            )
            left = [one for one in left if one not in taken]
            left[left.index(above)] = msgspec.structs.replace(above, explains=explains)
    return left


def _one_disk(causes: list[Cause]) -> list[Cause]:
    first: dict[tuple[str, ...], Cause] = {}
    left: list[Cause] = []
    for cause in sorted(causes, key=lambda cause: (cause.first or "", -cause.count)):
        key = tuple(cause.hosts)
        if cause.failure_class != "disk_full" or cause.confidence < 0.5:
            left.append(cause)
        elif key not in first:
            first[key] = cause
            left.append(cause)
        else:
            one = first[key]
            merged = msgspec.structs.replace(
                one,
                count=one.count + cause.count,
                last=max(one.last or "", cause.last or "") or None,
                recovered=one.recovered + cause.recovered,
                failed=one.failed + cause.failed,
                tasks=_sum(one.tasks, cause.tasks),
                workers=_sum(one.workers, cause.workers),
                evidence=[
                    *one.evidence,
                    *(e for e in cause.evidence if e.text not in {x.text for x in one.evidence}),
                ][:8],
            )
            first[key] = left[left.index(one)] = merged
    return left


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    both = {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
    return dict(sorted(both.items(), key=lambda pair: (-pair[1], pair[0])))


def _explains(above: Cause, other: Cause) -> bool:
    if other.failure_class not in UNEXPLAINED or other.scope in UNFAILED:
        return False
    first, last = unix_time(above.first), unix_time(above.last)
    begun, ended = unix_time(other.first), unix_time(other.last)
    if first is None or last is None or begun is None or ended is None or last - first > MOMENT_S:
        return False
    beside = not above.hosts or not other.hosts or bool({*above.hosts} & {*other.hosts})
    return beside and begun >= first - BEFORE_S and ended <= last + AFTER_S


def lay_cancelled(causes: Sequence[Cause], reasons: Sequence[tuple[str, int]]) -> list[Cause]:
    """The causes, each with the tasks that were given up when the session or the run ended of it."""
    left = list(causes)
    for reason, number in reasons:
        error = (
            reason.removeprefix("the session ended with ")
            if reason.startswith("the session ended with ")
            else None
        )
        status = reason.startswith("the run ended as ")
        for place, cause in enumerate(left):
            kind = (cause.example.error_type or "") if cause.example is not None else ""
            own = cause.scope == "run" and (status or error is not None)
            if own or (error is not None and kind.rpartition(".")[2] == error):
                explains = msgspec.structs.replace(
                    cause.explains, cancelled=cause.explains.cancelled + number
                )
                left[place] = msgspec.structs.replace(cause, explains=explains)
                break
    return left


def in_order(causes: Sequence[Cause]) -> list[Cause]:
    """Root causes first: those of which most came, then the most frequent; what retries mended, and values,
    last.
    """
    return sorted(
        causes,
        key=lambda cause: (
            cause.scope in UNFAILED,
            cause.recovered > 0 and cause.failed == 0,
            -(cause.explains.count + cause.count),
            cause.first or "",
            cause.headline,
        ),
    )


SHOWN = 6
UNFAILED = frozenset({"metric", "device"})
"""Scopes of causes that nothing failed of."""

_NAN = (
    "SELECT timestamp, name, step, nonfinite FROM metrics WHERE nonfinite IS NOT NULL ORDER BY timestamp "
    "LIMIT 10"
)


def of_values(
    values: Sequence[Nonfinite], causes: Sequence[Cause], rules: Mapping[str, Rule], ref: str
) -> list[Cause]:
    """Values that became NaN as a cause of their own; none where a failure is laid to them."""
    if not values or any(cause.failure_class == "numerical" for cause in causes):
        return []
    first = values[0]
    step = "" if first.step is None else f", first at step {first.step}"
    others = f" and {len(values) - 1} other values" if len(values) > 1 else ""
    facts = RunFacts(scope="metric", nonfinite=tuple(one.name for one in values))
    told = [
        Evidence(
            text=f"`{one.name}` was NaN {one.count:,} times"
            if one.count > 1
            else f"`{one.name}` was NaN once",
            source="resources",
            file=one.file,
            event=one.event,
            time=one.first,
        )
        for one in values[:SHOWN]
    ]
    head = f"`{first.name}`{others} became NaN{step}"
    check = f'flightlog sql "{_NAN}" --run {shlex.quote(ref)}'
    checks = [check] if any(one.file == "metrics.jsonl" for one in values) else []
    return [_cause(facts, rules, head, told, checks, sum(one.count for one in values), first.first)]


def of_bundles(
    bundles: Sequence[tuple[float | None, str, str]],
    causes: Sequence[Cause],
    rules: Mapping[str, Rule],
    ref: str,
) -> list[Cause]:
    """Device memory that ran out and was caught; none where a failure is laid to it. Each is time, message,
    folder.
    """
    if not bundles or any(cause.failure_class == "gpu_out_of_memory" for cause in causes):
        return []
    facts = RunFacts(scope="device", device_oom=tuple(message for _, message, _ in bundles))
    told = [
        Evidence(text=message.partition("\n")[0][:240], source="resources", file=f"{folder}/bundle.json")
        for _, message, folder in bundles[:SHOWN]
    ]
    times = "once" if len(bundles) == 1 else f"{len(bundles)} times or more"
    head = f"a device ran out of memory {times}, and the program went on"
    return [_cause(facts, rules, head, told, [f"flightlog devices {shlex.quote(ref)}"], len(bundles), None)]


def _cause(
    facts: RunFacts,
    rules: Mapping[str, Rule],
    headline: str,
    evidence: list[Evidence],
    checks: list[str],
    count: int,
    first: str | None,
) -> Cause:
    judged = weigh(Case(reading=Reading(), facts=facts), rules)
    return Cause(
        failure_class=judged.failure_class,
        confidence=judged.confidence,
        certainty=certainty(judged.failure_class, judged.confidence),
        scope=facts.scope or "metric",
        headline=headline,
        count=count,
        first=first,
        last=first,
        tasks={},
        workers={},
        hosts=[],
        recovered=0,
        failed=0,
        explains=Explained(),
        evidence=evidence,
        suggestions=judged.suggestions,
        checks=checks,
        missing=[],
        also={},
        example=None,
        fingerprint=None,
    )
