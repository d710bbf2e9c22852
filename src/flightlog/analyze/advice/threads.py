"""Threads against processes: Python code that holds the interpreter's lock, and processes that start longer
than they work.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from flightlog.analyze.advice.base import Advice
from flightlog.analyze.advice.gathered import Look, Machine, RunShape, SideBySide
from flightlog.analyze.advice.rounding import worker_time
from flightlog.units import format_bytes, format_duration, format_percent

LEAST_RUNS = 2
LEAST_AT_ONCE = 1.5
"""Fewer tasks of a process at once say nothing of a lock between them."""
ONE_CORE = (0.8, 1.1)
"""Threads that take turns at one lock keep one core busy together, whatever their number."""
LEAST_TIMES = 1.3
"""Processes have to make tasks so many times as fast, on the cores that were free."""
LEAST_S = 5.0
"""Less time of a run is not worth a change."""
LEAST_STARTUP = 0.3
"""The share of worker time that went to starting processes, where threads are worth it."""
BOUND = 0.5
"""The CPU time of all tasks together is less than this share of what a process takes to start."""
LARGE_BYTES = 1 << 20
"""Results from which on their travel is worth a word."""


def advise_threads(shapes: Sequence[RunShape]) -> Look:
    """Processes for threads that wait for each other's lock; threads for processes that hardly work once they
    are up.

    Looks at the newest runs of the newest one's target that shared processes in the same way.
    """
    known = [
        shape
        for shape in shapes
        if shape.status == "completed"
        and shape.side_by_side is not None
        and shape.provider in {"local", "dask"}
    ]
    if not known:
        return Look(silent="no completed run of the engines that have both threads and processes")
    newest = known[0]
    alike = [s for s in known if (s.target, _threaded(s)) == (newest.target, _threaded(newest))]
    if len(alike) < LEAST_RUNS:
        return Look(silent=f"1 completed run of this kind; {LEAST_RUNS} are needed")
    advice = _processes(alike) if _threaded(newest) else _threads(alike)
    if advice is None:
        kind = "threads" if _threaded(newest) else "processes"
        return Look(silent=f"nothing in {len(alike)} runs speaks against {kind}")
    return Look(advice=[advice])


def _threaded(shape: RunShape) -> bool:
    """Whether attempts ran side by side in one process."""
    shared = shape.side_by_side
    return shared is not None and shared.held_s >= LEAST_AT_ONCE * shared.covered_s > 0


def _processes(shapes: Sequence[RunShape]) -> Advice | None:
    if not all(map(_locked, shapes)):
        return None
    cores, at_once, saved, times = [], [], [], []
    for shape in shapes:
        shared, machine = shape.side_by_side, shape.machine
        assert shared is not None
        assert shared.cpu_s is not None
        assert machine is not None
        cores.append(shared.cpu_s / shared.covered_s)
        at_once.append(shared.held_s / shared.covered_s)
        times.append(_times(shared, machine))
        saved.append(shared.held_s * (1 - 1 / times[-1]))
    moved, processors = median(_result_bytes(shape) for shape in shapes), shapes[0].machine
    assert processors is not None
    name, changes, what = _apart(shapes[0])
    return Advice(
        kind="threads",
        about=name,
        sentence=(
            f"{what}: {median(at_once):.1f} tasks at once kept {median(cores):.1f} cores busy together, as "
            f"Python code does that holds the interpreter's lock, while {processors.cpus:g} cores were "
            f"there ({len(shapes)} runs). Results then travel as pickles, {format_bytes(moved)} each."
        ),
        evidence={
            "runs": len(shapes),
            "tasks_at_once": median(at_once),
            "cores_busy": median(cores),
            "cores": processors.cpus,
            "cpu_percent": processors.cpu_percent,
            "result_bytes": moved,
            "waited_s": median(saved),
        },
        gain=f"tasks about {median(times):.1f} times as fast; {worker_time(median(saved))} a run less",
        gain_s=median(saved),
        changes=changes,
    )


def _apart(shape: RunShape) -> tuple[str, dict[str, str], str]:
    """What the advice is about, the manifest's keys, and what to do, so that each task has a process of its
    own.
    """
    shared = shape.side_by_side
    assert shared is not None
    if shared.processes < shape.workers:  # each worker is a thread
        return *_change(shape, {"processes": "true"}), "Use processes instead of threads"
    threads = shape.planned.whole("threads_per_worker") or round(shared.held_s / shared.covered_s)
    number = shape.workers * threads
    count = (
        "max_workers" if shape.provider == "local" or "max_workers" in shape.planned.options else "n_workers"
    )
    changes = {"threads_per_worker": "1", count: str(number)}
    said = f"Use {number} workers with 1 thread each instead of {shape.workers} with {threads}"
    return *_change(shape, changes), said


def _locked(shape: RunShape) -> bool:
    """Whether threads took turns at one core, while others were free and nothing else held them up."""
    shared, machine = shape.side_by_side, shape.machine
    if shared is None or shared.cpu_s is None or machine is None or machine.hosts != 1:
        return False
    if machine.cpus is None or machine.cpu_percent is None or shared.held_s - shared.cpu_s < LEAST_S:
        return False
    low, high = ONE_CORE
    each = shared.cpu_s / shared.covered_s  # what processes cover adds up, so that this is of one of them
    if not low <= each <= high or any(task.on_gpu for task in shape.tasks.values()):
        return False
    return _times(shared, machine) >= LEAST_TIMES


def _times(shared: SideBySide, machine: Machine) -> float:
    """How many times as fast tasks are, each on a core of its own, as far as there were free ones."""
    assert shared.cpu_s is not None
    assert machine.cpus is not None
    assert machine.cpu_percent is not None
    busy = shared.cpu_s / shared.covered_s
    free = machine.cpus * (1 - machine.cpu_percent / 100)
    return min(shared.held_s / shared.covered_s, busy + free / shared.processes) / busy


def _threads(shapes: Sequence[RunShape]) -> Advice | None:
    """Where starting processes takes longer than all work would take in turn on one core: threads start at
    once.

    That holds even if the tasks hold the interpreter's lock all the time.
    """
    started, worked, tasks, shares = [], [], [], []
    for shape in shapes:
        shared, time = shape.side_by_side, shape.time
        if shape.provider != "local" or shared is None or shared.cpu_s is None or time is None:
            return None
        if time.startup_s < max(LEAST_S, LEAST_STARTUP * time.total_s):
            return None
        if shared.cpu_s > BOUND * time.startup_s / shape.workers:
            return None
        started.append(time.startup_s)
        worked.append(shared.cpu_s)
        tasks.append(time.attempts)
        shares.append(time.startup_s / time.total_s)
    name, changes = _change(shapes[0], {"processes": "false"})
    moved = median(_result_bytes(shape) for shape in shapes)
    travel = f", and results of {format_bytes(moved)} need not travel" if moved >= LARGE_BYTES else ""
    each = median(shape.time.startup_s / shape.workers for shape in shapes if shape.time is not None)
    return Advice(
        kind="threads",
        about=name,
        sentence=(
            f"Use threads instead of processes: {median(tasks):,.0f} tasks need "
            f"{format_duration(median(worked))} of CPU time together, and each of {shapes[0].workers} "
            f"processes took {format_duration(each)} to start, {format_percent(median(shares))} of all "
            f"worker time ({len(shapes)} runs); threads start at once{travel}."
        ),
        evidence={
            "runs": len(shapes),
            "tasks": median(tasks),
            "cpu_s": median(worked),
            "startup_s": median(started),
            "startup_each_s": each,
            "startup_share": median(shares),
            "result_bytes": moved,
        },
        gain=f"{worker_time(median(started))} a run",
        gain_s=median(started),
        changes=changes,
    )


def _result_bytes(shape: RunShape) -> float:
    """Size of a result, the mean over all tasks that know it; 0 where none does."""
    known = [
        (task.result_bytes, task.completed) for task in shape.tasks.values() if task.result_bytes is not None
    ]
    count = sum(number for _, number in known)
    return sum(size * number for size, number in known) / count if count else 0.0


def _change(shape: RunShape, options: dict[str, str]) -> tuple[str, dict[str, str]]:
    """What the advice is about, and the manifest's keys; none where a cluster was there before the run."""
    if shape.target is None or shape.planned.target != shape.target or "address" in shape.planned.options:
        return shape.target or shape.provider or "workers", {}
    return shape.target, {f"targets.{shape.target}.{name}": value for name, value in options.items()}
