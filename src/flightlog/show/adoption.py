"""What was adopted, in a few lines: where it went, what it became, what it lacks."""

from __future__ import annotations

from collections.abc import Sequence

from flightlog.engines.slurm.merging import Merged
from flightlog.show.phrases import count_text
from flightlog.show.terminal import clean, wrap
from flightlog.store.adopted import Adoption

WIDTH = 100
DROPPED = (
    "per-node and per-task extremes, I/O and energy of steps, requests other than CPUs, memory, GPUs and "
    "time, "
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
            f"  kept:    {count_text(added, 'account')} of a job, as Slurm gives it: flightlog sql 'FROM "
            "jobs'"
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


def adopted_text(adoptions: Sequence[Adoption], *, width: int = WIDTH) -> str:
    """What became of other tools' recordings, run by run: where it went, what was kept, mapped and
    dropped.
    """
    return "\n".join(_adopted(one, width) for one in adoptions)


def _adopted(one: Adoption, width: int) -> str:
    what = clean(one.title[:1].upper() + one.title[1:])
    if not one.made:
        return f"{what} was adopted before, nothing was changed: {clean(one.run_id)}\n"
    lines = [f"{what} made into {clean(one.run_id)}"]
    parts = (("kept", one.kept), ("mapped", one.mapped), ("dropped", one.dropped))
    broad = max([1, *(len(f"{number:,}") for _, counts in parts for number in counts.values())])
    for label, counts in parts:
        rows = [(f"{number:>{broad},} ", clean(what)) for what, number in counts.items()] or [("", "nothing")]
        lines += _labelled(f"{label}:", rows, width)
    if one.notes:
        lines += _labelled("to know:", [("- ", clean(note)) for note in one.notes], width)
    if one.problems:
        lines += _labelled("skipped:", [("- ", clean(problem)) for problem in one.problems], width)
    return "\n".join([*lines, f"  flightlog report {clean(one.run_id)}"]) + "\n"


def _labelled(label: str, rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Rows below each other, the label beside the first; each has a mark that its further lines stand clear
    of.
    """
    lines: list[str] = []
    for mark, words in rows:
        first, *more = wrap(words, max(20, width - 11 - len(mark))) or [""]
        lines += [mark + first, *(" " * len(mark) + line for line in more)]
    return [f"  {label if not number else '':<9}{line}" for number, line in enumerate(lines)]
