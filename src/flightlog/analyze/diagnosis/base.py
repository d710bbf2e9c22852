"""What a rule looks at, and what it says: the contract between the rules and those who ask them.

A rule stands for one class of failure. It is given a case, and yields signs that speak for its class (or,
with a negative weight, against it). Signs are weighed, never counted by who comes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from flightlog.analyze.diagnosis.facts import RunFacts
from flightlog.analyze.diagnosis.reading import Reading


class Source(StrEnum):
    """Where a sign comes from, the most trustworthy first."""

    kernel = "kernel"
    """The kernel or a cgroup: `oom_kill` rose."""
    scheduler = "scheduler"
    """A batch system or an engine: `TIMEOUT`, `KilledWorker`."""
    exit = "exit"
    """Exit code or signal."""
    exception = "exception"
    """Type of an exception, or of one in its chain of causes, and `errno`."""
    resources = "resources"
    """The curve before the end: memory that climbs to the limit."""
    neighbours = "neighbours"
    """What else ran or failed there at that moment."""
    words = "words"
    """What a text says: the weakest."""


class Sign(Struct, frozen=True, kw_only=True):
    """One piece of evidence."""

    source: Source
    weight: float
    """How much it speaks for the class: 1 hint, 3 strong, 6 proof; negative speaks against it."""
    text: str
    """The line or fact as the user is shown it."""


class Case(Struct, frozen=True, kw_only=True):
    """One failure to be explained: its text as read, and what the record knows beside it."""

    reading: Reading
    facts: RunFacts | None = None
    """None where there is a text alone."""


class Rule(Protocol):
    """Speaks for one class; found by the entry point group `flightlog.rules`, under the name of the class."""

    def signs(self, case: Case, /) -> Iterable[Sign]:
        """The evidence for this class in the case; nothing where there is none."""
        ...

    def suggestions(self, case: Case, /) -> list[str]:
        """What to do about it, the most useful first, in terms of the user's own manifest and code where
        known.
        """
        ...


class Diagnosis(Struct, frozen=True, kw_only=True):
    """What a failure most likely is."""

    failure_class: str
    """One of the classes, a site's own, or `unknown`."""
    confidence: float
    """0 to 1: how likely the class is right; below 0.5 nobody should rely on it. `unknown` is always
    below."""
    evidence: list[str]
    """The lines and facts that speak for it, the strongest first."""
    suggestions: list[str]
    also: dict[str, float] = {}
    """Other classes that some evidence speaks for, with their confidence, the likeliest first."""
    problems: list[str] = []
    """Rules that could not be used, and why."""
