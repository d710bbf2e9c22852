"""Statistics of each run that advice looks at: a few numbers by task, worker, cache and failure.

A run is read once for all of it, in SQL; what stays of it in memory is bounded whatever its size.

The work of a run is kept as batches: stretches of tasks between moments at which nothing was left to do. A
program that maps, gathers and maps again makes a batch of each map. How long a batch takes on another number
of workers can be replayed; how long the program takes between two of them does not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from flightlog.analyze.advice.base import Advice
from flightlog.analyze.history.attempts import Planned, read_plan, timed_out, timeout_of
from flightlog.analyze.predict.schedule import replay
from flightlog.analyze.report.time_shares import TimeSplit, shares
from flightlog.core.time import SECOND, moment, seconds
from flightlog.events import JobAccounted, WorkerEvent
from flightlog.store.liveness import unix_time
from flightlog.store.tables.connection import records
from flightlog.store.tables.intervals import most_at_once
from flightlog.store.tables.run_tables import open_tables

if TYPE_CHECKING:
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables

LEAST_RUNS = 3
"""Least number of runs that have to agree before a number of workers is advised."""
REASONS = 5
"""How many reasons of a cache are kept for each function, the most frequent ones."""

_EVENTFUL = frozenset({"cache", "failures", "jobs"})


class TaskStatistics(Struct, frozen=True, kw_only=True):
    """The tasks of one name in a run; `sim[3]` counts as `sim`. Null is unknown."""

    attempts: int
    """That began and ended."""
    completed: int
    total_s: float
    """Execution time of completed ones, all together."""
    median_s: float | None
    longest_s: float | None
    handover_s: float | None
    """Median time between the end of a worker's task and the start of its next one, where that was
    waiting."""
    handovers: int
    """How many times that was seen."""
    cpu_s: float | None
    """CPU time of completed ones that know it."""
    cpu_of_s: float
    """Their execution time."""
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


class AdviceOutcome(Struct, frozen=True, kw_only=True):
    """What one look at the runs gave: advice, or why there is none where there might be some."""

    advice: list[Advice] = []
    silent: str | None = None


def gather(run: Run) -> RunStatistics:
    """The shape of a run. Raises `OSError` or `duckdb.Error` where its files cannot be read."""
    window = moment(run.info.start_time), moment(run.ending().end_time)
    processes: dict[str, str] = {}
    for event in run.events("workers"):
        if isinstance(event, WorkerEvent) and event.pid is not None:
            processes[event.worker] = f"{event.host} {event.pid}"
    with open_tables([run]) as tables:
        tables.execute(_ENDS)
        tables.execute(_NAMED)
        split = shares(tables, window)
        by_workers = split is not None and split.basis == "workers"
        tasks = _tasks(tables)
        each_s = _overall_handover(tasks)
        troubled = any(task.attempts > task.completed for task in tasks.values())
        return msgspec.structs.replace(
            uneventful(run),
            workers=_at_once(tables) if by_workers else 0,
            time=split.whole if split is not None and by_workers else None,
            queue_s=_queued(tables),
            waves=waves(tables, each_s) if by_workers else None,
            machine=_machine(tables),
            side_by_side=_side_by_side(tables, processes),
            tasks=tasks,
            cache=_cache(tables),
            cached_tasks=frozenset(name for (name,) in tables.execute(_CACHED).fetchall()),
            retried=retried(tables) if troubled else [],
            timed_out=timed_out_attempts(tables) if troubled else [],
            jobs=_jobs(run),
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


def _at_once(tables: RunTables) -> int:
    most = most_at_once(tables, "SELECT since, until FROM uptimes")
    return most[0] if most is not None else 0


def _queued(tables: RunTables) -> float | None:
    [(waited,)] = tables.execute(
        "SELECT avg(greatest(0, began - waits)) FROM attempt_intervals WHERE began IS NOT NULL AND waits "
        "IS NOT NULL"
    ).fetchall()
    return None if waited is None else seconds(round(waited))


def _overall_handover(tasks: dict[str, TaskStatistics]) -> float:
    """What handing over one task takes, of all names together; 0 where it was never seen."""
    known = [(task.handover_s, task.handovers) for task in tasks.values() if task.handover_s is not None]
    times = sum(number for _, number in known)
    return sum(each * number for each, number in known) / times if times else 0.0


_ENDS = """
CREATE OR REPLACE TEMP VIEW ends AS
SELECT kind, base_name(task) AS name, error_type,
    coalesce(error_message, reason) AS said,
    gpu_s, gpu_memory_scope
