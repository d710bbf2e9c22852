"""The report of a run as an HTML page: the verdict, then the figures and sections, environment,
completeness.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from flightlog.analyze.charts.report_with_charts import report_with_charts
from flightlog.analyze.compare.runs import environment_of
from flightlog.analyze.findings.base import split_advice
from flightlog.core.errors import FlightlogError
from flightlog.core.text import plural
from flightlog.core.units import format_count, format_duration, format_percent
from flightlog.show.bounded import bounded
from flightlog.show.diagnosis import cause_parts, cause_title, rarer_causes
from flightlog.show.document import Labelled, Section, TableBlock, facts_block, table_block
from flightlog.show.figures import lines, rows, style
from flightlog.show.figures.lines import limit_note
from flightlog.show.figures.timeline import OUTSIDE, span_names, timeline_figure, timeline_notes
from flightlog.show.html import page
from flightlog.show.html.blocks import PAGE, block_of, blocks_of, table_of
from flightlog.show.html.elements import Child, Element, bounded_lines, coded, said, tag
from flightlog.show.html.page import PagePart, take_section
from flightlog.show.limits import HtmlLimits, TextLimits
from flightlog.show.phrases import args_text, capitalized, error_text, figure_text, moment_text, money_text
from flightlog.show.report import TITLE as WALL_TIME
from flightlog.show.report import (
    findings_section,
    metrics_section,
    not_recorded,
    report_sections,
    wall_time_text,
)
from flightlog.show.report_sections import TITLE as COST
from flightlog.show.report_sections import all_spans, cause_facts, names_table

if TYPE_CHECKING:
    from flightlog.analyze.charts.report_with_charts import ReportWithCharts
    from flightlog.analyze.charts.results import Chart, Curves, RunCharts, Timeline, Waits
    from flightlog.analyze.compare.runs import Facts as EnvironmentFacts
    from flightlog.analyze.diagnosis.results import Cause, RunDiagnosis
    from flightlog.analyze.failures import FailureCause
    from flightlog.analyze.report.report import Report
    from flightlog.core.stats import Distribution
    from flightlog.events import CostRates
    from flightlog.store.run import Run


_ELSEWHERE = {"", "Run", WALL_TIME, "What stands out", "By task", "Metrics", "Spans", "Failures"}
"""Sections of the report that the page has in another form."""


def report_html(
    run: Run,
    *,
    history: Mapping[str, Distribution] | None = None,
    rates: CostRates | None = None,
    ways: Mapping[str, str] | None = None,
) -> str:
    """The report of a run in any state as a page. `history` and `rates` are as for `report_on`. `ways` are
    links to other pages, addresses by title, where the page is served among others.
    """
    look = report_with_charts(run, history=history, rates=rates)
    return report_page(look, diagnosis=diagnosis_of(run, look), environment=environment_of(run), ways=ways)


def diagnosis_of(run: Run, look: ReportWithCharts) -> RunDiagnosis | None:
    """Why it failed, where anything did and the run is not too large to ask on the way."""
    from flightlog.analyze.diagnosis.diagnose import diagnose

    report = look.report
    if not report.failures.count and report.run.status in {"completed", "running"}:
        return None
    if run.size_bytes() > HtmlLimits.max_diagnosed_bytes:
        return None
    try:
        return diagnose(run)
    except FlightlogError:  # the report stands without it, and says how to ask again
        return None


def report_page(
    look: ReportWithCharts,
    *,
    diagnosis: RunDiagnosis | None = None,
    environment: EnvironmentFacts | None = None,
    plotly_js: str | None = None,
    ways: Mapping[str, str] | None = None,
) -> str:
    """The page, ending in a newline. It contains everything it needs, and its size is bounded.

    `diagnosis` has the causes of failures, `environment` the environment of the run; without them the page
    names the commands. Numbers carry `data-path` and `data-value`: their path and value in `report --format
    json`.
    """
    report, drawn = bounded(look.report), bounded(look.drawn)
    diagnosis = bounded(diagnosis)
    colors = style.colors_of(_names(report, drawn))
    named = {section.title: section for section in report_sections(report) if section.title not in _ELSEWHERE}
    cost = None if report.cost_split is None else rows.cost_figure(report.cost_split)
    paid = page.plot("cost", cost, "What the time of workers was paid for.")
    of: Literal["tasks", "spans"] = "tasks" if report.tasks.names else "spans"
    shares = [*_shares(report), *take_section(named, "Where the time went")]
    critical = [*_critical(report, colors), *take_section(named, "Critical path")]
    parts = [
        PagePart("timeline", "Timeline", timeline_plot("timeline", drawn.timeline, colors, of=of)),
        _metrics(report, drawn.metrics),
        _concurrency(drawn, named),
        PagePart("time", "Where the time went", shares),
        PagePart("load", "CPU and memory", [*_charts(drawn, _LOAD), *take_section(named, "Resources")]),
        PagePart("devices", "GPU memory", _charts(drawn, _DEVICES)),
        _durations(report, drawn, named, colors),
        PagePart("waits-part", "Queueing against running", _waits(report, drawn, colors)),
        PagePart("critical-part", "Critical path", critical),
        PagePart("spans-part", "Spans", _spans(report, colors)),
        PagePart("cache-part", "Cache", [*_charts(drawn, _CACHE), *take_section(named, "Cache")]),
        failures_part(report, diagnosis),
        PagePart("cost-part", "Cost", [*paid, *take_section(named, COST)]),
    ]
    last = [
        environment_part(report, environment),
        PagePart("recording", "Completeness", take_section(named, "Recording")),
        PagePart("absent", "", [], absent=not_recorded(report)),
    ]
    run = report.run
    title = f"{said(run.project, 60)} {said(run.run_id, 120)}"
    where = said(run.target or run.host or "an unknown host", 80)
    subtitle = f"on {where}, started {moment_text(run.start_time)}"
    verdict, parts = verdict_element(report, diagnosis), [*parts, *page.other_parts(named), *last]
    return page.page_html(title, subtitle, verdict, parts, plotly_js=plotly_js, ways=ways)


def _names(report: Report, drawn: RunCharts) -> list[str]:
    """Names in the order of their colours: those of the timeline, then tasks by the time they took, then
    spans.
    """
    timeline = drawn.timeline
    first = [*timeline.names, *span_names(timeline)] if timeline is not None else []
    rest = sorted(report.tasks.by_name.items(), key=lambda item: -item[1].duration_s.total)
    spans = sorted(report.spans.by_name.items(), key=lambda item: -item[1].self_s)
    return [*first, *(name for name, _ in rest), *(name for name, _ in spans)]


def _titled(named: dict[str, Section], title: str) -> list[Element]:
    """A section under its own small heading; nothing for an empty one."""
    content = take_section(named, title)
    return [tag("h3", said(title, 80)), *content] if content else []


def timeline_plot(
    identity: str,
    timeline: Timeline | None,
    colors: Mapping[str, str],
    *,
    of: Literal["tasks", "spans"] = "tasks",
    length_s: float | None = None,
) -> list[Element]:
    """The timeline with its caption, and the list of failures; for a run without tasks, of spans."""
    if timeline is None:
        return []
    where = "on a worker" if of == "tasks" else "of spans side by side"
    caption = "Each bar is one span, in the colour of its name."
    if timeline.cells is not None:
        caption = (
            f"Each cell is a time step {where}, in the colour of the name that took most of it; the fuller "
            "the colour, the busier it was."
        )
    elif of == "tasks" and timeline.bars is None:
        caption = "No task is drawn."
    elif of == "tasks":
        caption = (
            "Each bar is one attempt at a task, in the row of the worker that ran it and in the colour "
            "of the task's name."
        )
    if timeline.nested is not None:
        inside = "the tasks" if of == "tasks" else "the others"
        caption += f" In the thinner rows below are the spans inside {inside}."
    if timeline.outside is not None:
        caption += f" {'Those' if timeline.nested is not None else 'Spans'} {OUTSIDE} are in the last rows."
    if timeline.failures:
        caption += " Failures and retries are marked." if of == "tasks" else " Failures are marked."
    figure = timeline_figure(timeline, colors=colors, length_s=length_s, notes=False)
    notes, numbers, of_marks = timeline_notes(timeline), _marks_table(timeline), "Failures and retries"
    return page.plot(identity, figure, caption, notes=notes, numbers=numbers, numbers_of=of_marks)


def _marks_table(timeline: Timeline) -> TableBlock | None:
    """When and where tasks failed or were retried, the first ones."""
    left = timeline.failures - len(timeline.marks[: HtmlLimits.max_marks])
    table = table_block(
        sorted(timeline.marks, key=lambda mark: mark.at_s),
        "task Task, at_s After, kind <What, where <Where, text <Error",
        limit=HtmlLimits.max_marks,
        more=f"and {left:,} more failures and retries" if left > 0 else "",
        where=lambda mark: timeline.lanes[mark.lane].label,
    )
    return table if table.rows else None


def _metrics(report: Report, found: Curves | None) -> PagePart:
    """A curve for each metric, and all of them in a table."""
    drawn = found.curves if found is not None else []
    length_s, since = (found.length_s, found.since) if found is not None else (0.0, None)
    curves = [
        page.plot(
            f"metric-{number}",
            lines.curve_figure(curve, length_s=length_s, since=since, notes=False),
            "By the steps it was recorded with." if curve.by == "step" else "Over the time of the run.",
            notes=lines.curve_notes(curve),
            title=said(curve.name, 80) or "(no name)",
        )
        for number, curve in enumerate(drawn, 1)
    ]
    content: list[Element] = [tag("div", curves, class_="pair")] if any(curves) else []
    if found is not None:
        content += [tag("p", said(note), class_="note") for note in found.notes]
    content += blocks_of(metrics_section(report, HtmlLimits.max_names))
    return PagePart("metrics", "Metrics", content)


_LOAD = {
    "worker_cpu": ("CPU by worker", "Cores used by each worker's processes."),
    "worker_memory": ("Memory by worker", "Memory used by each worker's processes."),
    "host_cpu": ("CPU by host", "Share of all cores of each host in use, by anyone."),
    "host_memory": ("Memory by host", "Memory in use on each host, by anyone."),
}
_DEVICES = {
    "device_memory": ("", "Memory in use on the GPU of each rank, or on each device."),
    "device_use": ("GPU use", "How busy each GPU was."),
}
_CACHE = {"cache": ("", "Lookups that found a result and lookups that did not, over the time of the run.")}
"""Charts of a run by name, with their titles and captions."""


def _charts(drawn: RunCharts, charts: Mapping[str, tuple[str, str]]) -> list[Element]:
    return [
        element
        for name, (title, caption) in charts.items()
        for element in _chart(name, getattr(drawn, name), caption, title)
    ]


def _chart(identity: str, chart: Chart | None, caption: str, title: str = "") -> list[Element]:
    """A chart with its caption, which names the owner of a single line."""
    if chart is None:
        return []
    if chart.unit != "count" and len(chart.series) == 1:  # which has no legend
        caption += f" The line is {said(chart.series[0].label, 80)}."
    notes = [*chart.notes, *filter(None, [limit_note(chart)])]
    rows = []
    for series in chart.series:
        known = [value for value in series.value if value is not None]
        values = (*((min(known), max(known), known[-1]) if known else [None] * 3), series.limit)
        rows.append((series.label, *("" if v is None else style.value_text(v, chart.unit) for v in values)))
    numbers = TableBlock(("Line", "Least", "Most", "Last", "Limit"), rows)
    figure, of = lines.chart_figure(chart, notes=False), "Each line of the figure"
    return page.plot(identity, figure, caption, notes=notes, numbers=numbers, numbers_of=of, title=title)


def _concurrency(drawn: RunCharts, named: dict[str, Section]) -> PagePart:
    """Tasks that run and workers beside each other; those that wait apart, for they may be thousands."""
    content: list[Element] = []
    if drawn.concurrency is not None:
        at_work, waiting = (
            replace(
                drawn.concurrency,
                series=[one for one in drawn.concurrency.series if (one.label == "waiting") is apart],
            )
            for apart in (False, True)
        )
        caption = "Running tasks and available workers over the time of the run."
        content += _chart("concurrency", at_work, caption)
        if any(value for one in waiting.series for value in one.value):
            caption = "How many tasks were submitted and not started."
            content += _chart("waiting", waiting, caption, "Waiting tasks")
    content += [*_titled(named, "Tasks"), *_titled(named, "Workers")]
    return PagePart("concurrency-part", "Concurrency and utilization", content)


def _shares(report: Report) -> list[Element]:
    if report.time is None:
        return []
    caption = "The time of all workers from launch to removal, every moment of every worker counted once."
    if report.time.basis == "wall":
        caption = "The wall time of the run, split; no worker is known."
    return page.plot("shares", rows.shares_figure(report.time), caption)


def _durations(
    report: Report, drawn: RunCharts, named: dict[str, Section], colors: Mapping[str, str]
) -> PagePart:
    caption = "How long tasks of each name executed, queueing left out, on a logarithmic axis."
    if not report.tasks.names:
        caption = "How long spans of each name took, on a logarithmic axis."
    figure = rows.durations_figure(drawn.durations, colors=colors)
    table = table_of(names_table(report, HtmlLimits.max_names)) if report.tasks.by_name else ()
    numbers = table_block(
        drawn.durations,
        "name Name, count Count, least_s Least, p25_s p25, median_s Median, p75_s p75, p95_s p95, "
        "most_s Most, total_s Total",
    )
    content = [
        *page.plot("durations", figure, caption, numbers=numbers, numbers_of="Durations by name"),
        *table,
        *_titled(named, "Slowest"),
    ]
    return PagePart("durations-part", "Durations", content)


def _waits(report: Report, drawn: RunCharts, colors: Mapping[str, str]) -> list[Element]:
    waits = drawn.waits
    if waits is None:
        return []
    shown = "Each point is an attempt" if waits.queue_s else "Each cell counts attempts"
    caption = f"{shown}: how long it waited to start against how long it then ran. {_longer(waits)}"
    figure = lines.waits_figure(waits, colors=colors, notes=False)
    of = [("Queueing", report.tasks.queue_s), ("Running", report.tasks.duration_s)]
    numbers = table_block(
        [item for item in of if item[1].count],
        "key What, count Count, mean:_s! Mean, p50:_s! p50, p95:_s! p95, max:_s! Max",
    )
    of_both = "Queueing and running"
    return page.plot("waits", figure, caption, notes=waits.notes, numbers=numbers, numbers_of=of_both)


def _longer(waits: Waits) -> str:
    """Which attempts waited longer than they ran; the diagonal may lie outside the figure."""
    pairs = [*zip(waits.queue_s, waits.run_s, strict=True)]
    if pairs and all(queue > run for queue, run in pairs):
        return "All of them waited longer than they ran."
    if pairs and all(queue < run for queue, run in pairs):
        return "None waited longer than it ran."
    return "Above the dashed line it waited longer than it ran."


def _critical(report: Report, colors: Mapping[str, str]) -> list[Element]:
    path = report.critical_path
    if path is None:
        return []
    caption = (
        f"The chain of {path.of} from the start of the run to its end in which each segment waited for "
        "the one before: only what is on it can shorten the run."
    )
    return page.plot("critical", rows.critical_figure(path, colors=colors), caption)


def _spans(report: Report, colors: Mapping[str, str]) -> list[Element]:
    tree = report.details.span_tree if report.details is not None else None
    if tree is None or not tree.nodes:
        return []
    caption = (
        "Spans by name, inside what they ran in; the width is the time of a span and of everything inside it."
    )
    [section, *_] = all_spans(report)
    numbers = tag("details", tag("summary", "Numbers"), blocks_of(section))
    return [*page.plot("spans", rows.spans_figure(tree, colors=colors), caption), numbers]


_LISTS = {"package": "Packages", "variable": "Variables", "function": "Functions", "image": "Images"}


def environment_part(report: Report, around: EnvironmentFacts | None) -> PagePart:
    """The facts of the run, then what else was around it, where that was recorded."""
    run = report.run
    commit = f"{run.git_commit}{', with changes' if run.git_dirty else ''}" if run.git_commit else ""
    pairs = [
        ("Host", run.host),
        ("Command", " ".join(run.command)),
        ("Folder", run.cwd or ""),
        ("Python", run.python or ""),
        ("Git commit", commit),
        ("Tags", args_text(run.tags, 600)),
        ("Target", run.target or ""),
        ("Provider", run.provider or ""),
        ("Manifest", run.manifest_hash or ""),
        ("Flightlog", run.flightlog_version or ""),
    ]
    around = around or {}
    pairs += [(capitalized(name), value) for (what, name), value in around.items() if what == "machine"]
    pairs.append(("Git branch", around.get(("git", "branch"), "")))
    content = [*block_of(facts_block(pairs))]
    for what, title in _LISTS.items():
        content += _list(title, [(name, value) for (kind, name), value in around.items() if kind == what])
    return PagePart("environment", "Environment", content)


def _list(title: str, rows: list[tuple[str, str]]) -> list[Element]:
    if not rows:
        return []
    block = TableBlock(("Name", "Value"), sorted(rows), left=("Value",))
    table = table_of(block, title, limits=PAGE._replace(rows=HtmlLimits.max_list_rows))
    summary = tag("summary", f"{title}: {plural(len(rows), 'entry', 'entries')}")
    return [tag("details", summary, table, class_="list")]


def failures_part(report: Report, diagnosis: RunDiagnosis | None) -> PagePart:
    """Why tasks failed, then what failed; one line where nothing did."""
    failures = report.failures
    causes = report.details.failures if report.details is not None else []
    if not failures.count and not (diagnosis is not None and diagnosis.causes):
        return PagePart("failures", "Failures", [tag("p", "None.")])
    count = page.number("failures.count", failures.count, format_count(failures.count))
    content = [tag("p", count, f" in all, of {plural(failures.groups, 'cause')}.", class_="note")]
    if diagnosis is not None and diagnosis.causes:
        content.append(tag("p", coded(diagnosis.answer, 1000)))
        content += [
            tag("div", tag("h3", cause_heading(cause)), block_of(cause_block(cause)), class_="cause")
            for cause in diagnosis.causes[: TextLimits.max_causes]
        ]
        if left := rarer_causes(diagnosis):
            content.append(tag("p", f"… and {plural(left, 'rarer cause')}", class_="more"))
    else:
        command = tag("code", said(f"flightlog diagnose {report.run.run_id}", 2000), class_="command")
        content.append(tag("p", "To find out why: ", command))
    if causes:
        content += [tag("h3", "What failed"), *map(_group, causes[: HtmlLimits.max_failures])]
        left = failures.groups - min(len(causes), HtmlLimits.max_failures)
        if left > 0:
            content.append(tag("p", f"… and {plural(left, 'more cause')}", class_="more"))
    return PagePart("failures", "Failures", content)


def cause_block(cause: Cause) -> Labelled:
    """All that is known of a cause, by label; commands as code."""
    return Labelled(
        [
            (capitalized(label), [f"`{text}`" if label == "check" else text for text in texts if text])
            for label, texts in cause_parts(cause)
        ]
    )


def _group(cause: FailureCause) -> Element:
    message = said(error_text(cause.error_type or "failure", cause.message), 300)
    summary = tag("summary", tag("span", f"{format_count(cause.count)}x {message}", class_="bad"))
    traceback = tag("pre", bounded_lines(cause.traceback), tabindex="0") if cause.traceback else None
    without = tag("p", "No traceback was recorded.", class_="note")
    return tag("details", summary, block_of(cause_facts(cause)), traceback or without)


def _headline(report: Report) -> tuple[str, str]:
    """The class of the verdict's colour, and how the run ended: the status, the time, and failed tasks."""
    run, failed = report.run, report.tasks.failed
    took = format_duration(run.duration_s) if run.duration_s is not None else "an unknown time"
    headline, style = {
        "completed": (f"Completed in {took}", "good"),
        "running": (f"Running, for {took} so far", "plain"),
    }.get(run.status, (f"{said(run.status, 40).capitalize()} after {took}", "warn"))
    style = "bad" if run.status in {"failed", "interrupted", "crashed"} else style
    if failed:
        return ("warn" if style == "good" else style), f"{headline}, with {plural(failed, 'failed task')}"
    return style, headline


