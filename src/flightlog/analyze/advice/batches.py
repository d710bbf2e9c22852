"""The work of a run as batches: stretches of tasks between moments at which nothing was left to do.

A program that maps, gathers and maps again makes a wave of each map. How long a wave takes on another number
of workers can be replayed; how long the program thinks between two of them does not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from flightlog.analyze.predict.schedule import replay
from flightlog.core.time import SECOND

if TYPE_CHECKING:
    import duckdb

MOST_JOBS = 5_000
"""So many pieces of work of a run are replayed at most; where there are more tasks, neighbours are put
together."""
MOST_WAVES = 2_000


class WorkBatch(Struct, frozen=True, kw_only=True):
    """One stretch of work; seconds from its beginning, which is when its first task could have run."""

    wall_s: float
    """Until its last task ended, as measured."""
    releases: list[float]
    """When each piece of work could have run, in rising order."""
    durations: list[float]
    """How long each held a worker, being handed over included."""
    needs: list[list[int]]
    """The pieces of work that each waits for; empty where none waits for any."""
    ready: list[float]
    """When each worker that there was could take work, the first one first."""

    def on(self, workers: int, at_once: int = 1) -> float:
        """How long it takes on so many workers, each with so many tasks at once; by the same workers first.

        Further workers are there when half of those that there were are.
        """
        later = self.ready[len(self.ready) // 2] if self.ready else 0.0
        ready = (self.ready[:workers] + [later] * (workers - len(self.ready))) * at_once
        return replay(self.releases, self.durations, ready, self.needs)


class BatchTask(NamedTuple):
    """One task, or several neighbours: nanoseconds."""

    release: int
    lasted: int
    began: int
    task_id: str
    needed: Sequence[str]


_JOBS = """
CREATE OR REPLACE TEMP TABLE jobs AS
WITH jobs AS (
    SELECT task_id, attempt, began, stopped, CASE WHEN len(depends_on) > 0 THEN depends_on END AS needed,
        least(coalesce(CASE WHEN len(depends_on) > 0 AND attempt = 1 THEN submitted END, waits, began), began)
            AS release
    FROM attempt_intervals WHERE worker IS NOT NULL AND began IS NOT NULL AND stopped IS NOT NULL
), reached AS (
    SELECT *, max(stopped) OVER (
        ORDER BY release, began, task_id, attempt ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached FROM jobs
)
SELECT * EXCLUDE (reached), sum(CASE WHEN release < reached THEN 0 ELSE 1 END) OVER (
    ORDER BY release, began, task_id, attempt ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
) AS wave FROM reached
"""
_BOUNDS = "SELECT wave, min(release), max(stopped) FROM jobs GROUP BY wave ORDER BY wave"
_PIECES = """
WITH numbered AS (
    SELECT *, row_number() OVER (PARTITION BY wave ORDER BY release, began, task_id, attempt) - 1 AS number
        FROM jobs
)
SELECT wave, min(release), sum(stopped - began + $handover), min(began), max(task_id), any_value(needed)
FROM numbered GROUP BY wave, number // $together, CASE WHEN $together = 1 THEN number END
ORDER BY wave, min(number)
"""


def waves(connection: duckdb.DuckDBPyConnection, handover_s: float) -> list[WorkBatch] | None:
    """The waves of a run, from its tables `attempt_intervals` and `uptimes`; each task is `handover_s` longer
    than it ran.

    None where there are too many of them, or too many tasks that depend on each other.
    """
    connection.execute(_JOBS)
    bounds = {wave: (since, until) for wave, since, until in connection.execute(_BOUNDS).fetchall()}
    [(jobs, dependent)] = connection.execute("SELECT count(*), count(needed) FROM jobs").fetchall()
    lives = connection.execute("SELECT since, until FROM uptimes ORDER BY since").fetchall()
    together = -(-jobs // max(MOST_JOBS, 50 * len(lives)))
    if len(bounds) > MOST_WAVES or (dependent and together > 1):
        return None
    pieces: dict[int, list[BatchTask]] = {}
    parameters = {"handover": round(handover_s * SECOND), "together": max(1, together)}
    for wave, release, lasted, began, task_id, needed in connection.execute(_PIECES, parameters).fetchall():
        pieces.setdefault(wave, []).append(BatchTask(release, int(lasted), began, task_id, needed or ()))
    connection.execute("DROP TABLE jobs")
    return [_wave(pieces[wave], since, until, lives) for wave, (since, until) in bounds.items()]


def _wave(pieces: list[BatchTask], since: int, until: int, lives: list[tuple[int, int]]) -> WorkBatch:
    return WorkBatch(
        wall_s=(until - since) / SECOND,
        releases=[(piece.release - since) / SECOND for piece in pieces],
        durations=[piece.lasted / SECOND for piece in pieces],
        needs=_needs(pieces) if any(piece.needed for piece in pieces) else [],
        ready=[max(0, begun - since) / SECOND for begun, ended in lives if begun < until and ended > since],
    )


def _needs(pieces: list[BatchTask]) -> list[list[int]]:
    """What each piece waits for, of those that began before it: what a damaged line says may be a circle."""
    numbers = {piece.task_id: number for number, piece in enumerate(pieces)}  # of several attempts the last
    return [
        [
            other
            for needed in piece.needed
            if (other := numbers.get(needed)) is not None
            and (pieces[other].began, other) < (piece.began, number)
        ]
        for number, piece in enumerate(pieces)
    ]
