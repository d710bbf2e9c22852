"""What a reading of telemetry files met: events, and what was no event."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

MAX_PROBLEMS = 20
"""Problems that are told one by one; all are counted."""


class Tally:
    """Counts of one reading; `strict` makes the first bad record an error instead.

    `read` events were given out. `skipped` records break a rule, or are no records at all. `torn` counts
    files that end in the middle of a record, as those of killed writers do: that is no error even when
    strict.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.read = self.skipped = self.torn = 0
        self.problems: list[str] = []
        self._met = 0

    def skip(self, where: str, error: Exception) -> None:
        """Count a bad record and say what is wrong with it; raise the error when strict."""
        if self.strict:
            raise error
        self.skipped += 1
        self._note(f"{where}: {error}")

    def tear(self, path: Path) -> None:
        """Count a file that ends in the middle of a record."""
        self.torn += 1
        self._note(f"{path.name} ends in the middle of a record")

    def note_gone(self, path: Path) -> None:
        """Say that a file went away, by retention or by hand."""
        self._note(f"{path.name} is not there any more")

    def warnings(self) -> list[str]:
        """All of this in sentences; none for files that are whole."""
        told = list(self.problems)
        if self._met > len(told):
            told.append(f"and {self._met - len(told):,} more")
        return told

    def raise_first(self) -> NoReturn:
        """Fail with the first problem, for a reading that gave nothing at all."""
        raise ValueError(self.problems[0])

    def _note(self, problem: str) -> None:
        self._met += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
