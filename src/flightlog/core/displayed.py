"""How objects of every layer show themselves in a notebook and in IPython: by name, what `flightlog.notebook`
makes of them.

This is the one place below that points upwards. Notebooks and consoles alone call it, after the fact; nothing
here imports anything before that.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

NOTEBOOK = "flightlog.notebook"


class Displayed:
    """Gives a class its HTML in notebooks, and its text in consoles. `repr` stays what it is, for logs and
    inside of lists.
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_repr_pretty_" not in vars(cls):
            # IPython goes from class to base and takes the first `__repr__` or `_repr_pretty_` that stands in
            # one.
            cls._repr_pretty_ = Displayed._repr_pretty_  # type: ignore[method-assign]

    def _repr_mimebundle_(self, **_asked: Any) -> dict[str, str]:
        """HTML and text at once in a kernel, for which a run is read once; nothing elsewhere, and where that
        fails.
        """
        try:
            bundle: dict[str, str] = notebook_part("display").bundle_of(self) if in_notebook() else {}
        except Exception:  # noqa: BLE001 - each of the two below says why
            return {}
        return bundle

    def _repr_html_(self) -> str | None:
        """A static piece of HTML without scripts, or None where nothing better than `repr` is known. Never
        raises.
        """
        try:
            html = notebook_part("display").html_of(self)
        except Exception as error:  # noqa: BLE001 - a display that fails is no failure of the cell
            from html import escape

            return f"<pre>{escape(_failed(self, error))}</pre>"
        return html if isinstance(html, str) else None

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For IPython: text in lines where this is what is shown; `repr` inside of something else. Never
        raises.
        """
        try:
            alone = not cycle and len(getattr(printer, "stack", ())) <= 1
            words = notebook_part("display").plain_of(self) if alone else None
        except Exception as error:  # noqa: BLE001 - as above
            words = _failed(self, error)
        printer.text(words if isinstance(words, str) else repr(self))


class DisplayedResult(Displayed):
    """What an analysis found, which has a text as well."""

    __slots__ = ()

    def text(self, width: int = 100) -> str:
        """What the command of the same name prints, in lines of at most so many columns."""
        text: str = notebook_part("display").plain_of(self, width)
        return text


def _failed(value: object, error: Exception) -> str:
    return f"{repr(value)[:1000]}\n(cannot be displayed: {f'{type(error).__name__}: {error}'[:300]})"


def notebook_part(name: str) -> ModuleType:
    """A module of `flightlog.notebook`, imported now."""
    return import_module(f"{NOTEBOOK}.{name}")


def in_notebook(modules: Mapping[str, Any] = sys.modules) -> bool:
    """Whether this process is a kernel whose front end shows HTML; nothing is imported to find out."""
    ipython = modules.get("IPython")
    if ipython is None or "ipykernel" not in modules:
        return False
    try:
        return getattr(ipython.get_ipython(), "kernel", None) is not None
    except Exception:  # noqa: BLE001 - a half-imported or other IPython is no notebook
        return False
