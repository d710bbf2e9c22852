"""Spans by name and by path (wall time, busy time and a span's own time), and calibration loops.

A calibration loop is read from the names of its spans: `calibration.job` around `calibration.iteration`, and
in each iteration `algorithm.ask`, `simulation.submit_batch`, `simulation.gather` and `algorithm.tell`. Of
their metrics `n_params`, `n_trials` and `min_loss` are read, and `total_trials` of the iteration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from flightlog.analyze.limits import ReportLimits
from flightlog.analyze.report.metrics import (
    MetricStats,
    distribution_from,
    distribution_sql,
    metrics_by_owner,
)
from flightlog.analyze.tallies import copied, grouped, json_object
from flightlog.core.stats import exact_sum
from flightlog.core.time import nanoseconds, seconds, timestamp_of
from flightlog.events.base import Json
from flightlog.store.tables.intervals import merge

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables


class SpanName(Struct, frozen=True, kw_only=True):
    """All ended spans of one name."""

    count: int
    errors: int
    total_s: float
    """Sum of the durations; spans inside others of the same name, or beside them, count each."""
    wall_s: float
    """Time on the clock during which at least one was open."""
    self_s: float
    """Sum of the durations, less the time that spans inside them were open."""
    mean: float | None
    min: float | None
    p50: float | None
    p95: float | None
    max: float | None
    metrics: dict[str, MetricStats]


class SpanInFlight(Struct, frozen=True, kw_only=True):
    """A span that was seen open, and whose end was not recorded."""

    name: str
    span_id: str
    parent_id: str | None
    tags: Json
    since: str
    elapsed_s: float | None
    """Up to the run's end or last sign of life."""


class SpanSummary(Struct, frozen=True, kw_only=True):
    """All spans. Nothing counts twice in `wall_s` and `busy_s`, however spans nest or run side by side."""

    count: int
    errors: int
    open_in_flight: int
    wall_s: float
    """Time on the clock during which at least one span was open."""
    busy_s: float
    """Sum of the spans' own times: nested spans count once, spans side by side each."""
    names: int
    by_name: dict[str, SpanName]
    in_flight: list[SpanInFlight]


NO_SPANS = SpanSummary(
    count=0, errors=0, open_in_flight=0, wall_s=0.0, busy_s=0.0, names=0, by_name={}, in_flight=[]
)

_BY_NAME = f"""
SELECT name, hash(name) AS named, count(*) AS count, count(*) FILTER (status = 'error') AS errors,
    coalesce(sum(own), 0) AS own, {distribution_sql("duration_s", "true", "durations")}
FROM span_intervals WHERE NOT "open" GROUP BY name
"""  # noqa: S608 - constants

_MEASURED = """
SELECT name AS owner, metrics, at_ns(started_at) AS moment, coalesce(span_id, '') AS tie
FROM span_rows WHERE NOT "open"
"""


def span_summary(tables: RunTables) -> SpanSummary:
    """All spans, from `span_intervals` and `span_rows`."""
    [(unfinished, has_metrics)] = tables.execute(
        """
        SELECT count(*) FILTER ("open"), coalesce(bool_or(NOT "open" AND metrics <> '{}'), false)
        FROM span_rows
        """
    ).fetchall()
    measured = metrics_by_owner(tables, _MEASURED) if has_metrics else {}
    merge(
        tables,
        "open_by_name",
        "named",  # to sort by texts takes twice as long
        """
        SELECT hash(name) AS named, began AS since, stopped AS until FROM span_intervals
        WHERE NOT "open" AND began IS NOT NULL AND stopped IS NOT NULL
        """,
    )
    walls = dict(tables.rows("SELECT named, sum(until - since) FROM open_by_name GROUP BY named"))
    merge(tables, "open_at_all", "all_of_them", "SELECT 0 AS all_of_them, since, until FROM open_by_name")
    wall = tables.scalar("SELECT coalesce(sum(until - since), 0) FROM open_at_all")
    tables.execute("DROP TABLE open_by_name")  # it may be as large as all spans
    rows = tables.records(_BY_NAME)
    names = {
        row["name"]: _span_name(row, walls.get(row["named"], 0), measured.get(row["name"], {}))
        for row in rows
    }
    return SpanSummary(
        count=sum(name.count for name in names.values()),
        errors=sum(name.errors for name in names.values()),
        open_in_flight=unfinished,
        wall_s=seconds(int(wall)),
        busy_s=seconds(sum(int(row["own"]) for row in rows)),
        names=len(names),
        by_name={
            name: names[name]
            for name in sorted(
                sorted(names, key=lambda n: (-names[n].count, n))[: ReportLimits.max_listed_names]
            )
        },
        in_flight=spans_in_flight(tables) if unfinished else [],
    )


