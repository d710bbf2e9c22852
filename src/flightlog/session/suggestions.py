"""What history suggests for the components of a plan, beside what the manifest says: which is what counts."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from flightlog.core.errors import FlightlogError

RUNS = 20
ATTEMPTS = 20_000
"""How much of the past a plan looks at, the newest; `flightlog advise` looks at more."""


class Suggestion(Struct, frozen=True, kw_only=True):
    """What the tasks on a component needed; None where too little is known of it."""

    cpus: float | None
    memory_bytes: int | None
    tasks: list[str]
    """Those that decide: on CPUs, on memory."""
    attempts: int
    runs: int
    confidence: float
    """The share of later attempts that it is meant to be enough for."""
    whole: bool
    """Whether every task on the component is known well enough; otherwise another one may need more."""
    elsewhere: bool = False
    """Whether it comes from runs on other targets, for want of any on the plan's."""


def read_suggestions(
    runs_dir: Path, project: str, target: str | None = None, *, confidence: float = 0.95
) -> dict[str, Suggestion]:
    """By component, from runs on a target, or from all where there are none on it or none is named.

    Nothing where there is no history, or none that can be read.
    """
    from flightlog.analyze.advice.advise import advise_on
    from flightlog.analyze.advice.resources import component_needs
    from flightlog.analyze.history.attempts import read_past

    try:
        past = read_past(runs_dir, project=project, target=target, runs=RUNS, attempts=ATTEMPTS)
        elsewhere = target is not None and not past.attempts
        if elsewhere:
            past = read_past(runs_dir, project=project, runs=RUNS, attempts=ATTEMPTS)
        advised = advise_on(past, confidence=confidence, shape=False)
    except (FlightlogError, OSError):
        return {}
    found = {}
    for component, needs in component_needs(advised.recommendations).items():
        wanted = [each for each in (needs.cpus, needs.memory) if each is not None]
        if wanted:
            found[component] = Suggestion(
                cpus=needs.cpus.amount if needs.cpus is not None else None,
                memory_bytes=int(needs.memory.amount) if needs.memory is not None else None,
                tasks=list(dict.fromkeys(each.task for each in wanted)),
                attempts=needs.attempts,
                runs=needs.runs,
                confidence=confidence,
                whole=all(each.whole for each in wanted),
                elsewhere=elsewhere,
            )
    return found
