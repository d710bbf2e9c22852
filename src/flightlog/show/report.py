"""The report of a run as text, Markdown and sections: which sections it has, and all but those on time and
cost.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flightlog.analyze.findings.cache_misses import NEW_CALL
from flightlog.analyze.findings.spans import place_of_most
from flightlog.core.text import last_line, plural
from flightlog.core.units import format_bytes, format_count, format_duration, format_percent
from flightlog.show.document import (
    Item,
    Items,
    Remarks,
    Section,
    facts,
    facts_block,
    markdown_text,
    rest_text,
    sections_text,
    table_block,
    table_section,
)
from flightlog.show.limits import TextLimits
from flightlog.show.phrases import (
    args_text,
    call_text,
    capitalized,
    error_text,
    innermost,
    known,
    known_duration,
    moment_text,
)
from flightlog.show.report_sections import (
    NO_RATE,
    all_elapsed,
    all_failures,
    all_spans,
    all_tasks,
    all_workers,
    calibration_sections,
    cost_section,
    diagnose_hint,
    link_name,
    names_table,
    slowest_table,
    spans_note,
    time_sections,
)
from flightlog.show.terminal import Ink, clean, fit, width_of

if TYPE_CHECKING:
    from flightlog.analyze.report.critical_path import PathPart
    from flightlog.analyze.report.metrics import SeriesStats
    from flightlog.analyze.report.report import Report
    from flightlog.analyze.report.resources import GpuDeviceUse, GpuUse, Load
    from flightlog.analyze.report.summary import Summary
    from flightlog.analyze.report.tasks import InFlight
    from flightlog.analyze.report.workers import JobSummary


PARTS = ("tasks", "spans", "workers", "failures")
"""Sections that can be requested in full."""


def report_text(
    report: Report,
    *,
    width: int = TextLimits.default_width,
    color: bool = False,
    parts: Collection[str] = (),
    plots: Sequence[str] = (),
) -> str:
    """The report, ending in a newline. `width` in columns; `color` adds terminal codes and nothing else.

    `plots` are lines of `show.plot.report_plots`, which stand after what stands out.
    `parts` of `PARTS` stand in full, and instead of all others. Text that the run recorded is shown, never
    interpreted: control characters are spelled out.
    """
    ink = Ink(color)
    title = fit(f"Run Report: {clean(report.run.run_id)}", width)
    rule = ink("quiet", "═" * max(width_of(title), 47))
    head = [
        rule,
        ink("title", title),
        rule,
        *facts(facts_block(_head(report, width, ink)).pairs, ink=ink, indent=""),
    ]
    sections = _sections(report, width, ink, parts)
    texts = sections_text(sections, width=width, ink=ink)
    if plots and not parts:
        first = sum(one.says_something() for one in sections[: TextLimits.report_answer_sections])
        texts.insert(first, "\n".join(plots))
    return "\n\n".join(["\n".join(head), *texts]) + "\n"


def report_markdown(report: Report, *, parts: Collection[str] = ()) -> str:
    """The same report as Markdown."""
    return markdown_text(f"Run Report: {report.run.run_id}", report_sections(report, parts=parts))


def report_sections(report: Report, *, parts: Collection[str] = ()) -> list[Section]:
    """The same sections without colours, the head first, for a page that lays them out itself."""
    ink = Ink(False)
    head = Section("Run", "", [facts_block(_head(report, TextLimits.default_width, ink))])
    return [head, *_sections(report, TextLimits.default_width, ink, parts)]


def _sections(report: Report, width: int, ink: Ink, parts: Collection[str]) -> list[Section]:
    if parts:
        whole = {
            "tasks": lambda: all_tasks(report),
            "spans": lambda: all_spans(report),
            "workers": lambda: all_workers(report, width),
            "failures": lambda: all_failures(report),
        }
        return [section for part in PARTS if part in parts for section in whole[part]()]
    line, few = wall_time_text(report), TextLimits.max_slowest_tasks
    slowest = report.tasks.slowest[:few] if report.tasks.completed > few else []
    return [
        _adopted(report),
        Section(TITLE, "", [Remarks([line] if line else [])]),
        findings_section(report),
        _tasks(report, width, ink),
        _workers(report, ink),
        _cache(report),
        cost_section(report),
        *time_sections(report, width),
        _in_flight(report),
        failures_section(report),
        jobs_section(report.jobs, running=report.run.status == "running"),
        Section("By task", "", [names_table(report, TextLimits.max_report_rows)]),
        Section("Slowest", "", [slowest_table(slowest)]),
        *calibration_sections(report, TextLimits.max_calibration_rounds),
        _spans(report),
        metrics_section(report),
        _resources(report, ink),
        _artifacts(report),
        Section("", not_recorded(report)),
        _recording(report, ink),
    ]


def not_recorded(report: Report) -> str:
    """One sentence that names what nothing was recorded of; empty where everything is there."""
    tasks, cache, cost = report.tasks, report.cache, report.cost
    there = {
        "tasks": tasks.submitted or tasks.names,
        "workers": report.workers.count,
        "cache lookups": cache.lookups or cache.bypassed,
        "cost": cost.total is not None or cost.by_item or cost.reason not in {None, NO_RATE},
        "GPU": report.resources.gpu is not None,
    }
    absent = [name for name, found in there.items() if not found]
    if not absent or absent == ["GPU"]:  # a run that is complete but for a GPU needs no remark
        return ""
    *others, last = absent
    return f"No {', '.join(others)} or {last} recorded." if others else f"No {last} recorded."


def _head(summary: Report, width: int, ink: Ink) -> list[tuple[str, str]]:
    run, found, adopted = summary.run, summary.completeness, summary.adopted
    room = max(20, width - 11)
    where = clean(run.target or run.host or "unknown")
    if run.provider:
        where += f" (provider: {clean(run.provider)})"
    elif run.target is None and run.host:
        where += " (host)"
    lost = f"{format_count(found.lost_lines)} of {format_count(found.lines + found.lost_lines)} lines"
    lost = ink("bad", f"incomplete: {lost} are lost, and missing from all numbers below")
    error = run.error if run.error and run.error not in _remarks(summary) else ""
    whence = f"from {clean(adopted.title)} ({clean(Path(adopted.source).name)})" if adopted else ""
    return [
        ("Target", where),
        ("Started", moment_text(run.start_time)),
        ("Duration", format_duration(run.duration_s)),
        ("Status", _status(summary, ink)),
        ("Record", lost if found.lost_lines else ""),
        ("Error", ink("bad", fit(clean(error), room))),
        ("Adopted", fit(whence, room)),
    ]


def _adopted(report: Report) -> Section:
    """What to know before trusting a figure of another tool."""
    found = report.adopted
    problems = [f"When it was adopted: {problem}" for problem in found.problems] if found else []
    return Section("Adopted data", "", [Remarks([*found.notes, *problems] if found else [])])


def _status(summary: Summary, ink: Ink) -> str:
    run = summary.run
    style = {"completed": "good", "running": "name"}.get(run.status, "bad")
    text = ink(style, clean(run.status))
    remarks = ", ".join(map(clean, _remarks(summary)))
    return f"{text} ({remarks})" if remarks else text


def _remarks(summary: Summary) -> list[str]:
    """The words after the status: how the run ended, or its last heartbeat."""
    run = summary.run
    how = run.signal or (f"exit code {run.exit_code}" if run.exit_code else "")
    remarks = [how] if how else []
    if run.last_seen is not None:
        remarks.append(f"last heartbeat {moment_text(run.last_seen)}")
    if run.status == "crashed" and run.end_time is None:
        from flightlog.record.array_run import TAG

        array = run.tags.get(TAG)
        if array is not None:  # between two elements nobody is there to give a sign of life
            remarks.append(f"or elements still wait in the queue: squeue --job {array}")
    return remarks


def _tasks(summary: Report, width: int, ink: Ink) -> Section:
    tasks = summary.tasks
    counts = [
        ("Submitted", tasks.submitted, ""),
        ("Completed", tasks.completed, ""),
        ("Failed", tasks.failed, "bad"),
        ("Cancelled", tasks.cancelled, "warn"),
        ("Retried", tasks.retried, "warn"),
        ("Running", tasks.running, "name"),
        ("Waiting", tasks.pending, ""),
    ]
    if not any(number for _, number, _ in counts):
        return Section("Tasks")
    pairs = [
        (label, ink(style, format_count(number)) if style and number else format_count(number))
        for label, number, style in counts
        if number or label in {"Submitted", "Completed", "Failed"}
    ]
    if not tasks.submitted:  # another tool recorded it, which knows no submissions
        pairs[0] = ("Submitted", "not recorded")
    if tasks.slowest:
        slowest = tasks.slowest[0]
        inside = ", ".join(part for part in (clean(slowest.task), args_text(slowest.args, width)) if part)
        longest = fit(f"{format_duration(slowest.duration_s)} ({inside})", max(30, width - 17))
        mean, most = format_duration(tasks.queue_s.mean), format_duration(tasks.queue_s.max)
        pairs += [
            ("Avg duration", format_duration(tasks.duration_s.mean)),
            ("Max duration", longest),
            ("Queued", f"{mean} on average, {most} at most" if tasks.queue_s.max else ""),
        ]
    elif (elapsed := all_elapsed(summary)) is not None:
        pairs += [
            ("Avg elapsed", f"{format_duration(elapsed.mean)}, waiting included"),
            ("Max elapsed", format_duration(elapsed.max)),
        ]
    return Section("Tasks", "", [facts_block(pairs)])


def _workers(summary: Summary, ink: Ink) -> Section:
    workers = summary.workers
    if not workers.count:
        return Section("Workers")
    pairs = [
        ("Peak", format_count(workers.peak)),
        ("Avg utilization", format_percent(workers.utilization)),
        ("Efficiency", format_percent(workers.efficiency)),
        ("Lost", ink("bad", format_count(workers.lost)) if workers.lost else ""),
    ]
    return Section("Workers", "", [facts_block(pairs)])


def _cache(summary: Summary) -> Section:
    cache = summary.cache
    off = f"{format_count(cache.bypassed)} (the cache was off)" if cache.bypassed else ""
    if not cache.lookups:
        return Section("Cache", f"bypassed {off}" if off else "")
    hits = f"{format_count(cache.hits)} ({format_percent(cache.hit_rate)})"
    if not cache.hits and sum(cache.miss_reasons.values()) == cache.misses:
        if cache.miss_reasons.keys() <= set(NEW_CALL) and NEW_CALL[0] in cache.miss_reasons:
            hits += " — first run, no prior cache"
        elif len(cache.miss_reasons) == 1:
            hits += f" — {clean(next(iter(cache.miss_reasons)))}"
    saved = known_duration(cache.saved_s)
    if cache.saved_s is not None and cache.saved_s < 0:
        saved = f"none: lookups took {format_duration(-cache.saved_s)} more than they saved"
    pairs = [
        ("Lookups", format_count(cache.lookups)),
        ("Hits", hits),
        ("Misses", format_count(cache.misses)),
        ("Bypassed", off),
        ("Time saved", saved),
    ]
    return Section("Cache", "", [facts_block(pairs)])


def findings_section(report: Report) -> Section:
    """The findings, the costliest first; one line for a run in which nothing stands out."""
    title = "What stands out"
    if not report.findings:
        if report.time is None or not report.time.whole.total_s:
            return Section(title)
        share = format_percent(report.time.whole.run_s / report.time.whole.total_s)
        of = "worker time" if report.time.basis == "workers" else "the wall time"
        return Section(title, f"nothing; {share} of {of} went to work that completed")
    left = len(report.findings) - TextLimits.max_findings
    more = f"and {plural(left, 'smaller finding')} (--format json has all)" if left > 0 else ""
    sentences = [capitalized(one.sentence) for one in report.findings[: TextLimits.max_findings]]
    return Section(title, "", [Remarks(sentences, more)])


TITLE = "What set the wall time"


def wall_time_text(report: Report) -> str | None:
    """What limited the run and what to try, then what the wall time consisted of and how much could be saved
    at most; None where nothing is known of it.

    `Limited most by dispatch latency, 15% of the wall time. Try giving each task several pieces of work.
    85% of the 10.0s was run_simulation, 10% waiting to start run_simulation; making run_simulation instant
    would save at most 8.5s.`
    """
    path, verdict = report.critical_path, report.verdict
    parts = [part for part in path.parts if part.seconds > 0] if path is not None else []
    advice = f"Try {verdict.advice.removesuffix('.')}." if verdict.advice else ""
    before = [verdict.failed, verdict.past and verdict.past.sentence]
    limit = ("" if any(before) else "Nothing stands out.") if verdict.kind == "none" else verdict.sentence
    first = clean(" ".join(one for one in (*before, limit, advice) if one))
    if path is None or not parts:
        return None if report.run.duration_s is None and not verdict.failed else first
    least = TextLimits.min_path_part_share
    told = [part for part in parts[: TextLimits.max_path_parts] if part.share >= least]
    so_far = " so far" if report.run.status == "running" else ""
    took = path.wall_s if report.run.duration_s is None else report.run.duration_s
    whole = f" of the {format_duration(took)}{so_far} was"
    if not told:
        longest = f"the longest was {_name(parts[0])}, {format_percent(parts[0].share)}"
        return (
            f"{first} Many short parts of the critical path made up the {format_duration(took)}{so_far}: "
            f"{longest}."
        ).lstrip()
    said = ", ".join(
        f"{format_percent(part.share)}{'' if number else whole} {_name(part)}"
        for number, part in enumerate(told)
    )
    saved = next((part for part in told if part.saves_s), None)
    if saved is not None and saved.saves_s is not None:
        said += f"; making {_name(saved)} instant would save at most {format_duration(saved.saves_s)}"
    return f"{first} {said}{_inside(report)}.".lstrip()


def _inside(report: Report) -> str:
    """`; 75% was fetch inside epoch`: where most of the time of tasks was, unless the verdict has said it."""
    path = report.critical_path
    if path is None or path.of != "tasks" or report.verdict.kind in {"data_loading", "waiting_span"}:
        return ""
    place = place_of_most(path)
    if place is None:
        return ""
    names = " inside ".join(reversed(place.names[-3:]))
    return f"; {format_percent(place.share)} was {fit(clean(names), 2 * TextLimits.max_path_name_width)}"


def _name(part: PathPart) -> str:
    """As the critical path names it, but for the program: its comma would be one of the list's."""
    name = part.name[: 4 * TextLimits.max_path_name_width]
    shown = f"the program {clean(name)}" if part.kind == "program" else link_name(part.kind, name)
    return fit(shown, TextLimits.max_path_name_width)


