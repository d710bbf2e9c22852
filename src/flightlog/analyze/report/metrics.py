"""Distributions and metrics in SQL: select lists, and the statistics made of what they give.

Sums are taken in order of the values, with what rounding would lose: the same rows give the same figures,
however many threads read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from flightlog.core.stats import QUANTILES, Distribution, distribution_of, mean_of, place_of

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables

LARGEST = 1.7e308
"""Whole numbers in JSON have no end; floats have."""


def distribution_sql(column: str, where: str, name: str) -> str:
    """A select list of a column of seconds, for `distribution_from`."""
    return (
        f"count({column}) FILTER ({where}) AS {name}_count,"
        f" {total_sql(column, where)} AS {name}_total,"
        f" list({column} ORDER BY {column}) FILTER ({where} AND {column} IS NOT NULL) AS {name}"
    )


def total_sql(column: str, where: str = "true") -> str:
    """A select list: the sum of a column, null where it has no value; the same in any order of rows."""
    values = f"list({column} ORDER BY {column}) FILTER ({where} AND {column} IS NOT NULL)"
    return f"list_aggregate({values}, 'kahan_sum')"


def picked(name: str) -> str:
    """What is needed of the list that `distribution_sql` has made: for each end and quantile the value below
    it and the one above.
    """
    below = f"CAST(floor(q * (len({name}) - 1)) AS BIGINT) + 1"
    picks = (
        f"list_select({name}, list_transform({_PLACES}, lambda q: {place}))"
        for place in (below, f"least({below} + 1, len({name}))")
    )
    return f"[{', '.join(picks)}] AS {name}"


_PLACES = [0.0, *QUANTILES, 1.0]


def distribution_from(row: Mapping[str, Any], name: str) -> Distribution:
    """The distribution, of what `distribution_sql` and `picked` have found."""
    count = row[f"{name}_count"]
    if not count:
        return Distribution()
    [(low, *below, high), (_, *above, _)] = row[name]
    quantiles = [
        place_of(q, count).between(*pair)
        for q, pair in zip(QUANTILES, zip(below, above, strict=True), strict=True)
    ]
    return distribution_of(count, row[f"{name}_total"], low, high, quantiles)


class MetricStats(Struct, frozen=True, kw_only=True):
    """One metric over all its values; `last` is the latest by time."""

    count: int
    sum: float
    mean: float
    min: float
    max: float
    last: float


def metric_stats(count: int, total: float, low: float, high: float, last: float) -> MetricStats:
    """The statistics of at least one value."""
    mean = mean_of(count, total, low, high)
    return MetricStats(count=count, sum=total, mean=mean, min=low, max=high, last=last)


_NUMBER = """CASE WHEN json_type(value) IN ('UBIGINT', 'BIGINT', 'DOUBLE', 'HUGEINT', 'UHUGEINT')
    THEN TRY_CAST(CAST(value AS VARCHAR) AS DOUBLE) END"""

_VALUES = """
SELECT owner, name, moment, tie, place, {number} AS number FROM (
    SELECT owner, name, moment, tie, unnest(list) AS value, generate_subscripts(list, 1) AS place FROM (
        SELECT owner, name, moment, tie,
            CASE WHEN json_type(value) = 'ARRAY' THEN CAST(value AS JSON[]) ELSE [value] END AS list
        FROM (
            SELECT owner, moment, tie, unnest(json_keys(metrics)) AS name,
                unnest(json_extract(metrics, '$.*')) AS value
            FROM ({rows}) WHERE metrics IS NOT NULL AND metrics <> '{{}}'
        )
    )
)
"""
"""One row per value; a list holds several values of one metric, in order."""


def metrics_by_owner(tables: RunTables, rows: str) -> dict[str, dict[str, MetricStats]]:
    """The metrics of each owner, by name; values that are no numbers a float can hold are passed over.

    `rows` is a select statement of `owner`, `metrics`, `moment` and `tie`, which orders those of one moment.
    """
    values = _VALUES.format(number=_NUMBER, rows=rows)
    return statistics_of(tables, values)


def statistics_of(tables: RunTables, values: str) -> dict[str, dict[str, MetricStats]]:
    """Statistics of the numbers that a select statement gives: `owner`, `name`, `number`, and `moment`, `tie`
    and `place`, by which the last one is found.
    """
    rows = tables.execute(
        f"""
        SELECT owner, name, count(*), coalesce({total_sql("number")}, 'inf'), min(number), max(number),
            arg_max(number, row(coalesce(moment, {_NEVER}), tie, place, number))
        FROM ({values}) WHERE abs(number) <= {LARGEST} GROUP BY owner, name ORDER BY owner, name
        """  # noqa: S608 - ours
    ).fetchall()
    found: dict[str, dict[str, MetricStats]] = {}
    for owner, name, *numbers in rows:
        found.setdefault(owner, {})[name] = metric_stats(*numbers)
    return found


_NEVER = -(1 << 62)
