"""Spans by the path of their names: what ran inside what, how long on the clock, and how much of it by
itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.analyze.moments import seconds

if TYPE_CHECKING:
    import duckdb

NODES = 1000
"""How many paths a tree lists, the longest first; `paths` is of all."""
DEEPEST = 100
"""Deeper spans are left out, and counted in `unplaced`."""


class SpanNode(Struct, frozen=True, kw_only=True):
    """All spans with one path of names, inside tasks of one name or outside of any.

    A span still open counts up to when it was last seen.
    """

    task: str | None
    """Name of the task they ran in; null outside of tasks."""
    path: list[str]
    """Names from the outermost span to this one."""
    count: int
    open: int
    errors: int
    total_s: float
    """Sum of their durations: those side by side count each."""
    wall_s: float
    """Time on the clock during which at least one was open."""
    self_s: float
    """Sum of their durations less what spans inside them cover: those side by side cover a moment once."""
    busy_s: float
    """Their own time and that of everything inside them: nested spans count once, those side by side each."""


class SpanTree(Struct, frozen=True, kw_only=True):
    """The paths, parents before what is inside them, siblings by busy time."""

    paths: int
    unplaced: int
    """Spans that lead to no outermost span: deeper than a hundred, or in a circle."""
    nodes: list[SpanNode]


def span_tree(connection: duckdb.DuckDBPyConnection) -> SpanTree:
    """The tree of one run's spans, from its `timed` and `held` tables."""
    connection.execute(_PLACED, {"deepest": DEEPEST})
    found = connection.execute(_NODES)
    rows = found.fetchmany(NODES)
    busy = {(task, tuple(path)): 0 for task, path, *_ in rows}
    paths, batch = 0, rows
    while batch:  # names may hold anything: there can be as many paths as spans
        paths += len(batch)
        for task, path, *numbers in batch:
            for depth in range(1, len(path) + 1):
                key = (task, tuple(path[:depth]))
                if key in busy:
                    busy[key] += int(numbers[5])
        batch = found.fetchmany(NODES)
    nodes = [
        SpanNode(
            task=task,
            path=list(path),
            count=count,
            open=opened,
            errors=errors,
            total_s=seconds(int(total)),
            wall_s=seconds(int(wall)),
            self_s=seconds(int(own)),
            busy_s=seconds(busy[task, tuple(path)]),
        )
        for task, path, count, opened, errors, total, wall, own in rows
    ]
    [(unplaced,)] = connection.execute(
        "SELECT (SELECT count(*) FROM timed) - (SELECT count(*) FROM placed)"
    ).fetchall()
    return SpanTree(paths=paths, unplaced=unplaced, nodes=_in_order(nodes))


_PLACED = """
CREATE OR REPLACE TEMP TABLE placed AS
WITH RECURSIVE down AS (
    SELECT child.rowid AS span, child.span_id, inside.task, [child.name] AS path, 1 AS depth
    FROM timed AS child
        LEFT JOIN timed AS parent ON parent.span_id = child.parent_id
        LEFT JOIN (SELECT span_id, any_value(task) AS task FROM held GROUP BY ALL) AS inside
            ON inside.span_id = child.parent_id
    WHERE parent.span_id IS NULL
    UNION ALL
    SELECT child.rowid, child.span_id, down.task, list_append(down.path, child.name), down.depth + 1
    FROM down JOIN timed AS child ON child.parent_id = down.span_id
    WHERE down.depth < $deepest
)
SELECT span, task, path FROM down
"""

_NODES = """
WITH timed_by_path AS (
    SELECT placed.task, placed.path, timed."open", timed.status, timed.lasted, timed.own, timed.began,
        timed.stopped,
        max(timed.stopped) OVER (
            PARTITION BY placed.task, placed.path ORDER BY timed.began, timed.stopped
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached
    FROM placed JOIN timed ON timed.rowid = placed.span
)
SELECT task, path, count(*), count(*) FILTER ("open"), count(*) FILTER (status = 'error'),
    coalesce(sum(lasted), 0) AS total,
    coalesce(sum(greatest(0, stopped - greatest(began, coalesce(reached, began)))), 0),
    coalesce(sum(own), 0)
FROM timed_by_path GROUP BY task, path ORDER BY total DESC, task, path
"""


def _in_order(nodes: list[SpanNode]) -> list[SpanNode]:
    """Parents first, then what is inside them; siblings by busy time, then by name."""
    busy = {(node.task, tuple(node.path)): node.busy_s for node in nodes}

    def place(node: SpanNode) -> tuple[object, ...]:
        steps = (tuple(node.path[:depth]) for depth in range(1, len(node.path) + 1))
        return (
            node.task is not None,
            node.task or "",
            *((-busy.get((node.task, step), node.busy_s), step[-1]) for step in steps),
        )

    return sorted(nodes, key=place)
