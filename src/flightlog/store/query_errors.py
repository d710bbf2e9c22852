"""What DuckDB says of a query that fails, in one line of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_NO_TABLE = re.compile(r"Table with name (?P<name>.+?) does not exist")
_NO_ACCESS = re.compile(r'Cannot access (?:file|directory) "(?P<path>.*?)"')


def explained(error: duckdb.Error, tables: Sequence[str]) -> str:
    """What is wrong with a query, and what would be right, as far as DuckDB knows; `tables` are those there
    are.
    """
    text, _, shown = str(error).partition("\n\nLINE ")
    if match := _NO_ACCESS.search(text):
        return f"a query reads the tables of runs and nothing else: {match['path']} is out of reach"
    if "disabled" in text and "configuration" in text:
        return f"a query reads the tables of runs and nothing else ({_line(text)})"
    if "configuration has been locked" in text:
        return "a query cannot change settings"
    if match := _NO_TABLE.search(text):
        near = get_close_matches(match["name"].casefold(), tables, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        return f"there is no table {match['name']}.{hint} The tables are {', '.join(tables)}."
    where = f" (at {_place(shown)})" if shown and _place(shown) else ""
    return f"the query cannot be answered: {_line(text)}{where}"


def _line(text: str) -> str:
    """The message without its class, on one line."""
    _, _, said = text.partition(": ")
    return "; ".join(part.strip() for part in (said or text).splitlines() if part.strip())


def _place(shown: str) -> str:
    """The piece of the query that the caret points at, from DuckDB's picture of it."""
    lines = shown.splitlines()
    if len(lines) < 2 or "^" not in lines[1]:
        return ""
    source = f"LINE {lines[0]}"
    at = lines[1].index("^")
    return source[at : at + 40].strip()
