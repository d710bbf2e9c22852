"""A run as traces: who is inside whom, from when to when, and how it ended."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from builders.random_runs import Shape
from builders.runs import at, make_run, note_death
from hypothesis import given
from hypothesis import strategies as st
from otlp_lives import ROOT, TRACE, a_run, completed, everything, ids, ns, retried_then_failed

from flightlog.analyze.report.report import report_on
from flightlog.events import SpanEvent, SpanOpened, TaskEnded, TaskStarted
from flightlog.export.limits import ExportLimits
from flightlog.export.otlp.batches import OtlpReader
from flightlog.export.otlp.model import Link, OtlpSpan
from flightlog.store.completing import open_run
from flightlog.store.run import Run


def spans_of(run: Run) -> dict[str, OtlpSpan]:
    """The spans of a run by their ids."""
    batches = OtlpReader(run, environ={}).batches(run, last=True)
    found = [item for batch in batches for item in batch.items if isinstance(item, OtlpSpan)]
    assert len({span.span_id for span in found}) == len(found)
    return {span.span_id: span for span in found}


def hex_of(number: int) -> str:
    return f"{number:016x}"


def test_the_run_is_the_root_and_everything_else_is_inside_with_its_true_parent(tmp_path: Path):
    spans = spans_of(a_run(tmp_path))
    assert {span.span_id: (span.name, span.parent_id) for span in spans.values()} == {
        ROOT: ("demo", None),
        hex_of(1): ("simulate", ROOT),
        hex_of(2): ("simulate", ROOT),
        hex_of(3): ("fit", ROOT),
        hex_of(4): ("fit", ROOT),
        hex_of(5): ("wait", ROOT),
        hex_of(90): ("setup", ROOT),
        hex_of(91): ("load", hex_of(90)),
    }
    assert {span.trace_id for span in spans.values()} == {TRACE}


def test_times_are_those_of_the_events_to_the_nanosecond(tmp_path: Path):
    spans = spans_of(a_run(tmp_path))
    times = {span.span_id: (span.start_ns, span.end_ns) for span in spans.values()}
    assert times == {
        ROOT: (ns(0), ns(10)),
        hex_of(1): (ns(1), ns(2)),
        hex_of(2): (ns(3), ns(5)),
        hex_of(3): (ns(2), ns(2.5)),
        hex_of(4): (ns(3), ns(4)),
        hex_of(5): (ns(5), ns(5)),
        hex_of(90): (ns(0.25), ns(0.75)),
        hex_of(91): (ns(0.5), ns(0.625)),
    }


def test_a_completed_task_says_what_it_was_and_used(tmp_path: Path):
    span = spans_of(a_run(tmp_path))[hex_of(2)]
    assert span.status == "ok"
    assert span.attributes == {
        "cicd.pipeline.task.name": "simulate",
        "cicd.pipeline.task.run.id": "t2",
        "cicd.pipeline.task.run.result": "success",
        "cicd.worker.name": "w1",
        "flightlog.kind": "task",
        "flightlog.task.attempt": 1,
        "flightlog.task.depends_on": ["t1"],
        "flightlog.task.duration_s": 2.0,
        "flightlog.task.queue_s": 0.5,
        "flightlog.task.peak_rss_bytes": 100,
        "flightlog.args.seed": 2,
    }


def test_a_dependency_is_a_link_to_the_span_of_the_task_it_waited_for(tmp_path: Path):
    (link,) = spans_of(a_run(tmp_path))[hex_of(2)].links
    assert (link.trace_id, link.span_id) == (TRACE, hex_of(1))
    assert link.attributes == {"flightlog.link": "depends_on", "cicd.pipeline.task.run.id": "t1"}


def test_links_to_tasks_of_long_ago_are_left_out_counted_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ExportLimits, "max_linked_tasks", 8)
    events = [
        event for number in range(1, 20) for event in completed(f"t{number}", number, number, number + 1)
    ]
    events += completed("last", 99, 30.0, 31.0, depends_on=["t1", "t19"])
    run = a_run(tmp_path, events)
    assert [link.span_id for link in spans_of(run)[hex_of(99)].links] == [hex_of(19)]
    reading = OtlpReader(run, environ={})
    assert list(reading.batches(run, last=True))
    assert reading.notes() == ["1 dependencies have no link: their span is not known"]


def test_an_attempt_that_is_retried_is_a_failed_span_of_its_own_though_its_start_is_read_after_its_end(
    tmp_path: Path,
):
    spans = spans_of(a_run(tmp_path, retried_then_failed("t3", 3, 4)))
    first, second = spans[hex_of(3)], spans[hex_of(4)]
    assert (first.start_ns, first.end_ns, first.status) == (ns(2), ns(2.5), "error")
    assert first.attributes["flightlog.task.retried"] is True
    assert first.attributes["cicd.worker.name"] == "w1"
    assert [first.attributes["flightlog.task.attempt"], second.attributes["flightlog.task.attempt"]] == [1, 2]


def test_a_failure_tells_its_type_message_and_traceback(tmp_path: Path):
    (cause,) = spans_of(a_run(tmp_path))[hex_of(3)].events
    assert (cause.name, cause.time_ns) == ("exception", ns(2.5))
    assert cause.attributes == {
        "exception.type": "ValueError",
        "exception.message": "no",
        "exception.stacktrace": "Traceback (most recent call last):\nValueError: no",
    }


def test_a_cancelled_task_is_no_error(tmp_path: Path):
    span = spans_of(a_run(tmp_path))[hex_of(5)]
    assert (span.status, span.message, span.events) == ("unset", "", ())
    assert span.attributes["cicd.pipeline.task.run.result"] == "cancellation"


def test_tags_are_attributes_by_their_own_names_and_metrics_below_ours(tmp_path: Path):
    span = spans_of(a_run(tmp_path))[hex_of(90)]
    assert span.attributes == {
        "step": 1,
        "flightlog.metrics.loss": 0.5,
        "thread.id": 7,
        "flightlog.kind": "span",
    }


def test_a_span_that_the_bridge_recorded_goes_out_as_it_was_made(tmp_path: Path):
    link = f"{TRACE}-{hex_of(7)}"
    tags = {"otel.scope": "my.library", "otel.kind": "client", "otel.links": [link], "server.address": "a"}
    bridged = SpanEvent(
        timestamp=at(1),
        name="GET",
        tags=tags,
        metrics={"http.response.body.size": 4096},
        status="ok",
        duration_s=1.0,
        **ids(8),
    )
    span = spans_of(a_run(tmp_path, [bridged]))[hex_of(8)]
    assert (span.kind, span.links) == (3, (Link(trace_id=TRACE, span_id=hex_of(7)),))
    assert span.attributes == {
        "otel.scope.name": "my.library",
        "server.address": "a",
        "http.response.body.size": 4096,
        "flightlog.kind": "span",
    }


def test_a_run_that_was_killed_gives_what_was_in_flight_up_to_when_it_was_last_heard_of(tmp_path: Path):
    begun: list[Any] = [
        *completed("t1", 1, 1.0, 2.0),
        TaskStarted(timestamp=at(3), task="simulate", task_id="t2", worker="w1", queue_s=0.0, **ids(2)),
        SpanOpened(timestamp=at(4), name="solve", tags={}, elapsed_s=1.0, **ids(9, hex_of(2))),
    ]
    run = a_run(tmp_path, begun, status="crashed", end_time=at(8), duration_s=8.0)
    spans = spans_of(run)
    assert {
        span.span_id: (span.start_ns, span.end_ns, span.status, span.attributes.get("flightlog.unfinished"))
        for span in spans.values()
    } == {
        ROOT: (ns(0), ns(8), "error", None),
        hex_of(1): (ns(1), ns(2), "ok", None),
        hex_of(2): (ns(3), ns(8), "unset", True),
        hex_of(9): (ns(4), ns(8), "unset", True),
    }


def test_a_span_of_a_process_that_died_ends_with_its_last_sign_of_life(tmp_path: Path):
    run = a_run(
        tmp_path, [SpanOpened(timestamp=at(4), name="solve", tags={}, elapsed_s=1.0, **ids(9, hex_of(2)))]
    )
    note_death(run.path, 6)
    assert spans_of(Run(run.path))[hex_of(9)].end_ns == ns(6)


def test_a_run_that_failed_says_why_and_one_that_was_interrupted_is_no_error(tmp_path: Path):
    failed = spans_of(a_run(tmp_path, [], status="failed", error="ValueError: no"))[ROOT]
    assert (failed.status, failed.message) == ("error", "ValueError: no")
    assert failed.events[0].attributes["exception.type"] == "ValueError"
    stopped = spans_of(a_run(tmp_path, [], token="b1b2c3d4", status="interrupted", error="SIGINT"))[ROOT]
    assert (stopped.status, stopped.attributes["cicd.pipeline.result"]) == ("unset", "cancellation")


def test_a_run_inside_another_program_has_that_as_its_parent(tmp_path: Path):
    assert spans_of(a_run(tmp_path, [], parent_id=hex_of(77)))[ROOT].parent_id == hex_of(77)


def test_a_run_without_ids_gets_ones_that_are_the_same_every_time(tmp_path: Path):
    events = everything()
    for event in events:
        for name in ("trace_id", "span_id", "parent_id"):
            if getattr(event, name, None) is not None:
                setattr(event, name, "" if name == "trace_id" else None)
    run = a_run(tmp_path, [one for one in events if type(one).stream == "tasks"], trace_id="", span_id="")
    first, again = spans_of(run), spans_of(run)
    assert first == again
    assert len(first) == 6
    (root,) = [span for span in first.values() if span.parent_id is None]
    assert {span.parent_id for span in first.values()} == {None, root.span_id}
    assert all(len(span.trace_id) == 32 and len(span.span_id) == 16 for span in first.values())


@given(seed=st.integers(0, 10_000), doubled=st.booleans())
def test_spans_and_counts_of_tasks_are_the_attempts_of_the_report(tmp_path_factory, seed, doubled):
    events, dice = Shape(seed).events(), Random(seed)
    if doubled:  # as where two processes tell of the same attempt
        events += [one for one in events if isinstance(one, TaskStarted | TaskEnded) and dice.random() < 0.2]
    run = open_run(make_run(tmp_path_factory.mktemp("runs"), events))
    items = [one for batch in OtlpReader(run, environ={}).batches(run, last=True) for one in batch.items]
    spans = [one for one in items if getattr(one, "attributes", {}).get("flightlog.kind") == "task"]
    found = sorted(
        (
            span.attributes["cicd.pipeline.task.run.id"],
            span.attributes["flightlog.task.attempt"],
            None if span.attributes.get("flightlog.unfinished") else span.end_ns,
        )
        for span in spans
    )
    rows = run.sql(
        "SELECT task_id, attempt, epoch_ns(ended_at) FROM attempts WHERE state <> 'pending' ORDER BY ALL"
    ).rows()
    assert found == [tuple(row) for row in rows]
    counts = {one.instrument.name: one.value for one in items if hasattr(one, "instrument")}
    assert counts.get("flightlog.tasks.completed", 0) == (report_on(run).tasks.completed or 0)
