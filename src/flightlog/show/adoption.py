"""What was adopted, in a few lines: where it went, what it became, what it lacks."""

from __future__ import annotations

from collections.abc import Sequence

from flightlog.engines.slurm.merging import Merged
from flightlog.show.phrases import count_text
from flightlog.show.terminal import clean

DROPPED = (
    "per-node and per-task extremes, I/O and energy of steps, requests other than CPUs, memory, GPUs and time, "
    "priority, reservation, comments"
)
"""What accounting holds and no event does; said each time something was added."""
_MAPPED = {
    "task_submitted": ("new task", None),
    "task_completed": ("task completed", "tasks completed"),
    "task_failed": ("task failed", "tasks failed"),
    "task_cancelled": ("task cancelled", "tasks cancelled"),
    "task_retried": ("attempt put back into the queue", "attempts put back into the queue"),
    "worker_lost": ("worker lost", "workers lost"),
    "worker_removed": ("worker ended", "workers ended"),
    "failure": ("failure with its reason", "failures with their reasons"),
    "span": ("step as a span", "steps as spans"),
}


def adoption_text(merged: Sequence[Merged]) -> str:
    """The lines of one adoption, run by run."""
    return "\n".join(_run_text(one) for one in merged)


def _run_text(one: Merged) -> str:
    added = sum(one.states.values())
    if added:
        ends = ", ".join(f"{number:,} {state}" for state, number in sorted(one.states.items()))
        where = "made into" if one.made else "merged into"
        lines = [f"{count_text(added, 'job')} {where} {clean(one.run_id)}: {clean(ends)}"]
        mapped = [
            count_text(one.events[kind], *words) for kind, words in _MAPPED.items() if kind in one.events
        ]
        lines.append(f"  mapped:  {', '.join(mapped) or 'nothing: the run knew every end'}")
        lines.append(
            f"  kept:    {count_text(added, 'account')} of a job, as Slurm gives it: flightlog sql 'FROM jobs'"
        )
        lines.append(f"  dropped: {DROPPED}")
    else:
        lines = [f"Nothing to add to {clean(one.run_id)}"]
    if one.already:
        lines.append(f"  known before: {count_text(one.already, 'account')} of a job")
    if one.waiting:
        lines.append(f"  not ended yet, adopt again then: {_names(one.waiting)}")
    if one.missing:
        lines.append(f"  not in Slurm's accounting: {_names(one.missing)}")
    return "\n".join(lines) + "\n"


def _names(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - 10:,} more" if len(ids) > 10 else ""
    return clean(", ".join(ids[:10])) + more
