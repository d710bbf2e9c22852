"""Idle workers, and the task that each of them waited behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flightlog.analyze.moments import seconds

if TYPE_CHECKING:
    import duckdb

    from flightlog.analyze.shares import Shares

_BEHIND = """
WITH idle AS (
    SELECT lane, until, coalesce(a_until, 0) - coalesce(a_since, 0) - coalesce(q_until, 0) + coalesce(q_since, 0) AS ns
    FROM measured
), last AS (
    SELECT * FROM (SELECT ups.worker, idle.until, idle.ns FROM idle JOIN ups USING (lane) WHERE ns > 0) AS idle
        ASOF JOIN (SELECT task, task_id, attempt, args, began, stopped FROM held WHERE began < stopped) AS held
        ON idle.until >= held.stopped
), usual AS (
    SELECT task, median(stopped - began) AS usual, count(*) AS known FROM held WHERE state = 'completed' GROUP BY task
)
SELECT last.task, any_value(last.args), any_value(last.stopped - last.began) AS lasted, any_value(usual.usual),
    any_value(usual.known), sum(last.ns) AS ns, count(DISTINCT last.worker)
FROM last LEFT JOIN usual USING (task)
GROUP BY last.task, last.task_id, last.attempt ORDER BY ns DESC, last.task, last.task_id
"""


class Behind(NamedTuple):
    """One task that others were idle behind: nothing was left to start while it ran, and it ended last."""

    task: str
    args: str | None
    """As JSON."""
    lasted_s: float
    usual_s: float | None
    """The median of completed tasks of its name; None where none completed."""
    known: int
    idle_s: float
    workers: int

    @property
    def is_straggler(self) -> bool:
        """Whether it took twice as long as tasks of its name usually do."""
        return self.usual_s is not None and self.known >= 5 and self.lasted_s >= 2 * self.usual_s


def behind(connection: duckdb.DuckDBPyConnection, shares: Shares | None) -> list[Behind]:
    """The tasks that workers were idle behind, the costliest first; their idle times add up to `idle_behind_s`.

    Reads what `shares` left in the connection.
    """
    if shares is None or shares.basis != "workers" or not shares.whole.idle_behind_s:
        return []
    return [
        Behind(
            task=task, args=args, lasted_s=seconds(int(lasted)),
            usual_s=None if usual is None else seconds(round(usual)), known=int(known or 0),
            idle_s=seconds(int(ns)), workers=int(workers),
        )
        for task, args, lasted, usual, known, ns, workers in connection.execute(_BEHIND).fetchall()
    ]  # fmt: skip
