"""The figures of each run that a comparison needs, and the tables behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from flightlog.analyze.cost_used import run_cost
from flightlog.analyze.held import hold
from flightlog.analyze.moments import SECOND, moment
from flightlog.analyze.shares import TRANSFER, Shares, shares
from flightlog.analyze.workers import WorkerTally
from flightlog.events import Event

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run

VIEWS = ("attempts", "spans", "span_events", "task_events", "cache", "failures", "resources")
"""The views that a comparison reads."""


SIDE_BY_SIDE = 4
"""So many runs' times are taken at once: much of it is sorting, which one run does in one thread."""


class Work(Struct, frozen=True):
    """What one name of task, or of span, came to in one run."""

    count: float
    seconds: float
    saved_s: float
    """What a cache spared it."""


class RunFigures(Struct, frozen=True, kw_only=True):
    """One run in numbers. Counts are 0 where there is nothing, everything else is null where nobody
    measured.
    """

    wall_s: float | None
    time: Shares | None
    work: Mapping[str, Work]
    """By task name, of completed tasks; by span name, their own time, where there are no tasks."""
    work_kind: str
    counts: dict[str, int]
    cpu_s: float | None
    peak_rss_bytes: int | None
    read_bytes: int | None
    write_bytes: int | None
    lookups: int
    hits: int
    saved_s: float | None
    cost: float | None
    currency: str | None


_COMPARED = """
CREATE TABLE compared AS
SELECT run_id, task, task_id, attempt, component, state, retried, worker, submitted_at, queued_at, started_at,
    ended_at,
    queue_s, duration_s, cpu_s, peak_rss_bytes, read_bytes, write_bytes, args_digest, depends_on,
        {span_id} AS span_id
FROM attempts
"""
_DIGESTED = """
CREATE OR REPLACE TABLE compared AS
SELECT compared.* REPLACE (coalesce(args_digest, digest) AS args_digest) FROM compared LEFT JOIN (
    SELECT run_id, task_id, md5(max(args::VARCHAR)) AS digest FROM task_events
    WHERE event = 'task_submitted' AND args IS NOT NULL GROUP BY run_id, task_id
) USING (run_id, task_id)
"""
"""Tasks that a program records by itself have arguments and no digest of them; arguments take long to
read."""
_FAILED = """
CREATE TABLE failed_tasks AS
SELECT run_id, task, task_id, timestamp, error_type, error_message, fingerprint
FROM task_events WHERE event = 'task_failed' AND {any}
"""
"""Texts of errors take as long to read as all durations, so that they are read only if anything failed."""
_LOOKUPS = """
CREATE TABLE lookups AS
SELECT run_id, task_id, count(*) FILTER (result = 'hit') AS hits, count(*) FILTER (result = 'miss') AS misses,
    sum(CAST(round_even(greatest(least(saved_s - coalesce(duration_s, 0), 9e9), -9e9) * 1e9, 0) AS BIGINT))
        FILTER (result = 'hit' AND saved_s IS NOT NULL) AS saved_ns
FROM cache GROUP BY ALL
"""
_COUNTS = """
SELECT run_id, count(submitted_at), count(*) FILTER (state = 'completed'),
    count(*) FILTER (state = 'failed' AND NOT retried), count(*) FILTER (state = 'cancelled'),
    count(*) FILTER (retried), sum(cpu_s), max(peak_rss_bytes), sum(read_bytes), sum(write_bytes)
FROM compared GROUP BY run_id
"""
_COUNTED = ("submitted", "completed", "failed", "cancelled", "retried")
_SAMPLED = """
SELECT run_id, sum(cpu_s), max(peak), sum(read_bytes), sum(write_bytes) FROM (
    SELECT run_id, max(cpu_s) - min(cpu_s) AS cpu_s, max(greatest(peak_rss_bytes, rss_bytes)) AS peak,
        max(read_bytes) - min(read_bytes) AS read_bytes, max(write_bytes) - min(write_bytes) AS write_bytes
    FROM resources WHERE event = 'resource_sample' AND scope = 'worker' GROUP BY run_id, host, worker, pid
) GROUP BY run_id
"""
_WORK = """
SELECT run_id, task, count(*), sum(CAST(round_even(least(duration_s, 9e9) * 1e9, 0) AS BIGINT)), sum(saved_ns)
FROM compared LEFT JOIN lookups USING (run_id, task_id)
WHERE state = 'completed' AND duration_s >= 0 AND isfinite(duration_s) GROUP BY ALL
"""
_SPAN_WORK = """
SELECT run_id, name, count(*), sum(CAST(round_even(least(self_s, 9e9) * 1e9, 0) AS BIGINT)), 0
FROM spans WHERE self_s IS NOT NULL GROUP BY ALL
"""


