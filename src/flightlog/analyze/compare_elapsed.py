"""Times of tasks that include waiting, side by side: all that some tools record, so of adopted runs alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightlog.store.adopted import ELAPSED, Adopted
from flightlog.units import format_count, format_duration

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run

NAMED = 5
_ELAPSED = f"""
WITH times AS (
    SELECT run_id, task, TRY_CAST(json_extract_string(metrics, '$.{ELAPSED}') AS DOUBLE) AS elapsed_s
    FROM attempts WHERE state IN ('completed', 'failed') AND duration_s IS NULL
)
SELECT task, avg(elapsed_s) FILTER (side = 0) AS before, avg(elapsed_s) FILTER (side = 1) AS after
FROM times JOIN sides USING (run_id) WHERE isfinite(elapsed_s) AND elapsed_s < 9e9 GROUP BY task
HAVING before IS NOT NULL AND after IS NOT NULL ORDER BY sum(elapsed_s) DESC, task
"""  # noqa: S608 - the name is ours


def elapsed_notes(connection: duckdb.DuckDBPyConnection, runs: Sequence[Run]) -> list[str]:
    """How such times changed, a sentence a task name, the longest in all first; `sides` must be there.

    They are not judged: waiting depends on how many tasks there are. None where no run was adopted.
    """
    if not any(isinstance(run.info.adopted, Adopted) for run in runs):
        return []
    rows = connection.execute(_ELAPSED).fetchall()
    notes = [
        f"{task} took {format_duration(before)} → {format_duration(after)} on average with waiting; how "
        "long it executed is not recorded"
        for task, before, after in rows[:NAMED]
    ]
    if len(rows) > NAMED:
        notes.append(f"of {format_count(len(rows) - NAMED)} more names only times with waiting are recorded")
    return notes
