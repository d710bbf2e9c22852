"""Metrics that stopped being numbers."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.findings.base import Finding, FindingFacts
from flightlog.analyze.limits import FindingLimits
from flightlog.core.text import plural

_LOSS = r"(^|[^a-z])(loss|losses|error|cost|mse|rmse|mae|nll)($|[^a-z])"
_NO_LOSS = (
    r"(^|[^a-z])(scale|scaling|scaler|total|sum|count|number|cum|cumulative|usd|eur|weight|weights|rate)"
    r"($|[^a-z])"
)
"""Names of metrics that are to become small, by whole words; but not of those that count, add up, or set
something."""

_NOT_FINITE = f"""
WITH ordered AS (
    SELECT name, lower(trim(CAST(nonfinite AS VARCHAR), '"')) AS nonfinite, step, "timestamp" AS moment,
        writer, seq,
        max(CASE WHEN nonfinite IS NULL THEN row(moment, writer, seq) END) OVER (PARTITION BY name, writer)
            AS last_number
    FROM metrics WHERE event = 'metric' AND name IS NOT NULL
), since AS (
    SELECT *, last_number IS NULL OR row(moment, writer, seq) > last_number AS at_the_end FROM ordered
), writers AS (
    SELECT name, writer, arg_min(nonfinite, row(moment, seq)) FILTER (at_the_end AND nonfinite IS NOT NULL)
            AS what,
        arg_min(step, row(moment, seq)) FILTER (at_the_end AND nonfinite IS NOT NULL) AS step,
        min(moment) FILTER (at_the_end) AS moment,
        count(*) FILTER (at_the_end AND nonfinite IS NOT NULL) AS odd,
        count(*) FILTER (NOT at_the_end) AS numbers,
        odd >= $enough AND odd >= $share * count(*) AND (bool_or(nonfinite = 'nan')
            OR (numbers > 0 AND regexp_matches(lower(name), '{_LOSS}'))) AS lost
    FROM since GROUP BY name, writer
), names AS (
    SELECT name, arg_min(what, moment) FILTER (lost) AS what, arg_min(step, moment) FILTER (lost) AS step,
        min(moment) FILTER (lost) AS moment, sum(odd) FILTER (lost) AS odd,
        sum(numbers) FILTER (lost) AS numbers, count(*) FILTER (lost) AS lost, count(*) AS writers
    FROM writers GROUP BY name
)
SELECT name, what, step, odd, numbers, lost, writers, bool_or(lost = 0) OVER () AS others_are_finite
FROM names QUALIFY lost > 0 ORDER BY numbers = 0, moment, name
"""  # noqa: S608 - words of ours


_WORDS = {"nan": "NaN", "inf": "infinite", "-inf": "negative and infinite"}


def not_finite(facts: FindingFacts) -> Iterable[Finding]:
    """Metrics that became NaN or infinite, and stayed so to the end; infinite only where they are to become
    small. It is sure to be what matters where most processes have it, and where the metric was a number
    before, or no metric is one.
    """
    if "metrics" not in facts.tables.streams or not facts.tables.scalar(
        "SELECT count(*) FROM metrics WHERE event = 'metric' AND nonfinite IS NOT NULL"
    ):
        return
    rows = facts.tables.execute(
        _NOT_FINITE,
        {"enough": FindingLimits.min_nonfinite_values, "share": FindingLimits.min_nonfinite_share},
    ).fetchall()
    if not rows:
        return
    name, kind, step, odd, before, lost, writers, others_are_finite = rows[0]
    what = _WORDS.get(str(kind), str(kind))
    others = f" (and {plural(len(rows) - 1, 'other metric')})" if len(rows) > 1 else ""
    where = f"from step {step:,} on" if step is not None and before else f"in its last {odd:,} values"
    who = _processes(lost, writers)
    said = (
        f"has been {what} {where}{who}, because the computation diverged there"
        if before
        else f"was {what} in all of its {plural(odd, 'value')}{who}"
    )
    sure = 2 * lost >= writers and (before or not others_are_finite)
    yield facts.finding(
        "not_finite",
        None,
        f"{name}{others} {said}; try a look at "
        f"{'that step' if step is not None and before else 'what it is computed from'}.",
        {
            "metric": name,
            "step": step,
            "not_finite": int(odd),
            "numbers_before": int(before),
            "processes": int(lost),
            "all_processes": int(writers),
        },
        where=[row[0] for row in rows[:3]],
        certainty="measured" if sure else "likely",
    )


def _processes(some: int, every: int) -> str:
    return f" in {some:,} of {every:,} processes" if some < every else ""


_DIVERGING = f"""
WITH named AS (
    SELECT name, writer, value, nonfinite, step, "timestamp" AS moment, seq FROM metrics
    WHERE event = 'metric' AND regexp_matches(lower(name), '{_LOSS}')
        AND NOT regexp_matches(lower(name), '{_NO_LOSS}')
), marked AS ( -- another trial begins where the step falls
    SELECT *, CASE WHEN step < lag(step) OVER in_order THEN 1 ELSE 0 END AS again FROM named
    WINDOW in_order AS (PARTITION BY name, writer ORDER BY moment, seq)
), trials AS (
    SELECT *, sum(again) OVER (PARTITION BY name, writer ORDER BY moment, seq) AS trial FROM marked
), last AS (
    SELECT * FROM trials QUALIFY trial = max(trial) OVER (PARTITION BY name, writer)
), found AS (
    SELECT name, writer, value, step, ntile(5) OVER (PARTITION BY name, writer ORDER BY moment, seq) AS part,
        max(nonfinite) OVER (PARTITION BY name, writer) AS odd
    FROM last
), parts AS ( -- with the last step before it rose
    SELECT name, writer, part, usual, count(*) AS number, max(step) FILTER (value <= usual) AS step
    FROM (
        SELECT *, median(value) OVER (PARTITION BY name, writer, part) AS usual FROM found
        WHERE odd IS NULL AND value IS NOT NULL
    ) GROUP BY ALL
), series AS (
    SELECT name, min(usual) AS best, arg_max(usual, part) AS last, arg_min(step, row(usual, -part)) AS step,
        arg_max(usual, part) FILTER (part = 4) AS before, count(*) = 5 AND bool_and(usual > 0)
            AND sum(number) >= $enough AND last >= $ratio * best AND last > before AS diverges
    FROM parts GROUP BY name, writer
)
SELECT name, arg_max(best, last / best), max(last), arg_max(step, last / best), count(*),
    (SELECT count(*) FROM series AS every WHERE every.name = series.name) AS writers
FROM series WHERE diverges GROUP BY name ORDER BY max(last / best) DESC, name LIMIT 1
"""  # noqa: S608 - words of ours


def diverging(facts: FindingFacts) -> Iterable[Finding]:
    """A loss or an error that has grown far beyond its least value in the last trial, and goes on to grow. It
    is sure where it grew without any measure, in most processes.
    """
    if "metrics" not in facts.tables.streams:
        return
    limits = {"enough": FindingLimits.min_diverging_values, "ratio": FindingLimits.diverging_ratio}
    for name, best, last, step, some, every in facts.tables.execute(_DIVERGING, limits).fetchall():
        after = f" since step {step:,}" if step is not None else ""
        sure = 2 * some >= every and last >= FindingLimits.sure_diverging_ratio * best
        yield facts.finding(
            "diverging",
            None,
            f"{name} grows{after}{_processes(some, every)}, from {best:.3g} to {last:.3g}, so that the "
            "computation diverges; try a smaller step, or a look at what changed there.",
            {"metric": name, "best": best, "last": last, "step": step},
            where=[name],
            certainty="measured" if sure else "likely",
        )


SYMPTOMS = (not_finite, diverging)
