"""Which tasks ran where, and when: one by one where they are few, else by stretches of time; failures as
marks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flightlog.analyze.charts.layout import (
    LANES,
    Merged,
    Stretches,
    TimelineItems,
    TimeWindow,
    cut,
    drawn_apart,
    merge_lanes,
    pack,
)
from flightlog.analyze.charts.nested_spans import Top, nested, outside
from flightlog.analyze.charts.results import Bars, Cells, Lane, Mark, Nested, Timeline
from flightlog.analyze.report.workers import WorkerTally
from flightlog.core.time import SECOND
from flightlog.core.units import format_duration

if TYPE_CHECKING:
    import duckdb

    from flightlog.analyze.report.report import ReportContext

ONE_BY_ONE = 5000
"""So many are drawn one by one."""
ARGUMENTS = 120
"""So many characters of a task's arguments are shown."""
_READ = 2000
"""So many are looked at."""
_UNSEEN = 1000
"""This part of the time drawn cannot be seen."""

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

    lanes: list[Lane]
    bars: Bars
    lane_of: dict[tuple[str, int], int]
    of_worker: dict[str, int]
    """The first row of each worker that has one."""
    tops: list[Top]
    """What spans may be inside of."""


def bars(
    connection: duckdb.DuckDBPyConnection,
    frame: TimeWindow,
    workers: Sequence[str],
    hosts: Mapping[str, str | None],
    nowhere: str,
    most: int = LANES,
) -> OneByOne | None:
    """All pieces of `drawn_items` whose time is known, by row and start; what lies outside of the frame is
    cut off.

    What measured no duration ended, for all that is known, when its worker's next step was told: where it
    overlaps the next one by less than can be seen, both are on one row. Where there are more than `most`
    rows, workers that were never at work have none; None where it is too many then, too.
    """
    rows = connection.execute(
        _ROWS.format(characters=_READ), {"start": frame.start, "until": frame.until}
    ).fetchall()
    unseen = frame.length // _UNSEEN
    placed = [
        (place, since, max(since, until - unseen) if unmeasured else until)
        for place, since, until, _, _, _, _, unmeasured, *_ in rows
    ]
    packed = pack(placed, workers, hosts, nowhere)
    if len(packed.lanes) > most:
        packed = pack(placed, workers, hosts, nowhere, idle=False)
    if len(packed.lanes) > most:
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
            task_id=[cut(rows[n][5] or "") for n in order],
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
        return cut(args, ARGUMENTS)
    told = (
        f"{name}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for name, value in found.items()
    )
    return cut(", ".join(told), ARGUMENTS)


_PIXELS = 1000
"""About so wide is a timeline on a screen."""


def timeline(
    context: ReportContext,
    frame: TimeWindow,
    pieces: TimelineItems,
    hosts: Mapping[str, str | None],
    *,
    root: str | None = None,
    one_by_one: int = ONE_BY_ONE,
    most_lanes: int = LANES,
) -> Timeline:
    """The timeline of what `lay_out_items` laid out.

    `root` is the id of the run's own span. One by one where at most `one_by_one` pieces fit onto `most_lanes`
    rows without overlapping.
    """
    connection, workers = context.connection, pieces.workers
    nowhere = _nowhere(pieces, workers)
    single: OneByOne | None = None
    density: Cells | None = None
    lanes: list[Lane] = []
    marked = Marked([], 0)
    inside: Nested | None = None
    if 0 < pieces.placed <= one_by_one:
        single = bars(connection, frame, workers, hosts, nowhere, most_lanes)
    if single is not None:
        lanes, rows = single.lanes, single.lane_of
        inside = nested(connection, frame, single.tops, len(lanes))
        marked = marks(
            connection,
            frame,
            pieces.what,
            context.workers,
            lambda _, task_id, attempt: rows[task_id, attempt],
            single.of_worker.get,
        )
    elif pieces.placed:
        [(astray,)] = connection.execute(
            "SELECT count(*) FROM drawn WHERE place < 0 AND since IS NOT NULL"
        ).fetchall()
        merged = merge_lanes(workers, hosts, nowhere if astray else None, most_lanes)
        row_of = dict(zip(workers, merged.of_place, strict=False))
        lanes = merged.lanes
        density = cells(connection, frame, merged)
        marked = marks(
            connection,
            frame,
            pieces.what,
            context.workers,
            lambda place, _task_id, _attempt: merged.of_place[place],
            row_of.get,
        )
    apart = outside(connection, frame, root) if pieces.what == "attempts" else None
    [(failures,)] = connection.execute("SELECT count(*) FROM drawn_items WHERE state = 'failed'").fetchall()
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
            *_notes_on_rows(single),
            *_notes_on_width(single, frame),
        ],
        notes_on_spans=_notes_on_spans(connection, inside, apart),
        nested=inside,
        outside=apart,
    )


def _nowhere(pieces: TimelineItems, workers: Sequence[str]) -> str:
    if pieces.what == "spans":
        return "spans"
    return "no known worker" if workers else "tasks"


