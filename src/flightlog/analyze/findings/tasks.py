"""Single tasks: stragglers, tasks that may be stuck, and attempts that failed, were retried or were
cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from flightlog.analyze.findings.base import (
    Behind,
    Finding,
    FindingFacts,
    call,
    cost_text,
    idle_before_retries,
    matters,
)
from flightlog.analyze.limits import FindingLimits
from flightlog.analyze.report.replay import Changes
from flightlog.analyze.report.tasks import InFlight
from flightlog.core.stats import exact_sum
from flightlog.core.text import cut, first_line, plural
from flightlog.core.time import SECOND, moment, seconds
from flightlog.core.units import format_duration
from flightlog.store.tables.views import PUT_BACK


def stragglers(facts: FindingFacts) -> Iterable[Finding]:
    """Idle time behind tasks of at least twice the median of their name, of which five or more completed. An
    attempt that failed is failed work, and no slow task.
    """
    found = [one for one in facts.behind if one.is_straggler and not one.failed]
    lost = exact_sum(one.idle_s for one in found)
    if not matters(facts, lost):
        return
    worst = found[0]
    assert worst.usual_s is not None
    times = worst.lasted_s / worst.usual_s if worst.usual_s else None
    much = f"{times:.1f} times" if times is not None else "longer than"
    yield facts.finding(
        "stragglers",
        lost,
        f"{cost_text(facts, lost)} went to workers with nothing left to do while "
        f"{plural(len(found), 'slow task')} still ran, because {call(worst.task, worst.args)} took "
        f"{format_duration(worst.lasted_s)}, {much} the median of {format_duration(worst.usual_s)}; try "
        "starting the longest first, or splitting them.",
        {
            "tasks": len(found),
            "workers_idle": worst.workers,
            "worst_s": worst.lasted_s,
            "median_s": worst.usual_s,
            "idle_behind_worst_s": worst.idle_s,
        },
        where=[call(one.task, one.args) for one in found[:3]],
        saves_s=facts.saved(Changes(lasts=_usual_lengths(facts, found))),
    )


def _usual_lengths(facts: FindingFacts, slow: Sequence[Behind]) -> dict[int, int]:
    """The median of its name for each of these tasks, by its number in the replay."""
    usual = {(one.task_id, one.attempt): round((one.usual_s or 0.0) * SECOND) for one in slow}
    if facts.replay is None:
        return {}
    rows = facts.tables.execute(
        "SELECT n, task_id, attempt FROM nodes WHERE task_id IN (SELECT unnest($1::VARCHAR[]))",
        [[one.task_id for one in slow]],
    ).fetchall()
    return {n: usual[task_id, attempt] for n, task_id, attempt in rows if (task_id, attempt) in usual}


def stuck_tasks(facts: FindingFacts) -> Iterable[Finding]:
    """Tasks that may be stuck, however short the run."""
    found = [one for one in facts.in_flight if one.stuck and one.kind == "task"]
    if not found:
        return
    lost = exact_sum(one.elapsed_s or 0.0 for one in found)
    worst = found[0]
    assert worst.usual is not None
    of = " of earlier runs" if worst.usual.of == "history" else ""
    times = f", {worst.ratio:,.0f} times the median{of}" if worst.ratio is not None else ""
    ran = "has been running" if facts.summary.run.status == "running" else "had been running"
    yield facts.finding(
        "stuck_tasks",
        lost,
        f"{cost_text(facts, lost)} went to {plural(len(found), 'task')} that may be stuck, because "
        f"{_named(worst)} {ran}{f' on {worst.worker}' if worst.worker else ''} for "
        f"{format_duration(worst.elapsed_s)}{times}; try a timeout, or look at what it waits for.",
        {
            "tasks": len(found),
            "worst_s": worst.elapsed_s,
            "median_s": worst.usual.p50,
            "p95_s": worst.usual.p95,
        },
        where=[_named(one) for one in found[:3]],
        certainty="likely",
    )


_ENDED = """
SELECT task, max(stopped - began), max(stopped) FROM attempt_intervals
WHERE state <> 'running' AND began IS NOT NULL GROUP BY task
"""
_CPU_TIME = """
SELECT (max(cpu_s) - min(cpu_s)) / nullif(epoch(max("timestamp")) - epoch(min("timestamp")), 0) AS cores,
    epoch(max("timestamp")) - epoch(min("timestamp")) AS covered
