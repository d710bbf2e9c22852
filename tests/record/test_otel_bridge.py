"""Spans of the OpenTelemetry API in a run, and one trace for both kinds."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.baggage import get_baggage, set_baggage
from opentelemetry.propagate import inject
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode

import flightlog
import flightlog.otel
from flightlog.record import otel_bridge, otel_context
from flightlog.record.otel_bridge import surrounding_trace
from flightlog.record.run import LiveRun
from flightlog.store.run import Run

SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
def _contexts_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What joins the contexts is taken back after each test."""
    monkeypatch.setattr(context_api, "_RUNTIME_CONTEXT", context_api._RUNTIME_CONTEXT)


@pytest.fixture
def exported() -> InMemorySpanExporter:
    """What OpenTelemetry would send by itself."""
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exported: InMemorySpanExporter) -> Any:
    """A tracer whose spans are recorded, and exported as well."""
    provider = TracerProvider()
    provider.add_span_processor(flightlog.otel.span_processor())
    provider.add_span_processor(SimpleSpanProcessor(exported))
    return provider.get_tracer("their.library")


@pytest.fixture
def apart() -> Any:
    """A tracer whose spans are recorded, with a context that knows nothing of ours."""
    provider = TracerProvider()
    provider.add_span_processor(flightlog.otel.span_processor(join_context=False))
    return provider.get_tracer("their.library")


def ids(span: Any) -> tuple[str, str]:
    found = span.get_span_context()
    return f"{found.trace_id:032x}", f"{found.span_id:016x}"


def test_a_span_of_opentelemetry_is_a_span_of_the_run(recorded, spans_of, tracer):
    with recorded() as run:
        with tracer.start_as_current_span("GET /weights", kind=SpanKind.CLIENT) as theirs:
            theirs.set_attribute("http.request.method", "GET")
            theirs.set_attribute("http.response.status_code", 200)
            theirs.set_attribute("server.port", 443)
            theirs.set_attribute("http.response.body.size", 1024)
            theirs.set_attribute("retried", True)
            theirs.set_attribute("hosts", ["a", "b"])
    found = spans_of(run)["GET /weights"]
    assert (found.trace_id, found.span_id) == ids(theirs)
    assert (found.trace_id, found.parent_id, found.status) == (run.info.trace_id, run.info.span_id, "ok")
    assert found.tags == {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "server.port": 443,
        "retried": True,
        "hosts": ["a", "b"],
        "otel.scope": "their.library",
        "otel.kind": "client",
    }
    assert found.metrics == {"http.response.body.size": 1024}


def test_spans_of_both_kinds_are_inside_each_other_in_any_order(recorded, spans_of, tracer, exported):
    with recorded() as run:
        with flightlog.span("ours"):
            with tracer.start_as_current_span("theirs"):
                with flightlog.span("ours inside"):
                    with tracer.start_as_current_span("theirs inside"):
                        with tracer.start_as_current_span("innermost"):
                            pass
                    with tracer.start_as_current_span("theirs later"):
                        pass
            with flightlog.span("ours after"):
                pass
    spans = spans_of(run)
    names = {span.span_id: name for name, span in spans.items()} | {run.info.span_id: "the run"}
    assert {name: names[span.parent_id] for name, span in spans.items()} == {
        "ours": "the run",
        "theirs": "ours",
        "ours inside": "theirs",
        "theirs inside": "ours inside",
        "innermost": "theirs inside",
        "theirs later": "ours inside",
        "ours after": "ours",
    }
    sent = {one.name: one for one in exported.get_finished_spans()}
    assert {name: names[f"{one.parent.span_id:016x}"] for name, one in sent.items()} == {
        "theirs": "ours",
        "theirs inside": "ours inside",
        "innermost": "theirs inside",
        "theirs later": "ours inside",
    }
    assert {f"{one.context.trace_id:032x}" for one in sent.values()} == {run.info.trace_id}


def test_a_task_is_a_place_for_their_spans(recorded, spans_of, tracer):
    with recorded() as run, run.task("simulate") as task:
        with tracer.start_as_current_span("SELECT"):
            pass
    assert spans_of(run)["SELECT"].parent_id == task.span_id


