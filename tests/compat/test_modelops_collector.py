"""ModelOps' collector over Flightlog: the interface is the original's, and what it got wrong is right."""

from __future__ import annotations

import asyncio
import json
import math
import pickle
import threading
import time
from dataclasses import asdict, fields
from pathlib import Path

import pytest

import flightlog
from flightlog.compat import modelops
from flightlog.compat.modelops import NOOP_SPAN, NoopSpan, TelemetryCollector, TelemetrySpan, telemetry
from flightlog.compat.modelops.telemetry import collector as telemetry_collector
from flightlog.compat.modelops.telemetry import storage as telemetry_storage
from flightlog.store.run import Run


def test_every_module_of_the_original_has_its_place():
    assert (
        telemetry.TelemetryCollector is modelops.TelemetryCollector is telemetry_collector.TelemetryCollector
    )
    assert telemetry.TelemetryStorage is modelops.TelemetryStorage is telemetry_storage.TelemetryStorage
    assert sorted(telemetry.__all__) == [
        "NOOP_SPAN",
        "NoopSpan",
        "SpanLike",
        "TelemetryCollector",
        "TelemetrySpan",
        "TelemetryStorage",
        "find_spans",
        "list_jobs",
        "slowest_spans",
    ]


def test_a_span_made_by_hand_has_the_fields_of_the_original():
    span = TelemetrySpan(name="work", start_time=10.0)
    assert (span.end_time, span.duration(), span.metrics, span.tags) == (None, None, {}, {})
    span.end_time = 11.5
    span.metrics["n"] = 3
    span.tags["key"] = "abc"
    assert span.to_dict() == {
        "name": "work",
        "start_time": 10.0,
        "end_time": 11.5,
        "duration": 1.5,
        "metrics": {"n": 3},
        "tags": {"key": "abc"},
    }


def test_a_collectors_span_has_the_fields_of_the_original_too():
    collector = TelemetryCollector()
    with collector.span("work", key="abc") as span:
        assert asdict(span) == {
            "name": "work",
            "start_time": span.start_time,
            "end_time": None,
            "metrics": {},
            "tags": {"key": "abc"},
        }
    assert [each.name for each in fields(span)] == ["name", "start_time", "end_time", "metrics", "tags"]


def test_ended_spans_stand_in_the_order_of_their_ends_with_their_parents():
    collector = TelemetryCollector()
    with collector.span("outer"):
        with collector.span("first"):
            pass
        with collector.span("second"):
            pass
    assert [(s.name, s.span_id, s.parent_id) for s in collector.spans] == [
        ("first", 2, 1),
        ("second", 3, 1),
        ("outer", 1, None),
    ]


def test_a_span_tells_its_duration_while_it_is_open():
    collector = TelemetryCollector()
    with collector.span("simulation.execute") as span:
        metrics = {"execution_duration": span.duration()}
        assert (span.end_time, span.to_dict()["duration"]) == (None, None)
    assert 0 < metrics["execution_duration"] <= span.duration()


def test_times_are_of_the_clock_that_all_processes_of_a_machine_share_and_dates_stand_beside_them():
    before, earlier = time.perf_counter(), time.time()
    collector = TelemetryCollector()
    with collector.span("work") as span:
        pass
    assert before <= span.start_time <= span.end_time <= time.perf_counter()
    assert span.duration() == pytest.approx(span.end_time - span.start_time, abs=1e-9)
    shown = span.to_dict()
    assert (shown["start_time"], shown["end_time"]) == (span.start_time, span.end_time)
    assert earlier - 1 < shown["started_at"] < time.time() + 1


def test_nested_spans_count_once_in_the_total():
    collector = TelemetryCollector()
    with collector.span("a"), collector.span("b"), collector.span("c"):
        sum(range(50_000))
    shown = collector.to_dict()
    assert (shown["total_spans"], [s["name"] for s in shown["spans"]]) == (3, ["c", "b", "a"])
    assert shown["total_duration"] == collector.spans[-1].duration()


