"""Layout of charts: the time window and its stretches, the rows of a timeline, and the items on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from flightlog.analyze.charts.results import Chart, ChartSeries, TimelineRow, Unit
from flightlog.analyze.limits import ChartLimits
from flightlog.core.intervals import Lanes
from flightlog.core.text import cut, natural_key
from flightlog.core.time import SECOND, timestamp_of

if TYPE_CHECKING:
    from flightlog.analyze.report.summary import ReportContext
    from flightlog.store.tables.run_tables import RunTables


_ATTEMPTS = """
CREATE OR REPLACE TEMP VIEW drawn_items AS
SELECT task, task_id, attempt, worker, state, retried, began, stopped, waits, queue_s, duration_s, error_type,
    span_id, args
FROM attempt_intervals
"""

_OUTERMOST = """
CREATE OR REPLACE TEMP TABLE outermost AS
SELECT name, span_id, status, "open", began, stopped, lasted, NULL::VARCHAR AS worker
FROM span_intervals AS child ANTI JOIN span_intervals AS parent ON parent.span_id = child.parent_id
    AND parent.span_id <> child.span_id
"""

_INSIDE = """
INSERT INTO outermost SELECT name, span_id, status, "open", began, stopped, lasted, NULL FROM span_intervals
WHERE parent_id = (SELECT min(span_id) FROM outermost) AND span_id <> parent_id
"""

_PROCESSES = """
UPDATE outermost SET worker = wrote.worker FROM (
    SELECT span_id, min(names.worker) AS worker FROM span_events JOIN (
        SELECT unnest($1::VARCHAR[]) AS writer, unnest($2::VARCHAR[]) AS worker
    ) AS names USING (writer) GROUP BY span_id
) AS wrote WHERE wrote.span_id = outermost.span_id
"""

_SPANS = """
CREATE OR REPLACE TEMP VIEW drawn_items AS
SELECT name AS task, span_id AS task_id, 1 AS attempt, worker,
    CASE WHEN "open" THEN 'running' WHEN status = 'error' THEN 'failed' ELSE 'completed' END AS state,
        false AS retried,
    began, stopped, NULL::BIGINT AS waits, NULL::DOUBLE AS queue_s, lasted / 1e9 AS duration_s,
    NULL::VARCHAR AS error_type, span_id, NULL::VARCHAR AS args
FROM outermost
"""

_PLACES = """
CREATE OR REPLACE TEMP TABLE places AS
SELECT unnest($1::VARCHAR[]) AS worker, unnest(range(len($1::VARCHAR[]))) AS place
"""

_CHOSEN = """
CREATE OR REPLACE TEMP TABLE chosen AS
SELECT task, row_number() OVER (ORDER BY total DESC NULLS LAST, task) - 1 AS number FROM (
    SELECT task, sum(stopped - began) AS total FROM drawn_items GROUP BY task ORDER BY total DESC NULLS LAST,
        task LIMIT {names}
)
"""

_PIECES = """
CREATE OR REPLACE TEMP TABLE drawn AS
SELECT coalesce(place, -1)::INTEGER AS place, coalesce(number, -1)::TINYINT AS name,
    CASE WHEN began IS NOT NULL THEN greatest(least(began, {until}), {start}) - {start} END AS since,
    CASE WHEN began IS NOT NULL THEN greatest(least(stopped, {until}), {start}) - {start} END AS until,
    CASE WHEN (began IS NOT NULL OR state = 'pending') AND waits < coalesce(began, {until})
        THEN greatest(least(waits, {until}), {start}) - {start} END AS waits,
    greatest(least(coalesce(began, {until}), {until}), {start}) - {start} AS waited,
    CASE WHEN queue_s >= 0 AND isfinite(queue_s) THEN queue_s END AS queue_s,
    CASE WHEN isfinite(duration_s) THEN greatest(duration_s, 0) END AS duration_s,
    state = 'pending' AS pending, began < {start} OR stopped > {until} AS outside
FROM drawn_items LEFT JOIN places USING (worker) LEFT JOIN chosen USING (task)
"""
"""A few dozen bytes of each, so that all drawings ask this table and read nothing again. Times are
nanoseconds from the start on, and none lies outside of what is drawn."""


_COUNTS = """
SELECT count(*) AS total, count(since) AS placed, count(*) FILTER (pending) AS pending,
    count(*) FILTER (outside) AS outside FROM drawn