def test_a_run_begun_inside_their_span_joins_its_trace(recorded, spans_of, tracer):
    with tracer.start_as_current_span("job") as theirs, recorded() as run:
        with tracer.start_as_current_span("inside"):
            pass
    assert (run.info.trace_id, run.info.parent_id) == ids(theirs)
    assert spans_of(run).keys() == {"inside"}
    assert spans_of(run)["inside"].parent_id == run.info.span_id


def test_a_run_joins_an_open_trace_without_any_bridge(recorded):
    with TracerProvider().get_tracer("x").start_as_current_span("job") as theirs, recorded() as run:
        pass
    assert (run.info.trace_id, run.info.parent_id) == ids(theirs)


def test_an_open_span_is_nearer_than_the_environment(recorded, monkeypatch):
    monkeypatch.setenv("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    with TracerProvider().get_tracer("x").start_as_current_span("job") as theirs, recorded() as run:
        with recorded("inner") as inner:
            pass
    assert (run.info.trace_id, run.info.parent_id) == ids(theirs)
    assert (inner.info.trace_id, inner.info.parent_id) == (run.info.trace_id, run.info.span_id)


def test_a_tracer_that_fails_leaves_the_run_to_itself():
    class Broken:
        def get_current_span(self):
            raise RuntimeError("no")

    assert surrounding_trace({"opentelemetry.trace": Broken()}) is None
    assert surrounding_trace({}) is None


def test_with_contexts_apart_a_span_is_where_code_is_in_the_run(recorded, spans_of, apart):
    with recorded() as run:
        with flightlog.span("ours"):
            with apart.start_as_current_span("theirs") as theirs:
                with apart.start_as_current_span("inside"):
                    pass
    spans = spans_of(run)
    assert spans["theirs"].parent_id == spans["ours"].span_id
    assert spans["inside"].parent_id == spans["theirs"].span_id == ids(theirs)[1]
    assert spans["theirs"].trace_id == run.info.trace_id  # one a run
    assert spans["theirs"].tags["otel.trace_id"] == ids(theirs)[0]


def test_a_parent_that_has_ended_is_still_the_parent(recorded, spans_of, apart):
    with recorded() as run:
        parent = apart.start_span("parent")
        parent.end()
        apart.start_span("child", context=trace.set_span_in_context(parent)).end()
    assert spans_of(run)["child"].parent_id == ids(parent)[1]


def test_a_parent_elsewhere_is_named_and_the_span_stands_where_code_is(recorded, spans_of, tracer):
    remote = trace.SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=trace.TraceFlags(1))
    request = trace.set_span_in_context(trace.NonRecordingSpan(remote))
    with recorded() as run, flightlog.span("serving"):
        tracer.start_span("POST /predict", context=request).end()
    found = spans_of(run)["POST /predict"]
    assert found.parent_id == spans_of(run)["serving"].span_id
    assert (found.tags["otel.trace_id"], found.tags["otel.parent_id"]) == (f"{0xABC:032x}", f"{0xDEF:016x}")


def test_a_parent_in_another_process_of_the_run_is_kept(recorded, spans_of, tracer):
    with recorded() as run:
        other = trace.SpanContext(
            int(run.info.trace_id, 16), 0xDEF, is_remote=True, trace_flags=trace.TraceFlags(1)
        )
        tracer.start_span("child", context=trace.set_span_in_context(trace.NonRecordingSpan(other))).end()
    assert spans_of(run)["child"].parent_id == f"{0xDEF:016x}"


def test_times_that_the_program_gives_are_kept(recorded, spans_of, tracer):
    start = 1_700_000_000 * SECOND + 123_456_000
    with recorded() as run:
        tracer.start_span("past", start_time=start).end(end_time=start + 2 * SECOND)
    found = spans_of(run)["past"]
    moment = datetime.fromtimestamp(1_700_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    assert (found.timestamp, found.duration_s) == (f"{moment}.123456Z", 2.0)


def test_an_end_before_the_start_is_no_negative_duration(recorded, spans_of, tracer):
    noon = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()) * SECOND
    with recorded() as run:
        tracer.start_span("back", start_time=noon).end(noon - 5 * SECOND)
    span = spans_of(run)["back"]
    assert (span.duration_s, span.metrics) == (0.0, {"otel.end_before_start_s": 5.0})


