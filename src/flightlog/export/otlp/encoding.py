"""Items in OTLP's encodings. One mapping to the protocol's messages gives both: JSON, where ids are hex,
64-bit numbers are texts and names are camelCase; and from it the binary encoding, as the official message
classes write it (extra `otel`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from math import isfinite
from typing import Any

from flightlog.export.otlp.model import (
    SCOPE,
    Histogram,
    Instrument,
    Item,
    LogRecord,
    OtlpSpan,
    Point,
    Resource,
    Signal,
)
from flightlog.version import __version__

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
                    "resource": {"attributes": self._attributes(resource.of_host(host))},
                    of_scope: [{"scope": dict(scope), of_items: made}],
                }
                for host, made in messages.items()
            ]
        }

    def _span(self, span: OtlpSpan) -> Message:
        made: Message = {"traceId": span.trace_id, "spanId": span.span_id}
        if span.parent_id:
            made["parentSpanId"] = span.parent_id
        made |= {
            "name": _utf8(span.name),
            "kind": span.kind,
            "startTimeUnixNano": str(span.start_ns),
            "endTimeUnixNano": str(span.end_ns),
            "attributes": self._attributes(span.attributes),
        }
        if span.events:
            made["events"] = [
                {
                    "timeUnixNano": str(one.time_ns),
                    "name": _utf8(one.name),
                    "attributes": self._attributes(one.attributes),
                }
                for one in span.events
            ]
        if span.links:
            made["links"] = [
                {
                    "traceId": one.trace_id,
                    "spanId": one.span_id,
                    "attributes": self._attributes(one.attributes),
                }
                for one in span.links
            ]
        made["status"] = {} if span.status == "unset" else {"code": _STATUS[span.status]}
        if span.message:
            made["status"]["message"] = _utf8(span.message)
        return made

    def _record(self, record: LogRecord) -> Message:
        made: Message = {
            "timeUnixNano": str(record.time_ns),
            "observedTimeUnixNano": str(record.time_ns),
            "severityNumber": record.severity,
            "severityText": record.severity_text,
            "body": self._value(record.body),
            "attributes": self._attributes(record.attributes),
            "eventName": _utf8(record.event_name),
        }
        if record.trace_id:
            made["traceId"] = record.trace_id
        if record.span_id:
            made["spanId"] = record.span_id
        return made

    def _metric(self, instrument: Instrument, points: Sequence[Point]) -> Message:
        kind = instrument.kind if instrument.kind in {"gauge", "histogram"} else "sum"
        made: Message = {"dataPoints": [self._point(one) for one in points]}
        if kind != "gauge":
            made["aggregationTemporality"] = _CUMULATIVE
        if kind == "sum":
            made["isMonotonic"] = instrument.kind == "sum"
        name, what = _utf8(instrument.name), _utf8(instrument.what)
        return {"name": name, "description": what, "unit": instrument.unit, kind: made}

    def _point(self, point: Point) -> Message:
        made: Message = {"attributes": self._attributes(point.attributes)}
        if point.start_ns is not None:
            made["startTimeUnixNano"] = str(point.start_ns)
        made["timeUnixNano"] = str(point.time_ns)
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

    def _attributes(self, attributes: Mapping[str, Any]) -> list[Message]:
        return [{"key": _utf8(key), "value": self._value(value)} for key, value in attributes.items()]

    def _value(self, value: Any) -> Message:
        """A value with its type; what is of none that the protocol knows is a text."""
        found = self._values.get(type(value))
        if found is not None:
            return {found[0]: found[1](value)}
        if not isinstance(value, list | tuple):
            return self._value(str(value))
        return {self._array: {"values": [self._value(item) for item in value]}}


def _series(items: Sequence[Item]) -> dict[tuple[str | None, Instrument], list[Point]]:
    """Points by node and instrument, in order of arrival."""
    found: dict[tuple[str | None, Instrument], list[Point]] = {}
    for item in items:
        if isinstance(item, Point):
            found.setdefault((item.host, item.instrument), []).append(item)
    return found


def _binary(message: Message) -> Message:
    """A message of JSON as the arguments of its official class."""
    made = {}
    for name, value in message.items():
        field, read = _reading(name)
        made[field] = read(value)
    return made


def _inner(value: Any) -> Any:
    if isinstance(value, list):
        return [_binary(one) if isinstance(one, dict) else one for one in value]
    return _binary(value) if isinstance(value, dict) else value


@cache
def _reading(name: str) -> tuple[str, Callable[[Any], Any]]:
    """The official name of a field of JSON, and how its value is read for the binary encoding."""
    read: Callable[[Any], Any] = _inner
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
