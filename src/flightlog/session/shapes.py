"""How a manifest's values are written, read off the types its fields are declared with.

Checking and the JSON Schema both follow shapes, so neither can disagree with the declaration.
"""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

Kind = Literal[
    "text", "name", "whole", "number", "switch", "size", "duration", "any", "list", "table", "struct"
]


def written(kind: Kind) -> Meta:
    """How a field of another type is written: a number of bytes as `16GB`."""
    return Meta(extra={"written": kind})


Text = str
"""Free text. Where it comes from a variable, a plan shows the variable."""
Name = Annotated[str, written("name")]
"""A text that others refer to, or that refers to them; always shown expanded."""
Count = Annotated[int, Meta(ge=1)]
"""A whole number of things, one at least."""
Positive = Annotated[float, Meta(gt=0)]
Size = Annotated[int, written("size")]
"""Bytes, written with a unit: `512MiB`, `16G`, `10GB`."""
Duration = Annotated[float, written("duration")]
"""Seconds, written with a unit, `90m`, or as `HH:MM:SS`."""


class Shape(Struct, frozen=True, kw_only=True):
    """One way a value may be written."""

    kind: Kind
    doc: str = ""
    inner: Shape | None = None
    """Of lists: the items. Of tables: the values."""
    struct: type[Struct] | None = None
    switch: bool = False
    """Of structs: whether `true` or `false` may stand in its place."""
    least: int = 0
    """Of whole numbers: the smallest."""
    positive: bool = False
    """Of numbers: whether 0 is none."""
    choices: tuple[str, ...] = ()
    """Of texts: the only ones there are."""


class Field(Struct, frozen=True, kw_only=True):
    """One key of a mapping."""

    key: str
    name: str
    """The attribute that holds it."""
    shape: Shape
    required: bool


@cache
def fields_of(struct: type[Struct]) -> tuple[Field, ...]:
    """The keys of a declared mapping, in order of declaration; fields marked `computed` are no keys."""
    return tuple(
        Field(key=field.encode_name, name=field.name, shape=shape_of(field.type), required=field.required)
        for field in msgspec.structs.fields(struct)
        if not _computed(field.type)
    )


def computed() -> Meta:
    """Marks a field that is filled in from others and cannot be written."""
    return Meta(extra={"computed": True})


def _computed(declared: Any) -> bool:
    return any(
        isinstance(meta, Meta) and (meta.extra or {}).get("computed")
        for meta in getattr(declared, "__metadata__", ())
    )


def shape_of(declared: Any, doc: str = "") -> Shape:
    """The shape of a declared type. None beside a type says that it may be missing, which any shape may."""
    origin, args = get_origin(declared), get_args(declared)
    if origin is Annotated:
        metas = [meta for meta in declared.__metadata__ if isinstance(meta, Meta)]
        doc = next((meta.description for meta in metas if meta.description), doc)
        kind = next((meta.extra["written"] for meta in metas if meta.extra and "written" in meta.extra), None)
        if kind:
            return Shape(kind=kind, doc=doc)
        inner = shape_of(args[0], doc)
        least = next((meta.ge for meta in metas if meta.ge is not None), inner.least)
        positive = inner.positive or any(meta.gt == 0 for meta in metas)
        return msgspec.structs.replace(inner, least=least, positive=positive)
    if origin in {Union, types.UnionType}:
        options = [shape_of(arg, doc) for arg in args if arg is not type(None)]
        switch = any(option.kind == "switch" for option in options)
        main = next((option for option in options if option.kind != "switch"), options[0])
        return msgspec.structs.replace(main, doc=doc or main.doc, switch=switch and len(options) > 1)
    if origin is Literal:
        return Shape(kind="name", doc=doc, choices=args)
    if origin is dict:
        return Shape(kind="table", doc=doc, inner=shape_of(args[1]))
    if origin is tuple:
        return Shape(kind="list", doc=doc, inner=shape_of(args[0]))
    if isinstance(declared, type) and issubclass(declared, Struct):
        return Shape(kind="struct", doc=doc or _first_line(declared), struct=declared)
    kinds: dict[Any, Kind] = {bool: "switch", int: "whole", float: "number", str: "text", Any: "any"}
    return Shape(kind=kinds[declared], doc=doc)


def _first_line(struct: type[Struct]) -> str:
    return (struct.__doc__ or "").strip().partition("\n")[0]
