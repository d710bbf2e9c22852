"""The derived views in SQL: attempts, tasks, concurrency and spans, made from events.

Each statement reads `hidden.for_<view>` once, which holds the events of one stream that are as declared.
Lines of one thing may come in any order and from several writers; where there are several of one kind, the
latest that says anything counts. Of what all lines of an attempt should agree on (task, component, parent)
the greatest is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from flightlog.events import Usage
from flightlog.store.tables.connection import text

HIDDEN = "hidden"
"""The schema of what the views are made from."""

MOMENT = """
CAST(epoch_us(CASE WHEN isfinite("timestamp") THEN "timestamp" ELSE TIMESTAMP '0001-01-01' END) AS HUGEINT)
    * 4611686018427387904
    + CAST(greatest(coalesce(seq, 0), 0) & 70368744177663 AS HUGEINT) * 65536 + hash(writer) % 65536
"""
"""Orders the lines of one thing: by time, then by their number, then by who wrote them."""

AGE = """
CASE WHEN event = 'span_open' AND year("timestamp") BETWEEN 1971 AND 2199
    THEN (epoch_us(coalesce(by_writer[writer], of_run)) - epoch_us("timestamp")) / 1e6
END
"""
"""How long an open span had lasted at the last sign of life of its process, else of the run."""

ONE = f"""
    SELECT
        run_id,
        nullif(span_id, '') AS span_id,
        NOT bool_or(event = 'span') AS open,
        coalesce(arg_max(name, moment) FILTER (WHERE event = 'span'), arg_max(name, elapsed_s)) AS name,
        arg_max(parent_id, moment) AS parent_id,
        coalesce(max(timestamp) FILTER (WHERE event = 'span'), max(timestamp)) AS started_at,
        CASE
            WHEN bool_or(event = 'span') THEN arg_max(duration_s, moment)
            ELSE greatest(max(elapsed_s), max(age_s))
        END AS duration_s,
        arg_max(status, moment) AS status,
        coalesce(arg_max(tags, moment) FILTER (WHERE event = 'span'), arg_max(tags, elapsed_s)) AS tags,
        arg_max(metrics, moment) AS metrics,
        arg_max(error_type, moment) AS error_type,
        arg_max(error_message, moment) AS error_message,
        arg_max(thread, moment) AS thread
    FROM (
        SELECT
            *,
            {MOMENT} AS moment,
            {AGE} AS age_s,
            CASE WHEN span_id = '' THEN gen_random_uuid() END AS nameless
        FROM hidden.for_spans LEFT JOIN hidden.last_signs USING (run_id)
        WHERE event IN ('span', 'span_open')
    )
    GROUP BY run_id, span_id, nameless
"""  # noqa: S608 - a constant
"""What the lines of each span say together, from `hidden.for_spans`."""

COVERED = """
times AS (
    SELECT
        run_id, span_id, parent_id,
        epoch_us(started_at) * 1000 AS since,
        epoch_us(started_at) * 1000
            + CAST(round_even(least(greatest(duration_s, 0), 5e8) * 1e9, 0) AS BIGINT) AS until
    FROM one
    WHERE year(started_at) BETWEEN 1971 AND 2199 -- later ends, and years, leave 64 bits
        AND duration_s IS NOT NULL
),
inside AS (
    SELECT
        child.run_id, child.parent_id,
        greatest(child.since, parent.since) AS since,
        least(child.until, parent.until) AS until
    FROM times AS child
    JOIN times AS parent ON parent.run_id = child.run_id AND parent.span_id = child.parent_id
    WHERE child.span_id IS DISTINCT FROM child.parent_id
),
covered AS (
    SELECT run_id, parent_id, sum(greatest(0, until - greatest(since, coalesce(reached, since)))) AS covered
    FROM (
        SELECT *, max(until) OVER (
            PARTITION BY run_id, parent_id ORDER BY since, until
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached
        FROM inside
        WHERE until > since
    )
    GROUP BY run_id, parent_id
)
"""
"""How much of each span the spans inside it cover, each moment once, from `one`."""

OF_ONE = f"""{COVERED},
depths AS (
    SELECT run_id, span_id, 0 AS depth
    FROM one AS root
    WHERE span_id IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM one AS parent WHERE parent.run_id = root.run_id AND parent.span_id = root.parent_id
    )
    UNION ALL
    SELECT one.run_id, one.span_id, depths.depth + 1
    FROM depths JOIN one ON one.run_id = depths.run_id AND one.parent_id = depths.span_id
    WHERE one.span_id IS NOT NULL
)
SELECT
    one.run_id,
    one.name,
    one.span_id,
    one.parent_id,
    one.started_at,
    one.duration_s,
    CASE
        WHEN one.duration_s IS NOT NULL
        THEN greatest(0, greatest(0, one.duration_s) - coalesce(covered.covered, 0) / 1e9)
    END AS self_s,
    depths.depth,
    one.status,
    one.tags,
    one.metrics,
    one.error_type,
    one.error_message,
    one.thread,
    one.open
