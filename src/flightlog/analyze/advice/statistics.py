"""Statistics of each run that advice looks at: a few numbers by task, worker, cache and failure.

A run is read once for all of it, in SQL; what stays of it in memory is bounded whatever its size.

The work of a run is kept as batches: stretches of tasks between moments at which nothing was left to do. A
program that maps, gathers and maps again makes a batch of each map. How long a batch takes on another number
of workers can be replayed; how long the program takes between two of them does not depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from flightlog.analyze.advice.base import Advice
from flightlog.analyze.findings.cpu import interpreter_wait
from flightlog.analyze.history.attempts import Planned, read_plan, timed_out, timeout_of
from flightlog.analyze.limits import AdviceLimits
from flightlog.analyze.predict.eta import replay
from flightlog.analyze.report.time_shares import TimeSplit, shares
from flightlog.analyze.tallies import grouped
from flightlog.core.time import SECOND
from flightlog.store.liveness import unix_time
from flightlog.store.tables.intervals import most_at_once
from flightlog.store.tables.run_tables import open_tables

if TYPE_CHECKING:
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables


_EVENTFUL = frozenset({"cache", "failures", "jobs"})


class TaskStatistics(Struct, frozen=True, kw_only=True):
    """The tasks of one name in a run; `sim[3]` counts as `sim`. Null is unknown."""

    attempts: int
    """That began and ended."""
    completed: int
    total_s: float
    """Execution time of completed ones, all together."""
    longest_s: float | None
    handover_s: float | None
    """Median time between the end of a worker's task and the start of its next one, where that was
    waiting."""
    handovers: int
    """How many times that was seen."""
    result_bytes: float | None
    """Size of a serialized result, the mean."""
    on_gpu: bool


class CacheUse(Struct, frozen=True, kw_only=True):
    """The lookups of one function in a run."""

    hits: int
    misses: int
    bypassed: int
    lookup_s: float
    """What the lookups took, all together."""
    kept_bytes: int
    """What was written for later."""
    reasons: dict[str, int]
    """Why misses and bypasses were such, the most frequent first."""


class Machine(Struct, frozen=True, kw_only=True):
    """The hosts that were sampled; null is unknown."""

    hosts: int
    cpus: float | None
    """Cores of the largest host, or the quota of the run where that is less."""
    cpu_percent: float | None
    """Of a host's cores, the mean over the run."""
    memory_peak_bytes: int | None
    memory_total_bytes: int | None


class ProcessSharing(Struct, frozen=True, kw_only=True):
    """How attempts shared processes."""

    processes: int
    covered_s: float
    """Time in which at least one attempt ran in a process, all processes together."""
    held_s: float
    """Execution time of all attempts: over `covered_s` it is how many ran in a process at once on average."""
    cpu_s: float | None
    """Their CPU time; null where a twentieth of the execution time or more does not tell it."""
    interpreter_wait_s: float | None = None
    """How long a thread waited for its turn in the interpreter; null where they did not, or nobody knows."""


class Job(Struct, frozen=True, kw_only=True):
    """One attempt of a batch job that ended."""

    state: str
    elapsed_s: float
    walltime_s: float


class RunStatistics(Struct, frozen=True, kw_only=True):
    """One run that has ended."""

    run_id: str
    target: str | None
    provider: str | None
    status: str
    started: float | None
    """Unix seconds."""
    wall_s: float | None
    planned: Planned
    workers: int = 0
    """The most that were up at once, used or not; 0 where none is known."""
    time: TimeSplit | None = None
    """Where the time of workers went; null where no worker is known."""
    queue_s: float | None = None
    """How long an attempt waited for its worker, the mean."""
    waves: list[WorkBatch] | None = None
    """Null where the work cannot be told apart in waves: too many tasks that depend on each other."""
    machine: Machine | None = None
    side_by_side: ProcessSharing | None = None
    tasks: dict[str, TaskStatistics] = {}
    cache: dict[str, CacheUse] = {}
    cached_tasks: frozenset[str] = frozenset()
    """Names of tasks in which a cache was asked."""
    retried: list[Retried] = []
    timed_out: list[TimedOut] = []
    jobs: list[Job] = []


