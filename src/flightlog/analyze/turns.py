"""Attempts that held each worker one after the other, as very many do: the table `turns`, in their order on
each worker.

One sort serves all that asks what came before: how long workers were busy, and which chain set the wall time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from flightlog.analyze.chain import Graph, OnChain, lay_out_startups

if TYPE_CHECKING:
    import duckdb

    from flightlog.analyze.chain import Startups

_TURNS = """
CREATE OR REPLACE TEMP TABLE turns AS
WITH places AS (
    SELECT worker, row_number() OVER (ORDER BY worker) * 4294967296 AS place
        FROM (SELECT DISTINCT worker FROM held)
)
SELECT place + row_number() OVER in_order AS n, worker, began, stopped, waits,
    CASE WHEN attempt = 1 THEN coalesce(submitted, waits) END AS submitted, attempt > 1 AS again, lag(stopped)
        OVER in_order AS reached
FROM held JOIN places USING (worker) WHERE began IS NOT NULL
WINDOW in_order AS (PARTITION BY worker ORDER BY began, stopped)
"""


def take_turns(connection: duckdb.DuckDBPyConnection) -> bool:
    """Make `turns` of `held`; whether that is what they did: each on a known worker, for a time, none beside
    another.

    `n` numbers them, so that the attempt before one on its worker has the number before; `reached` is when
    that ended.
    """
    connection.execute(_TURNS)
    [(in_turn,)] = connection.execute(
        """
        SELECT coalesce(bool_and(began < stopped AND coalesce(reached <= began, true)), false)
            AND count(*) = (SELECT count(*) FROM held WHERE began IS NOT NULL)
        FROM turns
        """
    ).fetchall()
    return bool(in_turn)


def none_depends(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether no task waited for the result of another."""
    [(some,)] = connection.execute(
        "SELECT count(*) FROM held WHERE attempt = 1 AND len(depends_on) > 0"
    ).fetchall()
    return not some


class ChainInTurn(Graph):
    """The chain through attempts that took turns and did not depend on each other.

    Most of them waited for the one before on their worker: only the others are fetched.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, start: int, until: int, startups: Startups
    ) -> None:
        super().__init__(connection, start, until)
        lay_out_startups(connection, startups)
        connection.execute(_AGAIN)
        connection.execute(_LEAPS, {"start": start})
        connection.execute(_BASES)

    def links(self) -> Iterator[OnChain]:
        """The attempts on the chain, the last first."""
        leaps = dict(
            self._connection.execute(
                """
                SELECT leaps.n, CASE how WHEN 'need' THEN need WHEN 'program' THEN bases.n END
                FROM leaps LEFT JOIN bases ON bases.stopped = leaps.base_stopped
                """
            ).fetchall()
        )
        [(last,)] = self._connection.execute(
            """
            SELECT turns.n FROM turns JOIN held USING (worker, began)
            WHERE turns.stopped = (SELECT max(stopped) FROM turns)
            ORDER BY began, held.task_id, held.attempt LIMIT 1
            """
        ).fetchall()
        node: int | None = last
        numbers: list[int] = []
        while node is not None:
            numbers.append(node)
            node = leaps[node] if node in leaps else node - 1
        rows = self._connection.execute(
            """
            SELECT n, held.task, began, stopped,
                CASE WHEN leaps.n IS NULL THEN turns.reached ELSE leaps.moment END,
                CASE WHEN leaps.n IS NULL THEN 'before' ELSE leaps.how END, leaps.launched, leaps.base_stopped
            FROM (SELECT unnest($1::BIGINT[]) AS n, unnest(range(len($1::BIGINT[]))) AS place) AS chain
                JOIN turns USING (n) LEFT JOIN leaps USING (n) JOIN held USING (worker, began, stopped)
            ORDER BY place
            """,
            [numbers],
        )
        while batch := rows.fetchmany(10_000):
            yield from batch

    def about(self, nodes: list[int]) -> list[tuple[int, str, str | None, str | None]]:
        """Number, task id, worker and arguments of a few attempts."""
        return self._connection.execute(
            """
            SELECT turns.n, held.task_id, worker, held.args
            FROM (SELECT * FROM turns WHERE n IN (SELECT unnest($1::BIGINT[]))) AS turns
                JOIN held USING (worker, began, stopped)
            """,
            [nodes],
        ).fetchall()


_AGAIN = """
CREATE OR REPLACE TEMP TABLE again AS
SELECT later.worker, later.began, first.worker AS other_worker, first.began AS other_began, first.stopped
FROM (SELECT task_id, attempt, worker, began FROM held WHERE attempt > 1 AND began IS NOT NULL) AS later
    JOIN held AS first ON later.task_id = first.task_id AND first.attempt = later.attempt - 1
WHERE first.stopped <= later.began
"""
"""Attempts that followed another one of their task."""

_LEAPS = """
CREATE OR REPLACE TEMP TABLE leaps AS
WITH ready AS ( -- a start-up binds the first attempt after it
    SELECT turns.n, max(startups.ready) AS ready, arg_max(startups.launched, startups.ready) AS launched
    FROM turns JOIN startups ON startups.worker_name = turns.worker AND turns.began >= startups.ready
        AND coalesce(turns.reached < startups.ready, true)
    WHERE coalesce(turns.waits <= startups.ready, true)
    GROUP BY turns.n
), need AS (
    SELECT turns.n, other.n AS need, again.stopped AS need_stopped
    FROM turns JOIN again USING (worker, began)
        JOIN turns AS other ON other.worker = again.other_worker AND other.began = again.other_began
    WHERE turns.again
), bound AS (
    SELECT turns.n, CASE WHEN coalesce(turns.waits <= turns.reached, true) THEN turns.reached
        END AS before_stopped,
        CASE WHEN turns.submitted BETWEEN $start AND turns.began THEN turns.submitted END AS submitted,
        need.need, need.need_stopped, ready.ready, ready.launched
    FROM turns LEFT JOIN need USING (n) LEFT JOIN ready USING (n)
), found AS (
    SELECT *, greatest(need_stopped, before_stopped, ready, submitted) AS moment,
        CASE moment WHEN need_stopped THEN 'need' WHEN before_stopped THEN 'before' WHEN ready THEN 'startup'
            WHEN submitted THEN 'program' END AS how
    FROM bound
), leap AS (
    SELECT * FROM found WHERE how IS DISTINCT FROM 'before'
)
SELECT leap.*, ended.stopped AS base_stopped
FROM leap ASOF LEFT JOIN (SELECT DISTINCT stopped FROM turns) AS ended
    ON (CASE leap.how WHEN 'program' THEN leap.submitted END) >= ended.stopped
"""
"""The attempts that waited for something else than the one before on their worker, and for what."""

_BASES = """
CREATE OR REPLACE TEMP TABLE bases AS
WITH ended AS ( -- of several that ended at that very moment, the first in the order of all
    SELECT stopped, worker, began FROM held SEMI JOIN leaps ON leaps.base_stopped = held.stopped
    QUALIFY row_number() OVER (PARTITION BY stopped ORDER BY began, task_id, attempt) = 1
)
SELECT ended.stopped, turns.n FROM ended JOIN turns USING (worker, began)
"""
