"""Time that tasks spent waiting for a CPU or for Python's interpreter lock, and who is to blame."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING, Literal, NamedTuple

from flightlog.analyze.findings.base import Finding, FindingFacts, cost_text, matters
from flightlog.analyze.limits import FindingLimits
from flightlog.analyze.report.replay import Changes
from flightlog.core.text import plural
from flightlog.core.time import seconds
from flightlog.core.units import format_count, format_duration, format_percent

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables

COMMAND = "command"
"""The provider of runs of one command, as `flightlog run` records them."""

_SPENT = """
WITH found AS (
    SELECT began AS since, stopped AS until, worker, in_ns(thread_cpu_s) AS cpu, in_ns(cpu_wait_s) AS waited,
        in_ns(cpu_s) AS of_all, coalesce(in_ns(sleep_s), 0) + coalesce(in_ns(lock_wait_s), 0)
            + coalesce(in_ns(io_wait_s), 0) AS blocked
    FROM attempt_intervals WHERE state = 'completed' AND began IS NOT NULL AND thread_cpu_s IS NOT NULL
        AND cpu_wait_s IS NOT NULL
), ordered AS (
    SELECT *, max(until) OVER (ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        AS reached FROM found
)
SELECT coalesce(sum(until - since), 0), coalesce(sum(cpu), 0), coalesce(sum(waited), 0),
    coalesce(sum(of_all), 0), coalesce(sum(greatest(blocked, until - since - cpu - waited)), 0),
    coalesce(sum(greatest(0, until - greatest(since, coalesce(reached, since)))), 0),
    count(DISTINCT worker), count(*)
FROM ordered
"""
_CONTENDED = """
SELECT coalesce(sum(weight) FILTER (interpreter_wait_s >= $least), 0) / sum(weight) AS contended,
    median(interpreter_wait_s)
FROM (SELECT *, coalesce(interval_s, 1) AS weight FROM resources WHERE interpreter_wait_s IS NOT NULL)
GROUP BY host, pid ORDER BY contended DESC, 2 DESC LIMIT 1
"""
_PROGRAM = """
SELECT max(cpu_wait_s) - min(cpu_wait_s), count(cpu_wait_s), coalesce(max(children_cpu_wait_s), 0),
    coalesce(max(processes), 1) - 1, coalesce(avg(processes), 1) - 1 FROM samples_of_run
WHERE scope = 'worker' GROUP BY host, pid, worker
"""
_STOLEN = """
SELECT host, max(steal_s) - min(steal_s) AS stolen, max(cpus) FROM samples_of_run
WHERE scope = 'node' AND steal_s IS NOT NULL GROUP BY host HAVING count(*) > 1
ORDER BY stolen DESC, host LIMIT 1
"""
_THROTTLED_PERIODS = """
SELECT sum(throttled_percent * interval_s) / sum(interval_s) FROM samples_of_run
WHERE scope = 'cgroup' AND throttled_percent IS NOT NULL AND interval_s > 0
"""
_IN_USE = """
WITH ran AS (
    SELECT min(began) AS since, max(stopped) AS until FROM attempt_intervals WHERE state = 'completed'
), during AS (
    SELECT scope, pid, cpu_percent, cpu_cores, interval_s FROM samples_of_run, ran
    WHERE interval_s > 0 AND (since IS NULL OR (at_ns("timestamp") > since
        AND at_ns("timestamp") < until + in_ns(interval_s)))
), trees AS (
    SELECT sum(cpu_cores * interval_s) AS used, sum(interval_s) AS sampled FROM during
    WHERE scope = 'worker' AND cpu_cores IS NOT NULL GROUP BY pid
)
SELECT sum(cpu_percent * interval_s) FILTER (scope = 'node' AND cpu_percent IS NOT NULL)
        / sum(interval_s) FILTER (scope = 'node' AND cpu_percent IS NOT NULL),
    (SELECT sum(used) / max(sampled) FROM trees)
FROM during
"""
"""Percent of the machine, and cores of the run, in use on average from the first task to the last: before and
after these others are in nobody's way."""
_TREES = """
SELECT count(DISTINCT row(host, pid)) FROM samples_of_run ANTI JOIN workers USING (host, pid)
WHERE scope = 'worker'
"""
"""Trees of processes that are none of a worker's: a worker is sampled only where it is in no other tree."""
_HOSTS = "SELECT DISTINCT host FROM worker_facts WHERE executed > 0 AND host IS NOT NULL"
_USABLE = "SELECT max(cpus) FROM samples_of_run WHERE scope = 'worker'"


class CpuTime(NamedTuple):
    """What completed tasks did with their time, in seconds, where it was measured."""

    ran_s: float
    on_cpu_s: float
    """Of the threads that executed them."""
    waited_s: float
    """Those were ready to run and waited for a CPU."""
    all_threads_s: float
    """CPU time of the tasks with all their threads and children."""
    blocked_s: float
    """They waited for something else: asleep, or for a lock, a file, a server."""
    clock_s: float
    """The time in which any of them ran."""
    workers: int
    of: Literal["tasks", "program", "children"] = "tasks"
    """Whose time it is: where nothing is known of tasks, that of the program or of processes that it
    started."""

    @property
    def slowdown(self) -> float | None:
        """How many times as long tasks took for waiting; None where they did next to nothing else."""
        left = self.ran_s - self.waited_s
        return self.ran_s / left if left > 0.01 * self.ran_s else None


def cpu_time(facts: FindingFacts) -> CpuTime | None:
    """What completed tasks did with their time; None where it was not measured."""
    [(*spent, workers, count)] = facts.tables.execute(_SPENT).fetchall()
    return CpuTime._make([*(seconds(int(ns)) for ns in spent), int(workers), "tasks"]) if count else None


def program_time(facts: FindingFacts) -> CpuTime | None:
    """What the main thread of a program without tasks, or of a recorded command, did with its time, or those
    of the processes that it started, where these waited longer; None where it was not measured.
    """
    process = facts.summary.resources.process
    has_tasks = facts.summary.tasks.submitted and facts.summary.run.provider != COMMAND
    if has_tasks or process is None or process.cpu_s is None or not facts.wall_s:
        return None
    rows = facts.tables.execute(_PROGRAM).fetchall()
    if len(rows) != 1 or rows[0][1] < 2:
        return None
    waited_s, _, of_children_s, children, usual_children = rows[0]
    if of_children_s > waited_s:
        active_s = process.cpu_s + of_children_s
        # Neither on a CPU nor waiting for one: for files, say, or as a helper that has nothing to do.
        asleep_s = max(0.0, usual_children * facts.wall_s - active_s)
        # So many share the cores, if these are busy as long as there is something to do.
        at_once = (
            round((usable_cores(facts) or 1.0) * active_s / process.cpu_s) if process.cpu_s else children
        )
        workers = max(1, min(children, at_once))
        return CpuTime(
            ran_s=active_s,
            on_cpu_s=process.cpu_s,
            waited_s=of_children_s,
            all_threads_s=process.cpu_s,
            blocked_s=asleep_s,
            clock_s=min(facts.wall_s, active_s / workers),  # they wait side by side
            workers=workers,
            of="children",
        )
    waited_s = min(waited_s, facts.wall_s)
    on_cpu_s = min(process.cpu_s, facts.wall_s - waited_s)
    blocked_s = facts.wall_s - waited_s - on_cpu_s
    return CpuTime(facts.wall_s, on_cpu_s, waited_s, process.cpu_s, blocked_s, facts.wall_s, 1, of="program")


def waiting_for_cpu(facts: FindingFacts) -> Iterable[Finding]:
    """Tasks that waited for a CPU: because others kept the machine busy, or because they were too many.

    Where it is not known what others used, or the run was on several hosts, nobody is blamed.
    """
    spent = cpu_time(facts) or program_time(facts)
    if (
        spent is None
        or not matters(facts, spent.waited_s)
        or spent.waited_s < FindingLimits.min_cpu_wait_share * spent.ran_s
    ):
        return
    cgroup = facts.summary.resources.cgroup
    if cgroup is not None and cgroup.throttled_s is not None and cgroup.throttled_s >= spent.waited_s / 2:
        return  # the quota it is, and that is a finding of its own
    cores = _cores(facts)
    evidence = {
        "cpu_wait_s": spent.waited_s,
        "executed_s": spent.ran_s,
        "slowdown": spent.slowdown,
        "workers": spent.workers,
        **(cores._asdict() if cores is not None else {}),
    }
    threads = spent.all_threads_s > 1.5 * spent.on_cpu_s
    kind = "oversubscription"
    fits = cores is not None and not threads and spent.workers <= cores.usable
    if cores is not None and (cores.are_others or (fits and cores.explain(spent))):
        kind, why = (
            "busy_machine",
            (
                f"the machine was busy with other programs: they used {cores.others:.1f} of "
                f"{format_count(cores.there)} cores, this run {cores.own:.1f}"
            ),
        )
        advice = "again when it is idle, or on another machine"
    elif cores is None or fits:
        kind, why = "cpu_wait", "this run and others on its machines wanted more cores than there were"
        advice = "more cores, or machines that are idle"
    elif threads:
        why = "they had more threads than there were cores"
        advice = "fewer threads in each task (OMP_NUM_THREADS), or more cores"
    else:
        why = f"{_count(spent, spent.workers)} shared {format_count(cores.usable)} cores"
        advice = _fewer_workers(spent, cores.usable)
    node = facts.summary.resources.node
    slower = spent.slowdown
    who, they = {
        "tasks": ("tasks", "they"),
        "program": ("the program", "it"),
        "children": ("processes that the program started", "they"),
    }[spent.of]
    longer = "" if slower is None else f" ({they} took {slower:.1f} times as long as without)"
    yield facts.finding(
        kind,
        spent.waited_s,
        f"{cost_text(facts, spent.waited_s)} went to {who} waiting for a CPU{longer}, because {why}; try "
        f"{advice}.",
        evidence,
        where=list(node.hosts[:3]) if node is not None else [],
        limits=min(1.0, spent.waited_s / spent.ran_s * spent.clock_s / facts.wall_s)
        if facts.wall_s
        else None,
        # Fewer workers end as soon, and no sooner: only what others took would come back.
        saves_s=None
        if kind != "busy_machine"
        else _without_waiting(facts)
        if spent.of == "tasks"
        else spent.waited_s / spent.ran_s * spent.clock_s,
    )


def _fewer_workers(spent: CpuTime, usable: float) -> str:
    """What to try where workers are more than cores: as many as keep these busy, unless tasks mostly wait for
    something else, for which others need to run meanwhile.
    """
    enough = ceil(usable * spent.ran_s / (spent.on_cpu_s + spent.waited_s) - 1e-9)
    if spent.blocked_s > FindingLimits.max_blocked_share * spent.ran_s or enough >= spent.workers:
        return "more cores"
    return f"{_count(spent, max(1, enough))}: they finish as soon, with less memory; or more cores"


def _count(spent: CpuTime, number: int) -> str:
    """`8 workers`; processes, where it is not known that they are workers."""
    return plural(number, "process", "processes") if spent.of == "children" else plural(number, "worker")


def _without_waiting(facts: FindingFacts) -> float | None:
    """What it would save if no task waited for a CPU."""
    lasts = "greatest(0, stopped - began - in_ns(cpu_wait_s))"
    return facts.saved(Changes(lasts=facts.of_attempts(lasts, "cpu_wait_s > 0 AND state = 'completed'")))


class Cores(NamedTuple):
    """The cores of the one machine that a run was on, and how many were in use on average."""

    there: float
    usable: float
    """Those that the run may use."""
    own: float
    others: float

    @property
    def are_others(self) -> bool:
        """Whether other programs had cores that this run wanted: it did not get all that it may use."""
        return (
            self.others >= FindingLimits.min_share_of_other_programs * self.there
            and self.own < FindingLimits.max_own_share_beside_others * self.usable
        )

    def explain(self, spent: CpuTime) -> bool:
        """Whether what other programs used, of the cores that the run may use, is most of what tasks waited
        for.
        """
        return min(self.others, self.usable - self.own) * spent.clock_s >= 0.5 * spent.waited_s


def _cores(facts: FindingFacts) -> Cores | None:
    """None where that is unknown, where there were several machines, or where several trees of processes were
    sampled, which may hold each other, beside those of workers.
    """
    node, process = facts.summary.resources.node, facts.summary.resources.process
    if node is None or process is None or len(node.hosts) != 1:
        return None
    if process.trees > 1 and facts.tables.scalar(_TREES) > 1:
        return None
    elsewhere = facts.tables.execute(_HOSTS).fetchall()
    if any(host != node.hosts[0] for (host,) in elsewhere):
        return None
    busy, own = facts.tables.execute(_IN_USE).fetchall()[0]
    there = node.cpus
    if not there or busy is None or own is None:
        return None
    return Cores(there, usable_cores(facts) or there, own, max(0.0, busy / 100 * there - own))


def usable_cores(facts: FindingFacts) -> float | None:
    """Cores that a process of the run may use at once: those of the machine, or fewer by its affinity or by a
    CPU quota; None where none of them is known.
    """
    node, cgroup = facts.summary.resources.node, facts.summary.resources.cgroup
    known = (
        node.cpus if node is not None else None,
        facts.tables.scalar(_USABLE),
        cgroup.cpu_quota if cgroup is not None else None,
    )
    return min((float(cores) for cores in known if cores), default=None)


def interpreter_wait(tables: RunTables) -> float | None:
    """How long a thread of the process whose threads waited most had to wait for the interpreter, the median;
    None where they did so for a small part of the time, or that was not measured.
    """
    found = tables.execute(_CONTENDED, {"least": FindingLimits.contended_interpreter_wait_s}).fetchone()
    return None if found is None or found[0] < FindingLimits.min_contended_share else float(found[1])


_IN_TURNS = """
WITH processes AS (
    SELECT DISTINCT worker, host, pid FROM workers WHERE pid IS NOT NULL
), found AS (
    SELECT host, pid, began AS since, stopped AS until, cpu_scope = 'thread' AND thread_cpu_s IS NOT NULL
            AND cpu_wait_s IS NOT NULL AS known,
        coalesce(in_ns(sleep_s), 0) + coalesce(in_ns(io_wait_s), 0) AS elsewhere
    FROM attempt_intervals JOIN processes USING (worker) WHERE began < stopped
    UNION ALL
    SELECT sampled.host, sampled.pid, began, stopped, false, 0 FROM span_intervals,
        (SELECT DISTINCT host, pid FROM samples_of_run WHERE scope = 'worker' AND pid IS NOT NULL) AS sampled
    WHERE began < stopped AND $spans
        AND span_id NOT IN (SELECT parent_id FROM span_intervals WHERE parent_id IS NOT NULL)
), ordered AS (
    SELECT *, max(until) OVER (PARTITION BY host, pid ORDER BY since, until
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached,
        max(until) OVER (PARTITION BY host, pid ORDER BY since) AS reaches FROM found
), ran AS (
    SELECT host, pid, sum(until - since) AS ran, sum(elsewhere) AS elsewhere, bool_and(known) AS measured,
        sum(greatest(0, until - greatest(since, coalesce(reached, since)))) AS wall
    FROM ordered GROUP BY host, pid
), sampled AS ( -- what a sample tells is of the time up to it
    SELECT *, coalesce(interval_s, 1) AS weight,
        at_ns("timestamp") - in_ns(coalesce(interval_s, 0)) // 2 AS middle FROM samples_of_run
), during AS (
    SELECT sampled.*, epoch("timestamp") AS moment
    FROM sampled ASOF JOIN ordered
        ON sampled.host = ordered.host AND sampled.pid = ordered.pid AND middle >= since
    WHERE middle < reaches
), used AS (
    SELECT host, pid, coalesce(sum(cpu_cores * weight) / sum(weight) FILTER (cpu_cores IS NOT NULL),
            (max(cpu_s) - min(cpu_s)) / nullif(max(moment) - min(moment), 0)) AS cores,
        cores + coalesce((max(cpu_wait_s) - min(cpu_wait_s)) / nullif(max(moment) - min(moment), 0), 0)
            AS active,
        sum(interpreter_wait_s * weight) / sum(weight) FILTER (interpreter_wait_s IS NOT NULL) AS waited_s
    FROM during GROUP BY host, pid
    HAVING waited_s >= $least AND sum(weight) FILTER (interpreter_wait_s >= $least)
        >= $part * sum(weight) FILTER (interpreter_wait_s IS NOT NULL)
)
SELECT host, ran / wall AS at_once, elsewhere / wall AS elsewhere, cores, active, wall / 1e9 AS wall_s,
    waited_s, measured
FROM used JOIN ran USING (host, pid)
WHERE (ran - elsewhere) / wall >= $at_once AND active BETWEEN $fewest AND $most ORDER BY ran DESC, host, pid
"""
"""Processes in which tasks, or spans, ran while threads waited for the interpreter."""


class _Turns(NamedTuple):
    """Threads of one process that take turns in the interpreter; cores and threads on average."""

    host: str
    at_once: float
    """Tasks, or spans, that ran at once."""
    elsewhere: float
    """Those of them that slept, or waited for files and the like."""
    cores: float
    active: float
    """Cores that the process used or waited for."""
    wall_s: float
    """The time in which any of them ran."""
    waited_s: float
    """How long a thread waited for the interpreter."""
    measured: bool
    """Whether all of them are tasks that tell what they used of a CPU."""


def interpreter_lock(facts: FindingFacts) -> Iterable[Finding]:
    """Tasks, or spans, side by side in a process that was sampled, and that used about one core while its
    threads waited for each other's turn in the interpreter.
    """
    process, there = facts.summary.resources.process, usable_cores(facts)
    if not facts.summary.resources.samples or (there and there < FindingLimits.min_cores_for_processes):
        return
    tasks = bool(facts.summary.tasks.submitted)
    rows = facts.tables.execute(
        _IN_TURNS,
        {
            "spans": not tasks and process is not None and process.trees == 1,
            "least": FindingLimits.contended_interpreter_wait_s,
            "part": FindingLimits.min_contended_share,
            "at_once": FindingLimits.min_at_once_in_turn,
            "fewest": FindingLimits.min_cores_in_turns,
            "most": FindingLimits.max_cores_in_turns,
        },
    )
    found = [_Turns(*row) for row in rows.fetchall()]
    blocked = sum(max(0.0, one.at_once - one.elsewhere - one.active) * one.wall_s for one in found)
    if not facts.wall_s or not matters(facts, blocked):
        return
    worst = found[0]
    beside = [one for one in found if one.host == worst.host]  # they share the cores there
    active = sum(one.active for one in beside)
    # As processes they share the cores, those at a time that are neither asleep nor waiting for a file.
    wanted = sum(one.at_once * one.active / (one.active + one.elsewhere) for one in beside)
    possible = min(wanted, there or wanted)
    lasts = facts.of_attempts(
        f"least(stopped - began, in_ns(thread_cpu_s) * {wanted / possible} + coalesce(in_ns(cpu_wait_s), 0)"
        " + coalesce(in_ns(sleep_s), 0) + coalesce(in_ns(io_wait_s), 0))",
        "cpu_scope = 'thread' AND state = 'completed'",
    )
    saved_s = worst.wall_s * (1 - active / possible) if possible > active else 0.0
    what, many = "concurrent tasks" if tasks else "at once", f" of {format_count(there)}" if there else ""
    yield facts.finding(
        "interpreter_lock",
        blocked,
        f"{cost_text(facts, blocked)} went to threads waiting for each other, because Python runs one at a "
        f"time (the GIL): {worst.at_once:.1f} {what} used {worst.cores:.1f}{many} cores, and a thread waited "
        f"{format_duration(worst.waited_s)} for its turn; try processes in place of threads.",
        {
            "blocked_s": blocked,
            "at_once": worst.at_once,
            "cores": worst.cores,
            "interpreter_wait_s": worst.waited_s,
        },
        limits=None if worst.measured else min(1.0, worst.wall_s / facts.wall_s),
        saves_s=facts.saved(Changes(lasts=lasts)) if worst.measured else saved_s,
        certainty="measured" if worst.measured else "likely",
    )


def throttling(facts: FindingFacts) -> Iterable[Finding]:
    """What a CPU quota held back.

    The kernel adds up the time of all CPUs, which may be more than there is of workers: of that, no more
    counts than the part of the quota's periods in which the run was held back.
    """
    cgroup = facts.summary.resources.cgroup
    throttled = cgroup.throttled_s if cgroup is not None else None
    if throttled is None or cgroup is None:
        return
    periods = facts.tables.scalar(_THROTTLED_PERIODS)
    held = min(throttled, facts.total_s * (1.0 if periods is None else min(1.0, periods / 100)))
    if not matters(facts, held):
        return
    quota = f" of {cgroup.cpu_quota:.1f} cores" if cgroup.cpu_quota is not None else ""
    together = ", all CPUs together" if throttled > held else ""
    yield facts.finding(
        "throttling",
        held,
        f"{cost_text(facts, held)} went to waiting for the CPU quota{quota}, because it held this "
        f"run back for {format_duration(throttled)}{together}; try asking for more "
        "cores, or lower concurrency.",
        {"throttled_s": throttled, "cpu_quota": cgroup.cpu_quota},
    )


def stolen_time(facts: FindingFacts) -> Iterable[Finding]:
    """Cores that the hypervisor gave to other machines while this run had use for them."""
    row = facts.tables.execute(_STOLEN).fetchone()
    if row is None or not row[2] or not facts.wall_s:
        return
    host, stolen_s, cpus = row
    share = min(1.0, stolen_s / (facts.wall_s * cpus))
    if share < FindingLimits.min_stolen_share:
        return
    yield facts.finding(
        "stolen_time",
        None,
        f"The hypervisor gave {format_percent(share)} of the CPU time of {host or 'the machine'} to other "
        "machines; try another machine, or one with cores of its own.",
        {"steal_s": stolen_s, "cpus": cpus},
        where=[host] if host else [],
        limits=share,
    )


def share_text(spent: CpuTime) -> str:
    """`98% of their time on a CPU`: what completed tasks did, in words."""
    return f"{format_percent(on_cpu(spent))} of their time on a CPU"


def on_cpu(spent: CpuTime) -> float:
    """The part of their time that completed tasks spent on a CPU."""
    return min(1.0, max(spent.on_cpu_s, spent.all_threads_s) / spent.ran_s)


SYMPTOMS = (interpreter_lock, waiting_for_cpu, throttling, stolen_time)
