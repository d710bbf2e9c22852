"""Where worker time went, split so that every moment of every worker counts once: run, failed, scheduler,
idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

from flightlog.analyze.limits import ReportLimits
from flightlog.core.time import seconds
from flightlog.store.tables.connection import text
from flightlog.store.tables.intervals import merge

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables


class TimeSplit(Struct, frozen=True, kw_only=True):
    """The time of one worker or of all; the parts add up to `total_s`, to the nanosecond.

    `uptime_s` and `busy_s` are those of the summary's `workers`: utilization is busy_s / uptime_s. Where
    tasks run side by side on one worker, a moment is `run` if any of them completed, `unfinished` if none did
    and one has not ended, and `failed` otherwise. For a worker with one task at a time run_s / uptime_s is
    its efficiency.
    """

    total_s: float
    """From launch to removal, loss, or the run's end or last sign of life."""
    run_s: float
    """Held by attempts that completed."""
    unfinished_s: float
    """Held by attempts whose end was not recorded: in flight."""
    failed_s: float
    """Held by attempts that failed, were retried or cancelled."""
    retried_s: float
    """The part of `failed_s` by attempts that were retried."""
    transfer_s: float | None
    """In spans named transfer, serialize or deserialize directly inside a task; null where none was
    recorded."""
    scheduler_s: float
    """Free, while a task that this worker could have run was queued."""
    startup_s: float
    """From launch to ready, and up to its first task for a worker that never said it was ready."""
    idle_s: float
    """Free, with nothing queued: idle_behind_s and idle_alone_s."""
    idle_behind_s: float
    """Idle while another worker was busy: behind the last tasks of a batch."""
    idle_alone_s: float
    """Idle while no worker was busy: the program itself was running, or waiting, or tasks that had failed
    waited to be retried."""
    uptime_s: float
    busy_s: float
    attempts: int


class Shares(Struct, frozen=True, kw_only=True):
    """Where the time went. Null parts are unknown, not nothing."""

    basis: Literal["workers", "wall"]
    """What is split: the time of workers or, where no worker is known, the run's time on the clock."""
    workers: int
    whole: TimeSplit
    by_worker: dict[str, TimeSplit]
    without_worker: int
    """Attempts without a known worker: they are in no worker's time."""


class Measured(NamedTuple):
    """The time of each worker, before it is put into seconds."""

    basis: Literal["workers", "wall"]
    lives: dict[str, WorkerLife]
    transfer_known: bool
    without_worker: int


def shares(tables: RunTables, window: tuple[int | None, int | None]) -> Shares | None:
    """The split of one run's time, from its `attempt_intervals`, `span_intervals` and the relations of
    workers; None where nothing was recorded to split.

    `window` is the run's start, and its end or last sign of life, in nanoseconds. Without workers the clock
    time between them is split: attempts and spans are work, the rest is scheduler or idle.
    """
    measured = measure(tables, window)
    return None if measured is None else shares_of(measured)


def measure(tables: RunTables, window: tuple[int | None, int | None]) -> Measured | None:
    """As `shares`, of each worker in nanoseconds."""
    start, until = window
    outer = _outer_workers(tables)
    workers = [
        row
        for row in tables.execute("SELECT worker, up, lived FROM worker_facts ORDER BY worker").fetchall()
        if row[0] not in outer
    ]
    basis: Literal["workers", "wall"] = "workers" if workers else "wall"
    if workers:
        names = ", ".join(text(name) for name in sorted(outer))
        tables.execute(f"{_UPTIMES} WHERE worker NOT IN ({names})" if outer else _UPTIMES)
    else:
        if start is None or until is None or start >= until or not _anything(tables):
            return None
        tables.execute(_WALL.format(start=start, until=until))
        workers = [("", until - start, until - start)]
    lay_out(tables, until)
    measured = sweep(tables, wall=basis == "wall")
    lives = {name: WorkerLife(up=up, total=lived, **measured.get(name, {})) for name, up, lived in workers}
    known = bool(tables.scalar("SELECT count(*) FROM timeline_items WHERE layer = 0"))
    tables.execute("DROP TABLE timeline_items")  # as large as all attempts
    lost = tables.scalar("SELECT count(*) FROM attempt_intervals WHERE worker IS NULL AND began IS NOT NULL")
    return Measured(basis, lives, known, lost if basis == "workers" else 0)