FROM one
LEFT JOIN covered ON covered.run_id = one.run_id AND covered.parent_id = one.span_id
LEFT JOIN depths ON depths.run_id = one.run_id AND depths.span_id = one.span_id
"""  # noqa: S608 - constants
"""The view, from `one`."""

SPANS = f"\nWITH RECURSIVE one AS MATERIALIZED ({ONE}),{OF_ONE}"
"""One row per span. `open` spans have no end on record; their `duration_s` is up to the last sign of life of
their process.

`self_s` is the duration less what the spans inside cover, each moment once; `depth` is 0 where the parent is
no span of the run, and null for spans without an id or in a circle.
"""


KIND = """
CASE event
    WHEN 'task_submitted' THEN 1 WHEN 'task_queued' THEN 2 WHEN 'task_started' THEN 3
    WHEN 'task_retried' THEN 4 WHEN 'task_completed' THEN 5 WHEN 'task_failed' THEN 6
    WHEN 'task_cancelled' THEN 7
END
"""
"""The kinds as numbers: a text in each of very many groups takes more time and memory than all the rest."""
_SUBMITTED, _QUEUED, _STARTED, _RETRIED, _ENDED = "kind = 1", "kind = 2", "kind = 3", "kind = 4", "kind >= 5"


USED = Usage.__struct_fields__
"""The columns of what an attempt used."""
VALUES = ("duration_s", *USED, "scheduler_s", "transfer_s", "spill_s", "requests", "result_bytes")
"""Columns of attempts that are numbers, or say what a number is of."""
_TEXTS = (
    *("metrics", "tags", "error_type", "error_message"),
    *("exit_code", "fingerprint", "reason", "depends_on"),
)
COLUMNS = (
    *("task", "task_id", "attempt", "component", "state", "retried", "worker"),
    *("submitted_at", "queued_at", "started_at", "ended_at", "queue_s"),
    *VALUES,
    *("args", "args_digest", "metrics", "error_type", "error_message", "exit_code", "fingerprint"),
    *("span_id", "parent_id", "depends_on", "tags", "reason"),
)
"""The columns of `attempts`, after `run_id`."""


PUT_BACK = "starts_with(reason, 'Dask: ')"
"""Whether an attempt was retried though it had not failed: its engine put it back into the queue by itself,
as Dask does with tasks of a shuffle. The reason is then the engine's own."""
ERROR_IN_REASON = f"""
CASE WHEN NOT {PUT_BACK} THEN
nullif(regexp_extract(reason, '^((?:[A-Za-z0-9_]+[.])*[A-Z][A-Za-z0-9_]*)(?:: |$)', 1), '') END
"""
"""The type of the error that an attempt was retried for."""
_OF_ATTEMPT = {
    "state": """CASE
        WHEN ended_as = 5 THEN 'completed'
        WHEN ended_as = 6 THEN 'failed'
        WHEN ended_as = 7 THEN 'cancelled'
        WHEN kinds & 16 > 0 THEN 'failed'
        WHEN kinds & 8 > 0 THEN 'running'
        ELSE 'pending'
    END""",
    "retried": "kinds & 16 > 0",
    "worker": "coalesce(worker_at_end, worker_at_start)",
    "ended_at": "CASE WHEN ended_as IS NULL THEN retried_at ELSE ended_at END",
    "queue_s": "coalesce(queue_at_end, queue_at_start)",
    "args": "coalesce(args_at_end, args_before)",
    "args_digest": "coalesce(digest_at_end, digest_before)",
    "error_type": f"CASE WHEN ended_as IS NULL AND kinds & 16 > 0 THEN {ERROR_IN_REASON} ELSE error_type END",
    "error_message": "CASE WHEN ended_as IS NULL AND kinds & 16 > 0 THEN reason ELSE error_message END",
    "span_id": "coalesce(span_at_end, span_at_start, span_before)",
}
"""Columns of attempts that are not what their lines say last, from what `_OF_LINES` gives."""
_OF_LINES = {
    "task": "max(task) AS task",
    "component": "max(component) AS component",
    "worker": f"""arg_max(worker, moment) FILTER (WHERE {_STARTED}) AS worker_at_start,
        arg_max(worker, moment) FILTER (WHERE {_ENDED}) AS worker_at_end""",
    "submitted_at": f"max(timestamp) FILTER (WHERE {_SUBMITTED}) AS submitted_at",
    "queued_at": f"max(timestamp) FILTER (WHERE {_QUEUED}) AS queued_at",
    "started_at": f"max(timestamp) FILTER (WHERE {_STARTED}) AS started_at",
    "ended_at": f"""max(timestamp) FILTER (WHERE {_RETRIED}) AS retried_at,
        max(timestamp) FILTER (WHERE {_ENDED}) AS ended_at""",
    "queue_s": f"""arg_max(queue_s, moment) FILTER (WHERE {_STARTED}) AS queue_at_start,
        arg_max(queue_s, moment) FILTER (WHERE {_ENDED}) AS queue_at_end""",
    "args": f"""arg_max(args, moment) FILTER (WHERE {_ENDED}) AS args_at_end,
        arg_max(args, moment) AS args_before""",
    "args_digest": f"""arg_max(args_digest, moment) FILTER (WHERE {_ENDED}) AS digest_at_end,
        arg_max(args_digest, moment) AS digest_before""",
    "span_id": f"""arg_max(span_id, moment) FILTER (WHERE {_ENDED}) AS span_at_end,
        arg_max(span_id, moment) FILTER (WHERE {_STARTED}) AS span_at_start,
        arg_max(span_id, moment) AS span_before""",
    "parent_id": "max(parent_id) AS parent_id",
    **{name: f"arg_max({name}, moment) AS {name}" for name in (*VALUES, *_TEXTS)},
}
"""What the lines of an attempt say of each column."""


