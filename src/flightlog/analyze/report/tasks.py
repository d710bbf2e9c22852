"""Tasks: counts, durations and waits, the slow, those in flight and whether they take longer than usual, what
the workers had to do, and concurrency; all from the table `attempt_intervals`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from flightlog.analyze.limits import ReportLimits
from flightlog.analyze.report.metrics import (
    MetricStats,
    distribution_from,
    distribution_sql,
    metrics_by_owner,
    total_sql,
)
from flightlog.analyze.tallies import copied
from flightlog.core.stats import Distribution
from flightlog.core.time import SECOND, seconds, timestamp_of
from flightlog.events.base import Json
from flightlog.store.tables.intervals import most_at_once

if TYPE_CHECKING:
    from flightlog.analyze.report.spans import SpanName
    from flightlog.analyze.report.summary import Summary
    from flightlog.store.tables.connection import Executes
    from flightlog.store.tables.run_tables import RunTables


class TaskRow(Struct, frozen=True, kw_only=True):
    """One completed task."""

    task: str
    task_id: str
    args: Json
    duration_s: float
    worker: str | None


class TaskInFlight(Struct, frozen=True, kw_only=True):
    """An attempt that started, and whose end was not recorded."""

    task: str
    task_id: str
    attempt: int
    args: Json | None
    worker: str | None
    since: str
    elapsed_s: float | None
    """Up to the run's end or last sign of life."""


class TaskCounts(Struct, frozen=True, kw_only=True):
    """Tasks by how they ended. `failed` counts those that failed for good: a retried attempt counts in
    `retried` alone.
    """

    submitted: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    running: int
    """Attempts started without an end."""


class TaskName(TaskCounts, frozen=True, kw_only=True):
    """All tasks of one name."""

    duration_s: Distribution
    """Of completed tasks."""
    failed_s: float
    """Time spent in attempts that failed or were cancelled."""
    cpu_s: float | None
    """CPU time of all ended attempts that know it."""
    cpu_scopes: list[str]
    """What their CPU time covers; that of a whole process counts other threads in."""
    peak_rss_bytes: int | None
    rss_scopes: list[str]
    """Whose memory; with `process_at_least` the peak is a lower bound of what the tasks themselves need."""
    read_bytes: int | None
    write_bytes: int | None
    metrics: dict[str, MetricStats]
    gpu_peak_bytes: int | None = None
    gpu_memory_scopes: list[str] = []
    """Whose GPU memory; of `device` others' is counted in, and `allocator_at_least` is a lower bound."""
    gpu_s: float | None = None
    """GPU time of all ended attempts that know it."""
    gpu_scopes: list[str] = []
    """Whose GPU time: with `device` others' is counted in, and that of attempts at one time more than
    once."""


class TaskSummary(TaskCounts, frozen=True, kw_only=True):
    """All tasks."""

    pending: int
    """Submitted, and never seen to start."""
    duration_s: Distribution
    """Execution alone, of completed tasks."""
    queue_s: Distribution
    """From submission to start, of all attempts that know it."""
    failed_s: float
    names: int
    by_name: dict[str, TaskName]
    slowest: list[TaskRow]
    in_flight: list[TaskInFlight]


COUNTED = {
    "submitted": "was_submitted",
    "completed": "state = 'completed'",
    "failed": "state = 'failed' AND NOT retried",
    "cancelled": "state = 'cancelled'",
    "retried": "retried",
    "running": "state = 'running'",
    "not_begun": "state = 'pending'",
}
"""Which attempts of `attempt_intervals` the fields of `TaskCounts` count, and which have not begun."""
COUNTS_SQL = ", ".join(f"count(*) FILTER ({which}) AS {name}" for name, which in COUNTED.items())

