"""Durations of tasks by name (histograms, quantiles), and waits against durations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightlog.analyze.charts.layout import TEXT_CHARACTERS, cut, drawn_apart
from flightlog.analyze.charts.results import DurationSpread, Waits
from flightlog.core.time import SECOND

if TYPE_CHECKING:
    import duckdb

NAMES = 20
"""So many names, those that took most of the time."""
BINS = 48

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


def durations(connection: duckdb.DuckDBPyConnection) -> list[DurationSpread]:
    """Of completed tasks with a known duration, those that took longest together first; of spans where there
    is no task.
    """
    [(tasks,)] = connection.execute("SELECT count(*) FROM attempt_intervals").fetchall()
    source = _OF_TASKS if tasks else _OF_SPANS
    connection.execute(_LONGEST.format(source=source, names=NAMES))
    connection.execute(_TIMES.format(source=source))
    names = dict(
        connection.execute(f"SELECT rank, left(task, {TEXT_CHARACTERS + 1}) FROM longest").fetchall()  # noqa: S608 - a number
    )
    rows = connection.execute(
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
        BINS,
        zero=any(row[5] for row in rows),
    )
    counts: dict[int, dict[int, int]] = {}
    for rank, number, count in connection.execute(
        f"SELECT rank, {bin_of('s', found)} AS bin, count(*) FROM times GROUP BY ALL"  # noqa: S608 - numbers
    ).fetchall():
        counts.setdefault(rank, {})[number] = count
    return [_spread(cut(names[row[0]]), row, found, counts[row[0]]) for row in rows]


def _spread(
    name: str,
    row: tuple[int, int, float, list[float], *tuple[object, ...]],
    found: list[float],
    counts: dict[int, int],
) -> DurationSpread:
    _, count, total, (least, p25, middle, p75, p95, most) = row[:4]
    first, last = min(counts), max(counts)
    return DurationSpread(
        name=name,
        count=count,
        total_s=int(total) / SECOND,
        edges_s=found[first : last + 2],
        counts=[counts.get(number, 0) for number in range(first, last + 1)],
        least_s=least,
        p25_s=p25,
        median_s=middle,
        p75_s=p75,
        p95_s=p95,
        most_s=most,
    )


POINTS = 2000
"""So many are drawn one by one."""
GRID_BINS = 40
_KNOWN = "FROM drawn WHERE queue_s IS NOT NULL AND duration_s IS NOT NULL"


def waits(
    connection: duckdb.DuckDBPyConnection, names: Sequence[str], *, points: int = POINTS
) -> Waits | None:
    """Of the attempts in `drawn` of which both are known; None where there is none."""
    [(count, *bounds)] = connection.execute(
        f"""
        SELECT count(*), min(queue_s) FILTER (queue_s > 0), max(queue_s), count(*) FILTER (queue_s < 1e-9),
            min(duration_s) FILTER (duration_s > 0), max(duration_s), count(*) FILTER (duration_s < 1e-9)
        {_KNOWN}
        """
    ).fetchall()
    if not count:
        return None
    if count <= points:
        rows = connection.execute(f"SELECT queue_s, duration_s, name {_KNOWN} ORDER BY ALL").fetchall()
        queue_s, run_s, name = ([row[column] for row in rows] for column in range(3))
        name = [drawn_apart(number) for number in name]
        return Waits(
            attempts=count,
            names=list(names),
            queue_s=queue_s,
            run_s=run_s,
            name=name,
            queue_edges_s=[],
            run_edges_s=[],
            grid=[],
            notes=[],
        )
    queue, run = (
        edges(least if least is not None else 1.0, most, GRID_BINS, zero=bool(zeros))
        for least, most, zeros in (bounds[:3], bounds[3:])
    )
    grid = [[0] * (len(run) - 1) for _ in range(len(queue) - 1)]
    for row, column, number in connection.execute(
        f"SELECT {bin_of('queue_s', queue)} AS row, {bin_of('duration_s', run)} AS col, count(*) {_KNOWN} "
        "GROUP BY ALL"
    ).fetchall():
        grid[row][column] = number
    return Waits(
        attempts=count,
        names=list(names),
        queue_s=[],
        run_s=[],
        name=[],
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
    """Ascending edges of at most so many bins that hold all values from `least`, which is above 0, to `most`.

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
