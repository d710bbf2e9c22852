"""The hot path's one look at values: whether they can be written as they are, without cleaning or redaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flightlog.events import Event
from flightlog.interruption import pass_interruption
from flightlog.redaction import is_secret_key

_PLAIN: frozenset[Any] = frozenset({str, int, bool, type(None)})
_NUMBERS: frozenset[Any] = frozenset({int, float})
_MAX_KNOWN = 10_000
_LONG = 256
_SHORT = 16
_known_keys: set[str] = set()
"""Tag names seen to be no secrets; a set, because asking for all keys of a span at once is one C call."""
_known_texts: set[str] = set()
"""Longer texts seen to hold no secret: tags repeat themselves."""


def are_harmless(tags: Any, metrics: Any) -> bool:
    """Whether everything in the tags and metrics of a span can be written as it is.

    Names and longer texts are harmless once `learn` has seen them unchanged by cleaning.
    """
    try:
        if not _known_keys.issuperset(tags):
            return False
        for value in tags.values():
            kind = type(value)
            if kind is str:
                if (len(value) > _SHORT or "=" in value or ":" in value) and value not in _known_texts:
                    return False
            elif kind not in _PLAIN:
                return False
        number: Any
        for number in metrics.values():
            if type(number) not in _NUMBERS or number - number != 0:  # as it is of NaN and infinities
                return False
    except BaseException as error:  # noqa: BLE001 - names, or whole mappings, that are objects of the user's
        pass_interruption(error)
        return False
    return True


def is_harmless(event: Event) -> bool:
    """Whether a user's event can be written as it is."""
    values = {
        name: getattr(event, name) for name in event.__struct_fields__[3:]
    }  # those of every event aside
    numbers = {name: value for name, value in values.items() if type(value) is float}
    return are_harmless({name: value for name, value in values.items() if name not in numbers}, numbers)


def learn(before: Mapping[str, Any], cleaned: Mapping[str, Any]) -> None:
    """Remember names that are no secrets, and texts that cleaning left as they were."""
    for known in (_known_keys, _known_texts):
        if len(known) > _MAX_KNOWN:
            known.clear()
    _known_keys.update(key for key in before if type(key) is str and not is_secret_key(key))
    _known_texts.update(
        value
        for key, value in before.items()
        if type(key) is type(value) is str and len(value) <= _LONG and cleaned.get(key) == value
    )
