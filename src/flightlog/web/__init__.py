"""The dashboard: a web server for a folder of runs."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def web_file(name: str) -> str:
    """A style sheet, template or picture of this package."""
    return files(__name__).joinpath(name).read_text("utf-8")
