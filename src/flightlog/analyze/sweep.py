"""The time of workers in SQL: what held each of them when, and what was going on in the gaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flightlog.analyze.islands import merge

if TYPE_CHECKING:
    import duckdb

TRANSFER = r"(^|\.)(transfer|serialize|deserialize)$"
"""Names of spans, directly inside a task, that are its transfer: moving and (de)serializing its data."""


def lay_out(
    connection: duckdb.DuckDBPyConnection,
    ups: Mapping[str, list[tuple[int, int]]],
    launches: Mapping[str, list[tuple[int, int | None]]],
    components: Mapping[str, str | None],
    until: int | None,
) -> None:
    """`ups`: when each worker was up; `waiting` and `astir`: when tasks waited for it, or something stirred
    at all.
    """
    rows = [
        (name, components.get(name) or "", since, to, _said_ready(since, to, launches.get(name, [])))
        for name, lives in ups.items()
        for since, to in lives
    ]
    columns: list[list[object]] = [list(column) for column in zip(*rows, strict=True)] or [[]] * 5
    columns.append(list(range(len(rows))))
    connection.execute(
        """
        CREATE OR REPLACE TEMP TABLE ups AS
        SELECT unnest($1::VARCHAR[]) AS worker, unnest($2::VARCHAR[]) AS component,
            unnest($3::BIGINT[]) AS since,
            unnest($4::BIGINT[]) AS until, unnest($5::BOOLEAN[]) AS ready, unnest($6::INTEGER[]) AS lane
        """,
        columns,
    )
    connection.execute(
        """
        CREATE OR REPLACE TEMP TABLE spells AS
        SELECT serves.component, held.waits AS since, coalesce(held.began, $1::BIGINT) AS until
        FROM held JOIN (SELECT DISTINCT component FROM ups) AS serves
            ON serves.component = '' OR coalesce(held.component, '') IN ('', serves.component)
        WHERE held.waits < coalesce(held.began, $1::BIGINT)
            AND (held.began IS NOT NULL OR held.state = 'pending')
        """,
        [until],
    )
    busy = """
        SELECT serves.component, held.began AS since, held.stopped AS until
        FROM held, (SELECT DISTINCT component FROM ups) AS serves WHERE held.began < held.stopped
    """
    merge(connection, "waiting", "component", "FROM spells")
    merge(connection, "astir", "component", f"SELECT component, since, until FROM waiting UNION ALL {busy}")  # noqa: S608 - ours


def _said_ready(since: int, until: int, launches: list[tuple[int, int | None]]) -> bool:
    return not any(launched == since and (ready is None or ready >= until) for launched, ready in launches)


_PIECES = """
CREATE OR REPLACE TEMP TABLE pieces AS
SELECT ups.lane, greatest(found.began, ups.since) AS began, least(found.stopped, ups.until) AS stopped,
    found.layer
FROM ({found}) AS found JOIN ups ON ups.worker = found.worker
    AND found.began < ups.until AND found.stopped > ups.since
WHERE found.began < found.stopped
UNION ALL
SELECT lane, until, until, 5 FROM ups -- the end of each life, so that the last gap has an end
"""
_ATTEMPTS = """
SELECT coalesce(worker, '') AS worker, began, stopped,
    CASE WHEN state = 'completed' THEN 1 WHEN state = 'running' THEN 2 WHEN retried THEN 3 ELSE 4 END AS layer
        FROM held