def _in_flight(report: Report) -> Section:
    shown = report.in_flight[: TextLimits.max_open_tasks]
    left = report.tasks.running + report.spans.open_in_flight - len(shown)
    return table_section(
        f"In flight{'' if report.run.status == 'running' else ' when the run ended'}",
        shown,
        "call Task or span, since:moment <Since, elapsed_s For, worker <Worker, usually Median, "
        "verdict <Stuck?",
        more=f"and {format_count(left)} more" if left > 0 else "",
        call=lambda one: call_text(one.name, one.args if one.kind == "task" else one.args or None),
        usually=_usual_duration,
        verdict=_verdict,
    )


def _usual_duration(one: InFlight) -> str:
    """The median duration of such tasks in this run, else in earlier ones."""
    if one.usual is None:
        return ""
    return f"{format_duration(one.usual.p50)}{' in earlier runs' if one.usual.of == 'history' else ''}"


def _verdict(one: InFlight) -> str:
    """Whether it may be stuck, and its duration as a multiple of the usual one; empty
    where that is unknown.
    """
    if not one.stuck:
        return "" if one.stuck is None else "no"
    return "yes?" if one.ratio is None else f"yes? {one.ratio:,.3g}x"


def failures_section(report: Summary, shown: int = TextLimits.max_report_rows) -> Section:
    """The most frequent causes of failures, at most this many."""
    failures = report.failures
    if not failures.count:
        return Section("Failures")
    items = []
    for group in failures.by_cause[:shown]:
        example = group.example
        cause = error_text(group.error_type or ", ".join(group.scopes), group.message)
        who = call_text(example.task, example.args) if example.task else " and ".join(group.scopes)
        where = f" on {clean(example.worker)}" if example.worker else ""
        place = innermost(example.traceback) or last_line(example.output_tail)
        below = (f"{who}{where}, {moment_text(example.timestamp)}", place)
        items.append(Item(cause, below, mark=f"{format_count(group.count)}x ", style="bad"))
    note = f"{format_count(failures.count)}, {plural(failures.groups, 'cause')}"
    more = rest_text(failures.groups - len(items), "more cause")
    return Section("Failures", note, [Items(items, more), diagnose_hint(report)])


