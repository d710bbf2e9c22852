"""How many workers, threads or processes, and how large a task: found by replaying what was recorded.

The replay has to agree with what was measured on the workers that there were; where it does not, nothing is
advised.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from statistics import median
from typing import NamedTuple

from msgspec import Struct

from flightlog.analyze.advice.base import Advice, round_count, worker_time
from flightlog.analyze.advice.statistics import Outcome, RunStatistics, TaskStatistics
from flightlog.analyze.limits import AdviceLimits, FindingLimits
from flightlog.analyze.report.time_shares import TimeSplit
from flightlog.analyze.tallies import grouped
from flightlog.core.text import plural
from flightlog.core.units import format_bytes, format_duration, format_percent

_COUNTS = {
    "local": "max_workers",
    "ray": "max_workers",
    "dragon": "max_workers",
    "dask": "n_workers",
    "slurm": "n_workers",
}


class Replayed(Struct, frozen=True, kw_only=True):
    """One run, and how long its work takes on other numbers of workers."""

    shape: RunStatistics
    time: TimeSplit
    at_once: int
    """Tasks that a worker runs at once."""

    @property
    def measured_s(self) -> float:
        """Wall time in which there was work, all waves together."""
        return math.fsum(wave.wall_s for wave in self.shape.waves or ())

    @property
    def lived_s(self) -> float:
        """How long a worker was up, on average."""
        return self.time.total_s / self.shape.workers

    @property
    def error(self) -> float:
        """How far the replay on the workers that there were is off, as a share of what was measured."""
        return abs(self.wall_s(self.shape.workers) / self.measured_s - 1)

    def wall_s(self, workers: int) -> float:
        """Wall time in which there would be work."""
        return math.fsum(wave.on(workers, self.at_once) for wave in self.shape.waves or ())

    def worker_s(self, workers: int, base_s: float) -> float:
        """Worker time of the whole run; `base_s` is the replayed wall time on the workers that there were."""
        return workers * max(0.0, self.lived_s + self.wall_s(workers) - base_s)


def advise_workers(shapes: Sequence[RunStatistics]) -> Outcome:
    """Fewer workers where some have little to do, more where tasks wait and there is room.

    Looks at those of the runs that had the newest one's target and number of workers.
    """
    known = [s for s in shapes if s.status == "completed" and s.time is not None and s.workers]
    if not known:
        return "no completed run tells when its workers were up"
    newest = known[0]
    kind = attrgetter("target", "provider", "workers")
    alike = [shape for shape in known if kind(shape) == kind(newest)]
    if len(alike) < AdviceLimits.min_agreeing_runs:
        where = f" on target {newest.target}" if newest.target else ""
        completed = plural(len(alike), "completed run")
        return (
            f"{completed} with {newest.workers} workers{where}; {AdviceLimits.min_agreeing_runs} are needed"
        )
    if median(shape.wall_s or 0.0 for shape in alike) < AdviceLimits.min_wall_s:
        return f"runs are shorter than {format_duration(AdviceLimits.min_wall_s)}"
    runs = [run for run in map(_replayable, alike) if run is not None]
    if not any(shape.waves for shape in alike):
        return "too many tasks depend on each other, or come one at a time"
    if len(runs) < max(AdviceLimits.min_agreeing_runs, math.ceil(len(alike) / 2)):
        return (
            "how long the work takes on other numbers of workers cannot be told: replayed on"
            f" {newest.workers} workers it does not take as long as it did"
        )
    advice = _fewer(runs) or _more(runs)
    if advice is None:
        return f"{newest.workers} workers suit the work of {len(runs)} runs"
    return [advice]


def _replayable(shape: RunStatistics) -> Replayed | None:
    """The run, if replaying it on its own workers takes as long as it did, and no more tasks ran side by side
    on them than the plan says.
    """
    if not shape.waves or shape.time is None:
        return None
    threads = shape.planned.whole("threads_per_worker") or 1
    if shape.planned.options.get("processes") is False and shape.provider == "local":
        threads = 1  # each thread is a worker of its own
    held = shape.side_by_side.held_s if shape.side_by_side is not None else 0.0
    run = Replayed(shape=shape, time=shape.time, at_once=threads)
    off = abs(run.wall_s(shape.workers) - run.measured_s)
    fits = off <= AdviceLimits.max_replay_error * run.measured_s
    return run if fits and held <= 1.05 * threads * run.time.busy_s else None


def _fewer(runs: Sequence[Replayed]) -> Advice | None:
    workers = runs[0].shape.workers
    enough = max(_enough(run, workers) for run in runs)
    if enough >= workers:
        return None
    before, after, walls = [], [], []
    for run in runs:
        base = run.wall_s(workers)
        before.append(run.worker_s(workers, base))
        after.append(run.worker_s(enough, base))
        walls.append((run.wall_s(enough) - base) / max(run.lived_s, 1e-9))
    saved = median(b - a for b, a in zip(before, after, strict=True))
    share = median(1 - a / b for b, a in zip(before, after, strict=True))
    least = AdviceLimits.min_worker_saving_share
    if runs[0].shape.provider == "local":
        least = AdviceLimits.min_local_worker_saving_share
    if share < least:
        return None
    idle = median(_share(run.time.idle_s, run.time.total_s) for run in runs)
    slower = max(0.0, *walls)
    takes = f"{format_percent(slower)} longer at most" if slower >= 0.005 else "no longer"
    name, changes = _change(runs[0].shape, enough)
    return Advice(
        kind="workers",
        about=name,
        sentence=(
            f"Use {enough} workers instead of {workers}: they were idle for {format_percent(idle)} of their "
            f"time, and on {enough} the same work takes {takes}, replayed from {len(runs)} runs."
        ),
        evidence={
            "runs": len(runs),
            "workers": workers,
            "workers_enough": enough,
            "idle_share": idle,
            "wall_s": median(run.lived_s for run in runs),
            "wall_change_share": max(walls),
            "worker_s": median(before),
            "worker_s_after": median(after),
            "replay_error_share": max(run.error for run in runs),
        },
        gain=f"{worker_time(saved)} of {worker_time(median(before))} a run ({format_percent(share)})",
        gain_s=saved,
        changes=changes,
    )


def _enough(run: Replayed, workers: int) -> int:
    """The fewest workers on which a run would take hardly longer."""
    base = run.wall_s(workers)
    # On one's own machine idle workers cost little: there the work itself may hardly take longer.
    limit = base + AdviceLimits.max_slowdown * (base if run.shape.provider == "local" else run.lived_s)
    return _fewest(run, 1, workers, limit)


def _more(runs: Sequence[Replayed]) -> Advice | None:
    shape = runs[0].shape
    workers = shape.workers
    if any(run.time.busy_s < AdviceLimits.min_busy_share * run.time.uptime_s for run in runs):
        return None
    if any(task.on_gpu for run in runs for task in run.shape.tasks.values()):
        return None  # they may share the devices that there are
    local = shape.provider in {"local", None}
    if not local and median(run.lived_s for run in runs) < AdviceLimits.min_wall_for_more_workers_s:
        return None
    most = min(2 * workers, min(_room(run.shape, workers) for run in runs) if local else 2 * workers)
    if most <= workers:
        return None
    wanted = max(
        _fewest(run, workers + 1, most, run.wall_s(most) * (1 + AdviceLimits.max_slowdown)) for run in runs
    )
    faster = [(run.wall_s(workers) - run.wall_s(wanted)) / run.lived_s for run in runs]
    if min(faster) < AdviceLimits.min_speedup_share:
        return None
    walls = median(run.lived_s for run in runs)
    after = median(run.lived_s * (1 - share) for run, share in zip(runs, faster, strict=True))
    queued = median(run.shape.queue_s or 0.0 for run in runs)
    name, changes = _change(shape, wanted)
    room = " for about the same worker time"
    if local and (machine := shape.machine) is not None:
        room = f" ({machine.cpu_percent:.0f}% of {machine.cpus:g} cores were in use)"
    return Advice(
        kind="workers",
        about=name,
        sentence=(
            f"Use {wanted} workers instead of {workers}: they were all busy, and tasks waited "
            f"{format_duration(queued)} on average; on {wanted} a run takes about {format_duration(after)} "
            f"instead of {format_duration(walls)}{room}, replayed from {len(runs)} runs."
        ),
        evidence={
            "runs": len(runs),
            "workers": workers,
            "workers_wanted": wanted,
            "queue_s": queued,
            "wall_s": walls,
            "wall_s_after": after,
            "busy_share": median(_share(run.time.busy_s, run.time.uptime_s) for run in runs),
            "replay_error_share": max(run.error for run in runs),
        },
        gain=(
            f"{format_duration(walls - after)} of {format_duration(walls)} a run "
            f"({format_percent(min(faster))} at least)"
        ),
        gain_s=None,
        changes=changes,
    )


def _fewest(run: Replayed, low: int, high: int, limit_s: float) -> int:
    """The fewest workers, from `low` to `high`, on which there would be work for no longer than the limit."""
    return bisect_left(range(high), True, low, key=lambda workers: run.wall_s(workers) <= limit_s)


def _room(shape: RunStatistics, workers: int) -> int:
    """How many workers the machine has cores and memory for; as many as there are where it was not
    sampled.
    """
    machine, shared = shape.machine, shape.side_by_side
    if machine is None or machine.hosts != 1 or machine.cpus is None or machine.cpu_percent is None:
        return workers
    if shared is None or shared.cpu_s is None or machine.memory_total_bytes is None:
        return workers
    each = shared.cpu_s / shared.held_s if shared.held_s else 1.0
    if shared.processes == 1 and workers > 1 and shared.cpu_s > 0.5 * shared.covered_s:
        return workers  # threads of one process: more of them may wait for the same lock
    idle = max(0.0, AdviceLimits.usable_share_of_machine - machine.cpu_percent / 100) * machine.cpus
    by_cores = workers + int(idle / max(each, 0.05))
    used = machine.memory_peak_bytes or machine.memory_total_bytes
    by_memory = int(
        workers * AdviceLimits.usable_share_of_machine * machine.memory_total_bytes / max(1, used)
    )
    return max(workers, min(by_cores, by_memory))


def _change(shape: RunStatistics, workers: int) -> tuple[str, dict[str, str]]:
    """What the advice is about, and the manifest's key; none where the workers are not the manifest's to
    say.
    """
    options = shape.planned.options
    said = [name for name in ("n_workers", "max_workers") if name in options]
    key = said[0] if said else _COUNTS.get(shape.provider or "")
    threads = shape.planned.whole("threads_per_worker") or 1
    if shape.provider == "local" and options.get("processes") is False:
        workers = -(-workers // threads)
    known = key is not None and "scheduler_file" not in options
    return _changed_options(shape, {key: str(workers)} if key is not None and known else {})


def _share(part: float, of: float) -> float:
    return part / of if of else 0.0


def advise_threads(shapes: Sequence[RunStatistics]) -> Outcome:
    """Processes for threads that wait for each other's lock; threads for processes that hardly work once they
    are up.

    Looks at the newest runs of the newest one's target that shared processes in the same way.
    """
    completed = [shape for shape in shapes if shape.status == "completed"]
    known = [one for one in completed if one.side_by_side is not None and one.provider in {"local", "dask"}]
    if not known:
        return "no completed run of the engines that have both threads and processes"
    newest = known[0]
    alike = [s for s in known if (s.target, _threaded(s)) == (newest.target, _threaded(newest))]
    if len(alike) < AdviceLimits.min_similar_runs:
        return f"1 completed run of this kind; {AdviceLimits.min_similar_runs} are needed"
    advice = _processes(alike) if _threaded(newest) else _threads(alike)
    if advice is None:
        kind = "threads" if _threaded(newest) else "processes"
        return f"nothing in {len(alike)} runs speaks against {kind}"
    return [advice]


def _threaded(shape: RunStatistics) -> bool:
    """Whether attempts ran side by side in one process."""
    shared = shape.side_by_side
    return shared is not None and shared.held_s >= AdviceLimits.min_threads_at_once * shared.covered_s > 0


def _processes(shapes: Sequence[RunStatistics]) -> Advice | None:
    found = [locked for shape in shapes if (locked := _locked(shape)) is not None]
    machine = shapes[0].machine
    if len(found) < len(shapes) or machine is None:
        return None
    cores, at_once, times, saved, turn_s = (median(values) for values in zip(*found, strict=True))
    moved = median(_result_bytes(shape) for shape in shapes)
    name, changes, what = _apart(shapes[0])
    return Advice(
        kind="threads",
        about=name,
        sentence=(
            f"{what}: a concurrency of {at_once:.1f} kept {cores:.1f} of {machine.cpus:g} cores busy, "
            f"because a thread waited {format_duration(turn_s)} for its turn in the interpreter (the GIL), "
            f"in {len(shapes)} runs. Results then travel as pickles, {format_bytes(moved)} each."
        ),
        evidence={
            "runs": len(shapes),
            "tasks_at_once": at_once,
            "cores_busy": cores,
            "cores": machine.cpus,
            "cpu_percent": machine.cpu_percent,
            "result_bytes": moved,
            "waited_s": saved,
            "interpreter_wait_s": turn_s,
        },
        gain=f"tasks about {times:.1f} times as fast; {worker_time(saved)} a run less",
        gain_s=saved,
        changes=changes,
    )


def _apart(shape: RunStatistics) -> tuple[str, dict[str, str], str]:
    """What the advice is about, the manifest's keys, and what to do, so that each task has a process of its
    own.
    """
    shared = shape.side_by_side
    if shared is None or shared.processes < shape.workers:  # each worker is a thread
        return *_changed_options(shape, {"processes": "true"}), "Use processes instead of threads"
    threads = shape.planned.whole("threads_per_worker") or round(shared.held_s / shared.covered_s)
    number = shape.workers * threads
    count = (
        "max_workers" if shape.provider == "local" or "max_workers" in shape.planned.options else "n_workers"
    )
    changes = {"threads_per_worker": "1", count: str(number)}
    said = f"Use {number} workers with 1 thread each instead of {shape.workers} with {threads}"
    return *_changed_options(shape, changes), said


class _Locked(NamedTuple):
    """Threads of one process that took turns at one core."""

    cores: float
    """That they kept busy together."""
    at_once: float
    times: float
    """How many times as fast tasks are, each on a core of its own, as far as there were free ones."""
    waited_s: float
    turn_s: float
    """How long a thread waited for its turn in the interpreter."""


def _locked(shape: RunStatistics) -> _Locked | None:
    """What threads took turns at that waited for the interpreter while other cores were free; None where they
    did not, or it was not measured.
    """
    shared, machine = shape.side_by_side, shape.machine
    if shared is None or shared.cpu_s is None or machine is None or machine.hosts != 1:
        return None
    if shared.interpreter_wait_s is None:
        return None
    waited = shared.held_s - shared.cpu_s
    if machine.cpus is None or machine.cpu_percent is None or waited < AdviceLimits.min_saving_s:
        return None
    cores = shared.cpu_s / shared.covered_s  # what processes cover adds up, so that this is of one of them
    in_turns = FindingLimits.min_cores_in_turns <= cores <= FindingLimits.max_cores_in_turns
    if not in_turns or any(task.on_gpu for task in shape.tasks.values()):
        return None
    at_once, free = shared.held_s / shared.covered_s, machine.cpus * (1 - machine.cpu_percent / 100)
    times = min(at_once, cores + free / shared.processes) / cores
    if times < AdviceLimits.min_speedup_by_processes:
        return None
    return _Locked(cores, at_once, times, shared.held_s * (1 - 1 / times), shared.interpreter_wait_s)


def _threads(shapes: Sequence[RunStatistics]) -> Advice | None:
    """Where starting processes takes longer than all work would take in turn on one core: threads start at
    once.

    That holds even if the tasks hold the interpreter's lock all the time.
    """
    rows: list[tuple[float, ...]] = []
    for shape in shapes:
        shared, time = shape.side_by_side, shape.time
        if shape.provider != "local" or shared is None or shared.cpu_s is None or time is None:
            return None
        if time.startup_s < max(AdviceLimits.min_saving_s, AdviceLimits.min_startup_share * time.total_s):
            return None
        if shared.cpu_s > AdviceLimits.max_work_per_startup * time.startup_s / shape.workers:
            return None
        part = time.startup_s / time.total_s
        rows.append((time.startup_s, time.startup_s / shape.workers, part, shared.cpu_s, time.attempts))
    started, each, share, worked, tasks = (median(column) for column in zip(*rows, strict=True))
    name, changes = _changed_options(shapes[0], {"processes": "false"})
    moved = median(_result_bytes(shape) for shape in shapes)
    large = moved >= AdviceLimits.min_result_bytes
    travel = f", and results of {format_bytes(moved)} need not travel" if large else ""
    return Advice(
        kind="threads",
        about=name,
        sentence=(
            f"Use threads instead of processes: {tasks:,.0f} tasks need "
            f"{format_duration(worked)} of CPU time together, and each of {shapes[0].workers} "
            f"processes took {format_duration(each)} to start, {format_percent(share)} of all "
            f"worker time ({len(shapes)} runs); threads start at once{travel}."
        ),
        evidence={
            "runs": len(shapes),
            "tasks": tasks,
            "cpu_s": worked,
            "startup_s": started,
            "startup_each_s": each,
            "startup_share": share,
            "result_bytes": moved,
        },
        gain=f"{worker_time(started)} a run",
        gain_s=started,
        changes=changes,
    )


def _result_bytes(shape: RunStatistics) -> float:
    """Size of a result, the mean over all tasks that know it; 0 where none does."""
    known = [task for task in shape.tasks.values() if task.result_bytes is not None]
    count = sum(task.completed for task in known)
    return sum((task.result_bytes or 0) * task.completed for task in known) / count if count else 0.0


def _changed_options(shape: RunStatistics, options: dict[str, str]) -> tuple[str, dict[str, str]]:
    """What the advice is about, and the manifest's keys; none where a cluster was there before the run."""
    if shape.target is None or shape.planned.target != shape.target or "address" in shape.planned.options:
        return shape.target or shape.provider or "workers", {}
    return shape.target, {f"targets.{shape.target}.{name}": value for name, value in options.items()}


