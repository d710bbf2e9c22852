"""Lines over time or steps: concurrency, CPU, memory and GPUs by host and worker, device memory by rank,
cache lookups, metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from flightlog.analyze.charts.layout import TimeWindow
from flightlog.analyze.charts.results import Chart, ChartSeries, Curve, Curves, Unit
from flightlog.analyze.limits import ChartLimits, ReportLimits
from flightlog.analyze.report.tasks import work_until
from flightlog.analyze.tallies import by_two_keys, grouped
from flightlog.core.text import cut
from flightlog.core.time import SECOND
from flightlog.core.units import format_duration

if TYPE_CHECKING:
    from flightlog.store.tables.connection import Executes
    from flightlog.store.tables.run_tables import RunTables


def concurrency_chart(
    tables: Executes,
    frame: TimeWindow,
    lines: Mapping[str, str],
    *,
    points: int,
    digits: int = 9,
    parameters: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> Chart | None:
    """How many intervals of each line there are at once: means over stretches of time, at the middle of each.

    A line is a select statement of `since` and `until`, nanoseconds since 1970; one of which nothing lies in
    the frame is left out. None where nothing is left.
    """
    stretches = frame.stretches(points)
    bounds, at = stretches.bounds(), stretches.middles_s()
    inside = [
        f"""
        SELECT least(greatest(since - {frame.start}, 0), {frame.length}) AS since,
            least(greatest(until - {frame.start}, 0), {frame.length}) AS until
        FROM ({line}) WHERE until > {frame.start} AND since < {frame.until}
        """  # noqa: S608 - numbers, and statements of ours
        for line in lines.values()
    ]
    if not lines:
        return None
    series = []
    found = work_until(tables, inside, bounds, f"moment // {stretches.width}", parameters)
    for label, done in zip(lines, found, strict=True):
        means = [
            round((after - before) / (until - since), digits)
            for (before, after), (since, until) in zip(pairwise(done), pairwise(bounds), strict=True)
        ]
        if any(means):
            series.append(ChartSeries(label=label, at_s=at, value=[*means]))
    return frame.chart("count", series, notes)


class ChartLine(NamedTuple):
    """What is drawn of a table of samples by stretch: columns of it, or expressions over them."""

    table: str
    value: str
    where: str
    kind: str
    """What the value is of the samples that fall on one point: `mean` or `largest`."""
    rank: str
    """An aggregate: the lines for which it is the largest are drawn."""
    limit: str = "NULL"
    """An aggregate: what the value cannot exceed."""


def inside(frame: TimeWindow, moment: str) -> str:
    """SQL: when something was sampled, nanoseconds after the start and none outside; null where it lies far
    outside.
    """
    near = round(ChartLimits.edge_tolerance_s * SECOND)
    return (
        f"CASE WHEN {moment} BETWEEN {frame.start - near} AND {frame.until + near} "
        f"THEN greatest(least({moment}, {frame.until}), {frame.start}) - {frame.start} END"
    )


def chart(
    tables: RunTables, frame: TimeWindow, unit: Unit, line: ChartLine, notes: Sequence[str] = ()
) -> Chart | None:
    """The lines of a table that has `label`, `moment` and `samples`; None where nothing is known of any."""
    known = f"{line.where} AND {line.value} IS NOT NULL"
    rows = tables.execute(
        f"""
        SELECT label, "limit", moment, {line.value}, samples, lines FROM {line.table} JOIN (
            SELECT label, {line.rank} AS rank, {line.limit} AS "limit", count(*) OVER () AS lines
            FROM {line.table} WHERE {known} GROUP BY label
            ORDER BY rank DESC NULLS LAST, label LIMIT {ChartLimits.max_lines}
        ) USING (label)
        WHERE {known} ORDER BY rank DESC NULLS LAST, label, moment
        """  # noqa: S608 - statements of ours
    ).fetchall()
    if not rows:
        return None
    lines = rows[0][-1]
    found: dict[str, tuple[float | None, list[tuple[float, float | None]]]] = {}
    for label, limit, at, value, *_ in rows:
        found.setdefault(label, (limit, []))[1].append((at / SECOND, _number(value)))
    said = list(notes)
    if any(samples > 1 for *_, samples, _ in rows):
        within = format_duration(frame.stretches(ChartLimits.max_line_points).width / SECOND)
        said.append(f"Each point is the {line.kind} of the samples within {within}.")
    if all(len(known) == 1 for _, known in found.values()):
        said.append("There is but one point of each, and no line.")
    if lines > ChartLimits.max_lines:
        said.append(f"The {ChartLimits.max_lines} largest of {lines:,} are drawn.")
    series = [
        ChartSeries(
            label=cut(label, ChartLimits.max_name_characters),
            at_s=[at for at, _ in points],
            value=[value for _, value in points],
            limit=_number(limit),
        )
        for label, (limit, known) in found.items()
        if (points := with_gaps(known))
    ]
    return frame.chart(unit, series, said)


def with_gaps(points: Sequence[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """The points, with one of no value in the middle of each time for which nothing is known, but for short
    ones.
    """
    steps = [later - earlier for (earlier, _), (later, _) in pairwise(points)]
    if not steps:
        return list(points)
    longest = ChartLimits.gap_of_median_steps * median(steps)
    found = list(points[:1])
    for step, (at, value) in zip(steps, points[1:], strict=True):
        if step > longest and found[-1][1] is not None:
            found.append((at - step / 2, None))
        found.append((at, value))
    return found


def _number(value: float | None) -> float | None:
    """With as many digits as mean something: in which order samples are added up shows in the last ones."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.12g}")


