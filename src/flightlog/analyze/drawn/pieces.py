"""What a timeline is made of: attempts, or spans where there are no tasks, each with its place and its name
in numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from flightlog.analyze.drawn.frame import TEXT_CHARACTERS, Frame, cut

if TYPE_CHECKING:
    import duckdb

NAMES = 12
"""So many names are drawn apart, those that took most of the time."""
NUMBERED = 32
"""So many are told apart where it is asked which one took longest; all others count together."""

_ATTEMPTS = """
CREATE OR REPLACE TEMP VIEW to_draw AS
SELECT task, task_id, attempt, worker, state, retried, began, stopped, waits, queue_s, duration_s, error_type,
    span_id, args
FROM held
"""

_OUTERMOST = """
CREATE OR REPLACE TEMP TABLE outermost AS
SELECT name, span_id, status, "open", began, stopped, lasted, NULL::VARCHAR AS worker
FROM timed AS child ANTI JOIN timed AS parent ON parent.span_id = child.parent_id
    AND parent.span_id <> child.span_id
"""

_INSIDE = """
INSERT INTO outermost SELECT name, span_id, status, "open", began, stopped, lasted, NULL FROM timed
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
CREATE OR REPLACE TEMP VIEW to_draw AS
SELECT name AS task, span_id AS task_id, 1 AS attempt, worker,
    CASE WHEN "open" THEN 'running' WHEN status = 'error' THEN 'failed' ELSE 'completed' END AS state,
        false AS retried,
    began, stopped, NULL::BIGINT AS waits, NULL::DOUBLE AS queue_s, lasted / 1e9 AS duration_s,
    NULL::VARCHAR AS error_type, span_id, NULL::VARCHAR AS args
FROM outermost
"""

_CHOSEN = """
CREATE OR REPLACE TEMP TABLE chosen AS
SELECT task, row_number() OVER (ORDER BY total DESC NULLS LAST, task) - 1 AS number FROM (
    SELECT task, sum(stopped - began) AS total FROM to_draw GROUP BY task ORDER BY total DESC NULLS LAST,
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
FROM to_draw LEFT JOIN places USING (worker) LEFT JOIN chosen USING (task)
"""
"""A few dozen bytes of each, so that all drawings ask this table and read nothing again. Times are
nanoseconds from the start on, and none lies outside of what is drawn."""


class Pieces(NamedTuple):
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


def lay_out_pieces(
    connection: duckdb.DuckDBPyConnection,
    frame: Frame,
    workers: Sequence[str],
    processes: Mapping[str, str] | None = None,
) -> Pieces | None:
    """Make the view `to_draw` and the table `drawn`, where workers have the numbers of their places; None
    where nothing ran.

    `processes` has the name of the process behind each writer, in order: where there are only spans, and
    several processes, those are their places. Where one span holds all others, those directly inside it are
    drawn, too.
    """
    what = "attempts"
    connection.execute(_ATTEMPTS)
    if connection.execute("SELECT count(*) FROM held").fetchone() == (0,):
        what = "spans"
        connection.execute(_OUTERMOST)
        if connection.execute("SELECT count(*) FROM outermost").fetchone() == (1,):
            connection.execute(_INSIDE)
        workers = []
        if processes is not None and len(processes) > 1:
            workers = list(dict.fromkeys(processes.values()))
            connection.execute(_PROCESSES, [list(processes), list(processes.values())])
        connection.execute(_SPANS)
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE places AS "
        "SELECT unnest($1::VARCHAR[]) AS worker, unnest(range(len($1::VARCHAR[]))) AS place",
        [list(workers)],
    )
    connection.execute(_CHOSEN.format(names=NUMBERED))
    connection.execute(_PIECES.format(start=frame.start, until=frame.until))
    [(count, placed, pending, outside)] = connection.execute(
        "SELECT count(*), count(since), count(*) FILTER (pending), count(*) FILTER (outside) FROM drawn"
    ).fetchall()
    if not count:
        return None
    names = connection.execute(
        f"SELECT left(task, {TEXT_CHARACTERS + 1}) FROM chosen ORDER BY number"  # noqa: S608 - a number
    ).fetchall()
    others = max(0, len(names) - NAMES)
    if len(names) == NUMBERED:
        [(more,)] = connection.execute(
            "SELECT count(DISTINCT task) FROM to_draw ANTI JOIN chosen USING (task)"
        ).fetchall()
        others += more
    return Pieces(
        what, workers, [cut(name) for (name,) in names[:NAMES]], others, count, placed, pending, outside
    )


def drawn_apart(number: int) -> int:
    """The number of a name among those that are drawn apart; -1 for others."""
    return number if number < NAMES else -1
