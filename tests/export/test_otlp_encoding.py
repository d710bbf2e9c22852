"""The two encodings say the same, and the file is as collectors read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from builders.otlp_receiver import from_json
from builders.runs import at
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from otlp_lives import ROOT, TRACE, a_run, completed, ns

from flightlog.core.time import LONGEST
from flightlog.events import ResourceSample, TaskCompleted
from flightlog.export.base import ExportOptions
from flightlog.export.otlp.batches import OtlpReader
from flightlog.export.otlp.json_file import exporter, otlp_json
from flightlog.export.otlp.model import (
    Link,
    LogRecord,
    OtlpEvent,
    OtlpSpan,
    Point,
    Resource,
    binary_form,
    json_form,
    known,
    plain,
)

MESSAGES: dict[str, Any] = {"traces": TracesData, "metrics": MetricsData, "logs": LogsData}
WHO = Resource(attributes={"service.name": "demo"})


def test_json_and_protobuf_say_the_same_of_a_whole_run(tmp_path: Path):
    run = a_run(tmp_path)
    reading = OtlpReader(run, environ={})
    seen = set()
    for batch in reading.batches(run, last=True):
        if batch.items:
            seen.add(batch.signal)
            body = binary_form(batch.signal, reading.resource, batch.items)
            form = msgspec.json.decode(
                msgspec.json.encode(json_form(batch.signal, reading.resource, batch.items))
            )
            assert MESSAGES[batch.signal].FromString(body) == from_json(form, MESSAGES[batch.signal]())
    assert seen == {"traces", "metrics", "logs"}


words = st.text(st.characters(codec="utf-8"), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
attributes = st.dictionaries(words, values, max_size=5).map(known)
times = st.integers(0, (1 << 63) - 1)


@given(words, times, times, attributes)
def test_any_span_and_record_is_the_same_in_both(name: str, start: int, end: int, said: dict[str, Any]):
    span = OtlpSpan(
        trace_id=TRACE,
        span_id=ROOT,
        parent_id=None,
        name=name,
        start_ns=start,
        end_ns=end,
        attributes=said,
        events=(OtlpEvent(name="exception", time_ns=start, attributes=said),),
        links=(Link(trace_id=TRACE, span_id=ROOT, attributes=said),),
        status="error",
        message=name,
    )
    record = LogRecord(
        time_ns=start, severity=9, severity_text="INFO", body=name, event_name=name, attributes=said
    )
    for signal, item in (("traces", span), ("logs", record)):
        form = msgspec.json.decode(msgspec.json.encode(json_form(signal, WHO, [item])))  # type: ignore[arg-type]
        assert MESSAGES[signal].FromString(binary_form(signal, WHO, [item])) == from_json(
            form, MESSAGES[signal]()
        )  # type: ignore[arg-type]


@given(values)
def test_whatever_stands_in_an_event_becomes_a_value_that_attributes_can_hold(value: Any):
    made = plain(value)
    flat = made if isinstance(made, list) else [made]
    assert all(isinstance(one, str | bool | int | float) for one in flat)
    assert len({type(one) for one in flat}) <= 1


def test_figures_and_times_beyond_64_bits_stop_nothing(tmp_path: Path):
    endless = completed("t1", 1, 1.0, 2.0)[2]
    assert isinstance(endless, TaskCompleted)
    endless.duration_s = 1e300
    vast = ResourceSample(
        timestamp=at(1), scope="worker", host="h", worker="w", cpu_percent=None, rss_bytes=2**64
    )
    run = a_run(tmp_path, [endless, vast])
    reading = OtlpReader(run, environ={})
    sent = [
        item
        for batch in reading.batches(run, last=True)
        if binary_form(batch.signal, reading.resource, batch.items)
        for item in batch.items
    ]
    spans = [(one.name, one.start_ns) for one in sent if isinstance(one, OtlpSpan)]
    assert spans == [("simulate", ns(2) - LONGEST), ("demo", ns(0))]
    assert [one.value for one in sent if isinstance(one, Point) and one.host] == [2.0**64]


def test_ids_are_hex_and_long_numbers_are_texts(tmp_path: Path):
    (root,) = [
        span
        for form in otlp_json(a_run(tmp_path, []))
        for group in form["resourceSpans"]
        for scope in group["scopeSpans"]
        for span in scope["spans"]
    ]
    assert (root["traceId"], root["spanId"], "parentSpanId" in root) == (TRACE, ROOT, False)
    assert (root["startTimeUnixNano"], root["endTimeUnixNano"]) == (str(ns(0)), str(ns(10)))
    assert {"key": "flightlog.run.tasks_failed", "value": {"intValue": "0"}} in root["attributes"]


def test_the_file_holds_one_document_a_line_and_what_is_in_memory(tmp_path: Path):
    run = a_run(tmp_path)
    output = tmp_path / "run.otlp.jsonl"
    exported = exporter.export(run, output, ExportOptions())
    lines = [msgspec.json.decode(line) for line in output.read_bytes().splitlines()]
    assert lines == list(otlp_json(run))
    assert [len(line) for line in lines] == [1] * len(lines)
    assert exported.counts == {"spans": 8, "points": 51, "log records": 3}
    assert exported.notes == ()


def test_a_run_that_is_running_is_given_without_its_root_and_that_is_said(tmp_path: Path):
    import os

    from flightlog.store.liveness import process_start, this_host

    me = {"pid": os.getpid(), "pid_start": process_start(os.getpid()), "host": this_host()}
    run = a_run(tmp_path, status="running", end_time=None, **me)
    exported = exporter.export(run, tmp_path / "out", ExportOptions())
    assert exported.counts["spans"] == 7
    assert exported.notes == ("the run is still running: its root span, and what has not ended, are missing",)
