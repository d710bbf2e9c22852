"""What changed between two runs, or two groups of runs."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from flightlog.analyze.compare.durations import (
    Matched,
    MatchKey,
    compare_arguments,
    judge,
    match,
    ratio_of_runs,
)
from flightlog.analyze.compare.results import (
    CacheChange,
    Change,
    ComparedRun,
    Comparison,
    FailureChange,
    NameCount,
    ResourceChange,
    Side,
)
from flightlog.analyze.compare.run_groups import Reference, RunGroup, find_groups
from flightlog.analyze.compare.runs import (
    ComparedRunFigures,
    compare_environments,
    explain,
    prepare,
    read_figures,
)
from flightlog.analyze.compare.thresholds import ThresholdOutcome
from flightlog.analyze.failures import MACROS
from flightlog.analyze.limits import CompareLimits
from flightlog.analyze.tallies import copied, grouped
from flightlog.core.text import plural
from flightlog.core.units import format_count, format_duration
from flightlog.events.schema import result_schema
from flightlog.store.documents import document_bytes
from flightlog.store.layout import ELAPSED, Adopted
from flightlog.store.read.snapshot import held_still
from flightlog.store.tables.connection import path_text
from flightlog.store.tables.run_tables import open_tables, read_again

if TYPE_CHECKING:
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables


def compare(
    before: Reference | Iterable[Reference] | None = None,
    after: Reference | Iterable[Reference] | None = None,
    *,
    runs_dir: str | os.PathLike[str] | None = None,
) -> Comparison:
    """What changed from `before` to `after`: runs or groups of runs, as `flightlog compare` takes them.

    Each is a run, its id, `latest`, a path, `project:last5`, several of them with commas, or a list. Without
    any, the last two runs of the latest run's project. The same runs give the same result.
    """
    return compare_groups(*find_groups(before, after, runs_dir=runs_dir))


@read_again
def compare_groups(before: RunGroup, after: RunGroup) -> Comparison:
    """What changed between two groups of runs, none of which is in both; of one that is running, as of one
    moment.
    """
    told: list[str] = []
    with ExitStack() as copies:
        old, new = (
            tuple(copies.enter_context(held_still(run, note=told.append)) for run in group.runs)
            for group in (before, after)
        )
        return _compared(RunGroup(before.asked, old), RunGroup(after.asked, new), told)


def _compared(before: RunGroup, after: RunGroup, told: Sequence[str]) -> Comparison:
    sides = (before.runs, after.runs)
    runs = [*before.runs, *after.runs]
    with open_tables(runs) as tables, ThreadPoolExecutor(1) as aside:
        prepare(tables, sides)
        reading = aside.submit(read_figures, tables.cursor(), runs)
        matched = match(tables, (len(before.runs), len(after.runs)))
        arguments = compare_arguments(tables)
        failures = compare_failures(tables)
        by_task = _task_resources(tables)
        names = _names(tables)
        elapsed = elapsed_notes(tables, runs)
        figures = reading.result()
    old, new = ([figures[run.run_id] for run in side] for side in sides)
    lost = (_much_lost(before), _much_lost(after))
    whole = {kind for kind in ("task", "span") if not any(f"{kind}s" in side for side in lost)}
    if "task" not in whole:
        whole.clear()  # tasks say which of their spans a cache spared
    matched = {key: one for key, one in matched.items() if key[0] in whole}
    currencies = _currencies(old, new)
    one_currency = len(currencies) == 1
    return Comparison(
        before=_side(before),
        after=_side(after),
        wall_s=_change(old, new, lambda run: run.wall_s),
        worker_s=_change(
            old, new, lambda run: run.time.whole.total_s if run.time and run.time.workers else None
        ),
        explained=explain(old, new) if "task" in whole else None,
        tasks={
            kind: _change(old, new, _counter(kind) if "task" in whole else lambda _: None)
            for kind in old[0].counts
        },
        durations=judge(_worth_telling(matched, old, new)),
        appeared=[count for count, side in names if side == 1 and count.kind in whole],
        vanished=[count for count, side in names if side == 0 and count.kind in whole],
        arguments=arguments if "task" in whole else [],
        resources=[_run_resources(old, new), *by_task],
        failures=failures,
        cache=CacheChange(
            lookups=_change(old, new, lambda run: run.lookups),
            hits=_change(old, new, lambda run: run.hits),
            hit_rate=_change(old, new, lambda run: run.hits / run.lookups if run.lookups else None),
            saved_s=_change(old, new, lambda run: run.saved_s),
        ),
        cost=_change(old, new, lambda run: run.cost if one_currency else None),
        currency=currencies.pop() if one_currency else None,
        environment=compare_environments(*sides),
        notes=[*told, *elapsed, *_notes(before, after, old, new)],
        lost=lost,
    )


def comparison_bytes(comparison: Comparison, outcomes: Sequence[ThresholdOutcome] | None = None) -> bytes:
    """The comparison as JSON, with what became of `conditions` if there were any: UTF-8, indented; NaN as
    null.
    """
    document = {field: getattr(comparison, field) for field in comparison.__struct_fields__}
    if outcomes is not None:
        document["conditions"] = list(outcomes)
    return document_bytes(document)


def comparison_schema() -> dict[str, Any]:
    """The JSON Schema of the comparison's JSON."""
    written = msgspec.defstruct(
        "Comparison",
        [("conditions", list[ThresholdOutcome], [])],
        bases=(Comparison,),
        kw_only=True,
        namespace={"__doc__": Comparison.__doc__},
    )
    return result_schema(written, "Flightlog comparison")