_BY_NAME = f"""
SELECT grouping(task) = 1 AS of_all, task, {COUNTS_SQL},
    coalesce(bool_or(metrics <> '{{}}'), false) AS measured,
    {distribution_sql("duration_s", "state = 'completed'", "durations")},
    {distribution_sql("queue_s", "state <> 'pending'", "queued")},
    coalesce({total_sql("duration_s", "state IN ('failed', 'cancelled')")}, 0.0) AS failed_s,
    {total_sql("cpu_s")} AS cpu_s, {total_sql("gpu_s")} AS gpu_s,
    max(peak_rss_bytes) AS peak_rss_bytes, max(gpu_peak_bytes) AS gpu_peak_bytes,
    sum(read_bytes)::HUGEINT AS read_bytes, sum(write_bytes)::HUGEINT AS write_bytes
FROM attempt_intervals GROUP BY GROUPING SETS ((task), ())
"""  # noqa: S608 - constants
_SCOPES = {
    "cpu_scopes": ("cpu_scope", "cpu_s"),
    "rss_scopes": ("rss_scope", "peak_rss_bytes"),
    "gpu_memory_scopes": ("gpu_memory_scope", "gpu_peak_bytes"),
    "gpu_scopes": ("gpu_scope", "gpu_s"),
}
"""What the lists of scopes are made of: a column, and the one that it is the scope of."""

PENDING = """
SELECT count(DISTINCT task_id) FROM attempt_intervals WHERE state = 'pending' AND was_submitted
    AND task_id NOT IN (
        SELECT task_id FROM attempt_intervals WHERE state <> 'pending'
            AND task_id IN (SELECT task_id FROM attempt_intervals WHERE attempt <> 1)
    )
"""
"""How many tasks were submitted and never seen to start."""

_MEASURED = """
SELECT task AS owner, metrics, coalesce(ended, stopped) AS moment, row(task_id, attempt) AS tie
FROM attempt_intervals
WHERE state NOT IN ('pending', 'running')
"""


def task_summary(tables: RunTables, until: int | None) -> TaskSummary:
    """All tasks, from `attempt_intervals`; `until` is the end of the run, or its last heartbeat."""
    scopes = _scopes(tables)
    rows = tables.records(_BY_NAME)
    [row] = [row for row in rows if row["of_all"]]
    measured = metrics_by_owner(tables, _MEASURED) if row["measured"] else {}
    names = {
        row["task"]: _task_name(row, scopes[row["task"]], measured.get(row["task"], {}))
        for row in rows
        if not row["of_all"]
    }
    whole = _task_name(row, {}, {})
    listed = sorted(names, key=lambda name: (-_size(names[name]), name))[: ReportLimits.max_listed_names]
    return TaskSummary(
        **{name: getattr(whole, name) for name in TaskCounts.__struct_fields__},
        duration_s=whole.duration_s,
        failed_s=whole.failed_s,
        pending=tables.scalar(PENDING) if row["not_begun"] else 0,
        queue_s=distribution_from(row, "queued"),
        names=len(names),
        by_name={name: names[name] for name in sorted(listed)},
        slowest=_slowest(tables) if whole.completed else [],
        in_flight=tasks_in_flight(tables, until) if whole.running else [],
    )


def _scopes(tables: RunTables) -> dict[str, dict[str, set[str]]]:
    """Of each name, what its measurements cover."""
    said = ", ".join(
        f"CASE WHEN {column} IS NOT NULL THEN coalesce(nullif({scope}, ''), 'unknown') END"
        for scope, column in _SCOPES.values()
    )
    found: dict[str, dict[str, set[str]]] = {}
    rows = tables.execute(f"SELECT DISTINCT task, {said} FROM attempt_intervals")  # noqa: S608 - ours
    for task, *values in rows.fetchall():
        of_name = found.setdefault(task, {name: set() for name in _SCOPES})
        for name, value in zip(_SCOPES, values, strict=True):
            if value is not None:
                of_name[name].add(value)
    return found


def _task_name(
    row: Mapping[str, Any], scopes: Mapping[str, set[str]], metrics: dict[str, MetricStats]
) -> TaskName:
    found: dict[str, Any] = {name: sorted(scopes.get(name, ())) for name in _SCOPES}
    return copied(TaskName, row, **found, duration_s=distribution_from(row, "durations"), metrics=metrics)


def _size(name: TaskName) -> int:
    """How much there is of it."""
    return max(name.submitted, name.completed + name.failed + name.cancelled + name.running)


def _slowest(tables: RunTables) -> list[TaskRow]:
    rows = tables.execute(
        """
        WITH slowest AS ( -- arguments are looked up for these alone
            SELECT task_id, attempt FROM attempt_intervals
            WHERE state = 'completed' AND duration_s IS NOT NULL
            ORDER BY duration_s DESC, task, task_id, attempt LIMIT $few
        )
        SELECT task, task_id, args, duration_s, worker FROM attempt_intervals
        SEMI JOIN slowest USING (task_id, attempt) ORDER BY duration_s DESC, task, task_id, attempt
        """,
        {"few": ReportLimits.max_slowest_tasks},
    ).fetchall()
    return [task_row(*row) for row in rows]