"""


class TimelineItems(NamedTuple):
    """What there is in the table `drawn`."""

    what: str
    """`attempts` or `spans`."""
    workers: Sequence[str]
    """By their places; of spans the processes, where there are several."""
    names: list[str]
    """Those that are drawn apart, by their number; other numbers stand for others."""
    others: int
    """How many names are not."""
    total: int
    placed: int
    """How many have a known time."""
    pending: int
    """How many had not begun."""
    outside: int
    """How many lie before the start or after the end, by their clocks."""


def lay_out_items(
    tables: RunTables, frame: TimeWindow, workers: Sequence[str], processes: Mapping[str, str] | None = None
) -> TimelineItems | None:
    """Make the view `drawn_items` and the table `drawn`, where workers have the numbers of their places; None
    where nothing ran.

    `processes` has the name of the process behind each writer, in order: where there are only spans, and
    several processes, those are their places. Where one span holds all others, those directly inside it are
    drawn, too.
    """
    what = "attempts"
    tables.execute(_ATTEMPTS)
    if tables.scalar("SELECT count(*) FROM attempt_intervals") == 0:
        what = "spans"
        tables.execute(_OUTERMOST)
        if tables.scalar("SELECT count(*) FROM outermost") == 1:
            tables.execute(_INSIDE)
        workers = []
        if processes is not None and len(processes) > 1:
            workers = list(dict.fromkeys(processes.values()))
            tables.execute(_PROCESSES, [list(processes), list(processes.values())])
        tables.execute(_SPANS)
    tables.execute(_PLACES, [list(workers)])
    tables.execute(_CHOSEN.format(names=ChartLimits.max_compared_names))
    tables.execute(_PIECES.format(start=frame.start, until=frame.until))
    [counts] = tables.records(_COUNTS)
    if not counts["total"]:
        return None
    characters = ChartLimits.max_name_characters + 1
    chosen = f"SELECT left(task, {characters}) FROM chosen ORDER BY number"  # noqa: S608 - a number
    names = tables.execute(chosen).fetchall()
    others = max(0, len(names) - ChartLimits.max_coloured_names)
    if len(names) == ChartLimits.max_compared_names:
        others += tables.scalar("SELECT count(DISTINCT task) FROM drawn_items ANTI JOIN chosen USING (task)")
    coloured = names[: ChartLimits.max_coloured_names]
    shown = [cut(name, ChartLimits.max_name_characters) for (name,) in coloured]
    return TimelineItems(what, workers, shown, others, **counts)


def drawn_apart(number: int) -> int:
    """The number of a name among those that are drawn apart; -1 for others."""
    return number if number < ChartLimits.max_coloured_names else -1


_EARLIEST = 365 * 86400 * SECOND
"""What begins before 1971 by a duration of centuries is noise."""


class TimeWindow(NamedTuple):
    """From `start`, nanoseconds since 1970, on for `length` nanoseconds, one at least."""

    start: int
    length: int

    @property
    def since(self) -> str:
        """When it begins."""
        return timestamp_of(self.start)

    @property
    def length_s(self) -> float:
        """How long it is."""
        return self.length / SECOND

    @property
    def until(self) -> int:
        """When it ends, nanoseconds since 1970."""
        return self.start + self.length

    def chart(self, unit: Unit, series: list[ChartSeries], notes: Sequence[str] = ()) -> Chart | None:
        """The chart of these lines; None where there is none."""
        if not series:
            return None
        since, length_s = self.since, self.length_s
        return Chart(since=since, length_s=length_s, unit=unit, series=series, notes=list(notes))

    def stretches(self, most: int) -> Stretches:
        """At most `most` intervals of equal length; the last one may be shorter."""
        width = -(-self.length // most)
        return Stretches(width, -(-self.length // width), self.length)


class Stretches(NamedTuple):
    """`number` stretches of `width` nanoseconds from 0 to `length`: a moment t lies in number t // width."""

    width: int
    number: int
    length: int

    def begins(self, number: int) -> int:
        """When it begins; the one after the last begins at the end."""
        return min(number * self.width, self.length)

    def bounds(self) -> list[int]:
        """When each begins, and the end of the last."""
        return [self.begins(n) for n in range(self.number + 1)]

    def middles_s(self) -> list[float]:
        """The middle of each, in seconds."""
        return [(since + until) / 2 / SECOND for since, until in pairwise(self.bounds())]