def _side(group: RunGroup) -> Side:
    runs = [
        copied(
            ComparedRun, run.info, run_id=run.run_id, status=run.status, duration_s=run.ending().duration_s
        )
        for run in group.runs
    ]
    return Side(asked=path_text(group.asked), runs=runs)


def _change(
    old: Sequence[ComparedRunFigures],
    new: Sequence[ComparedRunFigures],
    figure: Callable[[ComparedRunFigures], float | None],
) -> Change:
    """The means of a figure over the runs that know it, unknown if none does."""
    values = [[value for run in side if (value := figure(run)) is not None] for side in (old, new)]
    means = [math.fsum(known) / len(known) if known else None for known in values]
    interval = ratio_of_runs(*values) if len(old) + len(new) > 2 else None
    return Change.of(*means, interval=interval if interval and interval.low is not None else None)


def _counter(kind: str) -> Callable[[ComparedRunFigures], float]:
    return lambda run: run.counts[kind]


def _worth_telling(
    matched: dict[MatchKey, Matched], old: Sequence[ComparedRunFigures], new: Sequence[ComparedRunFigures]
) -> dict[MatchKey, Matched]:
    walls = [math.fsum(run.wall_s or 0.0 for run in side) for side in (old, new)]

    def large(found: Matched) -> bool:
        totals = [spread.total_s if spread is not None else 0.0 for spread in (found.before, found.after)]
        return any(
            total >= CompareLimits.min_span_share * wall for total, wall in zip(totals, walls, strict=True)
        )

    return {key: found for key, found in matched.items() if key.kind == "task" or large(found)}


# --- what appeared and vanished --------------------------------------------------------------------------


def _names(tables: RunTables) -> list[tuple[NameCount, int]]:
    """Names that only one side has, with that side."""
    rows = tables.execute(
        """
        SELECT kind, name, sum(number)::BIGINT AS number, min(side) FROM (
            SELECT 'task' AS kind, task AS name, run_id, count(*) AS number FROM compared WHERE attempt = 1
                GROUP BY task, run_id
            UNION ALL SELECT 'span', name, run_id, count(*) FROM compared_spans GROUP BY name, run_id
            UNION ALL SELECT 'span', name, run_id, count(*) FROM open_spans GROUP BY name, run_id
        ) JOIN sides USING (run_id) GROUP BY kind, name HAVING min(side) = max(side)
            ORDER BY kind DESC, number DESC, name
        """
    ).fetchall()
    return [(NameCount(kind=kind, name=name, count=count), side) for kind, name, count, side in rows]


# --- resources and remarks -------------------------------------------------------------------------------


