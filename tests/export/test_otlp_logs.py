"""Failures, lost workers and users' events as log records."""

from __future__ import annotations

from pathlib import Path

from builders.runs import at
from otlp_lives import ROOT, TRACE, a_run, ns

from flightlog.events import define_event
from flightlog.export.otlp.batches import OtlpReader
from flightlog.export.otlp.model import LogRecord
from flightlog.store.run import Run


def records_of(run: Run) -> dict[str, LogRecord]:
    batches = OtlpReader(run, environ={}).batches(run, last=True)
    return {item.event_name: item for batch in batches for item in batch.items if isinstance(item, LogRecord)}


def test_a_failure_is_an_error_in_the_span_it_came_from(tmp_path: Path):
    assert records_of(a_run(tmp_path))["flightlog.failure"] == LogRecord(
        time_ns=ns(2.5),
        severity=17,
        severity_text="ERROR",
        body="ValueError: no",
        event_name="flightlog.failure",
        attributes={
            "exception.type": "ValueError",
            "exception.message": "no",
            "exception.stacktrace": "Traceback (most recent call last):\nValueError: no",
            "cicd.pipeline.task.name": "fit",
            "cicd.pipeline.task.run.id": "t3",
            "flightlog.task.attempt": 1,
            "flightlog.failure.scope": "task",
            "flightlog.failure.fingerprint": "f1",
            "log.record.uid": "w0000001/failures/0",
        },
        trace_id=TRACE,
        span_id=f"{3:016x}",
    )


def test_a_lost_worker_is_a_warning_of_the_run(tmp_path: Path):
    record = records_of(a_run(tmp_path))["flightlog.worker_lost"]
    assert (record.severity, record.body, record.span_id) == (13, "worker w1 was lost: killed", ROOT)
    assert record.attributes["flightlog.failure.signal"] == "SIGKILL"


def test_a_users_event_is_as_serious_as_it_says(tmp_path: Path):
    record = records_of(a_run(tmp_path))["converged"]
    assert (record.severity, record.severity_text, record.time_ns) == (13, "WARN", ns(7))
    assert record.span_id == f"{90:016x}"
    assert (record.attributes["steps"], record.attributes["level"]) == (3, "warning")


def test_events_of_the_users_own_kinds_are_records_too(tmp_path: Path):
    kind = define_event("otlptest.Checkpoint", step=int)
    record = records_of(a_run(tmp_path, [kind(timestamp=at(3), step=4)]))["otlptest.Checkpoint"]
    assert (record.time_ns, record.severity, record.attributes["step"]) == (ns(3), 9, 4)