FROM task_lines WHERE kind >= 4
"""
"""Ends and retries of attempts, as they were written."""

_NAMED = """
CREATE OR REPLACE TEMP VIEW named AS SELECT *, base_name(task) AS name
    FROM attempt_intervals
"""

# Times are added as whole nanoseconds: sums of fractions would depend on the order that rows happen to come
# in.
_TASKS = """
WITH lined AS (
    SELECT name, state, CASE WHEN duration_s BETWEEN 0 AND 2e9 THEN duration_s END AS duration_s,
        CASE WHEN duration_s BETWEEN 0 AND 2e9 THEN round(duration_s * 1e9)::BIGINT END AS lasted,
        CASE WHEN cpu_s BETWEEN 0 AND 2e9 THEN round(cpu_s * 1e9)::BIGINT END AS cpu, result_bytes, began,
            stopped, waits, max(stopped) OVER (
        PARTITION BY worker ORDER BY began, stopped ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS free FROM named WHERE began IS NOT NULL AND stopped IS NOT NULL AND name IS NOT NULL
)
SELECT name, count(*) AS attempts, count(*) FILTER (state = 'completed') AS completed,
    coalesce(sum(lasted) FILTER (state = 'completed'), 0) / 1e9 AS total_s,
    median(duration_s) FILTER (state = 'completed') AS median_s,
    max(duration_s) FILTER (state = 'completed') AS longest_s,
    median(began - free) FILTER (waits <= free AND began >= free) AS handover_s,
    count(*) FILTER (waits <= free AND began >= free) AS handovers,
    sum(cpu) FILTER (state = 'completed' AND lasted IS NOT NULL) / 1e9 AS cpu_s,
    coalesce(sum(lasted) FILTER (state = 'completed' AND cpu IS NOT NULL), 0) / 1e9 AS cpu_of_s,
    avg(result_bytes) FILTER (state = 'completed') AS result_bytes
FROM lined GROUP BY name ORDER BY name
"""
_ON_GPU = """
SELECT DISTINCT name FROM ends WHERE kind = 5 AND (gpu_s > 0 OR gpu_memory_scope IN ('allocator', 'process'))
"""


def _tasks(tables: RunTables) -> dict[str, TaskStatistics]:
    on_gpu = {name for (name,) in tables.execute(_ON_GPU).fetchall()}
    found = {}
    for values in tables.records(_TASKS):
        name, handover = values.pop("name"), values.pop("handover_s")
        found[name] = TaskStatistics(
            **values,
            handover_s=None if handover is None else seconds(round(handover)),
            on_gpu=name in on_gpu,
        )
    return found


_MACHINE = """
SELECT count(DISTINCT host) FILTER (scope = 'node'), max(cpus) FILTER (scope = 'node'), min(cpus)
    FILTER (scope = 'cgroup'),
    sum(cpu_percent * coalesce(interval_s, 1)) FILTER (scope = 'node')
        / nullif(sum(coalesce(interval_s, 1)) FILTER (scope = 'node' AND cpu_percent IS NOT NULL), 0),
    max(memory_used_bytes) FILTER (scope = 'node'), max(memory_total_bytes) FILTER (scope = 'node')
FROM resources WHERE event = 'resource_sample'
"""


def _machine(tables: RunTables) -> Machine | None:
    [(hosts, cpus, quota, percent, peak, total)] = tables.execute(_MACHINE).fetchall()
    if not hosts:
        return None
    known = [number for number in (cpus, quota) if number]
    return Machine(
        hosts=hosts,
        cpus=min(known) if known else None,
        cpu_percent=percent,
        memory_peak_bytes=peak,
        memory_total_bytes=total,
    )


_SIDE_BY_SIDE = """
WITH placed AS (
    SELECT coalesce(processes.process, attempt_intervals.worker) AS process, began, stopped,
        CASE WHEN cpu_s BETWEEN 0 AND 2e9 THEN round(cpu_s * 1e9)::BIGINT END AS cpu
    FROM attempt_intervals LEFT JOIN (SELECT unnest($1::VARCHAR[]) AS worker, unnest($2::VARCHAR[]) AS
        process) AS
        processes USING (worker)
    WHERE attempt_intervals.worker IS NOT NULL AND began < stopped
), swept AS (
    SELECT *, max(stopped) OVER (
        PARTITION BY process ORDER BY began, stopped ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached FROM placed
)
SELECT count(DISTINCT process), coalesce(sum(greatest(0, stopped - greatest(began, coalesce(reached,
    began)))), 0),
    coalesce(sum(stopped - began), 0), sum(cpu) / 1e9, coalesce(sum(stopped - began)
        FILTER (cpu IS NOT NULL), 0)
FROM swept
"""


def _side_by_side(tables: RunTables, processes: dict[str, str]) -> ProcessSharing | None:
    rows = tables.execute(_SIDE_BY_SIDE, [list(processes), list(processes.values())]).fetchall()
    [(number, covered, held, cpu_s, known)] = rows
    if not number:
        return None
    return ProcessSharing(
        processes=number,
        covered_s=seconds(int(covered)),
        held_s=seconds(int(held)),
        cpu_s=cpu_s if int(known) >= 0.95 * int(held) else None,
    )


_CACHE = """
SELECT task, count(*) FILTER (result = 'hit'), count(*) FILTER (result = 'miss'), count(*)
    FILTER (result = 'bypass'),
    coalesce(sum(round(duration_s * 1e9)::BIGINT) FILTER (duration_s BETWEEN 0 AND 2e9), 0) / 1e9,
    coalesce(sum(size_bytes) FILTER (result = 'miss'), 0)
FROM cache WHERE task IS NOT NULL GROUP BY task ORDER BY task
"""
_REASONS = """
SELECT task, reason, count(*) AS number FROM cache WHERE result <> 'hit' AND reason IS NOT NULL GROUP BY task,
    reason
QUALIFY row_number() OVER (PARTITION BY task ORDER BY number DESC, reason) <= $few ORDER BY task, number DESC,
    reason
"""
_CACHED = "SELECT DISTINCT named.name FROM cache JOIN named USING (task_id) WHERE named.name IS NOT NULL"


def _cache(tables: RunTables) -> dict[str, CacheUse]:
    reasons: dict[str, dict[str, int]] = {}
    for task, reason, number in tables.execute(_REASONS, {"few": REASONS}).fetchall():
        reasons.setdefault(task, {})[reason] = number
    return {
        task: CacheUse(
            hits=hits,
            misses=misses,
            bypassed=bypassed,
            lookup_s=lookup_s,
            kept_bytes=int(kept),
            reasons=reasons.get(task, {}),
        )
        for task, hits, misses, bypassed, lookup_s, kept in tables.execute(_CACHE).fetchall()
    }


def _jobs(run: Run) -> list[Job]:
    return [
        Job(state=event.state, elapsed_s=event.elapsed_s, walltime_s=event.walltime_s)
        for event in run.events("jobs")
        if isinstance(event, JobAccounted) and event.elapsed_s is not None and event.walltime_s
    ]


KINDS = 1000
"""How many kinds of failures of a run are kept, those of most tasks first."""


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
    first_s: float
    """Time that the first attempts took."""


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
), tasks AS (
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
    coalesce(sum(ns - first_ns) FILTER (state = 'failed'), 0) AS again_ns,
    coalesce(sum(first_ns), 0) AS first_ns
FROM tasks WHERE first = 1 AND began_as = 'failed' GROUP BY name, error_type
ORDER BY count(*) DESC, name, error_type LIMIT $kinds
"""
_MESSAGES = """
SELECT name, error_type, said, count(*) FROM ends
WHERE kind IN (4, 6) AND regexp_matches(said, 'timeout of|did not end|time limit')
GROUP BY name, error_type, said ORDER BY count(*) DESC, name, said LIMIT $kinds
"""


def retried(tables: RunTables) -> list[Retried]:
    """Of tasks whose first attempt failed, from the view `named`: a row for each name and type of error."""
    return [
        Retried(again_s=seconds(int(row.pop("again_ns"))), first_s=seconds(int(row.pop("first_ns"))), **row)
        for row in records(tables.execute(_RETRIED, {"kinds": KINDS}))
    ]


def timed_out_attempts(tables: RunTables) -> list[TimedOut]:
    """Attempts ended at their timeout, from the view `ends`; a TimeoutError of the program's own is none."""
    found: dict[str, tuple[int, list[float]]] = {}
    for name, error_type, said, number in tables.execute(_MESSAGES, {"kinds": KINDS}).fetchall():
        if timed_out(error_type, said, None):
            attempts, limits = found.get(name, (0, []))
            limit = timeout_of(said)
            found[name] = attempts + number, [*limits, limit] if limit is not None else limits
    return [
        TimedOut(name=name, attempts=attempts, limit_s=min(limits) if limits else None)
        for name, (attempts, limits) in sorted(found.items())
    ]


MOST_JOBS = 5_000
"""Most pieces of work of a run that are replayed; where there are more tasks, neighbours are put together."""
MOST_WAVES = 2_000


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


class BatchTask(NamedTuple):
    """One task, or several neighbours: nanoseconds."""

    release: int
    lasted: int
    began: int
    task_id: str
    needed: Sequence[str]


_JOBS = """
CREATE OR REPLACE TEMP TABLE jobs AS
WITH jobs AS (
    SELECT task_id, attempt, began, stopped, CASE WHEN len(depends_on) > 0 THEN depends_on END AS needed,
        least(coalesce(CASE WHEN len(depends_on) > 0 AND attempt = 1 THEN submitted END, waits, began), began)
            AS release
    FROM attempt_intervals WHERE worker IS NOT NULL AND began IS NOT NULL AND stopped IS NOT NULL
), reached AS (
    SELECT *, max(stopped) OVER (
        ORDER BY release, began, task_id, attempt ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached FROM jobs
)
SELECT * EXCLUDE (reached), sum(CASE WHEN release < reached THEN 0 ELSE 1 END) OVER (
    ORDER BY release, began, task_id, attempt ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
) AS wave FROM reached
"""
_BOUNDS = "SELECT wave, min(release), max(stopped) FROM jobs GROUP BY wave ORDER BY wave"
_PIECES = """
WITH numbered AS (
    SELECT *, row_number() OVER (PARTITION BY wave ORDER BY release, began, task_id, attempt) - 1 AS number
        FROM jobs
)
SELECT wave, min(release), sum(stopped - began + $handover), min(began), max(task_id), any_value(needed)
FROM numbered GROUP BY wave, number // $together, CASE WHEN $together = 1 THEN number END
ORDER BY wave, min(number)
"""


def waves(tables: RunTables, handover_s: float) -> list[WorkBatch] | None:
    """The waves of a run, from its tables `attempt_intervals` and `uptimes`; each task is `handover_s` longer
    than it ran.

    None where there are too many of them, or too many tasks that depend on each other.
    """
    tables.execute(_JOBS)
    bounds = {wave: (since, until) for wave, since, until in tables.execute(_BOUNDS).fetchall()}
    [(jobs, dependent)] = tables.execute("SELECT count(*), count(needed) FROM jobs").fetchall()
    lives = tables.execute("SELECT since, until FROM uptimes ORDER BY since").fetchall()
    together = -(-jobs // max(MOST_JOBS, 50 * len(lives)))
    if len(bounds) > MOST_WAVES or (dependent and together > 1):
        return None
    pieces: dict[int, list[BatchTask]] = {}
    parameters = {"handover": round(handover_s * SECOND), "together": max(1, together)}
    for wave, release, lasted, began, task_id, needed in tables.execute(_PIECES, parameters).fetchall():
        pieces.setdefault(wave, []).append(BatchTask(release, int(lasted), began, task_id, needed or ()))
    tables.execute("DROP TABLE jobs")
    return [_wave(pieces[wave], since, until, lives) for wave, (since, until) in bounds.items()]


def _wave(pieces: list[BatchTask], since: int, until: int, lives: list[tuple[int, int]]) -> WorkBatch:
    return WorkBatch(
        wall_s=(until - since) / SECOND,
        releases=[(piece.release - since) / SECOND for piece in pieces],
        durations=[piece.lasted / SECOND for piece in pieces],
        needs=_needs(pieces) if any(piece.needed for piece in pieces) else [],
        ready=[max(0, begun - since) / SECOND for begun, ended in lives if begun < until and ended > since],
    )


def _needs(pieces: list[BatchTask]) -> list[list[int]]:
    """What each piece waits for, of those that began before it: what a damaged line says may be a circle."""
    numbers = {piece.task_id: number for number, piece in enumerate(pieces)}  # of several attempts the last
    return [
        [
            other
            for needed in piece.needed
            if (other := numbers.get(needed)) is not None
            and (pieces[other].began, other) < (piece.began, number)
        ]
        for number, piece in enumerate(pieces)
    ]
