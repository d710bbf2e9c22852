"""How many workers the work has use for: found by replaying what was recorded on fewer and on more of them.

The replay has to agree with what was measured on the workers that there were; where it does not, nothing is
advised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from flightlog.analyze.advice.base import Advice
from flightlog.analyze.advice.gathered import LEAST_RUNS, Look, RunShape
from flightlog.analyze.advice.rounding import worker_time
from flightlog.units import format_duration, format_percent

AGREES = 0.15
"""How far the replay may be off the measured time, as a share of it."""
WITHIN = 0.05
"""By so much the wall time may grow for the sake of fewer workers."""
LEAST_WALL_S = 10.0
"""Shorter runs are not worth the thought."""
LEAST_SAVED, LEAST_SAVED_LOCALLY = 0.15, 0.50
"""The share of worker time that fewer workers have to save; more where workers are processes of one's own
machine."""
LONG_S = 600.0
"""Wall time from which on more workers of a cluster are worth a word."""
BUSY = 0.9
"""Workers are all busy, where they are so for this share of their time."""
LEAST_FASTER = 0.25
"""The share of wall time that more workers have to save."""
ROOM = 0.8
"""The share of a machine's cores and memory that may be planned with."""

_COUNTS = {
    "local": "max_workers",
    "ray": "max_workers",
    "dragon": "max_workers",
    "dask": "n_workers",
    "slurm": "n_workers",
}


class Replayed(Struct, frozen=True, kw_only=True):
    """One run, and how long its work takes on other numbers of workers."""

    shape: RunShape
    at_once: int
    """Tasks that a worker runs at once."""
    measured_s: float
    """Wall time in which there was work, all waves together."""
    lived_s: float
    """How long a worker was up, on average."""

    def wall_s(self, workers: int) -> float:
        """Wall time in which there would be work."""
        return math.fsum(wave.on(workers, self.at_once) for wave in self.shape.waves or ())

    def worker_s(self, workers: int, base_s: float) -> float:
        """Worker time of the whole run; `base_s` is the replayed wall time on the workers that there were."""
        return workers * max(0.0, self.lived_s + self.wall_s(workers) - base_s)


def advise_workers(shapes: Sequence[RunShape]) -> Look:
    """Fewer workers where some have little to do, more where tasks wait and there is room.

    Looks at those of the runs that had the newest one's target and number of workers.
    """
    known = [s for s in shapes if s.status == "completed" and s.time is not None and s.workers]
    if not known:
        return Look(silent="no completed run tells when its workers were up")
    newest = known[0]
    alike = [
        s
        for s in known
        if (s.target, s.provider, s.workers) == (newest.target, newest.provider, newest.workers)
    ]
    if len(alike) < LEAST_RUNS:
        return Look(
            silent=f"{len(alike)} completed run{'s' * (len(alike) != 1)} with {newest.workers} workers"
            f"{f' on target {newest.target}' if newest.target else ''}; {LEAST_RUNS} are needed"
        )
    if median(shape.wall_s or 0.0 for shape in alike) < LEAST_WALL_S:
        return Look(silent=f"runs are shorter than {format_duration(LEAST_WALL_S)}")
    runs = [run for run in map(_replayable, alike) if run is not None]
    if not any(shape.waves for shape in alike):
        return Look(silent="too many tasks depend on each other, or come one at a time")
    if len(runs) < max(LEAST_RUNS, math.ceil(len(alike) / 2)):
        return Look(
            silent="how long the work takes on other numbers of workers cannot be told: replayed on"
            f" {newest.workers} workers it does not take as long as it did"
        )
    advice = _fewer(runs) or _more(runs)
    if advice is None:
        return Look(silent=f"{newest.workers} workers suit the work of {len(runs)} runs")
    return Look(advice=[advice])


def _replayable(shape: RunShape) -> Replayed | None:
    """The run, if replaying it on its own workers takes as long as it did."""
    at_once = _at_once(shape)
    if not shape.waves or shape.time is None or at_once is None:
        return None
    measured = math.fsum(wave.wall_s for wave in shape.waves)
    run = Replayed(
        shape=shape, at_once=at_once, measured_s=measured, lived_s=shape.time.total_s / shape.workers
    )
    return run if abs(run.wall_s(shape.workers) - measured) <= AGREES * measured else None


def _at_once(shape: RunShape) -> int | None:
    """Tasks that a worker runs at once, by the plan; None where more ran side by side than it says."""
    assert shape.time is not None
    threads = shape.planned.whole("threads_per_worker") or 1
    if shape.planned.options.get("processes") is False and shape.provider == "local":
        threads = 1  # each thread is a worker of its own
    held = shape.side_by_side.held_s if shape.side_by_side is not None else 0.0
    return threads if held <= 1.05 * threads * shape.time.busy_s else None


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
    saved, share = (
        median(b - a for b, a in zip(before, after, strict=True)),
        median(1 - a / b for b, a in zip(before, after, strict=True)),
    )
    local = runs[0].shape.provider == "local"
    if share < (LEAST_SAVED_LOCALLY if local else LEAST_SAVED):
        return None
    idle = median(_idle(run) for run in runs)
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
            "replay_error_share": _error(runs),
        },
        gain=f"{worker_time(saved)} of {worker_time(median(before))} a run ({format_percent(share)})",
        gain_s=saved,
        changes=changes,
    )