_STAFFED = """
WITH found AS (
    SELECT since, until FROM uptimes
    UNION ALL
    SELECT launched, ready FROM worker_launches WHERE ready IS NOT NULL
), ordered AS (
    SELECT *, max(until) OVER (ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        AS reached FROM found
)
SELECT coalesce(sum(greatest(0, until - greatest(since, coalesce(reached, since)))), 0) FROM ordered
"""


def staffed(tables: RunTables, shares: Shares | None, window: tuple[int | None, int | None]) -> float:
    """The part of the wall time in which any worker was starting or up; 1 where none is known.

    Reads what `shares` left in the tables.
    """
    start, until = window
    if shares is None or shares.basis != "workers" or start is None or until is None or until <= start:
        return 1.0
    return min(1.0, int(tables.scalar(_STAFFED)) / (until - start))


_OUTER = """
WITH RECURSIVE around AS (
    SELECT DISTINCT parent_id AS span_id, 0 AS depth FROM attempt_intervals WHERE parent_id IS NOT NULL
    UNION
    SELECT span_intervals.parent_id, depth + 1 FROM around JOIN span_intervals USING (span_id)
    WHERE span_intervals.parent_id IS NOT NULL AND depth < $levels
)
SELECT worker FROM attempt_intervals LEFT JOIN (SELECT DISTINCT span_id, true AS outer_ FROM around) AS around
    USING (span_id)
WHERE worker IS NOT NULL AND began IS NOT NULL
GROUP BY worker HAVING bool_and(coalesce(outer_, false))
"""


def _outer_workers(tables: RunTables) -> set[str]:
    """Workers all of whose tasks had tasks inside, on workers of their own, as a script of steps has: their
    time is that of the tasks inside, and counts once.
    """
    attempts = tables.scalar("SELECT count(*) FROM attempt_intervals")
    if attempts > ReportLimits.max_replayed_attempts:
        return set()
    found = {
        worker
        for (worker,) in tables.execute(_OUTER, {"levels": ReportLimits.max_descended_levels}).fetchall()
    }
    every = tables.scalar("SELECT count(DISTINCT worker) FROM attempt_intervals WHERE began IS NOT NULL")
    return found if len(found) < every else set()


def shares_of(measured: Measured) -> Shares:
    """The same in seconds, the busiest workers first."""
    lives, known = measured.lives, measured.transfer_known
    order = sorted(lives, key=lambda name: (-lives[name].busy, name))[: ReportLimits.max_listed_workers]
    of_workers = measured.basis == "workers"
    return Shares(
        basis=measured.basis,
        workers=len(lives) if of_workers else 0,
        whole=_split(list(lives.values()), known),
        by_worker={name: _split([lives[name]], known) for name in order} if of_workers else {},
        without_worker=measured.without_worker,
    )


class WorkerLife(Struct, frozen=True, kw_only=True):
    """One worker's time in nanoseconds, by part; `failed` holds `retried`, `idle` holds `behind`."""

    up: int
    total: int
    transfer: int = 0
    run: int = 0
    unfinished: int = 0
    retried: int = 0
    failed: int = 0
    busy: int = 0
    unready: int = 0
    scheduler: int = 0
    behind: int = 0
    attempts: int = 0

    @property
    def startup(self) -> int:
        """From launch to ready."""
        return self.total - self.up + self.unready

    @property
    def idle(self) -> int:
        """Free, with nothing queued."""
        held = self.transfer + self.run + self.unfinished + self.failed
        return self.up - held - self.unready - self.scheduler


def _split(lives: list[WorkerLife], transfer_known: bool) -> TimeSplit:
    def of(part: str) -> float:
        return seconds(sum(getattr(life, part) for life in lives))

    alike = ("total", "run", "unfinished", "failed", "retried", "scheduler", "startup", "idle", "busy")
    return TimeSplit(
        **{f"{part}_s": of(part) for part in alike},
        transfer_s=of("transfer") if transfer_known else None,
        idle_behind_s=of("behind"),
        idle_alone_s=seconds(sum(life.idle - life.behind for life in lives)),
        uptime_s=of("up"),
        attempts=sum(life.attempts for life in lives),
    )