_SAMPLED = """
CREATE OR REPLACE TEMP TABLE sampled AS
WITH samples AS (
    SELECT scope, coalesce(host, 'unknown host') AS host, worker, pid, gpu_index, gpu_uuid, gpu_mig,
        {at} AS moment,
        CASE WHEN interval_s > 0 AND isfinite(interval_s) THEN interval_s ELSE 1e-3 END AS weight,
        CASE WHEN isfinite(cpu_cores) THEN cpu_cores END AS cpu_cores,
        CASE WHEN isfinite(cpu_percent) THEN cpu_percent END AS cpu_percent,
        CASE WHEN isfinite(gpu_percent) THEN gpu_percent END AS gpu_percent,
        rss_bytes, memory_used_bytes, memory_total_bytes, gpu_memory_used_bytes, gpu_memory_total_bytes
    FROM resources WHERE event = 'resource_sample' AND scope IN ('node', 'cgroup', 'worker', 'gpu')
)
SELECT scope,
    CASE scope WHEN 'node' THEN host WHEN 'cgroup' THEN host || ', container'
        WHEN 'worker' THEN coalesce(worker, host || ', process ' || coalesce(pid::VARCHAR, 'unknown'))
            || CASE WHEN worker IN (SELECT worker FROM places) THEN '' ELSE ' and its processes' END
        ELSE host || ', GPU ' || coalesce(gpu_index::VARCHAR, gpu_uuid, 'unknown') || coalesce(', ' ||
            gpu_mig, '')
    END AS label,
    moment // {width} AS stretch, avg(moment) AS moment, count(*) AS samples,
    sum(cpu_cores * weight) / sum(CASE WHEN cpu_cores IS NOT NULL THEN weight END) AS cores,
    sum(cpu_percent * weight) / sum(CASE WHEN cpu_percent IS NOT NULL THEN weight END) AS "percent",
    sum(gpu_percent * weight) / sum(CASE WHEN gpu_percent IS NOT NULL THEN weight END) AS gpu_percent,
    max(rss_bytes) AS rss, max(memory_used_bytes) AS used, max(memory_total_bytes) AS total,
    max(gpu_memory_used_bytes) AS gpu_used, max(gpu_memory_total_bytes) AS gpu_total
FROM samples GROUP BY ALL
"""
"""Means of rates, each sample weighed by the time it covers, and the largest of sizes."""

_WORKER, _NODE, _GPU = (f"scope = '{scope}' AND stretch IS NOT NULL" for scope in ("worker", "node", "gpu"))
_NODE_OR_LIMITED = (
    "scope IN ('node', 'cgroup') AND (scope = 'node' OR total IS NOT NULL) AND stretch IS NOT NULL"
)
_USE: dict[str, tuple[Unit, ChartLine]] = {
    "worker_cpu": ("cores", ChartLine("sampled", "cores", _WORKER, "mean", "avg(cores)")),
    "worker_memory": ("bytes", ChartLine("sampled", "rss", _WORKER, "largest", "max(rss)")),
    "host_cpu": ("percent", ChartLine("sampled", '"percent"', _NODE, "mean", 'avg("percent")', "100")),
    "host_memory": (
        "bytes",
        ChartLine("sampled", "used", _NODE_OR_LIMITED, "largest", "max(used)", "max(total)"),
    ),
    "device_memory": (
        "bytes",
        ChartLine("sampled", "gpu_used", _GPU, "largest", "max(gpu_used)", "max(gpu_total)"),
    ),
    "device_use": ("percent", ChartLine("sampled", "gpu_percent", _GPU, "mean", "avg(gpu_percent)", "100")),
}


