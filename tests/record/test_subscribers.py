"""Subscribers hear of every process of a run: in order, on threads and loops of their own, at no cost."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import threading
import time

from builders.runs import finished

import flightlog
from flightlog.events import Metric, define_event, kind_of
from flightlog.store.run import Run


def record_spans(number: int) -> None:
    for i in range(number):
        with flightlog.span("work", i=i):
            pass


def test_subscribers_see_events_in_order_on_another_thread(recorded):
    seen, threads = [], set()

    def subscriber(event):
        seen.append(event)
        threads.add(threading.current_thread())

    with recorded() as run:
        run.subscribe(subscriber, events=["span"])
        record_spans(500)
        run.metric("loss", 1.0)
    assert [e.tags["i"] for e in seen] == list(range(500))
    assert [e.seq for e in seen] == list(range(500))
    assert threading.current_thread() not in threads


def test_an_async_subscriber_gets_everything_also_at_the_end(recorded):
    seen = []

    async def subscriber(event):
        await asyncio.sleep(0)
        seen.append(event.value)

    with recorded() as run:
        run.subscribe(subscriber, events=Metric)
        for i in range(300):
            run.metric("loss", i)
    assert seen == list(range(300))


def test_a_raising_subscriber_is_counted_and_the_others_go_on(recorded, caplog):
    seen = []

    def bad(_event):
        raise RuntimeError("no")

    with recorded() as run:
        run.subscribe(bad)
        run.subscribe(seen.append, events="span")
        record_spans(10)
    counts = Run(run.path).writers()[0].counts
    assert len(seen) == 10
    assert counts["subscriber_errors"] == counts["subscriber_delivered"] == 10
    assert caplog.text.count("a subscriber raised") == 1


def test_a_slow_subscriber_is_bounded_and_costs_no_data(recorded):
    release, seen = threading.Event(), []

    def slow(event):
        release.wait(30)
        seen.append(event)

    with recorded() as run:
        run.subscribe(slow, events="span", capacity=10)
        record_spans(1000)
        release.set()
    assert 10 <= len(seen) <= 30
    assert len(list(finished(Run(run.path)))) == 1000
    assert Run(run.path).writers()[0].counts["subscriber_dropped"] == 1000 - len(seen)


def test_subscribers_are_told_no_secrets_either(recorded):
    seen = []
    with recorded() as run:
        run.subscribe(seen.append)
        run.event(define_event("bus.Login", user=str, password=str)(user="ada", password="hunter2"))
        run.event("login", password="hunter2", long="x" * 100_000)
    told = [e for e in seen if kind_of(e) in {"bus.Login", "user_event"}]
    assert len(told) == 2
    assert "hunter2" not in repr(told)
    assert "ada" in repr(told)


def test_unsubscribing_delivers_what_waits_and_then_nothing(recorded):
    seen = []
    with recorded() as run:
        unsubscribe = run.subscribe(seen.append, events="span")
        record_spans(5)
        unsubscribe()
        record_spans(5)
        unsubscribe()
    assert [e.tags["i"] for e in seen] == list(range(5))


def test_emitting_from_many_threads_and_loops_reaches_disk_and_subscribers(recorded):
    seen = []
    with recorded() as run:
        run.subscribe(seen.append, events="metric")

        def work():
            async def main():
                for i in range(200):
                    run.metric("loss", i)
                    await asyncio.sleep(0)

            asyncio.run(main())

        threads = [threading.Thread(target=work) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(seen) == 1000
    assert sorted(e.seq for e in Run(run.path).events("metrics")) == list(range(1000))


def test_coroutines_run_on_the_loop_that_subscribed_them(recorded):
    async def program():
        loop, queue, loops = asyncio.get_running_loop(), asyncio.Queue(maxsize=1), set()

        async def subscriber(event):
            loops.add(asyncio.get_running_loop())
            await queue.put(event.value)

        async with recorded() as run:
            run.subscribe(subscriber, events="metric")
            seen = []
            for i in range(200):
                run.metric("loss", i)
            for _ in range(150):
                seen.append(await asyncio.wait_for(queue.get(), 30))
            rest = asyncio.create_task(take(queue, 50))
        return seen + await asyncio.wait_for(rest, 30), loops == {loop}, run

    async def take(queue, number):
        return [await queue.get() for _ in range(number)]

    seen, on_its_loop, run = asyncio.run(program())
    assert (seen, on_its_loop) == (list(range(200)), True)
    assert Run(run.path).writers()[0].counts["subscriber_dropped"] == 0


def test_a_fast_coroutine_misses_nothing_and_leaves_the_loop_alone(recorded):
    async def program():
        seen, longest = [], 0.0

        async def subscriber(event):
            seen.append(event.value)

        async with recorded() as run:
            run.subscribe(subscriber, events="metric")
            for i in range(20_000):
                run.metric("loss", i)
            while len(seen) < 20_000:
                before = time.perf_counter()
                await asyncio.sleep(0.001)
                longest = max(longest, time.perf_counter() - before)
        return seen, longest

    seen, longest = asyncio.run(program())
    assert seen == list(range(20_000))
    assert longest < 5


def test_coroutines_on_a_loop_of_their_own_may_wait(recorded):
    seen, loops = [], set()

    async def subscriber(event):
        loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0.001)
        seen.append(event.value)

    with recorded() as run:
        run.subscribe(subscriber, events="metric")
        for i in range(20):
            run.metric("loss", i)
    assert (seen, len(loops)) == (list(range(20)), 1)


def test_batches_hold_everything_in_order(recorded):
    batches = []
    with recorded() as run:
        run.subscribe(batches.append, events="metric", batch=True)
        for i in range(5_000):
            run.metric("loss", i)
    assert [event.value for batch in batches for event in batch] == list(range(5_000))
    assert len(batches) < 1_000
    counts = Run(run.path).writers()[0].counts
    assert (counts["subscriber_delivered"], counts["subscriber_dropped"]) == (5_000, 0)


def test_a_loop_that_has_closed_is_counted_and_said(recorded, caplog):
    async def subscriber(_event):
        pass

    async def subscribe(run):
        run.subscribe(subscriber, events="metric")

    with recorded() as run:
        asyncio.run(subscribe(run))
        for i in range(10):
            run.metric("loss", i)
    assert Run(run.path).writers()[0].counts["subscriber_dropped"] == 10
    assert caplog.text.count("events that it misses are dropped and counted") == 1


def test_a_hung_subscriber_loses_the_rest_which_the_report_says(recorded, caplog):
    hang = threading.Event()
    with recorded() as run:
        run.subscribe(lambda _event: hang.wait(60), events="metric")
        for i in range(2_500):
            run.metric("loss", i)
    hang.set()
    told = Run(run.path).completeness().notes
    assert told == ("2,500 events were missed by subscribers that were too slow; they are in the files",)
    assert caplog.text.count("a subscriber is too slow") == 1


def test_events_are_frozen_and_nan_arrives(recorded):
    seen, refused = [], []
    kind = define_event("subscribers.Score", value=float)

    def change(event):
        seen.append(event.value)
        try:
            event.value = 1.0
        except AttributeError:
            refused.append(event)

    with recorded() as run:
        run.subscribe(change, events=kind)
        run.event(kind(value=math.nan))
        run.event(kind(value=2.0))
    assert (math.isnan(seen[0]), seen[1], len(refused)) == (True, 2.0, 2)


def test_a_predicate_that_raises_is_counted(recorded, caplog):
    seen = []
    with recorded() as run:
        run.subscribe(seen.append, events="metric", where=lambda event: 1 / event.value > 0.3)
        for i in range(5):
            run.metric("loss", i)
    assert [event.value for event in seen] == [1, 2, 3]
    assert Run(run.path).writers()[0].counts["subscriber_errors"] == 1
    assert caplog.text.count("a subscriber raised") == 1


def test_only_what_is_recorded_after_it_subscribed_is_delivered(recorded):
    seen = []
    with recorded() as run:
        for i in range(3_000):
            run.metric("loss", i)
        run.subscribe(seen.append, events="metric")
        run.metric("loss", -1.0)
    assert [event.value for event in seen] == [-1.0]


def test_a_program_that_ends_in_the_middle_of_a_delivery_ends(tmp_path):
    body = f"""
import flightlog, time
recording = flightlog.record("x", runs_dir={str(tmp_path)!r})
run = recording.__enter__()
run.subscribe(lambda event: time.sleep(0.01), batch=True)
for i in range(10_000): run.metric("a", i)
"""
    done = subprocess.run(
        [sys.executable, "-c", body], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""


def test_whoever_subscribes_after_the_end_hears_nothing(recorded):
    with recorded() as run:
        run.metric("loss", 1.0)
    before = threading.active_count()
    run.subscribe(print)()
    assert threading.active_count() == before
