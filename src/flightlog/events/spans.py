"""Spans: what code was doing, from when, for how long, inside what."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from flightlog.events.base import Event, Json, Seconds, doc, register


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
