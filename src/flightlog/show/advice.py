"""Advice as text, the most valuable first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flightlog.analyze.advice.wording import gain, notes, reason, request_text, unadvised
from flightlog.core.text import plural
from flightlog.core.units import format_percent
from flightlog.show.phrases import money_text
from flightlog.show.terminal import Ink, clean, pad, wrap

if TYPE_CHECKING:
    from flightlog.analyze.advice.advise import Advised
    from flightlog.analyze.advice.base import Advice
    from flightlog.analyze.advice.resources import Recommendation

WIDTH = 100
SHOWN = 12
"""How many tasks are shown in full; the rest is counted."""
_LABEL = len("Potential savings:") + 4


def advice_text(advised: Advised, *, width: int = WIDTH, color: bool = False, apply_hint: bool = True) -> str:
    """Recommended requests, reasons and savings by task, then other advice; ends in a newline."""
    ink = Ink(color)
    changing = [one for one in advised.recommendations if one.is_to_change]
    fine = [one for one in advised.recommendations if not one.is_to_change and is_known(one)]
    unknown = [one for one in advised.recommendations if not one.is_to_change and not is_known(one)]
    alone = len(advised.recommendations) == 1
    sections = [
        _head(advised, changing, width, ink),
        *(_recommendation(one, width, ink) for one in _ranked(advised, changing)[:SHOWN]),
        _rest(changing, ink),
        *([_recommendation(one, width, ink) for one in fine] if alone else [_fine(fine, width, ink)]),
        _others([one for one in advised.advice if one.kind != "resources"], width, ink),
        _unknown(unknown, width, ink),
        _problems(advised, width, ink),
        [_apply(advised)] if apply_hint and advised.changes.keys() - advised.conditions.keys() else [],
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def is_known(one: Recommendation) -> bool:
    """Whether the history says how much the task needs."""
    return one.recommended.cpus is not None or one.recommended.memory_bytes is not None


def _ranked(advised: Advised, changing: Sequence[Recommendation]) -> list[Recommendation]:
    place = {one.about: n for n, one in enumerate(advised.advice) if one.kind == "resources"}
    return sorted(changing, key=lambda one: place.get(one.task, len(place)))


def _head(advised: Advised, changing: Sequence[Recommendation], width: int, ink: Ink) -> list[str]:
    others = sum(one.kind != "resources" for one in advised.advice)
    where = f" on {clean(advised.target)}" if advised.target else ""
    learnt = f"{plural(advised.attempts, 'attempt')} in {plural(advised.runs, 'run')}"
    older = f", older ones left out: {advised.older_runs:,}" if advised.older_runs else ""
    new = sum(not request_text(one.current) for one in changing)
    found = [f"{plural(len(changing) - new, 'request')} to change"] if len(changing) > new else []
    found += [f"{plural(new, 'task')} without a resource request"] if new else []
    found += [f"{plural(others, 'other piece', 'other pieces')} of advice"] if others else []
    answer = ", ".join(found) or "nothing to change"
    other = f"; not of {clean(advised.instead_of)}, which has no such task" if advised.instead_of else ""
    return wrap(
        f"{ink('title', f'Advice for {clean(advised.project)}{where}')}: {answer} (from "
        f"{learnt}{older}{other})",
        width,
    )


def _recommendation(one: Recommendation, width: int, ink: Ink) -> list[str]:
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
    lines = [ink("head", f"Resource Recommendation for '{clean(one.task)}'{component}:")]
    for label, value in pairs:
        first = "  " + ink("label", pad(f"{label}:", _LABEL - 4)) + "  "
        lines += wrap(clean(value), width, first=first, rest=" " * _LABEL)
    for text in notes(one):
        lines += wrap(clean(text), width, first="  - ", rest="    ")
    return lines


def _rest(changing: Sequence[Recommendation], ink: Ink) -> list[str]:
    left = len(changing) - SHOWN
    return (
        [ink("quiet", f"and {plural(left, 'more task')}: --task NAME, or --format json")] if left > 0 else []
    )


def _fine(fine: Sequence[Recommendation], width: int, ink: Ink) -> list[str]:
    if not fine:
        return []
    named = ", ".join(clean(one.task) for one in fine[:SHOWN])
    more = f" and {len(fine) - SHOWN:,} more" if len(fine) > SHOWN else ""
    return wrap(f"{ink('good', 'No change needed')}: {named}{more}", width, rest="  ")


def _others(advice: Sequence[Advice], width: int, ink: Ink) -> list[str]:
    if not advice:
        return []
    lines = [ink("head", "Also")]
    for one in advice:
        said = f"{clean(one.sentence)}{f' Gain: {clean(one.gain)}.' if one.gain else ''}"
        lines += wrap(said, width, first="  - ", rest="    ")
    return lines


def _unknown(unknown: Sequence[Recommendation], width: int, ink: Ink) -> list[str]:
    if not unknown:
        return []
    lines = [ink("head", "No advice yet")]
    for one in unknown[:SHOWN]:
        lines += wrap(clean(unadvised(one)), width, first="  - ", rest="    ")
    return [*lines, f"  and {len(unknown) - SHOWN:,} more"] if len(unknown) > SHOWN else lines


def _problems(advised: Advised, width: int, ink: Ink) -> list[str]:
    if not advised.problems:
        return []
    lines = [ink("warn", f"{plural(len(advised.problems), 'part')} of the history could not be used")]
    for problem in advised.problems[:5]:
        lines += wrap(clean(problem), width, first="  - ", rest="    ")
    left = len(advised.problems) - 5
    return [*lines, f"  and {left:,} more (--format json)"] if left > 0 else lines


def _apply(advised: Advised) -> str:
    enough = format_percent(advised.confidence)
    return f"Sized for {enough} of future attempts; `flightlog advise --apply` writes it into an overlay."
