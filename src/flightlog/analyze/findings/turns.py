"""Tasks that take turns at something that only one can have at a time: a lock, a file, a server."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.findings.base import Finding, FindingFacts, cost_text, matters
from flightlog.analyze.limits import FindingLimits
from flightlog.analyze.report.replay import Changes
from flightlog.core.time import seconds
from flightlog.core.units import format_duration

_TURNS = """
WITH found AS (
    SELECT task, worker, began, stopped, stopped - began AS lasted,
        in_ns(thread_cpu_s) + coalesce(in_ns(cpu_wait_s), 0) AS active
    FROM attempt_intervals WHERE state = 'completed' AND began < stopped AND thread_cpu_s IS NOT NULL
), gaps AS (
    SELECT *, stopped - lag(stopped) OVER (PARTITION BY task ORDER BY stopped, began) AS gap,
        greatest(0, stopped - greatest(began, coalesce(max(stopped) OVER (PARTITION BY task
            ORDER BY began, stopped ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), began))) AS added
    FROM found
)
SELECT task, count(*), sum(lasted), sum(active), sum(lasted) / sum(added) AS at_once,
    median(gap) AS usual_gap, quantile_cont(gap, 0.1) AS least_gap, min(lasted), median(lasted) AS usual,
    sum(added) / count(*) AS mean_gap
FROM gaps GROUP BY task
HAVING count(*) >= $tasks AND count(DISTINCT worker) > 1 AND sum(added) > 0
ORDER BY sum(lasted) DESC, task
"""


def taking_turns(facts: FindingFacts) -> Iterable[Finding]:
    """Tasks of which about one at a time is at work, and one ends after the other at equal distances however
    many run at once, while one that was alone took about as long as that distance.

    Tasks that wait for different things end at random, or together; tasks of equal length that began at
    different times end at equal distances, but none of them is shorter than the others.
    """
    if facts.replay is None:
        return  # too many tasks to sort
    for task, _, ran, active, at_once, gap, least_gap, shortest, usual, mean_gap in facts.tables.execute(
        _TURNS, {"tasks": FindingLimits.min_tasks_in_turn}
    ).fetchall():
        lost = seconds(int(max(0, ran - shortest * (ran / usual))))
        if (
            at_once < FindingLimits.min_at_once_in_turn
            or active > FindingLimits.max_active_in_turn * ran / at_once
            or not gap
            or least_gap < FindingLimits.min_regular_gap * gap
            or gap < FindingLimits.min_regular_gap * mean_gap
            or usual < FindingLimits.min_longer_in_turn * shortest
            or shortest < FindingLimits.min_regular_gap * gap  # it did not have what the others wait for
            or shortest > FindingLimits.max_turn_share_alone * gap
            or not matters(facts, lost)
        ):
            continue
        yield facts.finding(
            "taking_turns",
            lost,
            f"{cost_text(facts, lost)} went to tasks waiting for each other, because {task} ended one after "
            f"the other, every {format_duration(seconds(round(gap)))}, though {at_once:.1f} ran at once: "
            "they take turns at something that only one can have, such as a lock, a file or a server; try "
            "holding it for less time, or one for each task.",
            {
                "task": task,
                "turn_s": seconds(round(gap)),
                "alone_s": seconds(int(shortest)),
                "median_s": seconds(round(usual)),
                "tasks_at_once": at_once,
            },
            where=[task],
            saves_s=facts.saved(
                Changes(
                    lasts=facts.of_attempts(str(int(shortest)), "task = $1 AND state = 'completed'", [task])
                )
            ),
            certainty="likely",
        )
        return


_LOCKS = """
SELECT task, count(*), sum(stopped - began) AS ran, sum(in_ns(lock_wait_s)) AS waited
FROM attempt_intervals WHERE state = 'completed' AND began < stopped AND lock_wait_s IS NOT NULL
GROUP BY task HAVING count(DISTINCT worker) > 1 ORDER BY waited DESC, task LIMIT 1
"""


def lock_waits(facts: FindingFacts) -> Iterable[Finding]:
    """Tasks that were seen waiting for a lock, or for other threads, for much of their time."""
    row = facts.tables.execute(_LOCKS).fetchone()
    if row is None or row[1] < FindingLimits.min_tasks_for_usual:
        return
    task, _, ran, waited = row
    lost = seconds(int(waited))
    if waited < FindingLimits.min_lock_share * ran or not matters(facts, lost):
        return
    lasts = facts.of_attempts(
        "greatest(0, stopped - began - in_ns(lock_wait_s))", "task = $1 AND lock_wait_s IS NOT NULL", [task]
    )
    yield facts.finding(
        "lock_waits",
        lost,
        f"{cost_text(facts, lost)} went to {task} waiting for locks or for other threads; try holding locks "
        "for less time, or one for each task.",
        {"task": task, "lock_wait_s": lost, "executed_s": seconds(int(ran))},
        where=[task],
        saves_s=facts.saved(Changes(lasts=lasts)),
        certainty="likely",
    )


SYMPTOMS = (taking_turns, lock_waits)
