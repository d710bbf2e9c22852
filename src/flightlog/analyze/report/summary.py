"""The summary of a run: a pure function of its event files and of the final facts in its documents.

Includes what the recorder itself cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from flightlog.analyze.cost.cost import CostSummary, CostTally, used_by
from flightlog.analyze.report.cache import ArtifactSummary, ArtifactTally, CacheSummary, CacheTally
from flightlog.analyze.report.failures import FailureSummary, FailureTally
from flightlog.analyze.report.resources import ResourceSummary, ResourceTally
from flightlog.analyze.report.spans import SpanSummary, SpanTally
from flightlog.analyze.report.tasks import TaskSummary, TaskTally, args_of
from flightlog.analyze.report.workers import WorkerLoad, WorkerSummary, WorkerTally
from flightlog.analyze.tallies import MetricStats, MetricTally, copied
from flightlog.core.displayed import Displayed
from flightlog.core.stats import exact_sum
from flightlog.core.time import moment
from flightlog.events import Event, Metric, TaskFailed
from flightlog.store.layout import WriterInfo
from flightlog.store.liveness import latest
from flightlog.store.read.events import Completeness

if TYPE_CHECKING:
    from flightlog.analyze.report.large_run import LargeStreams
    from flightlog.store.read.events import RunReading
    from flightlog.store.run import Run


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
    metrics: dict[str, MetricStats]
    """Series the code recorded on their own, by name."""


class Summary(Displayed, Struct, frozen=True, kw_only=True):
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


def summarize(run: Run, large: LargeStreams | None = None) -> Summary:
    """The summary of a run in any state. The same files give the same summary, in whatever order lines stand.

    Goes through each stream once, through `tasks` and `spans` a second time where something was in flight,
    and keeps a few numbers of every event in memory. What `large` has read is not gone through.
    """
    reading = run.read()
    read = large.scans if large is not None else {}
    for scan in read.values():
        reading.take(scan)
    tasks, failures, spans = TaskTally(), FailureTally(), SpanTally(root=run.info.span_id)
    workers, resources, cache = WorkerTally(), ResourceTally(), CacheTally()
    artifacts, cost, metrics = ArtifactTally(), CostTally(), MetricTally()
    if large is not None and "tasks" in read:
        for failed in large.failed():
            failures.add(failed)
    else:
        for event in _events(reading, "tasks"):
            tasks.add(event)
            if isinstance(event, TaskFailed):
                failures.add(event)
    for stream, tally in (
        ("spans", spans),
        ("workers", workers),
        ("resources", resources),
        ("cache", cache),
        ("failures", failures),
        ("artifacts", artifacts),
        ("cost", cost),
    ):
        for event in _events(reading, stream) if stream not in read else ():
            tally.add(event)
    for event in _events(reading, "metrics"):
        if isinstance(event, Metric):
            metrics.add(event)

    completeness = run.completeness(reading)
    facts = _facts(run, reading, metrics.stats())
    until = moment(facts.end_time or facts.last_seen)
    done, work = large.tasks(until) if large is not None and "tasks" in read else _tasks(run, tasks, until)
    timed = large.spans() if large is not None and "spans" in read else _spans(run, spans, until)
    sampled, lookups, outputs = resources.summary(), cache.summary(), artifacts.summary()
    end = facts.end_time or facts.last_seen
    used = used_by(
        run, end, workers, work.bounds(), resources=sampled, artifacts=outputs, saved_s=lookups.saved_s
    )
    return Summary(
        run=facts,
        tasks=done,
        workers=workers.summary(work, until),
        resources=sampled,
        cache=lookups,
        spans=timed,
        failures=failures.summary(),
        artifacts=outputs,
        cost=cost.summary(used),
        completeness=completeness,
        overhead=overhead(run.writers(), facts.duration_s),
    )


def _tasks(run: Run, tasks: TaskTally, until: int | None) -> tuple[TaskSummary, WorkerLoad]:
    wanted = {start.task_id for start in tasks.in_flight()}
    args = args_of(_again(run, "tasks"), wanted) if wanted else {}
    done = tasks.summary(until, args)
    return done, tasks.work()


def _spans(run: Run, spans: SpanTally, until: int | None) -> SpanSummary:
    if spans.needs_settling():
        spans.settle(_again(run, "spans"))
    return spans.summary(until)


def summary_bytes(summary: Summary) -> bytes:
    """The summary as JSON: UTF-8, indented, names in order; NaN and infinities as null."""
    return msgspec.json.format(msgspec.json.encode(summary, order="deterministic"), indent=2) + b"\n"


def summary_schema() -> dict[str, Any]:
    """The JSON Schema of the summary, and so of the report's JSON."""
    schema = msgspec.json.schema(Summary)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Flightlog report", **schema}


def _events(reading: RunReading, stream: str) -> Iterator[Event]:
    return (event for event in reading.events(stream) if isinstance(event, Event))


def _again(run: Run, stream: str) -> Iterator[Event]:
    """A second look, which counts nothing."""
    return (event for event in run.events(stream) if isinstance(event, Event))


def _facts(run: Run, reading: RunReading, metrics: dict[str, MetricStats]) -> RunFacts:
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
    if not writers:
        return OverheadSummary(
            writers=0,
            lines=None,
            bytes=None,
            drain_s=None,
            background_cpu_s=None,
            foreground_s=None,
            percent=None,
        )
    noted = [info for info in writers if _has_noted(info)]
    whole = len(noted) == len(writers)
    cpu_s = exact_sum(info.background_cpu_s or 0.0 for info in noted) if whole else None
    known = all(info.line_cost_s is not None for info in writers)
    foreground_s = (
        exact_sum(sum(info.lines.values()) * (info.line_cost_s or 0.0) for info in writers) if known else None
    )
    return OverheadSummary(
        writers=len(writers),
        lines=sum(sum(info.lines.values()) for info in writers),
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
