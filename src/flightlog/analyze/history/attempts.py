"""The attempts of a project's newest runs: what each used, what it had requested, and how it ended.

What advice, prediction and diagnosis learn from. Runs that are damaged give what can be read of them; those
of which nothing can are named in `problems`. `EarlierRuns` has what tasks usually took, from summaries alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from flightlog.core.errors import FlightlogError
from flightlog.core.stats import Distribution
from flightlog.core.text import base_name
from flightlog.store import layout
from flightlog.store.catalogue import RunEntry, list_runs, project_of, run_paths
from flightlog.store.completing import open_run
from flightlog.store.documents import read_document
from flightlog.store.index import RunIndex
from flightlog.store.liveness import Observer, unix_time
from flightlog.store.run import Run
from flightlog.store.runs_folder import fetch_documents

if TYPE_CHECKING:
    from flightlog.store.headline import Headline, NameHeadline
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables

RUNS = 50
ATTEMPTS = 100_000
"""Most runs and attempts that are read, the newest ones."""
NAMED = 20
"""How many unreadable runs are named, at most; the rest is counted."""


class PastAttempt(Struct, frozen=True, kw_only=True):
    """One attempt of a task that began; None is unknown."""

    run_id: str
    task: str
    """As recorded: `sim[3]`."""
    name: str
    """Without an index: `sim`."""
    task_id: str
    attempt: int
    component: str | None
    target: str | None
    provider: str | None
    host: str | None
    worker: str | None
    args: dict[str, Any]
    state: str
    """`completed`, `failed`, `cancelled`, or `running`: it began, and no end of it was seen."""
    started: float | None
    """When it began, as told by its start, or else by its end and its duration: Unix seconds."""
    ended: float | None
    """Unix seconds."""
    duration_s: float | None
    queue_s: float | None
    cpu_s: float | None
    cpu_scope: str | None
    peak_rss_bytes: int | None
    rss_scope: str | None
    gpu_peak_bytes: int | None
    gpu_memory_scope: str | None
    result_bytes: int | None
    error_type: str | None
    error_message: str | None
    exit_code: int | None
    signal: str | None
    memory_killed: bool | None
    """Ended for the host's memory, as kernel, cgroup, engine, batch system or MemoryError say; None: killed,
    why is unknown."""
    gpu_memory_killed: bool
    """Ended because a device had no memory left."""
    timed_out: bool
    """Ended at its timeout, or at the time limit of its job."""
    requested_cpus: float | None
    requested_memory_bytes: int | None
    requested_gpus: float | None
    requested_walltime_s: float | None
    node_memory_bytes: int | None
    """What its host had, or the cgroup that it was in allowed, whichever is less."""
    timeout_s: float | None
    """The longest it might run, where the plan or its own end says."""
    fingerprint: str | None
    """The same for failures with the same cause."""


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
    node_cpu_percent: dict[str, float] = {}
    """How busy the CPUs of the hosts were on average, 0 to 100, by run; runs without samples of a node are
    left out."""


def read_past(
    runs_dir: Path,
    *,
    project: str | None,
    target: str | None = None,
    task: str | None = None,
    runs: int = RUNS,
    attempts: int = ATTEMPTS,
    before: str | None = None,
    observer: Observer | None = None,
) -> ProjectHistory:
    """The past of a project, or of the latest run's where it is None; running runs with what they have so
    far.

    `target` keeps runs on that target, `task` attempts of that name (`sim` means `sim[3]`, too), `before`
    runs that started before that run, or that time. At most `runs` runs and `attempts` attempts, the newest.
    An empty past where there is nothing; never raises for what stands in the folder.
    """
    entries = list_runs(runs_dir, observer=observer)
    if project is None and entries:
        project = entries[0].project
    limit = _moment(before, entries)
    chosen = [
        entry
        for entry in entries
        if entry.project == project
        and entry.run_id != before
        and (limit is None or (unix_time(entry.start_time) or 0.0) < limit)
    ]
    problems: list[str] = []
    opened: list[Run] = []
    looked_at = 0
    for entry in chosen:
        if len(opened) == runs:
            break
        looked_at += 1
        try:
            run = open_run(entry.path, observer=observer)
            if target is None or run.info.target == target:
                opened.append(run)
        except (FlightlogError, OSError) as error:
            problems.append(f"{entry.run_id}: {error}")
    opened = _each_id_once(opened, problems)
    busy: dict[str, float] = {}
    readable, found = _read(opened, task, attempts, problems, busy)
    if len(problems) > NAMED:
        problems = [*problems[:NAMED], f"and {len(problems) - NAMED} more like these"]
    return ProjectHistory(
        project=project,
        runs=readable,
        attempts=found,
        problems=problems,
        older_runs=len(chosen) - looked_at,
        node_cpu_percent=busy,
    )


def _moment(before: str | None, entries: Sequence[RunEntry]) -> float | None:
    if before is None:
        return None
    run = next((entry for entry in entries if entry.run_id == before), None)
    return unix_time(run.start_time if run is not None else before)


def _each_id_once(runs: list[Run], problems: list[str]) -> list[Run]:
    """The runs without copies; the one whose folder bears its id is no copy."""
    once: dict[str, Run] = {}
    for run in runs:
        known = once.setdefault(run.run_id, run)
        if known is not run:
            copy = run if known.path.name == run.run_id else known
            once[run.run_id] = known if copy is run else run
            problems.append(f"{copy.path.name}: is a copy of {run.run_id}, which counts once")
    return list(once.values())


def _read(
    runs: list[Run], task: str | None, limit: int, problems: list[str], busy: dict[str, float]
) -> tuple[list[Run], list[PastAttempt]]:
    """The attempts of all runs at once; run by run where one of them cannot be read, so that it spoils no
    other.
    """
    if not runs:
        return [], []

    import duckdb

    unreadable = (OSError, FlightlogError, duckdb.Error)
    try:
        return runs, _attempts(runs, task, limit, busy)
    except unreadable:
        pass  # one of them spoils it; which one shows below
    readable: list[Run] = []
    found: list[PastAttempt] = []
    for run in runs:
        try:
            found += _attempts([run], task, limit - len(found), busy) if len(found) < limit else []
            readable.append(run)
        except unreadable as error:
            problems.append(f"{run.run_id}: cannot be read: {str(error).partition(chr(10))[0]}")
    return readable, found


def _attempts(runs: list[Run], task: str | None, limit: int, busy: dict[str, float]) -> list[PastAttempt]:
    from flightlog.store.tables.connection import records
    from flightlog.store.tables.run_tables import open_tables

    by_id = {run.run_id: run for run in runs}
    with open_tables(runs) as tables:
        rows = records(tables.execute(_ATTEMPTS, {"runs": list(by_id), "task": task, "limit": limit}))
        if not rows:
            return []
        requests, lost = Requests(tables, runs), _lost(tables)
        signals, rooms = _signals(tables), _rooms(tables)
        busy |= dict(tables.execute(_BUSY).fetchall())
    return [_attempt(row, by_id[row["run_id"]], requests, lost, signals, rooms) for row in rows]


def _attempt(
    row: dict[str, Any],
    run: Run,
    requests: Requests,
    lost: dict[tuple[str, str], str],
    signals: dict[tuple[str, str, int], str],
    rooms: dict[tuple[str, str | None], int],
) -> PastAttempt:
    row["args"] = _args(row["args"])
    run_id, task, worker = row["run_id"], row["task"], row["worker"]
    name = base_name(task)
    failed = row["state"] == "failed"
    error_type, message = row["error_type"], row["error_message"]
    reason = (
        lost.get((run_id, worker)) if failed and error_type in _BY_WORKER and worker is not None else None
    )
    signal = signals.get((run_id, row["task_id"], row["attempt"])) if failed else None
    host = requests.host(run_id, worker) or run.info.host or None
    asked = requests.of(run_id, row["task_id"], (task, name), row["component"], worker)
    timeout_s = (timeout_of(message) if failed else None) or requests.timeout_s(run_id, name)
    return PastAttempt(
        name=name,
        target=run.info.target,
        provider=run.info.provider,
        host=host,
        signal=signal,
        memory_killed=memory_killed(error_type, message, signal, reason) if failed else False,
        gpu_memory_killed=failed and gpu_memory_killed(error_type, message),
        timed_out=failed and timed_out(error_type, message, reason),
        requested_cpus=asked.cpus,
        requested_memory_bytes=asked.memory_bytes,
        requested_gpus=asked.gpus,
        requested_walltime_s=asked.walltime_s,
        node_memory_bytes=rooms.get((run_id, host)),
        timeout_s=timeout_s,
        **row,
    )


def _args(text: str | None) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text) if text else {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _lost(tables: RunTables) -> dict[tuple[str, str], str]:
    """Why workers were lost, by run and worker."""
    rows = tables.execute(
        "SELECT run_id, worker, reason FROM workers WHERE event = 'worker_lost' AND reason IS NOT NULL"
    ).fetchall()
    return {(run_id, worker): reason for run_id, worker, reason in rows}


def _signals(tables: RunTables) -> dict[tuple[str, str, int], str]:
    """The signals that ended attempts, by run, task and attempt."""
    rows = tables.execute(
        "SELECT run_id, task_id, attempt, signal FROM failures WHERE signal IS NOT NULL AND task_id IS NOT "
        "NULL"
    ).fetchall()
    return {(run_id, task_id, attempt or 1): signal for run_id, task_id, attempt, signal in rows}


def _rooms(tables: RunTables) -> dict[tuple[str, str | None], int]:
    """The memory of the hosts, or what the cgroup there allows, by run and host."""
    rows = tables.execute(_ROOMS).fetchall()
    return {(run_id, host): room for run_id, host, room in rows}


_BUSY = (
    "SELECT run_id, avg(cpu_percent) FROM resources WHERE scope = 'node' AND cpu_percent IS NOT NULL GROUP "
    "BY run_id"
)
_ROOMS = """
SELECT run_id, host, min(memory_total_bytes) FROM resources
WHERE scope IN ('node', 'cgroup') AND memory_total_bytes > 0 GROUP BY run_id, host
"""
_BY_WORKER = frozenset({None, "WorkerLost", "KilledWorker"})
"""Errors behind which the end of a worker stands."""
_ATTEMPTS = r"""
SELECT
    run_id, task, task_id, attempt, component, worker, args, state,
    coalesce(epoch(started_at), epoch(ended_at) - duration_s) AS started, epoch(ended_at) AS ended,
    duration_s, queue_s, cpu_s, cpu_scope, peak_rss_bytes, rss_scope, gpu_peak_bytes, gpu_memory_scope,
    result_bytes, error_type, error_message, exit_code, fingerprint
