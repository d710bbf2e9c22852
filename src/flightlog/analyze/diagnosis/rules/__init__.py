"""Rules that are data: one TOML file per class of failure, with its signs as those who run such systems know
them, and what to do.

A file holds `description`, `suggestions`, perhaps `suggestions_in_jobs`, which are made only where a batch
system is involved, and `clues`, each of which searches a case for one kind of sign; what no pattern can
express is a function (`functions`). `shared` holds patterns that several clues refer to as `{name}`; one of
another file is `{file.name}`. Wherever one pattern may stand, a list means any of them. A pattern may go on
in the next line: line breaks and the blanks around them are taken out.

A clue counts in full where it is found in the root cause, and less in what came of it or in a passing
warning. What a kernel or a batch system says counts in full wherever it stands: it ends the job, whatever the
program said before.

A rule has dozens of phrases, a log thousands of lines. So each phrase is read for the plain words of which
one must be there (`needed`), and only lines that hold one are matched (`line_with`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.analyze.diagnosis.base import Case, Rule, Sign, Source
from flightlog.analyze.diagnosis.rules.functions import CLUES, SUGGESTIONS, Found
from flightlog.analyze.limits import DiagnosisLimits
from flightlog.core.plugins import load_all
from flightlog.core.text import cut, words

ENTRY_POINTS = "flightlog.rules"
FOLDER = Path(__file__).parent


_GUESS = re.compile(
    r"\b(?:perhaps|maybe|possibly|presumably|likely (?:due|because|caused)|might (?:be|have)"
    r"|could be (?:due|caused))\b",
    re.I,
)
_FINAL = frozenset({Source.kernel, Source.scheduler})
"""What they say counts in full wherever it stands."""


class Clue(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """Something to look for; `weight` says how much it speaks for the class, as that of a sign does."""

    weight: float


class SaysClue(Clue, frozen=True, kw_only=True, tag="says"):
    """Words, outside file names, addresses and quoted names, small and capital letters alike unless `case`.

    Not on a line that holds `unless`; with a smaller weight where the whole text holds `weakened_by`. The
    weakest of sources.
    """

    patterns: tuple[str, ...]
    unless: str | None = None
    case: bool = False
    weakened_by: str | None = None

    def find(self, case: Case) -> Found:
        """The line that counts most."""
        weakened = self.weakened_by is not None and _holds(self.weakened_by, case.reading.text, re.NOFLAG)
        weight = self.weight * DiagnosisLimits.weakened_weight if weakened else self.weight
        return _search(case, self.patterns, weight, Source.words, self.unless, cased=self.case)


class ReportsClue(Clue, frozen=True, kw_only=True, tag="reports"):
    """A line in the form that a batch system, an engine, a runtime or the kernel writes; capital letters
    count.
    """

    patterns: tuple[str, ...]
    unless: str | None = None
    source: Source = Source.scheduler

    def find(self, case: Case) -> Found:
        """The line that counts most."""
        return _search(case, self.patterns, self.weight, self.source, self.unless, cased=True)


class ErrnoClue(Clue, frozen=True, kw_only=True, tag="errno"):
    """A system call's error, by number as on Linux, by name or by the text that glibc has for it."""

    name: str
    number: int
    text: str
    unless: str | None = None

    def find(self, case: Case) -> Found:
        """The line that counts most."""
        number = self.number
        patterns = (
            rf"\[Errno {number}\]",
            rf"\(?os error {number}\)?",
            rf"\berrno[ =:]{{1,3}}{number}\b",
            rf"\b{self.name}\b",
            rf"(?:^|[^'\"\w]){self.text}",
        )
        return _search(case, patterns, self.weight, Source.exception, self.unless, cased=False)


