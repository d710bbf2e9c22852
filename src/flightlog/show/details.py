"""The further parts of a report, each only where there is something to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.show.phrases import call_text, count_text, first_line, innermost, last_line, moment_text
from flightlog.show.table import facts, table
from flightlog.show.terminal import Ink, clean, fit, wrap
from flightlog.units import format_bytes, format_count, format_duration, format_percent

if TYPE_CHECKING:
    from flightlog.analyze.summary import Summary

ROWS = 10
FEW = 5


def details(summary: Summary, width: int, ink: Ink) -> list[list[str]]:
    """Sections of lines, in the order of a report; a section with nothing to say is empty."""
    return [
        _in_flight(summary, width, ink),
        _failures(summary, width, ink),
        _by_name(summary, width, ink),
        _slowest(summary, width, ink),
        _spans(summary, width, ink),
        _metrics(summary, width, ink),
        _resources(summary, ink),
        _artifacts(summary, width, ink),
        _recording(summary, width, ink),
    ]


def _more(total: int, shown: int, what: str) -> list[str]:
    return [f"  … and {count_text(total - shown, f'more {what}')}"] if total > shown else []


def _in_flight(summary: Summary, width: int, ink: Ink) -> list[str]:
    tasks, spans = summary.tasks, summary.spans
    rows = [
        (call_text(task.task, task.args), moment_text(task.since), format_duration(task.elapsed_s),
         task.worker or "")
        for task in tasks.in_flight[:ROWS]
    ]  # fmt: skip
    rows += [
        (
            call_text(span.name, span.tags or None),
            moment_text(span.since),
            format_duration(span.elapsed_s),
            "",
        )
        for span in spans.in_flight[:ROWS]
    ]
    if not rows:
        return []
    total = tasks.running + spans.open_in_flight
    title = "In flight:" if summary.run.status == "running" else "In flight when the run ended:"
    lines = table(
        ("Task or span", "Since", "For", "Worker"), rows, width=width, ink=ink, left=("Since", "Worker")
    )
    more = [f"  … and {format_count(total - len(rows))} more"] if total > len(rows) else []
    return [ink("head", title), *lines, *more]


def _failures(summary: Summary, width: int, ink: Ink) -> list[str]:
    failures = summary.failures
    if not failures.count:
        return []
    causes = count_text(failures.groups, "cause")
    lines = [f"{ink('head', 'Failures:')} {format_count(failures.count)}, {causes}"]
    for group in failures.by_cause[:FEW]:
        example = group.example
        kind = group.error_type or ", ".join(group.scopes)
        cause = f"{kind}: {first_line(group.message)}" if group.message else kind
        times = f"  {format_count(group.count)}x "
        lines.append(times + ink("bad", fit(clean(cause), max(20, width - len(times)))))
        who = call_text(example.task, example.args) if example.task else " and ".join(group.scopes)
        where = f" on {clean(example.worker)}" if example.worker else ""
        lines.append(fit(f"      {who}{where}, {moment_text(example.timestamp)}", width))
        place = clean(innermost(example.traceback) or last_line(example.output_tail))
        if place:
            lines.append(fit(f"      {place}", width))
    return lines + _more(failures.groups, FEW, "cause")


def _by_name(summary: Summary, width: int, ink: Ink) -> list[str]:
    tasks = summary.tasks
    names = sorted(tasks.by_name.items(), key=lambda item: (-item[1].duration_s.total, item[0]))
    rows = []
    for name, task in names[:ROWS]:
        spread = task.duration_s
        at_least = "≥ " if "process_at_least" in task.rss_scopes else ""
        rows.append((
            name, format_count(task.completed), format_count(task.failed) if task.failed else "",
            _known(spread.mean), _known(spread.p50), _known(spread.p95), _known(spread.max),
            _known(spread.total if spread.count else None), _known(task.cpu_s),
            f"{at_least}{format_bytes(task.peak_rss_bytes)}" if task.peak_rss_bytes is not None else "",
        ))  # fmt: skip
    if not rows:
        return []
    head = ("Name", "Done", "Failed", "Mean", "p50", "p95", "Max", "Total", "CPU", "Peak RSS")
    lines = table(head, rows, width=width, ink=ink)
    return [ink("head", "By task:"), *lines, *_more(tasks.names, len(rows), "name")]


def _known(duration_s: float | None) -> str:
    return "" if duration_s is None else format_duration(duration_s)


def _slowest(summary: Summary, width: int, ink: Ink) -> list[str]:
    if summary.tasks.completed <= FEW:
        return []
    rows = [
        (call_text(task.task, task.args), format_duration(task.duration_s), task.worker or "")
        for task in summary.tasks.slowest[:FEW]
    ]
    lines = (
        table(("Task", "Duration", "Worker"), rows, width=width, ink=ink, left=("Worker",)) if rows else []
    )
    return [ink("head", "Slowest:"), *lines] if lines else []


def _spans(summary: Summary, width: int, ink: Ink) -> list[str]:
    spans = summary.spans
    names = sorted(spans.by_name.items(), key=lambda item: (-item[1].self_s, item[0]))
    rows = [
        (name, format_count(span.count), format_count(span.errors) if span.errors else "",
         format_duration(span.self_s), format_duration(span.total_s), format_duration(span.wall_s),
         _known(span.p50), _known(span.p95))
        for name, span in names[:ROWS]
    ]  # fmt: skip
    if not rows:
        return []
    title = (
        f"{ink('head', 'Spans:')} {format_count(spans.count)}, "
        f"{format_duration(spans.busy_s)} busy in {format_duration(spans.wall_s)} of wall time"
    )
    head = ("Name", "Count", "Errors", "Self", "Total", "Wall", "p50", "p95")
    return [title, *table(head, rows, width=width, ink=ink), *_more(spans.names, len(rows), "name")]


def _metrics(summary: Summary, width: int, ink: Ink) -> list[str]:
    metrics = summary.run.metrics
    rows = [
        (name, f"{stats.last:.6g}", f"{stats.min:.6g}", f"{stats.max:.6g}", format_count(stats.count))
        for name, stats in list(metrics.items())[:ROWS]
    ]
    if not rows:
        return []
    lines = table(("Name", "Last", "Min", "Max", "Values"), rows, width=width, ink=ink)
    return [ink("head", "Metrics:"), *lines, *_more(len(metrics), len(rows), "metric")]


def _resources(summary: Summary, ink: Ink) -> list[str]:
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
    if use.gpu is not None and use.gpu.memory_peak_bytes is not None:
        pairs.append(("GPU memory", f"{format_bytes(use.gpu.memory_peak_bytes)} peak on one device"))
    if use.cgroup is not None:
        if use.cgroup.throttled_s:
            held = f"{format_duration(use.cgroup.throttled_s)} by the CPU quota"
            pairs.append(("Throttled", ink("warn", held)))
        if use.cgroup.oom_kills:
            pairs.append(
                ("Out of memory", ink("bad", f"{count_text(use.cgroup.oom_kills, 'process')} killed"))
            )
    return [ink("head", "Resources:"), *facts(pairs, ink=ink)] if pairs else []


def _artifacts(summary: Summary, width: int, ink: Ink) -> list[str]:
    artifacts = summary.artifacts
    if not artifacts.count:
        return []
    rows = [
        (item.name, item.kind or "", format_bytes(item.size_bytes) if item.size_bytes is not None else "")
        for item in artifacts.listed[-FEW:]
    ]
    size = f", {format_bytes(artifacts.size_bytes)}" if artifacts.size_bytes is not None else ""
    lines = table(("Name", "Kind", "Size"), rows, width=width, ink=ink, left=("Kind",))
    title = f"{ink('head', 'Artifacts:')} {format_count(artifacts.count)}{size}"
    return [title, *lines, *_more(artifacts.count, len(rows), "artifact")]


def _recording(summary: Summary, width: int, ink: Ink) -> list[str]:
    run, found, cost = summary.run, summary.completeness, summary.overhead
    whole = found.lines + found.lost_lines
    never_closed = run.end_time is None and run.status != "running"
    if found.lost_lines:
        lost = ink("bad", f"{format_count(found.lost_lines)} lost")
        state = f"{format_count(found.lines)} of {format_count(whole)} lines, {lost}"
        state += "; the run was not closed" if never_closed else ""
    elif never_closed:
        state = f"{count_text(found.lines, 'line')} read; the run was not closed"
    elif found.problems:
        state = f"{count_text(found.lines, 'line')}, none known to be lost"
    else:
        state = f"complete: {format_count(found.lines)} of {format_count(whole)} lines"
    pairs = [("Completeness", state)]
    if cost.background_cpu_s is not None:
        # A share of next to no time says nothing.
        lasted = cost.percent is not None and run.duration_s is not None and run.duration_s >= 1
        share = f" ({format_percent((cost.percent or 0) / 100)} of one core)" if lasted else ""
        spent = f"{format_duration(cost.background_cpu_s)} of CPU in the background"
        if cost.foreground_s is not None:
            spent = f"about {format_duration(cost.foreground_s)} in the program's threads, {spent}"
        pairs.append(("Overhead", f"{spent}{share}; {format_bytes(cost.bytes)} written"))
    said = (*found.problems, *found.notes)
    shown = said[:FEW]
    remarks = [line for text in shown for line in wrap(clean(text), width, first="  - ", rest="    ")]
    more = _more(len(said), len(shown), "remark")
    return [ink("head", "Recording:"), *facts(pairs, ink=ink), *remarks, *more]
