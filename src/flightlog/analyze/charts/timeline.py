"""Which tasks ran where, and when: one by one where they are few, else by stretches of time; with marks for
failures, and spans in rows below the task or outermost span that they ran in.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flightlog.analyze.charts.layout import (
    MergedRows,
    Stretches,
    TimelineItems,
    TimeWindow,
    drawn_apart,
    merge_lanes,
    pack,
)
from flightlog.analyze.charts.results import Bars, Cells, Nested, Timeline, TimelineMark, TimelineRow
from flightlog.analyze.limits import ChartLimits
from flightlog.analyze.live.results import args_text
from flightlog.analyze.tallies import grouped
from flightlog.core.intervals import Lanes
from flightlog.core.text import cut
from flightlog.core.time import SECOND
from flightlog.core.units import format_duration
from flightlog.store.tables.connection import text
from flightlog.store.tables.workers import LOST_FOR

if TYPE_CHECKING:
    from flightlog.analyze.report.summary import ReportContext
    from flightlog.store.tables.run_tables import RunTables


_UNSEEN = 1000
"""An overlap shorter than the drawn time divided by this is invisible."""

_ROWS = """
SELECT coalesce(place, -1), greatest(least(began, $until), $start) - $start AS since,
    greatest(least(stopped, $until), $start) - $start AS until, coalesce(number, -1),
    CASE WHEN retried AND state = 'failed' THEN 'retried' ELSE state END, task_id, attempt,
    duration_s IS NULL AND state <> 'running' AS unmeasured, span_id, left(args, {characters})
