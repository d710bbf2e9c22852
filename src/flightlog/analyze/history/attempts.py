"""The attempts of a project's newest runs: what each used, what it had requested, and how it ended.

What advice and prediction learn from. Runs that are damaged give what can be read of them; those of which
nothing can are named in `problems`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from flightlog.analyze.limits import HistoryLimits
from flightlog.analyze.tallies import copied, json_object
from flightlog.core.errors import FlightlogError
from flightlog.core.text import first_line
from flightlog.events.rates import Sizes
from flightlog.store import layout
from flightlog.store.completing import open_run
from flightlog.store.documents import read_document
from flightlog.store.earlier_runs import select_runs
from flightlog.store.liveness import Observer
from flightlog.store.run import Run

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables


PLAUSIBLE_S = 1e-9, 2e9
PLAUSIBLE_BYTES = 1.0, 2.0**60
"""Seconds, from what clocks tell apart to most of a century, and bytes that an attempt may have used. What is
outside was not measured, whatever a line says."""


class Requested(Sizes, frozen=True, kw_only=True):
    """What was asked for, or given; None is "not said"."""

    walltime_s: float | None = None


class PastAttempt(Struct, frozen=True, kw_only=True):
    """One attempt of a task that began; None is unknown."""

    run_id: str
    name: str
    """Of its task, without an index: `sim` of `sim[3]`."""
    task_id: str
    attempt: int
    component: str | None
    host: str | None
    worker: str | None
    args: dict[str, Any]
    state: str
    """`completed`, `failed`, `cancelled`, or `running`: it began, and no end of it was seen."""
    ended: float | None
    """Unix seconds."""
    duration_s: float | None
    cpu_s: float | None
    cpu_scope: str | None
    peak_rss_bytes: int | None
    """With the processes that it started, where one of them, or a sample of its worker's tree, had more."""
    rss_scope: str | None
    gpu_peak_bytes: int | None
    gpu_memory_scope: str | None
    memory_killed: bool | None
    """Killed for the host's memory, as kernel, cgroup, engine or batch system say; None: killed, why is
    unknown."""
    gpu_memory_killed: bool
    """Ended because a device had no memory left."""
    timed_out: bool
    """Ended at its timeout, or at the time limit of its job."""
    requested: Requested
    """What it had. What is said of one submission counts before its task's, that before its component's, and
    all of them before what its worker was given; a plan fills in where events are lost."""
    node_memory_bytes: int | None
    """What its host had, or the cgroup that it was in allowed, whichever is less."""
    node_cpu_percent: float | None
    """How busy the CPUs of the run's hosts were on average, 0 to 100."""
    timeout_s: float | None
    """The longest it might run, where the plan or its own end says."""
    saved_s: float | None
    """What a cache spared its task."""


class ProjectHistory(Struct, frozen=True, kw_only=True):
    """The newest runs of a project and their attempts, both the newest first."""

    project: str | None
    runs: list[Run]
    """Those that could be read, whether they have attempts or not."""
    attempts: list[PastAttempt]
    problems: list[str] = []
    """Sentences on what could not be read."""
    older_runs: int = 0
    """Runs of the project that are there and were not looked at."""
    projects: list[str] = []
    """All projects that there are runs of, those with the newest runs first."""


def read_past(
    runs_dir: Path,
    *,
    project: str | None,
    target: str | None = None,
    task: str | None = None,
    observer: Observer | None = None,
) -> ProjectHistory:
    """The past of a project, or of the latest run's where it is None; running runs with what they have so
    far.

    `target` keeps runs on that target, `task` attempts of that name (`sim` means `sim[3]`, too). At most
    `max_selected_runs` runs and `max_attempts` attempts, the newest. An empty past where there is nothing;
    never raises for what stands in the folder.
    """
    selected = select_runs(runs_dir, project=project, target=target, observer=observer)
    problems = list(selected.problems)
    opened: list[Run] = []
    for one in selected.runs:
        try:
            opened.append(open_run(one.entry.path, observer=observer))
        except (FlightlogError, OSError) as error:
            problems.append(f"{one.entry.run_id}: {error}")
    readable, found = _read(opened, task, HistoryLimits.max_attempts, problems)
    named = HistoryLimits.max_named_problems
    if len(problems) > named:
        problems = [*problems[:named], f"and {len(problems) - named} more like these"]
    return copied(ProjectHistory, selected, runs=readable, attempts=found, problems=problems)


