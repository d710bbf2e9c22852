"""The JSON Schema of a line, made from the declarations."""

from __future__ import annotations

from typing import Any

import msgspec

from flightlog.events.base import SCHEMA_VERSION, Event, events_of, kind_of, streams

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(stream: str | None = None) -> dict[str, Any]:
    """JSON Schema (2020-12) of one line of a stream, or of any stream's.

    Each kind of event is a definition under its own name. Fields beyond the declared ones are valid, for
    newer writers may add some. Units stand as `unit` next to a field's description. An unknown stream is a
    `UsageError` that names the nearest one.
    """
    classes = [cls for each in streams().values() for cls in each] if stream is None else events_of(stream)
    definitions: dict[str, Any] = {}
    for cls in classes:
        definitions.update(_definitions(cls))
    return {
        "$schema": DIALECT,
        "title": f"A line of {stream}.jsonl" if stream else "A line of any stream of a run",
        "description": f"Flightlog event schema {SCHEMA_VERSION}: one flat JSON object, "
        "told apart by `event`.",
        "anyOf": [{"$ref": f"#/$defs/{kind_of(cls)}"} for cls in classes],
        "$defs": definitions,
    }


def _definitions(cls: type[Event]) -> dict[str, Any]:
    """The event under its kind, and the types inside it under `kind.Type`: users' class names may
    coincide.
    """
    kind = kind_of(cls)
    (own,), parts = msgspec.json.schema_components((cls,), ref_template=f"#/$defs/{kind}.{{name}}")
    own_name = own["$ref"].removeprefix(f"#/$defs/{kind}.")
    found = {kind: parts.pop(own_name)} | {f"{kind}.{name}": part for name, part in parts.items()}
    for field in found[kind]["properties"].values():
        for alternative in field.get("anyOf", ()):
            if "unit" in alternative:
                field["unit"] = alternative.pop("unit")
    return found
