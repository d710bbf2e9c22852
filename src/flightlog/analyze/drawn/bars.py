"""Attempts one by one, each on a row where nothing else runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flightlog.analyze.drawn.frame import Frame, cut
from flightlog.analyze.drawn.lanes import LANES, pack
from flightlog.analyze.drawn.nested import Top
from flightlog.analyze.drawn.pieces import drawn_apart
from flightlog.analyze.drawn.results import Bars, Lane
from flightlog.analyze.moments import SECOND

if TYPE_CHECKING:
    import duckdb

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
FROM to_draw LEFT JOIN places USING (worker) LEFT JOIN chosen USING (task)
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
    frame: Frame,
    workers: Sequence[str],
    hosts: Mapping[str, str | None],
    nowhere: str,
    most: int = LANES,
) -> OneByOne | None:
    """All pieces of `to_draw` whose time is known, by row and start; what lies outside of the frame is cut
    off.

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
