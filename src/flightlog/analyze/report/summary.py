"""The summary of a run: a pure function of its event files and of the final facts in its documents.

Includes what the recorder itself cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from flightlog.analyze.cost.cost import CostSummary, CostTally, used_by
from flightlog.analyze.failures import FailureSummary, failure_summary
from flightlog.analyze.report.cache import ArtifactSummary, CacheSummary, artifact_summary, cache_summary
from flightlog.analyze.report.metrics import SeriesStats, series_stats, statistics_of
from flightlog.analyze.report.resources import ResourceSummary, resource_summary
from flightlog.analyze.report.spans import NO_SPANS, SpanSummary, span_summary
from flightlog.analyze.report.tasks import TaskSummary, task_summary
from flightlog.analyze.report.workers import WorkerSummary, worker_summary
from flightlog.analyze.tallies import copied
from flightlog.core.displayed import DisplayedResult
from flightlog.core.stats import exact_sum
from flightlog.events import CostRates
from flightlog.store.layout import WriterInfo
from flightlog.store.liveness import latest
from flightlog.store.read.events import Completeness
from flightlog.store.tables.run_tables import open_tables, read_again

if TYPE_CHECKING:
    from flightlog.store.read.events import RunReading
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables


class RunFacts(Struct, frozen=True, kw_only=True):
    """Who, what, when. `last_seen` is there where no end was recorded: the last event or heartbeat."""

    run_id: str
    project: str
    target: str | None
    provider: str | None
    status: str
    start_time: str | None
    end_time: str | None
    last_seen: str | None
    duration_s: float | None
    host: str
    command: list[str]
    cwd: str | None
    python: str | None
    git_commit: str | None
    git_dirty: bool | None
    tags: dict[str, Any]
    manifest_hash: str | None
    error: str | None
    exit_code: int | None
    signal: str | None
    schema_version: int
    flightlog_version: str | None
    metrics: dict[str, SeriesStats]
    """Series the code recorded on their own, by name."""


class Summary(DisplayedResult, Struct, frozen=True, kw_only=True):
    """Everything there is to say of a run in numbers: the first fields of the report's JSON."""

    run: RunFacts
    tasks: TaskSummary
    workers: WorkerSummary
    resources: ResourceSummary
    cache: CacheSummary
    spans: SpanSummary
    failures: FailureSummary
    artifacts: ArtifactSummary
    cost: CostSummary
    completeness: Completeness
    overhead: OverheadSummary


class ReportContext(NamedTuple):
    """What was read of a run, while its tables are open."""

    run: Run
    tables: RunTables
    summary: Summary


@contextmanager
def open_context(run: Run, summary: Summary | None = None) -> Iterator[ReportContext]:
    """Read a run in any state; `summary` is what is known of it already."""
    with open_tables([run]) as tables:
        yield ReportContext(run, tables, summary or _summarize(run, tables))


@read_again
def summarize(run: Run) -> Summary:
    """The summary of a run in any state, from its events. The same files give the same summary, in whatever
    order lines stand.
    """
    with open_context(run) as context:
        return context.summary


def _summarize(run: Run, tables: RunTables) -> Summary:
    """Count everything; makes the tables of intervals on the way, once it is known when the run ended."""
    tables.make(["task_lines", "span_rows"])
    reading = tables.reading
    cost = CostTally.of(reading.events(CostRates.stream))
    facts = _facts(run, reading, _series(tables) if "metrics" in run.streams() else {})
    sampled, lookups, outputs = resource_summary(tables), cache_summary(tables), artifact_summary(tables)
    used = used_by(tables, cost.rates, resources=sampled, artifacts=outputs, saved_s=lookups.saved_s)
    return Summary(
        run=facts,
        tasks=task_summary(tables, tables.until),
        workers=worker_summary(tables),
        resources=sampled,
        cache=lookups,
        spans=span_summary(tables) if "spans" in run.streams() else NO_SPANS,
        failures=failure_summary(tables),
        artifacts=outputs,
        cost=cost.summary(used),
        completeness=run.completeness(reading),
        overhead=overhead(run.writers(), facts.duration_s),
    )


