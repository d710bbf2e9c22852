"""The kinds of clues that a rule is made of, each of which searches a case for one kind of sign.

A clue counts in full where it is found in the root cause, and less in what came of it or in a passing
warning. What a kernel or a batch system says counts in full wherever it stands: it ends the job, whatever the
program said before.

A rule has dozens of phrases, a log thousands of lines. So each phrase is read for the plain words of which
one must be there (`needed`), and only lines that hold one are matched (`line_with`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from msgspec import Struct

from flightlog.analyze.diagnosis.base import Case, Sign, Source
from flightlog.core.text import cut

LONGEST_EVIDENCE = 240
GUESSED = 0.5
"""Part of the weight that words keep on a line that only supposes a cause ("perhaps out of memory?")."""
WEAKENED = 0.3
"""Part of the weight that a clue keeps where the text holds its `weakened_by`."""
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


class Says(Clue, frozen=True, kw_only=True, tag="says"):
    """Words, outside file names, addresses and quoted names, small and capital letters alike unless `case`.

    Not on a line that holds `unless`; with a smaller weight where the whole text holds `weakened_by`. The
    weakest of sources.
    """

    patterns: tuple[str, ...]
    unless: str | None = None
    case: bool = False
    weakened_by: str | None = None

    def signs(self, case: Case, /) -> Iterator[Sign]:
        """The line that counts most."""
        weakened = self.weakened_by is not None and _holds(self.weakened_by, case.reading.text, re.NOFLAG)
        weight = self.weight * WEAKENED if weakened else self.weight
        return _search(case, self.patterns, weight, Source.words, self.unless, cased=self.case)


class Reports(Clue, frozen=True, kw_only=True, tag="reports"):
    """A line in the form that a batch system, an engine, a runtime or the kernel writes; capital letters
    count.
    """

    patterns: tuple[str, ...]
    unless: str | None = None
    source: Source = Source.scheduler

    def signs(self, case: Case, /) -> Iterator[Sign]:
        """The line that counts most."""
        return _search(case, self.patterns, self.weight, self.source, self.unless, cased=True)


class Errno(Clue, frozen=True, kw_only=True, tag="errno"):
    """A system call's error, by number as on Linux, by name or by the text that glibc has for it."""

    name: str
    number: int
    text: str
    unless: str | None = None

    def signs(self, case: Case, /) -> Iterator[Sign]:
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


class Raised(Clue, frozen=True, kw_only=True, tag="raised"):
    """An exception of one of these types (`MemoryError`, or with its module: `torch.OutOfMemoryError`), or a
    service's answer of that name; the names stand in one string, apart by blanks.

    `saying` and `unless` are patterns that its message must and must not hold; `calling` one that its
    innermost function and source line must hold.
    """

    types: str
    saying: str | None = None
    unless: str | None = None
    calling: str | None = None

    def signs(self, case: Case, /) -> Iterator[Sign]:
        """Every such exception of the text."""
        for one, share in case.reading.shares():
            if _names(self.types).isdisjoint((one.name, one.type, one.answer)):
                continue
            said = f"{one.type}: {one.message}"
            calls = " ".join((*one.functions[-2:], *one.code[-2:]))
            if self.saying is not None and not _holds(self.saying, said):
                continue
            if self.calling is not None and not _holds(self.calling, calls):
                continue
            if self.unless is None or not _holds(self.unless, said):
                yield Sign(source=Source.exception, weight=self.weight * share, text=_short(one.line))


class Named(Clue, frozen=True, kw_only=True, tag="named"):
    """An exception whose type's own name says it (`SolverDivergedError`): authors name types for what went
    wrong.

    Capital letters count; `unless` is looked for in the name and the message.
    """

    patterns: tuple[str, ...]
    unless: str | None = None

    def signs(self, case: Case, /) -> Iterator[Sign]:
        """Every such exception of the text."""
        for one, share in case.reading.shares():
            if not any(_holds(pattern, one.name, re.NOFLAG) for pattern in self.patterns):
                continue
            if self.unless is None or not _holds(self.unless, f"{one.name}: {one.message}", re.NOFLAG):
                yield Sign(source=Source.exception, weight=self.weight * share, text=_short(one.line))


