"""Tasks of a large run, from the columns of their events: the same numbers as `TaskTally` gives one by one.

Distributions, sums and metrics of columns are computed here too, for tasks and for spans.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flightlog.analyze.report.interval_tables import hold_attempts, most_at_once, scalar
from flightlog.analyze.report.tasks import (
    IN_FLIGHT,
    SLOWEST,
    TaskNameTally,
    TaskRow,
    TaskSummary,
    in_flight_row,
    summary_of,
    task_row,
)
from flightlog.analyze.tallies import LARGEST, MetricTally, metric_stats
from flightlog.core.stats import QUANTILES, Distribution, distribution_of, exact_sum, place_of
from flightlog.events import TaskStarted
from flightlog.store.tables.views import attempts_of_one

if TYPE_CHECKING:
    import duckdb

    from flightlog.events.base import Json

_SCALE = 83
_MODEST = f"({{0}} = 0 OR abs({{0}}) BETWEEN {2.0**-30!r} AND {2.0**20!r})"
"""Numbers that are whole when multiplied by 2 to the 83rd: so many of them as memory holds add up in 127
bits."""


def exact_total(column: str, where: str) -> str:
    """A select list: how many values a column has, their exact sum in units of 2 to the -83rd, all where that
    has none.
    """
    modest = f"coalesce(bool_and({_MODEST.format(column)}) FILTER ({where}), true)"
    scaled = f"CAST(CASE WHEN {_MODEST.format(column)} THEN {column} ELSE 0 END * {2.0**_SCALE!r} AS HUGEINT)"
    return (
        f"count({column}) FILTER ({where}), sum({scaled}) FILTER ({where}),"
        f" CASE WHEN {modest} THEN NULL ELSE list({column}) FILTER ({where}) END"
    )


def total_of(scaled: int | None, values: list[float] | None) -> float:
    """The sum that `exact_total` found, rounded once."""
    return exact_sum(values) if values is not None else int(scaled or 0) / (1 << _SCALE)


def ordered(column: str, where: str) -> str:
    """An aggregate: the values in order, for `picked`."""
    return f"list({column} ORDER BY {column}) FILTER ({where})"


def picked(values: str) -> str:
    """Of a list in order, what its distribution is made of: the ends, and two values for each quantile."""
    last = f"(len({values}) - 1)"
    places = ", ".join(
        f"{values}[CAST(floor({q!r}::DOUBLE * {last}) AS BIGINT) + 1],"
        f" {values}[least(CAST(floor({q!r}::DOUBLE * {last}) AS BIGINT) + 2, len({values}))]"
        for q in QUANTILES
    )
    return f"[{values}[1], {values}[-1], {places}]"


def spread_of(picks: list[float] | None, count: int, *total: Any) -> Distribution:
    """The distribution, of what `picked` and `exact_total` found."""
    if picks is None or not count:
        return Distribution()
    low, high, *pairs = picks
    quantiles = [
        place_of(q, count).between(*pair)
        for q, pair in zip(QUANTILES, zip(pairs[::2], pairs[1::2], strict=True), strict=True)
    ]
    return distribution_of(count, total_of(*total), low, high, quantiles)


_PAIRED = """
CREATE OR REPLACE TEMP TABLE paired AS
SELECT *, lines = bit_count(kinds) AND ends = 1 AND agrees AND says_all AS regular FROM (
    SELECT
        task_id,
        attempt,
        max("timestamp") FILTER (kind = 1) AS submitted_at,
        max("timestamp") FILTER (kind = 2) AS queued_at,
        max("timestamp") FILTER (kind = 3) AS started_at,
        max(queue_s) FILTER (kind = 3) AS queue_at_start,
        CAST(count(*) AS INTEGER) AS lines,
        bit_or(1 << CAST(kind AS INTEGER)) AS kinds,
        CAST(count(*) FILTER (kind >= 5) AS INTEGER) AS ends,
        min(hash(task, component)) = max(hash(task, component)) AS agrees,
        bool_and(kind < 5 OR (worker IS NOT NULL AND span_id IS NOT NULL AND args IS NOT NULL)) AS says_all
    FROM tasks_read
    GROUP BY task_id, attempt
)
"""
"""One row per attempt; `kinds` has a bit for each kind of its lines. Of a `regular` one the end says all
there is to say but when it was submitted, queued and started: of others every line is asked."""

_REGULAR = """
SELECT
    ended.task, task_id, attempt, ended.component, ended.worker, ended.span_id, ended.args,
    {needs} AS depends_on,
    CASE ended.kind WHEN 5 THEN 'completed' WHEN 6 THEN 'failed' ELSE 'cancelled' END AS state,
    kinds & 16 > 0 AS retried,
    paired.submitted_at, paired.queued_at, paired.started_at, ended."timestamp" AS ended_at,
    coalesce(ended.queue_s, paired.queue_at_start) AS queue_s,
    ended.duration_s, ended.cpu_s, ended.cpu_scope, ended.result_bytes, ended.error_type
