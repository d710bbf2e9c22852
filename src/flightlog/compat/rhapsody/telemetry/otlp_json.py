"""Spans as the JSON form of OpenTelemetry's protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flightlog.export.otlp.json_form import attributes_form


def spans_document(spans: Iterable[Any], resource: Mapping[str, Any]) -> dict[str, Any]:
    """What a collector takes at `/v1/traces`."""
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": attributes_form(resource)},
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
        "attributes": attributes_form(span.attributes or {}),
        "status": status,
    }
    if span.parent:
        document["parentSpanId"] = f"{span.parent.span_id:016x}"
    if span.events:
        document["events"] = [
            {
                "timeUnixNano": str(event.timestamp),
                "name": event.name,
                "attributes": attributes_form(event.attributes or {}),
            }
            for event in span.events
        ]
    return document
