"""Lines of what was sampled: a point for each source and stretch of time, the largest sources first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from flightlog.analyze.drawn.frame import Frame, cut
from flightlog.analyze.drawn.results import Chart, Series
from flightlog.analyze.moments import SECOND
from flightlog.units import format_duration

if TYPE_CHECKING:
    import duckdb

    from flightlog.analyze.drawn.results import Unit

SERIES = 16
"""At most so many lines a chart."""
STRETCHES = 300
"""At most so many points a line, and beside them one for each gap."""
_GAP = 3.5
"""Nothing is known of a time this many times as long as usual between two points."""
_NEAR_S = 2.0
"""Samples taken so shortly before the run began or after it ended are drawn at its edge."""


class Line(NamedTuple):
    """What is drawn of a table of samples by stretch: columns of it, or expressions over them."""

    table: str
    label: str
    value: str
    where: str
    kind: str
    """What the value is of the samples that fall on one point: `mean` or `largest`."""
    rank: str
    """An aggregate: the lines for which it is the largest are drawn."""
    limit: str = "NULL"
    """An aggregate: what the value cannot exceed."""


def inside(frame: Frame, moment: str) -> str:
    """SQL: when something was sampled, nanoseconds after the start and none outside; null where it lies far
    outside.
    """
    near = round(_NEAR_S * SECOND)
    return (
        f"CASE WHEN {moment} BETWEEN {frame.start - near} AND {frame.until + near} "
        f"THEN greatest(least({moment}, {frame.until}), {frame.start}) - {frame.start} END"
    )


def chart(
    connection: duckdb.DuckDBPyConnection,
    frame: Frame,
    unit: Unit,
    line: Line,
    notes: Sequence[str] = (),
) -> Chart | None:
    """The lines of a table that has `label`, `moment` and `samples`; None where nothing is known of any."""
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE ranked AS
        SELECT {line.label} AS label, {line.rank} AS rank, {line.limit} AS "limit" FROM {line.table}
        WHERE {line.where} AND {line.value} IS NOT NULL GROUP BY label
        """  # noqa: S608 - statements of ours
    )
    [(lines,)] = connection.execute("SELECT count(*) FROM ranked").fetchall()
    if not lines:
        return None
    rows = connection.execute(
        f"""
        SELECT ranked.label, "limit", moment, {line.value}, samples
        FROM (SELECT * FROM ranked ORDER BY rank DESC NULLS LAST, label LIMIT {SERIES}) AS ranked
            JOIN {line.table} AS sampled ON sampled.label = ranked.label
        WHERE {line.where} AND {line.value} IS NOT NULL ORDER BY rank DESC NULLS LAST, ranked.label, moment
        """  # noqa: S608 - statements of ours
    ).fetchall()
    found: dict[str, tuple[float | None, list[tuple[float, float | None]]]] = {}
    for label, limit, at, value, _ in rows:
        found.setdefault(label, (limit, []))[1].append((at / SECOND, _number(value)))
    said = list(notes)
    if any(row[-1] > 1 for row in rows):
        within = format_duration(frame.stretches(STRETCHES).width / SECOND)
        said.append(f"Each point is the {line.kind} of the samples within {within}.")
    if all(len(known) == 1 for _, known in found.values()):
        said.append("There is but one point of each, and no line.")
    if lines > SERIES:
        said.append(f"The {SERIES} largest of {lines:,} are drawn.")
    return Chart(
        since=frame.since,
        length_s=frame.length_s,
        unit=unit,
        notes=said,
        series=[
            Series(
                label=cut(label),
                at_s=[at for at, _ in points],
                value=[value for _, value in points],
                limit=_number(limit),
            )
            for label, (limit, known) in found.items()
            if (points := with_gaps(known))
        ],
    )


def with_gaps(points: Sequence[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """The points, with one of no value in the middle of each time for which nothing is known, but for short
    ones.
    """
    steps = [later - earlier for (earlier, _), (later, _) in pairwise(points)]
    if not steps:
        return list(points)
    longest = _GAP * median(steps)
    found = list(points[:1])
    for step, (at, value) in zip(steps, points[1:], strict=True):
        if step > longest and found[-1][1] is not None:
            found.append((at - step / 2, None))
        found.append((at, value))
    return found


def _number(value: float | None) -> float | None:
    """With as many digits as mean something: in which order samples are added up shows in the last ones."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.12g}")
