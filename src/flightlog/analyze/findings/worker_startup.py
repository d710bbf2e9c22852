"""Worker start-up: launching workers, and first tasks that had to warm up."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.findings.base import ENOUGH, Facts, Finding, cost_text, matters, plural, share_of
from flightlog.core.time import seconds
from flightlog.core.units import format_duration

_FIRST = """
WITH earliest AS (
    SELECT worker, min(began) AS began FROM attempt_intervals WHERE state = 'completed' AND worker IS NOT NULL
        GROUP BY worker
), first AS ( -- of several that began at that very moment one, and always the same
    SELECT task, stopped - began AS lasted FROM attempt_intervals JOIN earliest USING (worker, began)
        WHERE state = 'completed'
    QUALIFY row_number() OVER (PARTITION BY worker ORDER BY task_id, attempt) = 1
), usual AS (
    SELECT task, median(stopped - began) AS usual FROM attempt_intervals WHERE state = 'completed'
    GROUP BY task HAVING count(stopped - began) >= $enough
)
SELECT count(*), coalesce(sum(lasted - usual), 0) FROM first JOIN usual USING (task) WHERE lasted >= 2 * usual
"""


def cold_starts(facts: Facts) -> Iterable[Finding]:
    """Start-up of workers, and the time that first tasks of twice the usual length took beyond the median."""
    if facts.shares is None or facts.shares.basis != "workers":
        return
    start_up = facts.shares.whole.startup_s
    row = facts.connection.execute(_FIRST, {"enough": ENOUGH}).fetchone()
    slow, beyond = (int(row[0]), seconds(round(row[1]))) if row is not None else (0, 0.0)
    lost = start_up + beyond
    if not matters(facts, lost):
        return
    workers = facts.shares.workers
    each = f"each of {plural(workers, 'worker')} took {format_duration(start_up / workers)} to start"
    first = f"{plural(slow, 'first task')} took {format_duration(beyond)} longer than usual"
    reasons = [each] * bool(start_up) + [first] * bool(slow)
    yield Finding(
        kind="cold_starts",
        seconds=lost,
        share=share_of(facts, lost),
        sentence=(
            f"{cost_text(facts, lost)} went to worker start-up, because {' and '.join(reasons)}; "
            "try keeping workers for several runs, importing less when they start, or larger batches."
        ),
        evidence={
            "startup_s": start_up,
            "workers": workers,
            "slow_first_tasks": slow,
            "beyond_usual_s": beyond,
        },
        where=sorted(
            facts.shares.by_worker,
            key=lambda name: (-facts.shares.by_worker[name].startup_s, name),  # type: ignore[union-attr]
        )[:3],
    )
