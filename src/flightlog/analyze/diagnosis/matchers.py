"""What rules are made of: matchers, each of which searches a case for one kind of sign.

A clue counts in full where it is found in the root cause, and less in what came of it or in a passing
warning. What a kernel or a batch system says counts in full wherever it stands: it ends the job, whatever the
program said before.

A rule has dozens of phrases, a log thousands of lines. So each alternative of a pattern is read for the plain
words of which one must be there (`needed`), and only lines that hold one are matched (`Phrases`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from flightlog.analyze.diagnosis.base import Case, RunFacts, Sign, Source
from flightlog.analyze.diagnosis.text import names
from flightlog.core.text import cut

Clue = Callable[[Case], Iterable[Sign]]
LONGEST_EVIDENCE = 240
GUESSED = 0.5
"""Part of the weight that words keep on a line that only supposes a cause ("perhaps out of memory?")."""
_GUESS = re.compile(
    r"\b(?:perhaps|maybe|possibly|presumably|likely (?:due|because|caused)|might (?:be|have)"
    r"|could be (?:due|caused))\b",
    re.I,
)
_FINAL = frozenset({Source.kernel, Source.scheduler})
"""What they say counts in full wherever it stands."""

ERRNO = {
    "EPERM": (1, "Operation not permitted"),
    "ENOENT": (2, "No such file or directory"),
    "EIO": (5, "Input/output error"),
    "ENOMEM": (12, "Cannot allocate memory"),
    "EACCES": (13, "Permission denied"),
    "ENODEV": (19, "No such device"),
    "ENOTDIR": (20, "Not a directory"),
    "EISDIR": (21, "Is a directory"),
    "EFBIG": (27, "File too large"),
    "ENOSPC": (28, "No space left on device"),
    "EROFS": (30, "Read-only file system"),
    "EPIPE": (32, "Broken pipe"),
    "EADDRINUSE": (98, "Address already in use"),
    "ENETUNREACH": (101, "Network is unreachable"),
    "ECONNRESET": (104, "Connection reset by peer"),
    "ENOTCONN": (107, "Transport endpoint is not connected"),
    "ESHUTDOWN": (108, "Cannot send after transport endpoint shutdown"),
    "ETIMEDOUT": (110, "Connection timed out"),
    "ECONNREFUSED": (111, "Connection refused"),
    "EHOSTDOWN": (112, "Host is down"),
    "EHOSTUNREACH": (113, "No route to host"),
    "ESTALE": (116, "Stale (?:NFS )?file handle"),
    "EDQUOT": (122, "Disk quota exceeded"),
}
"""Numbers as on Linux, and glibc's texts."""


class Clues:
    """A rule made of clues, and of what to suggest."""

    def __init__(self, *clues: Clue, suggest: Callable[[Case], list[str]] | Sequence[str]) -> None:
        self._clues = clues
        self._suggest = suggest

    def signs(self, case: Case, /) -> Iterator[Sign]:
        """Every clue's signs."""
        for clue in self._clues:
            yield from clue(case)

    def suggestions(self, case: Case, /) -> list[str]:
        """What to do, the most useful first."""
        return self._suggest(case) if callable(self._suggest) else list(self._suggest)


def recorded(look: Callable[[RunFacts], Iterable[Sign]]) -> Clue:
    """What a function finds in the facts of the record; nothing where there is a text alone."""
    return lambda case: () if case.facts is None else look(case.facts)


def raised(
    weight: float,
    *types: str,
    saying: str | None = None,
    unless: str | None = None,
    calling: str | None = None,
) -> Clue:
    """An exception of one of these types (`MemoryError`, or with its module: `torch.OutOfMemoryError`), or a
    service's answer of that name; several names may stand in one string.

    `saying` and `unless` are patterns that its message must and must not hold; `calling` one that its
    innermost function and source line must hold.
    """
    kinds = names(*types)

    def look(case: Case) -> Iterator[Sign]:
        for one, share in case.reading.shares():
            if not kinds & {one.name, one.type, one.answer}:
                continue
            told = f"{one.type}: {one.message}"
            calls = " ".join((*one.functions[-2:], *one.code[-2:]))
            if not _holds(saying, told) or not _holds(calling, calls) or (unless and _holds(unless, told)):
                continue
            yield Sign(source=Source.exception, weight=weight * share, text=_short(one.line))

    return look


def _holds(pattern: str | None, text: str, flags: re.RegexFlag = re.I) -> bool:
    """Whether the pattern is in the text; no pattern is in every text."""
    return pattern is None or compiled(pattern, flags).search(text) is not None


