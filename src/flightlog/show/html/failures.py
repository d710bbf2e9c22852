"""Failures on a page: what most likely caused them, what to do, and every cause with its traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.show.diagnosis import evidence_text
from flightlog.show.html.elements import Element, coded, lines_said, said, tag
from flightlog.show.html.page import Part
from flightlog.show.html.verdict import raw
from flightlog.show.phrases import call_text, count_text, first_line, moment_text
from flightlog.units import format_count

if TYPE_CHECKING:
    from flightlog.analyze.diagnosis.results import Cause, RunDiagnosis
    from flightlog.analyze.failure_groups import FailureCause
    from flightlog.analyze.report import Report

CAUSES = 8
"""Causes of a diagnosis, and groups of failures, that a page tells in full."""
LISTED = 20


def failures_part(report: Report, diagnosis: RunDiagnosis | None) -> Part:
    """Why tasks failed, then what failed; one line where nothing did."""
    failures = report.failures
    causes = report.details.failures if report.details is not None else []
    if not failures.count and not (diagnosis is not None and diagnosis.causes):
        return Part("failures", "Failures", [tag("p", "None.")])
    count = tag(
        "span", format_count(failures.count), data_path="failures.count", data_value=raw(failures.count)
    )
    content = [tag("p", count, f" in all, of {count_text(failures.groups, 'cause')}.", class_="note")]
    if diagnosis is not None and diagnosis.causes:
        content += [tag("p", coded(diagnosis.answer, 1000)), *map(_diagnosed, diagnosis.causes[:CAUSES])]
        left = len(diagnosis.causes) - CAUSES + diagnosis.more_causes
        if left > 0:
            content.append(tag("p", f"… and {count_text(left, 'rarer cause')}", class_="more"))
    else:
        content.append(
            tag("p", "What may have caused them: ", _command(f"flightlog diagnose {report.run.run_id}"))
        )
    if causes:
        content += [tag("h3", "What failed"), *map(_group, causes[:LISTED])]
        left = failures.groups - min(len(causes), LISTED)
        if left > 0:
            content.append(tag("p", f"… and {count_text(left, 'more cause')}", class_="more"))
    return Part("failures", "Failures", content)


def _diagnosed(cause: Cause) -> Element:
    known = cause.failure_class != "unknown"
    name = said(cause.failure_class, 80).replace("_", " ").capitalize() if known else "Cause unknown"
    sure = f", {said(cause.certainty, 40)} ({cause.confidence:.2f})" if known else ""
    lists = [
        ("Because", [evidence_text(one) for one in cause.evidence]),
        ("What to do", cause.suggestions),
        ("Not known", cause.missing),
    ]
    return tag(
        "div",
        tag(
            "h3",
            tag("span", f"{name}{sure}", class_="bad" if known else "warn"),
            ": ",
            coded(cause.headline, 600),
        ),
        tag("p", f"{count_text(cause.recovered, 'task')} of it completed in a later attempt.")
        if cause.recovered
        else None,
        tag(
            "dl",
            ((tag("div", tag("dt", label), tag("dd", _several(texts)))) for label, texts in lists if texts),
            class_="facts",
        ),
        tag("details", tag("summary", "Check it"), map(_command, cause.checks[:6])) if cause.checks else None,
        class_="cause",
    )


def _several(texts: list[str]) -> list[Element]:
    return [tag("p", coded(text, 800)) for text in texts[:6]]


def _command(text: str) -> Element:
    return tag("code", said(text, 2000), class_="command")


def _group(cause: FailureCause) -> Element:
    kind = cause.error_type or "failure"
    message = f"{kind}: {first_line(cause.message)}" if cause.message else kind
    pairs = [
        ("When", f"first {moment_text(cause.first)}, last {moment_text(cause.last)}"),
        ("Tasks", _counts(cause.tasks)),
        ("Workers", _counts(cause.workers)),
        ("Attempts", _counts({f"attempt {number}": count for number, count in cause.attempts.items()})),
        (
            "Such as",
            "; ".join(call_text(case.task, case.args, 120) for case in cause.cases if case.task is not None),
        ),
        ("Fingerprint", cause.fingerprint or ""),
    ]
    traceback = tag("pre", lines_said(cause.traceback), tabindex="0") if cause.traceback else None
    shown = tag(
        "dl",
        (tag("div", tag("dt", label), tag("dd", said(text, 1000))) for label, text in pairs if text),
        class_="facts",
    )
    return tag(
        "details",
        tag("summary", tag("span", f"{format_count(cause.count)}x {said(message, 300)}", class_="bad")),
        shown,
        traceback or tag("p", "No traceback was recorded.", class_="note"),
    )


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{said(name, 80)} ({format_count(number)})" for name, number in list(found.items())[:8])