class RaisedClue(Clue, frozen=True, kw_only=True, tag="raised"):
    """An exception of one of these types (`MemoryError`, or with its module: `torch.OutOfMemoryError`), or a
    service's answer of that name; the names stand in one string, apart by blanks.

    `saying` and `unless` are patterns that its message must and must not hold; `calling` one that its
    innermost function and source line must hold.
    """

    types: str
    saying: str | None = None
    unless: str | None = None
    calling: str | None = None

    def find(self, case: Case) -> Found:
        """Every such exception of the text."""
        types = words(self.types)
        for one, share in case.reading.shares():
            if types.isdisjoint((one.name, one.type, one.answer)):
                continue
            said = f"{one.type}: {one.message}"
            calls = " ".join(part for _, function, code in one.frames[-2:] for part in (function, code))
            wanted = ((self.saying, said), (self.calling, calls))
            right = all(pattern is None or _holds(pattern, text) for pattern, text in wanted)
            if right and not (self.unless is not None and _holds(self.unless, said)):
                yield Source.exception, self.weight * share, _short(one.line)


class NamedClue(Clue, frozen=True, kw_only=True, tag="named"):
    """An exception whose type's own name says it (`SolverDivergedError`): authors name types for what went
    wrong.

    Capital letters count; `unless` is looked for in the name and the message.
    """

    patterns: tuple[str, ...]
    unless: str | None = None

    def find(self, case: Case) -> Found:
        """Every such exception of the text."""
        for one, share in case.reading.shares():
            if not any(_holds(pattern, one.name, re.NOFLAG) for pattern in self.patterns):
                continue
            if self.unless is None or not _holds(self.unless, f"{one.name}: {one.message}", re.NOFLAG):
                yield Source.exception, self.weight * share, _short(one.line)


class EndedClue(Clue, frozen=True, kw_only=True, tag="ended"):
    """A process that ended by one of these signals (`SIGKILL`) or with one of these exit codes; not where the
    text holds `unless`.
    """

    ends: tuple[str | int, ...]
    unless: str | None = None

    def find(self, case: Case) -> Found:
        """One for each end."""
        if self.unless is not None and _holds(self.unless, case.reading.text, re.NOFLAG):
            return
        seen: set[str | int | None] = {*case.reading.signals, *case.reading.exit_codes}
        if case.facts is not None:
            seen |= {case.facts.signal, case.facts.exit_code}
        for end in self.ends:
            if end in seen:
                text = f"ended by {end}" if isinstance(end, str) else f"exit code {end}"
                yield Source.exit, self.weight, text


class StatusClue(Clue, frozen=True, kw_only=True, tag="status"):
    """A server answered with one of these HTTP statuses."""

    codes: tuple[int, ...]

    def find(self, case: Case) -> Found:
        """One for each status."""
        for code in case.reading.http:
            if code in self.codes:
                yield Source.exception, self.weight, f"HTTP status {code}"


class JobStateClue(Clue, frozen=True, kw_only=True, tag="job_state"):
    """The batch system's word for how the job ended, from the record."""

    weight: float = 6.0
    states: tuple[str, ...]

    def find(self, case: Case) -> Found:
        """That the batch system says so."""
        state = None if case.facts is None else case.facts.job_state
        if state is not None and state.upper().split(" ")[0] in self.states:
            yield Source.scheduler, self.weight, f"the batch system says {state}"


