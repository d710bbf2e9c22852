"""Workers: those that are slower than the others, and those whose memory grows from task to task."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.findings.base import Finding, FindingFacts, cost_text, matters
from flightlog.analyze.limits import FindingLimits
from flightlog.analyze.report.replay import Changes
from flightlog.core.text import plural
from flightlog.core.time import seconds
from flightlog.core.units import format_bytes, format_duration
from flightlog.store.tables.connection import text

_SLOW = f"""
WITH completed AS (
    SELECT task, coalesce(component, '') AS component, worker, args, began, stopped, stopped - began AS took
    FROM attempt_intervals WHERE state = 'completed' AND worker IS NOT NULL AND began IS NOT NULL
), named AS (
    SELECT task, component, median(took) AS usual, count(*) >= 2 * count(DISTINCT hash(args)) AS repeat
    FROM completed GROUP BY task, component
), repeated AS (
    SELECT completed.*, named.usual, count(DISTINCT worker) OVER same AS workers_with_these,
        median(took) OVER same AS usual_with_these
    FROM completed JOIN named USING (task, component) WHERE repeat
    WINDOW same AS (PARTITION BY task, component, args)
), comparable AS ( -- where calls repeat, only with those of the same arguments
    SELECT task, component, worker, began, stopped, took
    FROM completed JOIN named USING (task, component) WHERE NOT repeat
    UNION ALL SELECT task, component, worker, began, stopped,
        CASE WHEN usual_with_these > 0 THEN took / usual_with_these * usual ELSE took END
    FROM repeated WHERE workers_with_these > 1
), each AS (
    SELECT task, component, worker, count(*) AS tasks, quantile_cont(took, [0.25, 0.5, 0.75]) AS quartiles,
        quartiles[1] AS low, quartiles[2] AS usual, quartiles[3] AS high, sum(took) AS ns,
        min(began) AS since, max(stopped) AS until
    FROM comparable GROUP BY task, component, worker HAVING count(*) >= {FindingLimits.min_tasks_per_worker}
), fast AS ( -- what the faster workers take: no single one, which chance may favour
    SELECT task, component, quantile_disc(usual, 0.25) AS usual, max(high) FILTER (rank <= 0.5) AS high,
        min(since) FILTER (rank <= 0.5) AS since, max(until) FILTER (rank <= 0.5) AS until FROM (
        SELECT *, percent_rank() OVER (PARTITION BY task, component ORDER BY usual) AS rank FROM each
    ) GROUP BY task, component HAVING count(*) > 1
), slow AS (
    SELECT each.worker, each.task, each.tasks, each.usual / nullif(fast.usual, 0) AS times,
        greatest(0, each.ns - each.tasks * fast.usual) AS lost, fast.usual
    FROM each JOIN fast USING (task, component)
    WHERE fast.usual > 0 AND each.usual >= {FindingLimits.slow_worker_ratio} * fast.usual
        AND each.low > least(fast.high, {FindingLimits.slow_worker_ratio} * fast.usual)
        AND least(each.until, fast.until) - greatest(each.since, fast.since)
            >= 0.5 * (each.until - each.since) -- at the same time, and not on workers of later
)
SELECT worker, sum(tasks), sum(lost) AS lost, arg_max(times, lost), arg_max(task, lost), arg_max(usual, lost)
FROM slow GROUP BY worker ORDER BY lost DESC, worker
"""  # noqa: S608 - numbers of ours


def slow_workers(facts: FindingFacts) -> Iterable[Finding]:
    """Workers whose tasks take longer than those of the same name elsewhere, each of them, not one by
    chance; than those of the same arguments, where arguments repeat.
    """
    if facts.shares is None or facts.shares.workers < 2:
        return
    found = facts.tables.execute(_SLOW).fetchall()
    lost = seconds(round(sum(row[2] for row in found)))
    if not found or not matters(facts, lost):
        return
    _, _, _, times, task, usual = found[0]
    names = [row[0] for row in found]
    which = f"{', '.join(names[:3])}{' and more' if len(names) > 3 else ''}"
    hosts = dict(facts.tables.execute("SELECT worker, host FROM worker_facts").fetchall())
    slow_hosts = {hosts.get(name) for name in names}
    there = len(set(hosts.values())) > 1 and len(slow_hosts) == 1 and None not in slow_hosts
    on = f" (all on {hosts[names[0]]})" if there else ""
    yield facts.finding(
        "slow_workers",
        lost,
        f"{cost_text(facts, lost)} went to {plural(len(found), 'slow worker')} of {facts.shares.workers:,}"
        f"{on}, because {task} took {times:.1f} times as long on {which} as on the others "
        f"({format_duration(seconds(round(usual)))}); try finding out what is different there, or leaving "
        f"{'it' if len(found) == 1 else 'them'} out.",
        {"slow_workers": len(found), "times": times, "task": task, "usual_s": seconds(round(usual))},
        where=names[:3],
        saves_s=facts.saved(Changes(lasts=_as_elsewhere(facts, {row[0]: row[3] for row in found}))),
    )


def _as_elsewhere(facts: FindingFacts, times: dict[str, float]) -> dict[int, int]:
    """What the tasks of slow workers would take elsewhere, by how many times slower each worker is."""
    slow = f"MAP {{{', '.join(f'{text(name)}: {ratio}' for name, ratio in times.items())}}}"
    return facts.of_attempts(f"(stopped - began) / ({slow})[worker]", f"map_contains({slow}, worker)")


THREADS = "the process"
"""What has the memory of threads."""

_GROWTH = f"""
WITH found AS ( -- threads of one process have its memory together
    SELECT CASE WHEN cpu_scope = 'thread' THEN '{THREADS}' ELSE worker END AS worker, task, task_id, began,
        rss_before_bytes AS bytes, CASE WHEN cpu_scope = 'thread' THEN coalesce(result_bytes, 0) ELSE 0 END
            AS result_bytes
    FROM attempt_intervals
    WHERE rss_before_bytes IS NOT NULL AND worker IS NOT NULL AND began IS NOT NULL
), numbered AS (
    SELECT *, row_number() OVER (PARTITION BY worker, task ORDER BY began, task_id) AS n,
        bytes - sum(result_bytes) OVER (PARTITION BY worker ORDER BY began, task_id) AS beside
    FROM found
), steps AS ( -- without the first: it comes before what every task needs is loaded
    SELECT *, bytes - lag(bytes) OVER (PARTITION BY worker, task ORDER BY n) AS gained FROM numbered
    WHERE n > 1
)
SELECT worker, count(*) AS tasks, regr_slope(beside, n) AS slope, corr(beside, n) AS fit, min(bytes),
    max(bytes), arg_max(task, n),
    avg(CASE WHEN gained > 0 THEN 1.0 ELSE 0.0 END) FILTER (gained IS NOT NULL) AS rising,
    max(beside) - min(beside)
