"""The report of a run as text: what a person wants to know first, then whatever else there is to say."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flightlog.show.cost import cost_section
from flightlog.show.details import details
from flightlog.show.document import Facts, Remarks, Section, section_text
from flightlog.show.findings import findings_section
from flightlog.show.markdown import markdown_text
from flightlog.show.phrases import args_text, moment_text
from flightlog.show.sections import all_elapsed, all_failures, all_spans, all_tasks, all_workers
from flightlog.show.table import facts
from flightlog.show.terminal import Ink, clean, fit, width_of
from flightlog.show.time import time_sections
from flightlog.show.wall_time import wall_time_section
from flightlog.units import format_count, format_duration, format_percent

if TYPE_CHECKING:
    from flightlog.analyze.report import Report
    from flightlog.analyze.summary import Summary

WIDTH = 100
ANSWERS = 3
"""The first sections say what to know of the data, what set the wall time, and what stands out."""
PARTS = ("tasks", "spans", "workers", "failures")
"""Sections that can be asked for in full."""


def report_text(
    report: Report,
    *,
    width: int = WIDTH,
    color: bool = False,
    parts: Collection[str] = (),
    plots: Sequence[str] = (),
) -> str:
    """The report, ending in a newline. `width` in columns; `color` adds terminal codes and nothing else.

    `plots` are lines of `show.report_plots`, which stand after what stands out.
    `parts` of `PARTS` stand in full, and instead of all others. Text that the run recorded is shown, never
    interpreted: control characters are spelled out.
    """
    ink = Ink(color)
    title = fit(f"Run Report: {clean(report.run.run_id)}", width)
    rule = ink("quiet", "═" * max(width_of(title), 47))
    head = [rule, ink("title", title), rule, *facts(_head(report, width, ink), ink=ink, indent="")]
    sections = _sections(report, width, ink, parts)
    texts = [section_text(one, width=width, ink=ink) for one in sections if one.says_something()]
    if plots and not parts:
        first = sum(one.says_something() for one in sections[:ANSWERS])
        texts.insert(first, "\n".join(plots))
    return "\n\n".join(["\n".join(head), *texts]) + "\n"


def report_markdown(report: Report, *, parts: Collection[str] = ()) -> str:
    """The same report as Markdown."""
    ink = Ink(False)
    head = Section("Run", "", [Facts(_head(report, WIDTH, ink))])
    sections = [head, *_sections(report, WIDTH, ink, parts)]
    return markdown_text(f"Run Report: {report.run.run_id}", sections)


def report_sections(report: Report) -> list[Section]:
    """The same sections without colours, the head first, for a page that lays them out itself."""
    ink = Ink(False)
    return [Section("Run", "", [Facts(_head(report, WIDTH, ink))]), *_sections(report, WIDTH, ink, ())]


def _sections(report: Report, width: int, ink: Ink, parts: Collection[str]) -> list[Section]:
    if parts:
        whole = {
            "tasks": lambda: all_tasks(report),
            "spans": lambda: all_spans(report),
            "workers": lambda: all_workers(report, width),
            "failures": lambda: all_failures(report),
        }
        return [section for part in PARTS if part in parts for section in whole[part]()]
    return [
        _adopted(report),
        wall_time_section(report),
        findings_section(report),
        _tasks(report, width, ink),
        _workers(report, ink),
        _cache(report),
        cost_section(report),
        *time_sections(report, width),
        *details(report, ink),
    ]


def _head(summary: Report, width: int, ink: Ink) -> list[tuple[str, str]]:
    run = summary.run
    where = clean(run.target or run.host or "unknown")
    if run.provider:
        where += f" (provider: {clean(run.provider)})"
    elif run.target is None and run.host:
        where += " (host)"
    pairs = [
        ("Target", where),
        ("Started", moment_text(run.start_time)),
        ("Duration", format_duration(run.duration_s)),
        ("Status", _status(summary, ink)),
    ]
    found = summary.completeness
    if found.lost_lines:
        of = f"{format_count(found.lost_lines)} of {format_count(found.lines + found.lost_lines)} lines"
        pairs.append(("Record", ink("bad", f"incomplete: {of} are lost, and no figure below has them")))
    if run.error and run.error not in _remarks(summary):
        pairs.append(("Error", ink("bad", fit(clean(run.error), max(20, width - 11)))))
    if summary.adopted is not None:
        whence = f"{clean(summary.adopted.title)} ({clean(Path(summary.adopted.source).name)})"
        pairs.append(("Adopted", fit(f"from {whence}", max(20, width - 11))))
    return pairs


def _adopted(report: Report) -> Section:
    """What to know before trusting a figure of another tool."""
    if report.adopted is None:
        return Section("Adopted data")
    skipped = report.adopted.problems
    sentences = [*report.adopted.notes, *(f"When it was adopted: {problem}" for problem in skipped)]
    return Section("Adopted data", "", [Remarks([clean(one) for one in sentences])] if sentences else [])


def _status(summary: Summary, ink: Ink) -> str:
    run = summary.run
    style = {"completed": "good", "running": "name"}.get(run.status, "bad")
    text = ink(style, clean(run.status))
    remarks = ", ".join(map(clean, _remarks(summary)))
    return f"{text} ({remarks})" if remarks else text


def _remarks(summary: Summary) -> list[str]:
    """What stands next to the status: how the run ended, or when it was last heard of."""
    run = summary.run
    remarks = []
    if run.signal is not None:
        remarks.append(run.signal)
    elif run.exit_code:
        remarks.append(f"exit code {run.exit_code}")
    if run.last_seen is not None:
        remarks.append(f"last heard of {moment_text(run.last_seen)}")
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
        return Section("Tasks", "none")
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
        pairs += [("Avg duration", format_duration(tasks.duration_s.mean)), ("Max duration", longest)]
        if tasks.queue_s.max:
            waited = (
                f"{format_duration(tasks.queue_s.mean)} on average, "
                f"{format_duration(tasks.queue_s.max)} at most"
            )
            pairs.append(("Queued", waited))
    elif (elapsed := all_elapsed(summary)) is not None:
        pairs += [
            ("Avg elapsed", f"{format_duration(elapsed.mean)}, waiting included"),
            ("Max elapsed", format_duration(elapsed.max)),
        ]
    return Section("Tasks", "", [Facts(pairs)])


def _workers(summary: Summary, ink: Ink) -> Section:
    workers = summary.workers
    if not workers.count:
        return Section("Workers", "none known")
    pairs = [
        ("Peak", format_count(workers.peak)),
        ("Avg utilization", format_percent(workers.utilization)),
        ("Efficiency", format_percent(workers.efficiency)),
    ]
    if workers.lost:
        pairs.append(("Lost", ink("bad", format_count(workers.lost))))
    return Section("Workers", "", [Facts(pairs)])


def _cache(summary: Summary) -> Section:
    cache = summary.cache
    off = f"{format_count(cache.bypassed)} (the cache was off)"
    if not cache.lookups:
        return Section("Cache", f"bypassed {off}" if cache.bypassed else "no lookups")
    hits = f"{format_count(cache.hits)} ({format_percent(cache.hit_rate)})"
    if not cache.hits and len(cache.miss_reasons) == 1:
        [(reason, number)] = cache.miss_reasons.items()
        if number == cache.misses:
            hits += f" — {clean(reason)}"
    pairs = [("Lookups", format_count(cache.lookups)), ("Hits", hits), ("Misses", format_count(cache.misses))]
    if cache.bypassed:
        pairs.append(("Bypassed", off))
    if cache.saved_s is not None:
        more = f"none: lookups took {format_duration(-cache.saved_s)} more than they saved"
        pairs.append(("Time saved", more if cache.saved_s < 0 else format_duration(cache.saved_s)))
    return Section("Cache", "", [Facts(pairs)])