FROM attempts
WHERE state <> 'pending' AND task IS NOT NULL
    AND ($task IS NULL OR task = $task OR regexp_replace(task, '\[[^\[\]]*\]$', '') = $task)
ORDER BY list_position($runs, run_id), ended_at DESC NULLS FIRST, task_id, attempt
LIMIT $limit
"""


MORE_THAN_KILLED = 1.5
"""What was ended at a limit needed more, nobody knows how much: so many times the limit is asked for."""
_HOST_MEMORY = frozenset({"MemoryError", "ArrayMemoryError", "_ArrayMemoryError", "OUT_OF_MEMORY"})
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
    """Whether the host's memory ended a failed attempt: by MemoryError, kernel, cgroup, engine or batch
    system.

    None where something killed it and nobody says why. Memory of a device is another matter: False.
    """
    said = f"{message or ''}\n{lost_reason or ''}"
    kind = (error_type or "").rpartition(".")[2]
    if kind in _HOST_MEMORY or _SAYS_MEMORY.search(said):
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


class Requested(Struct, frozen=True, kw_only=True):
    """What was asked for, or given; None is "not said"."""

    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: float | None = None
    walltime_s: float | None = None

    def else_(self, other: Requested) -> Requested:
        """What the two say; this one counts where both say something."""
        said = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return msgspec.structs.replace(other, **said)


NOTHING = Requested()


class _Limit(Struct, frozen=True):
    timeout_s: float | None = None
    component: str | None = None


class _Plan(Struct, frozen=True):
    """`plan.json`, as far as it is needed; fields of another type are passed over."""

    components: dict[str, Requested] = {}
    tasks: dict[str, _Limit] = {}


class Requests:
    """The requests of several runs. What is said of one submission counts before its task's, that before its
    component's, and all of them before what its worker was given; a plan fills in where events are lost.
    """

    def __init__(self, tables: RunTables, runs: list[Run], task_ids: Collection[str] | None = None) -> None:
        """Read `resources` and `workers` of the tables, and the runs' plans; of single submissions those
        of `task_ids` alone, by default all. Raises `duckdb.Error`.
        """
        self._said: dict[tuple[str, str, str], Requested] = {}
        self._timeouts: dict[tuple[str, str], float] = {}
        self._hosts: dict[tuple[str, str], str] = {}
        for run in runs:
            self._read_plan(run.run_id, run.path)
        for run_id, worker, host, *given in tables.execute(_LAUNCHED).fetchall():
            self._said[run_id, "worker", worker] = _requested(*given)
            if host is not None:
                self._hosts[run_id, worker] = host
        for run_id, task_id, task, component, *asked in tables.execute(
            _REQUESTED, {"ids": None if task_ids is None else list(task_ids)}
        ).fetchall():
            kind = "task_id" if task_id is not None else "task" if task is not None else "component"
            name = task_id or task or component
            if name is not None:
                self._said[run_id, kind, name] = _requested(*asked)

    def of(
        self, run_id: str, task_id: str, names: tuple[str, str], component: str | None, worker: str | None
    ) -> Requested:
        """What one attempt had; `names` are its task's as recorded, and without an index."""
        found = NOTHING
        for kind, name in (
            ("task_id", task_id),
            ("task", names[0]),
            ("task", names[1]),
            ("component", component),
            ("worker", worker),
            ("plan", component),
        ):
            said = None if name is None else self._said.get((run_id, kind, name))
            found = found if said is None else found.else_(said)
        return found

    def timeout_s(self, run_id: str, name: str) -> float | None:
        """The longest an attempt of this task might run by the plan; None where it does not say."""
        return self._timeouts.get((run_id, name))

    def host(self, run_id: str, worker: str | None) -> str | None:
        """Where a worker ran; None where nobody said."""
        return None if worker is None else self._hosts.get((run_id, worker))

    def _read_plan(self, run_id: str, folder: Path) -> None:
        plan = read_document(folder / layout.PLAN, _Plan).value
        if plan is None:
            return
        for name, need in plan.components.items():
            self._said[run_id, "plan", name] = need
        for name, limit in plan.tasks.items():
            if limit.timeout_s is not None:
                self._timeouts[run_id, name] = limit.timeout_s
            if limit.component in plan.components:
                self._said.setdefault((run_id, "task", name), plan.components[limit.component])


