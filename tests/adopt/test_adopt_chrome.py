"""Chrome traces: slices to spans that lie inside each other, counters to metrics, instants and flows to
events."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from adopting import adopt_one, events_of

from flightlog.core.errors import UsageError
from flightlog.events import Metric, SpanEvent, SpanOpened, UserEvent
from flightlog.store.run import Run

T0 = 1_779_249_120_000_000  # 2026-05-20T03:52:00Z, in microseconds


def trace(folder: Path, events: list[dict[str, Any]], name: str = "trace.json", **others: Any) -> Path:
    file = folder / name
    document = json.dumps({"traceEvents": events, **others} if others else events).encode()
    file.write_bytes(gzip.compress(document) if name.endswith(".gz") else document)
    return file


def slice_of(name: str, ts: float, dur: float, tid: int = 1, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": T0 + ts, "dur": dur, "pid": 1, "tid": tid, **more}


def tree(run: Run) -> dict[str, str]:
    """Each span's name with that of the one around it."""
    spans = [event for event in events_of(run, "spans") if isinstance(event, SpanEvent | SpanOpened)]
    names = {span.span_id: span.name for span in spans} | {run.info.span_id: "the run"}
    return {span.name: names[span.parent_id or ""] for span in spans}


def test_slices_in_any_order_lie_inside_each_other_thread_by_thread(tmp_path: Path) -> None:
    events = [
        slice_of("inner", 20, 30),
        slice_of("outer", 0, 100),
        slice_of("second", 60, 40),
        slice_of("deep", 20, 5),
        slice_of("elsewhere", 10, 20, tid=2),
        slice_of("later", 100, 5),
    ]
    adoption, run = adopt_one(trace(tmp_path, events), tmp_path / "runs")
    assert tree(run) == {
        "outer": "the run",
        "inner": "outer",
        "deep": "inner",
        "second": "outer",
        "elsewhere": "the run",
        "later": "the run",
    }
    spans = {span.name: span for span in events_of(run, "spans") if isinstance(span, SpanEvent)}
    assert (spans["inner"].duration_s, spans["inner"].timestamp) == (3e-5, "2026-05-20T03:52:00.000020Z")
    assert adoption.mapped == {"slices → span": 6}
    assert (run.info.start_time, run.info.end_time) == (
        "2026-05-20T03:52:00.000000Z",
        "2026-05-20T03:52:00.000105Z",
    )


def test_begins_and_ends_are_paired_and_what_never_ended_was_in_flight(tmp_path: Path) -> None:
    def mark(phase: str, ts: int, name: str = "", **more: Any) -> dict[str, Any]:
        return {"ph": phase, "name": name, "ts": T0 + ts, "pid": 1, "tid": 1, **more}

    events = [
        mark("E", 0),
        mark("B", 1, "outer", args={"a": 1}),
        mark("B", 2, "inner"),
        mark("E", 5, args={"b": 2}),
        mark("B", 7, "hung"),
        mark("b", 3, "async", cat="c", id="0x1"),
        mark("e", 9, "async", cat="c", id="0x1"),
    ]
    adoption, run = adopt_one(trace(tmp_path, events), tmp_path / "runs")
    found = {event.name: event for event in events_of(run, "spans")}
    assert isinstance(found["inner"], SpanEvent)
    assert (found["inner"].duration_s, found["inner"].tags["b"]) == (3e-6, 2)
    assert {name: type(event).__name__ for name, event in found.items()} == {
        "outer": "SpanOpened",
        "inner": "SpanEvent",
        "hung": "SpanOpened",
        "async": "SpanEvent",
    }
    assert tree(run) == {"outer": "the run", "inner": "outer", "hung": "outer", "async": "the run"}
    assert adoption.dropped == {"ends without a begin": 1}