def _attempts(
    run: str, keys: str, events: str = "hidden.for_attempts", columns: Sequence[str] = COLUMNS
) -> str:
    of_attempt = ", ".join(f"{_OF_ATTEMPT.get(name, name)} AS {name}" for name in columns)
    of_lines = ", ".join(_OF_LINES[name] for name in columns if name in _OF_LINES)
    return f"""
SELECT run_id, {of_attempt}
FROM (
    SELECT
        {run} AS run_id,
        task_id,
        attempt,
        arg_max(kind, moment) FILTER (WHERE {_ENDED}) AS ended_as,
        bit_or(1 << kind) AS kinds,
        {of_lines}
    FROM (
        SELECT *, {KIND} AS kind, {MOMENT} AS moment
        FROM {events}
        WHERE kind IS NOT NULL
    )
    GROUP BY {keys}
)
"""  # noqa: S608 - constants, and a quoted text


ATTEMPTS = _attempts("run_id", "run_id, task_id, attempt")
"""`attempts`: one row per attempt.

`state` is `completed`, `failed`, `cancelled`, `running` (began, no end seen) or `pending` (not begun). An
attempt that was retried without an end of its own has failed, and ended when it was retried, for the error
that the retry names; `duration_s` is what was measured, which the retry says where the engine knows it.
"""


