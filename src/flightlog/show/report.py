"""The report of a run as text, Markdown and sections: which sections it has, and the first of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flightlog.core.text import plural
from flightlog.core.units import format_count, format_duration, format_percent
from flightlog.show.document import FactsBlock, Remarks, Section, facts, markdown_text, sections_text
from flightlog.show.phrases import args_text, capitalized, moment_text
from flightlog.show.report_details import details
from flightlog.show.report_sections import (
    NO_RATE,
    all_elapsed,
    all_failures,
    all_spans,
    all_tasks,
    all_workers,
    cost_section,
    link_name,
    time_sections,
)
from flightlog.show.terminal import Ink, clean, fit, width_of

if TYPE_CHECKING:
    from flightlog.analyze.report.critical_path import PathPart
    from flightlog.analyze.report.report import Report
    from flightlog.analyze.report.summary import Summary

WIDTH = 100
ANSWERS = 3
"""The first sections: data quality, what set the wall time, and findings."""
PARTS = ("tasks", "spans", "workers", "failures")
"""Sections that can be requested in full."""


def report_text(
    report: Report,
    *,
    width: int = WIDTH,
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
    head = [rule, ink("title", title), rule, *facts(_head(report, width, ink), ink=ink, indent="")]
    sections = _sections(report, width, ink, parts)
    texts = sections_text(sections, width=width, ink=ink)
    if plots and not parts:
        first = sum(one.says_something() for one in sections[:ANSWERS])
        texts.insert(first, "\n".join(plots))
    return "\n\n".join(["\n".join(head), *texts]) + "\n"


def report_markdown(report: Report, *, parts: Collection[str] = ()) -> str:
    """The same report as Markdown."""
    ink = Ink(False)
    head = Section("Run", "", [FactsBlock(_head(report, WIDTH, ink))])
    sections = [head, *_sections(report, WIDTH, ink, parts)]
    return markdown_text(f"Run Report: {report.run.run_id}", sections)


def report_sections(report: Report) -> list[Section]:
    """The same sections without colours, the head first, for a page that lays them out itself."""
    ink = Ink(False)
    return [Section("Run", "", [FactsBlock(_head(report, WIDTH, ink))]), *_sections(report, WIDTH, ink, ())]


def _sections(report: Report, width: int, ink: Ink, parts: Collection[str]) -> list[Section]:
    if parts:
        whole = {
            "tasks": lambda: all_tasks(report),
            "spans": lambda: all_spans(report),
            "workers": lambda: all_workers(report, width),
            "failures": lambda: all_failures(report),
        }
        return [section for part in PARTS if part in parts for section in whole[part]()]
    *further, recording = details(report, ink)
    return [
        _adopted(report),
        wall_time_section(report),
        findings_section(report),
        _tasks(report, width, ink),
        _workers(report, ink),
        _cache(report),
        cost_section(report),
        *time_sections(report, width),
        *further,
        Section("", not_recorded(report)),
        recording,
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
    remarks = []
    if run.signal is not None:
        remarks.append(run.signal)
    elif run.exit_code:
        remarks.append(f"exit code {run.exit_code}")
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
    return Section("Tasks", "", [FactsBlock(pairs)])


def _workers(summary: Summary, ink: Ink) -> Section:
    workers = summary.workers
    if not workers.count:
        return Section("Workers")
    pairs = [
        ("Peak", format_count(workers.peak)),
        ("Avg utilization", format_percent(workers.utilization)),
        ("Efficiency", format_percent(workers.efficiency)),
    ]
    if workers.lost:
        pairs.append(("Lost", ink("bad", format_count(workers.lost))))
    return Section("Workers", "", [FactsBlock(pairs)])


def _cache(summary: Summary) -> Section:
    cache = summary.cache
    off = f"{format_count(cache.bypassed)} (the cache was off)"
    if not cache.lookups:
        return Section("Cache", f"bypassed {off}" if cache.bypassed else "")
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
    return Section("Cache", "", [FactsBlock(pairs)])


SHOWN = 4


def findings_section(report: Report) -> Section:
    """The findings, the costliest first; one line for a run in which nothing stands out."""
    title = "What stands out"
    if not report.findings:
        if report.time is None or not report.time.whole.total_s:
            return Section(title)
        share = format_percent(report.time.whole.run_s / report.time.whole.total_s)
        of = "worker time" if report.time.basis == "workers" else "the wall time"
        return Section(title, f"nothing; {share} of {of} went to work that completed")
    left = len(report.findings) - SHOWN
    more = f"and {plural(left, 'smaller finding')} (--format json has all)" if left > 0 else ""
    sentences = [capitalized(one.sentence) for one in report.findings[:SHOWN]]
    return Section(title, "", [Remarks(sentences, more)])


TITLE = "What set the wall time"
NAMED_PARTS = 3
"""So many parts of the chain are named, the longest."""
LEAST_SHARE = 0.03
"""Shorter ones are not."""
NAME = 60
"""Columns of a name."""


def wall_time_section(report: Report) -> Section:
    """The line as a section; empty without a critical path."""
    line = wall_time_text(report)
    return Section(TITLE, "", [Remarks([line] if line else [])])


def wall_time_text(report: Report) -> str | None:
    """What limited the run and what to try, then what the wall time consisted of and how much could be saved
    at most; None where nothing is known of it.

    `Limited most by dispatch latency, 15% of the workers' time. Try giving each task several pieces of work.
    85% of the 10.0s was run_simulation, 10% waiting to start run_simulation; making run_simulation instant
    would save at most 8.5s.`
    """
    path, verdict = report.critical_path, report.verdict
    parts = [part for part in path.parts if part.seconds > 0] if path is not None else []
    advice = f"Try {verdict.advice.removesuffix('.')}." if verdict.advice else ""
    limit = ("" if verdict.failed else "Nothing stands out.") if verdict.kind == "none" else verdict.sentence
    first = clean(" ".join(one for one in (verdict.failed, limit, advice) if one))
    if path is None or not parts:
        return None if report.run.duration_s is None and not verdict.failed else first
    told = [part for part in parts[:NAMED_PARTS] if part.share >= LEAST_SHARE]
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
    return f"{first} {said}.".lstrip()


def _name(part: PathPart) -> str:
    """As the critical path names it, but for the program: its comma would be one of the list's."""
    name = part.name[: 4 * NAME]
    shown = f"the program {clean(name)}" if part.kind == "program" else link_name(part.kind, name)
    return fit(shown, NAME)
