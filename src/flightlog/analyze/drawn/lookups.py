"""Cache lookups over the time of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.analyze.drawn.frame import Frame
from flightlog.analyze.drawn.results import Chart, Series
from flightlog.analyze.drawn.samples import inside
from flightlog.analyze.moments import SECOND
from flightlog.units import format_duration

if TYPE_CHECKING:
    import duckdb

STRETCHES = 60
_LABELS = {"hit": "hits", "miss": "misses", "bypass": "bypassed"}


def lookups(connection: duckdb.DuckDBPyConnection, frame: Frame) -> Chart | None:
    """How many lookups hit, missed or were bypassed in each stretch of time, at its middle; None where there
    was none.
    """
    stretches = frame.stretches(STRETCHES)
    counts: dict[str, dict[int | None, int]] = {}
    for result, stretch, count in connection.execute(
        f"""
        SELECT result, CASE WHEN moment IS NOT NULL THEN least(moment // {stretches.width},
            {stretches.number - 1}) END AS stretch,
            count(*)
        FROM (SELECT result, {inside(frame, "at_ns(timestamp)")} AS moment FROM cache
            WHERE event = 'cache_lookup') GROUP BY ALL
        """  # noqa: S608 - numbers
    ).fetchall():
        counts.setdefault(result, {})[stretch] = count
    astray = sum(by_stretch.pop(None, 0) for by_stretch in counts.values())
    known = {result: counts[result] for result in _LABELS if result in counts}
    if not known and not astray:
        return None
    notes = [f"Lookups within {format_duration(stretches.width / SECOND)} each."]
    if astray:
        notes.append(f"{astray:,} lookups were outside of the run's time, by their clocks.")
    return Chart(
        since=frame.since,
        length_s=frame.length_s,
        unit="count",
        notes=notes,
        series=[
            Series(
                label=_LABELS[result],
                at_s=stretches.middles_s(),
                value=[float(by_stretch.get(number, 0)) for number in range(stretches.number)],
            )
            for result, by_stretch in known.items()
        ],
    )
