"""How objects of every layer show themselves in a notebook: by name, what `flightlog.notebook` makes of them.

This is the one place below that points upwards. Notebooks alone call it, after the fact; nothing here imports anything
before that.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

NOTEBOOK = "flightlog.notebook"


class Displayed:
    """Gives a class its HTML in notebooks. `repr` stays what it is, for consoles and logs."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """A static piece of HTML without scripts, or None where nothing better than `repr` is known. Never raises."""
        try:
            html = notebook_part("html").html_of(self)
        except Exception as error:  # noqa: BLE001 - a display that fails must not look as if the cell had failed
            from html import escape

            reason = f"{type(error).__name__}: {error}"[:300]
            return f"<pre>{escape(repr(self)[:1000])}\n(cannot be displayed: {escape(reason)})</pre>"
        return html if isinstance(html, str) else None


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
