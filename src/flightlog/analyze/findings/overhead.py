"""Overhead: dispatch latency while tasks were queued, worker start-up, and moving data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from flightlog.analyze.findings.base import Finding, FindingFacts, cost_text, matters
from flightlog.analyze.limits import FindingLimits
from flightlog.analyze.report.replay import Changes
from flightlog.core.text import listed, plural
from flightlog.core.time import seconds
from flightlog.core.units import format_bytes, format_duration


def overhead(facts: FindingFacts) -> Iterable[Finding]:
    """What workers did that was no work, in three parts, with one look at the data that was moved."""
    data = moved(facts)
    yield from cold_starts(facts, data)
    yield from handover(facts, data)
    yield from serialization(facts, data)


def handover(facts: FindingFacts, data: Moved) -> Iterable[Finding]:
    """The scheduler's share, where it stands out, against the length of the tasks."""
    if facts.shares is None or facts.shares.basis != "workers":
        return
    whole = facts.shares.whole
    lost = max(0.0, whole.scheduler_s - data.imports_s)
    if not matters(facts, lost) or not whole.attempts or data.holds_up:
        return
    each = lost / whole.attempts
    median = facts.summary.tasks.duration_s.p50
    short = median is not None and median < 20 * each
    usual = f", and half of all tasks take {format_duration(median)} or less" if median is not None else ""
    advice = (
        "giving each task several pieces of work" if short else "looking at what the scheduler was doing then"
    )
    yield facts.finding(
        "handover",
        lost,
        f"{cost_text(facts, lost)} went to scheduling overhead, because "
        f"dispatch latency was {format_duration(each)} on average{usual}; try {advice}.",
        {"handover_s": each, "attempts": whole.attempts, "median_task_s": median},
        saves_s=_without_latency(facts, lost),
    )


def _without_latency(facts: FindingFacts, lost_s: float) -> float | None:
    """What it would save if tasks began at once on a free worker: no more than workers were free for it."""
    saved = facts.saved(Changes(latency=0.0))
    return None if saved is None else min(saved, lost_s)


_FIRST = """
WITH earliest AS (
    SELECT worker, min(began) AS began FROM attempt_intervals WHERE state = 'completed' AND worker IS NOT NULL
        GROUP BY worker
), first AS ( -- of several that began at that very moment one, and always the same
    SELECT task, stopped - began AS lasted FROM attempt_intervals JOIN earliest USING (worker, began)
        WHERE state = 'completed'
    QUALIFY row_number() OVER (PARTITION BY worker ORDER BY task_id, attempt) = 1
), usual AS (
    SELECT task, median(stopped - began) AS usual FROM attempt_intervals WHERE state = 'completed'
    GROUP BY task HAVING count(stopped - began) >= $enough
)
SELECT count(*), coalesce(sum(lasted - usual), 0) FROM first JOIN usual USING (task) WHERE lasted >= 2 * usual
"""


_NEVER_READY = """
SELECT uptimes.worker, sum(gaps.until - gaps.since)
FROM gaps JOIN (SELECT lane, worker FROM uptimes) AS uptimes USING (lane)
GROUP BY uptimes.worker HAVING NOT bool_or(gaps.ready) AND NOT bool_or(gaps.attempt)
"""


_FIRST_LAUNCH = """
SELECT greatest(0, (SELECT min(launched) FROM worker_launches WHERE ready IS NOT NULL)
    - (SELECT min(coalesce(submitted, waits)) FROM attempt_intervals))
"""


