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


_DIVERGING = """
WITH found AS (
    SELECT name, writer, value, step, row_number() OVER in_order AS n,
        ntile(5) OVER in_order AS part, max(nonfinite) OVER (PARTITION BY name, writer) AS odd
    FROM metrics WHERE event = 'metric' AND regexp_matches(lower(name), '(loss|error|cost|mse|rmse|mae|nll)')
    WINDOW in_order AS (PARTITION BY name, writer ORDER BY "timestamp", seq)
), parts AS (
    SELECT name, writer, part, median(value) AS usual, count(*) AS number, min(step) AS step
    FROM found WHERE odd IS NULL AND value IS NOT NULL GROUP BY ALL
)
SELECT name, min(usual) AS best, arg_max(usual, part) AS last, arg_min(step, usual),
    bool_and(usual > 0), sum(number), arg_max(usual, part) FILTER (part = 4)
FROM parts GROUP BY name, writer HAVING count(*) = 5 ORDER BY last / nullif(best, 0) DESC, name
"""


def diverging(facts: FindingFacts) -> Iterable[Finding]:
    """A loss or an error that has grown far beyond its least value, and goes on to grow."""
    for name, best, last, step, positive, number, before in facts.tables.execute(_DIVERGING).fetchall():
        if (
            positive
            and number >= FindingLimits.min_diverging_values
            and last >= FindingLimits.diverging_ratio * best
            and last > before
        ):
            after = f" since step {step:,}" if step is not None else ""
            yield facts.finding(
                "diverging",
                None,
                f"{name} grows{after}, from {best:.3g} to {last:.3g}, so that the computation diverges; try "
                "a smaller step, or a look at what changed there.",
                {"metric": name, "best": best, "last": last, "step": step},
                where=[name],
                certainty="likely",
            )
            return


SYMPTOMS = (not_finite, diverging)
