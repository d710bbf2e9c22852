"""The JSON Schema of a line and the reference page of events, made from the declarations."""

from __future__ import annotations

import inspect as python
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
    definitions = {name: part for cls in classes for name, part in _definitions(cls).items()}
    return {
        "$schema": DIALECT,
        "title": f"A line of {stream}.jsonl" if stream else "A line of any stream of a run",
        "description": f"Flightlog event schema {SCHEMA_VERSION}: one flat JSON object, "
        "told apart by `event`.",
        "anyOf": [{"$ref": f"#/$defs/{kind_of(cls)}"} for cls in classes],
        "$defs": definitions,
    }


def result_schema(kind: Any, title: str) -> dict[str, Any]:
    """JSON Schema (2020-12) of what a command writes as JSON: the struct `kind`."""
    return {"$schema": DIALECT, "title": title, **msgspec.json.schema(kind)}


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


_ABOUT = {
    "tasks": "The life of every task, one line a step: submitted, queued, started, and then completed, "
    "failed or cancelled. A retry adds `task_retried` and a new attempt under the same `task_id`.",
    "workers": "The processes, threads and nodes that execute tasks, from launch to end.",
    "jobs": "The jobs of a batch system that the run was executed in, and what its accounting says of them.",
    "resources": "What was used, sampled at an interval, and what was asked for.",
    "spans": "What code was doing, and inside what. Finished spans are `span`; those that are open for "
    "longer than a moment also appear as `span_open`, so that a hung or killed job shows where it was.",
    "cache": "Every lookup of a cached result, with the reason for a miss.",
    "failures": "What went wrong, with the traceback, the exit code or the signal.",
    "artifacts": "The outputs a run registered.",
    "cost": "What the run cost. The last estimate of an item counts.",
    "devices": "Device memory as allocators and drivers count it, in device telemetry schema v3.",
    "metrics": "Values that user code measured, such as the loss at a step.",
    "events": "What user code wanted to remember.",
    "definitions": "What the events hold that user code defined; their own lines stand in "
    "`user.<namespace>`.",
}


def reference_page() -> str:
    """The reference of all built-in streams; events defined by users are not part of it."""
    parts = [
        f"""\
# Events

<!-- Made from the declarations by `make docs`; changes made here are lost. -->

A run directory holds one file per stream. Each line is one flat JSON object in UTF-8, and
`flightlog schema STREAM` prints its JSON Schema (this is event schema {SCHEMA_VERSION}). \
Unknown is `null`, never 0.
Fields that are not always written are left out while they have the value given here. Readers pass \
over fields and
kinds they do not know.

## Fields of every event

{_table(_common())}"""
    ]
    for stream, about in _ABOUT.items():
        parts.append(f"## {stream}\n\nFile: `{stream}.jsonl`. {about}")
        parts.extend(_section(cls) for cls in events_of(stream))
    parts.append(
        """\
## Events of your own

`flightlog.define_event("training.Epoch", loss=float, step=(int, -1))` declares an event of kind \
`training.Epoch`,
recorded in the stream `user.training`, file `user.training.jsonl`."""
    )
    return "\n\n".join(parts) + "\n"


def _common() -> list[tuple[str, ...]]:
    found = _rows(events_of("tasks")[0], of_every_event=True)
    rows = [(name, type_, unit, "yes", meaning) for name, type_, unit, _, meaning in found]
    return [("`event`", "string", "", "yes", "kind of event"), *rows]


def _section(cls: type[Event]) -> str:
    text = f"### {kind_of(cls)}\n\n{python.getdoc(cls) or ''}"
    rows = _rows(cls, of_every_event=False)
    return f"{text}\n\n{_table(rows)}" if rows else text


def _table(rows: list[tuple[str, ...]]) -> str:
    header: list[tuple[str, ...]] = [("field", "type", "unit", "always written?", "meaning"), ("---",) * 5]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in [*header, *rows]
    )


def _rows(cls: type[Event], *, of_every_event: bool) -> list[tuple[str, ...]]:
    """A row for each field that every event has, or for each of the others."""
    schema = _definitions(cls)[kind_of(cls)]
    return [
        (
            f"`{name}`",
            _type_name(field),
            field.get("unit", ""),
            "yes" if name in schema["required"] else f"unless `{_json(field['default'])}`",
            field.get("description", ""),
        )
        for name, field in schema["properties"].items()
        if name != "event" and (name in Event.__struct_fields__) is of_every_event
    ]


def _type_name(of: dict[str, Any]) -> str:
    if "anyOf" in of:
        return " or ".join(map(_type_name, of["anyOf"]))
    if "enum" in of:
        return " or ".join(f"`{_json(value)}`" for value in of["enum"])
    if "items" in of:
        return f"list of {_type_name(of['items'])}s"
    return ", ".join(of[name] for name in ("type", "format") if name in of) or "any"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