def test_an_open_span_is_in_the_dictionary_without_an_end():
    collector = TelemetryCollector()
    with collector.span("lookup"):
        collector.add_metric("cache_hit", 1.0)
        (shown,) = collector.to_dict()["spans"]
        assert [s.name for s in collector.open_spans] == ["lookup"]
    assert (shown["end_time"], shown["duration"], shown["metrics"]) == (None, None, {"cache_hit": 1.0})
    assert collector.open_spans == []


@pytest.mark.parametrize(
    "error", [ValueError("bad"), KeyboardInterrupt("stop"), asyncio.CancelledError(), GeneratorExit()]
)
def test_whatever_ends_a_span_is_in_its_tags_and_goes_on(error):
    collector = TelemetryCollector()
    with pytest.raises(type(error)) as raised, collector.span("work"):
        raise error
    assert raised.value is error
    (span,) = collector.spans
    assert span.tags == {"error": type(error).__name__, "error_msg": str(error)}
    assert span.end_time is not None


def test_an_exception_without_a_text_is_not_replaced_by_another():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    collector = TelemetryCollector()
    with pytest.raises(Mute), collector.span("work"):
        raise Mute
    assert collector.spans[0].tags == {"error": "Mute", "error_msg": ""}


def test_a_long_error_message_is_cut_and_holds_no_secret():
    collector = TelemetryCollector()
    with pytest.raises(OSError), collector.span("upload"):
        raise OSError("https://me:hunter2@example.org/ " + "x" * 500)
    message = collector.spans[0].tags["error_msg"]
    assert len(message) == 200
    assert "hunter2" not in message


def test_a_span_decorates_functions_each_call_a_span():
    collector = TelemetryCollector()

    @collector.span("work", kind="call")
    def work(x):
        collector.add_metric("x", x)
        return x

    assert [work(1), work(2)] == [1, 2]
    assert [(s.tags, s.metrics) for s in collector.spans] == [
        ({"kind": "call"}, {"x": 1}),
        ({"kind": "call"}, {"x": 2}),
    ]


def test_what_is_put_in_place_of_the_tags_does_not_change_the_exception():
    collector = TelemetryCollector()

    def work():
        with collector.span("work") as span:
            span.tags = None
            raise ValueError("bad")

    with pytest.raises(ValueError):
        work()
    assert collector.spans[0].tags == {"tags": None, "error": "ValueError", "error_msg": "bad"}


def test_tags_may_have_any_name():
    collector = TelemetryCollector()
    with collector.span("work", name="n", self=1, tags=2, key=3):
        pass
    with collector.span(name="by keyword", seed=4):
        pass
    assert [(s.name, s.tags) for s in collector.spans] == [
        ("work", {"name": "n", "self": 1, "tags": 2, "key": 3}),
        ("by keyword", {"seed": 4}),
    ]


def test_a_second_value_of_a_metric_stands_beside_the_first():
    collector = TelemetryCollector()
    with collector.span("work") as span:
        collector.add_metric("loss", 0.5)
        collector.add_metric("loss", 0.25)
    assert span.metrics == {"loss": [0.5, 0.25]}


def test_metrics_that_are_replaced_are_those_that_count():
    collector = TelemetryCollector()
    with collector.span("work") as span:
        span.metrics = {"a": 1}
        collector.add_metric("b", 2)
    assert collector.spans[0].metrics == {"a": 1, "b": 2}


def test_outside_any_span_a_metric_goes_nowhere():
    collector = TelemetryCollector()
    collector.add_metric("n", 1)
    assert collector.to_dict() == {"spans": [], "total_spans": 0, "total_duration": 0}


def test_threads_do_not_write_into_each_others_spans():
    collector = TelemetryCollector()
    barrier = threading.Barrier(8)

    def work(i):
        with collector.span("work", i=i):
            barrier.wait()
            collector.add_metric("i", i)
            barrier.wait()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((s.tags["i"], s.metrics["i"]) for s in collector.spans) == [(i, i) for i in range(8)]


