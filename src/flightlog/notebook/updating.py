"""Displays that are shown once and changed later, through IPython."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from contextvars import copy_context
from html import unescape
from importlib import import_module
from typing import Any, Protocol

from flightlog.displayed import in_notebook

EVERY_S = 5.0


class Shown(Protocol):
    """A display that is on the page."""

    def update(self, html: str) -> None:
        """Show this in its place."""
        ...


class _OnPage:
    """A display of IPython's, changed by its id."""

    def __init__(self, ipython: Any, html: str) -> None:
        self._handle = ipython.display(_bundle(html), raw=True, display_id=True)

    def update(self, html: str) -> None:
        self._handle.update(_bundle(html), raw=True)


class Printed:
    """The same where nothing that is shown can be changed: all of it once, then its first line, now and then.

    A line is written when the status changes (what stands before the first ` · `), and otherwise at most
    every `EVERY_S`.
    """

    def __init__(
        self,
        html: str,
        *,
        write: Callable[[str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._clock = write or _print, clock
        words = words_of(html)
        self._write(f"{words}\n")
        self._note(words)

    def update(self, html: str) -> None:
        """Write its first line, if it is time."""
        line = words_of(html).partition("\n")[0]
        if line.partition(" · ")[0] != self._status or self._clock() >= self._next:
            self._write(f"{line}\n")
            self._note(line)

    def _note(self, line: str) -> None:
        self._status, self._next = line.partition(" · ")[0], self._clock() + EVERY_S


def _print(words: str) -> None:
    """On standard output, at once; as escapes what its encoding does not have."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(words.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def words_of(html: str) -> str:
    """What HTML of ours says, in lines."""
    broken = re.sub(r"</(?:div|tr|li|table)>|<br>", "\n", html)
    lines = (" ".join(unescape(re.sub(r"<[^>]*>", " ", line)).split()) for line in broken.split("\n"))
    return "\n".join(line for line in lines if line)


def _bundle(html: str) -> dict[str, str]:
    """The HTML, and its words for a front end that shows none."""
    return {"text/html": html, "text/plain": words_of(html)}


def show_here(html: str) -> Shown:
    """Show HTML below the cell that runs; in a console, its words."""
    return _OnPage(import_module("IPython.display"), html) if in_notebook() else Printed(html)


def show_from_here(show: Callable[[str], Shown]) -> Callable[[str], Shown]:
    """The same for another thread to call: it shows below the cell that runs now.

    The kernel finds the place by the context. Updates need none, and reach their display whatever cell runs
    then.
    """
    context = copy_context()
    return lambda html: context.run(show, html)


def display_here(value: object) -> None:
    """Show a value below the cell that runs, as it shows itself."""
    ipython: Any = import_module("IPython.display")
    ipython.display(value)