def named(weight: float, *patterns: str, unless: str | None = None) -> Clue:
    """An exception whose type's own name says it (`SolverDivergedError`): authors name types for what went
    wrong.

    Capital letters count; `unless` is looked for in the name and the message.
    """
    pattern = "|".join(patterns)

    def look(case: Case) -> Iterator[Sign]:
        for one, share in case.reading.shares():
            if not _holds(pattern, one.name, re.NOFLAG):
                continue
            if unless is None or not _holds(unless, f"{one.name}: {one.message}", re.NOFLAG):
                yield Sign(source=Source.exception, weight=weight * share, text=_short(one.line))

    return look


def says(weight: float, *patterns: str, unless: str | None = None, case: bool = False) -> Clue:
    """Words, outside file names, addresses and quoted names, small and capital letters alike unless `case`.

    Not on a line that holds `unless`. The weakest of sources.
    """
    return _search("|".join(patterns), weight, unless, Source.words, case)


def reports(
    weight: float, *patterns: str, source: Source = Source.scheduler, unless: str | None = None
) -> Clue:
    """A line in the form that a batch system, an engine, a runtime or the kernel writes; capital letters
    count.
    """
    return _search("|".join(patterns), weight, unless, source, True)


def _search(pattern: str, weight: float, unless: str | None, source: Source, cased: bool) -> Clue:
    phrases = Phrases(pattern, cased=cased, unless=unless)
    masked = source is Source.words

    def look(case: Case) -> Iterator[Sign]:
        best: tuple[float, str] | None = None
        for passage in case.reading.passages:
            share = max(passage.share, 0.8) if source in _FINAL else passage.share
            if best is not None and share <= best[0]:
                continue
            text, lowered = passage.words if masked else passage.forms
            at = phrases.line(text, lowered)
            if at is not None:
                line = passage.line(text.count("\n", 0, at))
                best = (share * GUESSED if masked and _GUESS.search(line) else share, line)
        if best is not None:
            yield Sign(source=source, weight=weight * best[0], text=_short(best[1]))

    return look


def errno(name: str, weight: float, *, unless: str | None = None) -> Clue:
    """A system call's error, by number, by name or by the text that the C library has for it."""
    number, words = ERRNO[name]
    pattern = (
        rf"\[Errno {number}\]|\(?os error {number}\)?|\berrno[ =:]{{1,3}}{number}\b|\b{name}\b|(?:^"
        rf"|[^'\"\w]){words}"
    )
    return _search(pattern, weight, unless, Source.exception, False)


def ended(*ends: str | int, weight: float) -> Clue:
    """A process that ended by one of these signals (`SIGKILL`) or with one of these exit codes."""

    def look(case: Case) -> Iterator[Sign]:
        facts, reading = case.facts, case.reading
        signals = (*(() if facts is None or facts.signal is None else (facts.signal,)), *reading.signals)
        codes = (
            *(() if facts is None or facts.exit_code is None else (facts.exit_code,)),
            *reading.exit_codes,
        )
        for end in ends:
            if end in signals or end in codes:
                said = f"ended by {end}" if isinstance(end, str) else f"exit code {end}"
                yield Sign(source=Source.exit, weight=weight, text=said)

    return look


def status(*codes: int, weight: float) -> Clue:
    """A server answered with one of these HTTP statuses."""

    def look(case: Case) -> Iterator[Sign]:
        for code in case.reading.http:
            if code in codes:
                yield Sign(source=Source.exception, weight=weight, text=f"HTTP status {code}")

    return look


def job_state(*states: str, weight: float = 6.0) -> Clue:
    """The batch system's word for how the job ended, from the record."""

    def look(case: Case) -> Iterator[Sign]:
        said = None if case.facts is None else case.facts.job_state
        if said is not None and said.upper().split(" ")[0] in states:
            yield Sign(source=Source.scheduler, weight=weight, text=f"the batch system says {said}")

    return look


def _short(line: str) -> str:
    return cut(" ".join(line.split()), LONGEST_EVIDENCE)


SHORTEST = 3
"""Letters that a word needs to be worth looking for."""
MOST_WORDS = 24
LINES = 200
"""Lines tried for one alternative and word."""


def alternatives(pattern: str) -> list[str]:
    """A pattern split at its outermost `|`."""
    found, depth, start, at = [], 0, 0, 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 1
        elif character == "[":
            at = _after_set(pattern, at) - 1
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "|" and not depth:
            found.append(pattern[start:at])
            start = at + 1
        at += 1
    return [*found, pattern[start:]]


