"""The report of a run: its summary, where the time went, and what stands out.

A report is worked out from one reading of the run, which charts share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from flightlog.analyze.cost.cost import CostSplit, CostTally, split_cost, used_by, worker_prices
from flightlog.analyze.failures import FailureCause, failure_groups
from flightlog.analyze.findings import Finding, FindingFacts, find
from flightlog.analyze.findings.base import behind
from flightlog.analyze.limits import ReportLimits
from flightlog.analyze.report.critical_path import CriticalPath, critical_path, critical_spans
from flightlog.analyze.report.past import slower_than_before
from flightlog.analyze.report.spans import CalibrationLoop, SpanTree, calibration_loops, span_tree
from flightlog.analyze.report.summary import ReportContext, Summary, open_context
from flightlog.analyze.report.tasks import Concurrency, InFlight, TaskRow, concurrency, in_flight, task_row
from flightlog.analyze.report.time_shares import Measured, Shares, measure, shares_of
from flightlog.analyze.report.verdict import ReportVerdict, verdict_of
from flightlog.analyze.report.workers import JobSummary, job_summary
from flightlog.analyze.tallies import grouped, tallied
from flightlog.core.errors import UsageError
from flightlog.core.stats import Distribution
from flightlog.events import CostRates
from flightlog.events.devices import DeviceMemory
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.earlier_runs import EarlierRuns
from flightlog.store.layout import Adopted
from flightlog.store.tables.run_tables import read_again

if TYPE_CHECKING:
    from flightlog.analyze.devices.results import DeviceReport
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
    """The report, and what `also` makes of the same reading; `context.tables` has all relations."""
    with open_context(run) as context:
        return _report(context, details, history, rates), also(context)


def _nothing(_: ReportContext) -> None:
    """For a report without anything else."""


def _report(
    context: ReportContext,
    details: bool,
    history: Mapping[str, Distribution] | None,
    rates: CostRates | None,
) -> Report:
    run, tables, summary, window = context
    going_on = in_flight(summary, history)
    measured = measure(tables, window)
    time = None if measured is None else shares_of(measured)
    summary, spent = _cost(run, summary, measured, tables, rates)
    traced = critical_path(tables, window)
    critical = traced.path if traced is not None else critical_spans(tables, window)
    late = behind(tables, time)
    replay = traced.replay if traced is not None else None
    devices = _devices(run, tables)
    facts = FindingFacts(
        summary, time, critical, going_on, late, tables, window, devices, replay, _planned_workers(run)
    )
    past = slower_than_before(summary, history.runs) if isinstance(history, EarlierRuns) else None
    findings = find(facts)
    return Report(
        **{name: getattr(summary, name) for name in Summary.__struct_fields__},
        time=time,
        concurrency=concurrency(tables, window),
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
    run: Run,
    summary: Summary,
    measured: Measured | None,
    tables: RunTables,
    instead: CostRates | None,
) -> tuple[Summary, CostSplit | None]:
    """The summary with the cost at other rates, where such are given, and what the time of workers was paid
    for.
    """
    tally = tallied(run, "cost", CostTally(instead))
    rates = tally.rates
    if rates is None:
        return summary, None
    used = used_by(
        tables,
        rates,
        resources=summary.resources,
        artifacts=summary.artifacts,
        saved_s=summary.cache.saved_s,
    )
    if instead is not None:
        summary = msgspec.structs.replace(summary, cost=tally.summary(used))
    if measured is None or summary.cost.basis != "workers" or summary.cost.workers_total is None:
        return summary, None
    prices = worker_prices(rates, used)
    return summary, None if prices is None else split_cost(measured.lives, prices, rates.currency)


def _devices(run: Run, tables: RunTables) -> DeviceReport | None:
    """What happened to device memory, where a device ran out of it or there is not too much to read."""
    ran_out = (run.path / layout.OOM).is_dir()
    if not ran_out and DeviceMemory.stream not in tables.streams:
        return None
    if not ran_out:
        [(events,)] = tables.execute(f"SELECT count(*) FROM {DeviceMemory.stream}").fetchall()  # noqa: S608
        if events > ReportLimits.max_device_events:
            return None
    from flightlog.analyze.devices.report import devices_of_run

    try:
        return devices_of_run(run)
    except (UsageError, OSError):  # there is nothing in them
        return None


def _planned_workers(run: Run) -> int:
    """0 where no session planned the run."""
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
