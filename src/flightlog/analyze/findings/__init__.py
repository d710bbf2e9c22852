"""Findings: what stands out in a run, the costliest first. A module per subject: its `SYMPTOMS` are found by
looking into this package.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from flightlog.analyze.findings.base import Finding, FindingFacts, Symptom

__all__ = ["Finding", "FindingFacts", "Symptom", "find", "symptoms"]


@cache
def symptoms() -> tuple[Symptom, ...]:
    """All that there are, in the order of their modules' names and in theirs."""
    modules = (import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    return tuple(symptom for module in modules for symptom in getattr(module, "SYMPTOMS", ()))


def find(facts: FindingFacts) -> list[Finding]:
    """Everything that stands out, the costliest first; what has no known cost stands first of all.

    Times may overlap: a task that failed may also have been the straggler. They do not add up.
    """
    found = [finding for symptom in symptoms() for finding in symptom(facts)]
    return sorted(found, key=lambda one: (one.seconds is not None, -(one.seconds or 0.0)))
