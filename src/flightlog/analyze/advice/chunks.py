"""Tasks that are too short for what handing them over takes: how many to put into one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from flightlog.analyze.advice.base import Advice
from flightlog.analyze.advice.gathered import Look, RunShape, TaskShape
from flightlog.analyze.advice.rounding import round_count, worker_time
from flightlog.units import format_duration, format_percent

LEAST_RUNS = 2
LEAST_TASKS = 200
"""Tasks of a name in a run, and handovers that were measured: fewer are no matter for chunks."""
LEAST_SHARE = 0.1
"""Handing over takes at least this share of the time that tasks and handovers take together."""
LEAST_S = 1.0
"""And so many worker-seconds of a run."""
AIM = 0.01
"""The share of a chunk's time that handing it over may take."""
CHUNKS_A_WORKER = 8
"""So many chunks each worker gets at least: few large ones leave workers idle at the end."""
LONGEST_CHUNK_S = 10.0


def advise_chunks(shapes: Sequence[RunShape]) -> Look:
    """Names whose tasks are worth putting together, in the newest runs that have enough of them."""
    names: dict[str, list[tuple[RunShape, TaskShape]]] = {}
    for shape in shapes:
        for name, task in shape.tasks.items():
            if task.handovers >= LEAST_TASKS and shape.workers:
                names.setdefault(name, []).append((shape, task))
    if not names:
        return Look(silent=f"no task has {LEAST_TASKS} or more handovers in a run whose workers are known")
    advice = [one for name in sorted(names) if (one := _chunk(name, names[name])) is not None]
    if not advice:
        few = all(len(found) < LEAST_RUNS for found in names.values())
        return Look(
            silent=f"1 run has tasks enough to tell; {LEAST_RUNS} are needed"
            if few
            else "handing tasks over takes little time"
        )
    return Look(advice=advice)


def _chunk(name: str, found: Sequence[tuple[RunShape, TaskShape]]) -> Advice | None:
    if len(found) < LEAST_RUNS:
        return None
    each, lost, lengths, sizes, counts = [], [], [], [], []
    for shape, task in found:
        handover, length = task.handover_s or 0.0, task.total_s / task.completed if task.completed else 0.0
        held = task.attempts * handover
        if held < LEAST_S or held < LEAST_SHARE * (held + task.total_s) or length <= 0:
            return None
        fair = task.attempts / (CHUNKS_A_WORKER * shape.workers)
        size = min(fair, LONGEST_CHUNK_S / length, round_count(handover / (AIM * length)))
        each.append(handover)
        lengths.append(length)
        sizes.append(size)
        counts.append(task.attempts)
        lost.append(held * (1 - 1 / size) if size > 1 else 0.0)
    size = math.floor(min(sizes))
    if size < 2:
        return None
    share = median(handover / (handover + length) for handover, length in zip(each, lengths, strict=True))
    return Advice(
        kind="chunks",
        about=name,
        sentence=(
            f"Give each task of {name} {size:,} pieces of work at once: {median(counts):,.0f} tasks a run "
            f"take {format_duration(median(lengths))} each, and handing one over takes "
            f"{format_duration(median(each))} more, {format_percent(share)} of both ({len(found)} runs)."
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
