"""Idle workers, and the task that each of them waited behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flightlog.analyze.moments import seconds

if TYPE_CHECKING:
    import duckdb

    from flightlog.analyze.shares import Shares

_BEHIND = """
WITH idle AS (
    SELECT lane, since, until, astir - queued AS ns FROM measured
), gap AS (
    SELECT row_number() OVER () AS id, ups.worker, idle.since, idle.until, idle.ns
    FROM idle JOIN ups USING (lane) WHERE ns > 0
), ended AS ( -- when the last task ended in each gap; null where all went on
    SELECT gap.*, CASE WHEN ends.stopped > gap.since THEN ends.stopped END AS stopped
    FROM gap ASOF LEFT JOIN (SELECT stopped FROM held WHERE began < stopped) AS ends
        ON gap.until >= ends.stopped
), reach AS ( -- up to when those last that have begun
    SELECT began, max(stopped) OVER (ORDER BY began, stopped) AS stopped FROM held
    WHERE began < stopped AND EXISTS (SELECT 1 FROM ended WHERE stopped IS NULL)
), told AS (
    SELECT id, worker, ns, stopped FROM ended WHERE stopped IS NOT NULL
    UNION ALL
    SELECT ended.id, ended.worker, ended.ns, reach.stopped
    FROM (SELECT * FROM ended WHERE stopped IS NULL) AS ended ASOF JOIN reach ON ended.until > reach.began
), last AS ( -- of several that ended at that very moment the longest
    SELECT told.worker, told.ns, held.task, held.task_id, held.attempt, held.args, held.began, held.stopped
    FROM told JOIN held USING (stopped) WHERE held.began < held.stopped
    QUALIFY row_number() OVER (PARTITION BY told.id ORDER BY held.began, held.task_id, held.attempt) = 1
), usual AS (
    SELECT task, median(stopped - began) AS usual, count(stopped - began) AS known
    FROM held WHERE state = 'completed' GROUP BY task
)
SELECT last.task, any_value(last.args), any_value(last.stopped - last.began) AS lasted,
    any_value(usual.usual),
    any_value(usual.known), sum(last.ns) AS ns, count(DISTINCT last.worker)
FROM last LEFT JOIN usual USING (task)
GROUP BY last.task, last.task_id, last.attempt ORDER BY ns DESC, last.task, last.task_id, last.attempt
"""


class Behind(NamedTuple):
    """One task that others were idle behind: nothing was left to start while it ran, and it ended last.

    Where nothing ended while a worker was idle, as before a worker that was removed too early, it is the task
    that would have held it the longest.
    """

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
    """The tasks that workers were idle behind, the costliest first; their idle times add up to
    `idle_behind_s`.

    Reads what `shares` left in the connection.
    """
    if shares is None or shares.basis != "workers" or not shares.whole.idle_behind_s:
        return []
    return [
        Behind(
            task=task,
            args=args,
            lasted_s=seconds(int(lasted)),
            usual_s=None if usual is None else seconds(round(usual)),
            known=int(known or 0),
            idle_s=seconds(int(ns)),
            workers=int(workers),
        )
        for task, args, lasted, usual, known, ns, workers in connection.execute(_BEHIND).fetchall()
    ]
