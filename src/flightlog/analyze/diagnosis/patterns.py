"""Regular expressions over long texts in little time: looked for only on lines that hold a word they need.

A rule has dozens of phrases, a log thousands of lines. Each alternative of a pattern is read for the plain
words of which one must be there; finding those is a search for a fixed string, and only the lines where one
stands are matched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

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


def small_letters(text: str) -> str:
    """The text in small letters, as long as it was."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(one.lower()[:1] or one for one in text)


def _lines(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while start <= len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if end > start:
            yield start, end
        start = end + 1


def _lines_with(lowered: str, words: frozenset[str]) -> Iterator[tuple[int, int]]:
    for word in words:
        at = lowered.find(word)
        for _ in range(LINES):
            if at < 0:
                break
            start, end = lowered.rfind("\n", 0, at) + 1, lowered.find("\n", at)
            end = len(lowered) if end < 0 else end
            yield start, end
            at = lowered.find(word, end)