def prepare(connection: duckdb.DuckDBPyConnection, sides: Sequence[Sequence[Run]]) -> None:
    """Make the tables `sides`, `compared`, `compared_spans`, `failed_tasks` and `lookups`; attempts and spans
    are read once.

    They are there for every cursor of the connection, so that the runs' times can be taken side by side.
    """
    rows = [(run.run_id, side, number) for side, runs in enumerate(sides) for number, run in enumerate(runs)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    connection.execute(
        "CREATE TABLE sides AS SELECT unnest($1::VARCHAR[]) AS run_id, unnest($2::INT[]) AS side, "
        "unnest($3::INT[]) AS run",
        columns,
    )
    connection.execute(
        "CREATE TABLE compared_spans AS SELECT run_id, name, span_id, parent_id, status, timestamp AS "
        "started_at, "
        "duration_s FROM span_events WHERE event = 'span'"
    )
    connection.execute(
        "CREATE TABLE transfers AS SELECT * FROM compared_spans WHERE regexp_matches(name, ?)", [TRANSFER]
    )
    connection.execute(_LOOKUPS)
    # The ids of tasks' spans take long to read, too. They tell transfers, and which spans a cache spared.
    known = _is_so(
        connection,
        "SELECT (SELECT count(*) > 0 FROM transfers) OR "
        "coalesce((SELECT bool_or(hits > 0) FROM lookups), false) AND (SELECT count(*) > 0 FROM "
        "compared_spans)",
    )
    connection.execute(_COMPARED.format(span_id="span_id" if known else "NULL::VARCHAR"))
    if _is_so(connection, "SELECT count(*) > 0 FROM compared WHERE args_digest IS NULL"):
        connection.execute(_DIGESTED)
    failed = _is_so(connection, "SELECT count(*) > 0 FROM compared WHERE state = 'failed'")
    connection.execute(_FAILED.format(any="true" if failed else "false"))


def _is_so(connection: duckdb.DuckDBPyConnection, question: str) -> bool:
    row = connection.execute(question).fetchone()
    return bool(row and row[0])


def read_figures(connection: duckdb.DuckDBPyConnection, runs: Sequence[Run]) -> dict[str, RunFigures]:
    """The figures of each run, by its id, after `prepare`."""
    counts = {row[0]: row[1:] for row in connection.execute(_COUNTS).fetchall()}
    sampled = {row[0]: row[1:] for row in connection.execute(_SAMPLED).fetchall()}
    lookups = {
        name: (int(hits), int(misses), saved)
        for name, hits, misses, saved in connection.execute(
            "SELECT run_id, sum(hits), sum(misses), sum(saved_ns) FROM lookups GROUP BY ALL"
        ).fetchall()
    }
    kind = "task" if counts else "span"
    work: dict[str, dict[str, Work]] = {}
    for run_id, name, count, spent, saved in connection.execute(_WORK if counts else _SPAN_WORK).fetchall():
        work.setdefault(run_id, {})[name] = Work(count, int(spent or 0) / SECOND, int(saved or 0) / SECOND)
    walls = {run.run_id: run.ending().duration_s for run in runs}
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        times = list(pool.map(lambda run: _time(connection, run, walls[run.run_id]), runs))
    found: dict[str, RunFigures] = {}
    for run, time in zip(runs, times, strict=True):
        *numbers, cpu_s, peak, read, written = counts.get(run.run_id, (0, 0, 0, 0, 0, None, None, None, None))
        tree = sampled.get(run.run_id, (None, None, None, None))
        hits, misses, saved = lookups.get(run.run_id, (0, 0, None))
        cost = run_cost(run)
        found[run.run_id] = RunFigures(
            wall_s=walls[run.run_id],
            time=time,
            work=work.get(run.run_id, {}),
            work_kind=kind,
            counts=dict(zip(_COUNTED, map(int, numbers), strict=True)),
            cpu_s=_first(tree[0], cpu_s),
            peak_rss_bytes=_first(tree[1], peak),
            read_bytes=_whole(_first(tree[2], read)),
            write_bytes=_whole(_first(tree[3], written)),
            lookups=hits + misses,
            hits=hits,
            saved_s=None if saved is None else int(saved) / SECOND,
            cost=cost.total,
            currency=cost.currency,
        )
    return found


def _time(whole: duckdb.DuckDBPyConnection, run: Run, wall_s: float | None) -> Shares | None:
    """Where the time of one run went, on a cursor of its own, in which its attempts stand for those of all
    runs.
    """
    connection = whole.cursor()
    start = moment(run.info.start_time)
    until = None if start is None or wall_s is None else start + round(wall_s * SECOND)
    workers, known = WorkerTally(), False
    for event in run.events("workers"):
        if isinstance(event, Event):
            workers.add(event)
            known = True
    known = known or bool(
        connection.execute(
            "SELECT 1 FROM compared WHERE run_id = ? AND worker IS NOT NULL LIMIT 1", [run.run_id]
        ).fetchone()
    )
    one = "'" + run.run_id.replace("'", "''") + "'"
    source = "transfers" if known else "compared_spans"
    connection.execute(f"""
        CREATE OR REPLACE TEMP VIEW attempts AS
        SELECT *, NULL::VARCHAR AS parent_id, NULL::VARCHAR AS cpu_scope, NULL::BIGINT AS result_bytes,
            NULL::JSON AS args,
            NULL::VARCHAR AS error_type
        FROM compared WHERE run_id = {one};
        CREATE OR REPLACE TEMP VIEW spans AS
        SELECT *, duration_s AS self_s, false AS open FROM {source} WHERE run_id = {one}
    """)  # noqa: S608 - quoted, and ours
    try:
        hold(connection, until)
        return shares(connection, workers, (start, until))
    finally:
        connection.close()


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)