def _run_resources(old: Sequence[ComparedRunFigures], new: Sequence[ComparedRunFigures]) -> ResourceChange:
    peaks = [[run.peak_rss_bytes for run in side if run.peak_rss_bytes is not None] for side in (old, new)]
    return ResourceChange(
        name=None,
        peak_rss_bytes=Change.of(*(float(max(known)) if known else None for known in peaks)),
        cpu_s=_change(old, new, lambda run: run.cpu_s),
        read_bytes=_change(old, new, lambda run: run.read_bytes),
        write_bytes=_change(old, new, lambda run: run.write_bytes),
    )


def _task_resources(tables: RunTables) -> list[ResourceChange]:
    """What tasks used, by name: the highest peak, CPU time of one on average, bytes a run."""
    rows = tables.records(
        """
        SELECT task, list(peak ORDER BY side) AS peak_rss_bytes, list(cpu_s ORDER BY side) AS cpu_s,
            list("read" ORDER BY side) AS read_bytes, list(written ORDER BY side) AS write_bytes
        FROM (
            SELECT task, side, count(*) AS number, max(peak_rss_bytes)::DOUBLE AS peak,
                sum(in_ns(cpu_s)) / count(cpu_s) / 1e9 AS cpu_s,
                sum(read_bytes) / any_value(runs) AS "read", sum(write_bytes) / any_value(runs) AS written
            FROM compared JOIN sides USING (run_id)
                JOIN (SELECT side, count(*) AS runs FROM sides GROUP BY side) USING (side)
            GROUP BY task, side
        ) GROUP BY task
        HAVING count(*) = 2 AND count(peak) + count(cpu_s) + count("read") + count(written) > 0
        ORDER BY sum(number) DESC, task
        """
    )
    return [
        ResourceChange(name=row.pop("task"), **{name: Change.of(*sides) for name, sides in row.items()})
        for row in rows
    ]


def _notes(
    before: RunGroup, after: RunGroup, old: Sequence[ComparedRunFigures], new: Sequence[ComparedRunFigures]
) -> Iterator[str]:
    for run in (*before.runs, *after.runs):
        if run.status != "completed":
            how = "may have ended early" if run.status == "unknown" else f"is {run.status}"
            yield f"{run.run_id} {how}: it tells of less than a whole run"
        for stream, number in _lost(run).items():
            yield f"{run.run_id} lost {plural(number, 'line')} of {stream}, which are not counted"
    for group in (before, after):
        asked = re.fullmatch(r"[^,]*:last(\d+)", group.asked)
        if asked is not None and int(asked[1]) > len(group.runs):
            yield f"{group.asked} asks for {int(asked[1])} runs; there are {len(group.runs)}"
    projects = sorted({run.info.project for run in (*before.runs, *after.runs)})
    if len(projects) > 1:
        yield f"the runs are of different projects: {', '.join(projects)}"
    if len(_currencies(old, new)) > 1:
        yield "costs are in different currencies and are not compared"


def _currencies(old: Sequence[ComparedRunFigures], new: Sequence[ComparedRunFigures]) -> set[str]:
    """The currencies of what runs cost; one that cost nothing is in any."""
    return {run.currency for run in (*old, *new) if run.cost is not None and run.currency is not None}


def _lost(run: Run) -> dict[str, int]:
    """Lines that could not be written, and those of files that are missing, by stream.

    Of missing tasks each has one line at least, where no writer says how many it wrote.
    """
    lost: Counter[str] = Counter()
    there = run.streams()
    for writer in run.writers():
        lost.update(writer.lost)
        lost.update({stream: n for stream, n in writer.lines.items() if stream not in there})
    if "tasks" not in there and not lost["tasks"]:
        lost["tasks"] = run.info.tasks_submitted
    return {stream: number for stream, number in sorted(lost.items()) if number}


def _much_lost(group: RunGroup) -> dict[str, int]:
    """Those of tasks and spans of which a run of the group lost so many that the rest cannot stand for
    them.
    """
    found: Counter[str] = Counter()
    for run in group.runs:
        recorded = Counter[str]()
        for writer in run.writers():
            recorded.update(writer.lines)
        for stream, number in _lost(run).items():
            if stream in {"tasks", "spans"} and number > CompareLimits.max_lost_share * recorded[stream]:
                found[stream] += number
    return dict(found)