def _spans(report: Report) -> Section:
    spans = report.spans
    names = sorted(spans.by_name.items(), key=lambda item: (-item[1].self_s, item[0]))
    return table_section(
        "Spans",
        names,
        "key Name, count Count, errors? Errors, self_s Self, total_s Total, wall_s Wall, p50:_s p50, "
        "p95:_s p95",
        limit=TextLimits.max_report_rows,
        note=spans_note(report) if names else "",
        of=spans.names,
        rest="more name",
    )


def metrics_section(report: Report, shown: int = TextLimits.max_report_rows) -> Section:
    """The metrics that the program recorded, at most this many."""
    found = report.run.metrics
    columns = "key Name, last Last, min:.6g Min, max:.6g Max, count Values"
    if any(one.nonfinite for one in found.values()):
        columns += ", nonfinite? NaN or infinite"
    return table_section("Metrics", found.items(), columns, limit=shown, rest="more metric", last=_last_value)


def _last_value(item: tuple[str, SeriesStats]) -> str:
    _, series = item
    if series.last is None:
        return {"nan": "NaN"}.get(series.last_nonfinite or "", series.last_nonfinite or "")
    return f"{series.last:.6g}"


def _resources(summary: Summary, ink: Ink) -> Section:
    use = summary.resources
    pairs: list[tuple[str, str]] = []
    if (tree := use.process) is not None:
        traffic = f"{format_bytes(tree.read_bytes)} read, {format_bytes(tree.write_bytes)} written"
        pairs += [
            ("Process CPU", _load(tree.cpu_cores, ".2f", " cores", "")),
            ("Process memory", known(tree.peak_rss_bytes, lambda peak: f"{format_bytes(peak)} peak")),
            ("Storage", traffic if tree.read_bytes or tree.write_bytes else ""),
        ]
    if (node := use.node) is not None:
        cores = known(node.cpus, lambda cpus: f" of {format_count(cpus)} cores")
        load = _load(node.cpu_percent, ".0f", "%", "%")
        of = known(node.memory_total_bytes, lambda total: f" of {format_bytes(total)}")
        pairs += [
            ("Node CPU", f"{load}{cores}" if load else ""),
            ("Node memory", known(node.memory_peak_bytes, lambda peak: f"{format_bytes(peak)} peak{of}")),
        ]
    if use.gpu is not None:
        pairs += gpu_facts(use.gpu, ink)
    if use.cgroup is not None:
        throttled, kills = use.cgroup.throttled_s, use.cgroup.oom_kills
        pairs += [
            ("Throttled", ink("warn", f"{format_duration(throttled)} by the CPU quota") if throttled else ""),
            ("Out of memory", ink("bad", f"{plural(kills, 'process')} killed") if kills else ""),
        ]
    by_host = use.energy.by_host.values() if use.energy is not None else ()
    counted = [one.processors_j for one in by_host if one.processors_j is not None]
    where = f" of {plural(len(counted), 'host')}" if len(counted) > 1 else ""
    energy = f"{energy_text(sum(counted))} by the processors{where}, all programs included" if counted else ""
    return Section("Resources", "", [facts_block([*pairs, ("Node energy", energy)])])