def attempts_of_one(
    run_id: str, events: str = "hidden.for_attempts", columns: Sequence[str] = COLUMNS
) -> str:
    """As `ATTEMPTS`, of the events of one run alone, which need not be told apart by it.

    Of fewer `columns`, events need those alone; `error_type` and `error_message` need `reason`.
    """
    return _attempts(f"CAST({text(run_id)} AS VARCHAR)", "task_id, attempt", events, columns)


TASKS = """
SELECT
    run_id,
    arg_max(task, attempt) AS task,
    task_id,
    arg_max(component, attempt) AS component,
    arg_max(CASE WHEN retried AND state <> 'completed' THEN 'pending' ELSE state END, attempt) AS state,
    count(*) FILTER (WHERE state <> 'pending') AS attempts,
    min(submitted_at) AS submitted_at,
    min(started_at) AS first_started_at,
    arg_max_null(CASE WHEN NOT retried OR state = 'completed' THEN ended_at END, attempt) AS ended_at,
    arg_min_null(queue_s, attempt) AS queue_s,
    arg_max_null(duration_s, attempt) AS duration_s,
    sum(duration_s) AS total_s,
    sum(cpu_s) AS cpu_s,
    max(peak_rss_bytes) AS peak_rss_bytes,
    max(gpu_peak_bytes) AS gpu_peak_bytes,
    arg_max_null(gpu_memory_scope, row(gpu_peak_bytes, attempt)) FILTER (WHERE gpu_peak_bytes IS NOT NULL)
        AS gpu_memory_scope,
    sum(gpu_s) AS gpu_s,
    min(gpu_scope) AS gpu_scope,
    sum(scheduler_s) AS scheduler_s,
    sum(transfer_s) AS transfer_s,
    sum(spill_s) AS spill_s,
    arg_max_null(requests, attempt) AS requests,
    arg_max(args, attempt) AS args,
    arg_max(args_digest, attempt) AS args_digest,
    arg_max_null(error_type, attempt) AS error_type,
    arg_max_null(error_message, attempt) AS error_message,
    arg_max_null(worker, attempt) AS worker
FROM attempts
GROUP BY run_id, task_id
"""
"""One row per task, with what its last attempt says; a task that waits for its next attempt is `pending`.

`attempts` counts those that began. `total_s`, `cpu_s`, `gpu_s`, `scheduler_s`, `transfer_s` and `spill_s` are
sums over all attempts that know them, null where none does. Peaks are the largest of an attempt. `gpu_scope`
is `device` if that of any attempt is.
"""

CONCURRENCY = """
SELECT run_id, since, CAST(sum(sum(step)) OVER (PARTITION BY run_id ORDER BY since) AS BIGINT) AS running
FROM (
    SELECT
        run_id,
        unnest([
            began, CASE WHEN ended_at > began THEN ended_at WHEN ended_at IS NOT NULL THEN began END
        ]) AS since,
        unnest([1, -1]) AS step
    FROM (
        SELECT
            run_id,
            ended_at,
            state,
            CASE
                WHEN duration_s IS NOT NULL AND ended_at IS NOT NULL
                THEN ended_at - to_microseconds(CAST(round_even(
                    least(greatest(duration_s, 0), 2e9) * 1e6, 0) AS BIGINT))
                ELSE started_at
            END AS began
        FROM attempts
        WHERE state <> 'pending'
    )
    WHERE began IS NOT NULL AND (ended_at IS NOT NULL OR state = 'running')
)
WHERE since IS NOT NULL
GROUP BY run_id, since
"""
"""How many attempts ran from each moment on. An attempt without an end runs on for ever."""

DERIVED = {"attempts": ATTEMPTS, "tasks": TASKS, "concurrency": CONCURRENCY, "spans": SPANS}
"""Derived views by name, each after those that it reads."""
STORED = {"attempts": "tasks", "spans": "spans"}
"""Derived views that snapshots keep, and the stream that each is made from."""
NEEDS = {
    "attempts": {"tasks"},
    "tasks": {"tasks"},
    "spans": {"spans"},
    "concurrency": {"tasks"},
    "runs": set[str](),
}
"""Every table that is not a stream's, and the streams that it is made from."""
