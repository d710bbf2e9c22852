"""The top of a report page: how the run ended, its key figures, what limited it, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from flightlog.analyze.findings.base import split_advice
from flightlog.core.text import plural
from flightlog.core.units import format_bytes, format_count, format_duration, format_percent
from flightlog.show.diagnosis import cause_title
from flightlog.show.html.elements import Child, Element, coded, said, tag
from flightlog.show.phrases import capitalized, moment_text, money_text
from flightlog.show.report import TITLE, findings_section, wall_time_text

if TYPE_CHECKING:
    from flightlog.analyze.diagnosis.results import Cause, RunDiagnosis
    from flightlog.analyze.report.report import Report

FINDINGS, CAUSES = 3, 2
"""Maximum findings and causes in the verdict; the rest follows below."""
_CIRCLE = {"cx": 12, "cy": 12, "r": 10}
_SIGNS = {
    "good": "M7.5 12.5l3 3 6-6.5",
    "bad": "M8.5 8.5l7 7M15.5 8.5l-7 7",
    "warn": "M12 7v6M12 16.5v.01",
    "plain": "M12 7v5l3.5 2",
}
"""Paths in a circle: a tick, a cross, an exclamation mark, a clock."""


def _headline(report: Report) -> tuple[str, str]:
    """The class of the verdict's colour, and how the run ended: the status, the time, and failed tasks."""
    run, failed = report.run, report.tasks.failed
    took = format_duration(run.duration_s) if run.duration_s is not None else "an unknown time"
    headline, style = {
        "completed": (f"Completed in {took}", "good"),
        "failed": (f"Failed after {took}", "bad"),
        "interrupted": (f"Interrupted after {took}", "bad"),
        "crashed": (f"Crashed after {took}", "bad"),
        "running": (f"Running, for {took} so far", "plain"),
    }.get(run.status, (f"{said(run.status, 40).capitalize()} after {took}", "warn"))
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
        parts += [
            f"{format_count(number)} {word}"
            for number, word in (
                (tasks.failed, "failed"),
                (tasks.cancelled, "cancelled"),
                (tasks.running, "in flight"),
                (tasks.pending, "waiting"),
            )
            if number
        ]
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
    return verdict_section(
        *_headline(report),
        tag("p", _lead(report), class_="lead"),
        tag("p", tag("strong", f"{TITLE}: "), coded(line)) if line else None,
        tag("p", said(report.run.error, 600), class_="bad") if report.run.error else None,
        tag("dl", _tiles(report), class_="tiles"),
        advice_list(_failed(diagnosis), ("What went wrong", "What to do")),
        advice_list(_limited(report), ("What limited it", "What to do")),
    )


def verdict_section(style: str, headline: str, *content: Child) -> Element:
    """The first part of a page: the answer with an icon, and what belongs to it."""
    head = tag("div", sign(style), tag("h1", headline), class_="headline")
    return tag("section", head, *content, id="verdict", class_=f"verdict is-{style}")


def number(path: str, value: Any, text: str) -> Element:
    """A number, with its path and value in the JSON of what the page shows."""
    return tag("span", text, data_path=path, data_value=msgspec.json.encode(value).decode())


def tile(label: str, value: Child, below: str) -> Element:
    """A key figure, with a word below it."""
    return tag("div", tag("dt", label), tag("dd", value, tag("small", below) if below else None))


def sign(style: str) -> Element:
    """An icon for a status, which is never shown by colour alone."""
    circle, path = tag("circle", **_CIRCLE), tag("path", d=_SIGNS[style])
    return tag("svg", circle, path, viewBox="0 0 24 24", aria_hidden="true", focusable="false")


