"""Metrics over steps or time: a line for each name that the program recorded values of."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from flightlog.analyze.drawn.frame import TEXT_CHARACTERS, Frame, cut
from flightlog.analyze.drawn.results import Curve, Curves
from flightlog.analyze.drawn.samples import inside
from flightlog.analyze.metrics import LARGEST
from flightlog.analyze.moments import SECOND

if TYPE_CHECKING:
    import duckdb

CURVES = 24
"""So many metrics are drawn, those with the most values."""
POINTS = 300
"""At most so many points a curve, and one more at its end."""

_VALUES = f"""
CREATE OR REPLACE TEMP VIEW metric_points AS
SELECT name, step::DOUBLE AS step, {{at}} / {SECOND}::DOUBLE AS at_s, CASE
    WHEN abs(value) <= {LARGEST} THEN value END AS value
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


class _Point(NamedTuple):
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
    connection: duckdb.DuckDBPyConnection, frame: Frame, *, most: int = CURVES, points: int = POINTS
) -> Curves | None:
    """The metrics of the run, those with the most values first; None where none was recorded.

    A curve goes over the steps that its values were given, over the time of the run where they were given
    none. Names with fewer than two numbers, or with all of them at one place, have no curve, and are counted.
    Where a name has more than `points` values, those of a stretch share a point, counted in SQL: nothing is
    kept of single values.
    """
    connection.execute(_VALUES.format(at=inside(frame, "at_ns(timestamp)")))
    connection.execute(_NAMES, {"most": most})
    series: dict[str, tuple[Any, ...]] = {
        row[0]: row[1:]
        for row in connection.execute(
            'SELECT name, "values", known, stepped, names, unknown, alone, astray FROM metric_names ORDER '
            'BY known > 1 DESC, "values" DESC, name'
        ).fetchall()
    }
    if not series:
        return None
    found: dict[str, list[_Point]] = {}
    answer = connection.execute(_POINTS, {"points": points})
    while rows := answer.fetchmany(2000):
        for row in rows:
            found.setdefault(row[0], []).append(_Point(*row))
    drawn = [
        _curve(name, found[name], stepped=stepped, values=values, unknown=values - known)
        for name, (values, known, stepped, *_) in series.items()
        if name in found
    ]
    [(names, unknown, alone, astray), *_] = (row[3:] for row in series.values())
    return Curves(
        since=frame.since,
        length_s=frame.length_s,
        curves=drawn,
        names=names,
        notes=_notes(len(drawn), names, alone, unknown, int(astray)),
    )


def _curve(name: str, points: list[_Point], *, stepped: bool, values: int, unknown: int) -> Curve:
    several = any(point.known > 1 for point in points)
    return Curve(
        name=cut(name, TEXT_CHARACTERS),
        by="step" if stepped else "time",
        at=[_short(point.at) or 0.0 for point in points],
        value=[_short(point.mean) for point in points],
        least=[_short(point.least) for point in points] if several else [],
        most=[_short(point.most) for point in points] if several else [],
        lost_at=[point.lost for point in points if point.lost is not None],
        values=values,
        lost=unknown,
    )


def _short(value: float | None) -> float | None:
    """With as many digits as mean something: in which order values are added up shows in the last ones."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.12g}")


def _notes(drawn: int, names: int, alone: int, unknown: int, astray: int) -> list[str]:
    notes = []
    if alone:
        notes.append(f"{_names(alone)} one point, and no curve.")
    if unknown:
        notes.append(f"{_names(unknown)} no value that is a number, and no curve.")
    if (left := names - alone - unknown - drawn) > 0:
        notes.append(f"{left:,} more metrics are not drawn: the {drawn} with the most values are.")
    if astray:
        many = f"{astray:,} values are" if astray != 1 else "1 value is"
        notes.append(f"{many} not drawn: of another time than the run, by the clock.")
    return notes


def _names(number: int) -> str:
    return f"{number:,} metrics have" if number != 1 else "1 metric has"
