"""The hot path's one look at values: whether they can be written as they are, without cleaning or
redaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, get_args, get_type_hints

from flightlog.core.interruption import pass_interruption
from flightlog.core.redaction import REDACTED, has_own_patterns, is_secret, is_secret_key, redact_text
from flightlog.core.text import words
from flightlog.events import Event
from flightlog.record.limits import RecordLimits
from flightlog.record.values import bounded, text_of

_PLAIN: frozenset[Any] = frozenset({str, int, bool, type(None)})
_NUMBERS: frozenset[Any] = frozenset({int, float})

_short = 15
"""Texts of so many characters hold no secret without a space, `=` or `:`; a pattern of the user's may find
one in any text."""
_of_ids = "0123456789abcdef-"
"""Names made of these alone are ids, and hold no secret."""
_REDACTABLE: frozenset[Any] = frozenset({str, dict, list})
_NOT_REDACTED = words(
    "timestamp writer trace_id span_id parent_id fingerprint args_digest sha256 nonfinite metrics"
)
"""Fields of events that hold ids, digests, numbers and words of ours."""
_known_keys: set[str] = set()
"""Tag names seen to be no secrets."""
_known_texts: set[str] = set()
"""Longer texts seen to hold no secret: tags repeat themselves."""
known_names: set[Any] = {None}
"""Names of spans, tasks, metrics and workers, and other texts that events declare, seen to hold no secret."""


def are_harmless(tags: Any, metrics: Any) -> bool:
    """Whether everything in the tags and metrics of a span can be written as it is.

    Names and longer texts are harmless once `learn` has seen them unchanged by cleaning.
    """
    try:
        for key, value in tags.items():
            kind = type(value)
            if kind is str:
                if (
                    len(value) > _short or "=" in value or ":" in value or " " in value
                ) and value not in _known_texts:
                    return False
            elif kind is not int and kind not in _PLAIN:
                return False
            if key not in _known_keys:
                return False
        if metrics:
            number: Any
            for key, number in metrics.items():
                if type(number) not in _NUMBERS or number - number != 0:  # as it is of NaN and infinities
                    return False
                if key not in known_names:
                    return False
    except BaseException as error:  # noqa: BLE001 - names, or whole mappings, that are objects of the user's
        pass_interruption(error)
        return False
    return True


def is_harmless(event: Event) -> bool:
    """Whether a user's event can be written as it is."""
    # Those of every event aside.
    values = {name: getattr(event, name) for name in event.__struct_fields__[3:]}
    numbers = {name: value for name, value in values.items() if type(value) is float}
    return are_harmless({name: value for name, value in values.items() if name not in numbers}, numbers)


def learn(before: Mapping[str, Any], cleaned: Mapping[str, Any]) -> None:
    """Remember names that are no secrets, and texts that cleaning left as they were."""
    for known in (_known_keys, _known_texts):
        if len(known) > RecordLimits.max_known_texts:
            known.clear()
    _known_keys.update(
        key for key in before if type(key) is str and not is_secret_key(key) and redact_text(key) == key
    )
    _known_texts.update(
        value
        for key, value in before.items()
        if type(key) is type(value) is str
        and len(value) <= RecordLimits.max_known_text_characters
        and cleaned.get(key) == value
    )


# --- names, and all other texts of an event --------------------------------------------------------------

_Getter = Callable[[Event], tuple[Any, ...]]
_fields: dict[type[Event], tuple[tuple[str, ...], _Getter, tuple[str, ...]]] = {}
"""Of each kind of event, the fields that hold a text and how to get them all, and those that hold mappings
and lists."""


def redacted_name(given: Any) -> str:
    """A name as it is written: redacted, and remembered where it holds no secret, so that it costs one lookup
    from then on.
    """
    name: str = given if type(given) is str else text_of(given)
    if not name.strip(_of_ids):  # an id: there are many, and each is seen a few times
        return name
    most = RecordLimits.max_name_characters
    made = redact_text(name) if len(name) <= 2 * most else bounded(name, most)
    if made == name and len(name) <= RecordLimits.max_known_text_characters:
        if len(known_names) > RecordLimits.max_known_texts:
            known_names.clear()
            known_names.add(None)
        known_names.add(name)
    return made


def forget() -> None:
    """Look at every text again: what counts as a secret has changed."""
    global _short, _of_ids
    _short, _of_ids = (-1, "") if has_own_patterns() else (15, "0123456789abcdef-")
    for known in (_known_keys, _known_texts, known_names):
        known.clear()
    known_names.add(None)


def redact_event(event: Event) -> None:
    """Redact the texts of an event, in place; values in mappings and lists, too."""
    kind = type(event)
    names, get, others = _fields.get(kind) or _look_at(kind)
    try:
        known = known_names.issuperset(get(event))
    except BaseException as error:  # noqa: BLE001 - objects of the user's in the place of texts
        pass_interruption(error)
        known = False
    if not known:
        for name in names:
            text = getattr(event, name)
            if type(text) is str and text not in known_names:
                made = redacted_name(text)
                if made is not text:
                    setattr(event, name, made)
    for name in others:
        value = getattr(event, name)
        if type(value) in _REDACTABLE and value and not _is_known(value):
            made = _redacted(value, 0)
            if made is not value:
                setattr(event, name, made)


def _is_known(value: Any) -> bool:
    """Whether a text is an id or known, or a mapping holds known names, known texts and numbers alone."""
    if type(value) is str:
        return value in known_names or not value.strip(_of_ids)
    if type(value) is not dict or not _known_keys.issuperset(value):
        return False
    for inner in value.values():
        kind = type(inner)
        if kind is str:
            if inner not in known_names:
                return False
        elif kind not in _PLAIN and kind is not float:
            return False
    return True


def _look_at(kind: type[Event]) -> tuple[tuple[str, ...], _Getter, tuple[str, ...]]:
    texts: list[str] = []
    others: list[str] = []
    for name, hint in get_type_hints(kind).items():
        if name not in kind.__struct_fields__ or name in _NOT_REDACTED:
            continue
        if name == "task_id" or str(hint).startswith(("list[str", "dict[")):
            others.append(name)
        elif str in (hint, *get_args(hint)):
            texts.append(name)
    get: _Getter = (
        attrgetter(*texts) if len(texts) > 1 else lambda event: tuple(getattr(event, name) for name in texts)
    )
    found = _fields[kind] = tuple(texts), get, tuple(others)
    return found


def _redacted(value: Any, depth: int) -> Any:
    """The same object where nothing in it is a secret."""
    if type(value) is str:
        return value if value in known_names else redacted_name(value)
    if depth > RecordLimits.max_fast_depth:
        return value
    if type(value) is dict:
        made = {
            key if type(key) is not str or key in known_names else redacted_name(key): (
                REDACTED
                if type(inner) is type(key) is str and is_secret(key, inner)
                else _redacted(inner, depth + 1)
            )
            for key, inner in value.items()
        }
        if len(made) != len(value) or made != value:
            return made
        _known_keys.update(key for key in value if type(key) is str and not is_secret_key(key))
        return value
    if type(value) is list:
        items = [_redacted(item, depth + 1) for item in value]
        return value if items == value else items
    return value


if has_own_patterns():
    forget()
