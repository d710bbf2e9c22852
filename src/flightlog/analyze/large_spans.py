"""Where the time of very many spans went, from their columns: the same as `SpanTally` says of them one by
one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.analyze.distribution import Distribution
from flightlog.analyze.held import MACROS
from flightlog.analyze.islands import merge
from flightlog.analyze.large_figures import exact_total, ordered, picked, spread_of
from flightlog.analyze.large_metrics import metrics_by_owner
from flightlog.analyze.moments import seconds
from flightlog.analyze.spans import SpanNameTally, SpanSummary, listed_names

if TYPE_CHECKING:
    import duckdb

_TIMED = """
CREATE OR REPLACE TEMP TABLE timed AS
WITH times AS (
    SELECT name, span_id, parent_id, status, in_ns(duration_s) AS lasted,
        at_ns("timestamp") AS began, at_ns("timestamp") + in_ns(duration_s) AS stopped
    FROM spans_read
), inside AS (
    SELECT child.parent_id, greatest(child.began, parent.began) AS since,
        least(child.stopped, parent.stopped) AS until
    FROM times AS child JOIN times AS parent ON parent.span_id = child.parent_id
    WHERE child.parent_id <> $root AND child.stopped IS NOT NULL AND parent.stopped IS NOT NULL
        AND since < until
), covered AS (
    SELECT parent_id, sum(greatest(0, until - greatest(since, coalesce(reached, since)))) AS covered
    FROM (
        SELECT *, max(until) OVER (
            PARTITION BY parent_id ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached FROM inside
    )
    GROUP BY parent_id
)
SELECT name, span_id, times.parent_id, status, false AS "open", lasted,
    lasted - CAST(coalesce(covered.covered, 0) AS BIGINT) AS own, began, stopped
FROM times LEFT JOIN covered ON covered.parent_id = times.span_id
"""


def are_regular(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether each of `spans_read` has ended, and has an id of its own that is not its parent's."""
    [(odd, ids, lines)] = connection.execute(
        """
        SELECT count(*) FILTER (event <> 'span' OR coalesce(span_id, '') = '' OR span_id = parent_id),
            count(DISTINCT span_id), count(*)
        FROM spans_read
        """
    ).fetchall()
    return not odd and ids == lines


def read_spans(connection: duckdb.DuckDBPyConnection, root: str) -> None:
    """Make the table `timed` of `spans_read`; `root` is the id of the run itself, inside which all spans
    are.
    """
    connection.execute(MACROS)
    connection.execute(_TIMED, {"root": root})


class _CountedName(SpanNameTally):
    """The tally of a name whose durations were counted in their table."""

    durations_spread = Distribution()

    def spread(self) -> Distribution:
        """Of all durations."""
        return self.durations_spread


def span_summary(connection: duckdb.DuckDBPyConnection) -> SpanSummary:
    """All spans, from `timed` and `spans_read`."""
    names: dict[str, _CountedName] = {}
    answer = connection.execute(
        """
        SELECT name, count(*), count(*) FILTER (status = 'error'), coalesce(sum(own), 0) FROM timed
            GROUP BY name
        """
    )
    for name, count, errors, own in answer.fetchall():
        tally = names[name] = _CountedName()
        tally.count, tally.errors, tally.own = count, errors, int(own)
    answer = connection.execute(
        f"""
        SELECT name, {picked("durations")}, * EXCLUDE (name, durations) FROM (
            SELECT name, {ordered("duration_s", "true")} AS durations, {exact_total("duration_s", "true")}
            FROM spans_read WHERE duration_s IS NOT NULL GROUP BY name
        )
        """  # noqa: S608 - constants
    )
    while row := answer.fetchone():
        names[row[0]].durations_spread = spread_of(*row[1:])
    measured = metrics_by_owner(
        connection, 'SELECT name AS owner, metrics, "timestamp", writer, seq FROM spans_read'
    )
    for name, metrics in measured.items():
        names[name].metrics = metrics
    merge(
        connection,
        "open_by_name",
        "name",
        "SELECT name, began AS since, stopped AS until FROM timed WHERE began IS NOT NULL AND stopped IS "
        "NOT NULL",
    )
    walls = connection.execute("SELECT name, sum(until - since) FROM open_by_name GROUP BY name").fetchall()
    wall = {name: int(length) for name, length in walls}
    merge(connection, "open_at_all", "all_of_them", "SELECT 0 AS all_of_them, since, until FROM open_by_name")
    [(at_all,)] = connection.execute("SELECT coalesce(sum(until - since), 0) FROM open_at_all").fetchall()
    return SpanSummary(
        count=sum(name.count for name in names.values()),
        errors=sum(name.errors for name in names.values()),
        open_in_flight=0,
        wall_s=seconds(int(at_all)),
        busy_s=seconds(sum(name.own for name in names.values())),
        names=len(names),
        by_name={name: names[name].summary(wall.get(name, 0)) for name in listed_names(names)},
        in_flight=[],
    )
