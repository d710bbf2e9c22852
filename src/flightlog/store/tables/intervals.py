"""When attempts and spans of one run ran, in nanoseconds since 1970 (`attempt_intervals`,
`span_intervals`), and merging of intervals in SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flightlog.core.time import FIRST_YEAR, LAST_YEAR, LONGEST, LONGEST_S
from flightlog.store.tables.attempts import keep_rows
from flightlog.store.tables.views import USED

if TYPE_CHECKING:
    from flightlog.store.tables.connection import Executes

MACROS = f"""
CREATE MACRO at_ns(stamp) AS
    CASE WHEN year(stamp) BETWEEN {FIRST_YEAR} AND {LAST_YEAR} THEN epoch_us(stamp) * 1000 END;
CREATE MACRO in_ns(s) AS
    CASE WHEN s IS NULL THEN NULL WHEN s <= 0 THEN 0 WHEN s < {LONGEST_S} THEN CAST(round_even(s * 1e9, 0) AS
        BIGINT)
         ELSE {LONGEST} END;
"""
"""Moments and durations in nanoseconds, as `core.time` reads them."""

_MORE = ("component", "parent_id", "span_id", "depends_on", "error_type", *USED, "result_bytes", "metrics")
"""Columns of attempts that live views do without."""
_WAITS = """,
    coalesce(queued, CASE WHEN queued_for IS NOT NULL THEN began - queued_for END,
             CASE WHEN attempt = 1 THEN submitted END) AS waits"""


def intervals_of(attempts: str, until: str, *, whole: bool = True) -> str:
    """The statement of `attempt_intervals`, from one that gives the attempts; `until` is an expression.

    Without the `whole`, there are fewer columns, of fewer columns of attempts: those that live views show.
    """
    more = "".join(f", {name}" for name in _MORE) if whole else ""
    queued = ", at_ns(queued_at) AS queued, in_ns(queue_s) AS queued_for" if whole else ""
    return f"""
WITH moments AS (
    SELECT task, task_id, attempt, worker, state, retried,
        depends_on IS NOT NULL AS was_submitted, -- submissions alone have it, if only as an empty list
        at_ns(submitted_at) AS submitted, at_ns(started_at) AS started, at_ns(ended_at) AS ended,
        queue_s, duration_s, args{queued}{more}
    FROM ({attempts})
)
SELECT * {"EXCLUDE (queued_for)" if whole else ""},
    CASE WHEN ended IS NOT NULL AND duration_s IS NOT NULL THEN ended - in_ns(duration_s)
         WHEN ended IS NOT NULL OR state = 'running' THEN started END AS began,
    CASE WHEN ended IS NOT NULL AND (duration_s IS NOT NULL
        OR started IS NOT NULL) THEN greatest(began, ended)
         WHEN state = 'running' AND started IS NOT NULL THEN greatest(started, {until}) END AS stopped
    {_WAITS if whole else ""}
FROM moments
"""  # noqa: S608 - constants, and a statement of ours


_DEPENDENTS = """
WITH needs AS (
    SELECT task_id, unnest(depends_on) AS needed FROM attempt_intervals WHERE attempt = 1
        AND len(depends_on) > 0
), met AS (
    SELECT needs.task_id, max(ends.stopped) AS moment, bool_and(ends.stopped IS NOT NULL) AS "all"
    FROM needs LEFT JOIN (SELECT task_id, max(stopped) AS stopped FROM attempt_intervals GROUP BY ALL) AS ends
        ON ends.task_id = needs.needed
    GROUP BY ALL
)
UPDATE attempt_intervals SET waits = CASE WHEN met.all OR attempt_intervals.began IS NOT NULL THEN
    greatest(attempt_intervals.waits, met.moment) END
FROM met WHERE met.task_id = attempt_intervals.task_id AND attempt_intervals.attempt = 1
    AND attempt_intervals.queued IS NULL
"""

_SUPERSEDED = """
UPDATE attempt_intervals SET waits = NULL FROM attempt_intervals AS later
WHERE attempt_intervals.state = 'pending' AND later.task_id = attempt_intervals.task_id
    AND later.attempt > attempt_intervals.attempt
"""

ENTANGLED = """
SELECT coalesce(bool_or(len(depends_on) > 0), false)
    OR (coalesce(bool_or(state = 'pending'), false) AND max(attempt) > min(attempt))