def _tiles(report: Report) -> list[Element]:
    """The key figures there are: label, path in the report's JSON, and a word below it."""
    tasks, cache, cost = report.tasks, report.cache, report.cost
    process, gpu = report.resources.process, report.resources.gpu
    adopted = bool(
        tasks.names and not tasks.submitted
    )  # another tool recorded it, which knows no submissions
    hits = f"{format_count(cache.hits)} of {format_count(cache.lookups)}"
    tiles = [
        ("Status", "run.status", _ended(report), True),
        ("Wall time", "run.duration_s", "", True),
        ("Tasks submitted", "tasks.submitted", "", True),
        ("Completed", "tasks.completed", _mean(report), True),
        ("Failed", "tasks.failed", "for good" if tasks.failed else "", True),
        ("Spans", "spans.count", "", report.spans.count and not tasks.names),
        ("Retried", "tasks.retried", "attempts", tasks.retried),
        ("Workers", "workers.peak", "at most", report.workers.count),
        ("Utilization", "workers.utilization", "of worker time", report.workers.count),
        ("Cache hits", "cache.hit_rate", hits, cache.lookups),
        (
            "Peak memory",
            "resources.process.peak_rss_bytes",
            "of its processes",
            process is not None and process.peak_rss_bytes is not None,
        ),
        (
            "Peak GPU memory",
            "resources.gpu.memory_peak_bytes",
            "on one device",
            gpu is not None and gpu.memory_peak_bytes is not None,
        ),
        ("Estimated cost", "cost.total", "at least" if cost.at_least else "", cost.total is not None),
    ]
    found = []
    for label, path, below, shown in tiles:
        if shown:
            value = attrgetter(path)(report)
            text = (
                "not recorded" if path == "tasks.submitted" and adopted else _text(path, value, cost.currency)
            )
            found.append(tile(label, number(path, value, said(text, 60)), below))
    return found


def _text(path: str, value: Any, currency: str | None) -> str:
    """A value of the report in words; how follows from its path."""
    if path == "cost.total":
        return money_text(value, currency or "USD")
    if path in {"workers.utilization", "cache.hit_rate"}:
        return format_percent(value)
    if path.endswith("_s"):
        return format_duration(value)
    if path.endswith("_bytes"):
        return format_bytes(value)
    return said(value, 40) if isinstance(value, str) else format_count(value)


def _ended(report: Report) -> str:
    run = report.run
    if run.signal is not None:
        return said(run.signal, 40)
    return f"exit code {run.exit_code}" if run.exit_code else ""


def _mean(report: Report) -> str:
    mean = report.tasks.duration_s.mean
    return "" if mean is None else f"{format_duration(mean)} on average"


class AdviceRow(NamedTuple):
    """What happened, and what to do about it."""

    what: Child
    advice: Child


def advice_list(rows: Sequence[AdviceRow], heads: tuple[str, str]) -> Element | None:
    """The findings, each with its advice; the headings are above the first."""
    if not rows:
        return None
    return tag(
        "ul",
        (
            tag(
                "li",
                tag("div", tag("h2", heads[0]) if number == 0 else None, row.what),
                tag("div", tag("h2", heads[1]) if number == 0 and row.advice else None, row.advice),
            )
            for number, row in enumerate(rows)
        ),
        class_="told",
    )


def _failed(diagnosis: RunDiagnosis | None) -> list[AdviceRow]:
    """The causes that explain most, with the first remedies of each."""
    if diagnosis is None:
        return []
    return [
        AdviceRow(
            tag("p", cause_heading(cause)),
            [tag("p", coded(capitalized(text), 600)) for text in cause.suggestions[:2] or cause.missing[:1]],
        )
        for cause in diagnosis.causes[:CAUSES]
    ]


def cause_heading(cause: Cause) -> list[Child]:
    """What went wrong, and how sure that is."""
    style = "warn" if cause.failure_class == "unknown" else "bad"
    name, _, headline = cause_title(cause).partition(": ")
    sure = said(capitalized(name.replace("_", " ")), 200)
    return [tag("strong", f"{sure}: ", class_=style), *coded(headline, 600)]


def _limited(report: Report) -> list[AdviceRow]:
    """What took the most time beside the work itself; that nothing did, where nothing did."""
    rows = []
    for finding in report.findings[:FINDINGS]:
        what, advice = split_advice(finding.sentence)
        rows.append(
            AdviceRow(
                tag("p", coded(f"{capitalized(what).rstrip('.')}.", 1000)),
                tag("p", coded(f"Try {advice}", 600)) if advice else None,
            )
        )
    note = findings_section(report).note
    if not rows and note:
        _, _, rest = note.partition("; ")
        rows.append(AdviceRow(tag("p", f"Nothing stands out: {said(rest)}."), None))
    return rows
