"""Results with their long texts cut: a recorded name may be megabytes long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace as replace_fields

from flightlog.show.limits import TextLimits

T = TypeVar("T")


def bounded(result: T, limit: int = TextLimits.max_result_text, *, lines: int = 20) -> T:
    """The same result with every text longer than `limit` characters cut, and the rest counted; numbers stay.

    Multi-line texts, such as tracebacks, may be `lines` times as long, and keep their end. Names that are
    keys stay distinct. A result without long texts is returned itself, not copied.
    """
    found: T = _bounded(result, limit, lines)
    return found


def cut(text: str, limit: int = TextLimits.max_result_text) -> str:
    """The first `limit` characters, and how many more there are."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def _bounded(value: Any, limit: int, lines: int) -> Any:
    if isinstance(value, str):
        return _text(value, limit, lines)
    if isinstance(value, dict):
        return _mapping(value, limit, lines)
    if isinstance(value, list | tuple):
        items = [_bounded(item, limit, lines) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        if isinstance(value, list):
            return items
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    names = getattr(value, "__struct_fields__", None) or getattr(value, "__dataclass_fields__", ())
    if names and not isinstance(value, type):
        parts = {name: _bounded(getattr(value, name), limit, lines) for name in names}
        changed = {name: new for name, new in parts.items() if new is not getattr(value, name)}
        change: Any = replace_fields if isinstance(value, Struct) else replace
        return change(value, **changed) if changed else value
    return value


def _text(text: str, limit: int, lines: int) -> str:
    if "\n" not in text[:limit]:
        return cut(text, limit)
    most = limit * lines
    return text if len(text) <= most else f"… ({len(text) - most:,} characters before)\n{text[-most:]}"


def _mapping(value: dict[Any, Any], limit: int, lines: int) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    same = True
    for key, item in value.items():
        name = cut(key, limit) if isinstance(key, str) else key
        new = _bounded(item, limit, lines)
        same = same and name is key and new is item
        number = 1
        while name in found:  # two long names that begin alike
            number += 1
            name = f"{cut(key, limit)} [{number}]"
        found[name] = new
    return value if same else found
