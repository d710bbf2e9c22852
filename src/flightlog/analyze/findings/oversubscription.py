"""CPU oversubscription: tasks waiting for CPU, or held back by a CPU quota."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.findings.base import Finding, FindingFacts, cost_text, matters
from flightlog.core.time import seconds
from flightlog.core.units import format_count, format_duration, format_percent

FULL_PERCENT = 90.0
"""A host this busy on average has no core to spare."""

_WAITED = """
SELECT coalesce(sum(stopped - began), 0), coalesce(sum(greatest(0, stopped - began - in_ns(cpu_s))), 0)
FROM attempt_intervals WHERE state = 'completed' AND cpu_scope = 'thread' AND cpu_s IS NOT NULL
    AND began IS NOT NULL
"""


def oversubscription(facts: FindingFacts) -> Iterable[Finding]:
    """Time of completed tasks off the processor, while the host was full; and what a CPU quota held back."""
    node, cgroup = facts.summary.resources.node, facts.summary.resources.cgroup
    busy = node.cpu_percent.mean if node is not None else None
    row = facts.connection.execute(_WAITED).fetchone()
    ran, waited = (seconds(int(row[0])), seconds(int(row[1]))) if row is not None else (0.0, 0.0)
    if busy is not None and busy >= FULL_PERCENT and ran and matters(facts, waited):
        cores = f" of {format_count(node.cpus)} cores" if node is not None and node.cpus else ""
        yield facts.finding(
            "oversubscription",
            waited,
            f"{cost_text(facts, waited)} went to tasks waiting for CPU "
            f"({format_percent(waited / ran)} of their time), because {busy:.0f}%{cores} were in use on "
            "average; try fewer workers, or fewer threads in each.",
            {"off_cpu_s": waited, "executed_s": ran, "node_cpu_percent": busy},
            where=list(node.hosts[:3]) if node is not None else [],
        )
    held = cgroup.throttled_s if cgroup is not None else None
    if held is not None and cgroup is not None and matters(facts, held):
        quota = f" of {cgroup.cpu_quota:.1f} cores" if cgroup.cpu_quota is not None else ""
        yield facts.finding(
            "throttling",
            held,
            f"{cost_text(facts, held)} went to waiting for the CPU quota{quota}, because it held this "
            f"run back for {format_duration(held)}; try asking for more cores, or lower concurrency.",
            {"throttled_s": held, "cpu_quota": cgroup.cpu_quota},
        )
