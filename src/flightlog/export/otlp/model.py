"""What OTLP carries: spans, log records, points, attributes and the resource; and its encodings.

Times are whole nanoseconds since 1970, ids lowercase hex as W3C has them. One mapping to the protocol's
messages gives both encodings: JSON, where ids are hex, 64-bit numbers are texts and names are camelCase; and
from it the binary encoding, as the official message classes write it (extra `otel`).
"""

from __future__ import annotations

import hashlib
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from itertools import islice
from math import isfinite
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from flightlog.events import SpanEvent, SpanOpened, TaskEvent
from flightlog.export.limits import ExportLimits
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


InstrumentKind = Literal["gauge", "sum", "level", "histogram"]


class Instrument(NamedTuple):
    """What is measured."""

    name: str
    unit: str
    kind: InstrumentKind
    """A `sum` only grows from its start, a `level` is a sum that also falls; both are counted from the run's
    start."""
    what: str


class Histogram(Struct, kw_only=True):
    """How many values fell between which bounds."""

    bounds: tuple[float, ...]
    counts: list[int]
    """One more than bounds: up to each bound, and beyond the last."""
    total: float = 0.0
    least: float = math.inf
    most: float = 0.0

    def add(self, value: float) -> None:
        """Count one more value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
        self.least, self.most = min(self.least, value), max(self.most, value)

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


def known(values: Mapping[str, Any]) -> Attributes:
    """The attributes there are values for: unknown ones are left out, empty ones too."""
    return {
        name: plain(value)
        for name, value in values.items()
        if value is not None and (value or not isinstance(value, dict | list))
    }


def prefixed(prefix: str, values: Mapping[str, Any]) -> Attributes:
    """A mapping as one attribute per key, with this before their names; a bounded number."""
    return known({f"{prefix}{key}": value for key, value in islice(values.items(), ExportLimits.max_items)})


def plain(value: Any) -> Any:
    """A value that an attribute can hold: text, switch, number, or a list of one kind of these; else JSON
    text.
    """
    kind, most = type(value), ExportLimits.max_text_characters
    if kind is str:
        return value if len(value) <= most else f"{value[:most]}…"
    if (kind is int and not -(1 << 63) <= value < 1 << 63) or (kind is float and not math.isfinite(value)):
        return str(value)
    if kind in (bool, int, float):
        return value
    if isinstance(value, list | tuple):
        items = [plain(item) for item in value[: ExportLimits.max_items]]
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
    pairs = (part.partition("=") for part in text.split(","))
    return {
        unquote(key.strip()): unquote(value.strip().strip('"'))
        for key, equals, value in pairs
        if equals and key.strip()
    }


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


Message = dict[str, Any]
"""A message of the protocol by its fields; one that is not set is left out."""
_FIELDS = {
    "traces": ("resourceSpans", "scopeSpans", "spans"),
    "metrics": ("resourceMetrics", "scopeMetrics", "metrics"),
    "logs": ("resourceLogs", "scopeLogs", "logRecords"),
}
_OURS = {"name": SCOPE, "version": __version__}
_STATUS = {"ok": 1, "error": 2}
_CUMULATIVE = 2
_NO_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""What the JSON encoding calls floats that JSON has no word for."""


def binary_form(signal: Signal, resource: Resource, items: Sequence[Item]) -> bytes:
    """The body of one export request that holds these items; needs the extra `otel`."""
    data = _Mapping(_BINARY_VALUES).data(signal, resource, items, _OURS)
    body: bytes = _classes(signal)[0](**_binary(data)).SerializeToString()
    return body


def json_form(
    signal: Signal, resource: Resource, items: Sequence[Item], scope: Mapping[str, str] = _OURS
) -> Message:
    """One `TracesData`, `MetricsData` or `LogsData` that holds these items, for a JSON encoder."""
    return _Mapping(_JSON_VALUES).data(signal, resource, items, scope)


def refused(signal: Signal, answer: bytes) -> tuple[int, str]:
    """How many items the server refused in an accepted request, and its message. Raises ValueError."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        part = _classes(signal)[1].FromString(answer).partial_success
    except DecodeError as error:
        raise ValueError(str(error)) from None
    number = next((value for field, value in part.ListFields() if field.name != "error_message"), 0)
    return number, part.error_message


@cache
def _classes(signal: Signal) -> tuple[Any, Any]:
    """The official classes of a request's data and of its answer."""
    what = "trace" if signal == "traces" else signal
    data = import_module(f"opentelemetry.proto.{what}.v1.{what}_pb2")
    service = import_module(f"opentelemetry.proto.collector.{what}.v1.{what}_service_pb2")
    answer = f"Export{what.capitalize()}ServiceResponse"
    return getattr(data, f"{signal.capitalize()}Data"), getattr(service, answer)


