"""What a few small plots show of a run: CPU and memory of its machines over time, and how long tasks took.

Worked out beside the report from what it has read already, and one more look at the samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.analyze.drawn.bins import bin_of, edges
from flightlog.analyze.drawn.results import Chart, Series, Unit
from flightlog.analyze.held import MACROS
from flightlog.analyze.moments import SECOND, timestamp_of

if TYPE_CHECKING:
    import duckdb

    from flightlog.analyze.ground import Ground

STRETCHES = 120
"""At most so many points a line."""
NAMES, BINS = 5, 40
"""Tasks of so many names, those that took longest together, and so many bins at most."""
VIEWS = frozenset({"resources"})
"""What is read beside what a report reads."""


class Durations(Struct, frozen=True, kw_only=True):
    """How many completed tasks took how long, by name; seconds, in bins that grow by a factor."""

    edges_s: list[float]
    """One more than there are counts of a name."""
    counts: dict[str, list[int]]
    """Those that took longest together first."""


class Glance(Struct, frozen=True, kw_only=True):
    """What is plotted; null where nothing was recorded of it."""

    cpu: Chart | None
    """Per cent in use, a line for each machine."""
    memory: Chart | None
    """Bytes in use, a line for each machine, its limit what there is."""
    durations: Durations | None


def glance_of(ground: Ground) -> Glance:
    """For `report_and`, which gives the views."""
    start, until = ground.window
    cpu = memory = None
    if start is not None and until is not None and until > start:
        cpu, memory = _machines(ground.connection, start, until)
    return Glance(cpu=cpu, memory=memory, durations=_durations(ground))


def _machines(
    connection: duckdb.DuckDBPyConnection, start: int, until: int
) -> tuple[Chart | None, Chart | None]:
    width = max(1, -(-(until - start) // STRETCHES))
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
            Series(
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


def _durations(ground: Ground) -> Durations | None:
    known = {
        name: one.duration_s
        for name, one in ground.summary.tasks.by_name.items()
        if one.duration_s.max is not None and one.duration_s.min is not None
    }
    names = sorted(known, key=lambda name: (-known[name].total, name))[:NAMES]
    least = min((known[name].min or 0.0 for name in names), default=0.0)
    most = max((known[name].max or 0.0 for name in names), default=0.0)
    if not names or most <= 0:
        return None
    found = edges(max(least, 1e-6), most, BINS, zero=least < 1e-6)
    counts = {name: [0] * (len(found) - 1) for name in names}
    for name, number, count in ground.connection.execute(
        f"""
        SELECT task, {bin_of("duration_s", found)} AS bin, count(*) FROM held
        WHERE state = 'completed' AND isfinite(duration_s) AND task IN (SELECT unnest($names::VARCHAR[]))
            GROUP BY ALL
        """,  # noqa: S608 - numbers of ours
        {"names": names},
    ).fetchall():
        counts[name][number] = count
    return Durations(edges_s=found, counts=counts)