def _requested(cpus: Any, memory_bytes: Any, gpus: Any, walltime_s: Any = None) -> Requested:
    """As the events have it; 0 and less is no amount of CPU or memory that anybody asks for."""
    return Requested(
        cpus=cpus if cpus is not None and cpus > 0 else None,
        memory_bytes=memory_bytes if memory_bytes is not None and memory_bytes > 0 else None,
        gpus=gpus,
        walltime_s=walltime_s if walltime_s is not None and walltime_s > 0 else None,
    )


_REQUESTED = """
SELECT run_id, task_id, task, component, cpus, memory_bytes, gpus, walltime_s
FROM resources WHERE event = 'resource_request'
    AND ($ids IS NULL OR task_id IS NULL OR task_id IN (SELECT unnest($ids::VARCHAR[])))
ORDER BY timestamp
"""
_LAUNCHED = """
SELECT
    run_id, worker, arg_max(host, timestamp), arg_max(cpus, timestamp), arg_max(memory_bytes, timestamp),
    arg_max(gpus, timestamp)
FROM workers WHERE worker IS NOT NULL GROUP BY run_id, worker
"""


SUMMARIES = 20
"""So many earlier runs tell what is usual, the latest of those that completed."""
LOOKED_AT = 60
"""So many are looked at for them."""