def _read(
    runs: list[Run], task: str | None, limit: int, problems: list[str]
) -> tuple[list[Run], list[PastAttempt]]:
    """The attempts of all runs at once; run by run where one of them cannot be read, so that it spoils no
    other.
    """
    if not runs:
        return [], []
    try:
        return runs, _attempts(runs, task, limit)
    except unreadable():
        pass  # one of them spoils it; which one shows below
    readable: list[Run] = []
    found: list[PastAttempt] = []
    for run in runs:
        try:
            found += _attempts([run], task, limit - len(found)) if len(found) < limit else []
            readable.append(run)
        except unreadable() as error:
            problems.append(f"{run.run_id}: cannot be read: {first_line(str(error))}")
    return readable, found


def unreadable() -> tuple[type[Exception], ...]:
    """What is raised where the files of a run cannot be read."""
    import duckdb

    return OSError, duckdb.Error, FlightlogError


def _attempts(runs: list[Run], task: str | None, limit: int) -> list[PastAttempt]:
    from flightlog.store.tables.run_tables import open_tables

    with open_tables(runs) as tables:
        tables.execute(_CHOSEN, {"runs": [run.run_id for run in runs], "task": task, "limit": limit})
        tables.execute("CREATE TEMP VIEW requesters AS FROM chosen")
        plans = _make_requested(tables, runs)
        limits = [(run_id, name, one.timeout_s) for run_id, plan in plans for name, one in plan.tasks.items()]
        tables.keep("plan_timeouts", _TIMEOUTS, limits)
        tables.keep("run_hosts", _RUN_HOSTS, [(run.run_id, run.info.host or None) for run in runs])
        return [_attempt(row) for row in tables.records(_ATTEMPTS)]


def read_requests(
    tables: RunTables, run: Run, tasks: Sequence[tuple[str | None, str | None, str | None]]
) -> list[Requested]:
    """What tasks of a run asked for, each given by its id, its name and its component."""
    rows = [(place, run.run_id, *task, task[1], None) for place, task in enumerate(tasks)]
    tables.keep("requesters", _REQUESTERS, rows)
    _make_requested(tables, [run])
    return [Requested(**one) for (one,) in tables.rows("SELECT requested FROM requested ORDER BY place")]


def _make_requested(tables: RunTables, runs: Sequence[Run]) -> list[tuple[str, Planned]]:
    """Make `requested`, what each of the `requesters` had; gives the runs' plans, by their ids."""
    plans = [(run.run_id, read_plan(run.path)) for run in runs]
    said = [(run_id, "plan", *each) for run_id, plan in plans for each in plan.components.items()]
    said += [
        (run_id, "task", name, plan.components[planned.component])
        for run_id, plan in plans
        for name, planned in plan.tasks.items()
        if planned.component in plan.components
    ]
    rows = [(*about, *msgspec.structs.astuple(asked)) for *about, asked in said]
    tables.keep("plan_requests", _PLANNED, rows)
    tables.execute(_REQUESTED)
    return plans


def _attempt(row: dict[str, Any]) -> PastAttempt:
    """An attempt of a row, with what the words of its error say."""
    kind, message, signal, lost = (row.pop(name) for name in ("error_type", "message", "signal", "lost"))
    failed = row["state"] == "failed"
    lost = lost if kind in _BY_WORKER else None
    row["timeout_s"] = (timeout_of(message) if failed else None) or row["timeout_s"]
    return PastAttempt(
        args=decoded_args(row.pop("args")),
        requested=Requested(**row.pop("requested")),
        memory_killed=memory_killed(kind, message, signal, lost) if failed else False,
        gpu_memory_killed=failed and gpu_memory_killed(kind, message),
        timed_out=failed and timed_out(kind, message, lost),
        **row,
    )


