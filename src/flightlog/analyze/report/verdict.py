"""The verdict: the first sentence of a report, which names what limited the run most and what to do about
it; or says that nothing did, or that it is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from flightlog.analyze.findings.base import Finding, FindingFacts, split_advice
from flightlog.analyze.findings.cpu import CpuTime, cpu_time, on_cpu, share_text
from flightlog.analyze.findings.spans import place_of_most
from flightlog.analyze.limits import FindingLimits, ReportLimits
from flightlog.analyze.report.critical_path import PathPart
from flightlog.core.text import first_line, first_sentences, plural
from flightlog.core.units import format_count, format_duration, format_percent
from flightlog.events import DEPENDENCY_FAILED
from flightlog.store.slowdown import SlowerThanBefore

FIRST = ("not_finite", "device_memory", "memory_pressure", "stuck_tasks", "hung_tasks", "diverging")
"""What comes before all that is only slow: results that are worthless, or work that does not go on."""
WHOLE = (
    *("not_finite", "diverging", "memory_growth", "device_leak", "device_memory", "idle_gpu"),
    *("data_loading", "waiting_span"),
)
"""Findings whose own sentence is the verdict."""

METRICS = ("not_finite", "diverging")
"""What metrics say of the results."""
LEAKS = ("memory_growth", "device_leak")
"""Memory that grows: sooner or later it ends the run."""

EXPLAINS = {
    "dependency_chain": ("idle_workers",),
    "one_at_a_time": ("idle_workers",),
    "taking_turns": ("idle_workers", "lock_waits"),
    "interpreter_lock": ("lock_waits", "taking_turns"),
}
"""Findings that others are the consequence of, so that ending these alone would save nothing."""

INFLATED = {"cold_starts", "handover", "serialization"}
"""What takes longer on a busy machine, as tasks do: by as much as these."""

LIMITS = {
    "before_tasks": "the program before its first task",
    "busy_machine": "other programs on this machine",
    "cache_misses": "needless cache misses",
    "cancelled_work": "work that was cancelled",
    "cold_starts": "worker start-up",
    "costly_cache": "a cache that costs more than it saves",
    "cpu_wait": "too few cores",
    "dependency_chain": "a chain of tasks that depend on each other",
    "device_leak": "memory of a device that grows",
    "device_memory": "memory of a device",
    "diverging": "a computation that diverges",
    "failed_work": "failed work",
    "handover": "dispatch latency",
    "hung_tasks": "a task that may be stuck",
    "idle_gpu": "an idle GPU",
    "idle_workers": "too little work at the ends of batches",
    "data_loading": "loading data",
    "interpreter_lock": "Python's interpreter lock (GIL)",
    "lock_waits": "locks that tasks wait for",
    "memory_growth": "memory that grows with each task",
    "memory_pressure": "memory",
    "not_finite": "a computation that diverged",
    "one_at_a_time": "tasks that are submitted one at a time",
    "oversubscription": "CPU oversubscription",
    "program_alone": "the program outside of its tasks",
    "serialization": "moving data",
    "slow_workers": "slow workers",
    "swapping": "memory that was swapped out",
    "taking_turns": "tasks that take turns",
    "waiting_span": "waiting",
    "io_wait": "waiting for storage",
    "stolen_time": "a hypervisor that gives cores to others",
    "stragglers": "a few long tasks",
    "stuck_tasks": "a task that may be stuck",
    "throttling": "the CPU quota",
}
"""What a finding is about, by its kind; others are called by it."""


class ReportVerdict(Struct, frozen=True, kw_only=True):
    """What limited a run most."""

    kind: str
    """The finding it is; `none` where nothing limits it, `nothing_recorded` or `unknown`."""
    sentence: str
    """What it is, how much it is, and why."""
    advice: str | None
    """What to try; null where there is nothing to do."""
    share: float | None
    """Of the wall time, what ending it could save at most; null where that cannot be said."""
    saves_s: float | None = None
    """Wall time that ending it would save, by a replay of the run without it; null where that cannot be
    said."""
    certainty: Literal["measured", "likely"] = "measured"
    """Whether it was measured, or is what the measurements look like."""
    failed: str | None = None
    """What failed, which comes before all that is slow; null where nothing did."""
    past: SlowerThanBefore | None = None
    """That it was slower than the same work was before, and why; null where it was not, or none is known."""


def verdict_of(
    facts: FindingFacts, findings: Sequence[Finding], past: SlowerThanBefore | None
) -> ReportVerdict:
    """The one thing to know of a run."""
    failed = _failed(facts)
    return replace(_limit(facts, findings, failed or ""), failed=failed, past=past)


_LAST = """
SELECT error_type, count(*) AS tasks FROM attempt_intervals WHERE state = 'failed' AND NOT retried
GROUP BY error_type ORDER BY tasks DESC, error_type
"""


def _failed(facts: FindingFacts) -> str | None:
    """How many tasks failed for good, and why most of them did; else that the run failed."""
    run, tasks, causes = facts.summary.run, facts.summary.tasks, facts.summary.failures.by_cause
    limit = ReportLimits.max_failure_characters
    if tasks.failed and tasks.submitted:
        rows = facts.tables.execute(_LAST).fetchall()
        consequences = sum(row[1] for row in rows if row[0] == DEPENDENCY_FAILED)
        if 0 < consequences < sum(row[1] for row in rows):
            rows = [row for row in rows if row[0] != DEPENDENCY_FAILED]
        else:
            consequences = 0
        # Of causes that are equally frequent, the one whose failure others depend on.
        with_others: Counter[str | None] = Counter()
        for one in causes:
            with_others[one.error_type] += one.count
        rows.sort(key=lambda row: (-row[1], -with_others[row[0]]))
        kind, number = rows[0] if rows else (None, 0)
        texts = [first_line(one.message or "") for one in causes if one.error_type == kind]
        text = texts[0] if len(texts) == 1 else ""  # of several causes of one type none is said to be it
        because = first_sentences(": ".join(part for part in (kind, text) if part), limit)
        most = f" (most often, {number:,} times)" if len(rows) > 1 else ""
        if len(rows) > 1 and number == rows[1][1]:
            most = " and others"
            if with_others[kind] == with_others[rows[1][0]]:  # no cause is more frequent than the next
                because = ""
        why = f", because of {because.rstrip('.')}{most}" if because else ""
        others = (
            f", and {plural(consequences, 'task that depends on them', 'tasks that depend on them')} with it"
            if consequences
            else ""
        )
        first = format_count(tasks.failed - consequences)
        return _sentence(f"{first} of {plural(tasks.submitted, 'task')} failed{why}{others}")
    if run.status in {"failed", "crashed"}:
        because = first_sentences(run.error, limit).rstrip(".")
        return _sentence(f"The run {run.status}{f', because of {because}' if because else ''}")
    return None


def _sentence(text: str) -> str:
    return text if text.endswith("…") else f"{text}."


def _limit(facts: FindingFacts, findings: Sequence[Finding], failed: str) -> ReportVerdict:
    """What limited the run, where `failed` has said what failed."""
    if facts.missing_tasks and not facts.summary.tasks.submitted:
        return ReportVerdict(
            kind="unknown",
            sentence="What limited this run is not known: "
            f"{plural(facts.missing_tasks, 'task')} that it counted are in none of its files.",
            advice="`flightlog verify` for what is missing",
            share=None,
        )
    grave = _gravest(findings)
    tasks = facts.summary.tasks
    if grave is None and tasks.failed and not tasks.completed and not facts.in_flight:
        return ReportVerdict(
            kind="unknown",
            sentence="What limited this run is not known: no task of it completed.",
            advice=None,
            share=None,
        )
    chosen = grave or _most(facts, findings) or next(filter(_is_last_resort, findings), None)
    if chosen is None and facts.shares is None and facts.critical is None:
        return _nothing_recorded(facts)
    if chosen is None:
        return _nothing_wrong(facts, findings)
    what, advice = split_advice(chosen.sentence)
    what = f"{what.removesuffix('.')}."
    if chosen.kind not in WHOLE:
        most = "Probably limited" if chosen.certainty == "likely" else "Limited"
        what = f"{most} most by {limit_name(chosen)}{_cause(chosen, failed)}{_size(facts, chosen)}."
    return ReportVerdict(
        kind=chosen.kind,
        sentence=what,
        advice=advice or None,
        share=chosen.limits,
        saves_s=chosen.saves_s,
        certainty=chosen.certainty,
    )


def _cause(finding: Finding, failed: str) -> str:
    """What most of the time of failed work was lost to, unless it was said already: tasks that were retried
    have not failed, and may have cost more than those that did.
    """
    said = str(finding.evidence.get("cause") or "")
    cause = first_sentences(said, ReportLimits.max_failure_characters).rstrip(".")
    return f" ({cause})" if finding.kind == "failed_work" and cause and cause not in failed else ""


def _size(facts: FindingFacts, finding: Finding) -> str:
    """`; without it the run would be about 2.0s (54%) shorter`; the part of the wall time where that is not
    known, or little.

    One size alone: the part of the workers' time, beside it, reads as if one of them were wrong.
    """
    saved, wall_s = finding.saves_s, facts.wall_s
    if saved is None or not wall_s or saved < FindingLimits.min_share * wall_s:
        return f", {format_percent(finding.limits)} of the wall time" if finding.limits else ""
    part = format_percent(saved / wall_s)
    return f"; without it the run would be about {format_duration(saved)} ({part}) shorter"


def limit_name(finding: Finding) -> str:
    """What a finding is about, in a few words."""
    return LIMITS.get(finding.kind, finding.kind.replace("_", " "))


def _is_grave(finding: Finding) -> bool:
    """Whether it comes before all that is slow: memory that ran short does if processes were killed, or if it
    cost much; metrics if they are sure to say that the results are worthless.
    """
    if finding.kind in METRICS:
        return finding.certainty == "measured"
    kills = bool(finding.evidence.get("oom_kills"))
    return (
        finding.kind != "memory_pressure"
        or kills
        or (finding.limits or 0.0) >= ReportLimits.min_limiting_share
    )


def _is_last_resort(finding: Finding) -> bool:
    """Whether it is worth saying where nothing costs time: a GPU that nobody uses, and workers whose memory
    grows with each task, however long it takes to the limit. A program may keep what it makes.
    """
    return finding.kind == "idle_gpu" or (finding.kind == "memory_growth" and "tasks" in finding.evidence)


def _gravest(findings: Sequence[Finding]) -> Finding | None:
    """What comes before all that is slow; None where there is no such finding.

    Memory that ran short because it grew is told as its growth.
    """
    for kind in FIRST:
        for one in findings:
            if one.kind == kind and _is_grave(one):
                grew = [other for other in findings if other.kind == "memory_growth"]
                return grew[0] if kind == "memory_pressure" and grew else one
    return None


def _most(facts: FindingFacts, findings: Sequence[Finding]) -> Finding | None:
    """The finding that limits most; None where none is worth a first sentence."""
    kinds = {one.kind for one in findings}
    explained = {kind for cause in kinds for kind in EXPLAINS.get(cause, ())}
    competing = [one for one in findings if one.kind not in explained]
    weights = [_weight(facts, one) for one in competing]
    busy = next((n for n, one in enumerate(competing) if one.kind == "busy_machine"), None)
    if busy is not None:
        # On an idle machine these would take a part of the time: the rest is what other programs took.
        part = 1 / (competing[busy].evidence["slowdown"] or inf)
        for n, one in enumerate(competing):
            if one.kind in INFLATED:
                weights[busy] += weights[n] * (1 - part)
                weights[n] *= part
    weight, most = max(zip(weights, competing, strict=True), key=lambda pair: pair[0], default=(0.0, None))
    return most if weight >= ReportLimits.min_limiting_share else None


def _weight(facts: FindingFacts, finding: Finding) -> float:
    """The part of the wall time that ending it would save, as far as it is known."""
    if finding.kind in LEAKS:
        return ReportLimits.leak_share if finding.evidence.get("reaches_limit", True) else 0.0
    if finding.saves_s is None or not facts.wall_s or finding.kind == "data_loading":
        return finding.limits or 0.0  # loading ahead is not the only remedy
    if finding.kind == "cold_starts" and finding.saves_s < ReportLimits.min_start_up_s:
        return 0.0
    return finding.saves_s / facts.wall_s


def _nothing_recorded(facts: FindingFacts) -> ReportVerdict:
    tasks = facts.summary.tasks
    if tasks.submitted:
        return ReportVerdict(
            kind="unknown",
            sentence="What limited this run is not known: of its "
            f"{plural(tasks.submitted, 'task')} no start is on record.",
            advice=None,
            share=None,
        )
    process = facts.summary.resources.process
    cores = process.cpu_cores.mean if process is not None else None
    used = f" It used {cores:.1f} cores on average." if cores is not None else ""
    return ReportVerdict(
        kind="nothing_recorded",
        sentence="What limited this run is not known: no task and no span of it was recorded; pools and "
        f"threads that the program starts by itself are not seen.{used}",
        advice="`with flightlog.span(...)` around the steps of the program, or a session for its pool",
        share=None,
    )


def _nothing_wrong(facts: FindingFacts, findings: Sequence[Finding]) -> ReportVerdict:
    said = []
    path = facts.critical
    place = place_of_most(path)
    if path is not None and place is not None:
        around = "".join(f" inside {name}" for name in reversed(place.names[:-1][-2:]))
        size = f"{format_percent(place.share)} ({format_duration(place.seconds)})"
        said.append(f"{size} of the {format_duration(path.wall_s)} was {place.names[-1]}{around}")
    elif path is not None and path.parts:
        main = path.parts[0]
        size = f"{format_percent(main.share)} ({format_duration(main.seconds)})"
        said.append(f"{size} of the {format_duration(path.wall_s)} was {_name(main)}")
    spent = cpu_time(facts)
    if spent is not None and spent.ran_s:
        said.append(_by_cpu(facts, spent))
    elif facts.summary.tasks.completed:
        said.append("whether tasks waited for a CPU was not measured")
    small = max(findings, key=lambda one: _weight(facts, one), default=None)
    if small is not None and (share := _weight(facts, small)):
        said.append(f"the largest loss was {limit_name(small)}, {format_percent(share)}")
    return ReportVerdict(
        kind="none",
        sentence=f"Nothing stands out{': ' + '; '.join(said) if said else ''}.",
        advice=None,
        share=None,
    )


def _by_cpu(facts: FindingFacts, spent: CpuTime) -> str:
    """What tasks did with their time; where it is processes that they started which computed, what the run
    used with all of these.
    """
    if on_cpu(spent) >= 0.5:
        return f"tasks spent {share_text(spent)}"
    process = facts.summary.resources.process
    own_s = max(spent.on_cpu_s, spent.all_threads_s)
    with_children_s = process.cpu_s if process is not None and process.cpu_s is not None else 0.0
    if with_children_s >= own_s + 0.1 * spent.ran_s and facts.wall_s:
        cores = with_children_s / facts.wall_s
        return f"the run, with all processes that it started, used {cores:.1f} cores on average"
    return f"tasks spent {share_text(spent)}{_waits(facts)}"


_WAITS = """
SELECT sum(stopped - began), sum(in_ns(sleep_s)), sum(in_ns(io_wait_s)), sum(in_ns(lock_wait_s)),
    sum(in_ns(cpu_wait_s))
FROM attempt_intervals WHERE state = 'completed' AND began < stopped
"""


def _waits(facts: FindingFacts) -> str:
    """What tasks mostly waited for, where that was seen."""
    ran, *waits = facts.tables.execute(_WAITS).fetchall()[0]
    kinds = (
        *("asleep", "waiting for files, sockets or other processes"),
        *("waiting for locks or other threads", "waiting for a CPU"),
    )
    known = [(waited, kind) for waited, kind in zip(waits, kinds, strict=True) if waited]
    most, kind = max(known, default=(0, ""))
    return (
        f", most of the rest {kind}" if ran and most >= 0.25 * ran else ", and waited for something unknown"
    )


def _name(part: PathPart) -> str:
    return {"program": f"the program {part.name}", "wait": f"waiting to start {part.name}"}.get(
        part.kind, part.name
    )