def cold_starts(facts: FindingFacts, data: Moved) -> Iterable[Finding]:
    """Start-up of workers, and the time that first tasks of twice the usual length took beyond the median;
    and what tasks waited before the first worker was launched, as in the queue of a cluster.

    Workers that never became ready, and executed nothing, are failures and no start-up.
    """
    if facts.shares is None or facts.shares.basis != "workers":
        return
    never = {worker: seconds(int(lived)) for worker, lived in facts.tables.execute(_NEVER_READY).fetchall()}
    start_up = facts.shares.whole.startup_s - sum(never.values())
    row = facts.tables.execute(_FIRST, {"enough": FindingLimits.min_tasks_for_usual}).fetchone()
    slow, beyond = (int(row[0]), seconds(round(row[1]))) if row is not None else (0, 0.0)
    imports = data.imports_s
    lost = start_up + beyond + imports
    queued = seconds(int(facts.tables.scalar(_FIRST_LAUNCH) or 0))
    long_queued = queued >= FindingLimits.min_share * facts.wall_s
    if not matters(facts, lost) and not (long_queued and matters(facts, queued)):
        return
    workers = max(1, facts.shares.workers - len(never))
    each = f"each of {plural(workers, 'worker')} took {format_duration(start_up / workers)} to start"
    first = f"{plural(slow, 'first task')} took {format_duration(beyond)} longer than usual"
    reasons = [each] * bool(start_up) + [first] * bool(slow)
    if long_queued:
        reasons.append(f"tasks waited {format_duration(queued)} for the first of them to be launched")
    if imports >= 0.1 * lost:
        reasons.append(f"importing what tasks need took {format_duration(imports)}")
    yield facts.finding(
        "cold_starts",
        lost,
        f"{cost_text(facts, lost)} went to worker start-up, because {listed(reasons)}; "
        "try keeping workers for several runs, importing less when they start, or larger batches.",
        {
            "startup_s": start_up,
            "workers": workers,
            "slow_first_tasks": slow,
            "beyond_usual_s": beyond,
            "queued_s": queued,
        },
        saves_s=_without_start_up(facts),
        where=sorted(
            facts.shares.by_worker.keys() - never.keys(),
            key=lambda name: (-facts.shares.by_worker[name].startup_s, name),  # type: ignore[union-attr]
        )[:3],
    )


_USUAL_FIRST = """
WITH found AS (
    SELECT n, task, stopped - began AS lasted,
        row_number() OVER in_order AS turn, lead(stopped - began) OVER in_order AS next
    FROM (SELECT n, task_id, attempt FROM nodes) AS numbers JOIN attempt_intervals USING (task_id, attempt)
    WHERE state = 'completed' AND worker IS NOT NULL
    WINDOW in_order AS (PARTITION BY worker ORDER BY began, n)
), usual AS (
    SELECT task, median(lasted) AS usual FROM found GROUP BY task HAVING count(*) >= $enough
)
SELECT n, CAST(usual AS BIGINT) FROM found JOIN usual USING (task)
WHERE turn = 1 AND lasted >= 2 * usual AND lasted >= 2 * next -- and not because the longest came first
"""


def _without_start_up(facts: FindingFacts) -> float | None:
    """What it would save if workers were ready when launched, and first tasks took what is usual."""
    if facts.replay is None:
        return None
    rows = facts.tables.execute(_USUAL_FIRST, {"enough": FindingLimits.min_tasks_for_usual}).fetchall()
    return facts.saved(Changes(start_up=False, lasts=dict(rows)))


_MOVED = """
SELECT task, count(*), coalesce(sum(call_bytes), 0), coalesce(sum(result_bytes), 0),
    coalesce(sum(in_ns(serialize_s)) FILTER (greatest(call_bytes, result_bytes) >= $sizable), 0),
    count(result_bytes),
    coalesce(sum(in_ns(serialize_s)) FILTER (coalesce(greatest(call_bytes, result_bytes), 0) < $sizable), 0),
    coalesce(sum(in_ns(session_serialize_s)) FILTER (greatest(call_bytes, result_bytes) >= $sizable), 0),
    coalesce(sum(call_bytes), 0) + coalesce(sum(result_bytes) FILTER (session_serialize_s IS NOT NULL), 0)
FROM attempt_intervals WHERE state = 'completed' GROUP BY task
ORDER BY coalesce(sum(call_bytes), 0) + coalesce(sum(result_bytes), 0) DESC, task
"""


