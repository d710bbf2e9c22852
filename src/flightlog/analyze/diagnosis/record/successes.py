"""What attempts of the same task needed that succeeded."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import duckdb


class Success(Struct, frozen=True, kw_only=True):
    """Of one task name."""

    completed: int = 0
    peaks_bytes: tuple[int, ...] = ()
    """The largest peaks, the largest first."""
    longest_s: float | None = None


def read_successes(connection: duckdb.DuckDBPyConnection, tasks: Collection[str]) -> dict[str, Success]:
    """By task name, from `ended`; a task that never completed has none."""
    rows = connection.execute(_SUCCESSES, {"tasks": list(tasks)}).fetchall()
    return {
        task: Success(completed=number, peaks_bytes=tuple(peaks or ()), longest_s=longest)
        for task, number, peaks, longest in rows
    }


_SUCCESSES = """
SELECT task, count(*), max(peak_rss_bytes, 3), max(duration_s) FROM ended
WHERE event = 'task_completed' AND task IN (SELECT unnest($tasks::VARCHAR[])) GROUP BY task
"""