def _load(use: Load, digits: str, unit: str, again: str) -> str:
    """`1.24 cores mean, 2.00 max`; empty where it is unknown."""
    if use.mean is None or use.max is None:
        return ""
    return f"{use.mean:{digits}}{unit} mean, {use.max:{digits}}{again} max"


def _artifacts(summary: Summary) -> Section:
    artifacts = summary.artifacts
    if not artifacts.count:
        return Section("Artifacts")
    shown = artifacts.listed[-TextLimits.max_report_rows :]
    size = f", {format_bytes(artifacts.size_bytes)}" if artifacts.size_bytes is not None else ""
    note, columns = f"{format_count(artifacts.count)}{size}", "name Name, kind <Kind, size_bytes Size"
    return table_section("Artifacts", shown, columns, note=note, of=artifacts.count, rest="more artifact")


def _recording(summary: Report, ink: Ink) -> Section:
    run, found = summary.run, summary.completeness
    whole = format_count(found.lines + found.lost_lines)
    lines, never_closed = plural(found.lines, "line"), run.end_time is None and run.status != "running"
    if found.lost_lines:
        state = f"{format_count(found.lines)} of {whole} lines, {ink('bad', found.lost_text)}"
        state += "; the run was not closed" if never_closed else ""
    elif never_closed:
        state = f"{lines} read; the run was not closed"
    elif not found.loss_known:
        state = f"{lines}; {found.lost_text}"
    elif found.problems:
        state = f"{lines}, none known to be lost"
    else:
        state = f"complete: {format_count(found.lines)} of {whole} lines"
    said, most = (*found.problems, *found.notes), TextLimits.max_report_rows
    pairs = [("Completeness", state), ("Overhead", _overhead(summary))]
    remarks = Remarks(said[:most], rest_text(len(said) - most, "more remark"))
    return Section("Recording", "", [facts_block(pairs), remarks])


