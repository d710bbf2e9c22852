"""Items in OTLP's encodings. One mapping to the protocol's messages gives both: the binary encoding, as the
official message classes write it (extra `otel`), and JSON, where ids are hex, 64-bit numbers are strings and
names are camelCase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from math import isfinite
from typing import Any, NamedTuple

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
    "traces": ("resource_spans", "scope_spans", "spans"),
    "metrics": ("resource_metrics", "scope_metrics", "metrics"),
    "logs": ("resource_logs", "scope_logs", "log_records"),
}
_OURS = {"name": SCOPE, "version": __version__}
_STATUS = {"unset": None, "ok": 1, "error": 2}
_CUMULATIVE = 2
_NO_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""What the JSON encoding calls floats that JSON has no word for."""


def binary_form(signal: Signal, resource: Resource, items: Sequence[Item]) -> bytes:
    """The body of one export request that holds these items; needs the extra `otel`."""
    data = _Mapping(_BINARY).data(signal, resource, items, _OURS)
    body: bytes = _classes(signal)[0](**data).SerializeToString()
    return body


def json_form(
    signal: Signal, resource: Resource, items: Sequence[Item], scope: Mapping[str, str] = _OURS
) -> Message:
    """One `TracesData`, `MetricsData` or `LogsData` that holds these items, for a JSON encoder."""
    return _Mapping(_JSON).data(signal, resource, items, scope)


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


class _Names(dict[str, str]):
    """The names of fields in one encoding, each worked out once."""

    def __init__(self, spell: Callable[[str], str]) -> None:
        self._spell = spell

    def __missing__(self, name: str) -> str:
        self[name] = self._spell(name)
        return self[name]


class _Encoding(NamedTuple):
    """What differs between the encodings: names of fields, ids, numbers of 64 bits, and floats."""

    names: _Names
    id: Callable[[str], Any]
    long: Callable[[int], Any]
    double: Callable[[float], Any]


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


_BINARY = _Encoding(_Names(str), bytes.fromhex, int, float)
_JSON = _Encoding(
    _Names(_camel_case), str, str, lambda value: value if isfinite(value) else _NO_NUMBERS[str(value)]
)


class _Mapping:
    """Items as the protocol's messages, in one encoding."""

    def __init__(self, encoding: _Encoding) -> None:
        self._names, self._id, self._long, self._double = encoding

    def data(
        self, signal: Signal, resource: Resource, items: Sequence[Item], scope: Mapping[str, str]
    ) -> Message:
        """The message of these items, with their resource."""
        of_resource, of_scope, of_items = _FIELDS[signal]
        messages: dict[str | None, list[Message]] = {}
        if signal == "metrics":
            messages = {
                host: [self._metric(instrument, points) for instrument, points in series.items()]
                for host, series in _by_host(items).items()
            }
        elif signal == "traces":
            messages[None] = [self._span(item) for item in items if isinstance(item, OtlpSpan)]
        else:
            messages[None] = [self._record(item) for item in items if isinstance(item, LogRecord)]
        found = []
        for host, made in messages.items():
            scoped = self._message(scope=dict(scope), **{of_items: made})
            about = self._message(attributes=self._attributes(resource.of_host(host)))
            found.append(self._message(resource=about, **{of_scope: [scoped]}))
        return self._message(**{of_resource: found})

    def _message(self, **fields: Any) -> Message:
        names = self._names
        return {names[name]: value for name, value in fields.items() if value is not None}

    def _attributes(self, attributes: Mapping[str, Any]) -> list[Message]:
        return [{"key": _utf8(key), "value": self._value(value)} for key, value in attributes.items()]

    def _value(self, value: Any) -> Message:
        """A value with its type."""
        if isinstance(value, str):
            return {self._names["string_value"]: _utf8(value)}
        if isinstance(value, bool):
            return {self._names["bool_value"]: value}
        if isinstance(value, int):
            return {self._names["int_value"]: self._long(value)}
        if isinstance(value, float):
            return {self._names["double_value"]: self._double(value)}
        if isinstance(value, list | tuple):
            return {self._names["array_value"]: {"values": [self._value(item) for item in value]}}
        return {self._names["string_value"]: _utf8(str(value))}

    def _span(self, span: OtlpSpan) -> Message:
        events = [
            self._message(
                time_unix_nano=self._long(one.time_ns),
                name=_utf8(one.name),
                attributes=self._attributes(one.attributes),
            )
            for one in span.events
        ]
        links = [
            self._message(
                trace_id=self._id(link.trace_id),
                span_id=self._id(link.span_id),
                attributes=self._attributes(link.attributes),
            )
            for link in span.links
        ]
        return self._message(
            trace_id=self._id(span.trace_id),
            span_id=self._id(span.span_id),
            parent_span_id=self._id(span.parent_id) if span.parent_id else None,
            name=_utf8(span.name),
            kind=span.kind,
            start_time_unix_nano=self._long(span.start_ns),
            end_time_unix_nano=self._long(span.end_ns),
            attributes=self._attributes(span.attributes),
            events=events or None,
            links=links or None,
            status=self._message(code=_STATUS[span.status], message=_utf8(span.message) or None),
        )

    def _record(self, record: LogRecord) -> Message:
        at = self._long(record.time_ns)
        return self._message(
            time_unix_nano=at,
            observed_time_unix_nano=at,
            severity_number=record.severity,
            severity_text=record.severity_text,
            body=self._value(record.body),
            attributes=self._attributes(record.attributes),
            event_name=_utf8(record.event_name),
            trace_id=self._id(record.trace_id) if record.trace_id else None,
            span_id=self._id(record.span_id) if record.span_id else None,
        )

    def _metric(self, instrument: Instrument, points: Sequence[Point]) -> Message:
        kind = {"gauge": "gauge", "histogram": "histogram"}.get(instrument.kind, "sum")
        data = self._message(
            data_points=[self._point(point) for point in points],
            aggregation_temporality=None if kind == "gauge" else _CUMULATIVE,
            is_monotonic=instrument.kind == "sum" if kind == "sum" else None,
        )
        name, what = _utf8(instrument.name), _utf8(instrument.what)
        return self._message(name=name, description=what, unit=instrument.unit, **{kind: data})

    def _point(self, point: Point) -> Message:
        value = point.value
        measured: Message
        if isinstance(value, Histogram):
            measured = {
                "count": self._long(value.count),
                "sum": value.total,
                "min": value.least,
                "max": value.most,
                "bucket_counts": [self._long(count) for count in value.counts],
                "explicit_bounds": list(value.bounds),
            }
        elif isinstance(value, int):
            measured = {"as_int": self._long(value)}
        else:
            measured = {"as_double": self._double(value)}
        return self._message(
            attributes=self._attributes(point.attributes),
            start_time_unix_nano=None if point.start_ns is None else self._long(point.start_ns),
            time_unix_nano=self._long(point.time_ns),
            **measured,
        )


def _by_host(items: Sequence[Item]) -> dict[str | None, dict[Instrument, list[Point]]]:
    """Points by node and instrument, in order of arrival."""
    found: dict[str | None, dict[Instrument, list[Point]]] = {}
    for item in items:
        if isinstance(item, Point):
            found.setdefault(item.host, {}).setdefault(item.instrument, []).append(item)
    return found


def _utf8(text: str) -> str:
    """A text that UTF-8 can hold: half a character pair, as a cut can leave it, becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