def _span_name(row: Mapping[str, Any], wall: int, metrics: dict[str, MetricStats]) -> SpanName:
    spread = distribution_from(row, "durations")
    return copied(
        SpanName,
        spread,
        count=row["count"],
        errors=row["errors"],
        total_s=spread.total,
        wall_s=seconds(int(wall)),
        self_s=seconds(int(row["own"])),
        metrics=metrics,
    )


def spans_in_flight(tables: RunTables) -> list[SpanInFlight]:
    """The spans that are open, the earliest first, each up to the last sign of life of its process."""
    rows = tables.records(
        """
        SELECT name, coalesce(span_id, '') AS span_id, parent_id, tags, at_ns(started_at) AS began,
            greatest(duration_s, 0) AS elapsed_s
        FROM span_rows
        WHERE "open" ORDER BY started_at NULLS FIRST, name, span_id LIMIT $few
        """,
        {"few": ReportLimits.max_listed_in_flight},
    )
    return [
        copied(
            SpanInFlight,
            row,
            tags=json_object(row["tags"]) or {},
            since="" if (began := row["began"]) is None else timestamp_of(began),
        )
        for row in rows
    ]


class SpanNode(Struct, frozen=True, kw_only=True):
    """All spans with one path of names, inside tasks of one name or outside of any.

    A span still open counts up to the last sign of life of its process.
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


def span_tree(tables: RunTables) -> SpanTree:
    """The tree of one run's spans, from its `span_intervals` and `attempt_intervals` tables."""
    tables.execute(_PLACED, {"deepest": ReportLimits.max_tree_depth})
    found = tables.execute(_NODES)
    rows = found.fetchmany(ReportLimits.max_tree_paths)
    busy = {(task, tuple(path)): 0 for task, path, *_ in rows}
    paths, batch = 0, rows
    while batch:  # names may hold anything: there can be as many paths as spans
        paths += len(batch)
        for task, path, *numbers in batch:
            for depth in range(1, len(path) + 1):
                key = (task, tuple(path[:depth]))
                if key in busy:
                    busy[key] += int(numbers[5])
        batch = found.fetchmany(ReportLimits.max_tree_paths)
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
    unplaced = tables.scalar("SELECT (SELECT count(*) FROM span_intervals) - (SELECT count(*) FROM placed)")
    return SpanTree(paths=paths, unplaced=unplaced, nodes=_in_order(nodes))


_PLACED = """
CREATE OR REPLACE TEMP TABLE placed AS
WITH RECURSIVE numbered AS (
    SELECT rowid AS span, span_id, parent_id, name FROM span_intervals
), nested AS MATERIALIZED (
    FROM numbered AS child SEMI JOIN numbered AS parent ON parent.span_id = child.parent_id
), down AS (
    SELECT span, child.span_id, name, inside.task, CAST(NULL AS UBIGINT) AS above,
        hash(inside.task, name) AS path, 1 AS depth
    FROM (FROM numbered ANTI JOIN nested USING (span)) AS child
        LEFT JOIN (SELECT span_id, any_value(task) AS task FROM attempt_intervals GROUP BY ALL) AS inside
            ON inside.span_id = child.parent_id
    UNION ALL
    SELECT nested.span, nested.span_id, nested.name, down.task, down.path, hash(down.path, nested.name),
        down.depth + 1
    FROM down JOIN nested ON nested.parent_id = down.span_id
    WHERE down.depth < $deepest
)
SELECT span, name, task, above, path FROM down
"""
"""Where each span stands; paths are numbered by a hash of what leads to them, for there may be very many
spans.
"""