class FunctionClue(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="function"
):
    """A function of `functions.CLUES` that finds signs."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in CLUES:
            raise ValueError(f"there is no function {self.name!r}")

    def find(self, case: Case) -> Found:
        """What the function finds."""
        return CLUES[self.name](case)


class DataRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule made of clues, and of what to suggest."""

    description: str
    """What happened, in a sentence."""
    clues: tuple[
        SaysClue
        | ReportsClue
        | ErrnoClue
        | RaisedClue
        | NamedClue
        | EndedClue
        | StatusClue
        | JobStateClue
        | FunctionClue,
        ...,
    ]
    general: tuple[str, ...] = msgspec.field(name="suggestions")
    """What to do, the most useful first."""
    suggestions_in_jobs: tuple[str, ...] = ()
    """What to do beside the first of these where a batch system is involved, or only a text is known."""
    suggested_by: str | None = None
    """A function of `functions.SUGGESTIONS` that names the case's own values; its suggestions come first."""

    def __post_init__(self) -> None:
        if self.suggested_by is not None and self.suggested_by not in SUGGESTIONS:
            raise ValueError(f"there is no function {self.suggested_by!r}")

    def signs(self, case: Case, /) -> Iterator[Sign]:
        """Every clue's signs."""
        for clue in self.clues:
            for source, weight, text in clue.find(case):
                yield Sign(source=source, weight=weight, text=text)

    def suggestions(self, case: Case, /) -> list[str]:
        """What to do, the most useful first."""
        own = SUGGESTIONS[self.suggested_by](case) if self.suggested_by is not None else []
        in_jobs = self.suggestions_in_jobs if case.facts is None or case.facts.in_job else ()
        return [*own, *self.general[:1], *in_jobs, *self.general[1:]]


def own_rules(folder: Path = FOLDER) -> dict[str, DataRule]:
    """The rules of a folder, by class, which is the name of the file; none is compiled yet."""
    files = {file.stem: _read(file.read_text("utf-8"), file.name) for file in sorted(folder.glob("*.toml"))}
    shared = {
        f"{name}.{key}": value
        for name, data in files.items()
        for key, value in data.get("shared", {}).items()
    }
    return {name: _rule(data, f"{name}.toml", shared) for name, data in files.items()}


def parse_rule(text: str, name: str = "the rule") -> DataRule:
    """A rule from the text of its TOML file; raises ValueError, with the name, where it is none."""
    return _rule(_read(text, name), name, {})


def _read(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name}: {error}") from error


def _rule(data: dict[str, Any], name: str, shared: Mapping[str, Any]) -> DataRule:
    own = {**shared, **data.pop("shared", {})}

    def pattern(value: str) -> str:
        joined = "".join(line.strip() for line in value.split("\n")) if "\n" in value else value
        return _REFERENCE.sub(lambda found: any_of(own[found[1]]), joined)

    def any_of(value: str | list[str]) -> str:
        return pattern(value) if isinstance(value, str) else "|".join(map(pattern, value))

    try:
        for clue in data.get("clues", ()):
            for key in {"saying", "calling", "unless", "weakened_by"} & clue.keys():
                clue[key] = any_of(clue[key])
            if "patterns" in clue:
                clue["patterns"] = [pattern(one) for one in clue["patterns"]]
        return msgspec.convert(data, DataRule)
    except KeyError as error:
        raise ValueError(f"{name}: there is no shared pattern {error}") from error
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {error}") from error


_REFERENCE = re.compile(r"\{([a-z_.]+)\}")


class RuleSet(dict[str, Rule]):
    """Rules by the class they speak for, with what was wrong with those that could not be used."""

    problems: tuple[str, ...] = ()


@cache
def load_rules() -> RuleSet:
    """Our rules and every one that an installed package offers, by class; broken ones of theirs are named,
    never fatal.

    A package's rule for a class that we have a rule for takes its place.
    """
    offered = load_all(ENTRY_POINTS, _problem_with)
    rules = RuleSet(sorted({**own_rules(), **offered.found}.items()))
    rules.problems = tuple(
        f"rule {name!r} cannot be used: {why}"
        for name, why in offered.failed.items()
        if not why.startswith("flightlog.")  # left over in the metadata of a version that had them there
    )
    return rules


def _problem_with(rule: Rule) -> str | None:
    usable = callable(getattr(rule, "signs", None)) and callable(getattr(rule, "suggestions", None))
    return None if usable else "has no `signs` and `suggestions` to call"


