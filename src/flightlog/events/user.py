"""What user code records: spans, metrics, free events, and events that users define."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, cast

import msgspec

from flightlog.core.errors import UsageError
from flightlog.events.base import Event, Json, Seconds, class_of, doc, kind_of, register

_COMMON = {*Event.__struct_fields__, "event"}
_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+$")


@register
class Metric(Event, kw_only=True, tag="metric"):
    """One value of a series, such as the loss at a step."""

    stream: ClassVar[str] = "metrics"

    name: Annotated[str, doc("the series")]
    value: Annotated[float | None, doc("its value; null where it was NaN or infinite")]
    step: Annotated[int | None, doc("position in the series")] = None
    span_id: Annotated[str | None, doc("span it was measured in")] = None
    nonfinite: Annotated[str | None, doc("`nan`, `inf` or `-inf` where value is null for that reason")] = None


@register
class UserEvent(Event, kw_only=True, tag="user_event"):
    """Something the user's code wants to remember."""

    stream: ClassVar[str] = "events"

    name: Annotated[str, doc("what happened")]
    fields: Annotated[Json, doc("what there is to say of it, bounded and redacted")]
    span_id: Annotated[str | None, doc("span it happened in")] = None


@register
class EventDefined(Event, kw_only=True, tag="event_defined"):
    """What a user's own event holds; written before the first one of its kind, by each process."""

    stream: ClassVar[str] = "definitions"

    name: Annotated[str, doc("kind of the event, `namespace.Name`")]
    fields: Annotated[Json, doc("JSON Schema of each field")]
    required: Annotated[list[str], doc("fields without a default")]
    defaults: Annotated[Json, doc("defaults of the others")]


def definition_of(kind: type[Event]) -> EventDefined:
    """What to write down of a user's own event."""
    _, components = msgspec.json.schema_components([kind])
    schema: dict[str, Any] = next(iter(components.values()))
    fields = {name: found for name, found in schema["properties"].items() if name not in _COMMON}
    required = [name for name in schema.get("required", []) if name in fields]
    defaults = {name: found.get("default") for name, found in fields.items() if name not in required}
    return EventDefined(name=kind_of(kind), fields=fields, required=required, defaults=defaults)


def define_event(name: str, /, **fields: Any) -> type[Event]:
    """A new event class of the user's own, `"ns.Name"`, recorded in the stream `user.ns`.

    Each field is a type (`loss=float`: required) or a pair of type and default (`step=(int, -1)`). Defining
    the same event twice with the same fields gives the same class; with other fields it is a `UsageError`.
    """
    if not _NAME.match(name):
        raise UsageError(
            f"event name {name!r} is not of the form 'namespace.Name', letters, digits and '_' only"
        )
    reserved = sorted(fields.keys() & _COMMON)
    if reserved:
        raise UsageError(
            f"event {name!r} may not define {', '.join(reserved)}: every event has these already"
        )
    declared = [
        (key, spec[0], spec[1]) if isinstance(spec, tuple) else (key, spec) for key, spec in fields.items()
    ]
    namespace, _, title = name.rpartition(".")
    known = class_of(name)
    if known is not None:
        if getattr(known, "declared", None) == declared:
            return known
        raise UsageError(f"event {name!r} is already defined with other fields")
    try:
        about = {"stream": f"user.{namespace}", "declared": declared, "of_user": True}
        made = msgspec.defstruct(title, declared, bases=(Event,), namespace=about, tag=name, kw_only=True)
        msgspec.json.schema(made)
    except (TypeError, ValueError) as error:
        raise UsageError(f"event {name!r} cannot be defined: {error}") from error
    return register(cast(type[Event], made))


@register
class SpanEvent(Event, tag="span"):
    """A span that ended; `timestamp` is its start."""

    stream: ClassVar[str] = "spans"

    name: Annotated[str, doc("what was done, such as `simulation.execute`")] = ""
    tags: Annotated[Json, doc("what it was done to, bounded and redacted")] = {}
    metrics: Annotated[Json, doc("what was measured inside")] = {}
    status: Annotated[Literal["ok", "error"] | None, doc("how it ended")] = None
    duration_s: Annotated[Seconds | None, doc("from enter to exit, on the monotonic clock")] = None
    trace_id: Annotated[str, doc("W3C trace id, one a run")] = ""
    span_id: Annotated[str, doc("W3C span id")] = ""
    parent_id: Annotated[str | None, doc("span, task or run it happened in")] = None
    thread: Annotated[
        int | None,
        doc("thread it ended on, as the interpreter numbers them; a greenlet where threads are green"),
    ] = None
    error_type: Annotated[str | None, doc("class of the exception it ended with")] = None
    error_message: Annotated[str | None, doc("its text, bounded and redacted")] = None
    nonfinite: Annotated[dict[str, str], doc("values that were NaN or infinite, and stand as null")] = {}


@register
class SpanOpened(Event, kw_only=True, tag="span_open"):
    """A span was still open when the recorder looked; `timestamp` is its start.

    The span's end follows as `span` with the same span_id. If it does not, the span was in flight when its
    process ended.
    """

    stream: ClassVar[str] = "spans"

    name: Annotated[str, doc("what was being done")]
    tags: Annotated[Json, doc("what it was done to, as known so far")]
    trace_id: Annotated[str, doc("W3C trace id")]
    span_id: Annotated[str, doc("W3C span id")]
    parent_id: Annotated[str | None, doc("span, task or run it happens in")]
    elapsed_s: Annotated[Seconds, doc("how long it had been open")]