def _overhead(report: Report) -> str:
    """What recording cost; empty where it cost nothing, as adopting does."""
    cost, lasted = report.overhead, report.run.duration_s
    if not cost.writers or report.adopted is not None:
        return ""
    if cost.background_cpu_s is None:
        return "unknown: not every process recorded its overhead"
    spent = f"{format_duration(cost.background_cpu_s)} of CPU in the background"
    if cost.foreground_s is not None:
        spent = f"about {format_duration(cost.foreground_s)} in the program's threads, {spent}"
    if (
        cost.percent is not None and lasted is not None and lasted >= 1
    ):  # a share of next to no time says nothing
        spent += f" ({format_percent(cost.percent / 100)} of one core)"
    return f"{spent}; {format_bytes(cost.bytes)} written"


def jobs_section(jobs: JobSummary | None, *, running: bool = False) -> Section:
    """How the jobs ended and what they used; for a run that is over without accounting, the command that
    fetches it.
    """
    if jobs is None:
        return Section("Jobs")
    name, most = "Slurm" if jobs.scheduler == "slurm" else clean(jobs.scheduler), TextLimits.max_batch_jobs
    note = plural(jobs.count, f"{name} job")
    if jobs.states:
        note += ": " + ", ".join(f"{format_count(n)} {clean(state)}" for state, n in jobs.states.items())
    if jobs.queue_s.max:
        note += f"; {format_duration(jobs.queue_s.max)} in the queue at most"
    left = sum(jobs.states.values()) - len(jobs.jobs[:most])
    table = table_block(
        jobs.jobs[:most],
        "job Job, state <State, queue_s Queued, elapsed_s Elapsed, walltime_s Limit, cpu_s CPU time, "
        "cpus CPUs, max_rss_bytes Peak RSS, memory_bytes Memory",
        more=f"and {plural(left, 'more job')}: flightlog sql 'FROM jobs'" if left else "",
        job=lambda job: f"{job.job_id}{f' (attempt {job.attempt})' if job.attempt > 1 else ''}",
    )
    shown = ",".join([*map(clean, jobs.unaccounted[:most]), *["…"][: len(jobs.unaccounted) > most]])
    remark = f"Slurm's accounting is not imported yet: flightlog adopt --slurm {shown}"
    return Section("Jobs", note, [table, Remarks([remark] if jobs.unaccounted and not running else [])])


