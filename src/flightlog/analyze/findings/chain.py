"""Tasks that had to wait for others, so that more workers could not help."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.findings.base import Finding, FindingFacts
from flightlog.analyze.limits import FindingLimits
from flightlog.analyze.report.critical_path import BETWEEN
from flightlog.analyze.report.replay import Changes
from flightlog.core.text import plural
from flightlog.core.units import format_duration, format_percent


def dependency_chain(facts: FindingFacts) -> Iterable[Finding]:
    """A chain of tasks each of which needs the one before, with little beside it."""
    path = facts.critical
    chained = path.chained if path is not None else None
    if (
        path is None
        or chained is None
        or chained.tasks < FindingLimits.min_chained_tasks
        or chained.seconds < FindingLimits.min_chain_share * path.wall_s
    ):
        return
    workers = facts.workers
    if (
        chained.running > FindingLimits.max_running_beside_chain
        or chained.waiting > FindingLimits.max_queued_beside_chain
    ):
        return  # others ran beside it, or could have
    share = chained.seconds / path.wall_s
    had = f" on {plural(workers, 'worker')}" if workers > 1 else ""
    yield facts.finding(
        "dependency_chain",
        None,
        f"{format_duration(chained.seconds)}, {format_percent(share)} of the wall time, went to a chain of "
        f"{plural(chained.tasks, 'task')} each of which needs one before it, because nothing else could run: "
        f"concurrency was {chained.running:.1f}{had}; try fewer steps in the chain or shorter ones; more "
        "workers would not help.",
        {"tasks": chained.tasks, "chain_s": chained.seconds, "running": chained.running, "workers": workers},
        limits=share,
        saves_s=facts.saved(Changes(dependencies=False, workers=workers)),
    )


def one_at_a_time(facts: FindingFacts) -> Iterable[Finding]:
    """A program that waits for each result before it submits the next task, though there are workers.

    Where it does much itself between them, that is what limits it. Whether each task needs the result of the
    one before, as in an optimization, is not recorded.
    """
    path = facts.critical
    gathered = path.gathered if path is not None else None
    workers = facts.workers
    if (
        path is None
        or gathered is None
        or workers < 2
        or gathered.tasks < FindingLimits.min_tasks_for_usual
        or gathered.seconds < FindingLimits.min_chain_share * path.wall_s
        or gathered.running > FindingLimits.max_running_beside_chain
    ):
        return
    between = sum(part.seconds for part in path.parts if (part.kind, part.name) == ("program", BETWEEN))
    if between > FindingLimits.max_program_share_between_tasks * gathered.seconds:
        return
    share = gathered.seconds / path.wall_s
    yield facts.finding(
        "one_at_a_time",
        None,
        f"{format_duration(gathered.seconds)}, {format_percent(share)} of the wall time, went to "
        f"{plural(gathered.tasks, 'task')} one at a time on {plural(workers, 'worker')}, because the program "
        "waited for each before it submitted the next; try submitting all tasks before waiting for any, if "
        "they do not need each other's results.",
        {"tasks": gathered.tasks, "seconds": gathered.seconds, "workers": workers},
        limits=share,
        saves_s=facts.saved(Changes(gathering=False, workers=workers)),
        certainty="likely",
    )


SYMPTOMS = (dependency_chain, one_at_a_time)