Outcome = list[Advice] | str
"""What one look at the runs gave: advice, or why there is none where there might be some."""


def gather(run: Run) -> RunStatistics:
    """The shape of a run. Raises `OSError` or `duckdb.Error` where its files cannot be read."""
    with open_tables([run]) as tables:
        tables.execute(_NAMED)
        split = shares(tables)
        by_workers = split is not None and split.basis == "workers"
        tasks = {row.pop("name"): TaskStatistics(**row) for row in tables.records(_TASKS)}
        [machine] = tables.records(_MACHINE)
        [sharing] = tables.records(_SHARING)
        sharing["interpreter_wait_s"] = interpreter_wait(tables)
        troubled = any(task.attempts > task.completed for task in tasks.values())
        kinds = {"kinds": AdviceLimits.max_failure_kinds}
        most = most_at_once(tables, "SELECT since, until FROM uptimes") if by_workers else None
        return msgspec.structs.replace(
            uneventful(run),
            workers=most[0] if most is not None else 0,
            time=split.whole if split is not None and by_workers else None,
            queue_s=tables.scalar(_QUEUED),
            waves=waves(tables, _overall_handover(tasks)) if by_workers else None,
            machine=Machine(**machine) if machine["hosts"] else None,
            side_by_side=ProcessSharing(**sharing) if sharing["processes"] else None,
            tasks=tasks,
            cache={
                row.pop("task"): CacheUse(**row)
                for row in tables.records(_CACHE, {"few": AdviceLimits.max_cache_reasons})
            },
            cached_tasks=frozenset(name for (name,) in tables.rows(_CACHED)),
            retried=[Retried(**row) for row in tables.records(_RETRIED, kinds)] if troubled else [],
            timed_out=timed_out_attempts(tables) if troubled else [],
            jobs=[Job(**row) for row in tables.records(_ACCOUNTED)],
        )


def is_uneventful(run: Run) -> bool:
    """Whether a run completed without a failure, a cache or a batch job, by its counts and the streams it
    has.
    """
    calm = run.status == "completed" and not run.info.tasks_failed
    return calm and not _EVENTFUL.intersection(run.streams())


def uneventful(run: Run) -> RunStatistics:
    """Such a run without looking at its tasks and workers: nothing is known of them."""
    return RunStatistics(
        run_id=run.run_id,
        target=run.info.target,
        provider=run.info.provider,
        status=run.status,
        started=unix_time(run.info.start_time),
        wall_s=run.ending().duration_s,
        planned=read_plan(run.path),
    )


def _overall_handover(tasks: dict[str, TaskStatistics]) -> float:
    """What handing over one task takes, of all names together; 0 where it was never seen."""
    known = [(task.handover_s, task.handovers) for task in tasks.values() if task.handover_s is not None]
    times = sum(number for _, number in known)
    return sum(each * number for each, number in known) / times if times else 0.0


