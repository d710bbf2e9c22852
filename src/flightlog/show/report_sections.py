"""Sections of a report on time, cost and critical path, and the full ones: tasks, spans, workers,
failures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from flightlog.analyze.cost.prices import is_old
from flightlog.analyze.report.critical_path import Kind
from flightlog.analyze.report.metrics import MetricStats, metric_stats
from flightlog.core.text import plural
from flightlog.core.units import format_bytes, format_count, format_duration, format_percent
from flightlog.show.document import (
    FactsBlock,
    Item,
    Items,
    Remarks,
    Section,
    TableBlock,
    facts_block,
    rest_text,
    table_block,
    table_section,
)
from flightlog.show.limits import TextLimits
from flightlog.show.phrases import (
    call_text,
    counts_text,
    error_text,
    known,
    known_duration,
    moment_text,
    money_text,
    some_of,
)
from flightlog.show.plot import levels_line
from flightlog.show.terminal import clean
from flightlog.store.layout import ELAPSED

if TYPE_CHECKING:
    from flightlog.analyze.cost.cost import CostItem, CostSummary
    from flightlog.analyze.failures import FailureCause
    from flightlog.analyze.report.critical_path import CriticalPath
    from flightlog.analyze.report.report import Report
    from flightlog.analyze.report.spans import CalibrationLoop
    from flightlog.analyze.report.summary import Summary
    from flightlog.analyze.report.tasks import TaskName, TaskRow
    from flightlog.analyze.report.time_shares import Shares, TimeSplit


def elapsed_of(task: TaskName, report: Summary) -> MetricStats | None:
    """Times of a task name that include waiting, where another tool recorded the run and nothing better is
    known.
    """
    if getattr(report, "adopted", None) is None or task.duration_s.count:  # a summary does not know
        return None
    return task.metrics.get(ELAPSED)


def all_elapsed(report: Report) -> MetricStats | None:
    """Those of all names together; None where there are none, or the report does not list every name."""
    tasks = report.tasks
    found = [one for task in tasks.by_name.values() if (one := elapsed_of(task, report)) is not None]
    if not found or tasks.names > len(tasks.by_name):
        return None
    count, total = sum(one.count for one in found), math.fsum(one.sum for one in found)
    return metric_stats(
        count, total, min(one.min for one in found), max(one.max for one in found), found[-1].last
    )


def names_table(summary: Summary, rows: int | None = None) -> TableBlock:
    """The task names, the one with the most execution time first."""
    elapsed = {name: elapsed_of(task, summary) for name, task in summary.tasks.by_name.items()}

    def most(item: tuple[str, TaskName]) -> tuple[float, float, str]:
        other = elapsed[item[0]]
        return -item[1].duration_s.total, 0.0 if other is None else -other.sum, item[0]

    return table_block(
        sorted(summary.tasks.by_name.items(), key=most),
        "key Name, completed Done, failed? Failed, duration_s.mean Mean, duration_s.p50 p50, "
        "duration_s.p95 p95, duration_s.p99 p99, duration_s.max Max, total Total, cpu_s CPU, "
        "peak_rss Peak RSS, "
        # Of tasks of which another tool recorded no other time.
        "elapsed_mean Mean with waiting, elapsed_max Max with waiting, elapsed_sum Total with waiting, "
        # Of tasks that know it.
        "gpu_time GPU time, gpu_peak Peak GPU",
        limit=rows,
        of=summary.tasks.names,
        rest="more name",
        total=lambda item: known_duration(item[1].duration_s.total if item[1].duration_s.count else None),
        peak_rss=lambda item: _peak_rss(item[1]),
        elapsed_mean=lambda item: known(elapsed[item[0]], lambda of: format_duration(of.mean)),
        elapsed_max=lambda item: known(elapsed[item[0]], lambda of: format_duration(of.max)),
        elapsed_sum=lambda item: known(elapsed[item[0]], lambda of: format_duration(of.sum)),
        gpu_time=lambda item: _gpu_time(item[1]),
        gpu_peak=lambda item: _gpu_peak(item[1]),
    )


def _peak_rss(task: TaskName) -> str:
    at_least = "≥ " if any(scope.endswith("_at_least") for scope in task.rss_scopes) else ""
    return known(task.peak_rss_bytes, lambda peak: f"{at_least}{format_bytes(peak)}")


def _gpu_time(task: TaskName) -> str:
    """GPU time, with its scope where that is not only the tasks."""
    if task.gpu_s is None:
        return ""
    return format_duration(task.gpu_s) + (" (device)" if "device" in task.gpu_scopes else "")


def _gpu_peak(task: TaskName) -> str:
    """The largest memory on one GPU, and whose it is."""
    if task.gpu_peak_bytes is None:
        return ""
    at_least = "≥ " if "allocator_at_least" in task.gpu_memory_scopes else ""
    whose = dict.fromkeys(scope.removesuffix("_at_least") for scope in task.gpu_memory_scopes)
    return f"{at_least}{format_bytes(task.gpu_peak_bytes)} ({', '.join(whose)})"


def all_tasks(report: Report) -> list[Section]:
    """Every task name with its spread, and the slowest tasks of each with their arguments."""
    if not report.tasks.by_name:
        return [Section("By task", "no task was recorded")]
    found = [Section("By task", "", [names_table(report)])]
    slowest = report.details.slowest if report.details is not None else {}
    order = sorted(slowest, key=lambda name: (-slowest[name][0].duration_s, name))
    tasks = [task for name in order for task in slowest[name]]
    if tasks:
        found.append(Section("Slowest of each name", "", [slowest_table(tasks, 70)]))
    return found


def slowest_table(tasks: Sequence[TaskRow], width: int = 60) -> TableBlock:
    """Tasks with their arguments, durations and workers."""
    return table_block(
        tasks,
        "call Task, duration_s Duration, worker <Worker",
        call=lambda task: call_text(task.task, task.args, width),
    )


def spans_note(report: Report) -> str:
    """How many spans there were, and how long those took that have an end."""
    spans = report.spans
    busy, wall = format_duration(spans.busy_s), format_duration(spans.wall_s)
    unended = f"; {format_count(spans.open_in_flight)} more without an end" if spans.open_in_flight else ""
    return f"{format_count(spans.count)}, {busy} busy in {wall} of wall time{unended}"


def all_spans(report: Report) -> list[Section]:
    """The tree of spans by name: inside what, how often, how long on the clock, by themselves, and all in
    all.
    """
    tree = report.details.span_tree if report.details is not None else None
    if tree is None or not tree.nodes:
        return [Section("Spans", "none were recorded")]
    more = rest_text(tree.paths - len(tree.nodes), "more path")
    if tree.unplaced:
        more = f"{more}{'; ' if more else 'and '}{plural(tree.unplaced, 'span')} without an outermost one"
    table = table_block(
        tree.nodes,
        "name Name, count Count, open? Open, errors? Errors, wall_s Wall, self_s Self, busy_s Busy, "
        "total_s Total",
        more=more,
        name=lambda node: "  " * (len(node.path) - (node.task is None)) + clean(node.path[-1]),
    )
    rows: list[Sequence[str]] = []
    for task, named in groupby(zip(tree.nodes, table.rows, strict=True), lambda pair: pair[0].task):
        rows += [(f"in task {clean(task)}", *[""] * 7)] if task is not None else []
        rows += [row for _, row in named]
    return [Section("Spans", spans_note(report), [table._replace(rows=rows)]), *calibration_sections(report)]


def all_workers(report: Report, width: int) -> list[Section]:
    """Where the time went, and every worker with its own split."""
    time = report.time
    if time is None or time.basis != "workers":
        return [*time_sections(report, width, links=20), Section("Workers", "none known")]
    shares: dict[str, Any] = {f"{part}_s": partial(_part, f"{part}_s") for part in TIME_PARTS}
    lost = {name: worker.lost or "" for name, worker in report.workers.by_worker.items()}
    table = table_block(
        time.by_worker.items(),
        "key Worker, attempts Tasks, total_s Time, run_s Done, failed_s Failed, unfinished_s In flight, "
        "transfer_s Transfer, scheduler_s Scheduling, startup_s Start-up, idle_s Idle, lost <Lost",
        of=time.workers,
        rest="more worker",
        lost=lambda item: lost.get(item[0], ""),
        **shares,
    )
    note = (
        f"peak {format_count(report.workers.peak)}, {format_percent(report.workers.utilization)} "
        f"utilization, {format_percent(report.workers.efficiency)} efficiency"
    )
    return [*time_sections(report, width, links=20), Section("Workers", note, [table])]


def _part(field: str, item: tuple[str, TimeSplit]) -> str:
    """The share of a part of a worker's time."""
    lasted, whole = getattr(item[1], field), item[1].total_s
    return format_percent(lasted / whole) if lasted and whole else ""


