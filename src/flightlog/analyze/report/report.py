"""The report of a run: its summary, where the time went, and what stands out.

A report is worked out from one reading of the run, which charts share. That of a large run is kept beside
it (`kept`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

import msgspec
from msgspec import UNSET, Struct

from flightlog.analyze.cost.cost import CostSplit, CostTally, split_cost, used_by, worker_prices
from flightlog.analyze.failures import FailureCause, failure_groups
from flightlog.analyze.findings import Finding, FindingFacts, find
from flightlog.analyze.findings.base import behind
from flightlog.analyze.limits import ReportLimits
from flightlog.analyze.report.critical_path import CriticalPath, critical_path, critical_spans
from flightlog.analyze.report.kept import (
    FileStamps,
    Kept,
    files_of,
    find_kept,
    forget,
    keep,
    kept_damage,
    lines_bytes,
    may_be_kept,
)
from flightlog.analyze.report.spans import CalibrationLoop, SpanTree, calibration_loops, span_tree
from flightlog.analyze.report.summary import ReportContext, Summary, open_context
from flightlog.analyze.report.tasks import Concurrency, InFlight, TaskRow, concurrency, in_flight, task_row
from flightlog.analyze.report.time_shares import Shares, WorkerLife, shares_and_lives, staffed
from flightlog.analyze.report.verdict import ReportVerdict, verdict_of
from flightlog.analyze.report.workers import JobSummary, job_summary
from flightlog.analyze.tallies import grouped
from flightlog.core.errors import UsageError
from flightlog.core.stats import Distribution
from flightlog.events import CostRates
from flightlog.events.devices import DeviceMemory
from flightlog.store import layout
from flightlog.store.documents import decode_document, read_document
from flightlog.store.earlier_runs import EarlierRuns
from flightlog.store.headline import Headline
from flightlog.store.layout import Adopted
from flightlog.store.runs_folder import is_copy
from flightlog.store.slowdown import SlowerThanBefore, slower_than_before
from flightlog.store.tables.run_tables import read_again

if TYPE_CHECKING:
    from flightlog.analyze.devices.results import DeviceReport
    from flightlog.store.layout import RunInfo
    from flightlog.store.readable import Readable
    from flightlog.store.run import Run
    from flightlog.store.tables.run_tables import RunTables


class Details(Struct, frozen=True, kw_only=True):
    """What the sections show that are asked for by name."""

    slowest: dict[str, list[TaskRow]]
    """The slowest completed tasks of each name, with their arguments."""
    span_tree: SpanTree
    failures: list[FailureCause]


class Report(Summary, frozen=True, kw_only=True):
    """The fields of the summary, and what is computed from the run's tables."""

    time: Shares | None
    """Where the time went; null where nothing was recorded to split."""
    concurrency: Concurrency | None
    critical_path: CriticalPath | None
    """Through tasks; through spans where there are no tasks."""
    findings: list[Finding]
    """What stands out, the costliest first; none for a healthy run."""
    verdict: ReportVerdict
    """What limited the run most: the first sentence of the report."""
    in_flight: list[InFlight]
    calibration: list[CalibrationLoop]
    details: Details | None
    """Null where they were not asked for."""
    jobs: JobSummary | None = None
    """The batch jobs the run was executed in; null where it was in none."""
    cost_split: CostSplit | None = None
    """What the workers' time was paid for; null where no rate, or no worker, is known."""
    adopted: Adopted | None = None
    """Where the run came from; null where Flightlog recorded it."""


Also = TypeVar("Also")


def report(
    run: Readable | str | os.PathLike[str] = "latest", *, runs_dir: str | os.PathLike[str] | None = None
) -> Report:
    """The report of a run, as `flightlog report` shows it; of one that is running, as of one moment.

    `run` is what `open_run` takes. Raises `RunNotFound`, `AmbiguousRun`, and `DamagedRun`
    where nothing can be read.
    """
    from flightlog.store.completing import open_run
    from flightlog.store.read.snapshot import held_still

    opened = open_run(run, runs_dir=runs_dir)
    with held_still(opened) as still:
        return report_on(still, history=EarlierRuns(opened))


def report_on(
    run: Run,
    *,
    details: bool = True,
    history: Mapping[str, Distribution] | None = None,
    rates: CostRates | None = None,
) -> Report:
    """The report of a run in any state. The same files give the same report.

    `history` has durations of earlier runs by task or span name, to tell what is stuck by; from `EarlierRuns`
    it is also known whether this run was slower. `rates` are what the run is charged by in place of its own.
    """
    found, _ = report_and(run, _nothing, details=details, history=history, rates=rates)
    return found