def _lead(report: Report) -> str:
    """What became of the tasks."""
    run, tasks = report.run, report.tasks
    parts = []
    if tasks.submitted or tasks.completed:
        of = f"{format_count(tasks.completed)} of " if tasks.submitted else ""
        parts.append(f"{of}{plural(tasks.submitted or tasks.completed, 'task')} completed")
        others = {"failed": "failed", "cancelled": "cancelled", "running": "in flight", "pending": "waiting"}
        numbers = ((getattr(tasks, field), word) for field, word in others.items())
        parts += [f"{format_count(number)} {word}" for number, word in numbers if number]
        if tasks.retried:
            parts.append(f"{plural(tasks.retried, 'attempt')} retried")
    elif report.spans.count:
        parts.append(f"no tasks, {plural(report.spans.count, 'span')}")
    said_ = capitalized(", ".join(parts)) + "." if parts else "No task was recorded."
    if run.last_seen is not None:
        said_ += f" Last heartbeat {moment_text(run.last_seen)}."
    return said_


def verdict_element(report: Report, diagnosis: RunDiagnosis | None) -> Element:
    """The first part of the page."""
    line = wall_time_text(report)
    return page.verdict_section(
        *_headline(report),
        tag("p", _lead(report), class_="lead"),
        tag("p", tag("strong", f"{WALL_TIME}: "), coded(line)) if line else None,
        tag("p", said(report.run.error, 600), class_="bad") if report.run.error else None,
        tag("dl", _tiles(report), class_="tiles"),
        page.advice_list(_failed(diagnosis), ("What went wrong", "What to do")),
        page.advice_list(_limited(report), ("What limited it", "What to do")),
    )


