"""What went wrong in a run although nothing failed of it: values that became NaN, and device memory that ran
out.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from flightlog.analyze.diagnosis.answer.telling import certainty
from flightlog.analyze.diagnosis.base import Case, Rule
from flightlog.analyze.diagnosis.facts import RunFacts
from flightlog.analyze.diagnosis.reading import Reading
from flightlog.analyze.diagnosis.record.nonfinite import Nonfinite
from flightlog.analyze.diagnosis.results import Cause, Evidence, Explained
from flightlog.analyze.diagnosis.weighing import weigh

SHOWN = 6
UNFAILED = frozenset({"metric", "device"})
"""Scopes of causes that nothing failed of."""

_NAN = (
    "SELECT timestamp, name, step, nonfinite FROM metrics WHERE nonfinite IS NOT NULL ORDER BY timestamp "
    "LIMIT 10"
)


def of_values(
    values: Sequence[Nonfinite], causes: Sequence[Cause], rules: Mapping[str, Rule], ref: str
) -> list[Cause]:
    """Values that became NaN as a cause of their own; none where a failure is laid to them."""
    if not values or any(cause.failure_class == "numerical" for cause in causes):
        return []
    first = values[0]
    step = "" if first.step is None else f", first at step {first.step}"
    others = f" and {len(values) - 1} other values" if len(values) > 1 else ""
    facts = RunFacts(scope="metric", nonfinite=tuple(one.name for one in values))
    told = [
        Evidence(
            text=f"`{one.name}` was NaN {one.count:,} times"
            if one.count > 1
            else f"`{one.name}` was NaN once",
            source="resources",
            file=one.file,
            event=one.event,
            time=one.first,
        )
        for one in values[:SHOWN]
    ]
    head = f"`{first.name}`{others} became NaN{step}"
    check = f'flightlog sql "{_NAN}" --run {shlex.quote(ref)}'
    checks = [check] if any(one.file == "metrics.jsonl" for one in values) else []
    return [_cause(facts, rules, head, told, checks, sum(one.count for one in values), first.first)]


def of_bundles(
    bundles: Sequence[tuple[float | None, str, str]],
    causes: Sequence[Cause],
    rules: Mapping[str, Rule],
    ref: str,
) -> list[Cause]:
    """Device memory that ran out and was caught; none where a failure is laid to it. Each is time, message,
    folder.
    """
    if not bundles or any(cause.failure_class == "gpu_out_of_memory" for cause in causes):
        return []
    facts = RunFacts(scope="device", device_oom=tuple(message for _, message, _ in bundles))
    told = [
        Evidence(text=message.partition("\n")[0][:240], source="resources", file=f"{folder}/bundle.json")
        for _, message, folder in bundles[:SHOWN]
    ]
    times = "once" if len(bundles) == 1 else f"{len(bundles)} times or more"
    head = f"a device ran out of memory {times}, and the program went on"
    return [_cause(facts, rules, head, told, [f"flightlog devices {shlex.quote(ref)}"], len(bundles), None)]


def _cause(
    facts: RunFacts,
    rules: Mapping[str, Rule],
    headline: str,
    evidence: list[Evidence],
    checks: list[str],
    count: int,
    first: str | None,
) -> Cause:
    judged = weigh(Case(reading=Reading(), facts=facts), rules)
    return Cause(
        failure_class=judged.failure_class,
        confidence=judged.confidence,
        certainty=certainty(judged.failure_class, judged.confidence),
        scope=facts.scope or "metric",
        headline=headline,
        count=count,
        first=first,
        last=first,
        tasks={},
        workers={},
        hosts=[],
        recovered=0,
        failed=0,
        explains=Explained(),
        evidence=evidence,
        suggestions=judged.suggestions,
        checks=checks,
        missing=[],
        also={},
        example=None,
        fingerprint=None,
    )