FROM samples_of_run
WHERE scope IN ('worker', 'worker_process') AND cpu_s IS NOT NULL AND at_ns("timestamp") >= $since
GROUP BY host, pid, scope, worker = $worker
ORDER BY (scope = 'worker_process' AND coalesce(worker = $worker, false)) DESC, cores DESC
"""


def hung_tasks(facts: FindingFacts) -> Iterable[Finding]:
    """Tasks of which too few have ended to know what is usual, that have gone on for far longer than those of
    their name; and those that are the first of their name, where for minutes nothing ended and their worker
    used no CPU.
    """
    rows = facts.tables.execute(_ENDED).fetchall()
    longest = {name: seconds(int(lasted)) for name, lasted, _ in rows if lasted is not None}
    until, last = facts.tables.window[1], max((row[2] for row in rows if row[2] is not None), default=None)
    if until is None or last is None:
        return
    quiet = seconds(max(0, until - last))
    found = [
        one
        for one in facts.in_flight
        if one.kind == "task" and one.stuck is None and _is_hung(facts, one, longest.get(one.name), quiet)
    ]
    if not found:
        return
    worst = max(found, key=lambda one: one.elapsed_s or 0.0)
    lost = exact_sum(one.elapsed_s or 0.0 for one in found)
    others = longest.get(worst.name)
    because = (
        "its worker uses no CPU"
        if others is None
        else f"no other task of its name took more than {format_duration(others)}"
    )
    yield facts.finding(
        "hung_tasks",
        lost,
        f"{cost_text(facts, lost)} went to {plural(len(found), 'task')} that may be stuck, because "
        f"{_named(worst)} has had no end for {format_duration(worst.elapsed_s)}, nothing else ended in the "
        f"last {format_duration(quiet)}, and {because}; try a timeout, or look at what it waits for.",
        {"tasks": len(found), "worst_s": worst.elapsed_s, "quiet_s": quiet},
        where=[_named(one) for one in found[:3]],
        certainty="likely",
    )


def _is_hung(facts: FindingFacts, one: InFlight, longest_s: float | None, quiet_s: float) -> bool:
    """Whether a task of which nothing is usual has gone on for too long, by the longest of its name."""
    if one.elapsed_s is None:
        return False
    if longest_s is not None:
        least = max(FindingLimits.min_hung_s, FindingLimits.hung_ratio * longest_s)
        return min(one.elapsed_s, quiet_s) >= least
    if min(one.elapsed_s, quiet_s) < FindingLimits.min_hung_alone_s:
        return False
    found = facts.tables.execute(_CPU_TIME, {"since": moment(one.since), "worker": one.worker}).fetchone()
    return (
        found is not None
        and found[0] is not None
        and found[0] <= FindingLimits.max_cores_of_hung
        and found[1] >= 0.5 * one.elapsed_s
    )


def _named(one: InFlight) -> str:
    return call(one.name, msgspec.json.encode(one.args).decode() if one.args else None)


_BEGUN = f"""
SELECT attempt_intervals.* REPLACE (CASE WHEN put_back THEN 'put back' ELSE state END AS state)
FROM attempt_intervals LEFT JOIN (
    SELECT DISTINCT task_id, attempt, true AS put_back FROM task_lines WHERE kind = 4 AND {PUT_BACK}
) USING (task_id, attempt) WHERE began IS NOT NULL
"""  # noqa: S608 - a constant
"""Attempts that began; those that their engine put back by itself have not failed."""
_COSTLIEST = f"""
SELECT coalesce(ended.error_type, split_part(retries.reason, ':', 1)) AS kind,
    arg_max(retries.reason, stopped - began) AS why