"""
_TRANSFERS = f"""
SELECT held.worker, timed.began, timed.stopped, 0 AS layer
FROM timed JOIN held ON held.span_id = timed.parent_id WHERE regexp_matches(timed.name, '{TRANSFER}')
"""  # noqa: S608 - the pattern is ours
_SPANS = """
SELECT '' AS worker, began, stopped, CASE WHEN "open" THEN 2 ELSE 1 END AS layer FROM timed
"""

_IN_TURN = """
CREATE OR REPLACE TEMP TABLE swept AS
SELECT *, lag(stopped) OVER (PARTITION BY lane ORDER BY began, stopped) AS reached FROM pieces
"""
_OF_ONE_KIND = """
CREATE OR REPLACE TEMP TABLE swept AS
SELECT *, max(stopped) OVER (
    PARTITION BY lane ORDER BY began, stopped ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
) AS reached FROM pieces
"""
_SIDE_BY_SIDE = """
CREATE OR REPLACE TEMP TABLE swept AS
SELECT *,
    max(CASE WHEN layer <= 0 THEN stopped END) OVER earlier AS reached_0,
    max(CASE WHEN layer <= 1 THEN stopped END) OVER earlier AS reached_1,
    max(CASE WHEN layer <= 2 THEN stopped END) OVER earlier AS reached_2,
    max(CASE WHEN layer <= 3 THEN stopped END) OVER earlier AS reached_3,
    max(CASE WHEN layer BETWEEN 1 AND 4 THEN stopped END) OVER earlier AS reached_busy,
    max(stopped) OVER earlier AS reached
FROM pieces
WINDOW earlier AS (
    PARTITION BY lane ORDER BY began, stopped, layer ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
)
"""
_GAPS = """
CREATE OR REPLACE TEMP TABLE gaps AS
SELECT ups.lane, ups.component, ups.ready OR reached IS NOT NULL AS ready, layer BETWEEN 1 AND 4 AS attempt,
    coalesce(reached, ups.since) AS since, greatest(coalesce(reached, ups.since), began) AS until,
    {lengths}
FROM swept JOIN ups USING (lane)
"""


def _lengths(way: str) -> str:
    """The time that a piece adds to what its layer and those before it cover, for each layer it is in."""
    found = []
    for layer, within in (
        ("0", "layer <= 0"),
        ("1", "layer <= 1"),
        ("2", "layer <= 2"),
        ("3", "layer <= 3"),
        ("4", "true"),
        ("busy", "layer BETWEEN 1 AND 4"),
    ):
        reached = f"reached_{layer}" if way == _SIDE_BY_SIDE and layer != "4" else "reached"
        beyond = f"greatest(0, stopped - greatest(began, coalesce({reached}, began)))"
        added = "stopped - began" if way == _IN_TURN else beyond
        found.append(f"CASE WHEN {within} THEN {added} ELSE 0 END AS n_{layer}")
    return ", ".join(found)


_OVERLAPS = """
SELECT coalesce(bool_or(crossing), false), coalesce(bool_or(crossing AND kinds > 1), false) FROM (
    SELECT bool_or(began < reached) AS crossing, count(DISTINCT layer) FILTER (layer < 5) AS kinds
    FROM swept GROUP BY lane
)
"""


_MARKS = """
CREATE OR REPLACE TEMP TABLE marks AS
WITH steps AS (
    SELECT component, since AS moment, 1 AS queued, 0 AS astir FROM waiting
    UNION ALL SELECT component, until, -1, 0 FROM waiting
    UNION ALL SELECT component, since, 0, 1 FROM astir
    UNION ALL SELECT component, until, 0, -1 FROM astir
), slopes AS (
    SELECT component, moment, sum(sum(queued)) OVER earlier AS queued, sum(sum(astir)) OVER earlier AS astir,
        lag(moment) OVER earlier AS before
    FROM steps GROUP BY component, moment WINDOW earlier AS (PARTITION BY component ORDER BY moment)
), rises AS (
    SELECT *, (moment - before) * lag(queued) OVER earlier AS queued_for, (moment - before) * lag(astir)
        OVER earlier AS astir_for
    FROM slopes WINDOW earlier AS (PARTITION BY component ORDER BY moment)
)
SELECT component, moment, CAST(queued AS BIGINT) AS queued, CAST(astir AS BIGINT) AS astir,
    CAST(coalesce(sum(queued_for) OVER earlier, 0) AS BIGINT) AS queued_until,
    CAST(coalesce(sum(astir_for) OVER earlier, 0) AS BIGINT) AS astir_until,
    coalesce(lead(moment) OVER earlier, 9223372036854775807) AS next