_ELAPSED = f"""
WITH times AS (
    SELECT run_id, task, TRY_CAST(json_extract_string(metrics, '$.{ELAPSED}') AS DOUBLE) AS elapsed_s
    FROM attempts WHERE state IN ('completed', 'failed') AND duration_s IS NULL
)
SELECT task, avg(elapsed_s) FILTER (side = 0) AS before, avg(elapsed_s) FILTER (side = 1) AS after
FROM times JOIN sides USING (run_id) WHERE isfinite(elapsed_s) AND elapsed_s < 9e9 GROUP BY task
HAVING before IS NOT NULL AND after IS NOT NULL ORDER BY sum(elapsed_s) DESC, task
"""  # noqa: S608 - the name is ours


def elapsed_notes(tables: RunTables, runs: Sequence[Run]) -> list[str]:
    """How such times changed, one sentence per task name, the longest in all first; `sides` must be there.

    They are not judged: waiting depends on how many tasks there are. None where no run was adopted.
    """
    if not any(isinstance(run.info.adopted, Adopted) for run in runs):
        return []
    rows = tables.execute(_ELAPSED).fetchall()
    shown = CompareLimits.max_elapsed_notes
    notes = [
        f"{task} took {format_duration(before)} → {format_duration(after)} on average with waiting; how "
        "long it executed is not recorded"
        for task, before, after in rows[:shown]
    ]
    if len(rows) > shown:
        notes.append(f"of {format_count(len(rows) - shown)} more names only times with waiting are recorded")
    return notes


_CAUSES = """
WITH recorded AS (
    SELECT run_id, fingerprint, error_type, message, task, timestamp AS seen,
        CASE WHEN task_id IS NOT NULL THEN 'task' WHEN scope = 'run' THEN 'run' ELSE 'elsewhere' END AS place
    FROM failures WHERE event = 'failure'
    UNION ALL
    SELECT run_id, fingerprint, error_type, error_message, task, timestamp, 'attempt' FROM failed_tasks
)
SELECT cause_of(fingerprint, error_type, message) AS cause, sides.side, sides.run,
    count(*) FILTER (place = 'task'), count(*) FILTER (place = 'attempt'),
    count(*) FILTER (place = 'elsewhere'), count(*) FILTER (place = 'run'),
    any_value(fingerprint), arg_min(error_type, seen), arg_min(message, seen),
    list(DISTINCT task) FILTER (task IS NOT NULL)
FROM recorded JOIN sides USING (run_id) GROUP BY cause, sides.side, sides.run ORDER BY cause, sides.side,
    sides.run
"""


def compare_failures(tables: RunTables) -> list[FailureChange]:
    """Every cause with its count on both sides, all runs of a side together; new ones first, then gone, by
    count.

    A failed task stands in `failures` and in `tasks`, and counts once, wherever it was found.
    """
    tables.execute(MACROS)
    found = grouped((cause, rest) for cause, *rest in tables.rows(_CAUSES))
    states = ("appeared", "vanished", "both")

    def order(change: FailureChange) -> tuple[int, int, str, str]:
        often = change.before + change.after
        return states.index(change.state), -often, change.error_type or "", change.message or ""

    return sorted(map(_failure_change, found.values()), key=order)


def _failure_change(rows: list[list[Any]]) -> FailureChange:
    counts = [0, 0]
    for side, _, in_tasks, attempts, elsewhere, in_run, *_ in rows:
        counts[side] += max(in_tasks, attempts) + elsewhere or in_run
    fingerprint, error_type, message = rows[-1][6:9]
    return FailureChange(
        state="appeared" if not counts[0] else "vanished" if not counts[1] else "both",
        fingerprint=fingerprint or None,
        error_type=error_type,
        message=message,
        tasks=sorted({task for row in rows for task in row[9] or ()}),
        before=counts[0],
        after=counts[1],
    )
