"""Distributions and metrics in SQL: select lists, and the statistics made of what they give.

Sums are sums of whole numbers: the same rows give the same figures, in whatever order they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from flightlog.analyze.limits import ReportLimits
from flightlog.core.stats import QUANTILES, Distribution, distribution_of, exact_sum, mean_of
from flightlog.core.time import SECOND

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables


def distribution_sql(column: str, where: str, name: str) -> str:
    """A select list of a column of seconds, for `distribution_from`."""
    chosen = f"FILTER ({where})"
    return (
        f"count({column}) {chosen} AS {name}_count, {total_sql(column, where)} AS {name}_total,"
        f" min({column}) {chosen} AS {name}_min, max({column}) {chosen} AS {name}_max,"
        f" quantile_cont({column}, {list(QUANTILES)}) {chosen} AS {name}_quantiles"
    )


def total_sql(column: str, where: str = "true") -> str:
    """A select list: the sum of a column of seconds to the nanosecond, null where it has no value."""
    most = ReportLimits.max_summed_s
    whole = f"CAST(round_even(greatest(least({column}, {most}), -{most}) * 1e9, 0) AS HUGEINT)"
    return f"sum({whole}) FILTER ({where} AND {column} IS NOT NULL) / {SECOND}"


def distribution_from(row: Mapping[str, Any], name: str) -> Distribution:
    """The distribution, of what `distribution_sql` has found."""
    count, total, low, high, quantiles = (
        row[f"{name}_{part}"] for part in ("count", "total", "min", "max", "quantiles")
    )
    if not count:
        return Distribution()
    return distribution_of(count, total, low, high, [min(max(one, low), high) for one in quantiles])


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


class SeriesStats(Struct, frozen=True, kw_only=True):
    """One series of a run. Values that were NaN or infinite are counted apart; where all were, nothing else
    is known of it.
    """

    count: int
    """Values that are numbers."""
    sum: float
    mean: float | None
    min: float | None
    max: float | None
    last: float | None
    """The latest by time; null where that was NaN or infinite."""
    nonfinite: int = 0
    """Values that were NaN or infinite."""
    last_nonfinite: str | None = None
    """`nan`, `inf` or `-inf` where the latest was that."""


def series_stats(numbers: MetricStats | None, nonfinite: int, last_nonfinite: str | None) -> SeriesStats:
    """The statistics of a series, of those of its numbers."""
    known: dict[str, Any] = dict.fromkeys(("mean", "min", "max", "last")) | {"count": 0, "sum": 0.0}
    known |= {} if numbers is None else asdict(numbers)
    if last_nonfinite is not None:
        known["last"] = None
    return SeriesStats(**known, nonfinite=nonfinite, last_nonfinite=last_nonfinite)


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
        SELECT owner, name, sum(count), list(CAST(total AS DOUBLE) * unit), min(low), max(high),
            arg_max(latest.number, latest)
        FROM (
            SELECT owner, name, exponent, pow(2.0, exponent) AS unit, count(*) AS count,
                sum(CAST(number / pow(2.0, exponent) AS HUGEINT)) AS total,
                min(number) AS low, max(number) AS high,
                max({{moment: coalesce(moment, {_NEVER}), tie: tie, place: place, number: number}}) AS latest
            FROM (SELECT *, {_EXPONENT} AS exponent FROM ({values})
                WHERE abs(number) <= {ReportLimits.max_metric})
            GROUP BY owner, name, exponent
        ) GROUP BY owner, name ORDER BY owner, name
        """  # noqa: S608 - ours
    ).fetchall()
    found: dict[str, dict[str, MetricStats]] = {}
    for owner, name, count, parts, *rest in rows:
        found.setdefault(owner, {})[name] = metric_stats(int(count), exact_sum(parts), *rest)
    return found


_EXPONENT = "greatest(32 * floor(log2(nullif(abs(number), 0)) / 32) - 52, -948)"
"""By which power of two a number becomes a whole one, within the 128 bits that sums of them are taken in: the
same for numbers that differ by little. Digits of numbers below 1e-270 are lost."""


_NEVER = -(1 << 62)
