"""The figures of a run that was too large to be summarized when it closed, from its events."""

from __future__ import annotations

from pathlib import Path

from flightlog.analyze.cost_used import run_cost
from flightlog.store.figures import Figures, TaskFigures
from flightlog.store.run import Run
from flightlog.store.tables import open_tables

_NAMES = """
WITH ended AS (
  SELECT task, count(*) FILTER (retried) AS retried,
    avg(duration_s) FILTER (state = 'completed') AS mean_s,
    quantile_cont(duration_s, [0.5, 0.95]) FILTER (state = 'completed') AS quantiles,
    max(duration_s) FILTER (state = 'completed') AS max_s,
    sum(duration_s) FILTER (state = 'completed') AS total_s,
    sum(cpu_s) AS cpu_s, max(peak_rss_bytes) AS peak_rss_bytes
  FROM attempts GROUP BY task
), whole AS (
  SELECT task, count(submitted_at) AS submitted, count(*) FILTER (state = 'completed') AS completed,
    count(*) FILTER (state = 'failed') AS failed
  FROM tasks GROUP BY task
)
SELECT task, submitted, completed, failed, retried, mean_s, quantiles[1], quantiles[2], max_s, total_s, cpu_s,
  peak_rss_bytes
FROM whole JOIN ended USING (task)
"""
_LOOKUPS = "SELECT count(*) FILTER (result != 'bypass'), count(*) FILTER (result = 'hit') FROM cache"
_MEMORY = "SELECT max(greatest(rss_bytes, peak_rss_bytes)) FROM resources WHERE scope = 'worker'"


def figures_of_events(path: Path) -> Figures | None:
    """The figures that the summary of this run would hold; None where its files cannot be read."""
    run = Run(path)
    try:
        spent = run_cost(run)
        with open_tables([run], only={"attempts", "tasks", "cache", "resources"}) as tables:
            rows = tables.execute(_NAMES).fetchall()
            lookups, hits = tables.execute(_LOOKUPS).fetchall()[0]
            [[memory]] = tables.execute(_MEMORY).fetchall()
    except OSError:
        return None
    names = {row[0]: _task(*row[1:]) for row in rows}
    return Figures(
        run_id=run.run_id,
        submitted=sum(name.submitted for name in names.values()),
        completed=sum(name.completed for name in names.values()),
        failed=sum(name.failed for name in names.values()),
        retried=sum(name.retried for name in names.values()),
        cache_lookups=lookups,
        cache_hits=hits,
        peak_memory_bytes=memory,
        cost=spent.total,
        currency=spent.currency,
        names=len(names),
        tasks=names,
    )


def _task(
    submitted: int,
    completed: int,
    failed: int,
    retried: int,
    mean_s: float | None,
    p50_s: float | None,
    p95_s: float | None,
    max_s: float | None,
    total_s: float | None,
    cpu_s: float | None,
    peak: int | None,
) -> TaskFigures:
    return TaskFigures(
        submitted=submitted,
        completed=completed,
        failed=failed,
        retried=retried,
        mean_s=mean_s,
        p50_s=p50_s,
        p95_s=p95_s,
        max_s=max_s,
        total_s=total_s,
        cpu_s=cpu_s,
        peak_rss_bytes=peak,
    )