_NAMED = "CREATE OR REPLACE TEMP VIEW named AS SELECT *, base_name(task) AS name FROM attempt_intervals"
_QUEUED = """
SELECT round_even(avg(greatest(0, began - waits)), 0) / 1e9 FROM attempt_intervals
WHERE began IS NOT NULL AND waits IS NOT NULL
"""
# Times are added as whole nanoseconds: sums of fractions would depend on the order that rows happen to come
# in.
_TASKS = """
WITH lined AS (
    SELECT name, state, CASE WHEN duration_s BETWEEN 0 AND 2e9 THEN duration_s END AS duration_s,
        result_bytes, began, stopped, waits, max(stopped) OVER (
            PARTITION BY worker ORDER BY began, stopped ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS free
    FROM named WHERE began IS NOT NULL AND stopped IS NOT NULL AND name IS NOT NULL
), on_gpu AS (
    SELECT DISTINCT base_name(task) AS name FROM task_lines
    WHERE kind = 5 AND (gpu_s > 0 OR gpu_memory_scope IN ('allocator', 'process'))
)
SELECT name, count(*) AS attempts, count(*) FILTER (state = 'completed') AS completed,
    coalesce(sum(round(duration_s * 1e9)::BIGINT) FILTER (state = 'completed'), 0) / 1e9 AS total_s,
    max(duration_s) FILTER (state = 'completed') AS longest_s,
    round_even(median(began - free) FILTER (waits <= free AND began >= free), 0) / 1e9 AS handover_s,
    count(*) FILTER (waits <= free AND began >= free) AS handovers,
    avg(result_bytes) FILTER (state = 'completed') AS result_bytes, name IN (FROM on_gpu) AS on_gpu
FROM lined GROUP BY name ORDER BY name
"""
_MACHINE = """
SELECT count(DISTINCT host) FILTER (scope = 'node') AS hosts,
    least(nullif(max(cpus) FILTER (scope = 'node'), 0), nullif(min(cpus) FILTER (scope = 'cgroup'), 0))
        AS cpus,
    sum(cpu_percent * coalesce(interval_s, 1)) FILTER (scope = 'node')
        / nullif(sum(coalesce(interval_s, 1)) FILTER (scope = 'node' AND cpu_percent IS NOT NULL), 0)
        AS cpu_percent,
    max(memory_used_bytes) FILTER (scope = 'node') AS memory_peak_bytes,
    max(memory_total_bytes) FILTER (scope = 'node') AS memory_total_bytes
FROM resources WHERE event = 'resource_sample'
"""
_SHARING = """
WITH processes AS (
    SELECT worker, arg_max(concat(host, ' ', pid), "timestamp") AS process FROM workers
    WHERE worker IS NOT NULL AND pid IS NOT NULL GROUP BY worker
), placed AS (
    SELECT coalesce(process, attempt_intervals.worker) AS process, began, stopped,
        CASE WHEN cpu_s BETWEEN 0 AND 2e9 THEN round(cpu_s * 1e9)::BIGINT END AS cpu
    FROM attempt_intervals LEFT JOIN processes USING (worker)
    WHERE attempt_intervals.worker IS NOT NULL AND began < stopped
), swept AS (
    SELECT *, max(stopped) OVER (
        PARTITION BY process ORDER BY began, stopped ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached FROM placed
)
SELECT count(DISTINCT process) AS processes, coalesce(sum(stopped - began), 0) / 1e9 AS held_s,
    coalesce(sum(greatest(0, stopped - greatest(began, coalesce(reached, began)))), 0) / 1e9 AS covered_s,
    CASE WHEN sum(stopped - began) FILTER (cpu IS NOT NULL) >= 0.95 * sum(stopped - began)
        THEN sum(cpu) / 1e9 END AS cpu_s
FROM swept
"""
_CACHE = """
WITH counted AS (
    SELECT task, reason, count(*) AS number FROM cache
    WHERE result <> 'hit' AND reason IS NOT NULL GROUP BY ALL
), reasons AS (
    SELECT task, list({'reason': reason, 'number': number} ORDER BY number DESC, reason)[:$few] AS reasons
    FROM counted GROUP BY task
)
SELECT task, count(*) FILTER (result = 'hit') AS hits, count(*) FILTER (result = 'miss') AS misses,
    count(*) FILTER (result = 'bypass') AS bypassed,
    coalesce(sum(round(duration_s * 1e9)::BIGINT) FILTER (duration_s BETWEEN 0 AND 2e9), 0) / 1e9 AS lookup_s,
    coalesce(sum(size_bytes) FILTER (result = 'miss'), 0)::BIGINT AS kept_bytes,
    coalesce(map_from_entries(any_value(reasons.reasons)), MAP {}) AS reasons
FROM cache LEFT JOIN reasons USING (task) WHERE task IS NOT NULL GROUP BY task ORDER BY task
"""
_ACCOUNTED = """
SELECT state, elapsed_s, walltime_s FROM jobs
WHERE event = 'job_accounted' AND elapsed_s IS NOT NULL AND walltime_s > 0 ORDER BY "timestamp", writer, seq
"""
_CACHED = "SELECT DISTINCT named.name FROM cache JOIN named USING (task_id) WHERE named.name IS NOT NULL"