def _notes(
    pieces: TimelineItems,
    lanes: Sequence[Lane],
    workers: Sequence[str],
    marked: Marked,
    single: OneByOne | None,
    density: Cells | None,
) -> list[str]:
    notes = []
    if density is not None:
        why = "" if pieces.placed > ONE_BY_ONE else ", as more of them ran side by side than there are rows"
        notes.append(
            f"This shows density and not single {pieces.what}: {_many(pieces.placed, pieces.what)} drawn by "
            f"stretches of time{why}; a stretch has the colour of the name that held it longest."
        )
    if (shared := sum(lane.merged for lane in lanes if lane.merged > 1)) > 0:
        rows = sum(lane.merged > 1 for lane in lanes)
        notes.append(f"{shared:,} of {len(workers):,} workers share {rows} rows.")
    if single is not None and (idle := len(workers) - len(single.of_worker)) > 0:
        notes.append(f"{_many(idle, 'workers')} not drawn: nothing ran there.")
    if pieces.others:
        notes.append(f"{_many(pieces.others, 'names')} drawn in one colour: those that took the least time.")
    if pieces.pending:
        notes.append(f"{_many(pieces.pending, pieces.what)} not drawn: not begun.")
    if (unknown := pieces.total - pieces.pending - pieces.placed) > 0:
        notes.append(f"{_many(unknown, pieces.what)} not drawn: it is not known when they ran.")
    if pieces.outside:
        notes.append(
            f"{_many(pieces.outside, pieces.what)} cut off: by their clocks they began before the run or "
            "ended after it."
        )
    if marked.total > len(marked.marks):
        notes.append(
            f"{len(marked.marks):,} of {marked.total:,} failures, retries, cancellations and lost workers "
            "are marked."
        )
    return notes


def _notes_on_spans(connection: duckdb.DuckDBPyConnection, *drawn: Nested | None) -> list[str]:
    """How many spans are not drawn."""
    [(spans,)] = connection.execute(
        "SELECT count(*) FROM span_intervals ANTI JOIN drawn_items USING (span_id)"
    ).fetchall()
    if (left := spans - sum(len(one.lane) for one in drawn if one is not None)) <= 0:
        return []
    return [
        f"{_many(left, 'spans')} not drawn, for want of room, of a known parent or of a time within the run."
    ]


def _notes_on_rows(single: OneByOne | None) -> list[str]:
    """How many rows have nothing on them."""
    if single is None:
        return []
    used = {*single.bars.lane}
    empty = sum(number not in used for number in range(len(single.lanes)))
    if not empty:
        return []
    rows = (
        f"{empty:,} rows are empty: nothing ran on those workers"
        if empty != 1
        else "1 row is empty: nothing ran on that worker"
    )
    return [f"{rows}."]


def _notes_on_width(single: OneByOne | None, frame: TimeWindow) -> list[str]:
    """Whether rows look fuller than they are, for nothing that is drawn is narrower than a pixel."""
    if single is None:
        return []
    least_s = frame.length_s / _PIXELS
    short = Counter(
        lane for lane, length in zip(single.bars.lane, single.bars.length_s, strict=True) if length < least_s
    )
    if max(short.values(), default=0) <= _PIXELS // 10:
        return []
    return [
        f"Bars of less than {format_duration(least_s)} are drawn wider than they are: rows look busier "
        "than the workers were."
    ]


def _many(number: int, what: str) -> str:
    return f"{number:,} {what} are" if number != 1 else f"1 {what.removesuffix('s')} is"


COLUMNS = 400
"""At most so many stretches."""
NEAR = 0.05
"""Neighbouring cells of one name become one where their load is this close to that of the first."""

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


def cells(
    connection: duckdb.DuckDBPyConnection,
    frame: TimeWindow,
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


MARKS = 500
"""At most so many, of all kinds together."""
LOST = 100
"""Of those, workers that were lost."""
ERROR_CHARACTERS = 300
"""So much of an error is shown."""
_STRETCHES = 100

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
"""Where the errors of each are told."""


class Marked(NamedTuple):
    """The marks by time, and how many there would be of all."""

    marks: list[Mark]
    total: int


def marks(
    connection: duckdb.DuckDBPyConnection,
    frame: TimeWindow,
    what: str,
    workers: WorkerTally,
    lane_of: Callable[[int, str, int], int],
    lane_of_worker: Callable[[str], int | None],
) -> Marked:
    """What went wrong, from `drawn_items` and from where errors are told; evenly over time where there is
    more than is marked.

    `what` is of `attempts` or `spans`. `lane_of` gives the row of an attempt by its place, id and number.
    """
    lost = workers.losses()
    few = [lost[len(lost) * n // LOST] for n in range(LOST)] if len(lost) > LOST else lost
    found = [
        Mark(
            lane=lane,
            at_s=min(max(at - frame.start, 0), frame.length) / SECOND,
            kind="lost",
            task="",
            task_id=None,
            text=cut(reason, ERROR_CHARACTERS),
        )
        for at, worker, reason in few
        if (lane := lane_of_worker(worker)) is not None
    ]
    connection.execute(
        _ENDED_BADLY,
        {
            "start": frame.start,
            "until": frame.until,
            "most": MARKS - len(found),
            "width": frame.stretches(_STRETCHES).width,
        },
    )
    total = len(lost)
    if connection.execute("SELECT count(*) FROM ended_badly").fetchone() == (0,):
        return Marked(found, total)
    for task, task_id, attempt, place, error, kind, at, of, message in connection.execute(
        _WITH_ERRORS.format(errors=_ERRORS[what])
    ).fetchall():
        total = len(lost) + of
        found.append(
            Mark(
                lane=lane_of(place, task_id, attempt),
                at_s=at / SECOND,
                kind=kind,
                task=cut(task or ""),
                task_id=cut(task_id),
                text=_in_a_line(error, message),
            )
        )
    return Marked(sorted(found, key=lambda mark: (mark.at_s, mark.lane)), total)


def _in_a_line(error: str | None, message: str | None) -> str:
    said = " ".join((message or "").split())
    if error and said and not said.startswith(error):
        said = f"{error}: {said}"
    return cut(said or error or "", ERROR_CHARACTERS)