_SERIES = """
SELECT '' AS owner, name, value AS number, at_ns("timestamp") AS moment, 0 AS place,
    printf('%s %020d', writer, seq) AS tie, lower(trim(CAST(nonfinite AS VARCHAR), '"')) AS nonfinite
FROM metrics WHERE event = 'metric' AND name IS NOT NULL
"""
_NOT_FINITE = f"""
SELECT name, count(nonfinite), arg_max_null(nonfinite, row(coalesce(moment, 0), tie)) FROM ({_SERIES})
GROUP BY name HAVING count(nonfinite) > 0
"""  # noqa: S608 - a constant


def _series(tables: RunTables) -> dict[str, SeriesStats]:
    """The series of the run by name, those included that have no number."""
    numbers = statistics_of(tables, _SERIES).get("", {})
    odd = {name: (count, last) for name, count, last in tables.rows(_NOT_FINITE)}
    return {
        name: series_stats(numbers.get(name), *odd.get(name, (0, None))) for name in sorted({*numbers, *odd})
    }


def _facts(run: Run, reading: RunReading, metrics: dict[str, SeriesStats]) -> RunFacts:
    info = run.info
    ending = run.ending(reading)
    last_seen = None
    if info.end_time is None:
        _, last = reading.span()
        last_seen = latest(last, info.heartbeat, *(writer.heartbeat for writer in run.writers()))
    return copied(
        RunFacts,
        info,
        run_id=run.run_id,
        status=run.status,
        start_time=info.start_time or None,
        last_seen=last_seen,
        duration_s=ending.duration_s,
        metrics=metrics,
    )


class OverheadSummary(Struct, frozen=True, kw_only=True):
    """The recorder's own work, all recording processes together, as their notes tell; null where one of them
    has no figure.
    """

    writers: int
    lines: int | None
    bytes: int | None
    drain_s: float | None
    """Time spent moving lines into files."""
    background_cpu_s: float | None
    """CPU time of the recorder's own threads: draining, sampling, heartbeats, subscribers."""
    foreground_s: float | None
    """Estimate of what recording took in the program's own threads: each writer's lines, times what recording
    a span was measured to cost it."""
    percent: float | None
    """Both over the run's wall time; 100 would be one core."""


def overhead(writers: Sequence[WriterInfo], duration_s: float | None) -> OverheadSummary:
    """The summary of what writers noted of themselves."""
    noted = [info for info in writers if _has_noted(info)]
    whole = bool(writers) and len(noted) == len(writers)
    cpu_s = exact_sum(info.background_cpu_s or 0.0 for info in noted) if whole else None
    known = bool(writers) and all(info.line_cost_s is not None for info in writers)
    foreground_s = (
        exact_sum(sum(info.lines.values()) * (info.line_cost_s or 0.0) for info in writers) if known else None
    )
    return OverheadSummary(
        writers=len(writers),
        lines=sum(sum(info.lines.values()) for info in writers) if writers else None,
        bytes=sum(info.bytes or 0 for info in noted) if whole else None,
        drain_s=exact_sum(info.drain_s or 0.0 for info in noted) if whole else None,
        background_cpu_s=cpu_s,
        foreground_s=foreground_s,
        percent=None
        if cpu_s is None or not duration_s
        else 100 * (cpu_s + (foreground_s or 0.0)) / duration_s,
    )


def _has_noted(info: WriterInfo) -> bool:
    """Whether a writer noted its own cost: one that was killed before its first heartbeat has no byte count
    yet.
    """
    if info.bytes is None or info.drain_s is None or info.background_cpu_s is None:
        return False
    return info.closed or info.bytes > 0
