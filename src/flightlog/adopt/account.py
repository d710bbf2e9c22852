"""The account of one adoption: what was kept, mapped and dropped, what to know, and what could not be
read.
"""

from __future__ import annotations

MAX_NAMES = 40
"""How many different things of each sort are named; further ones are counted together."""
MAX_PROBLEMS = 20
OTHERS = "others"


class Account:
    """Counts by words, in the order in which the words came up."""

    def __init__(self) -> None:
        self.kept: dict[str, int] = {}
        self.mapped: dict[str, int] = {}
        self.dropped: dict[str, int] = {}
        self.notes: list[str] = []
        self.problems: list[str] = []
        self._unsaid = 0

    def keep(self, what: str, number: int = 1) -> None:
        """So much stands in the run as it was."""
        _count(self.kept, what, number)

    def map(self, what: str, number: int = 1) -> None:
        """So much stands in the run as something else; the words say as what."""
        _count(self.mapped, what, number)

    def drop(self, what: str, number: int = 1) -> None:
        """So much does not stand in the run; the words say why."""
        _count(self.dropped, what, number)

    def note(self, sentence: str) -> None:
        """Something to know before trusting a figure; said once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def problem(self, sentence: str) -> None:
        """Something could not be read; the first ones are said one by one."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(sentence)
        else:
            self._unsaid += 1

    def all_problems(self) -> list[str]:
        """The problems, and how many more there were."""
        return [*self.problems, *([f"and {self._unsaid:,} more"] if self._unsaid else [])]


def _count(counts: dict[str, int], what: str, number: int) -> None:
    if not number:
        return
    if what not in counts and len(counts) >= MAX_NAMES:
        what = OTHERS
    counts[what] = counts.get(what, 0) + number
