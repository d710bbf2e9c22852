"""The JSON Schema of a manifest, for editors, made from the declared fields."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from flightlog.events.schema import DIALECT
from flightlog.session.schema import (
    MANIFEST_VERSION,
    OVERLAID,
    PROVIDERS,
    Contents,
    Field,
    Shape,
    Target,
    fields_of,
)

_VARIABLE = {"type": "string", "pattern": r"\$\{[A-Za-z_]"}
"""A text with a variable, which may stand wherever a value may."""
_SIZE = r"^\s*\d+(\.\d+)?\s*[kKmMgGtTpPeE]?([iI]?[bB])?\s*$"
_DURATION = r"^\s*((\d+-)?\d+:[0-5]?\d:[0-5]?\d|(\d+(\.\d+)?\s*([mMuUµ]?[sS]|[mMhHdDwW])\s*)+)$"


def manifest_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a manifest. Names that refer to each other are left to `flightlog
    validate`.
    """
    definitions: dict[str, Any] = {}
    whole = _struct(Contents, definitions, partial=False)
    whole["properties"]["version"] = {
        "const": MANIFEST_VERSION,
        "description": "version of the manifest's form",
    }
    parts = {
        field.key: _optional(_property(field, definitions, partial=True))
        for field in fields_of(Contents)
        if field.key in OVERLAID
    }
    whole["properties"]["overlays"] = {
        "description": "partial manifests to lay over this one, by name; null removes what it stands for",
        "type": ["object", "null"],
        "additionalProperties": {
            "type": ["object", "null"],
            "properties": parts,
            "additionalProperties": False,
        },
    }
    return {"$schema": DIALECT, "title": "Flightlog manifest", **whole, "$defs": definitions}


def _struct(struct: type[Struct], definitions: dict[str, Any], *, partial: bool) -> dict[str, Any]:
    fields = fields_of(struct)
    found: dict[str, Any] = {
        "type": "object",
        "properties": {field.key: _property(field, definitions, partial=partial) for field in fields},
        "additionalProperties": False,
    }
    required = [field.key for field in fields if field.required and not partial]
    return {**found, "required": required} if required else found


def _target(definitions: dict[str, Any], *, partial: bool) -> dict[str, Any]:
    """A target: which other keys it may have is its provider's to say; a plugin's are not known here."""
    own = _struct(Target, definitions, partial=partial)
    own["additionalProperties"] = True
    own["properties"]["provider"]["examples"] = list(PROVIDERS)
    own["allOf"] = [
        {
            "if": {"properties": {"provider": {"const": name}}, "required": ["provider"]},
            "then": {
                "properties": {
                    **dict.fromkeys(own["properties"], True),
                    **_struct(options, definitions, partial=partial)["properties"],
                },
                "additionalProperties": False,
            },
        }
        for name, options in PROVIDERS.items()
    ]
    return own


def _property(field: Field, definitions: dict[str, Any], *, partial: bool) -> dict[str, Any]:
    found = _shape(field.shape, definitions, partial=partial)
    if partial or not field.required:
        found = _optional(found)
    return {"description": field.shape.doc, **found} if field.shape.doc else found


def _optional(found: dict[str, Any]) -> dict[str, Any]:
    """The same, or null: "not said" in a manifest, "removed" in an overlay."""
    if "anyOf" in found:
        known = {"type": "null"} in found["anyOf"]
        return found if known else {**found, "anyOf": [*found["anyOf"], {"type": "null"}]}
    return {"anyOf": [found, {"type": "null"}]}


def _shape(shape: Shape, definitions: dict[str, Any], *, partial: bool) -> dict[str, Any]:
    if shape.kind == "struct":
        assert shape.struct is not None
        name = ("Partial" if partial else "") + shape.struct.__name__
        if name not in definitions:
            made = (
                _target(definitions, partial=partial)
                if shape.struct is Target
                else _struct(shape.struct, definitions, partial=partial)
            )
            definitions[name] = {
                "description": (shape.struct.__doc__ or "").strip().partition("\n")[0],
                **made,
            }
        reference = {"$ref": f"#/$defs/{name}"}
        return {"anyOf": [{"type": "boolean"}, reference, _VARIABLE]} if shape.switch else reference
    if shape.kind == "list":
        assert shape.inner is not None
        return {"type": "array", "items": _shape(shape.inner, definitions, partial=partial)}
    if shape.kind == "table":
        assert shape.inner is not None
        inner = _optional(_shape(shape.inner, definitions, partial=partial))
        return {"type": "object", "additionalProperties": inner}
    return _scalar(shape)


def _scalar(shape: Shape) -> dict[str, Any]:
    match shape.kind:
        case "whole":
            return {"anyOf": [{"type": "integer", "minimum": shape.least}, _VARIABLE]}
        case "number":
            bound = "exclusiveMinimum" if shape.positive else "minimum"
            return {"anyOf": [{"type": "number", bound: 0}, _VARIABLE]}
        case "switch":
            return {"anyOf": [{"type": "boolean"}, _VARIABLE]}
        case "size":
            return {
                "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": _SIZE}, _VARIABLE]
            }
        case "duration":
            return {"anyOf": [{"type": "string", "pattern": _DURATION}, _VARIABLE]}
        case _ if shape.choices:
            return {"anyOf": [{"enum": list(shape.choices)}, _VARIABLE]}
        case _:
            return {"type": ["string", "number", "boolean"]}
