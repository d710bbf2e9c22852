"""Where the time of workers went, as relations of one run: every moment in which a worker was up is held by
an attempt, or free, while tasks were queued for it or not, and while others were at work or not.

Moments and durations are nanoseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.store.limits import StoreLimits
from flightlog.store.tables.intervals import merge

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables


TRANSFER = r"(^|\.)(transfer|serialize|deserialize)$"
"""Names of spans, directly inside a task, that are its transfer: moving and (de)serializing its data."""

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
_UPTIMES = """
CREATE OR REPLACE TEMP VIEW uptimes AS FROM worker_lives ANTI JOIN outer_workers USING (worker)
"""
_WALL = """
CREATE OR REPLACE TEMP VIEW uptimes AS
SELECT '' AS worker, '' AS component, {start}::BIGINT AS since, {until}::BIGINT AS until, true AS ready,
    0 AS lane WHERE since < until
"""


def make_worker_time(tables: RunTables) -> None:
    """Make these relations, from `attempt_intervals`, `span_intervals` and those of workers.

    - `outer_workers`: workers all of whose tasks had tasks inside, on workers of their own, as a script of
      steps has. Their time is that of the tasks inside, and counts once.
    - `uptimes`: as `worker_lives`, of all other workers; where there are none, the time of the run.
    - `waiting` and `astir`: for each `component` that workers serve, when tasks waited for them, or something
      stirred at all, in pieces that do not touch.
    - `gaps`: of each of the `uptimes`, by `lane`, the time before each attempt that nothing held.
    - `held`: how long each was held, and by what. Of several at once the first counts: `transfer`, attempts
      that completed (`run`), those in flight (`unfinished`), `failed` with `retried`; `busy` is all but
      transfer.
    - `measured`: of gaps of workers that were ready, how long tasks were `queued`, and something was `astir`.
    """
    tables.keep("outer_workers", {"worker": "VARCHAR"}, _outer_workers(tables))
    known = tables.scalar("SELECT count(*) FROM worker_facts ANTI JOIN outer_workers USING (worker)")
    start, until = ("NULL" if moment is None else str(moment) for moment in tables.window)
    tables.execute(_UPTIMES if known else _WALL.format(start=start, until=until))
    _make_waiting(tables, until)
    _make_gaps(tables, of_workers=known > 0)
    tables.execute(_MARKS)
    marks = tables.scalar("SELECT count(*) FROM marks")
    join = _ONE_BY_ONE if marks <= StoreLimits.max_compared_marks else _IN_ORDER
    tables.execute(_MEASURED.format(join=join))


def _outer_workers(tables: RunTables) -> list[tuple[str]]:
    if tables.scalar("SELECT count(*) FROM attempt_intervals") > StoreLimits.max_replayed_attempts:
        return []
    found = tables.execute(_OUTER, {"levels": StoreLimits.max_task_levels}).fetchall()
    every = tables.scalar("SELECT count(DISTINCT worker) FROM attempt_intervals WHERE began IS NOT NULL")
    return found if len(found) < every else []


def _make_waiting(tables: RunTables, until: str) -> None:
    queued = f"""
        SELECT serves.component, attempt_intervals.waits AS since,
            coalesce(attempt_intervals.began, {until}::BIGINT) AS until
        FROM attempt_intervals JOIN (SELECT DISTINCT component FROM uptimes) AS serves
            ON serves.component = '' OR coalesce(attempt_intervals.component, '') IN ('', serves.component)
        WHERE attempt_intervals.waits < coalesce(attempt_intervals.began, {until}::BIGINT)
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


def _make_gaps(tables: RunTables, *, of_workers: bool) -> None:
    """One sort by worker finds the time covered by each layer and those before it, and the gaps between them;
    looking up both ends of a gap in `marks` gives how much of it `waiting` and `astir` cover. Workers that
    take one task at a time need no more than the item before each, and those on which all tasks ended alike
    no more than what was reached before it: both are much cheaper, and tried first.
    """
    found = " UNION ALL ".join([_ATTEMPTS, _TRANSFERS if of_workers else _SPANS])
    tables.execute(_PIECES.format(found=found))
    way = _IN_TURN
    tables.execute(way)
    [(overlap, of_several_kinds)] = tables.execute(_OVERLAPS).fetchall()
    if overlap:
        way = _SIDE_BY_SIDE if of_several_kinds else _OF_ONE_KIND
        tables.execute(way)
    tables.execute(_GAPS)
    tables.execute(_HELD.format(lengths=_lengths(way)))
    # Each is as large as all attempts: what comes next needs the room.
    tables.execute("DROP TABLE swept; DROP TABLE timeline_items")


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

_RETRY_WAITS = """
SELECT serves.component, first.stopped AS since,
    least(again.began, greatest(first.stopped, coalesce(again.waits, again.began))) AS until
FROM (SELECT * FROM attempt_intervals WHERE attempt > 1) AS again JOIN attempt_intervals AS first
        ON first.task_id = again.task_id AND first.attempt = again.attempt - 1,
    (SELECT DISTINCT component FROM uptimes) AS serves
WHERE first.stopped < again.began
"""


def make_retry_waits(tables: RunTables) -> None:
    """Make `retry_waits`: for each `component` that workers serve, when tasks that had failed waited to be
    retried.
    """
    merge(tables, "retry_waits", "component", _RETRY_WAITS)


RELATIONS = {
    **dict.fromkeys(
        ("outer_workers", "uptimes", "waiting", "astir", "gaps", "held", "measured"), make_worker_time
    ),
    "retry_waits": make_retry_waits,
}