def resource_use(tables: RunTables, frame: TimeWindow) -> dict[str, Chart | None]:
    """What the samples say, by fields of `RunCharts`; the stream is read once. Names that are not in `places`
    are of the run's own processes.
    """
    width = frame.stretches(ChartLimits.max_line_points).width
    tables.execute(_SAMPLED.format(at=inside(frame, "at_ns(timestamp)"), width=width))
    astray = tables.scalar("SELECT coalesce(sum(samples), 0)::BIGINT FROM sampled WHERE stretch IS NULL")
    beside = [f"{astray:,} samples were taken outside of the run's time, by their clocks."] if astray else []
    return {name: chart(tables, frame, unit, line, beside) for name, (unit, line) in _USE.items()}


_TRACKED = """
CREATE OR REPLACE TEMP TABLE tracked AS
SELECT CASE WHEN ranks > 1 THEN 'rank ' || rank ELSE coalesce(host, 'unknown host') || ', device ' ||
    device_id END
        || CASE WHEN ranks > 1 AND devices > ranks THEN ', device ' || device_id ELSE '' END AS label,
    moment // {width} AS stretch, avg(moment) AS moment, count(*) AS samples,
        max(coalesce(allocated, used)) AS bytes, max(total) AS total
FROM (
    SELECT coalesce(rank, 0) AS rank, host, coalesce(device_id, 0) AS device_id, {at} AS moment,
        allocator_allocated_bytes AS allocated, device_used_bytes AS used, device_total_bytes AS total
    FROM devices WHERE timestamp_ns IS NOT NULL
), (
    SELECT count(DISTINCT coalesce(rank, 0)) AS ranks, count(DISTINCT (coalesce(rank, 0), coalesce(device_id,
        0))) AS devices
    FROM devices WHERE timestamp_ns IS NOT NULL
)
WHERE moment IS NOT NULL GROUP BY ALL
"""
_DEVICE_MEMORY = ChartLine("tracked", "bytes", "true", "largest", "max(bytes)", "max(total)")


def device_memory(tables: RunTables, frame: TimeWindow) -> Chart | None:
    """Memory allocated by the frameworks, by rank, or by device where there is one rank; None
    without any.
    """
    width = frame.stretches(ChartLimits.max_line_points).width
    tables.execute(_TRACKED.format(at=inside(frame, "timestamp_ns"), width=width))
    return chart(tables, frame, "bytes", _DEVICE_MEMORY, ["Memory that the framework had handed out."])


_LABELS = {"hit": "hits", "miss": "misses", "bypass": "bypassed"}


def lookups(tables: RunTables, frame: TimeWindow) -> Chart | None:
    """How many lookups hit, missed or were bypassed in each stretch of time, at its middle; None where there
    was none.
    """
    stretches = frame.stretches(ChartLimits.max_lookup_intervals)
    statement = f"""
        SELECT result, CASE WHEN moment IS NOT NULL THEN least(moment // {stretches.width},
            {stretches.number - 1}) END AS stretch, count(*)
        FROM (SELECT result, {inside(frame, "at_ns(timestamp)")} AS moment FROM cache
            WHERE event = 'cache_lookup') GROUP BY ALL
    """  # noqa: S608 - numbers
    counts = by_two_keys(tables.rows(statement))
    astray = sum(by_stretch.pop(None, 0) for by_stretch in counts.values())
    known = {result: counts[result] for result in _LABELS if result in counts}
    if not known and not astray:
        return None
    notes = [f"Lookups within {format_duration(stretches.width / SECOND)} each."]
    if astray:
        notes.append(f"{astray:,} lookups were outside of the run's time, by their clocks.")
    at, numbers = stretches.middles_s(), range(stretches.number)
    series = [
        ChartSeries(label=_LABELS[result], at_s=at, value=[float(counts.get(n, 0)) for n in numbers])
        for result, counts in known.items()
    ]
    return frame.chart("count", series, notes)