def decoded_args(text: str | None) -> dict[str, Any]:
    """The arguments of a call from a column of a table; none where they cannot be read."""
    return json_object(text) or {}


_BY_WORKER = frozenset({None, "WorkerLost", "KilledWorker"})
"""Errors behind which the end of a worker stands."""
_NAMES = {"run_id": "VARCHAR", "task_id": "VARCHAR", "task": "VARCHAR", "component": "VARCHAR"}
_REQUESTERS = {"place": "BIGINT", **_NAMES, "name": "VARCHAR", "worker": "VARCHAR"}
_AMOUNTS = {"cpus": "DOUBLE", "memory_bytes": "BIGINT", "gpus": "DOUBLE", "walltime_s": "DOUBLE"}
_PLANNED = {"run_id": "VARCHAR", "kind": "VARCHAR", "key": "VARCHAR", **_AMOUNTS}
_TIMEOUTS = {"run_id": "VARCHAR", "name": "VARCHAR", "timeout_s": "DOUBLE"}
_RUN_HOSTS = {"run_id": "VARCHAR", "host": "VARCHAR"}
_REQUESTED = """
CREATE OR REPLACE TEMP TABLE requested AS
WITH launched AS (
    SELECT run_id, 'worker' AS kind, worker AS key, arg_max(cpus, "timestamp") AS cpus,
        arg_max(memory_bytes, "timestamp") AS memory_bytes, arg_max(gpus, "timestamp") AS gpus
    FROM workers WHERE worker IS NOT NULL GROUP BY ALL
), last AS ( -- the last request for a thing counts, and one of a plan where there is none
    SELECT * FROM (
        SELECT *, NULL AS moment FROM plan_requests
        UNION ALL BY NAME SELECT run_id, "timestamp" AS moment, coalesce(task_id, task, component) AS key,
            CASE WHEN task_id IS NOT NULL THEN 'task_id' WHEN task IS NOT NULL THEN 'task'
                ELSE 'component' END AS kind, cpus, memory_bytes, gpus, walltime_s
        FROM resources WHERE event = 'resource_request'
            AND (task_id IS NULL OR task_id IN (SELECT task_id FROM requesters))
    ) QUALIFY row_number() OVER (PARTITION BY run_id, kind, key ORDER BY moment DESC NULLS LAST) = 1
), keys AS (
    SELECT place, run_id, unnest([task_id, task, name, component, worker, component]) AS key,
        unnest(['task_id', 'task', 'task', 'component', 'worker', 'plan']) AS kind, unnest(range(6)) AS rank
    FROM requesters
)
SELECT place, struct_pack( -- nobody asks for no CPU, or no memory
    cpus := arg_min(cpus, rank) FILTER (cpus > 0 OR kind = 'plan'),
    memory_bytes := arg_min(memory_bytes, rank) FILTER (memory_bytes > 0 OR kind = 'plan'),
    gpus := arg_min(gpus, rank),
    walltime_s := arg_min(walltime_s, rank) FILTER (walltime_s > 0 OR kind = 'plan')
) AS requested
FROM keys LEFT JOIN (FROM last UNION ALL BY NAME FROM launched) USING (run_id, kind, key) GROUP BY place
"""
_CHOSEN = """
CREATE TEMP TABLE chosen AS
SELECT *, base_name(task) AS name, CASE WHEN rss_scope = 'tree_at_least' -- of its largest child alone
        THEN peak_rss_bytes + coalesce(rss_before_bytes, 0) ELSE peak_rss_bytes END AS known_bytes,
    row_number() OVER (
    ORDER BY list_position($runs, run_id), ended_at DESC NULLS FIRST, task_id, attempt
) AS place
FROM attempts
WHERE state <> 'pending' AND task IS NOT NULL AND ($task IS NULL OR task = $task OR base_name(task) = $task)
QUALIFY place <= $limit
"""
_ATTEMPTS = """
WITH launched AS (
    SELECT run_id, worker, nullif(arg_max(host, "timestamp"), '') AS host,
        arg_max(reason, "timestamp") FILTER (event = 'worker_lost') AS lost
    FROM workers WHERE worker IS NOT NULL GROUP BY ALL
), signals AS (
    SELECT run_id, task_id, coalesce(nullif(attempt, 0), 1) AS attempt, arg_max(signal, "timestamp") AS signal
    FROM failures WHERE signal IS NOT NULL AND task_id IS NOT NULL GROUP BY ALL
), hosts AS (
    SELECT run_id, host, min(memory_total_bytes) AS room FROM resources
    WHERE scope IN ('node', 'cgroup') AND memory_total_bytes > 0 GROUP BY ALL
), busy AS (
    SELECT run_id, avg(cpu_percent) AS busy FROM resources
    WHERE scope = 'node' AND cpu_percent IS NOT NULL GROUP BY ALL
), trees AS ( -- of a worker's samples, those while an attempt ran, the last that began before
    SELECT chosen.place, max(sampled.rss_bytes) AS tree_bytes
    FROM (
        SELECT run_id, worker, "timestamp", rss_bytes FROM resources
        WHERE scope IN ('worker', 'worker_process') AND processes > 1 AND worker IS NOT NULL
    ) AS sampled ASOF JOIN chosen ON sampled.run_id = chosen.run_id AND sampled.worker = chosen.worker
        AND sampled."timestamp" >= chosen.started_at
    WHERE sampled."timestamp" <= chosen.ended_at GROUP BY chosen.place
), spared AS (
    SELECT run_id, task_id, sum(saved_s) AS saved_s FROM cache
    WHERE result = 'hit' AND task_id IS NOT NULL AND saved_s > 0 GROUP BY ALL
)
SELECT chosen.run_id, chosen.name, chosen.task_id, chosen.attempt, component, chosen.worker, args, state,
    epoch(ended_at) AS ended, duration_s, cpu_s, cpu_scope,
    greatest(known_bytes, tree_bytes) AS peak_rss_bytes, gpu_peak_bytes,
    CASE WHEN tree_bytes > coalesce(known_bytes, 0) OR rss_scope = 'tree_at_least' THEN 'tree' ELSE rss_scope
        END AS rss_scope,
    gpu_memory_scope, error_type, error_message AS message, signal, lost, requested, timeout_s, saved_s,
    coalesce(launched.host, run_hosts.host) AS host, room AS node_memory_bytes, busy AS node_cpu_percent
FROM chosen JOIN requested USING (place) LEFT JOIN trees USING (place)
JOIN run_hosts ON run_hosts.run_id = chosen.run_id
LEFT JOIN launched ON launched.run_id = chosen.run_id AND launched.worker = chosen.worker
LEFT JOIN hosts ON hosts.run_id = chosen.run_id
    AND hosts.host IS NOT DISTINCT FROM coalesce(launched.host, run_hosts.host)
LEFT JOIN signals ON signals.run_id = chosen.run_id AND signals.task_id = chosen.task_id
    AND signals.attempt = chosen.attempt
LEFT JOIN busy ON busy.run_id = chosen.run_id
LEFT JOIN spared ON spared.run_id = chosen.run_id AND spared.task_id = chosen.task_id
LEFT JOIN plan_timeouts ON plan_timeouts.run_id = chosen.run_id AND plan_timeouts.name = chosen.name
ORDER BY place
"""