_REASONS = {
    "power_cap": "its power limit",
    "power_brake": "the power supply",
    "thermal_hardware": "heat",
    "thermal_software": "heat",
    "hardware_slowdown": "heat or power",
    "board_limit": "its board's limits",
    "reliability": "its voltage limit",
}


def gpu_facts(use: GpuUse, ink: Ink) -> list[tuple[str, str]]:
    """The resources of a report; unknown ones are empty."""
    load, busiest, busy = use.gpu_percent, use.each[0], ""
    if load.mean is not None and load.max is not None:
        busy = f"; busy {load.mean:.0f}% of the time, {load.max:.0f}% max"
        if use.devices > 1 and busiest.gpu_percent.mean is not None:
            busy += f"; the busiest is {_label(busiest)}: {busiest.gpu_percent.mean:.0f}%"
    of = known(use.memory_total_bytes, lambda total: f" of {format_bytes(total)}")
    by_run = known(use.process_memory_peak_bytes, lambda peak: f"; by this run {format_bytes(peak)}")
    power = (
        known(use.power_max_w, lambda watts: f"{watts:.0f} W max on one device"),
        known(use.energy_j, lambda joules: f"{energy_text(joules)} in all"),
        known(use.temperature_max_c, lambda degrees: f"{degrees:.0f} °C max"),
    )
    throttled = "; ".join(f"{_label(one)} {text}" for one in use.each if (text := _throttling_text(one)))
    errors = "; ".join(
        f"{_label(one)} {plural(one.ecc_uncorrected, 'error')}" for one in use.each if one.ecc_uncorrected
    )
    return [
        ("GPU", f"{_device_names(use)}{busy}"),
        (
            "GPU memory",
            known(use.memory_peak_bytes, lambda peak: f"{format_bytes(peak)}{of} peak on one device{by_run}"),
        ),
        ("GPU power", ", ".join(filter(None, power))),
        ("GPU throttled", ink("warn", throttled)),
        ("GPU memory errors", ink("bad", f"{errors} that could not be corrected") if errors else ""),
    ]


