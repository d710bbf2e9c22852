"""Events of every declared kind, drawn from the declarations alone: a new event is covered by being
declared."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hypothesis import strategies as st
from msgspec import inspect

from flightlog.events import Event, kinds, streams

INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
TIMESTAMPS = st.datetimes(datetime(1, 1, 1)).map(lambda at: at.isoformat(timespec="microseconds") + "Z")

BUILT_IN_STREAMS = [stream for stream in streams() if not stream.startswith("user.")]


def values(of: inspect.Type) -> st.SearchStrategy[Any]:
    match of:
        case inspect.Metadata(type=inner):
            return TIMESTAMPS if (of.extra or {}).get("sql") == "TIMESTAMP" else values(inner)
        case inspect.UnionType(types=types):
            return st.one_of(*map(values, types))
        case inspect.LiteralType(values=allowed):
            return st.sampled_from(allowed)
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(values(key), values(value), max_size=3)
        case inspect.ListType(item_type=item):
            return st.lists(values(item), max_size=3)
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return INTEGERS
        case inspect.FloatType():
            return FLOATS
        case inspect.StrType():
            return TEXT
        case inspect.AnyType():
            return JSON
    raise NotImplementedError(f"no values for {of}")


def events_like(cls: type[Event]) -> st.SearchStrategy[Any]:
    """Events of a class; fields with a default may be left out."""
    needed, optional = {}, {}
    for field in inspect.type_info(cls).fields:
        (needed if field.required else optional)[field.name] = values(field.type)
    return st.fixed_dictionaries(needed, optional=optional).map(lambda fields: cls(**fields))


def any_event() -> st.SearchStrategy[Any]:
    built_in = [cls for cls in kinds().values() if cls.stream in BUILT_IN_STREAMS]
    return st.sampled_from(built_in).flatmap(events_like)
