"""A run in the JSON encoding of OTLP: in memory, or as a file with one `TracesData`, `MetricsData` or
`LogsData` per line. Ids are hex, 64-bit numbers are strings, and names are camelCase.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flightlog.core.errors import UsageError
from flightlog.export.base import Exported, ExportOptions, refuse, whole_file
from flightlog.export.otlp.batches import OtlpReader
from flightlog.export.otlp.model import (
    NAMES,
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

if TYPE_CHECKING:
    from flightlog.store.run import Run


def otlp_json(run: Run) -> Iterator[dict[str, Any]]:
    """The run in OTLP's JSON, a few hundred spans, points or records at a time; needs no library.

    Each is the body of a request to `/v1/traces`, `/v1/metrics` or `/v1/logs`, with the key `resourceSpans`,
    `resourceMetrics` or `resourceLogs`. A running run is returned as far as recorded, without its root span.
    """
    reading = OtlpReader(run, environ={})
    for batch in reading.batches(run, last=True):
        if batch.items:
            yield json_form(batch.signal, reading.resource, batch.items)


class OtlpJson:
    """The exporter `otlp-json`."""

    name = "otlp-json"
    what = "OpenTelemetry traces, metrics and logs in a file of JSON lines, as collectors read them"
    ending: str | None = ".otlp.jsonl"

    def export(self, run: Run, output: Path | None, options: ExportOptions) -> Exported:
        """Write the file."""
        refuse(self.name, options)
        if output is None:
            raise UsageError("--to otlp-json writes a file: say which")
        counts = dict.fromkeys(NAMES.values(), 0)
        reading = OtlpReader(run, environ={})
        with whole_file(output) as made, made.open("wb") as out:
            for batch in reading.batches(run, last=True):
                if batch.items:
                    form = json_form(batch.signal, reading.resource, batch.items)
                    out.write(msgspec.json.encode(form) + b"\n")
                    counts[NAMES[batch.signal]] += len(batch.items)
                    if options.progress:
                        options.progress(sum(counts.values()), None)
        notes = reading.notes()
        if run.status == "running":
            notes.append("the run is still running: its root span, and what has not ended, are missing")
        return Exported(to=self.name, where=str(output), counts=counts, notes=tuple(notes))


exporter = OtlpJson()


STATUS = {"unset": 0, "ok": 1, "error": 2}
CUMULATIVE = 2
NO_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""What the encoding calls floats that JSON has no word for."""
Json = dict[str, Any]


def json_form(signal: Signal, resource: Resource, items: Sequence[Item]) -> Json:
    """One `TracesData`, `MetricsData` or `LogsData` that holds these items."""
    scope = {"name": SCOPE, "version": __version__}
    if signal == "metrics":
        return {
            "resourceMetrics": [
                {
                    "resource": {"attributes": attributes_form(resource.of_host(host))},
                    "scopeMetrics": [{"scope": scope, "metrics": list(map(_metric, series.items()))}],
                }
                for host, series in by_host(items).items()
            ]
        }
    who = {"attributes": attributes_form(resource.attributes)}
    if signal == "traces":
        spans = [_span(item) for item in items if isinstance(item, OtlpSpan)]
        return {"resourceSpans": [{"resource": who, "scopeSpans": [{"scope": scope, "spans": spans}]}]}
    records = [_record(item) for item in items if isinstance(item, LogRecord)]
    return {"resourceLogs": [{"resource": who, "scopeLogs": [{"scope": scope, "logRecords": records}]}]}


def by_host(items: Iterable[Item]) -> dict[str | None, dict[Instrument, list[Point]]]:
    """Points by node and instrument, in order of arrival."""
    found: dict[str | None, dict[Instrument, list[Point]]] = {}
    for item in items:
        if isinstance(item, Point):
            found.setdefault(item.host, {}).setdefault(item.instrument, []).append(item)
    return found


def attributes_form(attributes: Mapping[str, Any]) -> list[Json]:
    """Attributes as OTLP lists them."""
    return [{"key": key, "value": value_form(value)} for key, value in attributes.items()]


def value_form(value: Any) -> Json:
    """A value with its type."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value if isfinite(value) else NO_NUMBERS[str(value)]}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [value_form(item) for item in value]}}
    return {"stringValue": str(value)}


def _span(span: OtlpSpan) -> Json:
    form: Json = {"traceId": span.trace_id, "spanId": span.span_id}
    if span.parent_id:
        form["parentSpanId"] = span.parent_id
    form |= {
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": attributes_form(span.attributes),
    }
    if span.happenings:
        form["events"] = [
            {
                "timeUnixNano": str(one.time_ns),
                "name": one.name,
                "attributes": attributes_form(one.attributes),
            }
            for one in span.happenings
        ]
    if span.links:
        form["links"] = [
            {"traceId": link.trace_id, "spanId": link.span_id, "attributes": attributes_form(link.attributes)}
            for link in span.links
        ]
    status: Json = {"code": STATUS[span.status]} if span.status != "unset" else {}
    form["status"] = status | ({"message": span.message} if span.message else {})
    return form


def _record(record: LogRecord) -> Json:
    form: Json = {
        "timeUnixNano": str(record.time_ns),
        "observedTimeUnixNano": str(record.time_ns),
        "severityNumber": record.severity,
        "severityText": record.severity_text,
        "body": {"stringValue": record.body},
        "attributes": attributes_form(record.attributes),
        "eventName": record.event_name,
    }
    if record.trace_id:
        form["traceId"] = record.trace_id
    if record.span_id:
        form["spanId"] = record.span_id
    return form


def _metric(series: tuple[Instrument, list[Point]]) -> Json:
    instrument, points = series
    data: Json = {"dataPoints": [_point(point) for point in points]}
    if instrument.kind != "gauge":
        data["aggregationTemporality"] = CUMULATIVE
    if instrument.kind in {"sum", "level"}:
        data["isMonotonic"] = instrument.kind == "sum"
    kind = {"gauge": "gauge", "histogram": "histogram"}.get(instrument.kind, "sum")
    return {"name": instrument.name, "description": instrument.what, "unit": instrument.unit, kind: data}


def _point(point: Point) -> Json:
    form: Json = {"attributes": attributes_form(point.attributes)}
    if point.start_ns is not None:
        form["startTimeUnixNano"] = str(point.start_ns)
    form["timeUnixNano"] = str(point.time_ns)
    value = point.value
    if isinstance(value, Histogram):
        return form | {
            "count": str(value.count),
            "sum": value.total,
            "min": value.least,
            "max": value.most,
            "bucketCounts": [str(count) for count in value.counts],
            "explicitBounds": list(value.bounds),
        }
    return form | ({"asInt": str(value)} if isinstance(value, int) else {"asDouble": value})