def all_failures(report: Report) -> list[Section]:
    """Every cause: how often, from when to when, of which tasks and arguments, on which workers, at which
    attempt.
    """
    causes = report.details.failures if report.details is not None else []
    if not causes:
        return [Section("Failures", "none")]
    items = []
    for cause in causes:
        text = error_text(cause.error_type or "failure", cause.message)
        frames = [
            line.strip() for line in (cause.traceback or "").splitlines() if line.strip().startswith("File ")
        ]
        said = [f"{label}: {value}" for label, value in cause_facts(cause).pairs]
        below = [*said, *frames[-TextLimits.max_traceback_frames :]]
        items.append(Item(text, below, mark=f"{format_count(cause.count)}x ", style="bad"))
    failures = report.failures
    note = f"{format_count(failures.count)}, {plural(failures.groups, 'cause')}"
    more = rest_text(failures.groups - len(items), "more cause")
    return [Section("Failures", note, [Items(items, more), diagnose_hint(report)])]


def diagnose_hint(report: Summary) -> Remarks:
    """The command that explains the failures."""
    return Remarks([f"To find out why: flightlog diagnose {report.run.run_id}"])


def cause_facts(cause: FailureCause) -> FactsBlock:
    """When, in which tasks, on which workers and at which attempts a cause made something fail."""
    most = TextLimits.max_names_per_cause
    pairs = [
        ("When", f"first {moment_text(cause.first)}, last {moment_text(cause.last)}"),
        ("Tasks", counts_text(cause.tasks, most)),
        ("Workers", counts_text(cause.workers, most)),
        ("Attempts", counts_text({f"attempt {n}": count for n, count in cause.attempts.items()}, most)),
        *(("Such as", call_text(case.task, case.args, 80)) for case in cause.cases if case.task is not None),
        ("Fingerprint", cause.fingerprint or ""),
    ]
    return facts_block(pairs)