class Moved(NamedTuple):
    """What was moved to workers and back."""

    task: str
    """The name that most of it is of; the next three are of that name."""
    attempts: int
    calls_bytes: int
    results_bytes: int
    results: int
    serialize_s: float
    """What workers took to read calls and to write results, where these are sizable."""
    imports_s: float
    """What they took to read small calls: importing the modules that these need."""
    latency_s: float
    """Dispatch latency that is data on its way."""

    @property
    def holds_up(self) -> bool:
        """Whether workers waited for data, and not for the scheduler."""
        return self.latency_s > 0


def moved(facts: FindingFacts) -> Moved:
    """The data that completed tasks took and gave."""
    rows = facts.tables.execute(_MOVED, {"sizable": FindingLimits.sizable_data_bytes}).fetchall()
    task, attempts, calls, results, _, known, *_ = rows[0] if rows else ("", 0, 0, 0, 0, 0)
    size = sum(int(row[2]) + int(row[3]) for row in rows)
    latency = facts.shares.whole.scheduler_s if facts.shares is not None else 0.0
    serialize_s = seconds(sum(int(row[4]) for row in rows))
    session_s = seconds(sum(int(row[7]) for row in rows))
    sizable = size >= FindingLimits.sizable_data_bytes * sum(row[1] for row in rows)
    moving = (
        sizable
        and max(
            size / FindingLimits.max_transfer_bytes_per_s,
            # One program sends all calls and receives the results of a session, while each of its workers
            # waits. Results of a watched client's tasks stay on workers, which fetch them from each other.
            sum(int(row[8]) for row in rows) / FindingLimits.max_transfer_bytes_per_s * facts.workers,
            FindingLimits.min_transfer_steps * serialize_s,
            serialize_s + session_s,
        )
        >= FindingLimits.min_transfer_share_of_latency * latency
    )
    return Moved(
        task=task,
        attempts=attempts,
        calls_bytes=int(calls),
        results_bytes=int(results),
        results=known,
        serialize_s=serialize_s,
        imports_s=seconds(sum(int(row[6]) for row in rows)),
        latency_s=latency if moving else 0.0,
    )


def serialization(facts: FindingFacts, found: Moved) -> Iterable[Finding]:
    """Time spent on moving data: by spans that tell it, by what workers took to serialize it, and by dispatch
    latency that is data on its way; else the task name with the largest results, its cost unknown.
    """
    told = facts.shares.whole.transfer_s if facts.shares is not None else None
    # Calls are read before a task begins: that is part of the latency.
    lost = min(facts.total_s, (told or 0.0) + max(found.serialize_s, found.latency_s))
    large = [
        f"{format_bytes(size / number)} of {what}"
        for what, size, number in (
            ("arguments", found.calls_bytes, found.attempts),
            ("results", found.results_bytes, found.results),
        )
        if number and size / number >= FindingLimits.large_result_bytes / 10
    ]
    largest = f"each {found.task} moved {' and '.join(large)}"
    evidence = {
        "task": found.task or None,
        "attempts": found.attempts,
        "call_bytes": found.calls_bytes,
        "result_bytes": found.results_bytes,
        "serialize_s": found.serialize_s,
        "latency_s": found.latency_s,
        "transfer_s": told,
    }
    try_ = "try passing less, keeping large data in files that tasks read, or working where the data is"
    known = matters(facts, lost)
    if not known and (
        told is not None
        or found.results_bytes < FindingLimits.large_total_result_bytes
        or found.results_bytes / found.results < FindingLimits.large_result_bytes
        or found.serialize_s
    ):
        return
    because = f", because {largest}" if large else ""
    likely = known and found.holds_up and not told
    yield facts.finding(
        "serialization",
        lost if known else None,
        f"{cost_text(facts, lost)} went to moving and serializing data{because}; {try_}."
        if known
        else f"An unknown part of this run went to moving results{because}; {try_}.",
        evidence,
        where=[found.task] if found.task else [],
        saves_s=_without_latency(facts, lost) if likely else None,
        certainty="likely" if likely else "measured",
    )


SYMPTOMS = (overhead,)
