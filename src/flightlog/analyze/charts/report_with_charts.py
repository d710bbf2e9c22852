"""A run's report and its charts, from one reading; and the few small charts of a printed report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from flightlog.analyze.charts.durations import POINTS, bin_of, durations, edges, waits
from flightlog.analyze.charts.layout import (
    LANES,
    TimelineItems,
    TimeWindow,
    frame_of,
    in_order,
    lay_out_items,
    means,
)
from flightlog.analyze.charts.lines import curves, device_memory, lookups, resource_use
from flightlog.analyze.charts.results import Chart, ChartSeries, RunCharts, Timeline, Unit
from flightlog.analyze.charts.timeline import ONE_BY_ONE, timeline
from flightlog.analyze.report.interval_tables import MACROS
from flightlog.analyze.report.large_run import LARGE_BYTES
from flightlog.analyze.report.report import Report, ReportContext, open_context, report_and
from flightlog.analyze.report.summary import Summary
from flightlog.analyze.report.time_shares import Shares, shares, worked
from flightlog.core.time import SECOND, timestamp_of
from flightlog.core.units import format_duration

if TYPE_CHECKING:
    import duckdb

    from flightlog.analyze.report.report import ReportContext
    from flightlog.core.stats import Distribution
    from flightlog.events import CostRates
    from flightlog.store.run import Run

VIEWS = {"resources", "devices", "metrics"}
"""What is read beside what a report reads."""


TIMELINE_VIEWS = {"failures"}
"""What a timeline alone reads beside attempts and spans."""


class ReportWithCharts(Struct, frozen=True, kw_only=True):
    """What a page shows of a run."""

    report: Report
    drawn: RunCharts


class TimelineWithSummary(Struct, frozen=True, kw_only=True):
    """The timeline of a run, and what there is to say of it in a line."""

    summary: Summary
    time: Shares | None
    """Where the time went, as in the report; null where nothing was recorded to split."""
    timeline: Timeline | None
    """Null where nothing ran that was recorded."""


def timeline_of(
    run: Run, *, large_bytes: int = LARGE_BYTES, one_by_one: int = ONE_BY_ONE, lanes: int = LANES
) -> TimelineWithSummary:
    """The summary, the split of time and the timeline that `report_with_charts` gives, without working out
    anything else.

    `one_by_one` and `lanes` are as `charts_of` takes them.
    """
    with open_context(run, views=TIMELINE_VIEWS, large_bytes=large_bytes) as context:
        time = shares(context.connection, context.workers, context.window)
        found = _laid_out(context)
        return TimelineWithSummary(
            summary=context.summary,
            time=time,
            timeline=None if found is None else _timeline(context, found, one_by_one, lanes),
        )


def report_with_charts(
    run: Run,
    *,
    history: Mapping[str, Distribution] | None = None,
    rates: CostRates | None = None,
    large_bytes: int = LARGE_BYTES,
) -> ReportWithCharts:
    """The report with its details, and what is drawn; the tasks and spans of the run are read once for both.

    For a run in any state and of any size: what is drawn is bounded, and the report is that of `report_on`.
    """
    report, drawn = report_and(
        run, charts_of, views=VIEWS, history=history, rates=rates, large_bytes=large_bytes
    )
    return ReportWithCharts(report=report, drawn=drawn)


def charts_of(
    context: ReportContext, *, one_by_one: int = ONE_BY_ONE, lanes: int = LANES, points: int = POINTS
) -> RunCharts:
    """What is drawn of a run whose report is being made; its connection has the views in `VIEWS`.

    At most `one_by_one` attempts, and no more than fit on so many `lanes`, are drawn one by one; at most
    `points` of queueing against execution time.
    """
    found = _laid_out(context)
    if found is None:
        return RunCharts(
            timeline=None,
            concurrency=None,
            worker_cpu=None,
            worker_memory=None,
            host_cpu=None,
            host_memory=None,
            device_memory=None,
            device_use=None,
            durations=[],
            waits=None,
            cache=None,
        )
    connection, frame, pieces = context.connection, found.frame, found.pieces
    of_tasks = pieces is not None and pieces.what == "attempts"
    use = resource_use(connection, frame)
    return RunCharts(
        timeline=_timeline(context, found, one_by_one, lanes),
        concurrency=load(connection, frame, found.ups) if of_tasks else None,
        worker_cpu=use.worker_cpu,
        worker_memory=use.worker_memory,
        host_cpu=use.host_cpu,
        host_memory=use.host_memory,
        device_memory=device_memory(connection, frame) or use.gpu_memory,
        device_use=use.gpu_use,
        durations=durations(connection),
        waits=None if pieces is None else waits(connection, pieces.names, points=points),
        cache=lookups(connection, frame),
        metrics=curves(connection, frame),
    )


class _LaidOut(NamedTuple):
    """What all drawings share; the table `drawn` is made. `pieces` is None where nothing ran."""

    frame: TimeWindow
    hosts: Mapping[str, str | None]
    ups: Mapping[str, Sequence[tuple[int, int]]]
    pieces: TimelineItems | None


def _laid_out(context: ReportContext) -> _LaidOut | None:
    """None where it is not known when the run was."""
    connection = context.connection
    connection.execute(MACROS)
    frame = frame_of(context)
    if frame is None:
        return None
    hosts = context.workers.hosts()
    ups = context.workers.uptimes(worked(connection), frame.until)
    processes = {one.writer: f"{one.host}:{one.pid}" for one in context.run.writers()}
    return _LaidOut(frame, hosts, ups, lay_out_items(connection, frame, in_order(ups, hosts), processes))


def _timeline(context: ReportContext, found: _LaidOut, one_by_one: int, lanes: int) -> Timeline | None:
    if found.pieces is None:
        return None
    return timeline(
        context,
        found.frame,
        found.pieces,
        found.hosts,
        root=context.run.info.span_id,
        one_by_one=one_by_one,
        most_lanes=lanes,
    )


STRETCHES = 240
"""At most so many points a line."""


def load(
    connection: duckdb.DuckDBPyConnection, frame: TimeWindow, ups: Mapping[str, Sequence[tuple[int, int]]]
) -> Chart | None:
    """Means over stretches of time, at the middle of each, from the table `drawn` and from when workers were
    up.

    What ran is left out where it is not known when, what waited where nothing did; None where nothing is
    left.
    """
    stretches = frame.stretches(STRETCHES)
    at = stretches.middles_s()
    series = []
    [(placed,)] = connection.execute("SELECT count(since) FROM drawn").fetchall()
    if placed:
        running = means(connection, "SELECT since, until FROM drawn WHERE since IS NOT NULL", stretches)
        series.append(ChartSeries(label="running", at_s=at, value=list(running)))
    waiting = means(
        connection, "SELECT waits AS since, waited AS until FROM drawn WHERE waits < waited", stretches
    )
    if any(waiting):
        series.append(ChartSeries(label="waiting", at_s=at, value=list(waiting)))
    lives = [
        (min(max(moment - frame.start, 0), frame.length) for moment in life)
        for spans in ups.values()
        for life in spans
    ]
    if lives:
        columns = [list(column) for column in zip(*lives, strict=True)]
        up = means(
            connection,
            "SELECT unnest($1::BIGINT[]) AS since, unnest($2::BIGINT[]) AS until",
            stretches,
            *columns,
        )
        series.append(ChartSeries(label="workers up", at_s=at, value=list(up)))
    if not series:
        return None
    each = format_duration(stretches.width / 1e9)
    return Chart(
        since=frame.since,
        length_s=frame.length_s,
        unit="count",
        series=series,
        notes=[f"Each point is the mean over {each}."],
    )


OVERVIEW_STRETCHES = 120
"""At most so many points a line."""
NAMES, BINS = 5, 40
"""Tasks of so many names, those that took longest together, and so many bins at most."""
OVERVIEW_VIEWS = frozenset({"resources"})
"""What is read beside what a report reads."""


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
    start, until = context.window
    cpu = memory = None
    if start is not None and until is not None and until > start:
        cpu, memory = _machines(context.connection, start, until)
    return Overview(cpu=cpu, memory=memory, durations=_durations(context))


def _machines(
    connection: duckdb.DuckDBPyConnection, start: int, until: int
) -> tuple[Chart | None, Chart | None]:
    width = max(1, -(-(until - start) // OVERVIEW_STRETCHES))
    connection.execute(MACROS)
    rows = connection.execute(
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
    of: dict[str, list[tuple[float, float | None, float | None, float | None]]] = {}
    for machine, stretch, cpu, used, total in rows:
        at_s = min((stretch + 0.5) * width, until - start) / SECOND
        of.setdefault(machine, []).append((at_s, cpu, used, total))

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
        if not series:
            return None
        return Chart(
            since=timestamp_of(start), length_s=(until - start) / SECOND, unit=unit, series=series, notes=[]
        )

    return chart("percent", 1), chart("bytes", 2)


def _durations(context: ReportContext) -> OverviewDurations | None:
    known = {
        name: one.duration_s
        for name, one in context.summary.tasks.by_name.items()
        if one.duration_s.max is not None and one.duration_s.min is not None
    }
    names = sorted(known, key=lambda name: (-known[name].total, name))[:NAMES]
    least = min((known[name].min or 0.0 for name in names), default=0.0)
    most = max((known[name].max or 0.0 for name in names), default=0.0)
    if not names or most <= 0:
        return None
    found = edges(max(least, 1e-6), most, BINS, zero=least < 1e-6)
    counts = {name: [0] * (len(found) - 1) for name in names}
    for name, number, count in context.connection.execute(
        f"""
        SELECT task, {bin_of("duration_s", found)} AS bin, count(*) FROM attempt_intervals
        WHERE state = 'completed' AND isfinite(duration_s) AND task IN (SELECT unnest($names::VARCHAR[]))
            GROUP BY ALL
        """,  # noqa: S608 - numbers of ours
        {"names": names},
    ).fetchall():
        counts[name][number] = count
    return OverviewDurations(edges_s=found, counts=counts)
