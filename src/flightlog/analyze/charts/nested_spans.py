"""Spans in rows below what they ran in, the task or the outermost span that is a bar; and those outside of
all tasks.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from flightlog.analyze.charts.layout import TEXT_CHARACTERS, TimeWindow, cut
from flightlog.analyze.charts.results import Nested
from flightlog.core.time import SECOND

if TYPE_CHECKING:
    import duckdb

SPANS = 2000
"""So many are drawn, the longest of each level."""
DEPTH = 4
"""So many levels."""
ROWS = 90
"""So many rows of tasks and of what is inside there are at most; deeper levels are left out where there would
be more."""
OUTSIDE_SPANS, OUTSIDE_ROWS = 1000, 8
"""So many are drawn of what is outside of tasks, and on so many rows of their own."""

_TOPS = """
CREATE OR REPLACE TEMP TABLE tops AS
SELECT unnest($1::VARCHAR[]) AS span_id, unnest($2::INTEGER[]) AS lane, unnest($3::BIGINT[]) AS since
"""
_CHILD = """
child.span_id, child.parent_id, left(child.name, {characters}) AS name, child.status = 'error' AS failed,
    child.open AS "open",
    greatest(least(child.began, {until}), {start}) - {start} AS since,
    greatest(least(child.stopped, {until}), {start}) - {start} AS until
