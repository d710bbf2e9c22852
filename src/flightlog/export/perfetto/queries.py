"""The rows of a trace, in SQL: attempts, waits, spans and the arrows between them, in order of time.

Times are microseconds since 1970. The rows of a run are sorted on disk and read in batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from flightlog.store.tables.attempts import keep_rows

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables

ATTEMPT, SPAN, WAITING = 1, 2, 0

_MACROS = """
CREATE TEMP MACRO us(stamp) AS at_ns(stamp) // 1000;
CREATE TEMP MACRO in_us(s) AS
    CASE WHEN s IS NOT NULL THEN CAST(round_even(least(greatest(s, 0), 2e9) * 1e6, 0) AS BIGINT) END;
"""

_DRAWN = """
WITH moments AS (
    SELECT * EXCLUDE (submitted_at, queued_at, started_at, ended_at),
        coalesce(us(submitted_at), us(queued_at)) AS submitted,
        us(started_at) AS started, us(ended_at) AS ended, in_us(duration_s) AS lasted
    FROM attempts
)
SELECT * EXCLUDE (lasted),
    CASE WHEN ended IS NOT NULL AND lasted IS NOT NULL THEN
            CASE WHEN abs(ended - lasted - started) <= 1 THEN started ELSE ended - lasted END
         WHEN ended IS NOT NULL OR state = 'running' THEN started END AS began,
    CASE WHEN ended IS NOT NULL AND (lasted IS NOT NULL OR started IS NOT NULL) THEN greatest(began, ended)
        END AS stopped
FROM moments
"""
"""An attempt is drawn from `began` to `stopped`: the duration it measured, before its end (or from its start,
where that is the same but for rounding: spans inside began then or later); else from its start to its end.
One without `began` did not run, or nobody knows when; one without `stopped` has not ended."""

_SPANS = """
SELECT name, span_id, parent_id, writer, seq, thread, status, tags, metrics, error_type, error_message,
    us("timestamp") AS began, us("timestamp") + in_us(duration_s) AS stopped
FROM span_events WHERE event = 'span'
"""
_OPEN_SPANS = """
UNION ALL BY NAME
SELECT arg_max(name, elapsed_s) AS name, span_id, max(parent_id) AS parent_id, max(writer) AS writer,
    max(seq) AS seq,
    arg_max(tags, elapsed_s) AS tags, max(us("timestamp")) AS began