def frame_of(context: ReportContext) -> TimeWindow | None:
    """The time of the run; where its start or end is unknown, that of its attempts and spans. None where all
    is unknown.
    """
    start, until = context.tables.window
    if start is None or until is None or until <= start:
        [(first, last)] = context.tables.execute(
            """
            SELECT min(began), max(stopped) FROM (
                SELECT began, stopped FROM attempt_intervals UNION ALL SELECT began, stopped
                    FROM span_intervals
            )
            """
        ).fetchall()
        start = max(first, _EARLIEST) if start is None and first is not None else start
        until = max((moment for moment in (until, last) if moment is not None), default=None)
    if start is None:
        return None
    return TimeWindow(start, max(1, until - start if until is not None else 1))


def in_order(hosts: Mapping[str, str | None]) -> list[str]:
    """Workers by host, then by name; numbers in names by their value, so that 10 comes after 9."""
    return sorted(hosts, key=lambda name: (natural_key(hosts.get(name) or ""), natural_key(name), name))


class PackedRows(NamedTuple):
    """Rows of pieces that were packed, and the row of each piece; `of_worker` has the first row of each
    worker.
    """

    lanes: list[TimelineRow]
    lane: list[int]
    of_worker: dict[str, int]


def pack(
    pieces: Sequence[tuple[int, int, int]],
    workers: Sequence[str],
    hosts: Mapping[str, str | None],
    nowhere: str,
    *,
    idle: bool = True,
) -> PackedRows:
    """Rows on which no two pieces overlap: one for each worker, or as many as pieces ran side by side on it.

    A piece is its worker's place among `workers` (-1 for none that is known: those are in rows called
    `nowhere`), and its first and last nanosecond; pieces of a place are in order of their starts. Each goes
    to the first row that is free. Without `idle`, workers that have no piece have no row.
    """
    used: defaultdict[int, Lanes] = defaultdict(Lanes)
    rows = [used[place].take(since, until) for place, since, until in pieces]
    first: dict[int, int] = {}
    lanes: list[TimelineRow] = []
    for place in (*range(len(workers)), -1):
        count = used[place].number if place in used else int(place >= 0 and idle)
        first[place] = len(lanes)
        worker = workers[place] if place >= 0 else None
        shown, host = _shown(worker), _shown(hosts.get(worker or ""))
        label = nowhere if shown is None else shown
        lanes += [
            TimelineRow(label=label if count == 1 else f"{label} · {row + 1}", worker=shown, host=host)
            for row in range(count)
        ]
    lane = [first[place] + row for (place, _, _), row in zip(pieces, rows, strict=True)]
    drawn = {name: first[place] for place, name in enumerate(workers) if idle or place in used}
    return PackedRows(lanes, lane, drawn)


class MergedRows(NamedTuple):
    """Rows of workers, and the row of each place; that of pieces on no known worker is the last in
    `of_place`.
    """

    lanes: list[TimelineRow]
    of_place: list[int]


def merge_lanes(workers: Sequence[str], hosts: Mapping[str, str | None], nowhere: str | None) -> MergedRows:
    """A row for each worker; where there are more than rows, neighbours share one, and each row has about as
    many.

    `nowhere` is the label of the row for what ran on no worker that is known; None where there is nothing of
    that kind.
    """
    rows = min(len(workers), ChartLimits.max_rows - (nowhere is not None))
    lanes: list[TimelineRow] = []
    of_place: list[int] = []
    for row in range(rows):
        group = workers[len(workers) * row // rows : len(workers) * (row + 1) // rows]
        of_place += [row] * len(group)
        known = {hosts.get(name) for name in group}
        one = _shown(group[0]) if len(group) == 1 else None
        lanes.append(
            TimelineRow(
                label=one or f"{cut(group[0], 60)} to {cut(group[-1], 60)}",
                worker=one,
                host=_shown(known.pop()) if len(known) == 1 else None,
                merged=len(group),
            )
        )
    of_place.append(len(lanes))
    if nowhere is not None:
        lanes.append(TimelineRow(label=nowhere, worker=None))
    return MergedRows(lanes, of_place)


def _shown(name: str | None) -> str | None:
    return None if name is None else cut(name, ChartLimits.max_name_characters)
