"""Spans: identity, nesting, endings and values."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import math
import random
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders.runs import finished

import flightlog
from flightlog.store.run import Run


def test_a_span_is_written_with_ids_parent_tags_metrics_and_duration(recorded, spans_of):
    with recorded() as run, flightlog.span("outer", seed=42):
        with flightlog.span("inner", kind="x") as span:
            span.metrics["loss"] = 0.25
    outer, inner = spans_of(run)["outer"], spans_of(run)["inner"]
    assert (inner.name, inner.tags, inner.metrics, inner.status) == (
        "inner",
        {"kind": "x"},
        {"loss": 0.25},
        "ok",
    )
    assert inner.parent_id == outer.span_id
    assert outer.parent_id == run.info.span_id
    assert inner.trace_id == outer.trace_id == run.info.trace_id
    assert re.fullmatch(r"[0-9a-f]{16}", inner.span_id)
    assert re.fullmatch(r"[0-9a-f]{32}", inner.trace_id)
    assert 0 < inner.duration_s <= outer.duration_s
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", inner.timestamp)
    assert outer.timestamp <= inner.timestamp


def test_duration_is_the_elapsed_time_while_open_and_the_whole_afterwards(recorded):
    with recorded():
        with flightlog.span("work") as span:
            first = span.duration()
            second = span.duration()
        assert 0 < first < second <= span.duration() == span.duration_s


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_any_exception_ends_a_span_with_its_error_and_passes_through_untouched(recorded, spans_of, error):
    with recorded() as run:
        with pytest.raises(type(error)) as caught, flightlog.span("work"):
            raise error
        assert caught.value is error
        assert error.__cause__ is None
        assert error.__context__ is None
    span = spans_of(run)["work"]
    assert (span.status, span.error_type, span.error_message) == ("error", type(error).__name__, str(error))


def test_a_cancelled_coroutine_ends_its_span_as_cancelled(recorded, spans_of):
    async def main():
        async def work():
            async with flightlog.span("work"):
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with recorded() as run:
        asyncio.run(main())
    assert spans_of(run)["work"].error_type == "CancelledError"


def test_an_exception_whose_str_raises_is_still_the_users_exception(recorded, spans_of):
    class Rude(Exception):
        def __str__(self):
            raise RuntimeError("no text for you")

    with recorded() as run, pytest.raises(Rude), flightlog.span("work"):
        raise Rude
    assert (spans_of(run)["work"].error_type, spans_of(run)["work"].error_message) == ("Rude", None)


def test_an_error_that_is_returned_can_be_said(recorded, spans_of):
    with recorded() as run, flightlog.span("solve") as span:
        span.set_status("error", "did not converge")
    assert (spans_of(run)["solve"].status, spans_of(run)["solve"].error_message) == (
        "error",
        "did not converge",
    )


def test_tags_may_be_called_anything(recorded, spans_of):
    with recorded() as run, flightlog.span("work", name="n", self="s", function="f", event="e", tags=1):
        pass
    assert spans_of(run)["work"].tags == {"name": "n", "self": "s", "function": "f", "event": "e", "tags": 1}


def test_a_metric_added_twice_keeps_both_values(recorded, spans_of):
    with recorded() as run, flightlog.span("train") as span:
        for loss in (0.5, 0.25):
            span.add_metric("loss", loss)
    assert spans_of(run)["train"].metrics == {"loss": [0.5, 0.25]}


def test_values_that_json_cannot_hold_are_represented_and_the_rest_is_kept(recorded, spans_of):
    with recorded() as run:
        with flightlog.span(
            "work", path=Path("/data"), ok=1, surrogate="\udc80", huge=2**80, obj=object()
        ) as span:
            span.metrics["nan"] = math.nan
            span.metrics["inf"] = -math.inf
            span.metrics["fine"] = 1.5
        with flightlog.span("after"):
            pass
    span = spans_of(run)["work"]
    assert (span.tags["path"], span.tags["ok"]) == ("/data", 1)
    assert span.metrics == {"nan": None, "inf": None, "fine": 1.5}
    assert span.nonfinite == {"nan": "nan", "inf": "-inf"}
    assert "after" in spans_of(run)
    for line in (run.path / "spans.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_numpy_scalar_is_a_number(recorded, spans_of):
    numpy = pytest.importorskip("numpy")
    with recorded() as run, flightlog.span("work", n=numpy.int64(3)) as span:
        span.metrics["loss"] = numpy.float64(0.5)
    assert (spans_of(run)["work"].tags, spans_of(run)["work"].metrics) == ({"n": 3}, {"loss": 0.5})


def test_secrets_in_tags_stay_out_also_when_their_names_look_harmless(recorded):
    with recorded() as run:
        for _ in range(3):  # the second time, the names are known
            with flightlog.span("fetch", password="hunter2", url="https://me:hunter2@host/data", n=1):
                pass
            with flightlog.span("fetch", url="https://host/data", n=1):
                pass
    text = (run.path / "spans.jsonl").read_text()
    assert "hunter2" not in text
    assert "https://host/data" in text


def test_a_line_too_long_is_cut_and_still_one_whole_line(recorded, spans_of):
    with recorded() as run, flightlog.span("work", text="x" * 10_000_000, n=1):
        pass
    assert spans_of(run)["work"].tags["n"] == 1
    assert (run.path / "spans.jsonl").stat().st_size < 70_000


def test_span_works_as_decorator_on_functions_coroutines_and_generators(recorded, spans_of):
    @flightlog.span("plain")
    def plain(x, *, name):
        """The docstring."""
        return x, name

    @flightlog.span("coroutine")
    async def coroutine(x):
        await asyncio.sleep(0)
        return x

    @flightlog.span("generator")
    def generator():
        got = yield 1
        return got

    @flightlog.span("async_generator")
    async def async_generator():
        yield 1
        yield 2

    async def consume():
        return [item async for item in async_generator()]

    with recorded() as run:
        assert plain(1, name=2) == (1, 2)
        assert (plain.__name__, plain.__doc__) == ("plain", "The docstring.")
        assert asyncio.run(coroutine(5)) == 5
        steps = generator()
        assert next(steps) == 1
        with pytest.raises(StopIteration) as stop:
            steps.send("sent")
        assert stop.value.value == "sent"
        assert asyncio.run(consume()) == [1, 2]
    assert set(spans_of(run)) == {"plain", "coroutine", "generator", "async_generator"}


def test_a_decorator_applied_before_any_run_records_in_the_run_of_each_call(recorded, spans_of):
    @flightlog.span("work")
    def work():
        return 1

    assert work() == 1
    with recorded("one") as one:
        work()
    with recorded("two") as two:
        work()
        work()
    assert [len(list(finished(Run(r.path)))) for r in (one, two)] == [1, 2]


def test_a_generators_consumer_is_not_inside_the_generators_span(recorded, spans_of):
    @flightlog.span("produce")
    def produce():
        for i in range(2):
            with flightlog.span(f"make-{i}"):
                pass
            yield i

    with recorded() as run, flightlog.span("consume"):
        for item in produce():
            with flightlog.span(f"use-{item}"):
                pass
    spans = spans_of(run)
    assert {name: spans[name].parent_id for name in ("make-0", "make-1", "use-0", "use-1", "produce")} == {
        "make-0": spans["produce"].span_id,
        "make-1": spans["produce"].span_id,
        "use-0": spans["consume"].span_id,
        "use-1": spans["consume"].span_id,
        "produce": spans["consume"].span_id,
    }


def test_an_exception_thrown_into_a_generator_reaches_it_and_closing_it_ends_its_span(recorded, spans_of):
    seen = []

    @flightlog.span("steps")
    def steps():
        try:
            yield 1
        except ValueError as error:
            seen.append(error)
            yield 2

    with recorded() as run:
        it = steps()
        next(it)
        assert it.throw(ValueError("in")) == 2
        it.close()
    assert [str(e) for e in seen] == ["in"]
    assert spans_of(run)["steps"].error_type == "GeneratorExit"


def test_interleaved_generators_leave_no_span_inside_one_that_has_ended(recorded, spans_of):
    def steps(name):
        with flightlog.span(name):
            yield

    with recorded() as run, flightlog.span("outer"):
        first, second = steps("first"), steps("second")
        next(first)
        next(second)
        list(first)
        list(second)
        with flightlog.span("after"):
            pass
    assert spans_of(run)["after"].parent_id == spans_of(run)["outer"].span_id


def test_fifty_threads_have_their_own_spans_with_the_right_parents(recorded):
    def work(i):
        for j in range(20):
            with flightlog.span("thread.outer", i=i, j=j), flightlog.span("thread.inner", i=i, j=j) as span:
                span.metrics["i"] = i

    with recorded() as run, flightlog.span("start") as start:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    spans = [e for e in finished(Run(run.path)) if e.name.startswith("thread")]
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans) == 2000
    for span in spans:
        if span.name == "thread.inner":
            outer = by_id[span.parent_id]
            assert (outer.tags, outer.thread) == (span.tags, span.thread)
            assert span.metrics == {"i": span.tags["i"]}
        else:
            assert span.parent_id == start.span_id


def test_a_thousand_asyncio_tasks_have_the_right_parents(recorded):
    async def work(i):
        with flightlog.span("task.outer", i=i):
            await asyncio.sleep(random.random() / 100)
            with flightlog.span("task.inner", i=i):
                await asyncio.sleep(0)

    async def main():
        with flightlog.span("main"):
            await asyncio.gather(*(work(i) for i in range(1000)))

    with recorded() as run:
        asyncio.run(main())
    spans = {e.span_id: e for e in finished(Run(run.path)) if e.name.startswith(("task", "main"))}
    assert len([e for e in spans.values() if e.name != "main"]) == 2000
    for span in spans.values():
        if span.name == "task.inner":
            assert spans[span.parent_id].tags == span.tags
        elif span.name == "task.outer":
            assert spans[span.parent_id].name == "main"


def test_work_handed_to_a_pool_is_inside_the_span_that_handed_it_over(recorded, spans_of):
    def work(name):
        with flightlog.span(name):
            pass

    with recorded() as run, ThreadPoolExecutor(1) as pool:
        for name in ("one", "two"):
            with flightlog.span(f"submit-{name}"):
                pool.submit(work, name).result()
    spans = spans_of(run)
    assert spans["one"].parent_id == spans["submit-one"].span_id
    assert spans["two"].parent_id == spans["submit-two"].span_id


def test_a_carrier_takes_the_context_anywhere(recorded, spans_of):
    def elsewhere(carrier):
        with flightlog.attached(carrier), flightlog.span("there"):
            pass

    with recorded() as run:
        with flightlog.span("here") as here:
            carrier = json.loads(json.dumps(flightlog.carrier()))
        thread = threading.Thread(target=elsewhere, args=(carrier,))
        thread.start()
        thread.join()
        with flightlog.attached({}), flightlog.attached(None), flightlog.attached({"traceparent": "rubbish"}):
            pass
    assert carrier["traceparent"] == f"00-{run.info.trace_id}-{here.span_id}-01"
    assert spans_of(run)["there"].parent_id == here.span_id


def test_outside_any_run_a_span_is_the_shared_noop_and_keeps_nothing():
    with flightlog.span("work", x=1) as first, flightlog.span("work") as second:
        first.metrics["a"] = 1
        first.tags["b"] = 2
        first.metrics.update(c=3)
        first.metrics.setdefault("d", 4)
        first.metrics |= {"e": 5}
        first.add_metric("f", 6)
        first.set_status("error", "x")
        first.anything = 1
        assert first is second
        first.metrics["n"] += 1
        assert (dict(first.metrics), dict(first.tags), first.tags["b"]) == ({}, {}, "")
        assert math.isnan(first.duration() + 1)


def test_the_noop_has_every_public_name_of_a_span():
    with flightlog.span("work") as noop:
        pass
    wanted = {
        "metrics",
        "tags",
        "add_metric",
        "set_status",
        "duration",
        "name",
        "trace_id",
        "span_id",
        "parent_id",
    }
    assert {name for name in wanted if not hasattr(noop, name)} == set()


def test_two_runs_in_one_process_do_not_mix(recorded):
    ready, go = threading.Barrier(2), threading.Barrier(2)
    paths = {}

    def one_run(name):
        with recorded(name) as run:
            paths[name] = run.path
            ready.wait()
            for _ in range(200):
                with flightlog.span(name):
                    pass
            inner = threading.Thread(
                target=lambda: flightlog.span(f"{name}-thread").__enter__().__exit__(None, None, None)
            )
            inner.start()
            inner.join()
            assert flightlog.current_run().run_id == run.run_id
            go.wait()

    threads = [threading.Thread(target=one_run, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in ("a", "b"):
        names = [e.name for e in finished(Run(paths[name]))]
        assert sorted(set(names)) == [name, f"{name}-thread"]
        assert len(names) == 201


def test_a_nested_run_takes_the_spans_inside_it_and_gives_the_outer_one_back(recorded, spans_of):
    with recorded("outer") as outer:
        with recorded("inner") as inner, flightlog.span("in"):
            assert flightlog.current_run() is inner
        with flightlog.span("out"):
            assert flightlog.current_run() is outer
    assert (set(spans_of(outer)), set(spans_of(inner))) == ({"out"}, {"in"})
    assert flightlog.current_run() is None


def test_signal_handlers_that_record_lose_nothing_and_spoil_nothing(recorded):
    def handler(*_):
        with flightlog.span("handler"):
            pass

    def on_collection(*_):
        for _ in range(10):  # handlers come in here, in the middle of what started the collection
            pass

    before = signal.signal(signal.SIGALRM, handler)
    gc.callbacks.append(on_collection)
    own = contextvars.ContextVar("own")

    def work():
        own.set("value")
        with recorded() as run:
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0002)
            for i in range(60_000):
                with flightlog.span("work", i=i):
                    pass
            signal.setitimer(signal.ITIMER_REAL, 0)
        variables = contextvars.copy_context()
        assert len(variables) == len(list(variables))
        assert variables[own] == "value"
        return run

    try:
        run = contextvars.copy_context().run(work)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.callbacks.remove(on_collection)
    reading = Run(run.path)
    names = [e.name for e in finished(reading)]
    assert names.count("work") == 60_000
    assert names.count("handler") > 0
    assert sum(reading.completeness().lost.values()) == 0
    assert "events_failed" not in reading.writers()[0].counts


def test_finalizers_that_record_lose_nothing_and_spoil_nothing(recorded):
    class Garbage:
        def __init__(self):
            self.myself = self

        def __del__(self):
            with flightlog.span("finalizer"):
                pass

    def work():
        with recorded() as run:
            for i in range(5000):
                Garbage()
                with flightlog.span("work", i=i) as span:
                    assert flightlog.current_span() is span
        variables = contextvars.copy_context()
        assert len(variables) == len(list(variables))
        return run

    thresholds = gc.get_threshold()
    gc.set_threshold(11)
    try:
        run = contextvars.copy_context().run(work)
    finally:
        gc.set_threshold(*thresholds)
    reading = Run(run.path)
    names = [e.name for e in finished(reading)]
    assert names.count("work") == 5000
    assert names.count("finalizer") > 4000
    assert sum(reading.completeness().lost.values()) == 0


def test_a_runs_own_span_belongs_to_it_wherever_it_is_opened(recorded):
    with recorded("one") as one, recorded("two") as two:
        with flightlog.span("of-two") as outer, one.span("of-one", i=1), flightlog.span("inside"):
            pass
        with flightlog.span("again") as again:
            assert again.parent_id == two.info.span_id
        with two.span("nested") as nested:
            assert nested.parent_id == two.info.span_id
    assert outer.parent_id == two.info.span_id
    (inside, of_one) = finished(Run(one.path))
    assert [inside.name, of_one.name] == ["inside", "of-one"]
    assert (of_one.parent_id, inside.parent_id) == (one.info.span_id, of_one.span_id)
    assert [e.name for e in finished(Run(two.path))] == ["of-two", "again", "nested"]


def test_a_span_of_a_run_that_has_ended_does_nothing(recorded):
    with recorded() as run:
        pass
    with recorded("other") as other, run.span("late") as span:
        assert math.isnan(span.duration())
    assert finished(Run(other.path)) == []
    assert flightlog.current_span().name == ""
    assert finished(Run(run.path)) == []
