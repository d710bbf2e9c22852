"""Spans as the JSON form of OpenTelemetry's protocol."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

_NO_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""What the protocol's JSON form calls floats that JSON has no word for."""


def spans_document(spans: Iterable[Any], resource: Mapping[str, Any]) -> dict[str, Any]:
    """What a collector takes at `/v1/traces`."""
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": {"name": "rhapsody"}, "spans": [_span(span) for span in spans]}],
            }
        ]
    }


def _span(span: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"code": span.status.status_code.value}
    if span.status.description:
        status["message"] = span.status.description
    document = {
        "traceId": f"{span.context.trace_id:032x}",
        "spanId": f"{span.context.span_id:016x}",
        "name": span.name,
        "kind": span.kind.value + 1,  # the protocol counts from "unspecified", the API does not
        "startTimeUnixNano": str(span.start_time or 0),
        "endTimeUnixNano": str(span.end_time or 0),
        "attributes": _attributes(span.attributes or {}),
        "status": status,
    }
    if span.parent:
        document["parentSpanId"] = f"{span.parent.span_id:016x}"
    if span.events:
        document["events"] = [
            {
                "timeUnixNano": str(event.timestamp),
                "name": event.name,
                "attributes": _attributes(event.attributes or {}),
            }
            for event in span.events
        ]
    return document


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value if math.isfinite(value) else _NO_NUMBERS[str(value)]}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_value(inner) for inner in value]}}
    return {"stringValue": str(value)}
