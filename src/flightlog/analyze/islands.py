"""Intervals of a table, merged where they touch or overlap: what at least one of a group covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


def merge(connection: duckdb.DuckDBPyConnection, name: str, key: str, intervals: str) -> None:
    """Make the table `name` of `key`, `since`, `until` and `before`: the union of each key's intervals, in
    nanoseconds.

    `before` is the time covered before each piece. `intervals` is a select statement of the first three
    columns, none of them null and `until` never before `since`.
    """
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE {name} AS
        WITH ordered AS (
            SELECT {key}, since, until, max(until) OVER (
                PARTITION BY {key} ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS reached FROM ({intervals})
        ), begun AS ( -- what had been reached when the next piece began is where this one ends
            SELECT {key}, since, lead(reached) OVER (PARTITION BY {key} ORDER BY since) AS until
            FROM ordered WHERE reached IS NULL OR since > reached
        ), merged AS (
            SELECT begun.{key}, begun.since, coalesce(begun.until, last.until) AS until
            FROM begun JOIN (SELECT {key}, max(until) AS until FROM ordered GROUP BY {key}) AS last
                USING ({key})
        )
        SELECT *, coalesce(sum(until - since) OVER (
            PARTITION BY {key} ORDER BY since ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0)::BIGINT AS before FROM merged
        """  # noqa: S608 - names and statements of ours
    )


def uncovered(outer: str, inner: str, key: str) -> str:
    """A select statement of `name`, `since` and `until`: what is left of the outer intervals without the
    inner ones of their key.

    `outer` is a select statement of `key`, which no two of them share, `name`, `since` and `until`; `inner`
    one of `key`, `since` and `until`. None of these is null, and `until` never before `since`.
    """
    return f"""
        WITH outers AS ({outer}), steps AS ( -- the last gap ends where the outer interval ends
            {inner} UNION ALL SELECT {key}, until, until FROM outers
        ), gaps AS (
            SELECT outers.name, least(steps.since, outers.until) AS until,
                greatest(outers.since, max(steps.until) OVER (
                PARTITION BY {key} ORDER BY steps.since, steps.until ROWS BETWEEN UNBOUNDED PRECEDING
                    AND 1 PRECEDING
            )) AS since
            FROM steps JOIN outers USING ({key})
        )
        SELECT name, since, until FROM gaps WHERE since < until
    """  # noqa: S608 - names and statements of ours


def most_at_once(connection: duckdb.DuckDBPyConnection, intervals: str) -> tuple[int, int] | None:
    """How many of these intervals run at once at most, and when first; None where there are none.

    `intervals` is a select statement of `since` and `until`. An empty interval counts for its moment;
    touching ones do not overlap.
    """
    row = connection.execute(
        f"""
        WITH intervals AS ({intervals}), steps AS (
            SELECT since AS moment, 1 AS step FROM intervals
            UNION ALL SELECT greatest(until, since + 1), -1 FROM intervals
        ), counted AS (
            SELECT moment, sum(step) OVER (ORDER BY moment, step ROWS UNBOUNDED PRECEDING) AS running
                FROM steps
        )
        SELECT max(running), min(moment) FILTER (running = (SELECT max(running) FROM counted)) FROM counted
        """  # noqa: S608 - a statement of ours
    ).fetchone()
    return None if row is None or row[0] is None else (int(row[0]), int(row[1]))
