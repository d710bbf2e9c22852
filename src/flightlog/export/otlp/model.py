"""What OTLP carries, whatever the encoding: spans, log records, points, attributes and the resource.

Times are whole nanoseconds since 1970, ids lowercase hex as W3C has them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from flightlog.events import SpanEvent, SpanOpened, TaskEvent
from flightlog.store.layout import RunInfo
from flightlog.version import __version__

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
"""A line of a run: stream, writer and number. Lines without a writer are numbered in order."""


class OtlpEvent(Struct, frozen=True, kw_only=True):
    """Something that happened inside a span, at one moment."""

    name: str
    time_ns: int
    attributes: Attributes = {}


class Link(Struct, frozen=True, kw_only=True):
    """Another span that this one depends on."""

    trace_id: str
    span_id: str
    attributes: Attributes = {}


class OtlpSpan(Struct, frozen=True, kw_only=True):
    """One finished span."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    start_ns: int
    end_ns: int
    attributes: Attributes = {}
    events: tuple[OtlpEvent, ...] = ()
    links: tuple[Link, ...] = ()
    status: Literal["unset", "ok", "error"] = "unset"
    message: str = ""
    kind: int = 1
    """OpenTelemetry's span kind: 1 is internal, 2 to 5 are communication with others."""


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


class Histogram(Struct, frozen=True, kw_only=True):
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
    value: int | float | Histogram
    attributes: Attributes = {}
    host: str | None = None
    """The node it was measured on; None for the whole run."""
    start_ns: int | None = None
    """Since when a sum counts."""


Item = OtlpSpan | LogRecord | Point


class Resource(Struct, frozen=True, kw_only=True):
    """The OTLP resource: attributes of all items of a run."""

    attributes: Attributes

    def of_host(self, host: str | None) -> Attributes:
        """Attributes for measurements on a node: that host, without the run's own process."""
        if host is None:
            return self.attributes
        kept = {name: value for name, value in self.attributes.items() if not name.startswith("process.")}
        return {**kept, "host.name": host}


MAX_TEXT = 32 << 10
"""Characters of an attribute's text; the recorder's own bounds are below it, those of foreign runs need not
be."""
MAX_ITEMS = 128


def known(values: Mapping[str, Any]) -> Attributes:
    """The attributes there are values for: unknown ones are left out, empty ones too."""
    return {
        name: plain(value)
        for name, value in values.items()
        if value is not None and (value or not isinstance(value, dict | list))
    }


def prefixed(prefix: str, values: Mapping[str, Any]) -> Attributes:
    """A mapping as one attribute a key, below a common name."""
    return known({f"{prefix}.{key}": value for key, value in list(values.items())[:MAX_ITEMS]})


def plain(value: Any) -> Any:
    """A value that an attribute can hold: text, switch, number, or a list of one kind of these; else JSON
    text.
    """
    kind = type(value)
    if kind is str:
        return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}…"
    if kind is bool:
        return value
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 63 else str(value)
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        items = [plain(item) for item in value[:MAX_ITEMS]]
        if len({type(item) for item in items}) <= 1 and not any(isinstance(item, list) for item in items):
            return items
    return plain(msgspec.json.encode(value).decode())


def resource_of(info: RunInfo, environ: Mapping[str, str]) -> Resource:
    """The run as a resource: its project is the service, the run is an instance of it.

    `OTEL_RESOURCE_ATTRIBUTES` adds to this or overrides it, and `OTEL_SERVICE_NAME` names the service.
    Unknown values are left out.
    """
    known: Attributes = {
        "service.name": info.project or "flightlog",
        "service.instance.id": info.run_id,
        "host.name": info.host or None,
        "process.pid": info.pid or None,
        "process.command_args": info.command or None,
        "process.working_directory": info.cwd,
        "process.runtime.name": "python" if info.python else None,
        "process.runtime.version": info.python,
        "vcs.ref.head.revision": info.git_commit,
        "telemetry.sdk.name": "flightlog",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": info.flightlog_version or __version__,
    }
    said = pairs_of(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    if name := environ.get("OTEL_SERVICE_NAME"):
        said["service.name"] = name
    return Resource(attributes={key: value for key, value in {**known, **said}.items() if value is not None})


def pairs_of(text: str) -> dict[str, str]:
    """The pairs of `key=value,key=value`, percent-decoded; anything else is left out."""
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if equals and key.strip():
            found[unquote(key.strip())] = unquote(value.strip().strip('"'))
    return found


class Ids:
    """The run's trace and span ids; made from its name where it was recorded without, and always the same
    then.
    """

    def __init__(self, info: RunInfo) -> None:
        self.trace_id = hex_id(info.trace_id, 32) or derived_id(32, info.run_id)
        self.root_id = hex_id(info.span_id, 16) or derived_id(16, info.run_id, "run")
        self.outer_id = hex_id(info.parent_id, 16)
        """The span of another program that the run happened in, if there is one."""
        self._run_id = info.run_id

    def of(self, event: TaskEvent | SpanEvent | SpanOpened, *which: object) -> dict[str, Any]:
        """Trace, span and parent of an event, as recorded; else the run's trace, an id derived from `which`,
        and within the run's trace the run itself.
        """
        trace_id = hex_id(event.trace_id, 32) or self.trace_id
        run = self.root_id if trace_id == self.trace_id else None
        return {
            "trace_id": trace_id,
            "span_id": self.span(event.span_id, *which),
            "parent_id": hex_id(event.parent_id, 16) or run,
        }

    def span(self, recorded: str | None, *which: object) -> str:
        """The recorded span id, or one derived from the task and attempt."""
        return hex_id(recorded, 16) or derived_id(16, self._run_id, *which)


def hex_id(text: str | None, digits: int) -> str | None:
    """An id in lowercase hex; None where it is none, or nothing but zeros."""
    if not text or len(text) != digits:
        return None
    lower = text.lower()
    return lower if lower.strip("0") and not lower.strip("0123456789abcdef") else None


def derived_id(digits: int, *parts: object) -> str:
    """An id that is the same for the same parts, always."""
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "replace")).hexdigest()[:digits]