def needed(pattern: str) -> frozenset[str] | None:
    """Words in small letters, one of which is in every text that matches; None where that cannot be told.

    Understands what the rules use: groups, sets, escapes, quantifiers and looks around.
    """
    choices = alternatives(pattern)
    if len(choices) > 1:
        each = [needed(one) for one in choices]
        words = frozenset().union(*(one for one in each if one is not None))
        return words if None not in each and len(words) <= MOST_WORDS else None
    best: frozenset[str] | None = None
    run = ""
    for piece, group, optional in _pieces(pattern):
        if group is None and not optional and piece:
            run += piece
            continue
        best, run = _better(best, _word(run)), ""
        if group is not None and not optional:
            best = _better(best, needed(group))
    return _better(best, _word(run))


def _word(run: str) -> frozenset[str] | None:
    return frozenset({run.lower()}) if len(run) >= SHORTEST and run.isascii() else None


def _better(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """The choice that fewer lines will hold: the longer words, then the fewer."""
    if one is None or other is None:
        return one if other is None else other
    return max(one, other, key=lambda words: (min(6, *map(len, words)), -len(words)))


def _pieces(pattern: str) -> Iterator[tuple[str, str | None, bool]]:
    """Literal character (empty: one that is not fixed), group's content, and whether it may be missing, in
    order.
    """
    at = 0
    while at < len(pattern):
        character, group, literal = pattern[at], None, ""
        if character == "(":
            end = _after_group(pattern, at)
            group, at = _inside(pattern[at + 1 : end - 1]), end
        elif character == "[":
            at = _after_set(pattern, at)
        elif character == "\\":
            escaped = pattern[at + 1 : at + 2]
            at += 2
            if escaped in "bBAZ":
                continue  # stands for no character: the word goes on
            literal = "" if escaped.isalnum() else escaped
        else:
            literal = "" if character in ".^$" else character
            at += 1
            if character in "^$":
                continue
        least, at = _quantifier(pattern, at)
        if least is None:
            yield literal, group, False
        else:
            yield "", group, least == 0


def _inside(content: str) -> str | None:
    """What a group must match; None where it matches nothing by itself, or is not understood."""
    if not content.startswith("?"):
        return content
    if content.startswith("?:"):
        return content[2:]
    flags = re.match(r"\?[-a-z]+:", content)
    return content[flags.end() :] if flags else None


def _quantifier(pattern: str, at: int) -> tuple[int | None, int]:
    """The least number of times, None for exactly once; and where the pattern goes on."""
    found = _QUANTIFIER.match(pattern, at)
    if found is None:
        return None, at
    least = 1 if found[0].startswith("+") else int(found[1] or 0) if found[0].startswith("{") else 0
    return least, found.end()


def _after_set(pattern: str, at: int) -> int:
    end = at + 2 if pattern[at + 1 : at + 2] == "^" else at + 1
    end += pattern[end : end + 1] == "]"
    while end < len(pattern) and pattern[end] != "]":
        end += 2 if pattern[end] == "\\" else 1
    return end + 1


def _after_group(pattern: str, at: int) -> int:
    depth = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif pattern[at] == "[":
            at = _after_set(pattern, at) - 1
        elif pattern[at] in "()":
            depth += 1 if pattern[at] == "(" else -1
            if not depth:
                return at + 1
        at += 1
    return at


_QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d*),?\d*\})[?+]?")


class Phrases:
    """Alternatives to look for, line by line."""

    def __init__(self, pattern: str, *, cased: bool, unless: str | None = None) -> None:
        self._flags = re.NOFLAG if cased else re.I
        self._choices = [(one, needed(one)) for one in alternatives(pattern)]
        self._unless = unless

    def line(self, text: str, lowered: str) -> int | None:
        """Where the first line starts that one of the alternatives is found on; None where there is none.

        `lowered` is the text in small letters, character for character.
        """
        for wanted, words in self._choices:
            for start, end in _lines(text) if words is None else _lines_with(lowered, words):
                line = text[start:end]
                if compiled(wanted, self._flags).search(line) and not self._against(line):
                    return start
        return None

    def _against(self, line: str) -> bool:
        return self._unless is not None and compiled(self._unless, self._flags).search(line) is not None


@cache
def compiled(pattern: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """A pattern, compiled when it is first needed: of a thousand, a text needs a few."""
    return re.compile(pattern, flags)


def _lines(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while start <= len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if end > start:
            yield start, end
        start = end + 1


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