FROM rises WINDOW earlier AS (PARTITION BY component ORDER BY moment)
"""
"""Where `waiting` or `astir` begin or end: whether they go on from there, and how long they have been until
then."""
FEW_MARKS = 16
"""So many are tried one by one; more are looked up in order."""

_MEASURED = """
CREATE OR REPLACE TEMP TABLE measured AS
WITH free AS MATERIALIZED (
    SELECT gaps.lane, gaps.component, gaps.since, gaps.until, marks.moment, marks.queued, marks.astir,
        marks.queued_until + marks.queued * (gaps.until - marks.moment) AS queued_by,
        marks.astir_until + marks.astir * (gaps.until - marks.moment) AS astir_by
    FROM (SELECT lane, component, since, until FROM gaps WHERE ready AND since < until) AS gaps {join}
)
SELECT lane, since, until, coalesce(queued, 0) * (until - since) AS queued,
    coalesce(astir, 0) * (until - since) AS astir
FROM free WHERE coalesce(moment <= since, true) -- nothing began or ended in it
UNION ALL
SELECT free.lane, free.since, free.until,
    free.queued_by - coalesce(marks.queued_until + marks.queued * (free.since - marks.moment), 0),
    free.astir_by - coalesce(marks.astir_until + marks.astir * (free.since - marks.moment), 0)
FROM (SELECT * FROM free WHERE moment > since) AS free
    ASOF LEFT JOIN marks ON free.component = marks.component AND free.since >= marks.moment
"""
_ONE_BY_ONE = (
    "LEFT JOIN marks ON gaps.component = marks.component AND gaps.until >= moment AND gaps.until < next"
)
_IN_ORDER = "ASOF LEFT JOIN marks ON gaps.component = marks.component AND gaps.until >= marks.moment"

_BY_WORKER = """
WITH busy AS (
    SELECT lane, sum(n_0) AS n_0, sum(n_1) AS n_1, sum(n_2) AS n_2, sum(n_3) AS n_3, sum(n_4) AS n_4,
        sum(n_busy) AS n_busy,
        sum(CASE WHEN ready THEN 0 ELSE until - since END) AS unready, count(*) FILTER (attempt) AS attempts
    FROM gaps GROUP BY lane
), free AS (
    SELECT lane, sum(queued) AS queued, sum(astir) AS astir FROM measured GROUP BY lane
)
SELECT ups.worker, sum(n_0), sum(n_1), sum(n_2), sum(n_3), sum(n_4), sum(n_busy), sum(unready),
    coalesce(sum(queued), 0),
    coalesce(sum(astir), 0), sum(attempts)
FROM ups JOIN busy USING (lane) LEFT JOIN free USING (lane) GROUP BY ups.worker
"""


def sweep(connection: duckdb.DuckDBPyConnection, *, wall: bool) -> dict[str, tuple[int, ...]]:
    """Nanoseconds of each worker: transfer, up to run, to unfinished, to retried, to failed; busy; unready;
    queued; astir; attempts.

    One sort by worker finds the time covered by each layer and those before it, and the gaps between pieces;
    looking up both ends of a gap in `marks` gives how much of it `waiting` and `astir` cover. Workers that
    take one task at a time need no more than the piece before each, and those on which all tasks ended alike
    no more than what was reached before it: both are much cheaper, and tried first.
    """
    found = " UNION ALL ".join([_ATTEMPTS, _SPANS if wall else _TRANSFERS])
    connection.execute(_PIECES.format(found=found))
    way = _IN_TURN
    connection.execute(way)
    [(overlap, of_several_kinds)] = connection.execute(_OVERLAPS).fetchall()
    if overlap:
        way = _SIDE_BY_SIDE if of_several_kinds else _OF_ONE_KIND
        connection.execute(way)
    connection.execute(_GAPS.format(lengths=_lengths(way)))
    connection.execute(_MARKS)
    [(marks,)] = connection.execute("SELECT count(*) FROM marks").fetchall()
    connection.execute(_MEASURED.format(join=_ONE_BY_ONE if marks <= FEW_MARKS else _IN_ORDER))
    return {name: tuple(map(int, rest)) for name, *rest in connection.execute(_BY_WORKER).fetchall()}