FROM tasks_read AS ended JOIN paired USING (task_id, attempt) {join}
WHERE ended.kind >= 5 AND paired.regular
"""

_NEEDS = """LEFT JOIN (
    SELECT task_id, attempt, depends_on FROM tasks_read WHERE kind = 1 AND len(depends_on) > 0
) AS needs USING (task_id, attempt)"""

_AND_OTHERS = """
UNION ALL BY NAME
SELECT
    task, task_id, attempt, component, worker, span_id, args, depends_on, state, retried, submitted_at,
        queued_at,
    started_at, ended_at, queue_s, duration_s, cpu_s, cpu_scope, result_bytes, error_type
FROM ({others})
"""

_OTHERS = """(
    SELECT * EXCLUDE (kind), NULL AS args_digest, NULL AS tags, NULL AS parent_id, NULL AS scheduler_s,
        NULL AS transfer_s, NULL AS spill_s, NULL AS requests, ['task_submitted', 'task_queued',
            'task_started',
        'task_retried', 'task_completed', 'task_failed', 'task_cancelled'][kind] AS event
    FROM tasks_read SEMI JOIN (SELECT task_id, attempt FROM paired WHERE NOT regular) USING (task_id, attempt)
)"""

_DONE, _NOT_DONE = "kind = 5 AND duration_s IS NOT NULL", "kind > 5 AND duration_s IS NOT NULL"

_BY_NAME = f"""
SELECT * EXCLUDE (durations), {picked("durations")} FROM (
    SELECT task,
        count(*) FILTER (kind = 1), count(*) FILTER (kind = 5), count(*) FILTER (kind = 7), count(*)
            FILTER (kind = 4),
        list(DISTINCT coalesce(nullif(cpu_scope, ''), 'unknown')) FILTER (cpu_s IS NOT NULL),
        max(peak_rss_bytes),
        list(DISTINCT coalesce(nullif(rss_scope, ''), 'unknown')) FILTER (peak_rss_bytes IS NOT NULL),
        sum(read_bytes), sum(write_bytes),
        max(gpu_peak_bytes),
        list(DISTINCT coalesce(nullif(gpu_memory_scope, ''), 'unknown')) FILTER (gpu_peak_bytes IS NOT NULL),
        list(DISTINCT coalesce(nullif(gpu_scope, ''), 'unknown')) FILTER (gpu_s IS NOT NULL),
        {exact_total("duration_s", _DONE)},
        {exact_total("duration_s", _NOT_DONE)},
        {exact_total("cpu_s", "cpu_s IS NOT NULL")},
        {exact_total("gpu_s", "gpu_s IS NOT NULL")},
        {ordered("duration_s", _DONE)} AS durations
    FROM tasks_read WHERE kind NOT IN (2, 3) GROUP BY task
)
"""  # noqa: S608 - constants

_ALL_NAMES = f"""
SELECT {picked("durations")}, * EXCLUDE (durations) FROM (
    SELECT {ordered("duration_s", _DONE)} AS durations, {exact_total("duration_s", _DONE)},
        {exact_total("duration_s", _NOT_DONE)}
    FROM tasks_read WHERE kind >= 5
)
"""  # noqa: S608 - constants

_FLYING = """
CREATE OR REPLACE TEMP TABLE in_flight AS
SELECT task, task_id, attempt, worker, queue_s, strftime("timestamp", '%Y-%m-%dT%H:%M:%S.%fZ') AS since
FROM tasks_read
    SEMI JOIN (SELECT task_id, attempt FROM paired WHERE kinds & 8 > 0 AND kinds & 240 = 0)
        USING (task_id, attempt)