class _Mapping:
    """Items as the messages of JSON, with attributes in either encoding: most of a message is attributes."""

    def __init__(self, values: _Values) -> None:
        self._values = values
        self._array = "arrayValue" if values is _JSON_VALUES else "array_value"

    def data(
        self, signal: Signal, resource: Resource, items: Sequence[Item], scope: Mapping[str, str]
    ) -> Message:
        of_resource, of_scope, of_items = _FIELDS[signal]
        messages: dict[str | None, list[Message]] = {}
        if signal == "metrics":
            for (host, instrument), points in _series(items).items():
                messages.setdefault(host, []).append(self._metric(instrument, points))
        elif signal == "traces":
            messages[None] = [self._span(item) for item in items if isinstance(item, OtlpSpan)]
        else:
            messages[None] = [self._record(item) for item in items if isinstance(item, LogRecord)]
        return {
            of_resource: [
                {
                    "resource": self._of(resource.of_host(host)),
                    of_scope: [{"scope": dict(scope), of_items: made}],
                }
                for host, made in messages.items()
            ]
        }

    def _span(self, span: OtlpSpan) -> Message:
        events = [
            {"timeUnixNano": str(one.time_ns), "name": _utf8(one.name), **self._of(one.attributes)}
            for one in span.events
        ]
        links = [
            {"traceId": one.trace_id, "spanId": one.span_id, **self._of(one.attributes)} for one in span.links
        ]
        return _given(
            traceId=span.trace_id,
            spanId=span.span_id,
            parentSpanId=span.parent_id or None,
            name=_utf8(span.name),
            kind=span.kind,
            startTimeUnixNano=str(span.start_ns),
            endTimeUnixNano=str(span.end_ns),
            **self._of(span.attributes),
            events=events or None,
            links=links or None,
            status=_given(code=_STATUS.get(span.status), message=_utf8(span.message) or None),
        )

    def _record(self, record: LogRecord) -> Message:
        return _given(
            timeUnixNano=str(record.time_ns),
            observedTimeUnixNano=str(record.time_ns),
            severityNumber=record.severity,
            severityText=record.severity_text,
            body=self._value(record.body),
            **self._of(record.attributes),
            eventName=_utf8(record.event_name),
            traceId=record.trace_id or None,
            spanId=record.span_id or None,
        )

    def _metric(self, instrument: Instrument, points: Sequence[Point]) -> Message:
        kind = instrument.kind if instrument.kind in {"gauge", "histogram"} else "sum"
        made = _given(
            dataPoints=[self._point(one) for one in points],
            aggregationTemporality=None if kind == "gauge" else _CUMULATIVE,
            isMonotonic=instrument.kind == "sum" if kind == "sum" else None,
        )
        name, what = _utf8(instrument.name), _utf8(instrument.what)
        return {"name": name, "description": what, "unit": instrument.unit, kind: made}

    def _point(self, point: Point) -> Message:
        made = _given(
            **self._of(point.attributes),
            startTimeUnixNano=None if point.start_ns is None else str(point.start_ns),
            timeUnixNano=str(point.time_ns),
        )
        value = point.value
        if isinstance(value, Histogram):
            made |= {
                "count": str(value.count),
                "sum": value.total,
                "min": value.least,
                "max": value.most,
                "bucketCounts": [str(count) for count in value.counts],
                "explicitBounds": list(value.bounds),
            }
        elif isinstance(value, int):
            made["asInt"] = str(value)
        else:
            made["asDouble"] = _double(value)
        return made

    def _of(self, attributes: Mapping[str, Any]) -> Message:
        return {
            "attributes": [{"key": _utf8(key), "value": self._value(one)} for key, one in attributes.items()]
        }

    def _value(self, value: Any) -> Message:
        """A value with its type; what is of none that the protocol knows is a text."""
        found = self._values.get(type(value))
        if found is not None:
            return {found[0]: found[1](value)}
        if not isinstance(value, list | tuple):
            return self._value(str(value))
        return {self._array: {"values": [self._value(item) for item in value]}}


def _given(**fields: Any) -> Message:
    """A message with those fields that are set."""
    return {name: value for name, value in fields.items() if value is not None}


def _series(items: Sequence[Item]) -> dict[tuple[str | None, Instrument], list[Point]]:
    """Points by node and instrument, in order of arrival."""
    found: dict[tuple[str | None, Instrument], list[Point]] = {}
    for item in items:
        if isinstance(item, Point):
            found.setdefault((item.host, item.instrument), []).append(item)
    return found


def _binary(message: Any) -> Any:
    """A message of JSON as the arguments of its official class, or of the classes of its fields."""
    if isinstance(message, list):
        return [_binary(one) for one in message]
    if not isinstance(message, dict):
        return message
    readings = ((*_reading(name), value) for name, value in message.items())
    return {field: read(value) for field, read, value in readings}


@cache
def _reading(name: str) -> tuple[str, Callable[[Any], Any]]:
    """The official name of a field of JSON, and how its value is read for the binary encoding."""
    read: Callable[[Any], Any] = _binary
    if name.endswith("Id"):
        read = bytes.fromhex
    elif name.endswith("UnixNano") or name in {"count", "asInt"}:
        read = int
    elif name == "bucketCounts":
        read = partial(map, int)
    elif name == "asDouble":
        read = float
    elif name in {"attributes", "body", "name"}:
        read = _same  # it is in the binary form already
    return _snake_case(name), read


def _snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


def _same(value: Any) -> Any:
    return value


def _double(value: float) -> float | str:
    """A float, or the name of one that JSON has no word for; Python reads these names, too."""
    return value if isfinite(value) else _NO_NUMBERS[str(value)]


def _utf8(text: str) -> str:
    """A text that UTF-8 can hold: half a character pair, as a cut can leave it, becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


_Values = dict[type, tuple[str, Callable[[Any], Any]]]
"""By the type of a value the field that holds it, and how it is written there."""
_JSON_VALUES: _Values = {
    str: ("stringValue", _utf8),
    bool: ("boolValue", bool),
    int: ("intValue", str),
    float: ("doubleValue", _double),
}
_BINARY_VALUES: _Values = {
    kind: (_snake_case(name), written if kind is str else kind)
    for kind, (name, written) in _JSON_VALUES.items()
}
