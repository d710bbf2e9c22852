"""A sentence in answer to a magic command."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flightlog.displayed import Displayed
from flightlog.notebook.elements import fragment, line, pre, text
from flightlog.show.terminal import clean

if TYPE_CHECKING:
    from flightlog.record.run import LiveRun


class _Said(NamedTuple):
    words: str


class Note(Displayed, _Said):
    """Words that show themselves as they are, in a console and in a notebook."""

    __slots__ = ()

    def __repr__(self) -> str:
        return self.words


def begun(run: LiveRun | None) -> Note:
    """What is said of a run that was to begin."""
    if run is None:
        return Note("Recording is off, or could not begin: cells are executed and not recorded.")
    if not run.path.is_dir():
        return Note(f"{run.path} cannot be written: cells are executed and not recorded.")
    return Note(f"The cells from the next one on are recorded in {run.path}")


def note_html(note: Note) -> str:
    """The words; several lines, as of a help, in columns."""
    lines = note.words.splitlines()
    if len(lines) > 1:
        return fragment(pre("\n".join(clean(one) for one in lines)))
    return fragment(*(line(text(one, 400)) for one in lines))


def note_plain(note: Note, _width: int) -> str:
    """The words, in their lines, however wide."""
    return "\n".join(clean(one) for one in note.words.splitlines())
