"""Rows into structs and groups; the newest few of what comes in any order."""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Generic, TypeVar

from flightlog.core.grouping import grouped as grouped  # noqa: PLC0414 - for others to import
from flightlog.events.base import Json

T = TypeVar("T")
K = TypeVar("K")


def copied(kind: Callable[..., T], source: object, /, **others: Any) -> T:
    """A `kind` of struct with the fields that `source`, an object or a row, has under the same names.

    `others` are the rest.
    """
    fields: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined]
    value = source.__getitem__ if isinstance(source, Mapping) else partial(getattr, source)
    return kind(**{name: value(name) for name in fields if name not in others}, **others)


def by_two_keys(rows: Iterable[Sequence[Any]]) -> dict[Any, dict[Any, Any]]:
    """The third of each row by the first and, below that, by the second."""
    return {key: dict(pairs) for key, pairs in grouped((key, pair) for key, *pair in rows).items()}


def json_object(text: str | None) -> Json | None:
    """The object in a column of JSON; None where there is none, or it is something else."""
    try:
        found = json.loads(text) if text else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


Key = tuple[str, str, int, str]
"""When, by whom, and which: complete, so that the same events give the same list in any order."""


class Newest(Generic[T]):
    """Keeps the `limit` items with the greatest keys."""

    __slots__ = ("_kept", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[tuple[Key, T]] = []

    def would_keep(self, timestamp: str) -> bool:
        """Whether something of this time may be among the newest: a cheap look before an item is made."""
        return len(self._kept) < self._limit or timestamp >= self._kept[0][0][0]

    def add(self, key: Key, item: T) -> None:
        """Take an item, or leave it where enough newer ones are known."""
        insort(self._kept, (key, item), key=itemgetter(0))  # they come nearly in order, so this is cheap
        del self._kept[: -self._limit]

    def items(self) -> list[T]:
        """What was kept, the newest first."""
        return [item for _, item in reversed(self._kept)]
