"""`%flightlog`: what a notebook asks for in a line."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from flightlog.errors import FlightlogError
from flightlog.notebook.cells import CellRecorder
from flightlog.notebook.live import follow
from flightlog.notebook.notes import Note, begun
from flightlog.show.phrases import count_text

HELP = """%flightlog                 how the recording stands
%flightlog start [NAME]    end the run that is recorded, and begin another
%flightlog stop            end the run
%flightlog report [RUN]    the report of a run; without a name that of this notebook
%flightlog top [RUN]       follow a run until it ends; Interrupt stops looking
%%flightlog NAME           first line of a cell: its task has this name"""


class Magic:
    """The line magic. Gives what is to be displayed; a wish that makes no sense is answered in words, never
    raised.
    """

    def __init__(self, cells: CellRecorder, *, follow: Callable[[Any], None] = follow) -> None:
        self._cells, self._follow = cells, follow

    def __call__(self, line: str) -> object:
        """Do what the line says."""
        try:
            words = shlex.split(line)
        except ValueError:
            words = line.split()
        wish, rest = (words[0], words[1:]) if words else ("status", [])
        wishes: dict[str, Callable[[list[str]], object]] = {
            "status": self._status,
            "start": self._start,
            "stop": self._stop,
            "report": self._report,
            "top": self._top,
            "help": lambda _rest: Note(HELP),
        }
        if wish not in wishes or len(rest) > (wish in {"start", "report", "top"}):
            return Note(f"%flightlog {line.strip()[:80]} is not understood.\n{HELP}")
        try:
            return wishes[wish](rest)
        except FlightlogError as error:
            return Note(str(error))

    def _status(self, _rest: list[str]) -> Note:
        cells = self._cells
        if cells.run is None:
            last = f" The last run is {cells.path}." if cells.path is not None else ""
            return Note(f"No cell is being recorded; `%flightlog start` begins a run.{last}")
        return self._recorded()

    def _start(self, rest: list[str]) -> Note:
        return begun(self._cells.start(rest[0] if rest else None))

    def _stop(self, _rest: list[str]) -> Note:
        if self._cells.run is None:
            return Note("No cell is being recorded.")
        self._cells.stop()
        return self._recorded()

    def _recorded(self) -> Note:
        cells, path = self._cells.cells, self._cells.path
        if path is None or not path.is_dir():
            return Note(f"{path} cannot be written: {count_text(cells, 'cell')} executed and not recorded.")
        return Note(f"{count_text(cells, 'cell')} recorded in {path}")

    def _report(self, rest: list[str]) -> object:
        from flightlog.analyze.completing import open_run
        from flightlog.analyze.report import report_on

        return report_on(open_run(rest[0] if rest else self._cells.path or "latest"))

    def _top(self, rest: list[str]) -> None:
        self._follow(rest[0] if rest else self._cells.path or "latest")