def test_a_step_of_the_wall_clock_does_not_show_in_a_duration(recorded, spans_of, tracer, monkeypatch):
    real = time.time_ns
    with recorded() as run:
        span = tracer.start_span("work")
        monkeypatch.setattr(time, "time_ns", lambda: real() + 3600 * SECOND)
        monkeypatch.setattr("opentelemetry.sdk.trace.time_ns", time.time_ns)
        span.end()
        monkeypatch.undo()
    assert spans_of(run)["work"].duration_s < 600


def test_events_links_and_an_exception_are_recorded(recorded, spans_of, tracer):
    with recorded() as run:
        first = tracer.start_span("first")
        first.end()
        links = [trace.Link(first.get_span_context())]
        with contextlib.suppress(ValueError), tracer.start_as_current_span("second", links=links) as second:
            second.add_event("retry", {"attempt": 2}, timestamp=1_700_000_000 * SECOND)
            raise ValueError("no such weights")
    found = spans_of(run)["second"]
    assert (found.status, found.error_type, found.error_message) == ("error", "ValueError", "no such weights")
    assert found.tags["otel.links"] == ["-".join(ids(first))]
    retry, exception = Run(run.path).events("events")
    assert (retry.name, retry.fields, retry.span_id) == ("retry", {"attempt": 2}, ids(second)[1])
    assert retry.timestamp == "2023-11-14T22:13:20.000000Z"
    assert exception.name == "exception"
    assert exception.fields["exception.type"] == "ValueError"


def test_an_error_that_is_only_said_is_an_error(recorded, spans_of, tracer):
    with recorded() as run:
        span = tracer.start_span("call")
        span.set_status(Status(StatusCode.ERROR, "503"))
        span.end()
    found = spans_of(run)["call"]
    assert (found.status, found.error_type, found.error_message) == ("error", None, "503")


def test_an_open_span_is_seen(recorded, tracer):
    with recorded() as run:
        span = tracer.start_span(
            "hangs", start_time=time.time_ns() - 10 * SECOND, attributes={"step": "load"}
        )
        run.recorder.announce_open()
        run.recorder.files.flush()
        (opened,) = [e for e in Run(run.path).events("spans") if type(e).__name__ == "SpanOpened"]
        span.end()
    assert (opened.name, opened.span_id, opened.tags) == ("hangs", ids(span)[1], {"step": "load"})
    assert 10 <= opened.elapsed_s < 300


def test_secrets_in_attributes_are_redacted(recorded, spans_of, tracer):
    with recorded() as run:
        tracer.start_span("login", attributes={"password": "hunter2", "user": "ann"}).end()
    assert "hunter2" not in repr(spans_of(run)["login"])


def test_outside_a_run_nothing_is_kept_and_nothing_changes(tracer, exported):
    with tracer.start_as_current_span("theirs"):
        with tracer.start_as_current_span("inside"):
            pass
    inside, theirs = exported.get_finished_spans()
    assert inside.parent.span_id == theirs.context.span_id
    assert theirs.parent is None


def test_a_span_that_outlives_the_run_hurts_nobody_and_is_counted(recorded, tracer, exported):
    with recorded() as run:
        span = tracer.start_span("long")
    span.end()
    assert [one.name for one in exported.get_finished_spans()] == ["long"]
    assert Run(run.path).completeness().lost_text == "1 lost: recorded after the run had closed"


def test_their_context_goes_on_through_threads_and_coroutines(recorded, spans_of, tracer):
    async def both() -> None:
        async def one(name: str) -> None:
            with tracer.start_as_current_span(name):
                await asyncio.sleep(0)
                with flightlog.span(f"{name} inside"):
                    await asyncio.sleep(0)

        await asyncio.gather(one("a"), one("b"))

    def in_thread(context: Any) -> None:
        token = context_api.attach(context)
        with flightlog.span("in a thread"):
            pass
        context_api.detach(token)

    with recorded() as run:
        asyncio.run(both())
        with tracer.start_as_current_span("handed over"):
            context = context_api.get_current()
            thread = contextvars.Context().run(threading.Thread, target=in_thread, args=(context,))
            contextvars.Context().run(thread.start)
            thread.join()
    spans = spans_of(run)
    assert spans["a inside"].parent_id == spans["a"].span_id
    assert spans["b inside"].parent_id == spans["b"].span_id
    assert spans["in a thread"].parent_id == spans["handed over"].span_id


