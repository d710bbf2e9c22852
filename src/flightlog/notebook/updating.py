"""Displays that are shown once and changed later, through IPython."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import copy_context
from html import unescape
from importlib import import_module
from typing import Any, Protocol


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


def _bundle(html: str) -> dict[str, str]:
    """The HTML, and its words for a console that shows none."""
    words = " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())
    return {"text/html": html, "text/plain": words}


def show_here(html: str) -> Shown:
    """Show HTML below the cell that runs."""
    return _OnPage(import_module("IPython.display"), html)


def show_from_here(show: Callable[[str], Shown]) -> Callable[[str], Shown]:
    """The same for another thread to call: it shows below the cell that runs now.

    The kernel finds the place by the context. Updates need none, and reach their display whatever cell runs then.
    """
    context = copy_context()
    return lambda html: context.run(show, html)


def display_here(value: object) -> None:
    """Show a value below the cell that runs, as it shows itself."""
    ipython: Any = import_module("IPython.display")
    ipython.display(value)
