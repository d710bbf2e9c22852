"""Needless cache misses: results computed although they had been computed before; and caches that cost more
than they save.
"""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.findings.base import Finding, FindingFacts, cost_text, matters
from flightlog.core.text import plural
from flightlog.core.time import seconds
from flightlog.core.units import format_duration

NEW_CALL = ("never seen", "arguments changed")
"""Reasons for a miss that are no fault: a first request."""

_MISSES = """
WITH asked AS (
    SELECT task, "key", result, reason, saved_s, computed_s, task_id, "timestamp" AS moment, writer, seq,
        count(*) OVER (PARTITION BY task_id) AS beside FROM cache WHERE result IN ('hit', 'miss')
), missed AS (
    SELECT *, coalesce(reason, '') NOT IN (SELECT unnest($new::VARCHAR[])) AND reason IS NOT NULL AS lost,
        "key" IS NOT NULL AND row_number() OVER (PARTITION BY task, "key"
            ORDER BY moment, writer, seq) > 1 AS again
    FROM asked WHERE result = 'miss'
), alone AS (
    SELECT missed.task, avg(attempt_intervals.stopped - attempt_intervals.began) / 1e9 AS each_s
    FROM missed JOIN attempt_intervals ON attempt_intervals.task_id = missed.task_id
        AND attempt_intervals.state = 'completed'
    WHERE missed.beside = 1 GROUP BY missed.task
), made AS (
    SELECT task, avg(in_ns(saved_s)) / 1e9 AS each_s FROM asked WHERE result = 'hit' GROUP BY task
), reasons AS (
    SELECT task, reason, count(*) AS number FROM missed WHERE lost GROUP BY task, reason
    QUALIFY row_number() OVER (PARTITION BY task ORDER BY number DESC, reason) = 1
)
SELECT missed.task, count(*) FILTER (lost OR again) AS wasted, count(*) FILTER (again AND NOT lost),
    coalesce(avg(in_ns(computed_s)) FILTER (lost OR again) / 1e9, any_value(made.each_s),
        any_value(alone.each_s)) AS cost_s,
    any_value(reasons.reason), count(*)
FROM missed LEFT JOIN made USING (task) LEFT JOIN alone USING (task) LEFT JOIN reasons USING (task)
GROUP BY missed.task HAVING count(*) FILTER (lost OR again) > 0
ORDER BY wasted * coalesce(cost_s, 0) DESC, wasted DESC, missed.task
"""


def cache_misses(facts: FindingFacts) -> Iterable[Finding]:
    """The function whose needless misses cost most: expired, changed code, damage, or asked for twice in this
    run.

    What a miss costs is what computing took on average; where that was not recorded, what results that were
    hit took when they were made, or else what tasks took that did nothing but miss once. Misses on first
    requests are work, and no finding.
    """
    if not facts.summary.cache.misses:
        return
    rows = facts.tables.execute(_MISSES, {"new": list(NEW_CALL)}).fetchall()
    known = [row for row in rows if row[3] is not None]
    if not known:
        return
    task, wasted, again, each_s, reason, misses = known[0]
    lost = wasted * each_s
    if not matters(facts, lost):
        return
    reasons = [reason] * bool(reason) + [f"{plural(again, 'of them', 'of them')} asked for again"] * bool(
        again
    )
    yield facts.finding(
        "cache_misses",
        lost,
        f"About {cost_text(facts, lost)} went to computing again what had been computed before, because "
        f"{task} missed the cache {wasted:,} times ({', '.join(reasons)}); try `flightlog cache "
        "explain` for the reasons.",
        {
            "function": task,
            "needless_misses": wasted,
            "asked_again": again,
            "misses": misses,
            "each_s": each_s,
            "reason": reason,
        },
        where=[row[0] for row in known[:3]],
        certainty="likely",
    )


_COST = """
WITH asked AS (
    SELECT task, result, task_id, in_ns(duration_s) AS spent, in_ns(saved_s) AS saved,
        in_ns(computed_s) AS computed,
        count(*) OVER (PARTITION BY task_id) AS beside
    FROM cache WHERE result IN ('hit', 'miss') AND duration_s IS NOT NULL
), alone AS (
    SELECT asked.task, avg(attempt_intervals.stopped - attempt_intervals.began) AS each_ns
    FROM asked JOIN attempt_intervals ON attempt_intervals.task_id = asked.task_id
        AND attempt_intervals.state = 'completed'
    WHERE asked.beside = 1 AND asked.result = 'miss' GROUP BY asked.task
), functions AS (
    SELECT task, count(*) AS lookups, count(*) FILTER (result = 'hit') AS hits, sum(spent) AS spent,
        coalesce(sum(saved) FILTER (result = 'hit'), 0) AS saved,
        count(saved) FILTER (result = 'hit') AS known, avg(saved) FILTER (result = 'hit') AS each_hit,
        avg(computed) AS each_miss
    FROM asked GROUP BY task
)
SELECT coalesce(sum(lookups), 0), coalesce(sum(hits), 0), coalesce(sum(spent), 0), coalesce(sum(saved), 0)
FROM functions LEFT JOIN alone USING (task)
WHERE known = hits AND spent > saved AND spent / lookups > coalesce(each_hit, each_miss, each_ns)
"""


def costly_cache(facts: FindingFacts) -> Iterable[Finding]:
    """Lookups that take longer than what a hit saves; where none hit, than computing after a miss. That of
    functions of which some hits do not know what they saved is not known.
    """
    if not facts.summary.cache.lookups:
        return
    lookups, hits, spent, saved = (int(one) for one in facts.tables.execute(_COST).fetchall()[0])
    lost = seconds(spent - saved)
    if not lookups or not matters(facts, lost):
        return
    yield facts.finding(
        "costly_cache",
        lost,
        f"{cost_text(facts, lost)} went to a cache that costs more than it saves, because "
        f"{plural(lookups, 'lookup')} took {format_duration(seconds(spent))} and "
        f"{plural(hits, 'hit')} saved {format_duration(seconds(saved))}; try computing again what is "
        "quickly computed, or a cache that is nearer.",
        {"lookups": lookups, "hits": hits, "lookup_s": seconds(spent), "saved_s": seconds(saved)},
    )


SYMPTOMS = (cache_misses, costly_cache)