_NODES = """
WITH RECURSIVE spans_by_path AS (
    SELECT placed.path, span_intervals."open", span_intervals.status, span_intervals.lasted,
        span_intervals.own, span_intervals.began, span_intervals.stopped,
        max(span_intervals.stopped) OVER (
            PARTITION BY placed.path ORDER BY span_intervals.began, span_intervals.stopped
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached
    FROM placed JOIN span_intervals ON span_intervals.rowid = placed.span
), nodes AS (
    SELECT path, count(*) AS count, count(*) FILTER ("open") AS opened,
        count(*) FILTER (status = 'error') AS errors, coalesce(sum(lasted), 0) AS total,
        coalesce(sum(greatest(0, stopped - greatest(began, coalesce(reached, began)))), 0) AS wall,
        coalesce(sum(own), 0) AS own
    FROM spans_by_path GROUP BY path
), steps AS (
    SELECT path, any_value(above) AS above, any_value(task) AS task, any_value(name) AS name
    FROM placed GROUP BY path
), named AS (
    SELECT path, task, [name] AS names FROM steps WHERE above IS NULL
    UNION ALL
    SELECT steps.path, steps.task, list_append(named.names, steps.name)
    FROM named JOIN steps ON steps.above = named.path
)
SELECT task, names, count, opened, errors, total, wall, own
FROM nodes JOIN named USING (path) ORDER BY total DESC, task, names
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


JOB, ITERATION = "calibration.job", "calibration.iteration"
PHASES = {
    "algorithm.ask": "ask",
    "simulation.submit_batch": "submit",
    "simulation.gather": "gather",
    "algorithm.tell": "tell",
}


class Iteration(Struct, frozen=True, kw_only=True):
    """One turn of a loop; null where a phase or metric was not recorded."""

    iteration: str
    """As it is tagged, else its place in the loop, from 1."""
    started_at: str
    open: bool
    duration_s: float
    ask_s: float | None
    submit_s: float | None
    gather_s: float | None
    tell_s: float | None
    trials: int | None
    min_loss: float | None
    """The best loss of this turn."""
    best_loss: float | None
    """The best so far."""


class CalibrationLoop(Struct, frozen=True, kw_only=True):
    """One calibration job. The phases and `other_s`, the rest of the iterations, add up to their duration."""

    job: str | None
    """Its tag `job_id`; null where there is none."""
    iterations: int
    open: bool
    duration_s: float
    """Of the job's span; without one, from the first iteration's start to the last one's end, as far as those
    are known."""
    iterations_s: float
    ask_s: float
    submit_s: float
    gather_s: float
    tell_s: float
    other_s: float
    trials: int | None
    trials_per_minute: float | None
    """Over the duration of the loop."""
    best_loss: float | None
    best_iteration: str | None
    listed: list[Iteration]


def calibration_loops(tables: RunTables) -> list[CalibrationLoop]:
    """The loops of one run in order of their start, from its `span_intervals` table and `spans`; none where
    no span is so named.
    """
    there = tables.execute("SELECT 1 FROM span_intervals WHERE name = $1 LIMIT 1", [ITERATION]).fetchone()
    if there is None:
        return []
    rows = tables.records(
        """
        SELECT name, span_id, coalesce(parent_id, '') AS parent_id, duration_s, "open", tags, metrics,
            at_ns(started_at) AS at, strftime(started_at, '%Y-%m-%dT%H:%M:%S.%fZ') AS started_at
        FROM span_rows WHERE name IN (SELECT unnest($1)) AND started_at IS NOT NULL AND duration_s IS NOT NULL
        ORDER BY started_at, span_id
        """,
        [[JOB, ITERATION, *PHASES]],
    )
    for row in rows:
        row["tags"], row["metrics"] = json_object(row["tags"]) or {}, json_object(row["metrics"]) or {}
    jobs = {row["span_id"]: row for row in rows if row["name"] == JOB}
    phases = grouped((row["parent_id"], row) for row in rows if row["name"] in PHASES)
    turns = grouped((row["parent_id"], row) for row in rows if row["name"] == ITERATION)
    loops = [(found[0]["started_at"], _loop(found, phases, jobs.get(job))) for job, found in turns.items()]
    return [loop for _, loop in sorted(loops, key=lambda one: (one[0], one[1].job or ""))]


Row = Mapping[str, Any]
"""A span of a loop."""


def _iteration(turn: Row, phases: Sequence[Row], place: int) -> Iteration:
    """One turn, which is in this place, with its phases; `best_loss` is its own."""
    spent = grouped((PHASES[phase["name"]], _lasted(phase, turn)) for phase in phases)
    # What the iteration itself says of its trials comes first.
    said = [turn["metrics"].get("total_trials"), *(phase["metrics"].get("n_trials") for phase in phases)]
    trials = next((int(number) for one in said if (number := _number(one)) is not None), None)
    losses = [_number(one["metrics"].get("min_loss")) for one in (turn, *phases)]
    loss = min((one for one in losses if one is not None), default=None)
    tag = turn["tags"].get("iteration")
    return copied(
        Iteration,
        turn,
        iteration=str(place if tag is None else tag),
        **{f"{name}_s": exact_sum(spent[name]) if name in spent else None for name in PHASES.values()},
        trials=trials,
        min_loss=loss,
        best_loss=loss,
    )


def _lasted(phase: Row, turn: Row) -> float:
    """How long a phase lasted; what has no end on record ended with its iteration."""
    lasted: float = phase["duration_s"]
    if not phase["open"] or None in (phase["at"], turn["at"]):
        return lasted
    within: float = turn["duration_s"] - (phase["at"] - turn["at"]) / 1e9
    return min(lasted, max(0.0, within))


def _loop(
    turns: list[dict[str, Any]], phases: Mapping[str, list[dict[str, Any]]], job: Row | None
) -> CalibrationLoop:
    listed: list[Iteration] = []
    best: Iteration | None = None
    for place, turn in enumerate(turns, 1):
        one = _iteration(turn, phases.get(turn["span_id"], []), place)
        if one.min_loss is not None and (best is None or one.min_loss < (best.min_loss or 0.0)):
            best = one
        listed.append(structs.replace(one, best_loss=None if best is None else best.min_loss))
    whole = exact_sum(one.duration_s for one in listed)
    placed = [turn for turn in turns if turn["at"] is not None]
    ends = [turn["at"] + nanoseconds(turn["duration_s"]) for turn in placed]
    from_to = seconds(max(ends) - min(turn["at"] for turn in placed)) if placed else whole
    duration_s = job["duration_s"] if job is not None else from_to
    spent = {
        f"{name}_s": exact_sum(getattr(one, f"{name}_s") or 0.0 for one in listed) for name in PHASES.values()
    }
    known = [one.trials for one in listed if one.trials is not None]
    trials = sum(known) if known else None
    job_id = None if job is None else job["tags"].get("job_id")
    return CalibrationLoop(
        job=None if job_id is None else str(job_id),
        iterations=len(turns),
        open=job["open"] if job is not None else any(one.open for one in listed),
        duration_s=duration_s,
        iterations_s=whole,
        **spent,
        other_s=exact_sum([whole, *(-value for value in spent.values())]),
        trials=trials,
        trials_per_minute=trials * 60 / duration_s if trials is not None and duration_s > 0 else None,
        best_loss=best.min_loss if best is not None else None,
        best_iteration=best.iteration if best is not None else None,
        listed=listed[-ReportLimits.max_listed_iterations :],
    )


def _number(value: object) -> float | None:
    """A number that can be reckoned with; one beyond the range of floats is none."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
