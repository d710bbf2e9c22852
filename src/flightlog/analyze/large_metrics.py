"""The metrics in a column of JSON objects, by what they belong to: as `MetricTally` takes them one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.analyze.metrics import LARGEST, MetricTally

if TYPE_CHECKING:
    import duckdb

_MEASURED = """
CREATE OR REPLACE TEMP TABLE metric_values AS
WITH entries AS (
    SELECT owner, "timestamp", writer, seq, unnest(map_entries(from_json(metrics, '"MAP(VARCHAR, JSON)"'))) AS entry
    FROM ({rows}) WHERE metrics IS NOT NULL AND metrics <> '{{}}'
), single AS (
    SELECT owner, "timestamp", writer, seq, entry.key AS name, entry.value AS value, 0 AS place
    FROM entries WHERE json_type(entry.value) <> 'ARRAY'
    UNION ALL
    SELECT owner, "timestamp", writer, seq, name, value, place FROM (
        SELECT owner, "timestamp", writer, seq, entry.key AS name, unnest(CAST(entry.value AS JSON[])) AS value,
            generate_subscripts(CAST(entry.value AS JSON[]), 1) - 1 AS place
        FROM entries WHERE json_type(entry.value) = 'ARRAY'
    )
)
SELECT owner, name, TRY_CAST(CAST(value AS VARCHAR) AS DOUBLE) AS number, "timestamp", writer, seq, place
FROM single WHERE json_type(value) IN ('UBIGINT', 'BIGINT', 'DOUBLE', 'HUGEINT', 'UHUGEINT')
    AND abs(number) <= {largest}
"""

_LAST = """
WITH latest AS (SELECT owner, name, max("timestamp") AS "timestamp" FROM metric_values GROUP BY owner, name)
SELECT owner, name, number FROM metric_values SEMI JOIN latest USING (owner, name, "timestamp")
QUALIFY row_number() OVER (
    PARTITION BY owner, name ORDER BY writer DESC, seq DESC, place DESC, number DESC
) = 1
"""


def metrics_by_owner(connection: duckdb.DuckDBPyConnection, rows: str) -> dict[str, MetricTally]:
    """The metrics of each owner.

    `rows` is a select statement of `owner`, `metrics`, `timestamp`, `writer` and `seq`, one row a line.
    """
    connection.execute(_MEASURED.format(rows=rows, largest=LARGEST))
    last = {(owner, name): number for owner, name, number in connection.execute(_LAST).fetchall()}
    found: dict[str, MetricTally] = {}
    answer = connection.execute("SELECT owner, name, list(number) FROM metric_values GROUP BY owner, name")
    while row := answer.fetchone():
        owner, name, values = row
        found.setdefault(owner, MetricTally()).put(name, values, last[owner, name])
    connection.execute("DROP TABLE metric_values")
    return found