def test_counters_instants_flows_and_names_keep_their_place(tmp_path: Path) -> None:
    events = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "trainer"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "main"}},
        slice_of("step", 0, 50, cat="train"),
        {"ph": "C", "name": "memory", "ts": T0 + 5, "pid": 1, "args": {"used": 3, "free": 4.5}},
        {"ph": "C", "name": "loss", "ts": T0 + 6, "pid": 9, "args": {"value": 0.5}},
        {"ph": "i", "name": "saved", "ts": T0 + 10, "pid": 1, "tid": 1, "s": "t", "args": {"to": "a.pt"}},
        {"ph": "s", "name": "send", "ts": T0 + 11, "pid": 1, "tid": 1, "id": 7},
        {"ph": "N", "name": "object", "ts": T0 + 12, "pid": 1, "tid": 1, "id": 7},
        "what",
    ]
    adoption, run = adopt_one(trace(tmp_path, events, displayTimeUnit="ms"), tmp_path / "runs")
    [step] = events_of(run, "spans")
    assert isinstance(step, SpanEvent)
    assert step.tags == {"process": "trainer", "thread": "main", "pid": 1, "cat": "train"}
    assert [(m.name, m.value) for m in events_of(run, "metrics") if isinstance(m, Metric)] == [
        ("trainer memory.used", 3.0),
        ("trainer memory.free", 4.5),
        ("loss", 0.5),
    ]
    assert [(e.name, e.fields, e.span_id) for e in events_of(run, "events") if isinstance(e, UserEvent)] == [
        ("saved", {"to": "a.pt"}, step.span_id),
        ("chrome.flow", {"flow": 7, "phase": "s", "name": "send"}, step.span_id),
    ]
    assert adoption.dropped == {
        "objects (phase N)": 1,
        "items that are no events": 1,
        "member displayTimeUnit of the document": 1,
    }


def test_a_packed_trace_that_was_cut_is_read_up_to_there(tmp_path: Path) -> None:
    whole = json.dumps([slice_of("a", 0, 5), slice_of("b", 5, 5)])
    (tmp_path / "cut.json").write_text(whole[:-20])
    adoption, run = adopt_one(tmp_path / "cut.json", tmp_path / "runs")
    assert tree(run) == {"a": "the run"}
    assert "truncated" in adoption.problems[0]
    _, packed = adopt_one(trace(tmp_path, json.loads(whole), "whole.json.gz"), tmp_path / "runs")
    assert tree(packed) == {"a": "the run", "b": "the run"}


def test_a_clock_that_begins_anywhere_is_placed_by_the_document_or_the_file(tmp_path: Path) -> None:
    events = [{**slice_of("a", 0, 7), "ts": 1000.5}]
    _, based = adopt_one(
        trace(tmp_path, events, "base.json", baseTimeNanoseconds=T0 * 1000), tmp_path / "runs"
    )
    assert based.info.start_time == "2026-05-20T03:52:00.001000Z"
    file = trace(tmp_path, events, "bare.json")
    os.utime(file, ns=(T0 * 1000, T0 * 1000))
    adoption, bare = adopt_one(file, tmp_path / "runs")
    assert (bare.info.end_time, bare.info.duration_s) == ("2026-05-20T03:52:00.000000Z", 7e-6)
    assert adoption.notes[0].startswith("The trace's clock does not begin with a known moment")


def test_a_document_without_any_event_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no trace event with a time"):
        adopt_one(trace(tmp_path, [], traceName="x"), tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_trace_that_we_exported_comes_back_at_its_own_time(tmp_path: Path) -> None:
    ours = {"made_by": "flightlog 0.1.0", "start_time": "2026-05-20T03:52:00.000000Z"}
    events = [{**slice_of("a", 0, 7), "ts": 5}]
    adoption, run = adopt_one(trace(tmp_path, events, otherData=ours), tmp_path / "runs")
    assert (run.info.start_time, run.info.end_time) == (
        "2026-05-20T03:52:00.000005Z",
        "2026-05-20T03:52:00.000012Z",
    )
    assert len(adoption.notes) == 1
