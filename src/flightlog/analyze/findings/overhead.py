"""Overhead: dispatch latency while tasks were queued, worker start-up, and moving data."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.findings.base import ENOUGH, Finding, FindingFacts, cost_text, matters
from flightlog.core.text import plural
from flightlog.core.time import seconds
from flightlog.core.units import format_bytes, format_duration


def handover(facts: FindingFacts) -> Iterable[Finding]:
    """The scheduler's share, where it stands out, against the length of the tasks."""
    if facts.shares is None or facts.shares.basis != "workers":
        return
    whole = facts.shares.whole
    if not matters(facts, whole.scheduler_s) or not whole.attempts:
        return
    each = whole.scheduler_s / whole.attempts
    median = facts.summary.tasks.duration_s.p50
    short = median is not None and median < 20 * each
    usual = f", and half of all tasks take {format_duration(median)} or less" if median is not None else ""
    advice = (
        "giving each task several pieces of work" if short else "looking at what the scheduler was doing then"
    )
    yield facts.finding(
        "handover",
        whole.scheduler_s,
        f"{cost_text(facts, whole.scheduler_s)} went to scheduling overhead, because "
        f"dispatch latency was {format_duration(each)} on average{usual}; try {advice}.",
        {"handover_s": each, "attempts": whole.attempts, "median_task_s": median},
    )


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


def cold_starts(facts: FindingFacts) -> Iterable[Finding]:
    """Start-up of workers, and the time that first tasks of twice the usual length took beyond the median."""
    if facts.shares is None or facts.shares.basis != "workers":
        return
    start_up = facts.shares.whole.startup_s
    row = facts.tables.execute(_FIRST, {"enough": ENOUGH}).fetchone()
    slow, beyond = (int(row[0]), seconds(round(row[1]))) if row is not None else (0, 0.0)
    lost = start_up + beyond
    if not matters(facts, lost):
        return
    workers = facts.shares.workers
    each = f"each of {plural(workers, 'worker')} took {format_duration(start_up / workers)} to start"
    first = f"{plural(slow, 'first task')} took {format_duration(beyond)} longer than usual"
    reasons = [each] * bool(start_up) + [first] * bool(slow)
    yield facts.finding(
        "cold_starts",
        lost,
        f"{cost_text(facts, lost)} went to worker start-up, because {' and '.join(reasons)}; "
        "try keeping workers for several runs, importing less when they start, or larger batches.",
        {
            "startup_s": start_up,
            "workers": workers,
            "slow_first_tasks": slow,
            "beyond_usual_s": beyond,
        },
        where=sorted(
            facts.shares.by_worker,
            key=lambda name: (-facts.shares.by_worker[name].startup_s, name),  # type: ignore[union-attr]
        )[:3],
    )


LARGE_BYTES, MUCH_BYTES = 10 << 20, 1 << 30
"""Size of a result, and of all results, from which moving them is reported."""

_RESULTS = """
SELECT task, count(*), sum(result_bytes) AS bytes FROM attempt_intervals
WHERE state = 'completed' AND result_bytes IS NOT NULL GROUP BY task ORDER BY bytes DESC, task LIMIT 1
"""


def serialization(facts: FindingFacts) -> Iterable[Finding]:
    """Transfer time where spans tell it; else the task name with the largest results, its cost unknown."""
    row = facts.tables.execute(_RESULTS).fetchone()
    task, results, total = (row[0], int(row[1]), int(row[2])) if row is not None else ("", 0, 0)
    largest = f"{plural(results, 'result')} of {task} came to {format_bytes(total)}"
    evidence = {"task": task or None, "results": results, "result_bytes": total}
    try_ = "try returning less, writing large results to files, or working where the data is"
    lost = facts.shares.whole.transfer_s if facts.shares is not None else None
    if matters(facts, lost):
        assert lost is not None
        because = f", because {largest}" if total >= LARGE_BYTES else ""
        yield facts.finding(
            "serialization",
            lost,
            f"{cost_text(facts, lost)} went to moving and serializing data{because}; {try_}.",
            evidence,
            where=[task] if task else [],
        )
    elif lost is None and results and total >= MUCH_BYTES and total / results >= LARGE_BYTES:
        yield facts.finding(
            "serialization",
            None,
            f"An unknown part of this run went to moving results, because {largest}, "
            f"{format_bytes(total / results)} each; {try_}.",
            evidence,
            where=[task],
        )