WHERE kind = 3
"""

_PENDING = """
WITH waiting AS (SELECT task_id FROM paired WHERE kinds & 2 > 0 AND kinds & 232 = 0)
SELECT count(*) FROM waiting
WHERE task_id NOT IN (SELECT task_id FROM paired WHERE kinds & 232 > 0 AND attempt > 1)
"""


def pair_up(connection: duckdb.DuckDBPyConnection) -> bool:
    """Bring the lines of each attempt together, from `tasks_read`; whether no line of one is there twice."""
    connection.execute(_PAIRED)
    twice = scalar(
        connection,
        "SELECT count(*) FROM paired WHERE lines <> bit_count(kinds) OR ends > 1 OR (kinds & 2 > 0 AND "
        "attempt <> 1)",
    )
    return not twice


def hold_tasks(connection: duckdb.DuckDBPyConnection, run_id: str, until: int | None, scratch: Path) -> None:
    """Make the table `attempt_intervals` of what was paired up; most are kept in the folder `scratch`."""
    [(dependent, superseded, others)] = connection.execute(
        """
        SELECT (SELECT count(*) FROM tasks_read WHERE len(depends_on) > 0) > 0,
            coalesce(bool_or(kinds & 248 = 0) AND max(attempt) > 1, false),
                coalesce(bool_or(NOT regular), false)
        FROM paired
        """
    ).fetchall()
    # Each part of the statement reads all lines again: none is asked that has nothing to say.
    attempts = _REGULAR.format(
        needs="needs.depends_on" if dependent else "CAST(NULL AS VARCHAR[])", join=_NEEDS if dependent else ""
    )
    if others:
        attempts += _AND_OTHERS.format(others=attempts_of_one(run_id, _OTHERS))
    in_memory = dependent or superseded
    if in_memory or others:
        connection.execute("RESET memory_limit")  # these are put together in memory, however many they are
    hold_attempts(connection, until, attempts, file=None if in_memory else scratch / "held.parquet")


def hold_views(connection: duckdb.DuckDBPyConnection, until: int | None, scratch: Path) -> bool:
    """Make the table `attempt_intervals` of the view `attempts`, in the folder `scratch`; not where some wait
    for others.
    """
    entangled = scalar(
        connection,
        """
        SELECT coalesce(bool_or(len(depends_on) > 0), false)
            OR (coalesce(bool_or(state = 'pending'), false) AND max(attempt) > 1)
        FROM attempts
        """,
    )
    if not entangled:
        hold_attempts(connection, until, "FROM attempts", file=scratch / "held.parquet")
    return not entangled


def task_summary(connection: duckdb.DuckDBPyConnection, until: int | None) -> TaskSummary:
    """All tasks, from `tasks_read`, `paired` and `attempt_intervals`."""
    names = _by_name(connection)
    [(durations, *ends)] = connection.execute(_ALL_NAMES).fetchall()
    connection.execute(_FLYING)
    for column, sql in (
        ("running", "SELECT task, count(*) FROM in_flight GROUP BY task"),
        (
            "failed",
            "SELECT task, count(*) FROM attempt_intervals WHERE state = 'failed' AND NOT retried GROUP BY "
            "task",
        ),
    ):
        for task, number in connection.execute(sql).fetchall():
            setattr(names.setdefault(task, CountedName()), column, number)
    known = "state <> 'pending' AND queue_s IS NOT NULL"
    [(picks, *total)] = connection.execute(
        f"""
        SELECT {picked("queued")}, * EXCLUDE (queued) FROM (
            SELECT {ordered("queue_s", known)} AS queued, {exact_total("queue_s", known)}
                FROM attempt_intervals
        )
        """  # noqa: S608 - constants
    ).fetchall()
    pending = scalar(connection, _PENDING)
    return summary_of(
        names,
        pending=pending,
        queue_s=spread_of(picks, *total),
        duration_s=spread_of(durations, *ends[:3]),
        failed_s=total_of(*ends[4:]),
        slowest=_slowest(connection),
        in_flight=_flying(connection, until),
    )


class CountedName(TaskNameTally):
    """The tally of a name whose values were counted in their table."""

    def __init__(self) -> None:
        super().__init__()
        self.durations_spread = Distribution()
        self.sums: tuple[float, float | None, float | None] = (0.0, None, None)

    def spread(self) -> Distribution:
        """Of the durations of completed ones."""
        return self.durations_spread

    def lost_s(self) -> float:
        """The durations of those that did not complete."""
        return self.sums[0]

    def cpu_s(self) -> float | None:
        """Of all attempts that know it."""
        return self.sums[1]

    def gpu_s(self) -> float | None:
        """Of all attempts that know it."""
        return self.sums[2]


def _by_name(connection: duckdb.DuckDBPyConnection) -> dict[str, TaskNameTally]:
    names: dict[str, TaskNameTally] = {}
    answer = connection.execute(_BY_NAME)
    while row := answer.fetchone():
        name = names[row[0]] = CountedName()
        name.submitted, name.completed, name.cancelled, name.retried = row[1:5]
        name.cpu_scopes.update(row[5] or ())
        name.peak = None if row[6] is None else max(0, row[6])
        name.rss_scopes.update(row[7] or ())
        name.read, name.write = (None if number is None else int(number) for number in row[8:10])
        name.gpu_peak = None if row[10] is None else max(0, row[10])
        name.gpu_memory_scopes.update(row[11] or ())
        name.gpu_scopes.update(row[12] or ())
        done, lost, cpu, gpu = row[13:16], row[16:19], row[19:22], row[22:25]
        name.durations_spread = spread_of(row[25], *done)
        name.sums = (
            total_of(*lost[1:]),
            total_of(*cpu[1:]) if cpu[0] else None,
            total_of(*gpu[1:]) if gpu[0] else None,
        )
    measured = metrics_by_owner(
        connection, 'SELECT task AS owner, metrics, "timestamp", writer, seq FROM tasks_read WHERE kind >= 5'
    )
    for task, metrics in measured.items():
        names[task].metrics = metrics
    return names


def _slowest(connection: duckdb.DuckDBPyConnection) -> list[TaskRow]:
    rows = connection.execute(
        """
        SELECT task, task_id, args, duration_s, worker FROM tasks_read WHERE kind = 5
            AND duration_s IS NOT NULL
        ORDER BY duration_s DESC, task, task_id, attempt LIMIT $few
        """,
        {"few": SLOWEST},
    ).fetchall()
    return [task_row(*row) for row in rows]


def _flying(connection: duckdb.DuckDBPyConnection, until: int | None) -> list[Any]:
    starts = [
        TaskStarted(
            task=task, task_id=task_id, attempt=attempt, worker=worker, queue_s=queue_s, timestamp=since
        )
        for task, task_id, attempt, worker, queue_s, since in connection.execute(
            "SELECT * FROM in_flight ORDER BY since, task, task_id, attempt LIMIT $few", {"few": IN_FLIGHT}
        ).fetchall()
    ]
    args: dict[str, Json] = {}
    if starts:
        rows = connection.execute(
            "SELECT task_id, args FROM tasks_read WHERE kind = 1 AND task_id IN (SELECT "
            "unnest($ids::VARCHAR[]))",
            {"ids": [start.task_id for start in starts]},
        ).fetchall()
        args = {task_id: msgspec.json.decode(text or "{}") for task_id, text in rows}
    return [in_flight_row(start, until, args.get(start.task_id)) for start in starts]


class HeldWork:
    """What the workers had to do, from `attempt_intervals`, `in_flight` and `tasks_read`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, in_turn: bool) -> None:
        self._connection, self._in_turn = connection, in_turn
        self.most: tuple[int, int] | None = None
        """How many attempts were at once at most, and when first, where `busy` has found that of all of
        them."""
        rows = connection.execute(
            "SELECT worker, count(*) FROM tasks_read WHERE kind >= 5 AND worker IS NOT NULL GROUP BY worker"
        ).fetchall()
        self.attempts: dict[str, int] = dict(rows)
        [done] = connection.execute(
            f"SELECT {exact_total('duration_s', _DONE)} "  # noqa: S608 - constants
            "FROM tasks_read WHERE worker IS NOT NULL"
        ).fetchall()
        self.completed_s = total_of(*done[1:])
        for worker, number in connection.execute(
            "SELECT worker, count(*) FROM in_flight WHERE worker IS NOT NULL GROUP BY worker"
        ).fetchall():
            self.attempts[worker] = self.attempts.get(worker, 0) + number

    def bounds(self) -> dict[str, tuple[int, int] | None]:
        """The first start and the last end on each worker; None where no time is known."""
        rows = self._connection.execute(
            "SELECT worker, min(since), max(until) "  # noqa: S608 - a constant
            f"FROM ({_OCCUPIED}) GROUP BY worker"
        ).fetchall()
        known = {worker: (since, until) for worker, since, until in rows}
        return {**dict.fromkeys(self.attempts), **known}

    def busy(self, ups: Mapping[str, list[tuple[int, int]]]) -> tuple[dict[str, int], int]:
        """For how many nanoseconds each worker was held while it was up, and how many were at once at
        most.
        """
        connection = self._connection
        lives = [(name, since, until) for name, spans in ups.items() for since, until in spans]
        columns: list[list[Any]] = [list(column) for column in zip(*lives, strict=True)] or [[], [], []]
        connection.execute(
            """
            CREATE OR REPLACE TEMP TABLE lives AS SELECT unnest($1::VARCHAR[]) AS worker,
                unnest($2::BIGINT[]) AS since, unnest($3::BIGINT[]) AS until
            """,
            columns,
        )
        connection.execute(_AT_WORK.format(since="since" if self._in_turn else _SINCE))
        rows = connection.execute("SELECT worker, sum(until - since) FROM at_work GROUP BY worker").fetchall()
        busy = {worker: int(time) for worker, time in rows}
        most = most_at_once(connection, "SELECT since, until FROM at_work")
        if self._in_turn:
            held = scalar(connection, "SELECT sum(stopped - began) FROM sequential_attempts")
            self.most = most if sum(busy.values()) == held else None
        return {**dict.fromkeys(ups, 0), **busy}, most[0] if most is not None else 0


