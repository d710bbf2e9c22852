"""How long tasks took, by name: histograms and quantiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.analyze.drawn.bins import bin_of, edges
from flightlog.analyze.drawn.frame import TEXT_CHARACTERS, cut
from flightlog.analyze.drawn.results import Spread
from flightlog.analyze.moments import SECOND

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
_OF_TASKS = "SELECT task, duration_s FROM held WHERE state = 'completed'"
_OF_SPANS = """SELECT name AS task, lasted / 1e9 AS duration_s FROM timed WHERE NOT "open" """


def durations(connection: duckdb.DuckDBPyConnection) -> list[Spread]:
    """Of completed tasks with a known duration, those that took longest together first; of spans where there
    is no task.
    """
    [(tasks,)] = connection.execute("SELECT count(*) FROM held").fetchall()
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
) -> Spread:
    _, count, total, (least, p25, middle, p75, p95, most) = row[:4]
    first, last = min(counts), max(counts)
    return Spread(
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