_DEVICE_LIBRARIES = ("torch.", "tensorflow.", "jax.", "jaxlib.", "cupy.", "cupy_backends.")
_SAYS_MEMORY = re.compile(
    r"kernel's OOM killer|oom_kill of its cgroup|ended (?:it )?for (?:its )?memory|OUT_OF_MEMORY",
    re.IGNORECASE,
)
_SAYS_DEVICE = re.compile(
    r"(?:CUDA|HIP)(?: error:)? out of memory|MPS backend out of memory|RESOURCE_EXHAUSTED"
)
_SAYS_TIME = re.compile(
    r"(?:ran over its timeout of|did not end within) ([0-9.]+(?:e[+-]?\d+)?) s|did not end in time"
    r"|ended at its time limit"
)
_WORDLESS = frozenset({"WorkerLost", "SIGKILL", "KilledWorker", "RayActorError", "NODE_FAIL"})


def memory_killed(
    error_type: str | None, message: str | None, signal: str | None, lost_reason: str | None
) -> bool | None:
    """Whether the host's memory ended a failed attempt: by kernel, cgroup, engine or batch system.

    None where something killed it and nobody says why. Memory of a device is another matter: False. So is a
    MemoryError: an allocation was refused, however much memory there was.
    """
    said = f"{message or ''}\n{lost_reason or ''}"
    kind = (error_type or "").rpartition(".")[2]
    if kind == "OUT_OF_MEMORY" or _SAYS_MEMORY.search(said):
        return True
    if kind == "OutOfMemoryError" and not gpu_memory_killed(error_type, message):
        return True
    return None if signal == "SIGKILL" or kind in _WORDLESS or "SIGKILL" in said else False