class Ended(Clue, frozen=True, kw_only=True, tag="ended"):
    """A process that ended by one of these signals (`SIGKILL`) or with one of these exit codes; not where the
    text holds `unless`.
    """

    ends: tuple[str | int, ...]
    unless: str | None = None

    def signs(self, case: Case, /) -> Iterator[Sign]:
        """One for each end."""
        if self.unless is not None and _holds(self.unless, case.reading.text, re.NOFLAG):
            return
        seen: set[str | int | None] = {*case.reading.signals, *case.reading.exit_codes}
        if case.facts is not None:
            seen |= {case.facts.signal, case.facts.exit_code}
        for end in self.ends:
            if end in seen:
                text = f"ended by {end}" if isinstance(end, str) else f"exit code {end}"
                yield Sign(source=Source.exit, weight=self.weight, text=text)


class Status(Clue, frozen=True, kw_only=True, tag="status"):
    """A server answered with one of these HTTP statuses."""

    codes: tuple[int, ...]

    def signs(self, case: Case, /) -> Iterator[Sign]:
        """One for each status."""
        for code in case.reading.http:
            if code in self.codes:
                yield Sign(source=Source.exception, weight=self.weight, text=f"HTTP status {code}")


class JobState(Clue, frozen=True, kw_only=True, tag="job_state"):
    """The batch system's word for how the job ended, from the record."""

    weight: float = 6.0
    states: tuple[str, ...]

    def signs(self, case: Case, /) -> Iterator[Sign]:
        """That the batch system says so."""
        state = None if case.facts is None else case.facts.job_state
        if state is not None and state.upper().split(" ")[0] in self.states:
            yield Sign(source=Source.scheduler, weight=self.weight, text=f"the batch system says {state}")


def _search(
    case: Case,
    patterns: tuple[str, ...],
    weight: float,
    source: Source,
    unless: str | None,
    *,
    cased: bool,
) -> Iterator[Sign]:
    """The line that counts most of those that hold one of the patterns."""
    masked, flags = source is Source.words, re.NOFLAG if cased else re.I
    best: tuple[float, str] | None = None
    for passage in case.reading.passages:
        share = max(passage.share, 0.8) if source in _FINAL else passage.share
        if best is not None and share <= best[0]:
            continue
        text, lowered = passage.words if masked else passage.forms
        at = line_with(patterns, text, lowered, unless=unless, flags=flags)
        if at is not None:
            line = passage.line(text.count("\n", 0, at))
            best = (share * GUESSED if masked and _GUESS.search(line) else share, line)
    if best is not None:
        yield Sign(source=source, weight=weight * best[0], text=_short(best[1]))


def line_with(
    patterns: Iterable[str],
    text: str,
    lowered: str,
    *,
    unless: str | None = None,
    flags: re.RegexFlag = re.I,
) -> int | None:
    """Where the first line starts that holds the first of the patterns that a line holds; None where no line
    holds one. Lines that hold `unless` do not count.

    `lowered` is the text in small letters, character for character.
    """
    for pattern in patterns:
        words = needed(pattern)
        for start, end in _lines(text) if words is None else _lines_with(lowered, words):
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


@cache
def _names(types: str) -> frozenset[str]:
    return frozenset(types.split())


def _short(line: str) -> str:
    return cut(" ".join(line.split()), LONGEST_EVIDENCE)


SHORTEST = 3
"""Letters that a word needs to be worth looking for."""
MOST_WORDS = 24
LINES = 200
"""Lines tried for one pattern and word."""


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
                inside = words if None not in each and len(words) <= MOST_WORDS else None
            case _:
                inside = None
        best, run = _better(_better(best, _word(run)), inside), ""
    return _better(best, _word(run))


def _word(run: str) -> frozenset[str] | None:
    return frozenset({run.lower()}) if len(run) >= SHORTEST and run.isascii() else None


def _better(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """The choice that fewer lines will hold: the longer words, then the fewer."""
    if one is None or other is None:
        return one if other is None else other
    return max(one, other, key=lambda words: (min(6, *map(len, words)), -len(words)))


def _lines(text: str) -> Iterator[tuple[int, int]]:
    """Where each line that is not empty starts and ends."""
    return (found.span() for found in re.finditer(r"[^\n]+", text))


def _lines_with(lowered: str, words: frozenset[str]) -> list[tuple[int, int]]:
    """Lines that hold one of the words, in the order of the text, `LINES` at most of each word."""
    found = set()
    for word in words:
        at = lowered.find(word)
        for _ in range(LINES):
            if at < 0:
                break
            start, end = lowered.rfind("\n", 0, at) + 1, lowered.find("\n", at)
            end = len(lowered) if end < 0 else end
            found.add((start, end))
            at = lowered.find(word, end)
    return sorted(found)
