"""The view `spans`: one row a span, with its own time and its depth."""

from __future__ import annotations

ONE = """
    SELECT
        run_id,
        nullif(span_id, '') AS span_id,
        NOT bool_or(event = 'span') AS open,
        coalesce(arg_max(name, moment) FILTER (WHERE event = 'span'), arg_max(name, elapsed_s)) AS name,
        arg_max(parent_id, moment) AS parent_id,
        coalesce(max(timestamp) FILTER (WHERE event = 'span'), max(timestamp)) AS started_at,
        CASE
            WHEN bool_or(event = 'span') THEN arg_max(duration_s, moment)
            ELSE max(elapsed_s)
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
            coalesce(timestamp, TIMESTAMP '0001-01-01') AS moment,
            CASE WHEN span_id = '' THEN gen_random_uuid() END AS nameless
        FROM hidden.for_spans
        WHERE event IN ('span', 'span_open')
    )
    GROUP BY run_id, span_id, nameless
"""
"""What the lines of each span say together, from `hidden.for_spans`."""

OF_ONE = """
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
),
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
"""
"""The view, from `one`."""

SPANS = f"\nWITH RECURSIVE one AS MATERIALIZED ({ONE}),{OF_ONE}"
"""One row per span. `open` spans had not ended when they were last seen; their `duration_s` is up to then.

`self_s` is the duration less what the spans inside cover, each moment once; `depth` is 0 where the parent is
no span of the run, and null for spans without an id or in a circle.
"""
