"""The binary encoding of OTLP, as the official message classes write it; needs the extra `otel`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1 import logs_pb2 as logs
from opentelemetry.proto.metrics.v1 import metrics_pb2 as metrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as WireResource
from opentelemetry.proto.trace.v1 import trace_pb2 as trace

from flightlog.export.otlp.json_file import CUMULATIVE, STATUS, by_host
from flightlog.export.otlp.model import (
    SCOPE,
    Attributes,
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


def encode(signal: Signal, resource: Resource, items: Sequence[Item]) -> bytes:
    """The body of one export request that holds these items."""
    body: bytes = _message(signal, resource, items).SerializeToString()
    return body


def _message(
    signal: Signal, resource: Resource, items: Sequence[Item]
) -> trace.TracesData | logs.LogsData | metrics.MetricsData:
    scope = InstrumentationScope(name=SCOPE, version=__version__)
    who = WireResource(attributes=_attributes(resource.attributes))
    if signal == "traces":
        spans = [_span(item) for item in items if isinstance(item, OtlpSpan)]
        scoped = trace.ScopeSpans(scope=scope, spans=spans)
        return trace.TracesData(resource_spans=[trace.ResourceSpans(resource=who, scope_spans=[scoped])])
    if signal == "logs":
        records = [_record(item) for item in items if isinstance(item, LogRecord)]
        logged = logs.ScopeLogs(scope=scope, log_records=records)
        return logs.LogsData(resource_logs=[logs.ResourceLogs(resource=who, scope_logs=[logged])])
    found = []
    for host, series in by_host(items).items():
        measured = metrics.ScopeMetrics(scope=scope, metrics=[_metric(*one) for one in series.items()])
        node = WireResource(attributes=_attributes(resource.of_host(host)))
        found.append(metrics.ResourceMetrics(resource=node, scope_metrics=[measured]))
    return metrics.MetricsData(resource_metrics=found)


def refused(signal: Signal, answer: bytes) -> tuple[int, str]:
    """How many items the server refused in an accepted request, and its message. Raises ValueError."""
    try:
        if signal == "traces":
            spans = ExportTraceServiceResponse.FromString(answer).partial_success
            return spans.rejected_spans, spans.error_message
        if signal == "metrics":
            points = ExportMetricsServiceResponse.FromString(answer).partial_success
            return points.rejected_data_points, points.error_message
        records = ExportLogsServiceResponse.FromString(answer).partial_success
        return records.rejected_log_records, records.error_message
    except DecodeError as error:
        raise ValueError(str(error)) from None


def _attributes(attributes: Attributes) -> list[KeyValue]:

    return [KeyValue(key=_utf8(key), value=_value(value)) for key, value in attributes.items()]


def _value(value: Any) -> AnyValue:
    kind = type(value)
    if kind is str:
        return AnyValue(string_value=value if value.isascii() else _utf8(value))
    if kind is bool:
        return AnyValue(bool_value=value)
    if kind is int:
        return AnyValue(int_value=value)
    if kind is float:
        return AnyValue(double_value=value)
    if kind is list:
        return AnyValue(array_value=ArrayValue(values=[_value(item) for item in value]))
    return AnyValue(string_value=_utf8(str(value)))


def _utf8(text: str) -> str:
    """A text that UTF-8 can hold: half a character pair, as a cut can leave it, becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _span(span: OtlpSpan) -> Any:
    return trace.Span(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_id or ""),
        name=_utf8(span.name),
        kind=span.kind,  # type: ignore[arg-type]
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        attributes=_attributes(span.attributes),
        events=[
            trace.Span.Event(
                name=one.name, time_unix_nano=one.time_ns, attributes=_attributes(one.attributes)
            )
            for one in span.happenings
        ],
        links=[
            trace.Span.Link(
                trace_id=bytes.fromhex(link.trace_id),
                span_id=bytes.fromhex(link.span_id),
                attributes=_attributes(link.attributes),
            )
            for link in span.links
        ],
        status=trace.Status(code=STATUS[span.status], message=_utf8(span.message)),  # type: ignore[arg-type]
    )


def _record(record: LogRecord) -> Any:

    return logs.LogRecord(
        time_unix_nano=record.time_ns,
        observed_time_unix_nano=record.time_ns,
        severity_number=record.severity,  # type: ignore[arg-type]
        severity_text=record.severity_text,
        body=_value(record.body),
        attributes=_attributes(record.attributes),
        event_name=_utf8(record.event_name),
        trace_id=bytes.fromhex(record.trace_id),
        span_id=bytes.fromhex(record.span_id or ""),
    )


def _metric(instrument: Instrument, points: Sequence[Point]) -> metrics.Metric:

    said = metrics.Metric(
        name=_utf8(instrument.name), unit=instrument.unit, description=_utf8(instrument.what)
    )
    if instrument.kind == "histogram":
        said.histogram.aggregation_temporality = CUMULATIVE  # type: ignore[assignment]
        said.histogram.data_points.extend(
            metrics.HistogramDataPoint(
                attributes=_attributes(point.attributes),
                start_time_unix_nano=point.start_ns or 0,
                time_unix_nano=point.time_ns,
                count=value.count,
                sum=value.total,
                min=value.least,
                max=value.most,
                bucket_counts=value.counts,
                explicit_bounds=value.bounds,
            )
            for point in points
            if isinstance(value := point.value, Histogram)
        )
        return said
    made = [
        metrics.NumberDataPoint(
            attributes=_attributes(point.attributes),
            start_time_unix_nano=point.start_ns or 0,
            time_unix_nano=point.time_ns,
            **_number(point.value),
        )
        for point in points
    ]
    if instrument.kind == "gauge":
        said.gauge.data_points.extend(made)
        return said
    said.sum.aggregation_temporality = CUMULATIVE  # type: ignore[assignment]
    said.sum.is_monotonic = instrument.kind == "sum"
    said.sum.data_points.extend(made)
    return said


def _number(value: Any) -> dict[str, Any]:
    return {"as_int" if isinstance(value, int) else "as_double": value}