def advise_chunks(shapes: Sequence[RunStatistics]) -> Outcome:
    """Names whose tasks are worth putting together, in the newest runs that have enough of them."""
    names = grouped(
        (name, (shape, task))
        for shape in shapes
        for name, task in shape.tasks.items()
        if task.handovers >= AdviceLimits.min_tasks_for_chunks and shape.workers
    )
    if not names:
        least = AdviceLimits.min_tasks_for_chunks
        return f"no task has {least} or more handovers in a run whose workers are known"
    advice = [one for name in sorted(names) if (one := _chunk(name, names[name])) is not None]
    if not advice and all(len(found) < AdviceLimits.min_similar_runs for found in names.values()):
        return f"1 run has tasks enough to tell; {AdviceLimits.min_similar_runs} are needed"
    return advice or "dispatch latency is small"


def _chunk(name: str, found: Sequence[tuple[RunStatistics, TaskStatistics]]) -> Advice | None:
    if len(found) < AdviceLimits.min_similar_runs:
        return None
    rows: list[tuple[float, ...]] = []
    for shape, task in found:
        handover, length = task.handover_s or 0.0, task.total_s / task.completed if task.completed else 0.0
        held = task.attempts * handover
        least = max(AdviceLimits.min_dispatch_s, AdviceLimits.min_dispatch_share * (held + task.total_s))
        if held < least or length <= 0:
            return None
        fair = task.attempts / (AdviceLimits.min_chunks_per_worker * shape.workers)
        wanted = round_count(handover / (AdviceLimits.max_dispatch_share_of_chunk * length))
        size = min(fair, AdviceLimits.max_chunk_s / length, wanted)
        rows.append((handover, length, size, task.attempts, held * (1 - 1 / size) if size > 1 else 0.0))
    each, lengths, sizes, counts, lost = zip(*rows, strict=True)
    size = math.floor(min(sizes))
    if size < 2:
        return None
    share = median(handover / (handover + length) for handover, length in zip(each, lengths, strict=True))
    return Advice(
        kind="chunks",
        about=name,
        sentence=(
            f"Give each task of {name} {size:,} pieces of work at once: {median(counts):,.0f} tasks a run "
            f"take {format_duration(median(lengths))} each, and dispatch latency adds "
            f"{format_duration(median(each))}, {format_percent(share)} of both ({len(found)} runs)."
        ),
        evidence={
            "runs": len(found),
            "tasks": median(counts),
            "task_s": median(lengths),
            "handover_s": median(each),
            "handovers": sum(task.handovers for _, task in found),
            "chunk": size,
        },
        gain=f"about {worker_time(median(lost))} a run",
        gain_s=median(lost),
    )
