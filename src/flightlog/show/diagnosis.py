"""A diagnosis as text: the answer, then each cause with its evidence, remedies and checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from flightlog.core.text import plural
from flightlog.show.document import Remarks, Section, beside, sections_text
from flightlog.show.limits import TextLimits
from flightlog.show.phrases import call_text, counts_text, moment_text
from flightlog.show.terminal import Ink, clean, wrap

if TYPE_CHECKING:
    from flightlog.analyze.diagnosis.base import Diagnosis
    from flightlog.analyze.diagnosis.results import Cause, Evidence, RunDiagnosis


_LABEL = 11


def diagnosis_text(diagnosis: RunDiagnosis, *, width: int = 100, color: bool = False) -> str:
    """The diagnosis of a run; ends in a newline. Everything that a run recorded comes out clean."""
    ink = Ink(color)
    lines = [ink("title", clean(diagnosis.run_id)), *wrap(clean(diagnosis.answer), width)]
    for number, cause in enumerate(diagnosis.causes[: TextLimits.max_causes], 1):
        lines += ["", *_cause(cause, number, width, ink)]
    if more := rarer_causes(diagnosis):
        lines += ["", f"… and {plural(more, 'rarer cause')} (--format json has the first 30)"]
    record = sections_text([record_section(diagnosis)], width=width, ink=ink)
    return "\n\n".join(["\n".join(lines), *record]) + "\n"


def rarer_causes(diagnosis: RunDiagnosis) -> int:
    """How many causes are not shown."""
    return max(0, len(diagnosis.causes) - TextLimits.max_causes) + diagnosis.more_causes


def record_section(diagnosis: RunDiagnosis) -> Section:
    """What is wrong with the recording; empty where nothing is."""
    return Section("The record", blocks=[Remarks(diagnosis.problems)])


def _cause(cause: Cause, number: int, width: int, ink: Ink) -> Iterable[str]:
    first, *rest = wrap(f"{number}. {clean(cause_title(cause))}", width, rest="   ")
    style = "warn" if cause.failure_class == "unknown" or cause.scope == "metric" else "bad"
    yield ink(style, first)
    yield from rest
    for label, texts in cause_parts(cause):
        yield from _labelled(label, texts, width, ink)


def cause_title(cause: Cause) -> str:
    """What went wrong, and how sure that is: `out_of_memory, certain (0.98): …`. Not clean."""
    sure = f"{cause.failure_class}, {cause.certainty} ({cause.confidence:.2f})"
    return f"{'cause unknown' if cause.failure_class == 'unknown' else sure}: {cause.headline}"


def cause_parts(cause: Cause) -> list[tuple[str, Sequence[str]]]:
    """The facts of a cause by label, in order, not yet cleaned; empty texts are left out."""
    retried = f"{cause.recovered:,} of these tasks completed when retried"
    return [
        ("explains", [_explains(cause)]),
        ("retried", [retried] if cause.recovered else []),
        ("where", _where(cause)),
        ("because", [evidence_text(one) for one in cause.evidence]),
        ("do", cause.suggestions[:3]),
        ("check", cause.checks),
        ("not known", cause.missing),
        ("or else", [_others(cause.also)]),
    ]


def _labelled(label: str, texts: Iterable[str], width: int, ink: Ink) -> list[str]:
    """A label with its lines beside it; a command is on one line, so that it can be copied."""
    said = [clean(text) for text in texts if text]
    return beside(f"   {label:<{_LABEL}}", said, width, ink, whole=label == "check")


def _explains(cause: Cause) -> str:
    known, tasks_of = cause.explains, counts_text(cause.tasks, TextLimits.max_names_per_diagnosis)
    flying = f": {tasks_of}" if cause.tasks and cause.scope == "run" else ""
    under_way = plural(known.in_flight, "attempt that was under way", "attempts that were under way")
    parts = {
        plural(known.lost_tasks, "lost task"): known.lost_tasks,
        plural(known.dependents, "task that depends on it", "tasks that depend on it"): known.dependents,
        f"{under_way}{flying}": known.in_flight,
        f"{plural(known.cancelled, 'task')} given up then": known.cancelled,
        plural(
            known.at_that_moment, "other failure at that moment", "other failures at that moment"
        ): known.at_that_moment,
    }
    return ", ".join(part for part, number in parts.items() if number)


def _where(cause: Cause) -> list[str]:
    if cause.first is None:
        return []
    example = cause.example
    call = (
        call_text(example.task, example.args, 80) if example is not None and example.task is not None else ""
    )
    worker = f" on {example.worker}" if example is not None and example.worker else ""
    tasks = counts_text(cause.tasks, TextLimits.max_names_per_diagnosis)
    several = sum(cause.tasks.values()) > 1 and cause.scope != "run"
    when = moment_text(cause.first)
    if cause.last and cause.first and cause.last[:19] != cause.first[:19]:
        when += f" to {moment_text(cause.last)}"
    said = [when + (f", in {tasks}" if several else f", {call}{worker}" if call else "")]
    if several and call:
        said.append(f"first in {call}{worker}")
    if example is not None and example.frame:
        said.append(example.frame)
    return said


def evidence_text(one: Evidence) -> str:
    """Evidence for the cause, and its place in the run."""
    time = one.time[11:19] if one.time and len(one.time) >= 19 else ""
    place = " ".join(part for part in (one.file or "", one.event or "", time) if part)
    return f"{one.text}{f'  [{place}]' if place else ''}"


def _others(also: Mapping[str, float]) -> str:
    return ", ".join(f"{name} ({confidence:.2f})" for name, confidence in also.items())


def text_diagnosis_text(diagnosis: Diagnosis, *, width: int = 100, color: bool = False) -> str:
    """The diagnosis of a text alone; ends in a newline."""
    ink = Ink(color)
    if diagnosis.failure_class == "unknown":
        lines = [ink("warn", "Cause unknown: nothing in the text speaks strongly for any class.")]
    else:
        from flightlog.analyze.diagnosis.explain import certainty

        sure = certainty(diagnosis.failure_class, diagnosis.confidence)
        lines = [ink("bad", f"{clean(diagnosis.failure_class)}, {sure} ({diagnosis.confidence:.2f})")]
    for label, texts in (
        ("because", diagnosis.evidence),
        ("do", diagnosis.suggestions),
        ("or else", [_others(diagnosis.also)]),
        ("problems", diagnosis.problems),
    ):
        lines += _labelled(label, texts, width, ink)
    return "\n".join(lines) + "\n"
