"""A run's report and its charts, from one reading: durations by name, waits, and the small charts of a
printed report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.analyze.charts.layout import (
    TimelineItems,
    TimeWindow,
    drawn_apart,
    frame_of,
    in_order,
    lay_out_items,
)
from flightlog.analyze.charts.lines import concurrency_chart, curves, device_memory, lookups, resource_use
from flightlog.analyze.charts.results import (
    Chart,
    ChartSeries,
    DurationSpread,
    RunCharts,
    Timeline,
    Unit,
    Waits,
)
from flightlog.analyze.charts.timeline import timeline
from flightlog.analyze.limits import ChartLimits
from flightlog.analyze.report.report import Report, kept_report, report_and
from flightlog.analyze.report.summary import ReportContext, Summary, open_context
from flightlog.analyze.report.time_shares import Shares, shares
from flightlog.analyze.tallies import by_two_keys, grouped
from flightlog.core.text import cut
from flightlog.core.time import SECOND
from flightlog.core.units import format_duration

if TYPE_CHECKING:
    from flightlog.analyze.report.summary import ReportContext
    from flightlog.core.stats import Distribution
    from flightlog.events import CostRates
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables


_LONGEST = """
CREATE OR REPLACE TEMP TABLE longest AS
SELECT task, row_number() OVER (ORDER BY sum(in_ns(duration_s)) DESC, task) AS rank FROM ({source})
WHERE isfinite(duration_s) GROUP BY task ORDER BY rank LIMIT {names}
"""
_TIMES = """
CREATE OR REPLACE TEMP TABLE times AS
SELECT rank, greatest(duration_s, 0) AS s FROM ({source}) JOIN longest USING (task) WHERE isfinite(duration_s)
"""
_OF_TASKS = "SELECT task, duration_s FROM attempt_intervals WHERE state = 'completed'"
_OF_SPANS = """SELECT name AS task, lasted / 1e9 AS duration_s FROM span_intervals WHERE NOT "open" """


def durations(tables: RunTables) -> list[DurationSpread]:
    """Of completed tasks with a known duration, those that took longest together first; of spans where there
    is no task.
    """
    tasks = tables.scalar("SELECT count(*) FROM attempt_intervals")
    source = _OF_TASKS if tasks else _OF_SPANS
    tables.execute(_LONGEST.format(source=source, names=ChartLimits.max_histograms))
    tables.execute(_TIMES.format(source=source))
    characters = ChartLimits.max_name_characters + 1
    longest = f"SELECT rank, left(task, {characters}) FROM longest"  # noqa: S608 - a number
    names = dict(tables.execute(longest).fetchall())
    rows = tables.execute(
        """
        SELECT rank, count(*), sum(in_ns(s)), quantile_cont(s, [0, 0.25, 0.5, 0.75, 0.95, 1]),
            min(s) FILTER (s > 0), count(*) FILTER (s < 1e-9)
        FROM times GROUP BY rank ORDER BY rank
        """
    ).fetchall()
    if not rows:
        return []
    found = edges(
        min((row[4] for row in rows if row[4] is not None), default=1.0),
        max(row[3][-1] for row in rows),
        ChartLimits.max_bins,
        zero=any(row[5] for row in rows),
    )
    binned = f"SELECT rank, {bin_of('s', found)} AS bin, count(*) FROM times GROUP BY ALL"  # noqa: S608
    counted = by_two_keys(tables.rows(binned))
    fields = ("least_s", "p25_s", "median_s", "p75_s", "p95_s", "most_s")
    spreads = []
    for rank, count, total, quantiles, *_ in rows:
        counts = counted[rank]
        first, last = min(counts), max(counts)
        spreads.append(
            DurationSpread(
                name=cut(names[rank], ChartLimits.max_name_characters),
                count=count,
                total_s=int(total) / SECOND,
                edges_s=found[first : last + 2],
                counts=[counts.get(number, 0) for number in range(first, last + 1)],
                **dict(zip(fields, quantiles, strict=True)),
            )
        )
    return spreads


_KNOWN = "FROM drawn WHERE queue_s IS NOT NULL AND duration_s IS NOT NULL"


def waits(tables: RunTables, names: Sequence[str]) -> Waits | None:
    """Of the attempts in `drawn` of which both are known; None where there is none."""
    [(count, *bounds)] = tables.execute(
        f"""
        SELECT count(*), min(queue_s) FILTER (queue_s > 0), max(queue_s), count(*) FILTER (queue_s < 1e-9),
            min(duration_s) FILTER (duration_s > 0), max(duration_s), count(*) FILTER (duration_s < 1e-9)
        {_KNOWN}
        """
    ).fetchall()
    if not count:
        return None
    if count <= ChartLimits.max_wait_points:
        rows = tables.execute(f"SELECT queue_s, duration_s, name {_KNOWN} ORDER BY ALL").fetchall()
        queue_s, run_s, name = ([row[column] for row in rows] for column in range(3))
        name = [drawn_apart(number) for number in name]
        return Waits(attempts=count, names=list(names), queue_s=queue_s, run_s=run_s, name=name)
    queue, run = (
        edges(least if least is not None else 1.0, most, ChartLimits.max_grid_bins, zero=bool(zeros))
        for least, most, zeros in (bounds[:3], bounds[3:])
    )
    grid = [[0] * (len(run) - 1) for _ in range(len(queue) - 1)]
    bins = f"{bin_of('queue_s', queue)} AS row, {bin_of('duration_s', run)} AS col"
    for row, column, number in tables.rows(f"SELECT {bins}, count(*) {_KNOWN} GROUP BY ALL"):
        grid[row][column] = number
    return Waits(
        attempts=count,
        names=list(names),
        queue_edges_s=queue,
        run_edges_s=run,
        grid=grid,
        notes=[f"This shows how many of {count:,} attempts waited and ran that long, and not single ones."],
    )


STEPS = (16, 8, 4, 2, 1)
"""Bins in a factor of ten, the finest first."""
_LEAST_S, _MOST_S = 1e-9, 2e9
"""Shorter and longer durations, of which the latter are noise, share the first and the last bin."""


def edges(least: float, most: float, bins: int, *, zero: bool = False) -> list[float]:
    """Ascending edges of at most `bins` bins that hold all values from `least`, which is above 0, to `most`.

    They are powers of ten and equal steps between them, as fine as there are bins for, so that edges of
    different ranges are of one grid. With `zero` the first bin begins at 0.
    """
    least = min(max(least, _LEAST_S), _MOST_S)
    high = min(max(most, least), _MOST_S)
    for step in STEPS:
        first = math.floor(math.log10(least) * step)
        while _edge(first, step) > least:
            first -= 1
        last = max(math.floor(math.log10(high) * step), first)
        while _edge(last, step) <= high:
            last += 1
        if last - first <= bins - zero or step == STEPS[-1]:
            break
    grown = [_edge(number, step) for number in range(first, last + 1)]
    grown[-1] = max(grown[-1], most)
    return [0.0, *grown] if zero or least == _LEAST_S else grown


def _edge(number: int, step: int) -> float:
    return float(f"{10.0 ** (number / step):.6g}")


def bin_of(column: str, found: Sequence[float]) -> str:
    """SQL: the number of the bin a column's value is in, from the edge below it on; 0 below all, the last
    above all.
    """

    def within(low: int, high: int) -> str:
        if high - low <= 1:
            return str(low)
        middle = (low + high) // 2
        return (
            f"CASE WHEN {column} < CAST({found[middle]!r} AS DOUBLE) "
            f"THEN {within(low, middle)} ELSE {within(middle, high)} END"
        )

    return within(0, len(found) - 1)


class ReportWithCharts(Struct, frozen=True, kw_only=True):
    """What a page shows of a run."""

    report: Report
    drawn: RunCharts


class TimelineWithSummary(Struct, frozen=True, kw_only=True):
    """The timeline of a run, with its summary."""

    summary: Summary
    time: Shares | None
    """Where the time went, as in the report; null where nothing was recorded to split."""
    timeline: Timeline | None
    """Null where nothing ran that was recorded."""


def timeline_of(run: Run) -> TimelineWithSummary:
    """The summary, the split of time and the timeline that `report_with_charts` gives, without working out
    anything else.
    """
    with open_context(run, kept_report(run)) as context:
        time = shares(context.tables)
        frame, hosts, items = _laid_out(context)
        drawn = None
        if frame is not None and items is not None:
            drawn = timeline(context, frame, items, hosts)
        return TimelineWithSummary(summary=context.summary, time=time, timeline=drawn)


def report_with_charts(
    run: Run, *, history: Mapping[str, Distribution] | None = None, rates: CostRates | None = None
) -> ReportWithCharts:
    """The report with its details, and what is drawn; the tasks and spans of the run are read once for both.

    For a run in any state and of any size: what is drawn is bounded, and the report is that of `report_on`.
    """
    report, drawn = report_and(run, charts_of, history=history, rates=rates)
    return ReportWithCharts(report=report, drawn=drawn)


def charts_of(context: ReportContext) -> RunCharts:
    """What is drawn of a run whose report is being made."""
    tables = context.tables
    frame, hosts, items = _laid_out(context)
    if frame is None:
        return RunCharts()
    use = resource_use(tables, frame)
    use["device_memory"] = device_memory(tables, frame) or use["device_memory"]
    if items is None:
        drawn, concurrency, queued = None, None, None
    else:
        drawn = timeline(context, frame, items, hosts)
        concurrency = load(tables, frame) if items.what == "attempts" else None
        queued = waits(tables, items.names)
    return RunCharts(
        **use,
        timeline=drawn,
        concurrency=concurrency,
        waits=queued,
        durations=durations(tables),
        cache=lookups(tables, frame),
        metrics=curves(tables, frame),
    )


def _laid_out(
    context: ReportContext,
) -> tuple[TimeWindow | None, Mapping[str, str | None], TimelineItems | None]:
    """The time of the run, the host of each worker, and what is in the table `drawn`, which is made: what all
    drawings share. The time is None where it is not known when the run was, the items where nothing ran.
    """
    tables = context.tables
    frame = frame_of(context)
    if frame is None:
        return None, {}, None
    hosts = dict(tables.execute("SELECT worker, host FROM worker_facts").fetchall())
    processes = {one.writer: f"{one.host}:{one.pid}" for one in context.run.writers()}
    return frame, hosts, lay_out_items(tables, frame, in_order(hosts), processes)


def load(tables: RunTables, frame: TimeWindow) -> Chart | None:
    """Attempts that ran and waited, and workers that were up, from `drawn` and `worker_lives`.

    What ran is left out where it is not known when, what waited where nothing did; None where nothing is
    left.
    """
    start, points = frame.start, ChartLimits.max_concurrency_points
    lines = {
        "running": f"SELECT since + {start} AS since, until + {start} AS until FROM drawn",  # noqa: S608
        "waiting": f"SELECT waits + {start} AS since, waited + {start} AS until FROM drawn",  # noqa: S608
        "workers up": "SELECT since, until FROM worker_lives",
    }
    each = format_duration(frame.stretches(points).width / SECOND)
    notes = [f"Each point is the mean over {each}."]
    return concurrency_chart(tables, frame, lines, points=points, notes=notes)


class OverviewDurations(Struct, frozen=True, kw_only=True):
    """How many completed tasks took how long, by name; seconds, in bins that grow by a factor."""

    edges_s: list[float]
    """One more than there are counts of a name."""
    counts: dict[str, list[int]]
    """Those that took longest together first."""


class Overview(Struct, frozen=True, kw_only=True):
    """What is plotted; null where nothing was recorded of it."""

    cpu: Chart | None
    """Per cent in use, a line for each machine."""
    memory: Chart | None
    """Bytes in use, a line for each machine, its limit what there is."""
    durations: OverviewDurations | None


def overview_of(context: ReportContext) -> Overview:
    """For `report_and`, which gives the views."""
    start, until = context.tables.window
    cpu = memory = None
    if start is not None and until is not None and until > start:
        cpu, memory = _machines(context.tables, start, until)
    return Overview(cpu=cpu, memory=memory, durations=_durations(context))


def _machines(tables: RunTables, start: int, until: int) -> tuple[Chart | None, Chart | None]:
    width = max(1, -(-(until - start) // ChartLimits.max_overview_points))
    rows = tables.execute(
        """
        SELECT coalesce(left(host, 200), 'unknown') AS machine,
            (at_ns(timestamp) - $start) // $width AS stretch,
            avg(CASE WHEN isfinite(cpu_percent) THEN cpu_percent END), max(memory_used_bytes),
                max(memory_total_bytes)
        FROM resources
        WHERE event = 'resource_sample' AND scope = 'node' AND at_ns(timestamp) BETWEEN $start AND $until
        GROUP BY ALL ORDER BY ALL
        """,
        {"start": start, "until": until, "width": width},
    ).fetchall()
    of = grouped(
        (machine, (min((stretch + 0.5) * width, until - start) / SECOND, *values))
        for machine, stretch, *values in rows
    )

    def chart(unit: Unit, column: int) -> Chart | None:
        series = [
            ChartSeries(
                label=machine,
                at_s=[point[0] for point in points],
                value=[point[column] for point in points],
                limit=max((point[3] for point in points if point[3] is not None), default=None)
                if unit == "bytes"
                else 100.0,
            )
            for machine, points in of.items()
            if any(point[column] is not None for point in points)
        ]
        return TimeWindow(start, until - start).chart(unit, series)

    return chart("percent", 1), chart("bytes", 2)


def _durations(context: ReportContext) -> OverviewDurations | None:
    known = {
        name: one.duration_s
        for name, one in context.summary.tasks.by_name.items()
        if one.duration_s.max is not None and one.duration_s.min is not None
    }
    names = sorted(known, key=lambda name: (-known[name].total, name))[: ChartLimits.max_printed_histograms]
    least = min((known[name].min or 0.0 for name in names), default=0.0)
    most = max((known[name].max or 0.0 for name in names), default=0.0)
    if not names or most <= 0:
        return None
    found = edges(max(least, 1e-6), most, ChartLimits.max_printed_bins, zero=least < 1e-6)
    bins = f"""
        SELECT task, {bin_of("duration_s", found)} AS bin, count(*) FROM ({_OF_TASKS})
        WHERE isfinite(duration_s) AND task IN (SELECT unnest($names::VARCHAR[])) GROUP BY ALL
    """  # noqa: S608 - numbers of ours
    counted = by_two_keys(context.tables.rows(bins, {"names": names}))
    numbers = range(len(found) - 1)
    counts = {name: [counted.get(name, {}).get(number, 0) for number in numbers] for name in names}
    return OverviewDurations(edges_s=found, counts=counts)
