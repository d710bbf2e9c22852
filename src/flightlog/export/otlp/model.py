"""What OTLP carries, whatever the encoding: spans, log records and measured points.

Times are whole nanoseconds since 1970, ids lowercase hex as W3C has them.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from msgspec import Struct

Attributes = dict[str, Any]
"""Attributes by name: texts, switches, numbers, and lists of these; whatever else there is becomes JSON
text."""
Signal = Literal["traces", "metrics", "logs"]
SIGNALS: tuple[Signal, ...] = ("traces", "metrics", "logs")
NAMES: dict[Signal, str] = {"traces": "spans", "metrics": "points", "logs": "log records"}
"""What the items of a signal are called."""
SCOPE = "flightlog"
"""Name of the instrumentation scope of everything."""


Mark = tuple[str, str, int]
"""A line of a run: its stream, writer and number; of lines without them no writer, and which one of those it
was."""


class Happening(Struct, frozen=True, kw_only=True):
    """Something that happened inside a span, at one moment."""

    name: str
    time_ns: int
    attributes: Attributes = {}


class Link(Struct, frozen=True, kw_only=True):
    """Another span that this one depends on."""

    trace_id: str
    span_id: str
    attributes: Attributes = {}


class Span(Struct, frozen=True, kw_only=True):
    """One finished span."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    start_ns: int
    end_ns: int
    attributes: Attributes = {}
    happenings: tuple[Happening, ...] = ()
    links: tuple[Link, ...] = ()
    status: Literal["unset", "ok", "error"] = "unset"
    message: str = ""
    kind: int = 1
    """OpenTelemetry's number: 1 is what happens within a program, 2 to 5 what it does for or with others."""


class LogRecord(Struct, frozen=True, kw_only=True):
    """One record of a log."""

    time_ns: int
    severity: int
    """OpenTelemetry's number: 9 is information, 13 a warning, 17 an error."""
    severity_text: str
    body: str
    event_name: str
    attributes: Attributes = {}
    trace_id: str = ""
    span_id: str | None = None


class Instrument(NamedTuple):
    """What is measured."""

    name: str
    unit: str
    kind: Literal["gauge", "sum", "level", "histogram"]
    """A `sum` only grows from its start, a `level` is a sum that also falls; both are counted from the run's
    start."""
    what: str


class Distribution(Struct, frozen=True, kw_only=True):
    """How many values fell between which bounds."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    """One more than bounds: up to each bound, and beyond the last."""
    total: float
    least: float
    most: float

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)


class Point(Struct, frozen=True, kw_only=True):
    """One measured value of one series."""

    instrument: Instrument
    time_ns: int
    value: int | float | Distribution
    attributes: Attributes = {}
    host: str | None = None
    """The node it was measured on; None for the whole run."""
    start_ns: int | None = None
    """Since when a sum counts."""


Item = Span | LogRecord | Point


class Resource(Struct, frozen=True, kw_only=True):
    """Who sends: attributes of everything a run gives."""

    attributes: Attributes

    def of_host(self, host: str | None) -> Attributes:
        """Attributes of what was measured on a node: that host, and none of the run's own process."""
        if host is None:
            return self.attributes
        kept = {name: value for name, value in self.attributes.items() if not name.startswith("process.")}
        return {**kept, "host.name": host}
