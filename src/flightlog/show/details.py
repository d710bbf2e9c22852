"""The further parts of a report, each only where there is something to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.show.document import Facts, Item, Items, Remarks, Section, Table
from flightlog.show.gpus import energy_text, gpu_facts
from flightlog.show.jobs import jobs_section
from flightlog.show.phrases import call_text, count_text, first_line, innermost, last_line, moment_text
from flightlog.show.sections import calibration_sections, few, known, names_table, why
from flightlog.show.terminal import Ink, clean
from flightlog.units import format_bytes, format_count, format_duration, format_percent

if TYPE_CHECKING:
    from flightlog.analyze.report import Report
    from flightlog.analyze.stuck import InFlight
    from flightlog.analyze.summary import Summary

ROWS = 10
FEW = 5
SLOWEST = 3
TURNS = 5


def details(report: Report, ink: Ink) -> list[Section]:
    """Sections in the order of a report; one with nothing to say is empty."""
    return [
        _in_flight(report),
        _failures(report),
        jobs_section(report.jobs, running=report.run.status == "running"),
        _by_name(report),
        _slowest(report),
        *calibration_sections(report, TURNS),
        _spans(report),
        metrics_section(report),
        _resources(report, ink),
        _artifacts(report),
        _recording(report, ink),
    ]


def _in_flight(report: Report) -> Section:
    rows = [
        (
            call_text(one.name, one.args if one.kind == "task" else one.args or None),
            moment_text(one.since),
            format_duration(one.elapsed_s),
            one.worker or "",
            _usually(one),
            _verdict(one),
        )
        for one in report.in_flight[: 2 * ROWS]
    ]
    if not rows:
        return Section("In flight")
    total = report.tasks.running + report.spans.open_in_flight
    title = "In flight" if report.run.status == "running" else "In flight when the run ended"
    head = ("Task or span", "Since", "For", "Worker", "Usually", "Stuck?")
    more = f"and {format_count(total - len(rows))} more" if total > len(rows) else ""
    return Section(title, "", [Table(head, rows, left=("Since", "Worker", "Stuck?"), more=more)])


def _usually(one: InFlight) -> str:
    """How long such a thing takes at its median; where this run does not tell, in earlier ones."""
    if one.usual is None:
        return ""
    return f"{format_duration(one.usual.p50)}{' in earlier runs' if one.usual.of == 'history' else ''}"


def _verdict(one: InFlight) -> str:
    """Whether it may be stuck, and how many times the usual it has taken; nothing where nothing is usual."""
    if one.stuck is None:
        return ""
    if not one.stuck:
        return "no"
    return "yes?" if one.ratio is None else f"yes? {one.ratio:,.3g}x"


def _failures(report: Report) -> Section:
    failures = report.failures
    if not failures.count:
        return Section("Failures")
    items = []
    for group in failures.by_cause[:FEW]:
        example = group.example
        kind = group.error_type or ", ".join(group.scopes)
        cause = f"{kind}: {first_line(group.message)}" if group.message else kind
        who = call_text(example.task, example.args) if example.task else " and ".join(group.scopes)
        where = f" on {clean(example.worker)}" if example.worker else ""
        place = innermost(example.traceback) or last_line(example.output_tail)
        below = (f"{who}{where}, {moment_text(example.timestamp)}", place)
        items.append(Item(cause, below, mark=f"{format_count(group.count)}x ", style="bad"))
    note = f"{format_count(failures.count)}, {count_text(failures.groups, 'cause')}"
    return Section("Failures", note, [Items(items, few(failures.groups - len(items), "cause")), why(report)])


def _by_name(report: Report) -> Section:
    return Section("By task", "", [names_table(report, FEW)] if report.tasks.by_name else [])


def _slowest(report: Report) -> Section:
    rows = [
        (call_text(task.task, task.args), format_duration(task.duration_s), task.worker or "")
        for task in report.tasks.slowest[:SLOWEST]
    ]
    if report.tasks.completed <= SLOWEST or not rows:
        return Section("Slowest")
    return Section("Slowest", "", [Table(("Task", "Duration", "Worker"), rows, left=("Worker",))])


def _spans(report: Report) -> Section:
    spans = report.spans
    names = sorted(spans.by_name.items(), key=lambda item: (-item[1].self_s, item[0]))
    rows = [
        (
            name,
            format_count(span.count),
            format_count(span.errors) if span.errors else "",
            format_duration(span.self_s),
            format_duration(span.total_s),
            format_duration(span.wall_s),
            known(span.p50),
            known(span.p95),
        )
        for name, span in names[:FEW]
    ]
    if not rows:
        return Section("Spans")
    note = (
        f"{format_count(spans.count)}, {format_duration(spans.busy_s)} busy in "
        f"{format_duration(spans.wall_s)} of wall time"
    )
    head = ("Name", "Count", "Errors", "Self", "Total", "Wall", "p50", "p95")
    return Section("Spans", note, [Table(head, rows, more=few(spans.names - len(rows), "name"))])


def metrics_section(report: Report, shown: int = FEW) -> Section:
    """What the program recorded values of; so many metrics."""
    metrics = report.run.metrics
    rows = [
        (name, f"{stats.last:.6g}", f"{stats.min:.6g}", f"{stats.max:.6g}", format_count(stats.count))
        for name, stats in list(metrics.items())[:shown]
    ]
    head = ("Name", "Last", "Min", "Max", "Values")
    table = Table(head, rows, more=few(len(metrics) - len(rows), "metric"))
    return Section("Metrics", "", [table] if rows else [])


def _resources(summary: Summary, ink: Ink) -> Section:
    use = summary.resources
    pairs: list[tuple[str, str]] = []
    if use.process is not None:
        tree = use.process
        if tree.cpu_cores.mean is not None and tree.cpu_cores.max is not None:
            cores = f"{tree.cpu_cores.mean:.2f} cores mean, {tree.cpu_cores.max:.2f} max"
            pairs.append(("Process CPU", cores))
        if tree.peak_rss_bytes is not None:
            pairs.append(("Process memory", f"{format_bytes(tree.peak_rss_bytes)} peak"))
        if tree.read_bytes or tree.write_bytes:
            traffic = f"{format_bytes(tree.read_bytes)} read, {format_bytes(tree.write_bytes)} written"
            pairs.append(("Storage", traffic))
    if use.node is not None:
        node = use.node
        if node.cpu_percent.mean is not None and node.cpu_percent.max is not None:
            cores = f" of {format_count(node.cpus)} cores" if node.cpus is not None else ""
            load = f"{node.cpu_percent.mean:.0f}% mean, {node.cpu_percent.max:.0f}% max{cores}"
            pairs.append(("Node CPU", load))
        if node.memory_peak_bytes is not None:
            of = f" of {format_bytes(node.memory_total_bytes)}" if node.memory_total_bytes is not None else ""
            pairs.append(("Node memory", f"{format_bytes(node.memory_peak_bytes)} peak{of}"))
    if use.gpu is not None:
        pairs += gpu_facts(use.gpu, ink)
    if use.cgroup is not None:
        if use.cgroup.throttled_s:
            held = f"{format_duration(use.cgroup.throttled_s)} by the CPU quota"
            pairs.append(("Throttled", ink("warn", held)))
        if use.cgroup.oom_kills:
            pairs.append(
                ("Out of memory", ink("bad", f"{count_text(use.cgroup.oom_kills, 'process')} killed"))
            )
    if use.energy is not None:
        by_host = use.energy.by_host.values()
        counted = [one.processors_j for one in by_host if one.processors_j is not None]
        if counted:
            where = f" of {count_text(len(counted), 'host')}" if len(counted) > 1 else ""
            pairs.append(
                ("Node energy", f"{energy_text(sum(counted))} by the processors{where}, for everyone")
            )
    return Section("Resources", "", [Facts(pairs)] if pairs else [])


def _artifacts(summary: Summary) -> Section:
    artifacts = summary.artifacts
    if not artifacts.count:
        return Section("Artifacts")
    rows = [
        (item.name, item.kind or "", format_bytes(item.size_bytes) if item.size_bytes is not None else "")
        for item in artifacts.listed[-FEW:]
    ]
    size = f", {format_bytes(artifacts.size_bytes)}" if artifacts.size_bytes is not None else ""
    table = Table(
        ("Name", "Kind", "Size"), rows, left=("Kind",), more=few(artifacts.count - len(rows), "artifact")
    )
    return Section("Artifacts", f"{format_count(artifacts.count)}{size}", [table])


def _recording(summary: Report, ink: Ink) -> Section:
    run, found, cost = summary.run, summary.completeness, summary.overhead
    whole = found.lines + found.lost_lines
    never_closed = run.end_time is None and run.status != "running"
    if found.lost_lines:
        state = f"{format_count(found.lines)} of {format_count(whole)} lines, {ink('bad', found.lost_text)}"
        state += "; the run was not closed" if never_closed else ""
    elif never_closed:
        state = f"{count_text(found.lines, 'line')} read; the run was not closed"
    elif not found.loss_known:
        state = f"{count_text(found.lines, 'line')}; {found.lost_text}"
    elif found.problems:
        state = f"{count_text(found.lines, 'line')}, none known to be lost"
    else:
        state = f"complete: {format_count(found.lines)} of {format_count(whole)} lines"
    pairs = [("Completeness", state)]
    if cost.writers and cost.background_cpu_s is None and summary.adopted is None:
        pairs.append(("Overhead", "unknown: not every process noted what it cost"))
    elif cost.background_cpu_s is not None and summary.adopted is None:  # adopting cost the run nothing
        # A share of next to no time says nothing.
        lasted = cost.percent is not None and run.duration_s is not None and run.duration_s >= 1
        share = f" ({format_percent((cost.percent or 0) / 100)} of one core)" if lasted else ""
        spent = f"{format_duration(cost.background_cpu_s)} of CPU in the background"
        if cost.foreground_s is not None:
            spent = f"about {format_duration(cost.foreground_s)} in the program's threads, {spent}"
        pairs.append(("Overhead", f"{spent}{share}; {format_bytes(cost.bytes)} written"))
    said = (*found.problems, *found.notes)
    remarks = [Remarks(said[:FEW], few(len(said) - FEW, "remark"))] if said else []
    return Section("Recording", "", [Facts(pairs), *remarks])
