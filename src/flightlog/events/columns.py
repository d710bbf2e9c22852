"""The streams as tables: the SQL column of every declared field, and the defaults that lines leave out."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, reduce
from typing import Any

import msgspec
from msgspec import inspect

from flightlog.core.grouping import grouped
from flightlog.events.base import Event, events_of, kind_of
from flightlog.events.codec import declared_fields

_SCALARS: tuple[tuple[type[inspect.Type], str], ...] = (
    (inspect.BoolType, "BOOLEAN"),
    (inspect.IntType, "BIGINT"),
    (inspect.FloatType, "DOUBLE"),
    (inspect.StrType, "VARCHAR"),
)
_STORED_AS_TEXT = (
    inspect.BytesType,
    inspect.ByteArrayType,
    inspect.DateTimeType,
    inspect.DateType,
    inspect.DecimalType,
    inspect.TimeDeltaType,
    inspect.TimeType,
    inspect.UUIDType,
)
"""Types of users' own events that a line holds as text. They stay text: a cast could lose offsets or
digits."""


def event_columns(cls: type[Event]) -> dict[str, str]:
    """Column name to DuckDB type for one event: `event` first, then the fields in order of declaration."""
    return {"event": "VARCHAR"} | {field.encode_name: column_type(field.type) for field in fields_of(cls)}


def columns(stream: str) -> dict[str, str]:
    """Column name to DuckDB type for the lines of a stream, as `read_json(…, columns=…)` takes them.

    `event` first, then what all events have, then the fields of each event in order of declaration.
    `timestamp` is TIMESTAMP in UTC, whatever the session's time zone. Users' own events may share a namespace
    and differ in a field's type: whole and floating numbers meet in DOUBLE, anything else in JSON. SQL names
    do not tell case apart: of names that differ in nothing else, the first declared has the column.
    """
    found: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for cls in events_of(stream):
        for name, kind in event_columns(cls).items():
            if spelled.setdefault(name.casefold(), name) == name:
                found[name] = _meet(found.get(name, kind), kind)
    return found


def projection(stream: str, names: Iterable[str] | None = None) -> str:
    """The select list that gives what `columns` reads as the events hold it; of all columns, or of `names`.

    Fields that have their default are left out of the line; here they get it back, for the kinds that declare
    it. A null that may itself have been written stays null. So do the fields all events have: without them a
    line does not say who wrote it, nor when.
    """
    known = columns(stream)
    return ", ".join(_filled(name, known[name], _defaults(stream, name)) for name in names or known)


def column_type(of: inspect.Type) -> str:
    """The DuckDB type for values of a declared type; null goes with every one of them."""
    if isinstance(of, inspect.Metadata):
        stated = (of.extra or {}).get("sql")
        return str(stated) if stated else column_type(of.type)
    if isinstance(of, inspect.UnionType):
        members = [column_type(member) for member in of.types if not isinstance(member, inspect.NoneType)]
        return reduce(_meet, members)
    if isinstance(of, inspect.LiteralType):
        return _type_of_all(of.values)
    if isinstance(of, inspect.EnumType):
        return _type_of_all(tuple(member.value for member in of.cls))
    if isinstance(of, inspect.ListType | inspect.SetType | inspect.FrozenSetType | inspect.VarTupleType):
        item = column_type(of.item_type)
        return f"{item}[]" if item in {"VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN"} else "JSON"
    if isinstance(of, _STORED_AS_TEXT):
        return "VARCHAR"
    return next((name for type_, name in _SCALARS if isinstance(of, type_)), "JSON")


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


@cache
def fields_of(cls: type[Event]) -> tuple[inspect.Field, ...]:
    """The declared fields of an event, in order of declaration."""
    described = inspect.type_info(cls)
    assert isinstance(described, inspect.StructType)
    return described.fields


def _type_of_all(values: tuple[Any, ...]) -> str:
    if all(isinstance(value, str) for value in values):
        return "VARCHAR"
    return "BIGINT" if all(isinstance(value, int) for value in values) else "JSON"


def _meet(one: str, other: str) -> str:
    if one == other:
        return one
    return "DOUBLE" if {one, other} == {"BIGINT", "DOUBLE"} else "JSON"


def _defaults(stream: str, name: str) -> list[tuple[str, Any]]:
    """Kind and default of each event that gives the column one, and never writes it as null."""
    return [
        (
            kind_of(cls),
            field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory(),
        )
        for cls in events_of(stream)
        for field, takes_null in declared_fields(cls)
        if field.encode_name == name and name not in Event.__struct_fields__
        if not field.required and not takes_null
    ]


def _filled(name: str, kind: str, defaults: list[tuple[str, Any]]) -> str:
    column = quoted(name)
    if not defaults:
        return column
    events = grouped((_literal(value, kind), _text(event)) for event, value in defaults)
    cases = " ".join(
        f"WHEN {column} IS NULL AND event IN ({', '.join(of)}) THEN {literal}"
        for literal, of in events.items()
    )
    return f"CASE {cases} ELSE {column} END AS {column}"


def _literal(value: Any, kind: str) -> str:
    plain = msgspec.to_builtins(value)
    if kind == "VARCHAR" and isinstance(plain, str):
        return _text(plain)
    return f"CAST({_text(msgspec.json.encode(plain).decode())}::JSON AS {kind})"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