def gpu_memory_killed(error_type: str | None, message: str | None) -> bool:
    """Whether a failed attempt ran out of a device's memory, by its exception."""
    if (error_type or "").endswith(("OutOfMemoryError", "ResourceExhaustedError")):
        framework = (error_type or "").startswith(_DEVICE_LIBRARIES)
        return framework or bool(_SAYS_DEVICE.search(message or ""))
    return bool(_SAYS_DEVICE.search(message or ""))


def timed_out(error_type: str | None, message: str | None, lost_reason: str | None) -> bool:
    """Whether a failed attempt was ended at its timeout or at the time limit of its job.

    A TimeoutError of the user's own, as of a connection, is no such end.
    """
    if error_type == "TIMEOUT":
        return True
    if error_type not in {None, "TimeoutError", "TaskTimeoutError", "WorkerLost"}:
        return False
    return bool(_SAYS_TIME.search(message or "") or _SAYS_TIME.search(lost_reason or ""))


def timeout_of(message: str | None) -> float | None:
    """The timeout in seconds that a message of ours names; None where it names none."""
    found = _SAYS_TIME.search(message or "")
    return float(found[1]) if found and found[1] else None


class TaskPlan(Struct, frozen=True):
    """How tasks of a name were run; None is "not said"."""

    component: str | None = None
    retries: int | None = None
    timeout_s: float | None = None
    cache: Any = None
    """A switch, or a table with `ttl_s` and others."""
    outputs: tuple[str, ...] = ()


class Planned(Struct, frozen=True):
    """The plan of a run; empty where it was made without a manifest, or its plan cannot be read."""

    manifest: str | None = None
    """Name of the manifest's file; None where the run had none."""
    target: str | None = None
    provider: str | None = None
    options: dict[str, Any] = {}
    """The provider's own, sizes in bytes and durations in seconds."""
    tasks: dict[str, TaskPlan] = {}
    components: dict[str, Requested] = {}
    """What workers of each were given."""

    def whole(self, option: str) -> int | None:
        """An option that is a whole number; None where it is not said."""
        value = self.options.get(option)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def task(self, name: str | None) -> TaskPlan:
        """What was said of a task; nothing where it is not named."""
        return self.tasks.get(name or "", TaskPlan())


def read_plan(run: Path) -> Planned:
    """The plan in a run's folder; fields of another type than expected are passed over."""
    return read_document(run / layout.PLAN, Planned).value or Planned()