def calibration_sections(report: Report, rows: int = 10) -> list[Section]:
    """Each calibration loop: its best loss first, then its turns, the last ones."""
    return [_loop(loop, rows) for loop in report.calibration]


def _loop(loop: CalibrationLoop, rows: int) -> Section:
    title = f"Calibration {clean(loop.job)}" if loop.job else "Calibration"
    best = "no loss recorded" if loop.best_loss is None else f"best loss {loop.best_loss:.6g}"
    at = f" in iteration {clean(loop.best_iteration)}" if loop.best_iteration is not None else ""
    trials = loop.trials_per_minute
    pace = "" if trials is None else f", {trials:{',.0f' if trials >= 100 else '.3g'}} trials per minute"
    note = f"{best}{at}, {plural(loop.iterations, 'iteration')}{' so far' if loop.open else ''}{pace}"
    whole = loop.iterations_s or 1.0
    spent = ", ".join(
        f"{name} {format_percent(lasted / whole)}"
        for name in ("ask", "submit", "gather", "tell", "other")
        if (lasted := getattr(loop, f"{name}_s"))
    )
    earlier = loop.iterations - len(loop.listed[-rows:])
    table = table_block(
        loop.listed[-rows:],
        "iteration Iteration, duration_s Took, ask_s Ask, submit_s Submit, gather_s Gather, tell_s Tell, "
        "trials Trials, min_loss:.6g Loss, best_loss:.6g Best so far",
        more=f"after {plural(earlier, 'earlier iteration')}" if earlier else "",
    )
    return Section(title, note, [facts_block([("Time", spent)]), table])