FROM span_events ANTI JOIN (SELECT span_id FROM span_events WHERE event = 'span') AS ended USING (span_id)
WHERE event = 'span_open' GROUP BY span_id
"""

_ARROWS = """
SELECT row_number() OVER (ORDER BY began, to_task, to_attempt, from_task) AS number, * FROM (
    SELECT 'depends on' AS kind, later.task_id AS to_task, later.attempt AS to_attempt, later.began,
        later.stopped,
        earlier.task_id AS from_task, earlier.attempt AS from_attempt, earlier.began AS from_began,
        earlier.stopped AS from_stopped, earlier.began < later.began AS forward
    FROM (
        SELECT task_id, attempt, began, stopped, unnest(depends_on) AS needed FROM drawn
            WHERE began IS NOT NULL
    ) AS later
    JOIN (
        SELECT task_id, max(attempt) AS attempt, arg_max(began, attempt) AS began,
            arg_max_null(stopped, attempt) AS stopped
        FROM drawn WHERE began IS NOT NULL GROUP BY task_id
    ) AS earlier ON earlier.task_id = later.needed
    UNION ALL
    SELECT 'retried' AS kind, later.task_id, later.attempt, later.began, later.stopped, earlier.task_id,
        earlier.attempt, earlier.began, earlier.stopped, earlier.began < later.began
    FROM drawn AS later JOIN drawn AS earlier ON earlier.task_id = later.task_id
        AND earlier.attempt = later.attempt - 1
    WHERE later.attempt > 1 AND later.began IS NOT NULL AND earlier.began IS NOT NULL
)
"""
_ROWS = """
SELECT {columns}, seq FROM (
    SELECT {attempt} AS kind, began, stopped, task AS name, task_id, attempt, component, state,
        worker AS "where",
        span_id, parent_id, args, queue_s, cpu_s, peak_rss_bytes, error_type,
        coalesce(error_message, CASE WHEN state = 'cancelled' THEN reason END) AS error_message, NULL AS seq
    FROM drawn WHERE began IS NOT NULL
    UNION ALL BY NAME
    SELECT {span} AS kind, began, stopped, name, status AS state, writer AS "where", thread, span_id,
        parent_id, tags,
        metrics, error_type, error_message, seq
    FROM drawn_spans WHERE began IS NOT NULL
    UNION ALL BY NAME
    SELECT {waiting} AS kind, submitted AS began, coalesce(began, ended) AS stopped, task AS name, task_id,
        attempt, state,
        began IS NOT NULL AS begins
    FROM drawn WHERE submitted IS NOT NULL AND coalesce(began, ended, submitted + 1) > submitted
    UNION ALL BY NAME
    SELECT {attempt} AS kind, began, stopped, to_task AS task_id, to_attempt AS attempt, kind AS arrow,
        number, false AS outward
    FROM arrows WHERE forward
    UNION ALL BY NAME
    SELECT {attempt} AS kind, from_began AS began, from_stopped AS stopped, from_task AS task_id,
        from_attempt AS attempt, kind AS arrow, number, true AS outward
    FROM arrows WHERE forward
)
"""
"""Both ends of each arrow are rows that come right after the attempt they are tied to: lists would not fit in
memory."""
_IN_ORDER = """
SELECT * EXCLUDE (seq) FROM unordered
ORDER BY began, kind, stopped DESC NULLS FIRST, seq DESC, task_id, attempt, number NULLS FIRST
"""


class Row(NamedTuple):
    """One slice to be drawn, or one end of an arrow; `kind` says of what. `stopped` is None for what had not
    ended.
    """

    kind: int
    began: int
    stopped: int | None
    name: str | None
    task_id: str | None
    attempt: int | None
    component: str | None
    state: str | None
    where: str | None
    """The worker of an attempt, the writer of a span."""
    thread: int | None
    span_id: str | None
    parent_id: str | None
    args: str | None
    tags: str | None
    metrics: str | None
    queue_s: float | None
    cpu_s: float | None
    peak_rss_bytes: int | None
    error_type: str | None
    error_message: str | None
    begins: bool | None
    """Of a wait: whether the attempt ran after it."""
    arrow: str | None
    """Of an end of an arrow, what kind it is; such rows follow the attempt they are tied to, with its times
    and ids."""
    number: int | None
    outward: bool | None
    """Whether the arrow begins here."""


class Extent(NamedTuple):
    """What there is to draw."""

    first: int | None
    """The earliest moment."""
    last: int | None
    rows: int
    unended: int
    """Attempts that began and have no end."""
    unplaced: int
    """Attempts that ran at an unknown time."""
    open_spans: int
    backward: int
    """Arrows that are not drawn, because by the clocks they would lead back in time."""


def prepare_rows(tables: RunTables) -> Extent:
    """Prepare the rows from `attempts` and `span_events`; returns their extent."""
    tables.execute(_MACROS)
    opened = tables.scalar("SELECT count(*) FROM span_events WHERE event = 'span_open'")
    _keep(tables, "drawn", _DRAWN)
    _keep(tables, "drawn_spans", _SPANS + (_OPEN_SPANS if opened else ""))
    backward = 0
    if tables.scalar("SELECT count(*) FROM drawn WHERE attempt > 1 OR len(depends_on) > 0"):
        _keep(tables, "arrows", _ARROWS)
        backward = tables.scalar("SELECT count(*) FROM arrows WHERE NOT forward")
    else:
        tables.execute(f"CREATE TEMP TABLE arrows AS FROM ({_ARROWS}) LIMIT 0")
    [tasks] = tables.execute(
        """
        SELECT min(least(submitted, began)), max(greatest(submitted, began, stopped, ended)), count(*),
            count(*) FILTER (began IS NOT NULL AND stopped IS NULL),
            count(*) FILTER (began IS NULL AND state IN ('completed', 'failed', 'running')),
            count(*) FILTER (submitted IS NOT NULL)
        FROM drawn
        """
    ).fetchall()
    [spans] = tables.execute(
        "SELECT min(began), max(greatest(began, stopped)), count(*), count(*) FILTER (stopped IS NULL) "
        "FROM drawn_spans"
    ).fetchall()
    return Extent(
        first=min((moment for moment in (tasks[0], spans[0]) if moment is not None), default=None),
        last=max((moment for moment in (tasks[1], spans[1]) if moment is not None), default=None),
        rows=tasks[2] + tasks[5] + spans[2],
        unended=tasks[3],
        unplaced=tasks[4],
        open_spans=spans[3],
        backward=backward,
    )


def _keep(tables: RunTables, view: str, rows: str) -> None:
    keep_rows(tables, view, rows, tables.scratch / f"{view}.parquet")


def rows(tables: RunTables) -> Iterator[Row]:
    """All slices in order of their start, parents before children, waits before attempts."""
    columns = ", ".join(f'"{name}"' for name in Row._fields)
    query = _ROWS.format(attempt=ATTEMPT, span=SPAN, waiting=WAITING, columns=columns)
    # Read from all sides and sorted at once, it would not fit: what waits on disk first is sorted in little
    # memory.
    _keep(tables, "unordered", query)
    return map(Row._make, tables.rows(_IN_ORDER))
