"""Spans in rows below what they ran in: the task, or the outermost span, that is drawn on a row of its own."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from flightlog.analyze.drawn.frame import TEXT_CHARACTERS, Frame, cut
from flightlog.analyze.drawn.results import Nested
from flightlog.analyze.moments import SECOND

if TYPE_CHECKING:
    import duckdb

SPANS = 2000
"""So many are drawn, the longest of each level."""
DEPTH = 4
"""So many levels."""
ROWS = 90
"""So many rows there are at most, those of tasks included; deeper levels are left out where there would be more."""

_TOPS = """
CREATE OR REPLACE TEMP TABLE tops AS
SELECT unnest($1::VARCHAR[]) AS span_id, unnest($2::INTEGER[]) AS lane, unnest($3::BIGINT[]) AS since
"""
_LEVEL = """
CREATE OR REPLACE TEMP TABLE level_{depth} AS
SELECT lane, child.span_id, left(child.name, {characters}) AS name, child.status = 'error' AS failed, child.open AS "open",
    greatest(least(child.began, {until}), {start}) - {start} AS since,
    greatest(least(child.stopped, {until}), {start}) - {start} AS until
FROM timed AS child JOIN {parents} AS parent ON parent.span_id = child.parent_id
    ANTI JOIN tops ON tops.span_id = child.span_id
WHERE child.began IS NOT NULL AND child.stopped >= child.began
-- where several attempts share an id, it is inside of the one that began last before it
QUALIFY row_number() OVER (
    PARTITION BY child.span_id ORDER BY parent.since > child.began - {start}, abs(child.began - {start} - parent.since), lane
) = 1
ORDER BY child.stopped - child.began DESC, child.began, child.span_id LIMIT {most}
"""


class Top(NamedTuple):
    """A bar that spans may be inside of: its span, its row, and when it began, nanoseconds after the start."""

    span_id: str
    lane: int
    since: int


def _share(left: int, depth: int) -> int:
    """How many of those that are left a level may take: many short ones are not to hide what is inside of long ones."""
    return left if depth == DEPTH else left * 3 // 4


class _Span(NamedTuple):
    lane: int
    depth: int
    since: int
    until: int
    name: str
    state: str


def nested(
    connection: duckdb.DuckDBPyConnection,
    frame: Frame,
    tops: Sequence[Top],
    lanes: int,
    *,
    most: int = SPANS,
    most_rows: int = ROWS,
) -> Nested | None:
    """The spans inside of these bars, which are on so many rows; None where there is none, or no room for any.

    Spans of one level that overlap, such as those of threads, have rows of their own.
    """
    [(total,)] = connection.execute(
        "SELECT count(*) FROM timed SEMI JOIN (SELECT unnest($1::VARCHAR[]) AS span_id) AS tops ON tops.span_id = timed.parent_id",
        [[top.span_id for top in tops]],
    ).fetchall()
    if not total:
        return None
    connection.execute(
        _TOPS, [[top.span_id for top in tops], [top.lane for top in tops], [top.since for top in tops]]
    )
    found: list[_Span] = []
    for depth in range(1, DEPTH + 1):
        connection.execute(
            _LEVEL.format(
                depth=depth, parents="tops" if depth == 1 else f"level_{depth - 1}", start=frame.start, until=frame.until,
                characters=TEXT_CHARACTERS + 1, most=_share(most - len(found), depth),
            )
        )  # fmt: skip
        rows = connection.execute(
            f"SELECT lane, since, until, name, failed, open FROM level_{depth} ORDER BY lane, since, until DESC, span_id"  # noqa: S608 - a number
        ).fetchall()
        if not rows:
            break
        found += [
            _Span(lane, depth, since, until, cut(name), "running" if open_ else "failed" if failed else "completed")
            for lane, since, until, name, failed, open_ in rows
        ]  # fmt: skip
    return _laid_out(connection, found, lanes, most_rows)


def _laid_out(
    connection: duckdb.DuckDBPyConnection, found: list[_Span], lanes: int, most_rows: int
) -> Nested | None:
    deepest = max((span.depth for span in found), default=0)
    rows: list[int] = []
    used: dict[tuple[int, int], int] = {}
    for depth in range(deepest, 0, -1):
        found = [span for span in found if span.depth <= depth]
        rows, used = _packed(found)
        if lanes + sum(used.values()) <= most_rows:
            break
    else:
        return None
    first: dict[tuple[int, int], int] = {}
    per_lane = [0] * lanes
    for (lane, depth), count in sorted(used.items()):
        first[lane, depth] = per_lane[lane]
        per_lane[lane] += count
    times: dict[str, int] = {}
    for span in found:
        times[span.name] = times.get(span.name, 0) + span.until - span.since
    names = sorted(times, key=lambda name: (-times[name], name))
    numbers = {name: number for number, name in enumerate(names)}
    [(total,)] = connection.execute("SELECT count(*) FROM timed ANTI JOIN tops USING (span_id)").fetchall()
    return Nested(
        lane=[span.lane for span in found],
        row=[first[span.lane, span.depth] + row for span, row in zip(found, rows, strict=True)],
        start_s=[span.since / SECOND for span in found],
        length_s=[(span.until - span.since) / SECOND for span in found],
        name=[numbers[span.name] for span in found],
        state=[span.state for span in found],
        names=names,
        rows=per_lane,
        total=total,
    )


def _packed(spans: Sequence[_Span]) -> tuple[list[int], dict[tuple[int, int], int]]:
    """The row of each span among those of its level on its lane, and how many rows that level has there."""
    rows = []
    used: dict[tuple[int, int], int] = {}
    taken: dict[tuple[int, int], list[tuple[int, int]]] = {}
    free: dict[tuple[int, int], list[int]] = {}
    for span in spans:  # of a level in order of their starts
        key = span.lane, span.depth
        ends, spare = taken.setdefault(key, []), free.setdefault(key, [])
        while ends and ends[0][0] <= span.since:
            heappush(spare, heappop(ends)[1])
        row = heappop(spare) if spare else used.get(key, 0)
        used[key] = max(used.get(key, 0), row + 1)
        heappush(ends, (max(span.until, span.since + 1), row))
        rows.append(row)
    return rows, used