FROM span_intervals AS child ANTI JOIN drawn_items ON drawn_items.span_id = child.span_id
"""
_WITHIN = "child.began <= {until} AND child.stopped >= greatest(child.began, {start})"
_LEVEL = f"""
CREATE OR REPLACE TEMP TABLE level_{{depth}} AS
SELECT lane, {_CHILD} JOIN {{parents}} AS parent ON parent.span_id = child.parent_id
WHERE {_WITHIN}
-- where several attempts share an id, it is inside of the one that began last before it
QUALIFY row_number() OVER (
    PARTITION BY child.span_id ORDER BY parent.since > child.began - {{start}},
        abs(child.began - {{start}} - parent.since), lane
) = 1
ORDER BY child.stopped - child.began DESC, child.began, child.span_id LIMIT {{most}}
"""
_OUTERMOST = f"""
CREATE OR REPLACE TEMP TABLE level_1 AS
SELECT 0 AS lane, {_CHILD}
WHERE {_WITHIN} AND (child.parent_id IS NULL OR child.parent_id = $root)
ORDER BY child.stopped - child.began DESC, child.began, child.span_id LIMIT {{most}}
"""


class Top(NamedTuple):
    """A bar that spans may be inside of: its span, its row, and when it began, nanoseconds after the
    start.
    """

    span_id: str
    lane: int
    since: int


def _share(left: int, depth: int) -> int:
    """How many of those that are left a level may take: many short ones are not to hide what is inside of
    long ones.
    """
    return left if depth == DEPTH else left * 3 // 4


class _Span(NamedTuple):
    span_id: str
    parent_id: str | None
    lane: int
    depth: int
    since: int
    until: int
    name: str
    state: str


def nested(
    connection: duckdb.DuckDBPyConnection,
    frame: TimeWindow,
    tops: Sequence[Top],
    lanes: int,
    *,
    most: int = SPANS,
    most_rows: int = ROWS,
) -> Nested | None:
    """The spans inside of these bars, which are on so many rows; None where there is none, or no room for
    any.

    Spans of one level that overlap, such as those of threads, have rows of their own.
    """
    connection.execute(
        _TOPS, [[top.span_id for top in tops], [top.lane for top in tops], [top.since for top in tops]]
    )
    [(inside,)] = connection.execute(
        "SELECT count(*) FROM span_intervals SEMI JOIN tops ON tops.span_id = span_intervals.parent_id"
    ).fetchall()
    if not inside:
        return None
    return _laid_out(_levels(connection, frame, 1, "tops", most), lanes, most_rows - lanes)


def outside(
    connection: duckdb.DuckDBPyConnection,
    frame: TimeWindow,
    root: str | None,
    *,
    most: int = OUTSIDE_SPANS,
    most_rows: int = OUTSIDE_ROWS,
) -> Nested | None:
    """The spans inside of no attempt of `drawn_items`, and of nothing else but the run, whose own span is
    `root`, level by level.

    All are on one lane. None where there is none. Those that find no row free are left out, and what is
    inside of them.
    """
    connection.execute(
        _OUTERMOST.format(
            start=frame.start, until=frame.until, characters=TEXT_CHARACTERS + 1, most=_share(most, 1)
        ),
        {"root": root},
    )
    found = _read(connection, 1)
    if found:
        found += _levels(connection, frame, 2, "level_1", most - len(found))
    return _laid_out(_fitting(found, most_rows), 1, most_rows)


def _fitting(found: Sequence[_Span], most_rows: int) -> list[_Span]:
    """Those of one lane that fit onto so many rows, of which each level keeps one at least."""
    by_depth: dict[int, list[_Span]] = {}
    for span in found:
        by_depth.setdefault(span.depth, []).append(span)
    fitting: list[_Span] = []
    drawn: set[str | None] = set()
    left = most_rows
    for deeper, (depth, level) in zip(reversed(range(len(by_depth))), by_depth.items(), strict=True):
        inside = level if depth == 1 else [span for span in level if span.parent_id in drawn]
        fit = _longest(inside, max(0, left - deeper))
        drawn = {span.span_id for span in fit}
        left -= sum(_packed(fit)[1].values())
        fitting += fit
    return fitting


def _longest(level: Sequence[_Span], rows: int) -> list[_Span]:
    """Those that fit onto so many rows, in the order they were in: a longer one goes before a shorter one."""
    taken: list[list[tuple[int, int]]] = [[] for _ in range(rows)]
    kept: set[str] = set()
    for span in sorted(level, key=lambda one: (one.since - one.until, one.since)):
        for row in taken:
            place = bisect(row, (span.since, _ends(span)))
            if (place == 0 or row[place - 1][1] <= span.since) and (
                place == len(row) or _ends(span) <= row[place][0]
            ):
                row.insert(place, (span.since, _ends(span)))
                kept.add(span.span_id)
                break
    return [span for span in level if span.span_id in kept]


def _levels(
    connection: duckdb.DuckDBPyConnection, frame: TimeWindow, first: int, parents: str, most: int
) -> list[_Span]:
    """Spans inside of `parents` level by level, from that number on."""
    found: list[_Span] = []
    for depth in range(first, DEPTH + 1):
        connection.execute(
            _LEVEL.format(
                depth=depth,
                parents=parents,
                start=frame.start,
                until=frame.until,
                characters=TEXT_CHARACTERS + 1,
                most=_share(most - len(found), depth),
            )
        )
        level = _read(connection, depth)
        if not level:
            break
        found += level
        parents = f"level_{depth}"
    return found


def _read(connection: duckdb.DuckDBPyConnection, depth: int) -> list[_Span]:
    """A level by lane, in order of starts."""
    rows = connection.execute(
        f"SELECT span_id, parent_id, lane, since, until, name, failed, open FROM level_{depth}"  # noqa: S608 - a number
        " ORDER BY lane, since, until DESC, span_id"
    ).fetchall()
    return [
        _Span(
            span_id,
            parent_id,
            lane,
            depth,
            since,
            until,
            cut(name),
            "running" if open_ else "failed" if failed else "completed",
        )
        for span_id, parent_id, lane, since, until, name, failed, open_ in rows
    ]


def _laid_out(found: list[_Span], lanes: int, most_rows: int) -> Nested | None:
    deepest = max((span.depth for span in found), default=0)
    rows: list[int] = []
    used: dict[tuple[int, int], int] = {}
    for depth in range(deepest, 0, -1):
        found = [span for span in found if span.depth <= depth]
        rows, used = _packed(found)
        if sum(used.values()) <= most_rows:
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
    return Nested(
        lane=[span.lane for span in found],
        row=[first[span.lane, span.depth] + row for span, row in zip(found, rows, strict=True)],
        start_s=[span.since / SECOND for span in found],
        length_s=[(span.until - span.since) / SECOND for span in found],
        name=[numbers[span.name] for span in found],
        state=[span.state for span in found],
        names=names,
        rows=per_lane,
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
        heappush(ends, (_ends(span), row))
        rows.append(row)
    return rows, used


def _ends(span: _Span) -> int:
    """When its row is free again; one without a length holds it for a moment, too."""
    return max(span.until, span.since + 1)
