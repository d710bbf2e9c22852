"""Very many attempts by row and by stretch of time, counted in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flightlog.analyze.drawn.frame import Frame, Stretches
from flightlog.analyze.drawn.lanes import Merged
from flightlog.analyze.drawn.pieces import drawn_apart
from flightlog.analyze.drawn.results import Cells
from flightlog.analyze.moments import SECOND

if TYPE_CHECKING:
    import duckdb

COLUMNS = 400
"""At most so many stretches."""
NEAR = 0.05
"""Neighbouring cells of one name become one where their load is this close to that of the first."""

_CELLS = """
WITH pieces AS (
    SELECT ($lanes::SMALLINT[])[CASE WHEN place < 0 THEN len($lanes) ELSE place + 1 END] AS lane, name, since,
        until
    FROM drawn WHERE since IS NOT NULL
), steps AS (
    SELECT lane, name, least(since, $length - 1) // $width AS stretch, count(*) AS running,
        sum(since)::HUGEINT AS moments, count(*) AS began,
        0 AS ended FROM pieces GROUP BY ALL
    UNION ALL
    SELECT lane, name, until // $width, -count(*), -sum(until)::HUGEINT, 0, 0 FROM pieces GROUP BY ALL
    UNION ALL -- what ends where a stretch begins is not under way in it
    SELECT lane, name, least(greatest(since, until - 1), $length - 1) // $width, 0, 0, 0, count(*) FROM pieces
        GROUP BY ALL
), net AS (
    SELECT lane, name, stretch, sum(running) AS running, sum(moments) AS moments, sum(began) AS began,
        sum(ended) AS ended
    FROM steps GROUP BY ALL
), dense AS (
    SELECT lane, name, stretch, coalesce(running, 0) AS running, coalesce(moments, 0) AS moments,
        coalesce(began, 0) AS began, coalesce(ended, 0) AS ended
    FROM (SELECT DISTINCT lane, name FROM net) CROSS JOIN (SELECT unnest(range($count)) AS stretch)
        LEFT JOIN net USING (lane, name, stretch)
), reached AS ( -- up to a moment t a piece has run for t - since, less t - until once it is over
    SELECT lane, name, stretch, sum(running) OVER so_far * least((stretch + 1) * $width, $length)
            - sum(moments) OVER so_far AS done,
        sum(began) OVER so_far AS began, sum(ended) OVER so_far - ended AS ended
    FROM dense WINDOW so_far AS (PARTITION BY lane, name ORDER BY stretch ROWS UNBOUNDED PRECEDING)
), work AS (
    SELECT lane, name, stretch, done - coalesce(lag(done) OVER (PARTITION BY lane, name
        ORDER BY stretch), 0) AS work,
        began, ended
    FROM reached
)
SELECT lane, stretch, arg_max(name, (work, began - ended, -name)) FILTER (began > ended), sum(work)::DOUBLE,
    sum(began)::BIGINT, sum(ended)::BIGINT
FROM work GROUP BY lane, stretch HAVING sum(began) > sum(ended) ORDER BY lane, stretch
"""


def cells(
    connection: duckdb.DuckDBPyConnection,
    frame: Frame,
    merged: Merged,
    *,
    columns: int = COLUMNS,
    near: float = NEAR,
) -> Cells:
    """The pieces in `drawn` by row and stretch, in this order; empty ones are left out.

    The sum of `busy` times length times the workers of its row is the time of all pieces.
    """
    stretches = frame.stretches(columns)
    found = connection.execute(
        _CELLS,
        {
            "lanes": merged.of_place,
            "width": stretches.width,
            "count": stretches.number,
            "length": stretches.length,
        },
    )
    kept = Cells(lane=[], start_s=[], length_s=[], name=[], attempts=[], busy=[])
    growing: _Cell | None = None
    while rows := found.fetchmany(2000):
        for lane, stretch, *rest in rows:
            cell = _Cell(stretches, merged.lanes[lane].merged, lane, stretch, *rest)
            if growing is not None and growing.takes(cell, near):
                growing.grow(cell)
                continue
            if growing is not None:
                growing.put_into(kept)
            growing = cell
    if growing is not None:
        growing.put_into(kept)
    return kept


class _Cell:
    """One stretch of a row, or several that are next to each other."""

    def __init__(self, stretches: Stretches, workers: int, lane: int, stretch: int, *rest: Any) -> None:
        self.lane, self._workers = lane, workers
        self._next = stretch + 1
        self._since, self._until = stretches.begins(stretch), stretches.begins(stretch + 1)
        self._stretch = stretch
        name, self._work, self._began, self._ended = rest
        self._name = drawn_apart(name)
        self._first = self.busy

    @property
    def busy(self) -> float:
        """How many ran at once for each worker, on average."""
        return float(self._work) / (self._until - self._since) / self._workers

    def takes(self, other: _Cell, near: float) -> bool:
        """Whether it looks the same, and is next to this one."""
        return (other.lane, other._stretch, other._name) == (self.lane, self._next, self._name) and abs(
            other.busy - self._first
        ) <= near * max(1.0, self._first)

    def grow(self, other: _Cell) -> None:
        """Take it in."""
        self._next, self._until, self._began = other._next, other._until, other._began
        self._work += other._work

    def put_into(self, kept: Cells) -> None:
        """Add it to the columns."""
        kept.lane.append(self.lane)
        kept.start_s.append(self._since / SECOND)
        kept.length_s.append((self._until - self._since) / SECOND)
        kept.name.append(self._name)
        kept.attempts.append(self._began - self._ended)
        kept.busy.append(round(self.busy, 9))