def _anything(tables: RunTables) -> bool:
    row = tables.execute(
        "SELECT (SELECT count(*) FROM attempt_intervals WHERE began IS NOT NULL) + (SELECT count(*) FROM "
        "span_intervals WHERE "
        "began IS NOT NULL)"
    ).fetchone()
    return bool(row and row[0])


TRANSFER = r"(^|\.)(transfer|serialize|deserialize)$"
"""Names of spans, directly inside a task, that are its transfer: moving and (de)serializing its data."""


_UPTIMES = "CREATE OR REPLACE TEMP VIEW uptimes AS FROM worker_lives"
"""When each worker was up."""
_WALL = """
CREATE OR REPLACE TEMP VIEW uptimes AS
SELECT '' AS worker, '' AS component, {start}::BIGINT AS since, {until}::BIGINT AS until, true AS ready,
    0 AS lane
"""


def lay_out(tables: RunTables, until: int | None) -> None:
    """Make `waiting` and `astir` from `uptimes`: when tasks waited for workers, or something stirred at
    all.
    """
    known = "NULL::BIGINT" if until is None else str(until)
    queued = f"""
        SELECT serves.component, attempt_intervals.waits AS since,
            coalesce(attempt_intervals.began, {known}) AS until
        FROM attempt_intervals JOIN (SELECT DISTINCT component FROM uptimes) AS serves
            ON serves.component = '' OR coalesce(attempt_intervals.component, '') IN ('', serves.component)
        WHERE attempt_intervals.waits < coalesce(attempt_intervals.began, {known})
            AND (attempt_intervals.began IS NOT NULL OR attempt_intervals.state = 'pending')
    """  # noqa: S608 - a number
    busy = """
        SELECT serves.component, attempt_intervals.began AS since, attempt_intervals.stopped AS until
        FROM attempt_intervals, (SELECT DISTINCT component FROM uptimes) AS serves
            WHERE attempt_intervals.began < attempt_intervals.stopped
    """
    merge(tables, "waiting", "component", queued)
    stirring = f"SELECT component, since, until FROM waiting UNION ALL {busy}"  # noqa: S608 - ours
    merge(tables, "astir", "component", stirring)


_PIECES = """
CREATE OR REPLACE TEMP TABLE timeline_items AS
SELECT uptimes.lane, greatest(found.began, uptimes.since) AS began,
    least(found.stopped, uptimes.until) AS stopped,
    found.layer
FROM ({found}) AS found JOIN uptimes ON uptimes.worker = found.worker
    AND found.began < uptimes.until AND found.stopped > uptimes.since
WHERE found.began < found.stopped
UNION ALL
SELECT lane, until, until, 5 FROM uptimes -- the end of each life, so that the last gap has an end
"""
_ATTEMPTS = """
SELECT coalesce(worker, '') AS worker, began, stopped,
    CASE WHEN state = 'completed' THEN 1 WHEN state = 'running' THEN 2 WHEN retried THEN 3 ELSE 4 END AS layer
        FROM attempt_intervals
"""
_TRANSFERS = f"""
SELECT attempt_intervals.worker, span_intervals.began, span_intervals.stopped, 0 AS layer
FROM span_intervals JOIN attempt_intervals ON attempt_intervals.span_id = span_intervals.parent_id
    WHERE regexp_matches(span_intervals.name, '{TRANSFER}')
"""  # noqa: S608 - the pattern is ours
_SPANS = """
SELECT '' AS worker, began, stopped, CASE WHEN "open" THEN 2 ELSE 1 END AS layer FROM span_intervals
"""