class EarlierRuns(Mapping[str, Distribution]):
    """Durations of completed tasks in earlier runs of a run's project, in its own folder, by name.

    Nothing is read before somebody asks; then the summaries of `SUMMARIES` runs at most, through the index of
    the folder. Runs without a summary count for nothing, as do those whose name tells neither project nor
    start. Of several runs `count` is the sum, `p50` the median of the runs' medians, and `p95` and `max` are
    the largest: what is far beyond these was usual in none of them. Other figures are unknown.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def _found(self) -> dict[str, Distribution]:
        return pooled(headline for headline in _headlines(self._run) if headline is not None)

    def __getitem__(self, name: str) -> Distribution:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def pooled(headlines: Iterable[Headline]) -> dict[str, Distribution]:
    """The durations of each task name over several runs, as `EarlierRuns` has them."""
    by_name: dict[str, list[NameHeadline]] = {}
    for one in headlines:
        for name, task in one.tasks.by_name.items():
            if task.completed:
                by_name.setdefault(name, []).append(task)
    found = {}
    for name, tasks in by_name.items():
        p50, p95, most = (
            [value for task in tasks if (value := getattr(task.duration_s, field)) is not None]
            for field in ("p50", "p95", "max")
        )
        if p50 and p95 and most:
            found[name] = Distribution(
                count=sum(task.completed for task in tasks), p50=median_low(p50), p95=max(p95), max=max(most)
            )
    return found


def _headlines(run: Run) -> list[Headline | None]:
    """What the summaries of the latest runs before this one say."""
    folder, name = run.home.parent, run.home.name
    if not layout.is_run_id(name):
        return []
    paths = run_paths(folder)
    before = [path for path in paths if path.name < name and project_of(path.name) == project_of(name)]
    with RunIndex(folder, paths) as index:
        latest = sorted(before, key=lambda path: path.name, reverse=True)[:LOOKED_AT]
        known = zip(latest, index.infos(latest), strict=True)
        chosen = [
            path
            for path, read in known
            if read.value is not None
            and read.value.status == "completed"
            and read.value.project == run.info.project
        ]
        fetch_documents(chosen[:SUMMARIES], layout.SUMMARY)
        return index.headlines(chosen[:SUMMARIES])
