"""Stragglers: tasks far slower than others of their name while other workers had nothing left to do."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.findings.base import Facts, Finding, call, cost_text, matters, plural, share_of
from flightlog.core.stats import exact_sum
from flightlog.core.units import format_duration


def stragglers(facts: Facts) -> Iterable[Finding]:
    """Idle time behind tasks of at least twice the median of their name, of which five or more completed."""
    found = [one for one in facts.behind if one.is_straggler]
    lost = exact_sum(one.idle_s for one in found)
    if not matters(facts, lost):
        return
    worst = found[0]
    assert worst.usual_s is not None
    times = worst.lasted_s / worst.usual_s if worst.usual_s else None
    much = f"{times:.1f} times" if times is not None else "longer than"
    yield Finding(
        kind="stragglers",
        seconds=lost,
        share=share_of(facts, lost),
        sentence=(
            f"{cost_text(facts, lost)} went to workers with nothing left to do while "
            f"{plural(len(found), 'slow task')} still ran, because {call(worst.task, worst.args)} took "
            f"{format_duration(worst.lasted_s)}, {much} the median of {format_duration(worst.usual_s)}; try "
            "starting the longest first, or splitting them."
        ),
        evidence={
            "tasks": len(found),
            "workers_idle": worst.workers,
            "worst_s": worst.lasted_s,
            "median_s": worst.usual_s,
            "idle_behind_worst_s": worst.idle_s,
        },
        where=[call(one.task, one.args) for one in found[:3]],
    )
