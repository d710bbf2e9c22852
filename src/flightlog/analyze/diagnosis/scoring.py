"""Signs to a diagnosis: what speaks for each class, how it adds up, and how sure one may be.

A class's strength is its strongest sign, and of each further one a smaller part: ten lines that say the same
are one fact. Signs against are taken off in full. The class with the greatest strength is the answer;
confidence is the share of its strength, squared, among all classes' and a fixed doubt that stands for what no
rule knows, greater where only words speak, less a part of the strongest rival's share. Two classes that are
about equally strong therefore both stay below one half, and a lone hint stays near it.

`with_record` adds to each rule the evidence that only a record has, beside what the rule sees in its facts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

from flightlog.analyze.diagnosis.base import Case, Diagnosis, Rule, RunFacts, Sign, Source
from flightlog.analyze.diagnosis.reading import read_text
from flightlog.core.plugins import load_all
from flightlog.core.units import format_bytes, format_duration, format_percent

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


def weigh(case: Case, rules: Mapping[str, Rule] | None = None) -> Diagnosis:
    """What the case most likely is; `unknown` where nothing speaks strongly for any class.

    `rules` are those to ask, by class; by default all that are installed. A rule that raises or yields
    something else than signs is left out, and named in `problems`.
    """
    asked = load_rules() if rules is None else rules
    problems = list(asked.problems) if isinstance(asked, RuleSet) else []
    signs: dict[str, list[Sign]] = {}
    for name, rule in asked.items():
        try:
            signs[name] = _checked(rule, case)
        except Exception as error:  # noqa: BLE001 - as above: anybody's code
            problems.append(f"rule {name!r} failed and was left out: {type(error).__name__}: {error}")
    strengths = {name: strength for name, found in signs.items() if (strength := _strength(found)) > 0}
    ranked = sorted(strengths, key=lambda name: (-strengths[name], name))
    doubt = _doubt(signs[ranked[0]]) if ranked else DOUBT
    shares = _shares(strengths, doubt)
    if not ranked or strengths[ranked[0]] < ENOUGH or shares[ranked[0]] < SURE:
        return Diagnosis(
            failure_class=UNKNOWN,
            confidence=round(
                min(0.49, doubt**2 / (doubt**2 + sum(value**2 for value in strengths.values()))), 2
            ),
            evidence=[sign.text for name in ranked[:2] for sign in _shown(signs[name])[:1]],
            suggestions=_look_further(case),
            also={name: shares[name] for name in ranked[:3]},
            problems=problems,
        )
    best = ranked[0]
    return Diagnosis(
        failure_class=best,
        confidence=_confidence(best, shares),
        evidence=[sign.text for sign in _shown(signs[best])][:EVIDENCE],
        suggestions=_suggestions(asked[best], best, case, problems),
        also={name: shares[name] for name in ranked[1:4] if shares[name] >= 0.05},
        problems=problems,
    )


def _checked(rule: Rule, case: Case) -> list[Sign]:
    found = list(rule.signs(case))
    for sign in found:
        if not isinstance(sign, Sign):
            raise TypeError(f"a sign was expected, not {type(sign).__name__}")
        if not math.isfinite(sign.weight):
            raise ValueError(f"a finite weight was expected, not {sign.weight}")
    return found


def _strength(signs: list[Sign]) -> float:
    """One number for all signs of a class; those with the same text are one sign."""
    strongest: dict[str, float] = {}
    for sign in signs:
        if sign.weight > 0:
            strongest[sign.text] = max(strongest.get(sign.text, 0.0), sign.weight)
    speaking = sorted(strongest.values(), reverse=True)
    against = sum(sign.weight for sign in signs if sign.weight < 0)
    return sum(weight * FURTHER**n for n, weight in enumerate(speaking)) + against


def _doubt(signs: list[Sign]) -> float:
    only_words = all(sign.source is Source.words for sign in signs if sign.weight > 0)
    return DOUBT_OF_WORDS if only_words else DOUBT


def _shares(strengths: Mapping[str, float], doubt: float) -> dict[str, float]:
    whole = doubt**2 + sum(value**2 for value in strengths.values())
    return {name: round(min(MOST, value**2 / whole), 2) for name, value in strengths.items()}


def _confidence(best: str, shares: Mapping[str, float]) -> float:
    rival = max((share for name, share in shares.items() if name != best), default=0.0)
    return round(shares[best] - RIVAL * rival, 2)


def _shown(signs: list[Sign]) -> list[Sign]:
    """What speaks for a class, the strongest first, each text once."""
    kept: dict[str, Sign] = {}
    for sign in sorted(signs, key=lambda sign: -sign.weight):
        if sign.weight > 0:
            kept.setdefault(sign.text, sign)
    return list(kept.values())


def _suggestions(rule: Rule, name: str, case: Case, problems: list[str]) -> list[str]:
    try:
        said = rule.suggestions(case)
        return [said] if isinstance(said, str) else [str(one) for one in said]
    except Exception as error:  # noqa: BLE001 - the class stands even where its rule cannot say what to do
        problems.append(f"rule {name!r} could not suggest anything: {type(error).__name__}: {error}")
        return []


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
    return weigh(Case(reading=read_text(text, exception_type)))


FULL = 0.9
"""Memory beyond this part of its limit leaves no room for the next allocation."""
HOST_FULL_PERCENT = 97.0
ROOMY = 0.5
"""Memory below this part of its limit was not the matter."""
DEVICE = "a device ran out of memory"
CRASHES = {
    "SIGSEGV": "memory that it may not touch",
    "SIGILL": "an instruction that the CPU does not know",
    "SIGFPE": "a division that the CPU refused",
}
"""Signals that a process brings upon itself."""
NOT_FOUND = 127
"""Exit code of a command that is not there."""
KILLED_CODES = frozenset({137, -9})

FactSigns = Callable[[RunFacts], Iterator[Sign]]


def with_record(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """The rules, each with the signs of the record for its class beside its own."""
    return {name: _Both(rule, _SIGNS[name]) if name in _SIGNS else rule for name, rule in rules.items()}


class _Both:
    """A rule, and what the record says for its class."""

    def __init__(self, rule: Rule, of_record: FactSigns) -> None:
        self._rule, self._of_record = rule, of_record

    def signs(self, case: Case, /) -> Iterable[Sign]:
        """Both."""
        yield from self._rule.signs(case)
        if case.facts is not None:
            yield from self._of_record(case.facts)

    def suggestions(self, case: Case, /) -> list[str]:
        """The rule's."""
        return self._rule.suggestions(case)


