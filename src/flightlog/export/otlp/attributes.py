"""Values of events as attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from flightlog.export.otlp.model import Attributes

MAX_TEXT = 32 << 10
"""Characters of an attribute's text; the recorder's own bounds are below it, those of foreign runs need not
be."""
MAX_ITEMS = 128


def known(values: Mapping[str, Any]) -> Attributes:
    """The attributes there are values for: unknown ones are left out, empty ones too."""
    return {
        name: plain(value)
        for name, value in values.items()
        if value is not None and (value or not isinstance(value, dict | list))
    }


def prefixed(prefix: str, values: Mapping[str, Any]) -> Attributes:
    """A mapping as one attribute a key, below a common name."""
    return known({f"{prefix}.{key}": value for key, value in list(values.items())[:MAX_ITEMS]})


def plain(value: Any) -> Any:
    """A value that an attribute can hold: text, switch, number, or a list of one kind of these; else JSON
    text.
    """
    kind = type(value)
    if kind is str:
        return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}…"
    if kind is bool:
        return value
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 63 else str(value)
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        items = [plain(item) for item in value[:MAX_ITEMS]]
        if len({type(item) for item in items}) <= 1 and not any(isinstance(item, list) for item in items):
            return items
    return plain(msgspec.json.encode(value).decode())
