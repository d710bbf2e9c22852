"""Time that tasks spent waiting for a CPU or for Python's interpreter lock, and who is to blame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from flightlog.analyze.findings.base import Finding, FindingFacts, cost_text, matters
from flightlog.core.text import plural
from flightlog.core.time import seconds
from flightlog.core.units import format_count, format_duration, format_percent

LEAST_WAIT = 0.1
"""Below this part of the time of tasks, waiting for a CPU is what any machine has."""
OTHERS = 0.25
"""Other programs keep a machine busy from this part of its cores on."""
CONTENDED_S = 0.002
"""A thread that waits so long for the interpreter has others that compute in Python beside it."""

_SPENT = """
SELECT coalesce(sum(stopped - began), 0), coalesce(sum(in_ns(thread_cpu_s)), 0),
    coalesce(sum(in_ns(cpu_wait_s)), 0), coalesce(sum(in_ns(cpu_s)), 0), count(DISTINCT worker), count(*)
FROM attempt_intervals
WHERE state = 'completed' AND began IS NOT NULL AND thread_cpu_s IS NOT NULL AND cpu_wait_s IS NOT NULL
"""
_IN_THREADS = """
WITH found AS (
    SELECT began AS since, stopped AS until, in_ns(thread_cpu_s) AS cpu, in_ns(cpu_wait_s) AS waited
    FROM attempt_intervals WHERE state = 'completed' AND began < stopped AND cpu_scope = 'thread'
        AND thread_cpu_s IS NOT NULL AND cpu_wait_s IS NOT NULL
), ordered AS (
    SELECT *, max(until) OVER (ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        AS reached FROM found
)
SELECT count(*), coalesce(sum(until - since), 0), coalesce(sum(cpu), 0), coalesce(sum(waited), 0),
    coalesce(sum(greatest(0, until - greatest(since, coalesce(reached, since)))), 0)
FROM ordered
"""
_CONTENDED = """
SELECT count(*) FILTER (interpreter_wait_s >= $least), count(*), median(interpreter_wait_s)
FROM resources WHERE interpreter_wait_s IS NOT NULL
"""


class CpuTime(NamedTuple):
    """What completed tasks did with their time, in seconds, where it was measured."""

    ran_s: float
    on_cpu_s: float
    """Of the threads that executed them."""
    waited_s: float
    """Those were ready to run and waited for a CPU."""
    all_threads_s: float
    """CPU time of the tasks with all their threads and children."""
    workers: int

    @property
    def slowdown(self) -> float:
        """How much longer tasks took for waiting."""
        left = self.ran_s - self.waited_s
        return self.ran_s / left if left > 0 else 1.0


def cpu_time(facts: FindingFacts) -> CpuTime | None:
    """What completed tasks did with their time; None where it was not measured."""
    [(*spent, workers, count)] = facts.tables.execute(_SPENT).fetchall()
    ran_s, on_cpu_s, waited_s, all_threads_s = (seconds(int(ns)) for ns in spent)
    return CpuTime(ran_s, on_cpu_s, waited_s, all_threads_s, int(workers)) if count else None


def waiting_for_cpu(facts: FindingFacts) -> Iterable[Finding]:
    """Tasks that waited for a CPU: because others kept the machine busy, or because they were too many."""
    spent = cpu_time(facts)
    if spent is None or not matters(facts, spent.waited_s) or spent.waited_s < LEAST_WAIT * spent.ran_s:
        return
    node, process, cgroup = (getattr(facts.summary.resources, name) for name in ("node", "process", "cgroup"))
    if cgroup is not None and cgroup.throttled_s is not None and cgroup.throttled_s >= spent.waited_s / 2:
        return  # the quota it is, and that is a finding of its own
    cores = node.cpus if node is not None else None
    busy = node.cpu_percent.mean if node is not None else None
    own = process.cpu_cores.mean if process is not None else None
    evidence = {
        "cpu_wait_s": spent.waited_s,
        "executed_s": spent.ran_s,
        "slowdown": spent.slowdown,
        "cores": cores,
        "own_cores": own,
        "node_cpu_percent": busy,
        "workers": spent.workers,
    }
    cost = f"{cost_text(facts, spent.waited_s)} went to tasks waiting for a CPU"
    longer = f"they took {spent.slowdown:.1f} times as long as without"
    if cores and own is not None and busy is not None and len(node.hosts) == 1:
        others = max(0.0, busy / 100 * cores - own)
        evidence["others_cores"] = others
        wanted = _wanted_cores(facts, spent)
        if others >= OTHERS * cores and (wanted is None or wanted <= 1.5 * cores or others >= own):
            yield facts.finding(
                "busy_machine",
                spent.waited_s,
                f"{cost} ({longer}), because the machine was busy with other programs: they used "
                f"{others:.1f} of {format_count(cores)} cores, this run {own:.1f}; try again when it is "
                "idle, or on another machine.",
                evidence,
                where=list(node.hosts[:3]),
            )
            return
    threads = spent.all_threads_s > 1.5 * spent.on_cpu_s
    if cores and spent.workers > cores and not threads:
        what = f"{plural(spent.workers, 'worker')} shared {format_count(cores)} cores"
        advice = f"{plural(int(cores), 'worker')}: they finish as soon, with less memory; or more cores"
    else:
        what = "they had more threads than there were cores" if threads else "there were too few cores"
        advice = "fewer threads in each task (OMP_NUM_THREADS), or more cores" if threads else "more cores"
    yield facts.finding(
        "oversubscription",
        spent.waited_s,
        f"{cost} ({longer}), because {what}; try {advice}.",
        evidence,
        where=list(node.hosts[:3]) if node is not None else [],
    )


def _wanted_cores(facts: FindingFacts, spent: CpuTime) -> float | None:
    """How many cores the tasks would have used at once had all been free."""
    at_once = facts.concurrency.mean if facts.concurrency is not None else None
    return (
        None
        if at_once is None or not spent.ran_s
        else at_once * ((spent.on_cpu_s + spent.waited_s) / spent.ran_s)
    )


def interpreter_lock(facts: FindingFacts) -> Iterable[Finding]:
    """Tasks on threads of one process that waited for each other's turn in the interpreter."""
    count, ran, cpu, waited, wall = facts.tables.execute(_IN_THREADS).fetchall()[0]
    if count < 2 or not wall or not facts.summary.resources.samples:
        return
    [(contended, probes, median)] = facts.tables.execute(_CONTENDED, {"least": CONTENDED_S}).fetchall()
    blocked = seconds(int(ran - cpu - waited))
    if not probes or contended < probes / 2 or not matters(facts, blocked):
        return
    cores, at_once = cpu / wall, ran / wall
    if cores > 1.3 or blocked < 0.2 * seconds(int(ran)) or cores < 0.5:
        return  # they compute outside of the interpreter, or mostly wait for something else
    there = facts.summary.resources.node.cpus if facts.summary.resources.node is not None else None
    many = f" of {format_count(there)}" if there else ""
    yield facts.finding(
        "interpreter_lock",
        blocked,
        f"{cost_text(facts, blocked)} went to threads waiting for each other, because Python runs one at a "
        f"time (the GIL): {at_once:.1f} tasks at once used {cores:.1f}{many} cores, and a thread waited "
        f"{format_duration(median)} for its turn; try processes in place of threads.",
        {"blocked_s": blocked, "tasks_at_once": at_once, "cores": cores, "interpreter_wait_s": median},
    )


def throttling(facts: FindingFacts) -> Iterable[Finding]:
    """What a CPU quota held back."""
    cgroup = facts.summary.resources.cgroup
    held = cgroup.throttled_s if cgroup is not None else None
    if held is None or cgroup is None or not matters(facts, held):
        return
    quota = f" of {cgroup.cpu_quota:.1f} cores" if cgroup.cpu_quota is not None else ""
    yield facts.finding(
        "throttling",
        held,
        f"{cost_text(facts, held)} went to waiting for the CPU quota{quota}, because it held this "
        f"run back for {format_duration(held)}; try asking for more cores, or lower concurrency.",
        {"throttled_s": held, "cpu_quota": cgroup.cpu_quota},
    )


def share_text(spent: CpuTime) -> str:
    """`98% of their time on a CPU`: what completed tasks did, in words."""
    return f"{format_percent(min(1.0, spent.on_cpu_s / spent.ran_s))} of their time on a CPU"


SYMPTOMS = (interpreter_lock, waiting_for_cpu, throttling)
