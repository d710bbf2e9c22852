"""Runs that were really recorded go out whole: every attempt and span of their tables, once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from builders.otlp_receiver import from_json
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from flightlog.export.otlp.json_file import otlp_json
from flightlog.export.otlp.model import Ids
from flightlog.store.run import Run

GOLDEN = Path(__file__).parents[1] / "golden"
RUNS = [GOLDEN / "killed-for-memory", GOLDEN / "run-v1" / "run-20260520T035200Z-demo-a1b2c3d4"]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_every_attempt_and_span_of_a_recorded_run_is_sent_once_with_its_parent(path: Path):
    run = Run(path)
    spans = [
        span
        for form in otlp_json(run)
        if "resourceSpans" in form
        for group in from_json(msgspec.json.decode(msgspec.json.encode(form)), TracesData()).resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
    ids, root = Ids(run.info), run.info.span_id
    expected = {root: run.info.parent_id}
    begun = "SELECT span_id, parent_id, task_id, attempt FROM attempts WHERE state <> 'pending'"
    for span_id, parent_id, *which in run.sql(begun).rows():
        expected[ids.span(span_id, *which)] = parent_id or root
    for span_id, parent_id in run.sql("SELECT span_id, parent_id FROM spans").rows():
        expected[span_id] = parent_id or root
    assert len(spans) == len(expected) > 1
    assert {span.span_id.hex(): span.parent_span_id.hex() or None for span in spans} == expected
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano > 0 for span in spans)
