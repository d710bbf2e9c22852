"""A run in a notebook: the verdict in a line, what stands out, the counts, the task names, and the report to
unfold.

Small runs are reported on in full. A run of more than `LARGE_BYTES` is shown by the summary that was kept of
it, or by its own counts, at once: its report may take seconds, and is asked for by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flightlog.analyze.report.summary_cache import cached_summary
from flightlog.core.text import first_line, plural
from flightlog.core.units import format_bytes, format_count, format_duration, format_percent
from flightlog.notebook.elements import (
    BAD,
    GOOD,
    NEW,
    QUIET,
    WARN,
    BarPart,
    badge,
    bar,
    folded,
    fragment,
    headline,
    pre,
    prose,
    quiet,
    sections_html,
    sentences,
    table,
    text,
    title,
)
from flightlog.show.bounded import bounded
from flightlog.show.comparison import answer_text, comparison_text, percent_text, ratio_text, signed_duration
from flightlog.show.diagnosis import diagnosis_text
from flightlog.show.document import TableBlock
from flightlog.show.phrases import capitalized, known_duration, moment_text
from flightlog.show.report import report_sections
from flightlog.show.report_sections import names_table
from flightlog.show.trends import trend_text
from flightlog.store.tables.attempts import LARGE_BYTES

if TYPE_CHECKING:
    from flightlog.analyze.compare.results import Comparison
    from flightlog.analyze.diagnosis.results import RunDiagnosis
    from flightlog.analyze.history.trends import Trend
    from flightlog.analyze.report.report import Report
    from flightlog.analyze.report.summary import Summary
    from flightlog.record.run import LiveRun
    from flightlog.store.run import Run

NAMES, FINDINGS, CAUSES = 8, 4, 3


class CountsOnly(NamedTuple):
    """A large run without a cached summary: only its own counts are known."""

    run: Run


def read_run(run: Run, *, large_bytes: int = LARGE_BYTES) -> Report | Summary | CountsOnly:
    """The display of a run as it is now, even while it is being recorded."""
    from flightlog.store.run import Run as Opened

    run = Opened(run.path, observer=run.observer)  # what was opened an hour ago may have ended since
    if run.size_bytes() <= large_bytes:
        from flightlog.analyze.report.report import report_on

        return report_on(run)
    kept = cached_summary(run)
    return CountsOnly(run) if kept is None else kept


def read_recording(run: LiveRun) -> Report | Summary | CountsOnly:
    """The same of the run that is being recorded here, by what has reached its files: at most a second
    ago.
    """
    from flightlog.store.run import Run as Opened

    return read_run(Opened(run.path))


def read_html(read: Report | Summary | CountsOnly) -> str:
    """A run as HTML."""
    from flightlog.analyze.report.report import Report as Whole

    if isinstance(read, CountsOnly):
        return _by_its_counts(read.run)
    return report_html(read) if isinstance(read, Whole) else summary_html(read)


def report_html(report: Report) -> str:
    """The report: its answer, and all of it to unfold."""
    report = bounded(report)
    said, more = finding_words(report)
    names = names_table(report, NAMES)
    return fragment(
        _verdict(report),
        title("What stands out") + sentences(said, more, prose) if said else "",
        _counts(report),
        _failures(report),
        table(names.head, names.rows, names.left, names.more) if names.rows else "",
        folded("The whole report", sections_html(report_sections(report))),
        _foot(report),
    )


def summary_html(summary: Summary) -> str:
    """The summary: what there is to say without working out where the time went."""
    summary = bounded(summary)
    names = summary_names(summary)
    return fragment(
        _verdict(summary),
        _counts(summary),
        _failures(summary),
        table(names.head, names.rows, more=names.more) if names.rows else "",
        quiet("Findings are computed by <code>%flightlog report</code> or <code>flightlog report</code>."),
        _foot(summary),
    )


def verdict_words(summary: Summary) -> list[str]:
    """Status, project, counts, duration and problems of a run; the status first."""
    from flightlog.analyze.report.report import Report as Whole

    run, tasks = summary.run, summary.tasks
    words = [run.status, run.project]
    if tasks.submitted or tasks.completed:
        words.append(plural(max(tasks.submitted, tasks.completed), "task"))
    words.append(f"{'for' if run.status == 'running' else 'in'} {format_duration(run.duration_s)}")
    if tasks.failed:
        words.append(f"{format_count(tasks.failed)} failed")
    limit = _limit(summary) if isinstance(summary, Whole) else ""
    return [*words, limit] if limit else words


def _verdict(summary: Summary) -> str:
    run, failed = summary.run, summary.tasks.failed
    status, *words = verdict_words(summary)
    red = f"{format_count(failed)} failed" if failed else None
    said = [f'<span style="color:{BAD}">{word}</span>' if word == red else text(word, 120) for word in words]
    error = quiet(text(run.error, 300)) if run.error else ""
    return headline(" · ".join([badge(status), *said])) + error


def finding_words(report: Report) -> tuple[list[str], str]:
    """The findings in sentences, and how many more there are."""
    found = report.findings
    said = [capitalized(one.sentence) for one in found[:FINDINGS]]
    left = len(found) - FINDINGS
    return said, f"and {plural(left, 'smaller finding')}" if left > 0 else ""


def _limit(report: Report) -> str:
    time = report.time
    if report.findings or report.run.status != "completed" or time is None or not time.whole.total_s:
        return ""
    # As between the cells of a notebook: nothing to be proud of.
    if time.whole.run_s < time.whole.total_s / 2:
        return "nothing stands out"
    of = "worker time" if time.basis == "workers" else "the wall time"
    return (
        f"nothing stands out: {format_percent(time.whole.run_s / time.whole.total_s)} of {of} was work "
        "that completed"
    )


def _counts(summary: Summary) -> str:
    return bar(count_parts(summary))


def count_parts(summary: Summary) -> list[BarPart]:
    """How many tasks ended how."""
    tasks = summary.tasks
    at_end = "" if summary.run.status == "running" else " at the end"
    parts = (
        ("completed", tasks.completed, GOOD),
        ("failed", tasks.failed, BAD),
        ("cancelled", tasks.cancelled, WARN),
        (f"running{at_end}", tasks.running, NEW),
        (f"waiting{at_end}", tasks.pending, QUIET),
    )
    return [BarPart(f"{format_count(number)} {word}", number, color) for word, number, color in parts]


def _failures(summary: Summary) -> str:
    said, more = failure_words(summary)
    return title("Failures") + sentences(said, more) if said else ""


def failure_words(summary: Summary) -> tuple[list[str], str]:
    """The most frequent causes, and how many more there are."""
    found = summary.failures
    said = [
        f"{format_count(one.count)} x "
        + ": ".join(
            filter(None, ((one.error_type or "failed")[:100], first_line((one.message or "")[:2000])))
        )
        for one in found.by_cause[:CAUSES]
    ]
    return said, f"and {plural(found.groups - CAUSES, 'more cause')}" if found.groups > CAUSES else ""


def summary_names(summary: Summary) -> TableBlock:
    """The task names, the one with the most execution time first."""
    tasks = summary.tasks
    names = sorted(tasks.by_name.items(), key=lambda item: (-item[1].duration_s.total, item[0]))[:NAMES]
    rows = [
        (
            name,
            format_count(one.completed),
            format_count(one.failed) if one.failed else "",
            known_duration(one.duration_s.mean),
            known_duration(one.duration_s.p95),
            known_duration(one.duration_s.max),
            "" if one.peak_rss_bytes is None else format_bytes(one.peak_rss_bytes),
        )
        for name, one in names
    ]
    more = f"and {plural(tasks.names - len(rows), 'more name')}" if tasks.names > len(rows) else ""
    return TableBlock(("Name", "Done", "Failed", "Mean", "p95", "Max", "Peak RSS"), rows, more=more)


def counted_words(run: Run) -> tuple[list[str], list[BarPart]]:
    """The run's own counts: as `verdict_words`, and how many tasks ended how.

    For a killed run these are the last ones recorded: its streams are not read.
    """
    info = run.info
    running = run.status == "running"
    told = running or info.end_time is not None
    least = "" if told else "at least "
    words = [run.status, info.project]
    tasks = max(info.tasks_submitted, info.tasks_completed)
    if tasks:
        words.append(f"{least}{plural(tasks, 'task')}")
    took = run.ending().duration_s if told else info.duration_s
    if told or took is not None:
        words.append(f"{'for' if running else 'in'} {least}{format_duration(took)}")
    left = max(0, info.tasks_submitted - info.tasks_completed - info.tasks_failed) if told else 0
    parts = [
        BarPart(f"{least}{format_count(info.tasks_completed)} completed", info.tasks_completed, GOOD),
        BarPart(f"{least}{format_count(info.tasks_failed)} failed", info.tasks_failed, BAD),
        BarPart(f"{format_count(left)} cancelled, running or waiting", left, QUIET),
    ]
    return words, parts


def _by_its_counts(run: Run) -> str:
    (status, *said), parts = counted_words(run)
    info = run.info
    return fragment(
        headline(" · ".join([badge(status), *map(text, said)])),
        bar(parts),
        quiet(
            f"{format_bytes(run.size_bytes())} were recorded: <code>%flightlog report</code> or "
            "<code>flightlog report</code> goes through all of it."
        ),
        quiet(
            f"{text(run.run_id, 120)} · started {text(moment_text(info.start_time))} · on "
            f"{text(info.host or 'unknown')}"
        ),
    )


def _foot(summary: Summary) -> str:
    return quiet(text(foot_words(summary), 320))


def foot_words(summary: Summary) -> str:
    """Which run it is."""
    run = summary.run
    where = run.target or run.host or "unknown"
    return f"{run.run_id[:120]} · started {moment_text(run.start_time)} · on {where[:80]}"


ROWS = 10


def comparison_html(comparison: Comparison) -> str:
    """What changed, in a sentence; why the wall time differs; the durations; everything, to unfold."""
    comparison = bounded(comparison)
    found = comparison.explained
    shares = [
        (share.what, signed_duration(share.seconds), share.detail)
        for share in (found.shares[:ROWS] if found else [])
    ]
    if found is not None and found.not_explained_s:
        shares.append(("not explained", signed_duration(found.not_explained_s), ""))
    durations = [
        (
            change.name,
            change.verdict,
            ratio_text(change.typical),
            *("" if side is None else format_count(side.count) for side in (change.before, change.after)),
            *("" if side is None else format_duration(side.p50_s) for side in (change.before, change.after)),
        )
        for change in comparison.durations[:ROWS]
    ]
    left = len(comparison.durations) - ROWS
    head = ("Name", "Verdict", "Typical ratio", "A", "B", "A p50", "B p50")
    return fragment(
        headline(prose(answer_text(comparison))),
        _wall(comparison),
        title("Why the wall time differs")
        + table(("Share", "Wall time", "From A to B"), shares, left=("From A to B",))
        if shares
        else "",
        title("Durations")
        + table(
            head, durations, left=("Verdict",), more=f"and {plural(left, 'more name')}" if left > 0 else ""
        )
        if durations
        else "",
        folded("The whole comparison", pre(comparison_text(comparison, width=120))),
    )


def trend_html(trend: Trend) -> str:
    """The trend's text."""
    return fragment(pre(trend_text(bounded(trend), width=100)))


def diagnosis_html(diagnosis: RunDiagnosis) -> str:
    """Why it failed, in a sentence; causes, evidence and what to do about them below."""
    return fragment(pre(diagnosis_text(bounded(diagnosis), width=110)))


def _wall(comparison: Comparison) -> str:
    sides = []
    for letter, side, wall in (
        ("A", comparison.before, comparison.wall_s.before),
        ("B", comparison.after, comparison.wall_s.after),
    ):
        run = side.runs[0] if side.runs else None
        which = text(side.asked if run is None or len(side.runs) > 1 else run.run_id, 120)
        when = (
            f", started {text(moment_text(run.start_time))}"
            if run is not None and len(side.runs) == 1
            else ""
        )
        sides.append(f"{letter}: {which}{when}, {format_duration(wall)}")
    ratio = comparison.wall_s.ratio
    moved = f" · wall time {percent_text(ratio)}" if ratio is not None else ""
    return quiet("<br>".join(sides) + moved)
