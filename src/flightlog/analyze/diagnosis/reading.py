"""A failure text, taken apart: exceptions with their root cause, lines of the log, exit codes, signals,
statuses.

Everything here is about form; what a form means is for the rules to say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from flightlog.analyze.diagnosis.causes import root_of, share_of
from flightlog.analyze.diagnosis.endings import exit_codes, signals, statuses
from flightlog.analyze.diagnosis.exceptions import Raised, read_exceptions
from flightlog.analyze.diagnosis.lines import QUIET, Line, prose, read_lines, without_addresses
from flightlog.analyze.diagnosis.patterns import small_letters


class Passage(Struct, frozen=True, kw_only=True):
    """A part of the text, with how much its words count: the root cause's message more than a passing
    warning.
    """

    text: str
    forms: tuple[str, str]
    """Without addresses and paths, as it is and in small letters; line by line the same lines."""
    words: tuple[str, str]
    """Likewise, and without names of files and quoted single words."""
    share: float
    """0 to 1."""

    def line(self, number: int) -> str:
        """A line as it stands in the text."""
        return self.text.split("\n")[number]


class Reading(Struct, frozen=True, kw_only=True):
    """What a text shows. Empty where there was no text."""

    text: str = ""
    """As read: without prefixes, the ends of a long text."""
    exceptions: tuple[Raised, ...] = ()
    """In the order in which they happened, as far as the text tells."""
    root: Raised | None = None
    """The one that the others came of."""
    last: Raised | None = None
    passages: tuple[Passage, ...] = ()
    exit_codes: tuple[int, ...] = ()
    """Of processes that ended so, in the order of the text; negative is a signal's number."""
    signals: tuple[str, ...] = ()
    """`SIGKILL`, …, from words, exit codes above 128 and negative ones; in the order of the text."""
    http: tuple[int, ...] = ()
    """Status codes of 400 and above, where the text says that they are."""

    def shares(self) -> list[tuple[Raised, float]]:
        """Every exception with how much it counts as the cause: the root 1, what came of it less."""
        return [(one, 1.0 if one is self.root else share_of(one, self.root)) for one in self.exceptions]


def read_text(text: str, exception_type: str | None = None) -> Reading:
    """Take a text apart; never raises, and takes time in proportion to at most 128 KiB of it.

    `exception_type` is the type of the last Python exception where the caller knows it: it is added where the
    text does not show it.
    """
    lines = read_lines(text)
    found, taken = read_exceptions(lines)
    if exception_type and (name := exception_type.strip()) and not _shown(found, name):
        message = "" if found else _plain(lines)
        found.append(Raised(type=name[:200], message=message))
        if message:
            taken = set(range(len(lines)))
    root = root_of(found)
    told = [one for one in found if not one.mentioned] or found
    log = [line for at, line in enumerate(lines) if at not in taken and line.text.strip()]
    whole = "\n".join(line.text for line in lines)
    codes = exit_codes(whole)
    return Reading(
        text=whole.strip("\n"),
        exceptions=tuple(found),
        root=root,
        last=told[-1] if told else None,
        passages=tuple(_passages(found, root, log)),
        exit_codes=codes,
        signals=signals(whole, codes),
        http=statuses(whole),
    )


def _shown(found: Sequence[Raised], name: str) -> bool:
    last = re.split(r"[.:]+", name)[-1]
    return any(one.name == last for one in found)


def _plain(lines: Sequence[Line]) -> str:
    return "\n".join(line.text for line in lines).strip()[:4_000]


def _passages(found: Sequence[Raised], root: Raised | None, log: Sequence[Line]) -> list[Passage]:
    said = [] if root is None else [(f"{root.type}: {_words(root)}", 1.0)]
    for one in found:
        if one is not root:
            said.append((f"{one.type}: {_words(one)}", share_of(one, root)))
    loud = "\n".join(line.text for line in log if line.level not in QUIET)
    quiet = "\n".join(line.text for line in log if line.level in QUIET)
    said += [
        (loud, 0.8 if root is not None else 1.0),
        (quiet, 0.4 if root is not None or loud.strip() else 0.8),
        (_rejoined(log), 0.75 if root is not None else 0.95),
    ]
    return [_passage(text, share) for text, share in said if text.strip()]


WRAPPED = 30
"""Characters that a line must have to be one that a terminal or an editor wrapped."""
REJOINED = 200
"""Sentences put together again, the last ones: a log of prose must not take twice the time."""


def _rejoined(log: Sequence[Line]) -> str:
    """Sentences that go on in the next line, each on one line: a phrase may stand across the break."""
    found = [
        f"{one.text.rstrip()} {after.text.strip()}"
        for one, after in pairwise(log)
        if one.level not in QUIET
        and after.level is None
        and len(one.text) >= WRAPPED
        and one.text.rstrip()[-1:].isalpha()
        and after.text.lstrip()[:1].islower()
    ]
    return "\n".join(found[-REJOINED:])


def _passage(text: str, share: float) -> Passage:
    forms, words = without_addresses(text), prose(text)
    return Passage(
        text=text,
        forms=(forms, small_letters(forms)),
        words=(words, small_letters(words)),
        share=share,
    )


def _words(raised: Raised) -> str:
    """The message; a `KeyError` names a key, which says nothing by its words."""
    return "" if raised.name == "KeyError" and " " not in raised.message.strip() else raised.message