def tasks_in_flight(tables: RunTables, until: int | None) -> list[TaskInFlight]:
    """The attempts that began and have no end, the earliest first, each up to the last sign of life of the
    process that told of its start, or else to `until`.
    """
    rows = tables.records(
        """
        WITH oldest AS (
            SELECT * FROM attempt_intervals WHERE state = 'running'
            ORDER BY started NULLS FIRST, task, task_id, attempt LIMIT $few
        ), starts AS (
            SELECT task_id, attempt, arg_max(writer, "timestamp") AS writer
            FROM task_lines SEMI JOIN oldest USING (task_id, attempt) WHERE kind = 3 GROUP BY ALL
        )
        SELECT oldest.task, task_id, oldest.attempt, oldest.worker, oldest.started,
            coalesce(oldest.args, first.args) AS args, -- submissions alone, of the first attempt, tell them
            coalesce(at_ns(by_writer[starts.writer]), $until) AS seen
        FROM oldest
            LEFT JOIN (SELECT task_id, args FROM attempt_intervals WHERE attempt = 1) AS first USING (task_id)
            LEFT JOIN starts ON starts.task_id = oldest.task_id AND starts.attempt = oldest.attempt
            LEFT JOIN last_signs ON true
        ORDER BY oldest.started NULLS FIRST, oldest.task, task_id, oldest.attempt
        """,
        {"few": ReportLimits.max_listed_in_flight, "until": until},
    )
    return [
        copied(
            TaskInFlight,
            row,
            args=None if row["args"] is None else msgspec.json.decode(row["args"]),
            since="" if (started := row["started"]) is None else timestamp_of(started),
            elapsed_s=None
            if started is None or row["seen"] is None
            else seconds(max(0, row["seen"] - started)),
        )
        for row in rows
    ]


def task_row(task: str, task_id: str, args: str | None, duration_s: float, worker: str | None) -> TaskRow:
    """One completed task, with its arguments as JSON."""
    found: Json = msgspec.json.decode(args or "{}")
    return TaskRow(task=task, task_id=task_id, args=found, duration_s=duration_s, worker=worker)


class Concurrency(Struct, frozen=True, kw_only=True):
    """Attempts running at once: means over equal buckets of the run's time, and the most there ever were.

    An attempt counts while it executes; one that ended the moment another began was not beside it.
    """

    since: str
    bucket_s: float
    running: list[float]
    """Mean number running in each bucket, from `since` on."""
    mean: float
    """Over the whole time of the run."""
    peak: int
    peak_at: str | None
    """When `peak` ran at once for the first time."""