def _device_names(use: GpuUse) -> str:
    names = dict.fromkeys(clean(one.name) for one in use.each if one.name)
    named = ", ".join(names)
    if use.devices == 1:
        return named or "1 device"
    return f"{use.devices} devices" + (f" ({named})" if named else "")


def _label(one: GpuDeviceUse) -> str:
    return f"GPU {gpu_place(one.index, one.mig)}" + (f" on {clean(one.host)}" if one.host else "")


def gpu_place(index: int | None, mig: str | None) -> str:
    """`3`, or `3/MIG-1a2b3c4d` of an instance: its UUID up to where instances differ."""
    place = "?" if index is None else str(index)
    return place if mig is None else f"{place}/{clean(mig)[:12]}"


def _throttling_text(one: GpuDeviceUse) -> str:
    """`by its power limit in 40% of samples`."""
    causes: dict[str, float] = {}
    for reason, share in one.throttled_percent.items():
        cause = _REASONS.get(reason, reason)
        causes[cause] = max(causes.get(cause, 0.0), share)
    return ", ".join(
        f"by {cause} in {format_percent(share / 100)} of samples" for cause, share in causes.items()
    )


def energy_text(joules: float) -> str:
    """`250 J`, `12.3 Wh`."""
    return f"{joules:.0f} J" if joules < 360 else f"{joules / 3600:.1f} Wh"
