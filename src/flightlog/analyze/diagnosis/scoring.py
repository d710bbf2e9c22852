"""Signs to a diagnosis: what speaks for each class, how it adds up, and how sure one may be.

A class's strength is its strongest sign, and of each further one a smaller part: ten lines that say the same
are one fact. Signs against are taken off in full. The class with the greatest strength is the answer;
confidence is the share of its strength, squared, among all classes' and a fixed doubt that stands for what no
rule knows, greater where only words speak, less a part of the strongest rival's share. Two classes that are
about equally strong therefore both stay below one half, and a lone hint stays near it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from flightlog.analyze.diagnosis.base import Case, Diagnosis, Rule, Sign, Source
from flightlog.analyze.diagnosis.reading import read_text
from flightlog.core.plugins import load_all

ENTRY_POINTS = "flightlog.rules"
UNKNOWN = "unknown"
FURTHER = 0.35
"""The part that each further sign of a class adds, of the part before."""
DOUBT = 1.0
"""The strength of "something else", at which a hint is as good as a guess; and …"""
DOUBT_OF_WORDS = 1.6
"""… where nothing but words speaks for a class: no exception, no exit, no batch system."""
RIVAL = 0.3
"""The part of the strongest rival's share that is taken off the confidence: near a tie, nobody should be
sure."""
ENOUGH = 0.9
"""Least strength, and …"""
SURE = 0.35
"""… least confidence at which a class is named at all."""
MOST = 0.98
EVIDENCE = 6
"""Lines of evidence shown."""


class RuleSet(dict[str, Rule]):
    """Rules by the class they speak for, with what was wrong with those that could not be used."""

    problems: tuple[str, ...] = ()


@cache
def load_rules() -> RuleSet:
    """Every rule that an installed package offers, ours among them, by class; broken ones are named, never
    fatal.

    A package's rule for a class that we have a rule for takes its place.
    """
    found = load_all(ENTRY_POINTS, _problem_with)
    rules = RuleSet(found.found)
    rules.problems = tuple(f"rule {name!r} cannot be used: {why}" for name, why in found.failed.items())
    return rules


def _problem_with(rule: Rule) -> str | None:
    usable = callable(getattr(rule, "signs", None)) and callable(getattr(rule, "suggestions", None))
    return None if usable else "has no `signs` and `suggestions` to call"


class Scored(NamedTuple):
    """What a case most likely is, and the signs that speak for it, the strongest first; none of `unknown`."""

    diagnosis: Diagnosis
    signs: list[Sign]


def weigh(case: Case, rules: Mapping[str, Rule] | None = None) -> Scored:
    """What the case most likely is; `unknown` where nothing speaks strongly for any class.

    `rules` are those to ask, by class; by default all that are installed. Each is asked once. A rule that
    raises or yields something else than signs is left out, and named in `problems`.
    """
    asked = load_rules() if rules is None else rules
    problems = list(asked.problems) if isinstance(asked, RuleSet) else []
    signs: dict[str, list[Sign]] = {}
    strengths: dict[str, float] = {}
    doubts: dict[str, float] = {}
    for name, rule in asked.items():
        try:
            found = _checked(rule, case)
        except Exception as error:  # noqa: BLE001 - anybody's code
            problems.append(f"rule {name!r} failed and was left out: {type(error).__name__}: {error}")
            continue
        signs[name] = _speaking(found)
        against = sum(sign.weight for sign in found if sign.weight < 0)
        strength = sum(sign.weight * FURTHER**n for n, sign in enumerate(signs[name])) + against
        if strength > 0:
            strengths[name] = strength
            words = all(sign.source is Source.words for sign in found if sign.weight > 0)
            doubts[name] = DOUBT_OF_WORDS if words else DOUBT
    ranked = sorted(strengths, key=lambda name: (-strengths[name], name))
    doubt = (doubts[ranked[0]] if ranked else DOUBT) ** 2
    whole = doubt + sum(value**2 for value in strengths.values())
    shares = {name: round(min(MOST, strengths[name] ** 2 / whole), 2) for name in ranked}
    if not ranked or strengths[ranked[0]] < ENOUGH or shares[ranked[0]] < SURE:
        unknown = Diagnosis(
            failure_class=UNKNOWN,
            confidence=round(min(0.49, doubt / whole), 2),
            evidence=[signs[name][0].text for name in ranked[:2]],
            suggestions=_look_further(case),
            also={name: shares[name] for name in ranked[:3]},
            problems=problems,
        )
        return Scored(unknown, [])
    best, *others = ranked
    confidence = round(shares[best] - RIVAL * max((shares[name] for name in others), default=0.0), 2)
    try:
        suggested = asked[best].suggestions(case)
    except Exception as error:  # noqa: BLE001 - the class stands even where its rule cannot say what to do
        problems.append(f"rule {best!r} could not suggest anything: {type(error).__name__}: {error}")
        suggested = []
    found_out = Diagnosis(
        failure_class=best,
        confidence=confidence,
        evidence=[sign.text for sign in signs[best]][:EVIDENCE],
        suggestions=[suggested] if isinstance(suggested, str) else [str(one) for one in suggested],
        also={name: min(shares[name], confidence) for name in others[:3] if shares[name] >= 0.05},
        problems=problems,
    )
    return Scored(found_out, signs[best])


def _checked(rule: Rule, case: Case) -> list[Sign]:
    found = list(rule.signs(case))
    for sign in found:
        if not isinstance(sign, Sign):
            raise TypeError(f"a sign was expected, not {type(sign).__name__}")
        if not math.isfinite(sign.weight):
            raise ValueError(f"a finite weight was expected, not {sign.weight}")
    return found


def _speaking(signs: list[Sign]) -> list[Sign]:
    """What speaks for a class, the strongest and most trustworthy first; those with the same text are one."""
    speaking: dict[str, Sign] = {}
    for sign in sorted(signs, key=lambda sign: (-sign.weight, _TRUST[sign.source])):
        if sign.weight > 0:
            speaking.setdefault(sign.text, sign)
    return list(speaking.values())


_TRUST = {source: number for number, source in enumerate(Source)}


def _look_further(case: Case) -> list[str]:
    if "SIGKILL" in case.reading.signals and not case.reading.exceptions:
        return [
            "Something killed the process and left no reason. Ask the kernel (`dmesg -T | grep -i oom`) or "
            "the batch "
            "system (`sacct -j JOB -o State,ExitCode,MaxRSS,ReqMem`): running out of memory is the usual "
            "one.",
        ]
    return ["Read the lines before the first error: this text names no cause that is known here."]


def diagnose_text(text: str, exception_type: str | None = None) -> Diagnosis:
    """What a log's end, a traceback or an error message most likely means; `unknown` where it does not tell.

    `exception_type` is the type of the exception (`ValueError`, `torch.cuda.OutOfMemoryError`) where it is
    known and the text does not show it. Never raises on any text; of a long one, its beginning and its end
    are read.
    """
    return weigh(Case(reading=read_text(text, exception_type))).diagnosis