FROM ({_BEGUN}) AS ended
    LEFT JOIN (SELECT task_id, attempt, reason FROM task_lines WHERE kind = 4) AS retries
    USING (task_id, attempt)
WHERE ended.state = 'failed' GROUP BY ALL ORDER BY sum(stopped - began) DESC, 1 LIMIT 1
"""  # noqa: S608 - a constant
"""Attempts that were retried may have no end of their own, and so no type of error: why they were retried
begins with it, or with what happened to their worker."""
_FAILED = f"""
SELECT task, count(*), count(*) FILTER (retried), sum(stopped - began) AS ns
FROM ({_BEGUN}) WHERE state = $1 GROUP BY task ORDER BY ns DESC, task
"""  # noqa: S608 - a constant


def failed_work(facts: FindingFacts) -> Iterable[Finding]:
    """Time in which workers were held by nothing but attempts that failed or were retried, or had nothing to
    do because tasks waited to be retried; beside it, that of attempts that were cancelled, which may have
    been on purpose.
    """
    if facts.shares is None:
        return
    delayed = idle_before_retries(facts)
    if not matters(facts, facts.shares.whole.failed_s + delayed):
        return
    states = ("failed", "cancelled", "put back")
    rows, cancelled, put_back = (facts.tables.execute(_FAILED, [one]).fetchall() for one in states)
    parts = [sum(row[3] for row in one) for one in (rows, cancelled, put_back)]
    held, given_up, _ = (facts.shares.whole.failed_s * part / (sum(parts) or 1) for part in parts)
    if matters(facts, given_up):
        yield _cancelled(facts, given_up, cancelled)
    lost = held + delayed
    if not matters(facts, lost):
        return
    attempts, retried = (sum(row[n] for row in rows) for n in (1, 2))
    said = _costliest(facts)
    of = "of " if said.partition(":")[0].isidentifier() else ""  # else it is a sentence
    because = f", because {of}{cut(said, 100)}" if said else ""
    told = f"{retried:,} of them retried" if retried else ""
    delays = " and to the delays before the next ones" if matters(facts, delayed) else ""
    advice = "shorter delays before retries, or " if delayed > held else ""
    yield facts.finding(
        "failed_work",
        lost,
        f"{cost_text(facts, lost)} went to {plural(attempts, 'attempt')} that did not "
        f"complete{f' ({told})' if told else ''}{delays}{because}; try "
        f"{advice}`flightlog report --failures` for the causes.",
        {"attempts": attempts, "retried": retried, "retry_wait_s": delayed, "cause": said or None},
        where=[row[0] for row in rows[:3]],
        saves_s=facts.saved(_without_failures(facts)),
    )


def _cancelled(facts: FindingFacts, lost: float, rows: Sequence[tuple[Any, ...]]) -> Finding:
    """What was given up cost nothing that could have been saved, unless its result was wanted."""
    attempts = sum(row[1] for row in rows)
    return facts.finding(
        "cancelled_work",
        lost,
        f"{cost_text(facts, lost)} went to {plural(attempts, 'attempt')} that "
        f"{'was' if attempts == 1 else 'were'} cancelled.",
        {"attempts": attempts},
        where=[row[0] for row in rows[:3]],
        limits=0.0,
    )


def _costliest(facts: FindingFacts) -> str:
    """What most of the time of failed attempts was lost to, which need not be what failed most often."""
    kind, reason = facts.tables.execute(_COSTLIEST).fetchone() or (None, None)
    if kind and reason and reason.startswith(kind):
        return first_line(reason)
    causes = [one for one in facts.summary.failures.by_cause if one.error_type == kind]
    text = first_line(causes[0].message or "") if causes else ""
    return ": ".join(part for part in (kind, text) if part)


def _without_failures(facts: FindingFacts) -> Changes:
    """Attempts that failed take no time, and those after them do not wait."""
    gone = facts.of_attempts("0", "state = 'failed'")
    return Changes(lasts=gone, delays=facts.of_attempts("0", "attempt > 1"))


SYMPTOMS = (stuck_tasks, hung_tasks, failed_work, stragglers)