def concurrency(tables: RunTables) -> Concurrency | None:
    """Concurrency between the run's start and its end, from its `attempt_intervals` table; None where nothing
    ran or no time passed.

    What ran outside of these bounds, by clocks that disagree, is left out of the means.
    """
    start, until = tables.window
    if start is None or until is None or until <= start:
        return None
    most = most_at_once(
        tables, "SELECT began AS since, stopped AS until FROM attempt_intervals WHERE began IS NOT NULL"
    )
    if most is None:
        return None
    lasted, buckets = until - start, ReportLimits.concurrency_points
    bounds = [lasted * n // buckets for n in range(buckets + 1)]
    intervals = f"""
        SELECT least(greatest(began - {start}, 0), {lasted}) AS since,
            least(greatest(stopped - {start}, 0), {lasted}) AS until
        FROM attempt_intervals WHERE began IS NOT NULL
    """  # noqa: S608 - numbers
    [done] = work_until(tables, [intervals], bounds, f"moment::HUGEINT * {buckets} // {lasted}")
    running = [
        (done[n + 1] - done[n]) / (bounds[n + 1] - bounds[n]) if bounds[n + 1] > bounds[n] else 0.0
        for n in range(buckets)
    ]
    return Concurrency(
        since=timestamp_of(start),
        bucket_s=lasted / buckets / SECOND,
        running=running,
        mean=seconds(done[-1]) / seconds(lasted),
        peak=most[0],
        peak_at=timestamp_of(most[1]),
    )


def work_until(
    tables: Executes, lines: Sequence[str], bounds: Sequence[int], number: str, parameters: Any = None
) -> list[list[int]]:
    """For how long the intervals of each line have run up to each bound, all together.

    A line is a select statement of `since` and `until`, none of them beyond the bounds; `number` an
    expression: between which bounds a `moment` lies. Up to a moment t an interval has run for t - since, less
    t - until once it is over: so sums by number are enough, however many intervals there are.
    """
    intervals = " UNION ALL ".join(
        f"SELECT {place} AS line, since, until FROM ({line})"  # noqa: S608 - a number, and statements of ours
        for place, line in enumerate(lines)
    )
    found = {
        (line, int(place)): (int(running), int(total))
        for line, place, running, total in tables.execute(
            f"""
            WITH intervals AS ({intervals}), sums AS (
                SELECT line, {number} AS number, count(*) AS steps, sum(moment) AS moments
                FROM (SELECT line, since AS moment FROM intervals) GROUP BY ALL
                UNION ALL SELECT line, {number}, -count(*), -sum(moment)
                FROM (SELECT line, until AS moment FROM intervals) GROUP BY ALL
            )
            SELECT line, number, sum(steps), sum(moments) FROM sums GROUP BY ALL
            """,  # noqa: S608 - numbers, and statements of ours
            parameters,
        ).fetchall()
    }
    done = [[0] for _ in lines]
    for line, up_to in enumerate(done):
        running = total = 0
        for place, bound in enumerate(bounds[1:]):
            steps, moments = found.get((line, place), (0, 0))
            running, total = running + steps, total + moments
            up_to.append(running * bound - total)
    return done


class UsualDuration(Struct, frozen=True, kw_only=True):
    """How long the ended ones of one name took."""

    count: int
    p50: float
    p95: float
    max: float
    of: Literal["run", "history"]
    """Where they ended: in this run, or in earlier ones."""


class InFlight(Struct, frozen=True, kw_only=True):
    """A task or span that began and has no end."""

    kind: Literal["task", "span"]
    name: str
    task_id: str | None
    args: Json | None
    worker: str | None
    since: str
    elapsed_s: float | None
    """Up to the run's end or last sign of life."""
    usual: UsualDuration | None
    """Null where fewer than five of its name have ended."""
    ratio: float | None
    """elapsed_s over the usual median."""
    stuck: bool | None
    """Whether it took longer than all that ended, and than three times their p95; null where nothing is
    usual."""


def in_flight(summary: Summary, history: Mapping[str, Distribution] | None = None) -> list[InFlight]:
    """What is in flight, the stuck first, then the longest; the summary lists the oldest hundred of each
    kind.

    `history` has the durations of completed tasks of earlier runs by name; it is asked for a task of which
    this run knows fewer than five, and for nothing else.
    """
    found: list[InFlight] = []
    for task in summary.tasks.in_flight:
        name = summary.tasks.by_name.get(task.task)
        usual = _usual(name.duration_s, "run") if name is not None else None
        usual = usual or _usual((history or {}).get(task.task), "history")
        found.append(copied(InFlight, task, kind="task", name=task.task, **_compared(task.elapsed_s, usual)))
    for span in summary.spans.in_flight:
        compared = _compared(span.elapsed_s, _usual(summary.spans.by_name.get(span.name), "run"))
        nothing = {"task_id": None, "worker": None}
        found.append(copied(InFlight, span, kind="span", args=span.tags, **nothing, **compared))
    return sorted(found, key=lambda one: (not one.stuck, -(one.elapsed_s or 0.0), one.since, one.name))


def _usual(ended: Distribution | SpanName | None, of: Literal["run", "history"]) -> UsualDuration | None:
    if (
        ended is None
        or ended.count < ReportLimits.min_ended_for_usual
        or None in (ended.p50, ended.p95, ended.max)
    ):
        return None
    return copied(UsualDuration, ended, of=of)


def _compared(elapsed_s: float | None, usual: UsualDuration | None) -> dict[str, Any]:
    """What is usual, and how the time so far compares with it."""
    if usual is None or elapsed_s is None:
        return {"usual": None, "ratio": None, "stuck": None}
    ratio = elapsed_s / usual.p50 if usual.p50 > 0 else None
    return {
        "usual": usual,
        "ratio": ratio,
        "stuck": elapsed_s > max(ReportLimits.stuck_ratio * usual.p95, usual.max),
    }