_VALUES = f"""
CREATE OR REPLACE TEMP VIEW metric_points AS
SELECT name, step::DOUBLE AS step, {{at}} / {SECOND}::DOUBLE AS at_s, CASE
    WHEN abs(value) <= {ReportLimits.max_metric} THEN value END AS value
FROM metrics WHERE event = 'metric' AND name IS NOT NULL
"""  # noqa: S608 - numbers
_NAMES = """
CREATE OR REPLACE TEMP TABLE metric_names AS
SELECT *, count(*) OVER () AS names, count(*) FILTER (known = 0) OVER () AS unknown,
    count(*) FILTER (known = 1 OR known > 1 AND NOT coalesce(low < high, false)) OVER () AS alone,
        sum("values" - placed) OVER () AS astray,
FROM (
    SELECT name, count(*) AS "values", count(value) AS known,
        count(step) = count(*) AND min(step) < max(step) AS stepped, CASE WHEN stepped THEN count(step)
            ELSE count(at_s) END AS placed,
        CASE WHEN stepped THEN min(step) ELSE min(at_s) END AS low, CASE WHEN stepped THEN max(step)
            ELSE max(at_s) END AS high,
    FROM metric_points GROUP BY name
) ORDER BY known > 1 DESC, "values" DESC, name LIMIT $most
"""
_POINTS = """
SELECT name, avg(x), avg(value), min(value), max(value), count(*), count(value), min(x) FILTER (value IS NULL)
FROM (
    SELECT name, value, low, high, "values", CASE WHEN stepped THEN step ELSE at_s END AS x
    FROM metric_points JOIN metric_names USING (name) WHERE known > 1 AND low < high
) WHERE x IS NOT NULL
-- the width of a stretch is never 0, and no difference of two numbers is beyond what a number can be
GROUP BY name, CASE WHEN "values" <= $points THEN x ELSE floor((x / 2 - low / 2) / ((high / 2 - low / 2) /
    $points)) END
ORDER BY name, avg(x)
"""


class _LinePoint(NamedTuple):
    """What falls on one point of a curve."""

    name: str
    at: float
    mean: float | None
    least: float | None
    most: float | None
    values: int
    known: int
    lost: float | None
    """Where the first value is that is no number."""


def curves(
    tables: RunTables,
    frame: TimeWindow,
    *,
    most: int = ChartLimits.max_metrics,
    points: int = ChartLimits.max_metric_points,
) -> Curves | None:
    """The metrics of the run, those with the most values first; None where none was recorded.

    A curve goes over the steps that its values were given, over the time of the run where they were given
    none. Names with fewer than two numbers, or with all of them at one place, have no curve, and are counted.
    Where a name has more than `points` values, those of a stretch share a point, counted in SQL: nothing is
    kept of single values.
    """
    tables.execute(_VALUES.format(at=inside(frame, "at_ns(timestamp)")))
    tables.execute(_NAMES, {"most": most})
    series = tables.records('FROM metric_names ORDER BY known > 1 DESC, "values" DESC, name')
    if not series:
        return None
    found = grouped((row[0], _LinePoint(*row)) for row in tables.rows(_POINTS, {"points": points}))
    drawn = [_curve(row, found[row["name"]]) for row in series if row["name"] in found]
    names, alone, unknown, astray = (series[0][count] for count in ("names", "alone", "unknown", "astray"))
    return Curves(
        since=frame.since,
        length_s=frame.length_s,
        curves=drawn,
        names=names,
        notes=list(_notes(len(drawn), names, alone, unknown, int(astray))),
    )


def _curve(series: dict[str, Any], points: list[_LinePoint]) -> Curve:
    several = any(point.known > 1 for point in points)
    return Curve(
        name=cut(series["name"], ChartLimits.max_name_characters),
        by="step" if series["stepped"] else "time",
        at=[_number(point.at) or 0.0 for point in points],
        value=[_number(point.mean) for point in points],
        least=[_number(point.least) for point in points] if several else [],
        most=[_number(point.most) for point in points] if several else [],
        lost_at=[point.lost for point in points if point.lost is not None],
        values=series["values"],
        lost=series["values"] - series["known"],
    )


def _notes(drawn: int, names: int, alone: int, unknown: int, astray: int) -> Iterator[str]:
    if alone:
        yield f"{_names(alone)} one point, and no curve."
    if unknown:
        yield f"{_names(unknown)} no value that is a number, and no curve."
    if (left := names - alone - unknown - drawn) > 0:
        yield f"{left:,} more metrics are not drawn: the {drawn} with the most values are."
    if astray:
        many = f"{astray:,} values are" if astray != 1 else "1 value is"
        yield f"{many} not drawn: of another time than the run, by the clock."


def _names(number: int) -> str:
    return f"{number:,} metrics have" if number != 1 else "1 metric has"