def _tiles(report: Report) -> list[Element]:
    """The key figures there are: label, path in the report's JSON, and a word below it."""
    tasks, cache, cost, mean = report.tasks, report.cache, report.cost, report.tasks.duration_s.mean
    process, gpu = report.resources.process, report.resources.gpu
    has_memory = process is not None and process.peak_rss_bytes is not None
    has_gpu_memory = gpu is not None and gpu.memory_peak_bytes is not None
    adopted = tasks.names and not tasks.submitted  # another tool recorded it, which knows no submissions
    hits = f"{format_count(cache.hits)} of {format_count(cache.lookups)}"
    average = f"{format_duration(mean)} on average" if mean is not None else ""
    ended = report.run.signal or (f"exit code {report.run.exit_code}" if report.run.exit_code else "")
    tiles = [
        ("Status", "run.status", said(ended, 40), True),
        ("Wall time", "run.duration_s", "", True),
        ("Tasks submitted", "tasks.submitted", "", True),
        ("Completed", "tasks.completed", average, True),
        ("Failed", "tasks.failed", "for good" if tasks.failed else "", True),
        ("Spans", "spans.count", "", report.spans.count and not tasks.names),
        ("Retried", "tasks.retried", "attempts", tasks.retried),
        ("Workers", "workers.peak", "at most", report.workers.count),
        ("Utilization", "workers.utilization", "of worker time", report.workers.count),
        ("Cache hits", "cache.hit_rate", hits, cache.lookups),
        ("Peak memory", "resources.process.peak_rss_bytes", "of its processes", has_memory),
        ("Peak GPU memory", "resources.gpu.memory_peak_bytes", "on one device", has_gpu_memory),
        ("Estimated cost", "cost.total", "at least" if cost.at_least else "", cost.total is not None),
    ]
    found = []
    for label, path, below, shown in tiles:
        if shown:
            value = attrgetter(path)(report)
            unknown = path == "tasks.submitted" and adopted
            text = "not recorded" if unknown else _tile_text(path, value, cost.currency)
            found.append(page.tile(label, page.number(path, value, said(text, 60)), below))
    return found