TIME_PARTS = {
    "run": "Completed work",
    "unfinished": "In flight",
    "failed": "Failed work",
    "transfer": "Transfer",
    "scheduler": "Scheduling overhead",
    "startup": "Worker start-up",
    "idle": "Idle",
}
"""Parts of worker time by their fields."""


def time_sections(report: Report, width: int, *, links: int = 4) -> list[Section]:
    """The split and the critical path, each where it is known."""
    found = [_split(report.time, report, width)] if report.time is not None else []
    return [*found, *([critical_section(report.critical_path, links)] if report.critical_path else [])]


def _split(time: Shares, report: Report, width: int) -> Section:
    whole = time.whole
    parts = {name: getattr(whole, f"{part}_s") for part, name in TIME_PARTS.items()}
    table = _parts_table(("Part", "Share", "Time", ""), parts, whole.total_s, format_duration)
    if whole.transfer_s is None and time.basis == "workers":
        table = table._replace(rows=[*table.rows, ("Transfer", "unknown", "", "")])
    of = f"{worker_time(whole.total_s)} of {plural(time.workers, 'worker')}"
    if time.basis == "wall":
        of = f"{format_duration(whole.total_s)} of wall time: no worker is known"
    concurrency = ""
    if (running := report.concurrency) is not None:
        line = sparkline(running.running, min(TextLimits.concurrency_line_width, width - 52))
        concurrency = f"{line} peak {format_count(running.peak)}, mean {running.mean:.1f}"
    unknown = f"{plural(time.without_worker, 'attempt')} on unknown workers" if time.without_worker else ""
    pairs = [("Concurrency", concurrency), ("Not counted", unknown)]
    return Section("Where the time went", of, [table, facts_block(pairs)])


def _parts_table(
    head: tuple[str, ...], parts: Mapping[str, float | None], total: float, show: Callable[[float], str]
) -> TableBlock:
    """The parts of a total that there are, the largest first, with a bar each as long as its share, in whole
    columns.
    """
    columns = TextLimits.share_bar_width
    found = sorted(((name, amount) for name, amount in parts.items() if amount), key=lambda part: -part[1])
    rows = [
        (name, format_percent(amount / total), show(amount), "█" * round(amount / total * columns))
        for name, amount in found
        if total
    ]
    return TableBlock(head, rows, left=("",))


def critical_section(path: CriticalPath, rows: int) -> Section:
    """The critical path by name: its longest parts, at most this many."""
    return table_section(
        "Critical path",
        path.parts,
        "name What, links Segments, seconds:_s Time, share Share, saving Max. saving",
        note=f"what set the {format_duration(path.wall_s)} of wall time",
        limit=rows,
        rest="shorter part",
        name=lambda part: link_name(part.kind, part.name),
        saving=lambda part: known(part.saves_s, lambda saved: f"≤ {format_duration(saved)}"),
    )


def link_name(kind: Kind, name: str) -> str:
    """What a link of the chain is: `simulate`, `waiting to start simulate`, `program, after the last
    task`.
    """
    shown = clean(name)
    return {"wait": f"waiting to start {shown}", "program": f"program, {shown}"}.get(kind, shown)


def worker_time(lasted: float) -> str:
    """`1.9 worker-hours`."""
    if lasted >= 3600:
        return f"{lasted / 3600:,.1f} worker-hours"
    return f"{lasted / 60:,.1f} worker-minutes" if lasted >= 120 else f"{lasted:,.1f} worker-seconds"