@read_again
def report_and(
    run: Run,
    also: Callable[[ReportContext], Also],
    *,
    details: bool = True,
    history: Mapping[str, Distribution] | None = None,
    rates: CostRates | None = None,
) -> tuple[Report, Also]:
    """The report, and what `also` makes of the same reading; `context.tables` has all relations.

    A report that was kept and is current is used. That of a large run is kept.
    """
    lasting = rates is None and may_be_kept(run)
    before = files_of(run) if lasting else {}
    kept = find_kept(run, _schema()) if lasting else None
    report = None if kept is None else _kept_report(kept, details, history)
    made = None if kept is None else _kept_also(kept, also)
    if report is not None and made is not None:
        return report, made[0]
    with open_context(run, report) as context:
        found = _report(context, details, history, rates) if report is None else report
        result = also(context) if made is None else made[0]
    if lasting and lines_bytes(run) >= ReportLimits.min_kept_report_bytes and not is_copy(run.path):
        others = {} if kept is None else {name: bytes(one) for name, one in kept.also.items()}
        with suppress(Exception):  # whatever stands in the way of keeping it, there is a report
            if (name := _name_of(also)) is not None and isinstance(result, Struct):
                others[name] = msgspec.json.encode(result)
            _keep(run, found, others, before)
    return found, result


def keep_report(run: Run, *, from_bytes: int | None = None) -> bool:
    """Work out the report of a large run, or of one with at least `from_bytes` of lines, and keep it; whether
    that was done.

    What is current stays as it is. Raises `OSError` where files cannot be read or written.
    """
    if kept_damage(run) is not None:
        forget(run)
    least = ReportLimits.min_kept_report_bytes if from_bytes is None else from_bytes
    if lines_bytes(run) < least or not may_be_kept(run) or kept_report(run) is not None:
        return False
    before = files_of(run)
    with open_context(run) as context:
        found = _report(context, False, None, None)
    return _keep(run, found, {}, before)


def kept_report(run: Run, *, details: bool = False) -> Report | None:
    """The report that was kept, if it is current; what it says of earlier runs is left out."""
    kept = find_kept(run, _schema())
    return None if kept is None else _kept_report(kept, details, None)


def _keep(run: Run, report: Report, also: Mapping[str, bytes], before: FileStamps) -> bool:
    try:
        encoded = msgspec.json.encode(report)
    except UnicodeEncodeError:  # JSON has no place for names that are not UTF-8
        return False
    return keep(run, encoded, also, _schema(), before)


@cache
def _schema() -> dict[str, Any]:
    return msgspec.json.schema(Report)


def _kept_report(kept: Kept, details: bool, history: Mapping[str, Distribution] | None) -> Report | None:
    """A report that was kept, with what is to be said of earlier runs now; None where these make another one
    of it.
    """
    report = decode_document(bytes(kept.report), Report, layout.KEPT_REPORT).value
    if report is None or (details and report.details is None):
        return None
    if in_flight(report, history) != report.in_flight:
        return None
    verdict = msgspec.structs.replace(report.verdict, past=_slower(report, history))
    return msgspec.structs.replace(report, verdict=verdict, details=report.details if details else None)


def _slower(summary: Summary, history: Mapping[str, Distribution] | None) -> SlowerThanBefore | None:
    """Whether the run was slower than earlier ones, where these are known."""
    if not isinstance(history, EarlierRuns):
        return None
    headline = msgspec.convert(summary, Headline, from_attributes=True)
    return slower_than_before(cast("RunInfo", summary.run), headline, history.runs)


def _kept_also(kept: Kept, also: Callable[[ReportContext], Also]) -> tuple[Also] | None:
    """What `also` gave when the report was kept; None where that was not kept."""
    name = _name_of(also)
    if name is None:
        return None
    kind = get_type_hints(also, localns={"ReportContext": ReportContext}).get("return")
    if kind is type(None):
        return (cast("Also", None),)
    encoded = kept.also.get(name)
    if encoded is None or not isinstance(kind, type):
        return None
    found = decode_document(bytes(encoded), kind, layout.KEPT_REPORT).value
    return None if found is None else (found,)


