"""Findings: what stands out in a run, the costliest first. A module per subject, one protocol for all."""

from __future__ import annotations

from flightlog.analyze.findings.base import Finding, FindingFacts, Symptom
from flightlog.analyze.findings.cache_misses import cache_misses
from flightlog.analyze.findings.chain import dependency_chain
from flightlog.analyze.findings.cpu import interpreter_lock, throttling, waiting_for_cpu
from flightlog.analyze.findings.idle_workers import idle_workers
from flightlog.analyze.findings.metrics import not_finite
from flightlog.analyze.findings.overhead import cold_starts, handover, serialization
from flightlog.analyze.findings.resources import device_memory, memory_pressure
from flightlog.analyze.findings.tasks import failed_work, stragglers, stuck_tasks
from flightlog.analyze.findings.workers import memory_growth, slow_workers

SYMPTOMS: tuple[Symptom, ...] = (
    not_finite,
    stuck_tasks,
    device_memory,
    memory_pressure,
    failed_work,
    stragglers,
    idle_workers,
    cold_starts,
    handover,
    serialization,
    cache_misses,
    dependency_chain,
    interpreter_lock,
    waiting_for_cpu,
    throttling,
    slow_workers,
    memory_growth,
)

__all__ = ["SYMPTOMS", "Finding", "FindingFacts", "Symptom", "find"]


def find(facts: FindingFacts) -> list[Finding]:
    """Everything that stands out, the costliest first; what has no known cost stands first of all.

    Times may overlap: a task that failed may also have been the straggler. They do not add up.
    """
    found = [finding for symptom in SYMPTOMS for finding in symptom(facts)]
    order = {finding.kind: n for n, finding in enumerate(found)}
    return sorted(found, key=lambda one: (one.seconds is not None, -(one.seconds or 0.0), order[one.kind]))