def was_killed(facts: RunFacts) -> bool:
    """Whether it ended by a signal that cannot be caught, or unexpectedly and without a reason."""
    return (
        facts.signal == "SIGKILL"
        or facts.exit_code in KILLED_CODES
        or (facts.scope == "run" and facts.run_status == "crashed")
        or (facts.worker_lost_reason is not None and facts.exit_code is None and facts.signal is None)
    )


def _out_of_memory(facts: RunFacts) -> Iterator[Sign]:
    reason = facts.worker_lost_reason or ""
    if "for memory" in reason:  # an engine's own watch over its workers
        yield Sign(source=Source.scheduler, weight=5.0, text=reason)
    if not was_killed(facts):
        return
    known = [one for one in (facts.last_rss_bytes, facts.peak_rss_bytes) if one is not None]
    used, limit, host = max(known, default=None), facts.memory_limit_bytes, facts.node_memory_used_percent
    share = used / limit if used is not None and limit and facts.memory_scope != "node" else None
    silent = facts.signal is None and facts.exit_code is None
    if silent and share is not None and share >= FULL:
        text = (
            f"it was last seen with {format_bytes(used)}, {format_percent(share)} of the "
            f"{format_bytes(limit)} there are"
        )
        yield Sign(source=Source.resources, weight=3.5, text=text)
    elif silent and host is not None and host >= HOST_FULL_PERCENT:
        yield Sign(source=Source.resources, weight=2.5, text=f"{host:.0f}% of the host's memory was in use")
    elif _was_roomy(facts, share):
        text = f"memory was far from its limit: {format_bytes(used)} of {format_bytes(limit)}"
        yield Sign(source=Source.resources, weight=-2.5, text=text)


def _was_roomy(facts: RunFacts, share: float | None) -> bool:
    """Whether memory is known not to have been the matter; a kernel or a batch system that says otherwise is
    right.
    """
    blamed = facts.kernel_oom or facts.cgroup_oom_kills or facts.job_state == "OUT_OF_MEMORY"
    full = (facts.node_memory_used_percent or 0.0) >= 100 * FULL
    return not blamed and not full and share is not None and share < ROOMY


def _time_limit(facts: RunFacts) -> Iterator[Sign]:
    ran, limit = facts.duration_s, facts.walltime_s
    if facts.scope == "run" and facts.run_status == "crashed" and ran and limit and ran >= 0.98 * limit:
        text = f"it went away after {format_duration(ran)}; its job may take {format_duration(limit)}"
        yield Sign(source=Source.scheduler, weight=3.0, text=text)


def _timeout(facts: RunFacts) -> Iterator[Sign]:
    if facts.timed_out:
        limit = f" of {format_duration(facts.timeout_s)}" if facts.timeout_s is not None else ""
        yield Sign(
            source=Source.scheduler, weight=6.0, text=f"the engine ended the attempt at its timeout{limit}"
        )


def _worker_lost(facts: RunFacts) -> Iterator[Sign]:
    by_memory = facts.kernel_oom or "for memory" in (facts.worker_lost_reason or "")
    if by_memory or facts.job_state in _SCHEDULERS_REASONS or facts.signal in CRASHES:
        yield Sign(source=Source.scheduler, weight=-6.0, text="what ended the worker is known")
    elif facts.hosts_workers_lost > 1:
        text = f"{facts.hosts_workers_lost} workers of host {facts.host} went away within seconds"
        yield Sign(source=Source.neighbours, weight=3.0, text=text)


def _code_error(facts: RunFacts) -> Iterator[Sign]:
    if facts.worker_lost_reason is not None and facts.signal in CRASHES:
        text = f"its process crashed by itself: {facts.signal}, {CRASHES[facts.signal]}"
        yield Sign(source=Source.exit, weight=3.0, text=text)


def _import_error(facts: RunFacts) -> Iterator[Sign]:
    if facts.scope == "command" and facts.exit_code == NOT_FOUND:
        yield Sign(source=Source.exit, weight=4.0, text=f"exit code {NOT_FOUND}: a command is not there")


def _gpu_out_of_memory(facts: RunFacts) -> Iterator[Sign]:
    for said in facts.device_oom[:1]:
        yield Sign(source=Source.resources, weight=5.0, text=f"{DEVICE}: {said}")


_SCHEDULERS_REASONS = frozenset({"TIMEOUT", "OUT_OF_MEMORY", "PREEMPTED", "REQUEUED", "CANCELLED"})
_SIGNS: dict[str, FactSigns] = {
    "out_of_memory": _out_of_memory,
    "time_limit": _time_limit,
    "timeout": _timeout,
    "worker_lost": _worker_lost,
    "code_error": _code_error,
    "import_error": _import_error,
    "gpu_out_of_memory": _gpu_out_of_memory,
}
