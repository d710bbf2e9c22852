"""Where on a timeline something went wrong: attempts that failed, were retried or cancelled, and workers that
were lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from flightlog.analyze.drawn.frame import Frame, cut
from flightlog.analyze.drawn.results import Mark
from flightlog.analyze.moments import SECOND
from flightlog.analyze.workers import WorkerTally

if TYPE_CHECKING:
    import duckdb

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
    FROM to_draw LEFT JOIN places USING (worker)
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
    frame: Frame,
    what: str,
    workers: WorkerTally,
    lane_of: Callable[[int, str, int], int],
    lane_of_worker: Callable[[str], int | None],
) -> Marked:
    """What went wrong, from `to_draw` and from where errors are told; evenly over time where there is more
    than is marked.

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
