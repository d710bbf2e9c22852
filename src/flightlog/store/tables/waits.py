"""What each attempt of one run waited for, as relations.

An attempt began after the last of these was over: `need`, the one that ended last of the tasks it depends on
and of its own earlier attempts; `before`, the last attempt on its worker, if it was queued by then; `ready`,
its worker's start-up, likewise; and `submitted`, by the program, which is taken to have waited for the last
attempt that had ended then, its `base`. Moments are nanoseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flightlog.store.limits import StoreLimits

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables

_STARTUPS = """
CREATE OR REPLACE TEMP VIEW startups AS
SELECT worker AS worker_name, launched, ready FROM worker_launches WHERE ready IS NOT NULL
"""
_NODES = """
CREATE OR REPLACE TEMP TABLE in_order AS
    SELECT task_id, attempt, began, stopped, waits,
        CASE WHEN attempt = 1 THEN coalesce(submitted, waits) END AS submitted, worker AS worker_name
    FROM attempt_intervals WHERE began IS NOT NULL AND task IS NOT NULL
    ORDER BY began, stopped, task_id, attempt;
CREATE OR REPLACE TEMP VIEW nodes AS SELECT rowid AS n, * FROM in_order
"""
_NEEDS = """
CREATE OR REPLACE TEMP TABLE needs AS
    WITH wanted AS (
        SELECT nodes.n, nodes.began, unnest(first.depends_on) AS task_id
        FROM nodes JOIN (SELECT task_id, depends_on FROM attempt_intervals WHERE attempt = 1
            AND len(depends_on) > 0) AS first
            USING (task_id)
    ), met AS ( -- of attempts that were repeated, the last that had ended by then
        SELECT wanted.n, arg_max(ends.n, (ends.stopped, ends.n)) AS other, max(ends.stopped) AS stopped
        FROM wanted JOIN nodes AS ends USING (task_id)
        WHERE ends.stopped <= wanted.began AND ends.n < wanted.n GROUP BY wanted.n, wanted.task_id
    )
    SELECT n, other, stopped, false AS again FROM met
    UNION ALL
    SELECT again.n, first.n, first.stopped, true
    FROM (SELECT * FROM nodes WHERE attempt > 1) AS again
        JOIN nodes AS first ON again.task_id = first.task_id AND first.attempt = again.attempt - 1
    WHERE first.stopped <= again.began AND first.n < again.n
"""
_TURNS = """
CREATE OR REPLACE TEMP TABLE turns AS
SELECT n, attempt, began, stopped, waits, submitted, worker_name,
    CASE WHEN worker_name IS NOT NULL THEN lag(n) OVER same_worker END AS earlier,
    CASE WHEN worker_name IS NOT NULL THEN lag(stopped) OVER same_worker END AS earlier_stopped
FROM nodes WINDOW same_worker AS (PARTITION BY worker_name ORDER BY n)
"""
"""The attempts with the one before on their worker, where each worker has one at a time; that is much cheaper
than to look for it, and tried first."""
_SIDE_BY_SIDE = """
CREATE OR REPLACE TEMP TABLE turns AS
SELECT nodes.n, nodes.attempt, nodes.began, nodes.stopped, nodes.waits, nodes.submitted, nodes.worker_name,
    earlier.n AS earlier, earlier.stopped AS earlier_stopped -- an instant attempt comes not before itself
FROM nodes ASOF LEFT JOIN nodes AS earlier ON nodes.worker_name = earlier.worker_name
    AND nodes.began::HUGEINT * 4294967296 + nodes.n > earlier.stopped::HUGEINT * 4294967296 + earlier.n
"""

_BOUND = """
CREATE OR REPLACE TEMP TABLE bound AS
WITH waited AS (
    SELECT nodes.n, nodes.began, nodes.stopped, need.other AS need,
        need.stopped AS need_stopped, need.again,
        CASE WHEN coalesce(nodes.waits <= earlier_stopped, true) THEN earlier END AS before,
        CASE WHEN before IS NOT NULL THEN earlier_stopped END AS before_stopped,
        CASE WHEN coalesce(nodes.waits <= startups.ready, true) THEN startups.ready END AS ready,
            startups.launched,
        CASE WHEN nodes.submitted BETWEEN $start AND nodes.began THEN nodes.submitted END AS submitted
    FROM turns AS nodes
        LEFT JOIN (
            SELECT n, arg_max(other, (stopped, -other)) AS other, max(stopped) AS stopped,
                arg_max(again, (stopped, -other)) AS again FROM needs GROUP BY n
        ) AS need USING (n)
        LEFT JOIN (
            SELECT nodes.n, startups.ready, startups.launched
            FROM (SELECT * FROM nodes WHERE worker_name IN (SELECT worker_name FROM startups)) AS nodes
                ASOF JOIN startups ON nodes.worker_name = startups.worker_name
                    AND nodes.began >= startups.ready
        ) AS startups ON startups.n = nodes.n
)
SELECT *, greatest(need_stopped, before_stopped, ready, submitted) AS moment,
    CASE moment WHEN need_stopped THEN CASE WHEN again THEN 'retry' ELSE 'need' END
        WHEN before_stopped THEN 'before' WHEN ready THEN 'startup'
        WHEN submitted THEN 'program' END AS how,
    how = 'startup' AND coalesce(launched >= submitted, false) AS on_demand,
    how = 'startup' AND NOT on_demand AND coalesce(launched >= need_stopped, false) AS relaunched,
    CASE WHEN how IN ('need', 'retry') OR relaunched THEN need WHEN how = 'before' THEN before END AS previous
FROM waited
"""
_BASES = """
CREATE OR REPLACE TEMP TABLE bases AS
SELECT late.n, ended.n AS base, ended.stopped AS base_stopped
FROM (FROM bound WHERE how = 'program' OR on_demand OR $all) AS late
    ASOF JOIN (SELECT min(n) AS n, stopped FROM nodes GROUP BY stopped) AS ended
        ON late.submitted >= ended.stopped
WHERE ended.n < late.n
"""


def may_be_replayed(tables: RunTables) -> bool:
    """Whether there are few enough attempts for that."""
    return bool(tables.scalar("SELECT count(*) FROM nodes") <= StoreLimits.max_replayed_attempts)


def _make_bound(tables: RunTables) -> None:
    tables.execute(_TURNS)
    if tables.scalar("SELECT count(*) FROM turns WHERE began < earlier_stopped"):
        tables.execute(_SIDE_BY_SIDE)
    tables.execute(_BOUND, {"start": tables.window[0]})
    tables.execute("DROP TABLE turns")  # as large as all attempts


RELATIONS: dict[str, Callable[[RunTables], object]] = {
    "startups": lambda tables: tables.execute(_STARTUPS),
    "nodes": lambda tables: tables.execute(_NODES),
    "needs": lambda tables: tables.execute(_NEEDS),
    "bound": _make_bound,
    "bases": lambda tables: tables.execute(_BASES, {"all": may_be_replayed(tables)}),
}
"""`nodes` are the attempts that began, by number in order of their start, `needs` the others that each waited
for; `bound` has a row for each with all that it waited for, `bases` those that waited for the program: of all
attempts where they may be replayed."""