class Retried(Struct, frozen=True, kw_only=True):
    """Tasks of one name whose first attempt failed of one kind of error."""

    name: str
    error_type: str | None
    tasks: int
    """All of them."""
    tried_again: int
    """Those that had a further attempt that ended."""
    rescued: int
    """Those of them that completed in the end."""
    same_again: int
    """Those of them that failed for good, every time with the same type of error."""
    again_s: float
    """Time that further attempts took which came to nothing."""


class TimedOut(Struct, frozen=True, kw_only=True):
    """Attempts of one name that were ended at their timeout."""

    name: str
    attempts: int
    limit_s: float | None
    """The shortest of their timeouts, as they name it."""


_RETRIED = """
WITH troubled AS (
    SELECT name, task_id, attempt, state, error_type, coalesce(greatest(0, stopped - began), 0) AS ns
        FROM named
    WHERE name IS NOT NULL AND state IN ('completed', 'failed')
        AND task_id IN (SELECT task_id FROM attempt_intervals WHERE state = 'failed')
), troubled_tasks AS (
    SELECT any_value(name) AS name, task_id, arg_min_null(error_type, attempt) AS error_type,
        min(attempt) AS first, max(attempt) AS last, arg_min(state, attempt) AS began_as,
            arg_max(state, attempt) AS state,
        count(DISTINCT coalesce(error_type, '')) FILTER (state = 'failed') AS kinds,
        sum(ns) AS ns, arg_min(ns, attempt) AS first_ns
    FROM troubled GROUP BY task_id
)
SELECT name, error_type, count(*) AS tasks, count(*) FILTER (last > first) AS tried_again,
    count(*) FILTER (last > first AND state = 'completed') AS rescued,
    count(*) FILTER (last > first AND state = 'failed' AND kinds = 1) AS same_again,
    coalesce(sum(ns - first_ns) FILTER (state = 'failed'), 0) / 1e9 AS again_s
FROM troubled_tasks WHERE first = 1 AND began_as = 'failed' GROUP BY name, error_type
ORDER BY count(*) DESC, name, error_type LIMIT $kinds
"""
_MESSAGES = """
SELECT base_name(task) AS name, error_type, coalesce(error_message, reason) AS said, count(*) FROM task_lines
WHERE kind IN (4, 6) AND regexp_matches(said, 'timeout of|did not end|time limit')
GROUP BY ALL ORDER BY count(*) DESC, name, said LIMIT $kinds
"""


def timed_out_attempts(tables: RunTables) -> list[TimedOut]:
    """Attempts ended at their timeout; a TimeoutError of the program's own is none."""
    rows = tables.rows(_MESSAGES, {"kinds": AdviceLimits.max_failure_kinds})
    found = grouped(
        (name, (number, timeout_of(said)))
        for name, error_type, said, number in rows
        if timed_out(error_type, said, None)
    )
    return [
        TimedOut(
            name=name,
            attempts=sum(number for number, _ in ends),
            limit_s=min((limit for _, limit in ends if limit is not None), default=None),
        )
        for name, ends in sorted(found.items())
    ]


