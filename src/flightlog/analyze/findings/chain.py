"""Tasks that had to wait for others, so that more workers could not help."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.findings.base import Finding, FindingFacts
from flightlog.core.text import plural
from flightlog.core.units import format_duration, format_percent

LEAST_SHARE = 0.1
"""Of the wall time; a shorter chain is not worth a sentence."""


def dependency_chain(facts: FindingFacts) -> Iterable[Finding]:
    """A chain of tasks each of which needs the one before, with little beside it."""
    path = facts.critical
    chained = path.chained if path is not None else None
    if path is None or chained is None or chained.tasks < 3 or chained.seconds < LEAST_SHARE * path.wall_s:
        return
    workers = facts.shares.workers if facts.shares is not None else 0
    if chained.running > 1.5 or chained.waiting > 0.2:
        return  # others ran beside it, or could have
    share = chained.seconds / path.wall_s
    had = f" on {plural(workers, 'worker')}" if workers > 1 else ""
    yield facts.finding(
        "dependency_chain",
        None,
        f"{format_duration(chained.seconds)}, {format_percent(share)} of the wall time, went to a chain of "
        f"{plural(chained.tasks, 'task')} each of which needs one before it, because nothing else could run: "
        f"{chained.running:.1f} ran at once{had}; try fewer steps in the chain or shorter ones; more workers "
        "would not help.",
        {"tasks": chained.tasks, "chain_s": chained.seconds, "running": chained.running, "workers": workers},
        limits=share,
    )


SYMPTOMS = (dependency_chain,)
