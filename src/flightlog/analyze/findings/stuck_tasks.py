"""Tasks that may be stuck: in flight for longer than tasks of their name ever take."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.findings.base import Facts, Finding, cost_text, plural, share_of
from flightlog.analyze.report.in_flight import InFlight
from flightlog.core.stats import exact_sum
from flightlog.core.units import format_duration


def stuck_tasks(facts: Facts) -> Iterable[Finding]:
    """What is stuck by `analyze.stuck`, however short the run: a hung task is worth a word at once."""
    found = [one for one in facts.in_flight if one.stuck and one.kind == "task"]
    if not found:
        return
    lost = exact_sum(one.elapsed_s or 0.0 for one in found)
    worst = found[0]
    assert worst.usual is not None
    of = " of earlier runs" if worst.usual.of == "history" else ""
    times = f", {worst.ratio:,.0f} times the median{of}" if worst.ratio is not None else ""
    ran = "has been running" if facts.summary.run.status == "running" else "had been running"
    yield Finding(
        kind="stuck_tasks",
        seconds=lost,
        share=share_of(facts, lost),
        sentence=(
            f"{cost_text(facts, lost)} went to {plural(len(found), 'task')} that may be stuck, because "
            f"{_named(worst)} {ran}{f' on {worst.worker}' if worst.worker else ''} for "
            f"{format_duration(worst.elapsed_s)}{times}; try a timeout, or look at what it waits for."
        ),
        evidence={
            "tasks": len(found),
            "worst_s": worst.elapsed_s,
            "median_s": worst.usual.p50,
            "p95_s": worst.usual.p95,
        },
        where=[_named(one) for one in found[:3]],
    )


def _named(one: InFlight) -> str:
    import msgspec

    from flightlog.analyze.findings.base import call

    return call(one.name, msgspec.json.encode(one.args).decode() if one.args else None)
