"""Collectors: spans in memory, for code that attaches telemetry to its own results."""

from __future__ import annotations

import json
import math
import threading

import pytest

import flightlog
from flightlog import Collector


def test_the_summary_tells_durations_and_metrics_by_name():
    collector = Collector()
    for loss in (0.5, 0.25, 0.75):
        with collector.span("step", kind="train"):
            collector.add_metric("loss", loss)
    by_name = collector.summary()["by_name"]["step"]
    assert by_name["metrics"] == {
        "loss": {"mean": 0.5, "sum": 1.5, "min": 0.25, "max": 0.75, "last": 0.75, "count": 3}
    }
    assert by_name["count"] == 3
    assert by_name["min"] <= by_name["p50"] <= by_name["p95"] <= by_name["max"]
    assert by_name["total"] == pytest.approx(3 * by_name["mean"])


def test_nested_spans_are_not_counted_twice():
    collector = Collector()
    with collector.span("outer"), collector.span("middle"), collector.span("inner"):
        sum(range(100_000))
    shown = collector.to_dict()
    outer = next(s for s in shown["spans"] if s["name"] == "outer")
    assert shown["total_duration"] == shown["wall_s"] == pytest.approx(outer["duration_s"])
    assert shown["busy_s"] == pytest.approx(outer["duration_s"])


def test_parallel_spans_are_busy_twice_in_the_same_wall_time():
    collector = Collector()
    barrier = threading.Barrier(2)

    def work():
        with collector.span("work"):
            barrier.wait()
            barrier.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shown = collector.summary()
    assert shown["busy_s"] == pytest.approx(shown["by_name"]["work"]["total"])
    assert shown["busy_s"] > shown["wall_s"]


def test_threads_do_not_write_into_each_others_spans():
    collector = Collector()
    barrier = threading.Barrier(8)

    def work(i):
        with collector.span("work", i=i):
            barrier.wait()
            collector.add_metric("i", i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spans = collector.to_dict()["spans"]
    assert sorted((s["tags"]["i"], s["metrics"]["i"]) for s in spans) == [(i, i) for i in range(8)]
    assert {s["parent_id"] for s in spans} == {None}


def test_two_collectors_and_a_run_do_not_mix(recorded, spans_of):
    first, second = Collector(), Collector()
    with recorded() as run, first.span("a"), second.span("b"), flightlog.span("c"), first.span("d"):
        second.add_metric("x", 1)
    assert [(s["name"], s["parent_id"]) for s in first.to_dict()["spans"]] == [("a", None), ("d", 1)]
    assert [(s["name"], s["metrics"]) for s in second.to_dict()["spans"]] == [("b", {"x": 1})]
    assert list(spans_of(run)) == ["c"]


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt()])
def test_an_exception_ends_the_span_and_passes_through(error):
    collector = Collector()
    with pytest.raises(type(error)), collector.span("work"):
        raise error
    (span,) = collector.to_dict()["spans"]
    assert (span["status"], span["error_type"], span["duration_s"] > 0) == (
        "error",
        type(error).__name__,
        True,
    )


def test_an_open_span_tells_its_elapsed_time():
    collector = Collector()
    with collector.span("work") as span:
        assert span.duration() > 0
        assert collector.summary()["open_spans"] == 1


def test_the_dictionary_is_json_whatever_was_put_in():
    collector = Collector()
    with collector.span("work", path=object(), self=1, name="n") as span:
        span.metrics["loss"] = math.nan
    (shown,) = json.loads(json.dumps(collector.to_dict(), allow_nan=False))["spans"]
    assert (shown["metrics"], shown["nonfinite"]) == ({"loss": None}, {"loss": "nan"})


def test_a_disabled_collector_keeps_nothing():
    collector = Collector(enabled=False)
    for i in range(10):
        with collector.span("work") as span:
            span.metrics[f"key-{i}"] = 1
            collector.add_metric("x", 1)
    assert (dict(span.metrics), collector.to_dict()["spans"]) == ({}, [])
