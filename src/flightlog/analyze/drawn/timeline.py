"""Which tasks ran where, and when: one by one where they are few, else by stretches of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flightlog.analyze.drawn.bars import ONE_BY_ONE, OneByOne, bars
from flightlog.analyze.drawn.cells import cells
from flightlog.analyze.drawn.frame import Frame
from flightlog.analyze.drawn.lanes import LANES, merge_lanes
from flightlog.analyze.drawn.marks import Marked, marks
from flightlog.analyze.drawn.nested import nested, outside
from flightlog.analyze.drawn.pieces import Pieces
from flightlog.analyze.drawn.results import Cells, Lane, Nested, Timeline
from flightlog.units import format_duration

if TYPE_CHECKING:
    import duckdb

    from flightlog.analyze.ground import Ground

_PIXELS = 1000
"""About so wide is a timeline on a screen."""


def timeline(
    ground: Ground,
    frame: Frame,
    pieces: Pieces,
    hosts: Mapping[str, str | None],
    *,
    root: str | None = None,
    one_by_one: int = ONE_BY_ONE,
    most_lanes: int = LANES,
) -> Timeline:
    """The timeline of what `lay_out_pieces` laid out.

    `root` is the id of the run's own span. One by one where at most `one_by_one` pieces fit onto `most_lanes`
    rows without overlapping.
    """
    connection, workers = ground.connection, pieces.workers
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
            ground.workers,
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
            ground.workers,
            lambda place, _task_id, _attempt: merged.of_place[place],
            row_of.get,
        )
    apart = outside(connection, frame, root) if pieces.what == "attempts" else None
    [(failures,)] = connection.execute("SELECT count(*) FROM to_draw WHERE state = 'failed'").fetchall()
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


def _nowhere(pieces: Pieces, workers: Sequence[str]) -> str:
    if pieces.what == "spans":
        return "spans"
    return "no known worker" if workers else "tasks"


def _notes(
    pieces: Pieces,
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
    [(spans,)] = connection.execute("SELECT count(*) FROM timed ANTI JOIN to_draw USING (span_id)").fetchall()
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


def _notes_on_width(single: OneByOne | None, frame: Frame) -> list[str]:
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