FROM drawn_items LEFT JOIN places USING (worker) LEFT JOIN chosen USING (task)
WHERE began IS NOT NULL ORDER BY place, since, until DESC, task_id, attempt
"""


class OneByOne(NamedTuple):
    """The bars and their rows; `lane_of` has the row of each attempt."""

    lanes: list[TimelineRow]
    bars: Bars
    lane_of: dict[tuple[str, int], int]
    of_worker: dict[str, int]
    """The first row of each worker that has one."""
    tops: list[Top]
    """What spans may be inside of."""


def bars(
    tables: RunTables,
    frame: TimeWindow,
    workers: Sequence[str],
    hosts: Mapping[str, str | None],
    nowhere: str,
) -> OneByOne | None:
    """All pieces of `drawn_items` whose time is known, by row and start; what lies outside of the frame is
    cut off.

    An attempt without a measured duration is taken to end at the next event of its worker: where it
    overlaps the next one by less than can be seen, both are on one row. Where there are too many rows,
    workers that ran nothing have none; None where there are still too many.
    """
    statement = _ROWS.format(characters=ChartLimits.max_read_argument_characters)
    rows = tables.execute(statement, {"start": frame.start, "until": frame.until}).fetchall()
    unseen = frame.length // _UNSEEN
    placed = [
        (place, since, max(since, until - unseen) if unmeasured else until)
        for place, since, until, _, _, _, _, unmeasured, *_ in rows
    ]
    packed = pack(placed, workers, hosts, nowhere)
    if len(packed.lanes) > ChartLimits.max_rows:
        packed = pack(placed, workers, hosts, nowhere, idle=False)
    if len(packed.lanes) > ChartLimits.max_rows:
        return None
    order = sorted(range(len(rows)), key=lambda n: (packed.lane[n], rows[n][1]))
    return OneByOne(
        packed.lanes,
        Bars(
            lane=[packed.lane[n] for n in order],
            start_s=[rows[n][1] / SECOND for n in order],
            length_s=[(rows[n][2] - rows[n][1]) / SECOND for n in order],
            name=[drawn_apart(rows[n][3]) for n in order],
            state=[rows[n][4] for n in order],
            task_id=[cut(rows[n][5] or "", ChartLimits.max_name_characters) for n in order],
            attempt=[rows[n][6] for n in order],
            args=args if any(args := [arguments_in_a_line(rows[n][9]) for n in order]) else [],
        ),
        {(row[5], row[6]): lane for row, lane in zip(rows, packed.lane, strict=True)},
        packed.of_worker,
        [Top(row[8], lane, row[1]) for row, lane in zip(rows, packed.lane, strict=True) if row[8]],
    )


def arguments_in_a_line(args: str | None) -> str:
    """`seed=3, name=base` of a JSON object, cut where it is long; the text itself where it is no such
    object.
    """
    if not args or args == "{}":
        return ""
    try:
        found = msgspec.json.decode(args, type=dict[str, Any])
    except msgspec.DecodeError:  # cut off before its end, or not ours
        return cut(args, ChartLimits.max_argument_characters)
    return args_text(found, ChartLimits.max_argument_characters)


_PIXELS = 1000
"""Approximate width of a timeline on a screen."""


def timeline(
    context: ReportContext, frame: TimeWindow, pieces: TimelineItems, hosts: Mapping[str, str | None]
) -> Timeline:
    """The timeline of what `lay_out_items` laid out; one by one where they are few enough, and fit onto the
    rows without overlapping.
    """
    tables, workers = context.tables, pieces.workers
    nowhere = "spans" if pieces.what == "spans" else "no known worker" if workers else "tasks"
    single: OneByOne | None = None
    density: Cells | None = None
    inside: Nested | None = None
    lanes: list[TimelineRow] = []
    marked = Marked([], 0)
    if 0 < pieces.placed <= ChartLimits.max_drawn_attempts:
        single = bars(tables, frame, workers, hosts, nowhere)
    if single is not None:
        lanes, rows = single.lanes, single.lane_of
        inside = nested(tables, frame, single.tops, len(lanes))
        marked = marks(tables, frame, pieces.what, lambda _, *one: rows[one], single.of_worker.get)
    elif pieces.placed:
        astray = tables.scalar("SELECT count(*) FROM drawn WHERE place < 0 AND since IS NOT NULL")
        merged = merge_lanes(workers, hosts, nowhere if astray else None)
        lanes, density = merged.lanes, cells(tables, frame, merged)
        row_of = dict(zip(workers, merged.of_place, strict=False))
        marked = marks(tables, frame, pieces.what, lambda place, *_: merged.of_place[place], row_of.get)
    apart = outside(tables, frame, context.run.info.span_id) if pieces.what == "attempts" else None
    failures = tables.scalar("SELECT count(*) FROM drawn_items WHERE state = 'failed'")
    return Timeline(
        since=frame.since,
        length_s=frame.length_s,
        names=pieces.names,
        lanes=lanes,
        bars=single.bars if single is not None else None,
        cells=density,
        marks=marked.marks,
        attempts=pieces.total,
        workers=len(workers),
        failures=failures,
        notes=[
            *_notes(pieces, lanes, workers, marked, single, density),
            *(_notes_on_bars(single, frame) if single is not None else []),
        ],
        notes_on_spans=_notes_on_spans(tables, inside, apart),
        nested=inside,
        outside=apart,
    )


def _notes(
    pieces: TimelineItems,
    lanes: Sequence[TimelineRow],
    workers: Sequence[str],
    marked: Marked,
    single: OneByOne | None,
    density: Cells | None,
) -> Iterator[str]:
    if density is not None:
        few = pieces.placed <= ChartLimits.max_drawn_attempts
        why = ", as more of them ran side by side than there are rows" if few else ""
        yield (
            f"This shows density and not single {pieces.what}: {_many(pieces.placed, pieces.what)} drawn by "
            f"stretches of time{why}; a stretch has the colour of the name that held it longest."
        )
    if (shared := sum(lane.merged for lane in lanes if lane.merged > 1)) > 0:
        rows = sum(lane.merged > 1 for lane in lanes)
        yield f"{shared:,} of {len(workers):,} workers share {rows} rows."
    if single is not None and (idle := len(workers) - len(single.of_worker)) > 0:
        yield f"{_many(idle, 'workers')} not drawn: nothing ran there."
    if pieces.others:
        yield f"{_many(pieces.others, 'names')} drawn in one colour: those that took the least time."
    if pieces.pending:
        yield f"{_many(pieces.pending, pieces.what)} not drawn: not begun."
    if (unknown := pieces.total - pieces.pending - pieces.placed) > 0:
        yield f"{_many(unknown, pieces.what)} not drawn: it is not known when they ran."
    if pieces.outside:
        yield (
            f"{_many(pieces.outside, pieces.what)} cut off: by their clocks they began before the run or "
            "ended after it."
        )
    if marked.total > len(marked.marks):
        yield (
            f"{len(marked.marks):,} of {marked.total:,} failures, retries, cancellations and lost workers "
            "are marked."
        )


def _notes_on_spans(tables: RunTables, *drawn: Nested | None) -> list[str]:
    """How many spans are not drawn."""
    spans = tables.scalar("SELECT count(*) FROM span_intervals ANTI JOIN drawn_items USING (span_id)")
    if (left := spans - sum(len(one.lane) for one in drawn if one is not None)) <= 0:
        return []
    return [
        f"{_many(left, 'spans')} not drawn, for want of room, of a known parent or of a time within the run."
    ]


def _notes_on_bars(single: OneByOne, frame: TimeWindow) -> Iterator[str]:
    """How many rows have nothing on them, and whether some look fuller than they are, for nothing that is
    drawn is narrower than a pixel.
    """
    empty = len({*range(len(single.lanes))} - {*single.bars.lane})
    if empty:
        whose = "on that worker" if empty == 1 else "on those workers"
        yield f"{_many(empty, 'rows')} empty: nothing ran {whose}."
    least_s = frame.length_s / _PIXELS
    short = Counter(
        lane for lane, length in zip(single.bars.lane, single.bars.length_s, strict=True) if length < least_s
    )
    if max(short.values(), default=0) > _PIXELS // 10:
        yield (
            f"Bars of less than {format_duration(least_s)} are drawn wider than they are: rows look busier "
            "than the workers were."
        )


def _many(number: int, what: str) -> str:
    return f"{number:,} {what} are" if number != 1 else f"1 {what.removesuffix('s')} is"


_CELLS = """
WITH timeline_items AS (
    SELECT ($lanes::SMALLINT[])[CASE WHEN place < 0 THEN len($lanes) ELSE place + 1 END] AS lane, name, since,
        until
    FROM drawn WHERE since IS NOT NULL
), steps AS (
    SELECT lane, name, least(since, $length - 1) // $width AS stretch, count(*) AS running,
        sum(since)::HUGEINT AS moments, count(*) AS began,
        0 AS ended FROM timeline_items GROUP BY ALL
    UNION ALL
    SELECT lane, name, until // $width, -count(*), -sum(until)::HUGEINT, 0, 0 FROM timeline_items GROUP BY ALL
    UNION ALL -- what ends where a stretch begins is not under way in it
    SELECT lane, name, least(greatest(since, until - 1), $length - 1) // $width, 0, 0, 0, count(*)
        FROM timeline_items
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


def cells(tables: RunTables, frame: TimeWindow, merged: MergedRows) -> Cells:
    """The pieces in `drawn` by row and stretch, in this order; empty ones are left out.

    The sum of `busy` times length times the workers of its row is the time of all pieces.
    """
    stretches = frame.stretches(ChartLimits.max_cells_per_row)
    width, count, length = stretches
    found: list[_Cell] = []
    for lane, stretch, *rest in tables.rows(
        _CELLS, {"lanes": merged.of_place, "width": width, "count": count, "length": length}
    ):
        cell = _Cell(stretches, merged.lanes[lane].merged, lane, stretch, *rest)
        if found and found[-1].takes(cell):
            found[-1].grow(cell)
        else:
            found.append(cell)
    return Cells(
        lane=[one.lane for one in found],
        start_s=[one.since / SECOND for one in found],
        length_s=[(one.until - one.since) / SECOND for one in found],
        name=[one.name for one in found],
        attempts=[one.began - one.ended for one in found],
        busy=[round(one.busy, 9) for one in found],
    )


class _Cell:
    """One stretch of a row, or several that are next to each other."""

    def __init__(self, stretches: Stretches, workers: int, lane: int, stretch: int, *rest: Any) -> None:
        self.lane, self._workers = lane, workers
        self._stretch, self._next = stretch, stretch + 1
        self.since, self.until = stretches.begins(stretch), stretches.begins(stretch + 1)
        name, self._work, self.began, self.ended = rest
        self.name = drawn_apart(name)
        self._first = self.busy

    @property
    def busy(self) -> float:
        """How many ran at once for each worker, on average."""
        return float(self._work) / (self.until - self.since) / self._workers

    def takes(self, other: _Cell) -> bool:
        """Whether it looks the same, and is next to this one."""
        beside = (other.lane, other._stretch, other.name) == (self.lane, self._next, self.name)
        most = ChartLimits.merged_load_difference * max(1.0, self._first)
        return beside and abs(other.busy - self._first) <= most

    def grow(self, other: _Cell) -> None:
        """Take it in."""
        self._next, self.until, self.began = other._next, other.until, other.began
        self._work += other._work


_ENDED_BADLY = """
CREATE OR REPLACE TEMP TABLE ended_badly AS
WITH found AS (
    SELECT task, task_id, attempt, coalesce(place, -1) AS place, error_type,
        CASE WHEN state = 'cancelled' THEN 'cancelled' WHEN retried THEN 'retried' ELSE 'failed' END AS kind,
        greatest(least(stopped, $until), $start) - $start AS moment
    FROM drawn_items LEFT JOIN places USING (worker)
    WHERE state IN ('failed', 'cancelled') AND stopped IS NOT NULL
)
SELECT *, count(*) OVER () AS total FROM found
-- the first of each stretch of time before the second of any, so that a burst does not hide what came later
ORDER BY row_number() OVER (PARTITION BY moment // $width
    ORDER BY kind = 'cancelled', moment, task_id, attempt), moment, task_id, attempt
LIMIT $most
"""

_WITH_ERRORS = """
SELECT left(task, 201), task_id, attempt, place, error_type, kind, moment, total, left(told.message, 2000)
    FROM ended_badly
    LEFT JOIN (
        SELECT task_id, attempt, arg_min(message, told_at) AS message FROM ({errors})
        SEMI JOIN ended_badly USING (task_id) GROUP BY ALL
    ) AS told USING (task_id, attempt)
ORDER BY moment, task_id, attempt
"""
_ERRORS = {
    "attempts": """
        SELECT task_id, coalesce(attempt, 1) AS attempt, message, "timestamp" AS told_at FROM failures
    """,
    "spans": """
        SELECT span_id AS task_id, 1 AS attempt, concat_ws(': ', error_type, error_message) AS message,
            "timestamp" AS told_at
        FROM span_events WHERE status = 'error'
    """,
}
"""Where the error messages of each are recorded."""


class Marked(NamedTuple):
    """The marks by time, and how many there would be of all."""

    marks: list[TimelineMark]
    total: int


def marks(
    tables: RunTables,
    frame: TimeWindow,
    what: str,
    lane_of: Callable[[int, str, int], int],
    lane_of_worker: Callable[[str], int | None],
) -> Marked:
    """Failures, retries, cancellations and lost workers, spread evenly over time where there are
    more than `ChartLimits.max_marks`.

    `what` is of `attempts` or `spans`. `lane_of` gives the row of an attempt by its place, id and number.
    """
    lost = tables.execute(
        f"""
        SELECT at_ns("timestamp") AS moment, worker, {LOST_FOR} FROM workers
        WHERE event = 'worker_lost' AND moment IS NOT NULL ORDER BY ALL
        """  # noqa: S608 - a constant
    ).fetchall()
    most = ChartLimits.max_lost_worker_marks
    few = [lost[len(lost) * n // most] for n in range(most)] if len(lost) > most else lost
    found = [
        TimelineMark(
            lane=lane,
            at_s=min(max(at - frame.start, 0), frame.length) / SECOND,
            kind="lost",
            task="",
            task_id=None,
            text=cut(reason, ChartLimits.max_error_characters),
        )
        for at, worker, reason in few
        if (lane := lane_of_worker(worker)) is not None
    ]
    width = frame.stretches(ChartLimits.max_mark_intervals).width
    most = ChartLimits.max_marks - len(found)
    tables.execute(_ENDED_BADLY, {"start": frame.start, "until": frame.until, "most": most, "width": width})
    total = len(lost)
    if tables.scalar("SELECT count(*) FROM ended_badly") == 0:
        return Marked(found, total)
    rows = tables.rows(_WITH_ERRORS.format(errors=_ERRORS[what]))
    for task, task_id, attempt, place, error, kind, at, of, message in rows:
        total = len(lost) + of
        found.append(
            TimelineMark(
                lane=lane_of(place, task_id, attempt),
                at_s=at / SECOND,
                kind=kind,
                task=cut(task or "", ChartLimits.max_name_characters),
                task_id=cut(task_id, ChartLimits.max_name_characters),
                text=_in_a_line(error, message),
            )
        )
    return Marked(sorted(found, key=lambda mark: (mark.at_s, mark.lane)), total)


def _in_a_line(error: str | None, message: str | None) -> str:
    said = " ".join((message or "").split())
    if error and said and not said.startswith(error):
        said = f"{error}: {said}"
    return cut(said or error or "", ChartLimits.max_error_characters)


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
WHERE {_WITHIN} AND (child.parent_id IS NULL OR child.parent_id = {{root}})
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
    return left if depth == ChartLimits.max_span_levels else left * 3 // 4


class _Span(NamedTuple):
    span_id: str
    parent_id: str | None
    lane: int
    depth: int
    since: int
    until: int
    name: str
    state: str


def nested(tables: RunTables, frame: TimeWindow, tops: Sequence[Top], lanes: int) -> Nested | None:
    """The spans inside of these bars, which take `lanes` rows; None where there is none, or no room for
    any.

    Spans of one level that overlap, such as those of threads, have rows of their own.
    """
    tables.execute(
        _TOPS, [[top.span_id for top in tops], [top.lane for top in tops], [top.since for top in tops]]
    )
    inside = tables.scalar(
        "SELECT count(*) FROM span_intervals SEMI JOIN tops ON tops.span_id = span_intervals.parent_id"
    )
    if not inside:
        return None
    levels = _levels(tables, frame, 1, "tops", ChartLimits.max_nested_spans)
    return _laid_out(levels, lanes, ChartLimits.max_rows_with_spans - lanes)


def outside(tables: RunTables, frame: TimeWindow, root: str | None) -> Nested | None:
    """The spans inside of no attempt of `drawn_items`, and of nothing else but the run, whose own span is
    `root`, level by level.

    All are on one lane. None where there is none. Those that find no row free are left out, and what is
    inside of them.
    """
    within = "NULL" if root is None else text(root)
    found = _level(tables, frame, 1, _share(ChartLimits.max_outside_spans, 1), _OUTERMOST, root=within)
    if found:
        found += _levels(tables, frame, 2, "level_1", ChartLimits.max_outside_spans - len(found))
    return _laid_out(_fitting(found, ChartLimits.max_outside_rows), 1, ChartLimits.max_outside_rows)


def _fitting(found: Sequence[_Span], most_rows: int) -> list[_Span]:
    """Those of one lane that fit on `most_rows` rows, of which each level keeps at least one."""
    by_depth = grouped((span.depth, span) for span in found)
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
    """Those that fit on `rows` rows, in their order; longer ones are placed first."""
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


def _levels(tables: RunTables, frame: TimeWindow, first: int, parents: str, most: int) -> list[_Span]:
    """Spans inside of `parents` level by level, from that number on."""
    found: list[_Span] = []
    for depth in range(first, ChartLimits.max_span_levels + 1):
        level = _level(tables, frame, depth, _share(most - len(found), depth), _LEVEL, parents=parents)
        if not level:
            break
        found += level
        parents = f"level_{depth}"
    return found


def _level(
    tables: RunTables, frame: TimeWindow, depth: int, most: int, statement: str, **others: str
) -> list[_Span]:
    """The spans of a level, which becomes a table, by lane and in order of starts."""
    characters = ChartLimits.max_name_characters
    frames = {"start": frame.start, "until": frame.until, "characters": characters + 1}
    tables.execute(statement.format(depth=depth, most=most, **frames, **others))
    rows = tables.rows(
        f"""
        SELECT span_id, parent_id, lane, {depth}, since, until, name,
            CASE WHEN open THEN 'running' WHEN failed THEN 'failed' ELSE 'completed' END
        FROM level_{depth} ORDER BY lane, since, until DESC, span_id
        """  # noqa: S608 - a number
    )
    return [_Span(*row)._replace(name=cut(row[6], characters)) for row in rows]


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
    times: Counter[str] = Counter()
    for span in found:
        times[span.name] += span.until - span.since
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
    used: defaultdict[tuple[int, int], Lanes] = defaultdict(Lanes)
    rows = [used[span.lane, span.depth].take(span.since, span.until) for span in spans]  # in order of starts
    return rows, {level: lanes.number for level, lanes in used.items()}


def _ends(span: _Span) -> int:
    """When its row is free again; one without a length holds it for a moment, too."""
    return max(span.until, span.since + 1)