FROM steps GROUP BY worker, task HAVING count(*) >= $enough ORDER BY slope DESC, worker
"""  # noqa: S608 - a word of ours


_PROGRAM_GROWTH = """
WITH found AS (
    SELECT host, pid, "timestamp", rss_bytes,
        ntile(5) OVER (PARTITION BY host, pid ORDER BY "timestamp") AS part
    FROM samples_of_run WHERE scope = 'worker' AND rss_bytes IS NOT NULL AND NOT coalesce(final, false)
), parts AS (
    SELECT host, pid, part, median(rss_bytes) AS bytes, avg(epoch("timestamp")) AS moment,
        count(*) AS samples FROM found GROUP BY ALL
), steps AS (
    SELECT *, bytes - lag(bytes) OVER (PARTITION BY host, pid ORDER BY part) AS gained FROM parts
)
SELECT sum(samples), min(gained), arg_min(bytes, part), arg_max(bytes, part), max(moment) - min(moment)
FROM steps GROUP BY host, pid HAVING count(*) = 5
"""


def program_growth(facts: FindingFacts) -> Iterable[Finding]:
    """A program without tasks whose memory grows as long as it runs: in each fifth of the time by about as
    much. What is loaded at the beginning, or in one go, does not.
    """
    rows = [] if facts.summary.tasks.submitted else facts.tables.execute(_PROGRAM_GROWTH).fetchall()
    if len(rows) != 1:
        return
    samples, least, first, last, within = rows[0]
    gained = last - first
    if (
        samples < FindingLimits.min_growth_samples
        or least < FindingLimits.min_growth_evenness * gained / 4
        or gained < max(FindingLimits.min_growth_bytes, FindingLimits.min_growth_share * first)
    ):
        return
    rate = gained / within if within else 0.0
    near = max(FindingLimits.foreseeable_s, 10 * facts.wall_s)
    yield facts.finding(
        "memory_growth",
        None,
        f"Memory grew all the time, by {format_bytes(rate)} per second, from {format_bytes(first)} to "
        f"{format_bytes(last)}, which is a leak unless the program keeps it on purpose; try letting go of "
        "what is no longer needed.",
        {
            "bytes_per_s": rate,
            "first_bytes": first,
            "last_bytes": last,
            "samples": samples,
            "reaches_limit": _reaches_limit(facts, last + rate * near),
        },
        certainty="likely",
    )


def _reaches_limit(facts: FindingFacts, size: float) -> bool:
    """Whether memory of that size is more than there is, as far as that is known."""
    node, cgroup = facts.summary.resources.node, facts.summary.resources.cgroup
    limits = [cgroup and cgroup.memory_limit_bytes, node and node.memory_total_bytes]
    return size >= min((limit for limit in limits if limit), default=float("inf"))


def memory_growth(facts: FindingFacts) -> Iterable[Finding]:
    """A worker that has more memory before each of its tasks than before the one before. Results that
    threads leave to the program are not counted: it may keep them.
    """
    rows = facts.tables.execute(_GROWTH, {"enough": FindingLimits.min_tasks_per_worker}).fetchall()
    found = [
        row
        for row in rows
        if (row[3] or 0) >= 0.9
        and (row[7] or 0) >= 0.6
        and row[8] >= max(FindingLimits.min_growth_bytes, FindingLimits.min_growth_share * row[4])
    ]
    if not found:
        return
    worker, tasks, slope, _, low, high, task, _, _ = found[0]
    threads = worker == THREADS
    on = "all threads" if threads else plural(len(found), "worker")
    further = max(FindingLimits.foreseeable_tasks, 10 * (tasks + 1))
    yield facts.finding(
        "memory_growth",
        None,
        f"Memory grew with each task, by {format_bytes(slope)} on {on}: {worker} went from "
        f"{format_bytes(low)} to {format_bytes(high)} in {tasks + 1:,} tasks of {task}, which is a leak "
        "unless they keep it on purpose; try letting go of what a task no longer needs"
        f"{'' if threads else ', or ending workers after some tasks'}.",
        {
            "bytes_per_task": slope,
            "first_bytes": low,
            "last_bytes": high,
            "tasks": tasks + 1,
            "workers": len(found),
            "reaches_limit": _reaches_limit(facts, high + slope * further),
        },
        where=[row[0] for row in found[:3]],
        certainty="likely",
    )


SYMPTOMS = (slow_workers, memory_growth, program_growth)