def _name_of(function: Callable[..., object]) -> str | None:
    """The name of a function of a module; None for any other, as a name does not tell closures apart."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    return f"{module}.{name}" if getattr(sys.modules.get(module or ""), name, None) is function else None


def _nothing(_: ReportContext) -> None:
    """For a report without anything else."""


def _report(
    context: ReportContext, details: bool, history: Mapping[str, Distribution] | None, rates: CostRates | None
) -> Report:
    run, tables, summary = context
    going_on = in_flight(summary, history)
    time, lives = shares_and_lives(tables)
    missing = max(0, (run.info.tasks_submitted or 0) - summary.tasks.submitted)
    unknown = bool(missing) and not summary.tasks.submitted
    if unknown:  # what workers did is in none of the files
        time = None
        workers = msgspec.structs.replace(summary.workers, utilization=None, efficiency=None)
        summary = msgspec.structs.replace(summary, workers=workers)
    summary, spent = _cost(run, summary, lives, tables, rates)
    traced = critical_path(tables)
    critical = traced.path if traced is not None else critical_spans(tables)
    late = behind(tables, time)
    replay = traced.replay if traced is not None else None
    devices = _devices(run, tables)
    facts = FindingFacts(
        *(summary, time, critical, going_on, late, tables, devices, replay),
        planned_workers=_planned_workers(run),
        missing_tasks=missing,
        engine_start_s=0.0 if run.info.engine_start_s is UNSET else run.info.engine_start_s,
        engine_end_s=0.0 if run.info.engine_end_s is UNSET else run.info.engine_end_s,
        staffed=staffed(tables, time),
    )
    past = _slower(summary, history)
    findings = find(facts)
    return Report(
        **{name: getattr(summary, name) for name in Summary.__struct_fields__},
        time=time,
        concurrency=concurrency(tables),
        critical_path=critical,
        findings=findings,
        verdict=verdict_of(facts, findings, past),
        in_flight=going_on,
        calibration=calibration_loops(tables),
        details=_details(tables, summary) if details else None,
        jobs=job_summary(run),
        cost_split=spent,
        adopted=run.info.adopted if isinstance(run.info.adopted, Adopted) else None,
    )


def _cost(
    run: Run, summary: Summary, lives: Mapping[str, WorkerLife], tables: RunTables, instead: CostRates | None
) -> tuple[Summary, CostSplit | None]:
    """The summary with the cost at other rates, where such are given, and what the time of workers was paid
    for.
    """
    tally = CostTally.of(run.events("cost"), instead)
    rates = tally.rates
    if rates is None:
        return summary, None
    used = used_by(
        tables, rates, resources=summary.resources, artifacts=summary.artifacts, saved_s=summary.cache.saved_s
    )
    if instead is not None:
        summary = msgspec.structs.replace(summary, cost=tally.summary(used))
    if not lives or summary.cost.basis != "workers" or summary.cost.workers_total is None:
        return summary, None
    prices = worker_prices(rates, used)
    return summary, None if prices is None else split_cost(lives, prices, rates.currency)


def _devices(run: Run, tables: RunTables) -> DeviceReport | None:
    """What happened to device memory, where a device ran out of it or there is not too much to read."""
    ran_out = (run.path / layout.OOM).is_dir()
    if not ran_out and DeviceMemory.stream not in tables.streams:
        return None
    if not ran_out:
        events = tables.scalar(f"SELECT count(*) FROM {DeviceMemory.stream}")  # noqa: S608 - ours
        if events > ReportLimits.max_device_events:
            return None
    from flightlog.analyze.devices.report import devices_of_tables

    try:
        return devices_of_tables(tables)
    except (UsageError, OSError):  # there is nothing in them
        return None


def _planned_workers(run: Run) -> int:
    """0 where no session planned the run, or it ran on an executor, whose workers are not in the plan."""
    if run.info.provider == "executor":
        return 0
    plan = read_document(run.path / layout.PLAN, WorkerPlan).value
    return plan.workers or 0 if plan is not None else 0


class WorkerPlan(Struct):
    """How many workers a session planned with."""

    workers: int | None = None


def report_bytes(report: Summary) -> bytes:
    """A report, or the summary that it begins with, as JSON: UTF-8, indented, names in order; NaN and
    infinities as null.
    """
    return msgspec.json.format(msgspec.json.encode(report, order="deterministic"), indent=2) + b"\n"


def report_schema() -> dict[str, Any]:
    """The JSON Schema of the report's JSON; `summary.json` has some of its numbers."""
    schema = msgspec.json.schema(Report)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Flightlog report", **schema}


def _details(tables: RunTables, summary: Summary) -> Details:
    names = list(summary.tasks.by_name)[: ReportLimits.max_listed_names]
    rows = tables.rows(
        """
        WITH longest AS (
            SELECT task, unnest(max(duration_s, $slowest)) AS duration_s FROM attempt_intervals
            WHERE state = 'completed' AND task IN (SELECT unnest($names::VARCHAR[])) GROUP BY task
        ), least AS (SELECT task, min(duration_s) AS at_least FROM longest GROUP BY task)
        SELECT task, task_id, args, duration_s, worker FROM attempt_intervals JOIN least USING (task)
        WHERE state = 'completed' AND duration_s >= at_least
        QUALIFY row_number() OVER (PARTITION BY task ORDER BY duration_s DESC, task_id, attempt) <= $slowest
        ORDER BY task, duration_s DESC, task_id, attempt
        """,
        {"names": names, "slowest": ReportLimits.max_slowest_per_name},
    )
    return Details(
        slowest=grouped((task, task_row(task, *row)) for task, *row in rows),
        span_tree=span_tree(tables),
        failures=failure_groups(tables, summary.failures),
    )
