"""How arguments count: the classes that say so, and what the key of a call is made of."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any

from flightlog.record.artifacts import describe_artifact
from flightlog.session.digest import Unstable, digest_value

SNIFFING = "SCALABLE_PATH_SNIFFING"
OFF_WORDS = ("0", "false", "off")
LONGEST_PATH = 4096


class GenericType:
    """How an argument or a result counts. A class of your own with a `__hash__` counts by that."""

    def __init__(self, value: Any) -> None:
        self.value = value


class ValueType(GenericType):
    """By its type and value."""

    def __hash__(self) -> int:
        return _number(_digest(self.value))


class ObjectType(GenericType):
    """By its type and content."""

    def __hash__(self) -> int:
        return _number(_digest(self.value))


class UtilityType(GenericType):
    """Arrays and data frames: by their type and content."""

    def __hash__(self) -> int:
        return _number(_digest(self.value))


class FileType(GenericType):
    """The path of a file: by the file's name and content."""

    def __hash__(self) -> int:
        return _number(_digest(_content(self.value, named=True)))


class DirType(GenericType):
    """The path of a folder: by its name, and the names and contents of the files in it."""

    def __hash__(self) -> int:
        return _number(_digest(_content(self.value, named=True)))


_OWN_HASHES: frozenset[Any] = frozenset(
    {object.__hash__, ValueType.__hash__, ObjectType.__hash__, UtilityType.__hash__, None}
)
_PATH_HASHES: frozenset[Any] = frozenset({FileType.__hash__, DirType.__hash__})


def convert_to_type(value: Any) -> GenericType:
    """How a value counts where nothing is said; a text that is the path of something counts by what is there,
    too.
    """
    if isinstance(value, str) and _sniffs() and _sniffed(value) is not None:
        return DirType(value) if os.path.isdir(value) else FileType(value)  # noqa: PTH112 - a text
    if isinstance(value, str | int | float | bool | bytes):
        return ValueType(value)
    return ObjectType(value) if isinstance(value, list | dict | tuple) else UtilityType(value)


class Counted:
    """An argument that counts by something else than its value; the function gets the value."""

    def __init__(self, value: Any, *by: Any) -> None:
        self.value, self.by = value, by

    def __reduce__(self) -> tuple[Any, ...]:
        """What counts: the cache takes objects apart as `pickle` does."""
        return Counted, (None, *self.by)


def mark(bound: inspect.BoundArguments, kinds: Mapping[str, type[GenericType]]) -> None:
    """Replace arguments by what counts of them."""
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            bound.arguments[name] = tuple(_as_it_counts(each, kinds.get(name)) for each in value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            bound.arguments[name] = {key: _as_it_counts(each, kinds.get(key)) for key, each in value.items()}
        else:
            bound.arguments[name] = _as_it_counts(value, kinds.get(name))


def _as_it_counts(value: Any, kind: type[GenericType] | None) -> Any:
    if kind is None:
        by = _sniffed(value) if _sniffs() else None
        return value if by is None else Counted(value, by)
    if kind.__module__ == "builtins" or kind.__hash__ in _OWN_HASHES:
        return value  # the cache tells values apart by type and content anyway, in every process
    if kind.__hash__ in _PATH_HASHES:
        return Counted(value, kind.__name__, *_content(value, named=True))
    return Counted(value, f"{kind.__module__}.{kind.__qualname__}", hash(kind(value)))


def _sniffs() -> bool:
    return os.environ.get(SNIFFING, "1").strip().lower() not in OFF_WORDS


def _sniffed(value: Any) -> Any:
    """The value with what is at the paths in it, in lists, tuples and dictionaries too; None where there are
    none.
    """
    if isinstance(value, str):
        there = 0 < len(value) <= LONGEST_PATH and "\0" not in value and os.path.exists(value)  # noqa: PTH110 - a text
        return (value, *_content(value, named=False)) if there else None
    if type(value) not in (list, tuple, dict):
        return None
    keys, parts = (list(value), list(value.values())) if type(value) is dict else (None, list(value))
    found = [_sniffed(part) for part in parts]
    if all(one is None for one in found):
        return None
    return type(value).__name__, keys, [parts[i] if one is None else one for i, one in enumerate(found)]


def given(value: Any) -> Any:
    """The value itself, of what `_as_it_counts` made of it."""
    return value.value if isinstance(value, Counted) else value


def _content(path: Any, *, named: bool) -> tuple[Any, ...]:
    """What is at a path: its name, and the digest of its content; a `ValueError` where a file was promised
    and is not.
    """
    found = describe_artifact(path, None, None)
    if found.sha256 is None and named:
        raise ValueError(f"there is nothing to read at {path!r}: {found.error or 'no file'}")
    return (found.name if named else None), found.sha256


def fingerprint(value: Any, return_type: Any) -> Any:
    """What a result is by now; None where a copy of it was kept, which is what it was."""
    if not isinstance(return_type, type) or return_type.__module__ == "builtins":
        return None
    if return_type.__hash__ in _OWN_HASHES:
        return None
    if return_type.__hash__ in _PATH_HASHES:
        return describe_artifact(value, None, None).sha256
    return hash(return_type(value))


def _digest(value: Any) -> bytes:
    try:
        return digest_value(value)
    except Unstable as error:
        raise TypeError(f"{type(value).__name__} has no value that lasts: it is {error}") from None


def _number(digest: bytes) -> int:
    return int.from_bytes(digest[:7], "big")