def _search(
    case: Case, patterns: tuple[str, ...], weight: float, source: Source, unless: str | None, *, cased: bool
) -> Found:
    """The line that counts most of those that hold one of the patterns."""
    masked, flags = source is Source.words, re.NOFLAG if cased else re.I
    best: tuple[float, str] | None = None
    for passage in case.reading.passages:
        share = 1.0 if source in _FINAL else passage.share
        if best is not None and share <= best[0]:
            continue
        text, lowered = passage.words if masked else passage.forms
        at = line_with(patterns, text, lowered, unless=unless, flags=flags)
        if at is not None:
            line = passage.line(text.count("\n", 0, at))
            best = (share * DiagnosisLimits.guess_weight if masked and _GUESS.search(line) else share, line)
    if best is not None:
        yield source, weight * best[0], _short(best[1])


def line_with(
    patterns: Iterable[str], text: str, lowered: str, *, unless: str | None = None, flags: re.RegexFlag = re.I
) -> int | None:
    """Where the first line starts that holds the first of the patterns that a line holds; None where no line
    holds one. Lines that hold `unless` do not count.

    `lowered` is the text in small letters, character for character.
    """
    for pattern in patterns:
        words = needed(pattern)
        lines = (found.span() for found in re.finditer(r"[^\n]+", text))
        for start, end in lines if words is None else _lines_with(lowered, words):
            line = text[start:end]
            if _holds(pattern, line, flags) and not (unless is not None and _holds(unless, line, flags)):
                return start
    return None


def _holds(pattern: str, text: str, flags: re.RegexFlag = re.I) -> bool:
    return _compiled(pattern, flags).search(text) is not None


@cache
def _compiled(pattern: str, flags: re.RegexFlag) -> re.Pattern[str]:
    """A pattern, compiled when it is first needed: of a thousand, a text needs a few."""
    return re.compile(pattern, flags)


def _short(line: str) -> str:
    return cut(" ".join(line.split()), DiagnosisLimits.max_evidence_characters)


@cache
def needed(pattern: str) -> frozenset[str] | None:
    """Words in small letters, one of which is in every text that matches; None where that cannot be told."""
    try:
        from re import _parser  # type: ignore[attr-defined]
    except ImportError:  # it is private; without it every line is tried
        return None
    return _needed(_parser.parse(pattern))


def _needed(parsed: Iterable[tuple[Any, Any]]) -> frozenset[str] | None:
    """The same of a parsed pattern: pairs of an operation and what it applies to."""
    best: frozenset[str] | None = None
    run = ""
    for operation, value in parsed:
        match operation.name:
            case "LITERAL":
                run += chr(value)
                continue
            case "AT":  # stands for no character: the word goes on
                continue
            case "SUBPATTERN":
                inside = _needed(value[-1])
            case "MAX_REPEAT" | "MIN_REPEAT" if value[0] > 0:
                inside = _needed(value[2])
            case "BRANCH":
                each = [_needed(one) for one in value[1]]
                words = frozenset[str]().union(*(one for one in each if one is not None))
                few = len(words) <= DiagnosisLimits.max_words_per_pattern
                inside = words if few and None not in each else None
            case _:
                inside = None
        best, run = _better(_better(best, _word(run)), inside), ""
    return _better(best, _word(run))


def _word(run: str) -> frozenset[str] | None:
    long = len(run) >= DiagnosisLimits.min_word_letters
    return frozenset({run.lower()}) if long and run.isascii() else None


def _better(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """The choice that fewer lines will hold: the longer words, then the fewer."""
    if one is None or other is None:
        return one if other is None else other
    return max(one, other, key=lambda words: (min(6, *map(len, words)), -len(words)))


def _lines_with(lowered: str, words: frozenset[str]) -> list[tuple[int, int]]:
    """Lines that hold one of the words, in the order of the text, `max_lines_per_word` at most of each."""
    found = set()
    for word in words:
        at = lowered.find(word)
        for _ in range(DiagnosisLimits.max_lines_per_word):
            if at < 0:
                break
            start, end = lowered.rfind("\n", 0, at) + 1, lowered.find("\n", at)
            end = len(lowered) if end < 0 else end
            found.add((start, end))
            at = lowered.find(word, end)
    return sorted(found)
