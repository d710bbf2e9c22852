"""Events that users defined: a run tells what they hold, so that a reader needs no code of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flightlog.core.errors import UsageError
from flightlog.events import EventDefined, define_event, kinds
from flightlog.store.read.lines import Scan

_TYPES: dict[str, Any] = {
    "number": float,
    "integer": int,
    "string": str,
    "boolean": bool,
    "array": list,
    "object": dict,
}


def learn_definitions(run: Path, stream: str) -> None:
    """Define the events of a user's stream as the run tells, where this process does not know them.

    A definition that the process has already stands; lines that do not fit it are read with what does not
    aside.
    """
    if not stream.startswith("user."):
        return
    known = set(kinds())
    for event in Scan(run, EventDefined.stream).events():
        if isinstance(event, EventDefined) and event.name not in known:
            known.add(event.name)
            fields = {
                name: kind if name in event.required else (kind | None, event.defaults.get(name))
                for name, kind in ((name, _type(schema)) for name, schema in event.fields.items())
            }
            try:
                define_event(event.name, **fields)
            except UsageError:
                continue  # no name of an event after all: its lines are read as they are


def _type(schema: Any) -> Any:
    return _TYPES.get(schema.get("type", ""), Any) if isinstance(schema, dict) else Any