_IN_TURN = """
CREATE OR REPLACE TEMP TABLE swept AS
SELECT *, lag(stopped) OVER (PARTITION BY lane ORDER BY began, stopped) AS reached FROM timeline_items
"""
_OF_ONE_KIND = """
CREATE OR REPLACE TEMP TABLE swept AS
SELECT *, max(stopped) OVER (
    PARTITION BY lane ORDER BY began, stopped ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
) AS reached FROM timeline_items
"""
_SIDE_BY_SIDE = """
CREATE OR REPLACE TEMP TABLE swept AS
SELECT *,
    max(CASE WHEN layer <= 0 THEN stopped END) OVER earlier AS reached_0,
    max(CASE WHEN layer <= 1 THEN stopped END) OVER earlier AS reached_1,
    max(CASE WHEN layer <= 2 THEN stopped END) OVER earlier AS reached_2,
    max(CASE WHEN layer <= 3 THEN stopped END) OVER earlier AS reached_3,
    max(CASE WHEN layer BETWEEN 1 AND 4 THEN stopped END) OVER earlier AS reached_busy,
    max(stopped) OVER earlier AS reached
FROM timeline_items
WINDOW earlier AS (
    PARTITION BY lane ORDER BY began, stopped, layer ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
)
"""
_GAPS = """
CREATE OR REPLACE TEMP TABLE gaps AS
SELECT uptimes.lane, uptimes.component, uptimes.ready OR reached IS NOT NULL AS ready, layer BETWEEN 1
    AND 4 AS attempt,
    coalesce(reached, uptimes.since) AS since, greatest(coalesce(reached, uptimes.since), began) AS until
FROM swept JOIN uptimes USING (lane)
"""
_HELD = """
CREATE OR REPLACE TEMP TABLE held AS
SELECT lane, sum(n_0) AS transfer, sum(n_1 - n_0) AS run, sum(n_2 - n_1) AS unfinished,
    sum(n_3 - n_2) AS retried, sum(n_4 - n_2) AS failed, sum(n_busy) AS busy, sum(attempt) AS attempts
FROM (SELECT lane, CAST(layer BETWEEN 1 AND 4 AS INTEGER) AS attempt, {lengths} FROM swept) GROUP BY lane
"""


def _lengths(way: str) -> str:
    """The time that a piece adds to what its layer and those before it cover, for each layer it is in."""
    found = []
    for layer, within in (
        ("0", "layer <= 0"),
        ("1", "layer <= 1"),
        ("2", "layer <= 2"),
        ("3", "layer <= 3"),
        ("4", "true"),
        ("busy", "layer BETWEEN 1 AND 4"),
    ):
        reached = f"reached_{layer}" if way == _SIDE_BY_SIDE and layer != "4" else "reached"
        beyond = f"greatest(0, stopped - greatest(began, coalesce({reached}, began)))"
        added = "stopped - began" if way == _IN_TURN else beyond
        found.append(f"CASE WHEN {within} THEN {added} ELSE 0 END AS n_{layer}")
    return ", ".join(found)


_OVERLAPS = """
SELECT coalesce(bool_or(crossing), false), coalesce(bool_or(crossing AND kinds > 1), false) FROM (
    SELECT bool_or(began < reached) AS crossing, count(DISTINCT layer) FILTER (layer < 5) AS kinds
    FROM swept GROUP BY lane
)
"""


_MARKS = """
CREATE OR REPLACE TEMP TABLE marks AS
WITH steps AS (
    SELECT component, since AS moment, 1 AS queued, 0 AS astir FROM waiting
    UNION ALL SELECT component, until, -1, 0 FROM waiting
    UNION ALL SELECT component, since, 0, 1 FROM astir
    UNION ALL SELECT component, until, 0, -1 FROM astir
), slopes AS (
    SELECT component, moment, sum(sum(queued)) OVER earlier AS queued, sum(sum(astir)) OVER earlier AS astir,
        lag(moment) OVER earlier AS before
    FROM steps GROUP BY component, moment WINDOW earlier AS (PARTITION BY component ORDER BY moment)
), rises AS (
    SELECT *, (moment - before) * lag(queued) OVER earlier AS queued_for, (moment - before) * lag(astir)
        OVER earlier AS astir_for
    FROM slopes WINDOW earlier AS (PARTITION BY component ORDER BY moment)
)
SELECT component, moment, CAST(queued AS BIGINT) AS queued, CAST(astir AS BIGINT) AS astir,
    CAST(coalesce(sum(queued_for) OVER earlier, 0) AS BIGINT) AS queued_until,
    CAST(coalesce(sum(astir_for) OVER earlier, 0) AS BIGINT) AS astir_until,
    coalesce(lead(moment) OVER earlier, 9223372036854775807) AS next
FROM rises WINDOW earlier AS (PARTITION BY component ORDER BY moment)
"""
"""Where `waiting` or `astir` begin or end: whether they go on from there, and how long they have been until
then."""


