"""How long attempts waited against how long they ran: points where they are few, else counts on a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightlog.analyze.drawn.bins import bin_of, edges
from flightlog.analyze.drawn.pieces import drawn_apart
from flightlog.analyze.drawn.results import Waits

if TYPE_CHECKING:
    import duckdb

POINTS = 2000
"""So many are drawn one by one."""
BINS = 40
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
        edges(least if least is not None else 1.0, most, BINS, zero=bool(zeros))
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