def test_tasks_of_asyncio_do_not_write_into_each_others_spans():
    collector = TelemetryCollector()

    async def work(i):
        with collector.span("work", i=i):
            await asyncio.sleep(0)
            collector.add_metric("i", i)
            await asyncio.sleep(0)

    async def everything():
        with collector.span("all"):
            await asyncio.gather(*(work(i) for i in range(5)))

    asyncio.run(everything())
    inner = [s for s in collector.spans if s.name == "work"]
    assert sorted((s.tags["i"], s.metrics["i"], s.parent_id) for s in inner) == [(i, i, 1) for i in range(5)]


def test_whatever_is_put_in_the_dictionary_is_json():
    collector = TelemetryCollector()
    with collector.span("work", path=Path("out.csv"), odd=object(), password="hunter2") as span:
        span.metrics["loss"] = math.nan
    (shown,) = json.loads(json.dumps(collector.to_dict(), allow_nan=False))["spans"]
    assert (shown["metrics"], shown["nonfinite"]) == ({"loss": None}, {"loss": "nan"})
    assert shown["tags"]["path"] == "out.csv"
    assert "hunter2" not in json.dumps(shown)


def test_a_collector_that_is_off_gives_the_one_no_op_and_keeps_nothing():
    collector = TelemetryCollector(enabled=False)
    for i in range(100):
        with collector.span("work", i=i) as span:
            assert span is NOOP_SPAN
            span.metrics[f"key-{i}"] = span.tags[f"key-{i}"] = 1.0
            collector.add_metric("n", 1.0)
    assert (dict(NOOP_SPAN.metrics), dict(NOOP_SPAN.tags), collector.spans) == ({}, {}, [])
    assert (NOOP_SPAN.duration(), NOOP_SPAN.to_dict(), isinstance(NOOP_SPAN, NoopSpan)) == (None, {}, True)


@pytest.mark.parametrize(("value", "enabled"), [("0", False), ("false", False), ("1", True), ("", True)])
def test_the_variable_switches_collectors_off_that_do_not_say(value, enabled):
    environ = {"MODELOPS_TELEMETRY_ENABLED": value}
    assert TelemetryCollector(environ=environ).enabled is enabled
    assert TelemetryCollector(enabled=True, environ=environ).enabled is True


def test_a_collector_comes_back_from_another_process_with_its_spans():
    collector = TelemetryCollector()
    with collector.span("outer"), collector.span("inner", seed=7) as span:
        span.metrics["n"] = 1
    copy = pickle.loads(pickle.dumps(collector))
    assert copy.to_dict() == collector.to_dict()
    with copy.span("later"):
        copy.add_metric("m", 2)
    assert [s.name for s in copy.spans] == ["inner", "outer", "later"]


def test_spans_are_in_the_run_that_is_active_too(tmp_path):
    collector = TelemetryCollector()
    with flightlog.record("job", runs_dir=tmp_path, sample_interval_s=None) as run:
        with collector.span("calibration.job", job_id="abc"), flightlog.span("ours"):
            with collector.span("algorithm.tell") as span:
                span.metrics["min_loss"] = 0.5
                collector.add_metric("n_trials", 4)
        with pytest.raises(ValueError), collector.span("simulation.run_remote"):
            raise ValueError("bad")
        with collector.span("returned") as span:
            span.tags["error"], span.tags["error_msg"] = "NoData", "no rows"
    spans = {
        event.name: event for event in Run(run.path).events("spans") if type(event).__name__ == "SpanEvent"
    }
    assert spans["algorithm.tell"].metrics == {"min_loss": 0.5, "n_trials": 4}
    assert spans["algorithm.tell"].parent_id == spans["ours"].span_id
    assert spans["ours"].parent_id == spans["calibration.job"].span_id
    assert spans["calibration.job"].tags == {"job_id": "abc"}
    assert [
        (spans[name].status, spans[name].error_message) for name in ("simulation.run_remote", "returned")
    ] == [("error", "bad"), ("error", "no rows")]
    assert len(collector.spans) == 4