_MEASURED = """
CREATE OR REPLACE TEMP TABLE measured AS
WITH free AS MATERIALIZED (
    SELECT gaps.lane, gaps.component, gaps.since, gaps.until, marks.moment, marks.queued, marks.astir,
        marks.queued_until + marks.queued * (gaps.until - marks.moment) AS queued_by,
        marks.astir_until + marks.astir * (gaps.until - marks.moment) AS astir_by
    FROM (SELECT lane, component, since, until FROM gaps WHERE ready AND since < until) AS gaps {join}
)
SELECT lane, since, until, coalesce(queued, 0) * (until - since) AS queued,
    coalesce(astir, 0) * (until - since) AS astir
FROM free WHERE coalesce(moment <= since, true) -- nothing began or ended in it
UNION ALL
SELECT free.lane, free.since, free.until,
    free.queued_by - coalesce(marks.queued_until + marks.queued * (free.since - marks.moment), 0),
    free.astir_by - coalesce(marks.astir_until + marks.astir * (free.since - marks.moment), 0)
FROM (SELECT * FROM free WHERE moment > since) AS free
    ASOF LEFT JOIN marks ON free.component = marks.component AND free.since >= marks.moment
"""
_ONE_BY_ONE = (
    "LEFT JOIN marks ON gaps.component = marks.component AND gaps.until >= moment AND gaps.until < next"
)
_IN_ORDER = "ASOF LEFT JOIN marks ON gaps.component = marks.component AND gaps.until >= marks.moment"

_BY_WORKER = """
WITH startups AS (
    SELECT lane, sum(CASE WHEN ready THEN 0 ELSE until - since END) AS unready FROM gaps GROUP BY lane
), free AS (
    SELECT lane, sum(queued) AS scheduler, sum(astir - queued) AS behind FROM measured GROUP BY lane
)
SELECT uptimes.worker, {parts}
FROM uptimes JOIN held USING (lane) JOIN startups USING (lane) LEFT JOIN free USING (lane)
GROUP BY uptimes.worker
"""


def sweep(tables: RunTables, *, wall: bool) -> dict[str, dict[str, int]]:
    """Nanoseconds of each worker by part, as `WorkerLife` has them.

    One sort by worker finds the time covered by each layer and those before it, and the gaps between pieces;
    looking up both ends of a gap in `marks` gives how much of it `waiting` and `astir` cover. Workers that
    take one task at a time need no more than the piece before each, and those on which all tasks ended alike
    no more than what was reached before it: both are much cheaper, and tried first.
    """
    found = " UNION ALL ".join([_ATTEMPTS, _SPANS if wall else _TRANSFERS])
    tables.execute(_PIECES.format(found=found))
    way = _IN_TURN
    tables.execute(way)
    [(overlap, of_several_kinds)] = tables.execute(_OVERLAPS).fetchall()
    if overlap:
        way = _SIDE_BY_SIDE if of_several_kinds else _OF_ONE_KIND
        tables.execute(way)
    tables.execute(_GAPS)
    tables.execute(_HELD.format(lengths=_lengths(way)))
    tables.execute("DROP TABLE swept")  # as large as all attempts: what comes next needs the room
    tables.execute(_MARKS)
    marks = tables.scalar("SELECT count(*) FROM marks")
    tables.execute(
        _MEASURED.format(join=_ONE_BY_ONE if marks <= ReportLimits.max_compared_marks else _IN_ORDER)
    )
    parts = [name for name in WorkerLife.__struct_fields__ if name not in {"up", "total"}]
    sums = ", ".join(f"coalesce(sum({part}), 0)::BIGINT AS {part}" for part in parts)
    return {row.pop("worker"): row for row in tables.records(_BY_WORKER.format(parts=sums))}