def _enough(run: Replayed, workers: int) -> int:
    """The fewest workers on which a run would take hardly longer."""
    base = run.wall_s(workers)
    # On one's own machine idle workers cost little: there the work itself may hardly take longer.
    limit = base + WITHIN * (base if run.shape.provider == "local" else run.lived_s)
    low, high = 1, workers
    while low < high:
        middle = (low + high) // 2
        if run.wall_s(middle) <= limit:
            high = middle
        else:
            low = middle + 1
    return low


def _more(runs: Sequence[Replayed]) -> Advice | None:
    shape = runs[0].shape
    workers = shape.workers
    if any(run.shape.time is None or run.shape.time.busy_s < BUSY * run.shape.time.uptime_s for run in runs):
        return None
    if any(task.on_gpu for run in runs for task in run.shape.tasks.values()):
        return None  # they may share the devices that there are
    local = shape.provider in {"local", None}
    if not local and median(run.lived_s for run in runs) < LONG_S:
        return None
    most = min(2 * workers, min(_room(run.shape, workers) for run in runs) if local else 2 * workers)
    if most <= workers:
        return None
    best = {run.shape.run_id: run.wall_s(most) for run in runs}
    wanted = max(_as_fast(run, workers, most, best[run.shape.run_id]) for run in runs)
    faster = [(run.wall_s(workers) - run.wall_s(wanted)) / run.lived_s for run in runs]
    if min(faster) < LEAST_FASTER:
        return None
    walls = median(run.lived_s for run in runs)
    after = median(run.lived_s * (1 - share) for run, share in zip(runs, faster, strict=True))
    queued = median(run.shape.queue_s or 0.0 for run in runs)
    name, changes = _change(shape, wanted)
    room = _room_text(runs) if local else " for about the same worker time"
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
            "busy_share": median(_busy(run) for run in runs),
            "replay_error_share": _error(runs),
        },
        gain=(
            f"{format_duration(walls - after)} of {format_duration(walls)} a run "
            f"({format_percent(min(faster))} at least)"
        ),
        gain_s=None,
        changes=changes,
    )


def _as_fast(run: Replayed, workers: int, most: int, best_s: float) -> int:
    """The fewest of more workers that come within reach of the best."""
    low, high = workers + 1, most
    while low < high:
        middle = (low + high) // 2
        if run.wall_s(middle) <= best_s * (1 + WITHIN):
            high = middle
        else:
            low = middle + 1
    return low


def _room(shape: RunShape, workers: int) -> int:
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
    idle = max(0.0, ROOM - machine.cpu_percent / 100) * machine.cpus
    by_cores = workers + int(idle / max(each, 0.05))
    used = machine.memory_peak_bytes or machine.memory_total_bytes
    by_memory = int(workers * ROOM * machine.memory_total_bytes / max(1, used))
    return max(workers, min(by_cores, by_memory))


def _room_text(runs: Sequence[Replayed]) -> str:
    machine = runs[0].shape.machine
    assert machine is not None
    assert machine.cpu_percent is not None
    return f" ({machine.cpu_percent:.0f}% of {machine.cpus:g} cores were in use)"


def _change(shape: RunShape, workers: int) -> tuple[str, dict[str, str]]:
    """What the advice is about, and the manifest's key; none where the workers are not the manifest's to
    say.
    """
    target, options = shape.target, shape.planned.options
    if target is None:
        return shape.provider or "workers", {}
    said = [name for name in ("n_workers", "max_workers") if name in options]
    key = said[0] if said else _COUNTS.get(shape.provider or "")
    if key is None or shape.planned.target != target or "address" in options or "scheduler_file" in options:
        return target, {}
    threads = shape.planned.whole("threads_per_worker") or 1
    if shape.provider == "local" and options.get("processes") is False:
        workers = -(-workers // threads)
    return target, {f"targets.{target}.{key}": str(workers)}


def _idle(run: Replayed) -> float:
    assert run.shape.time is not None
    return run.shape.time.idle_s / run.shape.time.total_s if run.shape.time.total_s else 0.0


def _busy(run: Replayed) -> float:
    assert run.shape.time is not None
    return run.shape.time.busy_s / run.shape.time.uptime_s if run.shape.time.uptime_s else 0.0


def _error(runs: Sequence[Replayed]) -> float:
    """How far replays were off, at most."""
    return max(abs(run.wall_s(run.shape.workers) / run.measured_s - 1) for run in runs)