FROM attempts
"""
"""Whether some attempts wait for others, or were superseded before they began."""

END_OPEN_SPANS = """
WITH RECURSIVE over AS (
    SELECT span_id, max(stopped) AS stopped FROM attempt_intervals
        WHERE state <> 'running' AND span_id IS NOT NULL AND stopped IS NOT NULL GROUP BY span_id
    UNION
    SELECT span_intervals.span_id, over.stopped
        FROM span_intervals JOIN over ON span_intervals.parent_id = over.span_id
        WHERE span_intervals."open" AND span_intervals.span_id IS NOT NULL
)
UPDATE span_intervals
SET stopped = greatest(span_intervals.began, least(span_intervals.stopped, over.stopped))
FROM over WHERE over.span_id = span_intervals.span_id AND span_intervals."open"
"""
"""Lets spans of `span_intervals` that are open stop with the attempt that they are in, if it is over."""


def make_attempt_intervals(
    tables: Executes,
    until: int | None,
    attempts: str,
    *,
    file: Path | None = None,
    rare: Mapping[str, str] | None = None,
) -> None:
    """Make `attempt_intervals` of a statement that gives the attempts; `until` is when the run ended or
    its last sign of life.

    An attempt occupies its worker from `began` to `stopped`: the duration it measured, before its end; where
    it measured none, from its start to its end, its retry or `until`. `waits` is when it could have run:
    when its engine queued it; else before its start by its queueing time; else from its submission, or from
    the end of the last task it depends on. All three are null where they are unknown.

    With `file` the rows are kept there, as Parquet, and not in memory: for attempts none of which depends on
    another or was superseded before it began. `rare` is as in `keep_rows`.
    """
    few = {name: kind for name, kind in (rare or {}).items() if name in {*_MORE} - {"span_id"}}
    rows = intervals_of(attempts, "$until")
    keep_rows(tables, "attempt_intervals", rows, file, {"until": until}, rare=few)
    if file is None:
        tables.execute(_DEPENDENTS)
        tables.execute(_SUPERSEDED)


def make_span_intervals(tables: Executes, spans: str) -> None:
    """Make `span_intervals` of a statement that gives the spans with their own time, `self_s`."""
    tables.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE span_intervals AS
        SELECT name, span_id, parent_id, status, "open", in_ns(duration_s) AS lasted, in_ns(self_s) AS own,
            duration_s, at_ns(started_at) AS began, at_ns(started_at) + in_ns(duration_s) AS stopped
        FROM ({spans})
        """  # noqa: S608 - ours
    )


def merge(tables: Executes, name: str, key: str, intervals: str) -> None:
    """Make the table `name` of `key`, `since`, `until` and `before`: the union of each key's intervals, in
    nanoseconds.

    `before` is the time covered before each piece. `intervals` is a select statement of the first three
    columns, none of them null and `until` never before `since`.
    """
    tables.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE {name} AS
        WITH ordered AS (
            SELECT {key}, since, until, max(until) OVER (
                PARTITION BY {key} ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS reached FROM ({intervals})
        ), begun AS ( -- what had been reached when the next piece began is where this one ends
            SELECT {key}, since, lead(reached) OVER (PARTITION BY {key} ORDER BY since) AS until
            FROM ordered WHERE reached IS NULL OR since > reached
        ), merged AS (
            SELECT begun.{key}, begun.since, coalesce(begun.until, last.until) AS until
            FROM begun JOIN (SELECT {key}, max(until) AS until FROM ordered GROUP BY {key}) AS last
                USING ({key})
        )
        SELECT *, coalesce(sum(until - since) OVER (
            PARTITION BY {key} ORDER BY since ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0)::BIGINT AS before FROM merged
        """  # noqa: S608 - names and statements of ours
    )


def uncovered(outer: str, inner: str, key: str) -> str:
    """A select statement of `name`, `since` and `until`: what is left of the outer intervals without the
    inner ones of their key.

    `outer` is a select statement of `key`, which no two of them share, `name`, `since` and `until`; `inner`
    one of `key`, `since` and `until`. None of these is null, and `until` never before `since`.
    """
    return f"""
        WITH outers AS ({outer}), steps AS ( -- the last gap ends where the outer interval ends
            {inner} UNION ALL SELECT {key}, until, until FROM outers
        ), gaps AS (
            SELECT outers.name, least(steps.since, outers.until) AS until,
                greatest(outers.since, max(steps.until) OVER (
                PARTITION BY {key} ORDER BY steps.since, steps.until ROWS BETWEEN UNBOUNDED PRECEDING
                    AND 1 PRECEDING
            )) AS since
            FROM steps JOIN outers USING ({key})
        )
        SELECT name, since, until FROM gaps WHERE since < until
    """  # noqa: S608 - names and statements of ours


def most_at_once(tables: Executes, intervals: str) -> tuple[int, int] | None:
    """How many of these intervals run at once at most, and when first; None where there are none.

    `intervals` is a select statement of `since` and `until`. An empty interval counts for its moment;
    touching ones do not overlap.
    """
    row = tables.execute(
        f"""
        WITH intervals AS ({intervals}), steps AS (
            SELECT since AS moment, 1 AS step FROM intervals
            UNION ALL SELECT greatest(until, since + 1), -1 FROM intervals
        ), counted AS (
            SELECT moment, sum(step) OVER (ORDER BY moment, step ROWS UNBOUNDED PRECEDING) AS running
                FROM steps
        )
        SELECT max(running), min(moment) FILTER (running = (SELECT max(running) FROM counted)) FROM counted
        """  # noqa: S608 - a statement of ours
    ).fetchone()
    return None if row is None or row[0] is None else (int(row[0]), int(row[1]))


def tallies_of(attempts: str) -> str:
    """The statement of `attempt_tallies`: attempts counted by name, worker and outcome, with what is asked of
    all of them together. Its rows may be summed up further. `seen` is the last sign of them; durations are
    seconds, their `total` nanoseconds.
    """
    return f"""
    SELECT task, worker, state, retried, was_submitted, count(*) AS n, min(started) AS first,
        min(began) AS began, max(greatest(started, ended)) AS seen, count(duration_s) AS timed,
        sum(in_ns(duration_s)) AS total, min(duration_s) AS low, max(duration_s) AS high
    FROM {attempts} GROUP BY ALL
    """  # noqa: S608 - a name of ours