_OCCUPIED = """
SELECT worker, began AS since, stopped AS until FROM attempt_intervals
WHERE worker IS NOT NULL AND began IS NOT NULL AND stopped IS NOT NULL
"""


_SINCE = """greatest(since, coalesce(max(until) OVER (
    PARTITION BY worker ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
), since))"""

_AT_WORK = f"""
CREATE OR REPLACE TEMP TABLE at_work AS
SELECT worker, since, until FROM (
    SELECT worker, until, {{since}} AS since
    FROM (
        SELECT worker, greatest(attempt_intervals.since, lives.since) AS since,
            least(attempt_intervals.until, lives.until) AS until
        FROM ({_OCCUPIED}) AS attempt_intervals JOIN lives USING (worker)
    )
    WHERE since < until
)
WHERE since < until
"""  # noqa: S608 - a constant
"""What the attempts on each worker cover while it is up, in pieces that do not overlap."""


_VALUES = """
CREATE OR REPLACE TEMP TABLE metric_values AS
SELECT owner, name, "timestamp", writer, seq, 0 AS place,
    CASE WHEN kind IN ('UBIGINT', 'BIGINT', 'DOUBLE', 'HUGEINT', 'UHUGEINT')
        THEN TRY_CAST(CAST(value AS VARCHAR) AS DOUBLE) END AS number,
    CASE WHEN kind = 'ARRAY' THEN CAST(value AS JSON[]) END AS several
FROM (
    SELECT *, json_type(value) AS kind FROM (
        SELECT owner, "timestamp", writer, seq, unnest(json_keys(metrics)) AS name,
            unnest(json_extract(metrics, '$.*')) AS value
        FROM ({rows}) WHERE metrics IS NOT NULL AND metrics <> '{{}}'
    )
)
WHERE number IS NOT NULL OR several IS NOT NULL
"""
"""One row a value, or a list of them: a whole number, or one with a fraction."""