def _tile_text(path: str, value: Any, currency: str | None) -> str:
    """A value of the report in words; how follows from its path."""
    if path == "cost.total":
        return money_text(value, currency or "USD")
    if path in {"workers.utilization", "cache.hit_rate"}:
        return format_percent(value)
    return "unknown" if value is None else said(figure_text(path, value), 40)


def _failed(diagnosis: RunDiagnosis | None) -> list[tuple[Child, Child]]:
    """The causes that explain most, with the first remedies of each."""
    if diagnosis is None:
        return []
    return [
        (
            tag("p", cause_heading(cause)),
            [tag("p", coded(capitalized(text), 600)) for text in cause.suggestions[:2] or cause.missing[:1]],
        )
        for cause in diagnosis.causes[: HtmlLimits.max_causes_in_verdict]
    ]


def cause_heading(cause: Cause) -> list[Child]:
    """What went wrong, and how sure that is."""
    style = "warn" if cause.failure_class == "unknown" else "bad"
    name, _, headline = cause_title(cause).partition(": ")
    sure = said(capitalized(name.replace("_", " ")), 200)
    return [tag("strong", f"{sure}: ", class_=style), *coded(headline, 600)]


def _limited(report: Report) -> list[tuple[Child, Child]]:
    """What took the most time beside the work itself; that nothing did, where nothing did."""
    found = [split_advice(one.sentence) for one in report.findings[: HtmlLimits.max_findings_in_verdict]]
    note = findings_section(report).note
    if not found and note:
        return [(tag("p", f"Nothing stands out: {said(note.partition('; ')[2])}."), None)]
    return [
        (
            tag("p", coded(f"{capitalized(what).rstrip('.')}.", 1000)),
            tag("p", coded(f"Try {advice}", 600)) if advice else None,
        )
        for what, advice in found
    ]
