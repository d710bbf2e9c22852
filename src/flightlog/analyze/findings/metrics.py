"""Metrics that stopped being numbers."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.findings.base import Finding, FindingFacts
from flightlog.analyze.limits import FindingLimits
from flightlog.core.text import plural

_NOT_FINITE = """
WITH ordered AS (
    SELECT name, nonfinite, step, "timestamp" AS moment, writer, seq,
        max(CASE WHEN nonfinite IS NULL THEN row(moment, writer, seq) END) OVER (PARTITION BY name, writer)
            AS last_number
    FROM metrics WHERE event = 'metric'
), since AS (
    SELECT *, last_number IS NULL OR row(moment, writer, seq) > last_number AS at_the_end FROM ordered
)
SELECT name, arg_min(nonfinite, row(moment, writer, seq)) FILTER (at_the_end AND nonfinite IS NOT NULL),
    arg_min(step, row(moment, writer, seq)) FILTER (at_the_end AND nonfinite IS NOT NULL),
    count(*) FILTER (at_the_end AND nonfinite IS NOT NULL) AS odd, count(*) FILTER (NOT at_the_end) AS numbers
FROM since GROUP BY name, writer
HAVING odd >= $enough AND odd >= $share * count(*) AND (numbers > 0 OR bool_or(lower(nonfinite) = 'nan'))
ORDER BY min(moment) FILTER (at_the_end), name, writer
"""


_WORDS = {"nan": "NaN", "inf": "infinite", "-inf": "negative and infinite"}


def not_finite(facts: FindingFacts) -> Iterable[Finding]:
    """Metrics that became NaN or infinite, and stayed so to the end."""
    rows = facts.tables.execute(
        _NOT_FINITE,
        {"enough": FindingLimits.min_nonfinite_values, "share": FindingLimits.min_nonfinite_share},
    ).fetchall()
    if not rows:
        return
    name, kind, step, odd, before = rows[0]
    what = _WORDS.get(str(kind).strip('"').lower(), str(kind))
    others = f" (and {plural(len(rows) - 1, 'other metric')})" if len(rows) > 1 else ""
    where = f"from step {step:,} on" if step is not None and before else f"in its last {odd:,} values"
    said = (
        f"has been {what} {where}, because the computation diverged there"
        if before
        else f"was {what} in all of its {plural(odd, 'value')}"
    )
    yield facts.finding(
        "not_finite",
        None,
        f"{name}{others} {said}; try a look at "
        f"{'that step' if step is not None and before else 'what it is computed from'}.",
        {"metric": name, "step": step, "not_finite": odd, "numbers_before": before},
        where=[row[0] for row in rows[:3]],
    )


SYMPTOMS = (not_finite,)