_SEVERAL = """
INSERT INTO metric_values
SELECT owner, name, "timestamp", writer, seq, place,
    CASE WHEN json_type(value) IN ('UBIGINT', 'BIGINT', 'DOUBLE', 'HUGEINT', 'UHUGEINT')
        THEN TRY_CAST(CAST(value AS VARCHAR) AS DOUBLE) END AS number,
    NULL AS several
FROM (
    SELECT owner, name, "timestamp", writer, seq, unnest(several) AS value,
        generate_subscripts(several, 1) - 1 AS place
    FROM metric_values WHERE several IS NOT NULL
)
"""

_LAST = """
WITH latest AS (
    SELECT owner, name, max("timestamp") AS "timestamp" FROM metric_values WHERE {counts} GROUP BY owner, name
)
SELECT owner, name, number FROM metric_values SEMI JOIN latest USING (owner, name, "timestamp") WHERE {counts}
QUALIFY row_number() OVER (
    PARTITION BY owner, name ORDER BY writer DESC, seq DESC, place DESC, number DESC
) = 1
"""


def metrics_by_owner(connection: duckdb.DuckDBPyConnection, rows: str) -> dict[str, MetricTally]:
    """The metrics of each owner.

    `rows` is a select statement of `owner`, `metrics`, `timestamp`, `writer` and `seq`, one row a line.
    """
    counts = f"abs(number) <= {LARGEST}"
    connection.execute(_VALUES.format(rows=rows))
    connection.execute(_SEVERAL)
    last = {
        (owner, name): number
        for owner, name, number in connection.execute(_LAST.format(counts=counts)).fetchall()
    }
    found: dict[str, MetricTally] = {}
    answer = connection.execute(
        f"""
        SELECT owner, name, min(number), max(number), {exact_total("number", counts)}
        FROM metric_values WHERE {counts} GROUP BY owner, name
        """  # noqa: S608 - ours
    )
    while row := answer.fetchone():
        owner, name, low, high, count, *total = row
        stats = metric_stats(count, total_of(*total), low, high, last[owner, name])
        found.setdefault(owner, MetricTally()).put(name, stats)
    connection.execute("DROP TABLE metric_values")
    return found
