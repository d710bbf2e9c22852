"""Values that became NaN: the first of each series, metric of a span or of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import duckdb

LISTED = 20


class Nonfinite(Struct, frozen=True, kw_only=True):
    """One name whose values were NaN. Infinities are left out: they are often a bound that nobody has met
    yet.
    """

    name: str
    file: str
    event: str
    count: int
    first: str | None
    at: float | None
    step: int | None
    """Of the first one, in a series that has steps."""


def read_nonfinite(connection: duckdb.DuckDBPyConnection) -> list[Nonfinite]:
    """The earliest first, from `metrics`, `span_events` and `ended`."""
    found = [
        Nonfinite(name=name, file=file, event=event, count=count, first=first, at=at, step=step)
        for file, event, name, count, first, at, step in connection.execute(
            _FOUND, {"few": LISTED}
        ).fetchall()
    ]
    return sorted(found, key=lambda one: (one.at if one.at is not None else 0.0, one.name, one.file))


_FOUND = """
WITH marked AS (
    SELECT 'metrics.jsonl' AS file, 'metric' AS event, name, "timestamp" AS moment, step
    FROM metrics WHERE nonfinite = 'nan'
    UNION ALL
    SELECT 'spans.jsonl', 'span', unnest(json_keys(nonfinite)), "timestamp", NULL
    FROM span_events WHERE event = 'span' AND len(CAST(nonfinite AS VARCHAR)) > 2
        AND contains(CAST(nonfinite AS VARCHAR), '"nan"')
    UNION ALL
    SELECT 'tasks.jsonl', event, unnest(json_keys(nonfinite)), moment, NULL
    FROM ended WHERE len(CAST(nonfinite AS VARCHAR)) > 2 AND contains(CAST(nonfinite AS VARCHAR), '"nan"')
)
SELECT file, any_value(event), name, count(*), strftime(min(moment), '%Y-%m-%dT%H:%M:%S.%fZ'),
    epoch(min(moment)),
    arg_min(step, moment)
FROM marked GROUP BY file, name ORDER BY min(moment), name LIMIT $few
"""
