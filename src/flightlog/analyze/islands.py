"""Intervals of a table, merged where they touch or overlap: what at least one of a group covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


def merge(connection: duckdb.DuckDBPyConnection, name: str, key: str, intervals: str) -> None:
    """Make the table `name` of `key`, `since` and `until`: the union of each key's intervals, in nanoseconds.

    `intervals` is a select statement with the same three columns, none of them null and `until` never before `since`.
    """
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE {name} AS
        SELECT {key}, min(since) AS since, max(until) AS until
        FROM (
            SELECT *, sum(CASE WHEN since > reached THEN 1 ELSE 0 END) OVER (
                PARTITION BY {key} ORDER BY since, until ROWS UNBOUNDED PRECEDING
            ) AS island
            FROM (
                SELECT *, max(until) OVER (
                    PARTITION BY {key} ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) AS reached
                FROM ({intervals})
            )
        )
        GROUP BY {key}, island
        """  # noqa: S608 - names and statements of ours
    )


def most_at_once(connection: duckdb.DuckDBPyConnection, intervals: str) -> int:
    """How many of these intervals run at once at most; 0 where there are none.

    `intervals` is a select statement of `since` and `until`. An empty interval counts for its moment; touching ones
    do not overlap.
    """
    row = connection.execute(
        f"""
        WITH intervals AS ({intervals}), steps AS (
            SELECT since AS moment, 1 AS step FROM intervals
            UNION ALL SELECT greatest(until, since + 1), -1 FROM intervals
        )
        SELECT max(running) FROM (
            SELECT sum(step) OVER (ORDER BY moment, step ROWS UNBOUNDED PRECEDING) AS running FROM steps
        )
        """  # noqa: S608 - a statement of ours
    ).fetchone()
    return int(row[0]) if row and row[0] is not None else 0
