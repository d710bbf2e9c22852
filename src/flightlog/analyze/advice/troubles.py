"""Attempts that failed, counted by what they failed of: which were tried again, and what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.analyze.moments import seconds
from flightlog.analyze.past_ends import timed_out, timeout_of

if TYPE_CHECKING:
    import duckdb

KINDS = 1000
"""How many kinds of failures of a run are kept, those of most tasks first."""


class Retried(Struct, frozen=True, kw_only=True):
    """Tasks of one name whose first attempt failed of one kind of error."""

    name: str
    error_type: str | None
    tasks: int
    """All of them."""
    tried_again: int
    """Those that had a further attempt that ended."""
    rescued: int
    """Those of them that completed in the end."""
    same_again: int
    """Those of them that failed for good, every time with the same type of error."""
    again_s: float
    """Time that further attempts took which came to nothing."""
    first_s: float
    """Time that the first attempts took."""


class TimedOut(Struct, frozen=True, kw_only=True):
    """Attempts of one name that were ended at their timeout."""

    name: str
    attempts: int
    limit_s: float | None
    """The shortest of their timeouts, as they name it."""


_RETRIED = """
WITH troubled AS (
    SELECT name, task_id, attempt, state, error_type, coalesce(greatest(0, stopped - began), 0) AS ns
        FROM named
    WHERE name IS NOT NULL AND state IN ('completed', 'failed')
        AND task_id IN (SELECT task_id FROM held WHERE state = 'failed')
), tasks AS (
    SELECT any_value(name) AS name, task_id, arg_min_null(error_type, attempt) AS error_type,
        min(attempt) AS first, max(attempt) AS last, arg_min(state, attempt) AS began_as,
            arg_max(state, attempt) AS state,
        count(DISTINCT coalesce(error_type, '')) FILTER (state = 'failed') AS kinds,
        sum(ns) AS ns, arg_min(ns, attempt) AS first_ns
    FROM troubled GROUP BY task_id
)
SELECT name, error_type, count(*) AS number, count(*) FILTER (last > first),
    count(*) FILTER (last > first AND state = 'completed'),
    count(*) FILTER (last > first AND state = 'failed' AND kinds = 1),
    coalesce(sum(ns - first_ns) FILTER (state = 'failed'), 0), coalesce(sum(first_ns), 0)
FROM tasks WHERE first = 1 AND began_as = 'failed' GROUP BY name, error_type
ORDER BY number DESC, name, error_type LIMIT $kinds
"""
_MESSAGES = """
SELECT name, error_type, said, count(*) FROM ends
WHERE kind IN (4, 6) AND regexp_matches(said, 'timeout of|did not end|time limit')
GROUP BY name, error_type, said ORDER BY count(*) DESC, name, said LIMIT $kinds
"""


def retried(connection: duckdb.DuckDBPyConnection) -> list[Retried]:
    """Of tasks whose first attempt failed, from the view `named`: a row for each name and type of error."""
    return [
        Retried(
            name=name,
            error_type=error_type,
            tasks=tasks,
            tried_again=again,
            rescued=rescued,
            same_again=same,
            again_s=seconds(int(again_ns)),
            first_s=seconds(int(first_ns)),
        )
        for name, error_type, tasks, again, rescued, same, again_ns, first_ns in connection.execute(
            _RETRIED, {"kinds": KINDS}
        ).fetchall()
    ]


def timed_out_attempts(connection: duckdb.DuckDBPyConnection) -> list[TimedOut]:
    """Attempts ended at their timeout, from the view `ends`; a TimeoutError of the program's own is none."""
    found: dict[str, tuple[int, list[float]]] = {}
    for name, error_type, said, number in connection.execute(_MESSAGES, {"kinds": KINDS}).fetchall():
        if timed_out(error_type, said, None):
            attempts, limits = found.get(name, (0, []))
            limit = timeout_of(said)
            found[name] = attempts + number, [*limits, limit] if limit is not None else limits
    return [
        TimedOut(name=name, attempts=attempts, limit_s=min(limits) if limits else None)
        for name, (attempts, limits) in sorted(found.items())
    ]
