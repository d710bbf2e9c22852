"""Scheduling overhead: workers that were free while tasks were queued, and the dispatch latency behind it."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.findings.base import Facts, Finding, cost_text, matters, share_of
from flightlog.core.units import format_duration


def handover(facts: Facts) -> Iterable[Finding]:
    """The scheduler's share, where it stands out, against the length of the tasks."""
    if facts.shares is None or facts.shares.basis != "workers":
        return
    whole = facts.shares.whole
    if not matters(facts, whole.scheduler_s) or not whole.attempts:
        return
    each = whole.scheduler_s / whole.attempts
    median = facts.summary.tasks.duration_s.p50
    short = median is not None and median < 20 * each
    usual = f", and half of all tasks take {format_duration(median)} or less" if median is not None else ""
    advice = (
        "giving each task several pieces of work" if short else "looking at what the scheduler was doing then"
    )
    yield Finding(
        kind="handover",
        seconds=whole.scheduler_s,
        share=share_of(facts, whole.scheduler_s),
        sentence=(
            f"{cost_text(facts, whole.scheduler_s)} went to scheduling overhead, because "
            f"dispatch latency was {format_duration(each)} on average{usual}; try {advice}."
        ),
        evidence={"handover_s": each, "attempts": whole.attempts, "median_task_s": median},
        where=[],
    )
