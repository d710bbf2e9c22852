"""The metrics in a column of JSON objects, by what they belong to: as `MetricTally` takes them one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.analyze.large_figures import exact_total, total_of
from flightlog.analyze.metrics import LARGEST, MetricTally, metric_stats

if TYPE_CHECKING:
    import duckdb

_VALUES = """
CREATE OR REPLACE TEMP TABLE metric_values AS
SELECT owner, name, "timestamp", writer, seq, 0 AS place,
    CASE WHEN kind IN ('UBIGINT', 'BIGINT', 'DOUBLE', 'HUGEINT', 'UHUGEINT')
        THEN TRY_CAST(CAST(value AS VARCHAR) AS DOUBLE) END AS number,
    CASE WHEN kind = 'ARRAY' THEN CAST(value AS JSON[]) END AS several
FROM (
    SELECT *, json_type(value) AS kind FROM (
        SELECT owner, "timestamp", writer, seq, unnest(json_keys(metrics)) AS name,
            unnest(json_extract(metrics, '$.*')) AS value
        FROM ({rows}) WHERE metrics IS NOT NULL AND metrics <> '{{}}'
    )
)
WHERE number IS NOT NULL OR several IS NOT NULL
"""
"""One row a value, or a list of them: a whole number, or one with a fraction."""

_SEVERAL = """
INSERT INTO metric_values
SELECT owner, name, "timestamp", writer, seq, place,
    CASE WHEN json_type(value) IN ('UBIGINT', 'BIGINT', 'DOUBLE', 'HUGEINT', 'UHUGEINT')
        THEN TRY_CAST(CAST(value AS VARCHAR) AS DOUBLE) END AS number,
    NULL AS several
FROM (
    SELECT owner, name, "timestamp", writer, seq, unnest(several) AS value,
        generate_subscripts(several, 1) - 1 AS place
    FROM metric_values WHERE several IS NOT NULL
)
"""

_LAST = """
WITH latest AS (
    SELECT owner, name, max("timestamp") AS "timestamp" FROM metric_values WHERE {counts} GROUP BY owner, name
)
SELECT owner, name, number FROM metric_values SEMI JOIN latest USING (owner, name, "timestamp") WHERE {counts}
QUALIFY row_number() OVER (
    PARTITION BY owner, name ORDER BY writer DESC, seq DESC, place DESC, number DESC
) = 1
"""


def metrics_by_owner(connection: duckdb.DuckDBPyConnection, rows: str) -> dict[str, MetricTally]:
    """The metrics of each owner.

    `rows` is a select statement of `owner`, `metrics`, `timestamp`, `writer` and `seq`, one row a line.
    """
    counts = f"abs(number) <= {LARGEST}"
    connection.execute(_VALUES.format(rows=rows))
    connection.execute(_SEVERAL)
    last = {
        (owner, name): number
        for owner, name, number in connection.execute(_LAST.format(counts=counts)).fetchall()
    }
    found: dict[str, MetricTally] = {}
    answer = connection.execute(
        f"""
        SELECT owner, name, min(number), max(number), {exact_total("number", counts)}
        FROM metric_values WHERE {counts} GROUP BY owner, name
        """  # noqa: S608 - ours
    )
    while row := answer.fetchone():
        owner, name, low, high, count, *total = row
        stats = metric_stats(count, total_of(*total), low, high, last[owner, name])
        found.setdefault(owner, MetricTally()).put(name, stats)
    connection.execute("DROP TABLE metric_values")
    return found