class WorkBatch(Struct, frozen=True, kw_only=True):
    """One stretch of work; seconds from its beginning, which is when its first task could have run."""

    wall_s: float
    """Until its last task ended, as measured."""
    releases: list[float]
    """When each piece of work could have run, in rising order."""
    durations: list[float]
    """How long each held a worker, being handed over included."""
    needs: list[list[int]]
    """The pieces of work that each waits for; empty where none waits for any."""
    ready: list[float]
    """When each worker that there was could take work, the first one first."""

    def on(self, workers: int, at_once: int = 1) -> float:
        """How long it takes on this number of workers, each with `at_once` tasks; by the same workers first.

        Further workers are there when half of those that there were are.
        """
        later = self.ready[len(self.ready) // 2] if self.ready else 0.0
        ready = (self.ready[:workers] + [later] * (workers - len(self.ready))) * at_once
        return replay(self.releases, self.durations, ready, self.needs)


_PIECES = """
CREATE OR REPLACE TEMP TABLE work_pieces AS
WITH pieces AS (
    SELECT task_id, attempt, began, stopped, CASE WHEN len(depends_on) > 0 THEN depends_on END AS needed,
        least(coalesce(CASE WHEN needed IS NOT NULL AND attempt = 1 THEN submitted END, waits, began), began)
            AS release
    FROM attempt_intervals WHERE worker IS NOT NULL AND began IS NOT NULL AND stopped IS NOT NULL
), ordered AS (
    SELECT *, row_number() OVER in_order AS place,
        max(stopped) OVER (in_order ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
    FROM pieces WINDOW in_order AS (ORDER BY release, began, task_id, attempt)
)
SELECT *, sum(CASE WHEN release < reached THEN 0 ELSE 1 END) OVER (ORDER BY place) AS wave FROM ordered
"""
_WAVES = """
WITH pieces AS (
    SELECT wave, min(release) AS release, sum(stopped - began + $handover)::BIGINT AS lasted,
        min(began) AS began, max(stopped) AS stopped, max(task_id) AS task_id,
        coalesce(any_value(needed), []) AS needed, number // $together AS number
    FROM (SELECT *, row_number() OVER (PARTITION BY wave ORDER BY place) - 1 AS number FROM work_pieces)
    GROUP BY wave, number // $together
)
SELECT min(release), max(stopped), list(release ORDER BY number), list(lasted ORDER BY number),
    list(began ORDER BY number), list(task_id ORDER BY number), list(needed ORDER BY number)
FROM pieces GROUP BY wave ORDER BY wave
"""


def waves(tables: RunTables, handover_s: float) -> list[WorkBatch] | None:
    """The waves of a run, from its tables `attempt_intervals` and `uptimes`; each task is `handover_s` longer
    than it ran.

    None where there are too many of them, or too many tasks that depend on each other.
    """
    tables.execute(_PIECES)
    [(number, jobs, dependent)] = tables.rows(
        "SELECT count(DISTINCT wave), count(*), count(needed) FROM work_pieces"
    )
    lives = list(tables.rows("SELECT since, until FROM uptimes ORDER BY since"))
    together = max(1, -(-jobs // max(AdviceLimits.max_replayed_jobs, 50 * len(lives))))
    if number > AdviceLimits.max_batches or (dependent and together > 1):
        return None
    parameters = {"handover": round(handover_s * SECOND), "together": together}
    return [
        WorkBatch(
            wall_s=(until - since) / SECOND,
            releases=[(release - since) / SECOND for release in releases],
            durations=[lasted / SECOND for lasted in durations],
            needs=_needs(*tasks) if dependent else [],
            ready=[max(0, up - since) / SECOND for up, down in lives if up < until and down > since],
        )
        for since, until, releases, durations, *tasks in tables.rows(_WAVES, parameters)
    ]


def _needs(began: list[int], task_ids: list[str], needed: list[list[str]]) -> list[list[int]]:
    """What each piece waits for, of those that began before it: what a damaged line says may be a circle."""
    numbers = {task_id: number for number, task_id in enumerate(task_ids)}  # of several attempts the last
    return [
        [
            other
            for task_id in wanted
            if (other := numbers.get(task_id)) is not None and (began[other], other) < (began[number], number)
        ]
        for number, wanted in enumerate(needed)
    ]
