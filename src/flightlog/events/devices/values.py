"""Single values of a device-memory record: what they must be, and what is said of one that is not."""

from __future__ import annotations

from typing import Any


def is_whole(value: Any) -> bool:
    """Whether a value is an integer; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def whole(value: Any, field: str) -> int:
    """An integer."""
    if is_whole(value):
        return int(value)
    raise ValueError(f"{field} must be an integer")


def optional_whole(value: Any, field: str) -> int | None:
    """An integer or None."""
    return None if value is None else whole(value, field)


def at_least(least: int, value: int | None, field: str, when: str = "") -> None:
    """Refuse a number that is too small; None is unknown, and fine."""
    if value is not None and value < least:
        raise ValueError(f"{field} must be >= {least}{when}")


def whole_from(least: int, value: Any, field: str) -> int:
    """An integer that is not too small."""
    number = whole(value, field)
    at_least(least, number, field)
    return number


def text(value: Any, field: str) -> str:
    """Text that is not blank."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{field} must be a string")
    if value is None or not value.strip():
        raise ValueError(f"{field} must be a non-empty string")
    return value


def optional_text(value: Any, field: str) -> str | None:
    """Text that is not blank, or None."""
    return None if value is None else text(value, field)


def any_text(value: Any, field: str) -> str | None:
    """Text, which may be blank, or None."""
    if value is None or isinstance(value, str):
        return value
    raise ValueError(f"{field} must be a string")


def json_object(value: Any) -> dict[str, Any]:
    """A copy of a record's metadata."""
    if not isinstance(value, dict):
        raise ValueError("metadata must be an object")  # noqa: TRY004 - one error type for all bad records
    return dict(value)