def sparkline(values: Sequence[float], columns: int) -> str:
    """Values as one line of blocks, the highest full; an empty place is nothing at all."""
    if len(values) > columns:
        edges = pairwise(len(values) * n // columns for n in range(columns + 1))
        values = [sum(values[a:b]) / (b - a) for a, b in edges]
    return levels_line(values)


TITLE = "Estimated Cost"
NO_RATE = "no rate was given"
"""The reason of a cost that is unknown because nothing was recorded of it."""

PAID_FOR = {
    "useful": "Useful work",
    "unfinished": "In flight",
    "retried": "Retried",
    "failed": "Failed work",
    "starting": "Worker start-up",
    "idle": "Idle",
}
"""Parts of a cost by their fields."""
_ITEMS = {"storage": "Storage", "energy": "Energy", "egress": "Egress"}


def cost_section(report: Report) -> Section:
    """The cost of a run; one line without a split."""
    cost, split = report.cost, report.cost_split
    table = []
    if split is not None and 0 < split.total < math.inf:
        parts = {name: getattr(split, part) for part, name in PAID_FOR.items()}
        money = partial(money_text, currency=split.currency)
        table.append(_parts_table(("Paid for", "Share", "Cost", ""), parts, split.total, money))
    return Section(TITLE, _note(report), [*table, facts_block(_facts(report, cost))])


def _note(summary: Summary) -> str:
    cost = summary.cost
    if cost.total is None and not cost.by_item and cost.reason in {None, NO_RATE}:
        return ""
    if cost.total is None:
        if cost.reason is None or not cost.by_item:
            return f"unknown: {clean(cost.reason or NO_RATE)}"
        return f"unknown ({clean(cost.reason)})"
    text = money_text(cost.total, cost.currency or ("USD" if not cost.total else None))
    if cost.at_least:
        text = f"{text} so far" if summary.run.status == "running" else f"at least {text}"
    remarks = []
    provider = cost.provider or summary.run.provider
    if cost.instance is not None:
        remarks.append(_priced(cost.instance, cost))
    elif provider:
        remarks.append(f"{clean(provider)} provider")
    lacking = [clean(item) for item, found in cost.by_item.items() if found.amount is None]
    if lacking:
        remarks.append(f"without {some_of(lacking, TextLimits.max_unpriced_items)}")
    return text + (f" ({', '.join(remarks)})" if remarks else "")


def _priced(instance: str, cost: CostSummary) -> str:
    """`aws/m6i.xlarge at its price of 2026-02-09`, or that the price is undated."""
    if cost.prices_of is not None:
        return f"{clean(instance)} at its price of {clean(cost.prices_of)}"
    return f"{clean(instance)}, price undated" + (f", from {clean(cost.source)}" if cost.source else "")


def _facts(summary: Summary, cost: CostSummary) -> list[tuple[str, str]]:
    paid = ""
    if cost.workers_total is not None and cost.workers_total != cost.total:
        lived = f", {worker_time(cost.workers_s)}" if cost.workers_s is not None else ""
        paid = f"{money_text(cost.workers_total, cost.currency)}{lived}"
    saved = (
        f"{money_text(cost.saved, cost.currency)}, not included in the total" if (cost.saved or 0) > 0 else ""
    )
    date = f"of {clean(cost.prices_of or '')}, more than a year before the run: check it"
    return [
        ("Workers" if cost.basis == "workers" else "Machine", paid),
        *(
            (_ITEMS.get(item, clean(item)), _item(found))
            for item, found in cost.by_item.items()
            if found.amount is None or (item in _ITEMS and found.amount)
        ),
        ("Saved by cache", saved),
        ("Price", date if is_old(cost.prices_of, summary.run.start_time) else ""),
    ]


def _item(item: CostItem) -> str:
    """`$0.04, 0.12 kWh`, or why it is unknown."""
    unit = f"{item.quantity:.3g} {clean(item.quantity_unit or '')}" if item.quantity is not None else ""
    if item.amount is None:
        return f"unknown: {clean(item.reason or 'no rate was known')}"
    return money_text(item.amount, item.currency) + (f", {unit}" if unit else "")
