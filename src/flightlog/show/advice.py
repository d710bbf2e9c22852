"""Advice in sections and as text, the most valuable first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightlog.analyze.advice.resources import gain, notes, reason, request_text, unadvised
from flightlog.core.text import plural
from flightlog.core.units import format_percent
from flightlog.show.document import Labelled, Remarks, Section, document_text
from flightlog.show.limits import TextLimits
from flightlog.show.phrases import money_text, some_of
from flightlog.show.terminal import clean

if TYPE_CHECKING:
    from flightlog.analyze.advice.advise import Advised
    from flightlog.analyze.advice.resources import Recommendation


def advice_text(
    advised: Advised, *, width: int = TextLimits.default_width, color: bool = False, apply_hint: bool = True
) -> str:
    """Recommended requests, reasons and savings by task, then other advice; ends in a newline."""
    sections = advice_sections(advised, apply_hint=apply_hint)
    return document_text(sections, width=width, color=color)


def advice_sections(advised: Advised, *, apply_hint: bool = True) -> list[Section]:
    """The same, the most valuable first; a section with nothing to say is empty."""
    changing = [one for one in advised.recommendations if one.is_to_change]
    fine = [one for one in advised.recommendations if not one.is_to_change and _is_known(one)]
    unknown = [one for one in advised.recommendations if not one.is_to_change and not _is_known(one)]
    others = [one for one in advised.advice if one.kind != "resources"]
    place = {one.about: n for n, one in enumerate(advised.advice) if one.kind == "resources"}
    ranked = sorted(changing, key=lambda one: place.get(one.task, len(place)))
    left = len(changing) - TextLimits.max_advised_tasks
    applies = apply_hint and advised.changes.keys() - advised.conditions.keys()
    enough = format_percent(advised.confidence)
    apply = f"Sized for {enough} of future attempts; `flightlog advise --apply` writes it into an overlay."
    problems = f"{plural(len(advised.problems), 'part')} of the history could not be used"
    return [
        _head(advised, changing, len(others)),
        *map(_recommendation, ranked[: TextLimits.max_advised_tasks]),
        Section("", f"and {plural(left, 'more task')}: --task NAME, or --format json" if left > 0 else ""),
        *(map(_recommendation, fine) if len(advised.recommendations) == 1 else [_fine(fine)]),
        _remarks("Also", [f"{one.sentence}{f' Gain: {one.gain}.' if one.gain else ''}" for one in others]),
        _remarks("No advice yet", [unadvised(one) for one in unknown], TextLimits.max_advised_tasks),
        _remarks(problems, advised.problems, TextLimits.max_advice_problems, " (--format json)"),
        Section("", apply if applies else ""),
    ]


def _is_known(one: Recommendation) -> bool:
    """Whether the history says how much the task needs."""
    return one.recommended.cpus is not None or one.recommended.memory_bytes is not None


def _head(advised: Advised, changing: Sequence[Recommendation], others: int) -> Section:
    where = f" on {clean(advised.target)}" if advised.target else ""
    learnt = f"{plural(advised.attempts, 'attempt')} in {plural(advised.runs, 'run')}"
    older = f", older ones left out: {advised.older_runs:,}" if advised.older_runs else ""
    new = sum(not request_text(one.current) for one in changing)
    found = [f"{plural(len(changing) - new, 'request')} to change"] if len(changing) > new else []
    found += [f"{plural(new, 'task')} without a resource request"] if new else []
    found += [f"{plural(others, 'other piece', 'other pieces')} of advice"] if others else []
    answer = ", ".join(found) or "nothing to change"
    other = f"; not of {clean(advised.instead_of)}, which has no such task" if advised.instead_of else ""
    return Section(f"Advice for {clean(advised.project)}{where}", f"{answer} (from {learnt}{older}{other})")


def _recommendation(one: Recommendation) -> Section:
    asked, wanted = request_text(one.current), request_text(one.recommended)
    saved = gain(one)
    if saved is not None and one.saving is not None and one.saving.cost is not None and one.saving.cost > 0:
        saved += f" ({money_text(one.saving.cost, one.saving.currency)} per run)"
    pairs = [
        ("Current", asked or "no resource request"),
        ("Recommended", wanted if one.is_to_change else f"no change ({wanted} recommended)"),
        ("Reason", reason(one)),
        ("Potential savings", saved or ("unknown: no resource request" if not asked else "none")),
    ]
    component = f" (component {clean(one.component)})" if one.component else ""
    return Section(
        f"Resource Recommendation for '{clean(one.task)}'{component}",
        blocks=[Labelled([(label, [text]) for label, text in pairs]), Remarks(notes(one))],
    )


def _fine(fine: Sequence[Recommendation]) -> Section:
    return Section(
        "No change needed", some_of([clean(one.task) for one in fine], TextLimits.max_advised_tasks)
    )


def _remarks(title: str, texts: Sequence[str], shown: int | None = None, where: str = "") -> Section:
    left = len(texts) - (len(texts) if shown is None else shown)
    more = f"and {left:,} more{where}" if left > 0 else ""
    return Section(title, blocks=[Remarks(texts[:shown], more)])