def test_baggage_goes_through(recorded, tracer):
    with recorded(), flightlog.span("ours"):
        token = context_api.attach(set_baggage("tenant", "lab"))
        with flightlog.span("inside"), tracer.start_as_current_span("theirs"):
            assert get_baggage("tenant") == "lab"
        context_api.detach(token)
        assert get_baggage("tenant") is None


def test_a_context_names_our_span_for_code_that_passes_it_on(recorded, apart, spans_of):
    with recorded() as run, flightlog.span("ours") as ours:
        apart.start_span("theirs", context=flightlog.otel.current_context()).end()
        theirs = trace.get_current_span(flightlog.otel.current_context())
    assert ids(theirs) == (run.info.trace_id, ours.span_id)
    assert spans_of(run)["theirs"].parent_id == ours.span_id
    assert flightlog.otel.current_context() == context_api.get_current()


def test_what_instrumented_clients_send_along_names_the_run_and_our_span(recorded):
    flightlog.otel.propagate()
    headers: dict[str, str] = {}
    with recorded() as run, flightlog.span("ours") as ours:
        inject(headers)
    assert headers == {"traceparent": f"00-{run.info.trace_id}-{ours.span_id}-01"}


def test_spans_in_a_child_process_are_in_the_run_under_the_span_that_started_it(recorded, spans_of, tmp_path):
    program = (
        "import flightlog.otel\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "provider = TracerProvider()\n"
        "provider.add_span_processor(flightlog.otel.span_processor())\n"
        "with provider.get_tracer('x').start_as_current_span('in the child'): pass\n"
    )
    with recorded() as run, flightlog.span("ours") as ours:
        subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)
    found = spans_of(run)["in the child"]
    assert (found.parent_id, found.trace_id) == (ours.span_id, run.info.trace_id)
    assert "otel.trace_id" not in found.tags


def test_joining_twice_joins_once_and_keeps_what_was_there():
    before = context_api._RUNTIME_CONTEXT
    assert flightlog.otel.propagate()
    joined = context_api._RUNTIME_CONTEXT
    assert flightlog.otel.propagate()
    assert context_api._RUNTIME_CONTEXT is joined
    assert joined.base is before


def test_what_was_attached_before_joining_is_detached_after():
    token = context_api.attach(set_baggage("tenant", "lab"))
    flightlog.otel.propagate()
    context_api.detach(token)
    assert get_baggage("tenant") is None


def test_a_context_that_is_kept_elsewhere_is_one_warning(caplog):
    class Api:
        pass

    assert not otel_context.join_contexts(Api())
    assert len(caplog.records) == 1


def test_whatever_a_span_holds_the_program_goes_on(recorded, tracer, monkeypatch, caplog):
    def broken(*_: object) -> LiveRun:
        raise RuntimeError("broken")

    with recorded() as run:
        span = tracer.start_span("theirs")
        monkeypatch.setattr(otel_bridge, "_attributes", broken)
        span.end()
        assert run.recorder.counts["events_failed"] == 1
    assert "an OpenTelemetry span could not be recorded: broken" in caplog.text


def test_without_the_sdk_the_message_says_what_to_install(tmp_path: Path):
    program = "import sys; sys.modules['opentelemetry.sdk'] = None; import flightlog.otel"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr.splitlines()[-1] == (
        "flightlog.core.errors.MissingExtra: the bridge to OpenTelemetry needs a package that is not "
        "installed (opentelemetry.sdk.trace): pip install 'flightlog[otel]'"
    )


def test_recording_imports_no_opentelemetry(tmp_path: Path):
    program = (
        "import sys, flightlog\n"
        f"with flightlog.record('x', runs_dir={str(tmp_path)!r}), flightlog.span('y'): pass\n"
        "print(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "False\n"
