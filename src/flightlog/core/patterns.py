"""Regular expressions that a user gives: whether they can be used, and how long a text they may see at once.

Python's `re` tries one way to match after the other, so the time of an innocent pattern such as `a*a*a*b`
grows with the third power of the text, and that of `(a+)+b` exponentially. Nothing can interrupt it. So the
work is estimated from the pattern alone, never too low: a repetition counts as one that may end anywhere if
what follows it can begin with a character that it could have taken, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

PIECES = (4096, 2048, 1024, 512, 256)
"""Lengths of text that a pattern may see at once."""
_MOST_STEPS = 5e8
"""Steps that a pattern may take for one such text: about a second at worst, and a small part of that for most
texts."""

_CHECKS = frozenset({"AT", "ASSERT", "ASSERT_NOT"})
"""What takes no character, and may fail."""
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
_SAMPLES = frozenset({*range(256), 0x3B1, 0x660, 0x2028, 0x4E2D, 0x1F600})
"""Characters that stand for all: ASCII, Latin-1, and a letter, a digit, a blank and a sign of others."""
_Parsed = Sequence[tuple[Any, Any]]


def pattern_problem(pattern: str) -> str | None:
    """Why a pattern cannot be used for redaction; None for one that can. See `piece_length`."""
    try:
        compiled = re.compile(pattern)
        parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
        nested = _repeats_repetition(parsed, False) and not _is_plain(pattern)
        length = piece_length(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is no regular expression ({error})"
    if compiled.match("") is not None:
        return "matches the empty text"
    # The words of a pattern may be the secret itself.
    shown = re.sub(r"\w{4,}", "…", pattern[:80])
    if nested:
        return f"repeats a repetition or a choice, which may take for ever: {shown}"
    if length is None:
        return f"has too many repetitions that can match the same text, which may take for ever: {shown}"
    return None


@lru_cache(maxsize=256)
def piece_length(pattern: str) -> int | None:
    """How many characters of text a pattern may see at once so that its time is bounded; None where there is
    no such length.

    4096, or less where several repetitions of the pattern can match the same text. Raises `re.error` for what
    is no pattern.
    """
    parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
    ignores_case = (
        bool(parsed.state.flags & re.IGNORECASE) or re.search(r"\(\?[a-zA-Z]*i", pattern) is not None
    )
    work = _Work(_SAMPLES | _characters(parsed), parsed.state, ignores_case)
    return next((length for length in PIECES if work.steps(parsed, length) <= _MOST_STEPS), None)


class _Work:
    """Estimates the steps of a pattern, over an alphabet that has every character that the pattern names, and
    its neighbours.
    """

    def __init__(self, alphabet: frozenset[int], state: Any, ignores_case: bool) -> None:
        self._alphabet, self._state = alphabet, state
        self._flags = {0, re.IGNORECASE} if ignores_case else {0}
        self._length = 0
        self._sets: dict[str, frozenset[int]] = {}

    def steps(self, parsed: _Parsed, length: int) -> float:
        """Steps of a search in a text of this length, at most."""
        self._length = length
        return length * self._sequence(parsed, frozenset())[1]

    def _sequence(self, parsed: _Parsed, following: frozenset[int]) -> tuple[float, float]:
        """In how many ways a sequence may match at one place, and in how many steps; `following` can begin
        what comes behind.
        """
        ways, steps = 1.0, 1.0
        checked = False
        for kind, argument in reversed(list(parsed)):
            name = str(kind)
            its_ways, its_steps = self._item(name, argument, self._alphabet if checked else following)
            steps = its_steps + its_ways * steps
            ways *= its_ways
            if name in _CHECKS:
                # May fail, although nothing follows; and what looks ahead or behind does its work at every
                # place.
                checked = checked or not following or name != "AT"
                continue
            first, may_be_empty = self._first_of(kind, argument)
            following = following | first if may_be_empty else first
            checked = checked and may_be_empty
        return ways, steps

    def _item(self, kind: str, argument: Any, following: frozenset[int]) -> tuple[float, float]:
        if kind in _REPEATS:
            return self._repeat(kind, argument, following)
        if kind == "SUBPATTERN":
            return self._sequence(argument[3], following)
        if kind in {"ATOMIC_GROUP", "ASSERT", "ASSERT_NOT"}:
            body = argument if kind == "ATOMIC_GROUP" else argument[1]
            return 1.0, self._sequence(body, self._alphabet)[1]
        if kind in {"BRANCH", "GROUPREF_EXISTS"}:
            branches = [one for one in argument[1 if kind == "BRANCH" else slice(1, None)] if one is not None]
            found = [self._sequence(one, following) for one in branches]
            begins = [self._first(one) for one in branches]
            firsts = [first for first, _ in begins]
            apart = kind == "BRANCH" and sum(map(len, firsts)) == len(frozenset().union(*firsts))
            apart = apart and not any(may_be_empty for _, may_be_empty in begins)
            return (max if apart else sum)(ways for ways, _ in found), sum(steps for _, steps in found)
        return 1.0, float(self._length) if kind.startswith("GROUPREF") else 1.0

    def _repeat(self, kind: str, argument: Any, following: frozenset[int]) -> tuple[float, float]:
        least, most, body = argument
        times = min(int(most), self._length)
        first, _ = self._first(body)
        ways, steps = self._sequence(body, first | following)
        if kind == "POSSESSIVE_REPEAT":
            return 1.0, ways * steps * times
        try:
            ways = ways**times
        except OverflowError:
            ways = float("inf")
        ends = times - int(least) + 1 if times > int(least) and first & following else 1
        return ways * ends, ways * steps * times

    def _first(self, parsed: _Parsed) -> tuple[frozenset[int], bool]:
        """The characters that a sequence can begin with, and whether it may be empty."""
        found: frozenset[int] = frozenset()
        for kind, argument in parsed:
            if str(kind) not in _CHECKS:
                first, may_be_empty = self._first_of(kind, argument)
                found |= first
                if not may_be_empty:
                    return found, False
        return found, True

    def _first_of(self, kind: Any, argument: Any) -> tuple[frozenset[int], bool]:
        name = str(kind)
        if name in _REPEATS:
            first, may_be_empty = self._first(argument[2])
            return first, may_be_empty or int(argument[0]) == 0
        if name == "SUBPATTERN":
            return self._first(argument[3])
        if name == "ATOMIC_GROUP":
            return self._first(argument)
        if name == "BRANCH":
            each = [self._first(one) for one in argument[1]]
            return frozenset().union(*(first for first, _ in each)), any(empty for _, empty in each)
        if name in {"LITERAL", "NOT_LITERAL", "IN"}:
            key = f"{name} {argument}"
            if key not in self._sets:
                one = re._parser.SubPattern(self._state, [(kind, argument)])  # type: ignore[attr-defined]
                make = re._compiler.compile  # type: ignore[attr-defined]
                tried = [make(one, flags) for flags in self._flags]
                self._sets[key] = frozenset(
                    found for found in self._alphabet if any(each.match(chr(found)) for each in tried)
                )
            return self._sets[key], False
        return self._alphabet, name != "ANY"


def _characters(parsed: Any) -> frozenset[int]:
    """Every character that a pattern names, and those beside it."""
    found: set[int] = set()
    pending: list[Any] = [parsed]
    while pending:
        one = pending.pop()
        if isinstance(one, bool) or one is None:
            continue
        if isinstance(one, int):
            found.update(range(max(0, int(one) - 1), min(int(one) + 2, 0x110000)))
        elif isinstance(one, list | tuple) or hasattr(one, "data"):
            pending.extend(one)
    return frozenset(number for number in found if not 0xD800 <= number < 0xE000)


def _is_plain(pattern: str) -> bool:
    """Whether sets of characters can be told apart for certain: ASCII alone, nothing negated, no flags.

    Only then is the estimate of nested repetitions never too low: what upper and lower case, `[^…]` and
    ranges of other scripts have in common is seen by samples alone.
    """
    return pattern.isascii() and not re.search(r"\(\?[aiLmsux]|\[\^|\\[uUxN0-9]", pattern)


def _repeats_repetition(parsed: Any, inside: bool) -> bool:
    """Whether a repetition of more than a few times that may backtrack holds a choice, or another one of
    varying length.
    """
    for kind, argument in parsed:
        name = str(kind)
        if name in _REPEATS:
            least, most, body = argument
            possessive = name == "POSSESSIVE_REPEAT"
            varies = not possessive and int(least) != int(most)
            many = not possessive and int(most) > 8
            if (varies and inside) or _repeats_repetition(body, inside or many):
                return True
        elif name == "SUBPATTERN":
            if _repeats_repetition(argument[3], inside):
                return True
        elif name == "BRANCH":
            if inside or any(_repeats_repetition(branch, inside) for branch in argument[1]):
                return True
        elif name in {"ASSERT", "ASSERT_NOT"}:
            if _repeats_repetition(argument[1], inside):
                return True
        elif name == "ATOMIC_GROUP" and _repeats_repetition(argument, False):
            return True
    return False
