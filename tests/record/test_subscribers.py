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
from flightlog.record.limits import RecordLimits
from flightlog.store.read.follow import EventStream
from flightlog.store.run import Run


def record_spans(number: int) -> None:
    for i in range(number):
        with flightlog.span("work", i=i):
            pass


def until(happened) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_subscribers_see_events_in_order_on_another_thread(recorded):
    seen, on = [], set()

    def subscriber(event):
        seen.append(event)
        on.add(threading.current_thread())

    with recorded() as run:
        run.subscribe(subscriber, events=["span"])
        record_spans(500)
        run.metric("loss", 1.0)
    assert [e.tags["i"] for e in seen] == list(range(500))
    assert [e.seq for e in seen] == list(range(500))
    assert threading.current_thread() not in on


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
        until(lambda: run.recorder.subscribers.counts()["subscriber_dropped"] == 990)
        release.set()
    assert len(seen) == 10
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
    assert caplog.text.count("the event loop of a subscriber has closed: events that it misses") == 1


def test_a_hung_subscriber_loses_the_rest_which_the_report_says(recorded, caplog):
    hang = threading.Event()
    with recorded() as run:
        run.subscribe(lambda _event: hang.wait(60), events="metric")
        for i in range(2_500):
            run.metric("loss", i)
    hang.set()
    told = Run(run.path).completeness().notes
    assert told == ("2,500 events were missed by subscribers (too slow, or ended); they are in the files",)
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


def counts_of(run) -> list[int]:
    """Delivered, dropped and raised, as they are written."""
    counts = Run(run.path).writers()[0].counts
    return [counts[f"subscriber_{name}"] for name in ("delivered", "dropped", "errors")]


def test_all_subscribers_share_one_reader_which_ends_with_the_last(recorded):
    def readers():
        return sum(thread.name == "flightlog-subscribers" for thread in threading.enumerate())

    seen, others, spans = [], [], []
    with recorded() as run:
        ends = [run.subscribe(taken.append, events="metric") for taken in (seen, others)]
        run.metric("loss", 1.0)
        ends.append(run.subscribe(spans.append, events="span"))
        record_spans(1)
        assert readers() == 1
        for unsubscribe in ends:
            unsubscribe()
        until(lambda: not readers())
        later = []
        run.subscribe(later.append, events="metric")
        run.metric("loss", 2.0)
    assert [len(seen), len(others), len(spans)] == [1, 1, 1]
    assert seen[0] is others[0]  # decoded once
    assert [event.value for event in later] == [2.0]


def test_who_subscribes_in_the_middle_of_a_look_hears_what_it_finds(recorded, monkeypatch):
    seen, poll, done = [], EventStream.poll, []

    def subscribe_first(stream, *limit):
        if not done:
            done.append(True)
            run.subscribe(seen.append, events="metric")
            run.metric("loss", 1.0)
        return poll(stream, *limit)

    with recorded() as run:
        monkeypatch.setattr(EventStream, "poll", subscribe_first)
        run.subscribe(lambda _event: None)
        until(lambda: seen)
    assert [event.value for event in seen] == [1.0]


def test_who_falls_far_behind_misses_nothing_and_holds_nobody_up(recorded, monkeypatch):
    monkeypatch.setattr(RecordLimits, "max_waiting_events", 50)
    monkeypatch.setattr(RecordLimits, "max_delivered_together", 20)
    monkeypatch.setattr(RecordLimits, "room_wait_s", 0.01)
    release, slow, quick = threading.Event(), [], []

    def wait(event):
        release.wait(60)
        slow.append(event.value)

    with recorded() as run:
        run.subscribe(wait, events="metric")
        run.subscribe(lambda event: quick.append(event.value), events="metric")
        for i in range(1_000):
            run.metric("loss", i)
        until(lambda: len(quick) == 1_000)
        release.set()
        until(lambda: len(slow) == 1_000)
        run.metric("loss", 1_000)
    assert slow == quick == list(range(1_001))
    assert counts_of(run) == [2_002, 0, 0]


def test_a_coroutine_that_awaits_what_was_cancelled_misses_that_event_alone(recorded):
    async def program():
        seen = []

        async def subscriber(event):
            if event.value == 0:
                cancelled = asyncio.ensure_future(asyncio.sleep(60))
                cancelled.cancel()
                await cancelled
            seen.append(event.value)

        async with recorded() as run:
            run.subscribe(subscriber, events="metric")
            for i in range(50):
                run.metric("loss", i)
        return seen, run

    seen, run = asyncio.run(program())
    assert seen == list(range(1, 50))
    assert counts_of(run) == [49, 0, 1]


def test_what_a_cancelled_delivery_misses_is_counted_and_the_next_goes_on(recorded, caplog):
    async def program():
        seen, begun = [], asyncio.Event()

        async def subscriber(event):
            seen.append(event.value)
            if len(seen) == 1:
                begun.set()
                await asyncio.sleep(60)

        async with recorded() as run:
            run.subscribe(subscriber, events="metric")
            for i in range(50):
                run.metric("loss", i)
            await asyncio.wait_for(begun.wait(), 30)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            run.metric("loss", 50)
        return seen, run

    seen, run = asyncio.run(program())
    delivered, dropped, errors = counts_of(run)
    assert (seen[-1], delivered, errors) == (50, len(seen) - 1, 0)
    assert delivered + dropped == 51
    assert "was cancelled" in caplog.text


def test_what_a_coroutine_misses_at_the_end_is_counted(recorded):
    async def program():
        queue = asyncio.Queue(maxsize=3)
        async with recorded() as run:
            run.subscribe(queue.put, events="metric")
            for i in range(100):
                run.metric("loss", i)
        return run

    assert counts_of(asyncio.run(program())) == [3, 97, 0]


def test_what_a_function_returns_is_awaited_on_the_loop_it_subscribed_on(recorded):
    async def program():
        queue = asyncio.Queue()
        async with recorded() as run:
            run.subscribe(lambda event: queue.put(event.value), events="metric")
            for i in range(20):
                run.metric("loss", i)
        return [queue.get_nowait() for _ in range(20)], run

    seen, run = asyncio.run(program())
    assert seen == list(range(20))
    assert counts_of(run) == [20, 0, 0]


def test_a_function_may_return_coroutines_without_a_loop(recorded):
    seen = []

    async def keep(event):
        await asyncio.sleep(0)
        seen.append(event.value)

    with recorded() as run:
        run.subscribe(lambda event: keep(event), events="metric")
        for i in range(5):
            run.metric("loss", i)
    assert seen == list(range(5))


def test_many_hung_subscribers_end_together_and_are_counted_by_their_reader(recorded, monkeypatch):
    monkeypatch.setattr(RecordLimits, "stuck_subscriber_s", 0.2)
    hang, polled_on, poll = threading.Event(), set(), EventStream.poll

    def noted(stream, *limit):
        polled_on.add(threading.current_thread().name)
        return poll(stream, *limit)

    monkeypatch.setattr(EventStream, "poll", noted)
    with recorded() as run:
        for _ in range(15):
            run.subscribe(lambda _event: hang.wait(60), events="metric")
        for i in range(3_000):
            run.metric("loss", i)
    hang.set()
    assert polled_on == {"flightlog-subscribers"}
    assert counts_of(run) == [0, 45_000, 0]


def test_a_subscriber_that_records_what_it_hears_ends_with_the_run(recorded):
    with recorded() as run:
        run.subscribe(lambda _event: run.metric("heard", 1.0), events="metric")
        run.metric("loss", 1.0)
        until(lambda: run.recorder.subscribers.counts()["subscriber_delivered"])
        heard = run.recorder.subscribers.counts()["subscriber_delivered"]
    delivered, dropped, errors = counts_of(run)
    assert delivered <= heard + 20
    assert (dropped, errors) == (0, 0)


def test_a_capacity_drops_nothing_of_a_subscriber_that_is_quick(recorded, monkeypatch):
    monkeypatch.setattr(RecordLimits, "room_wait_s", 30.0)
    seen = []
    with recorded() as run:
        run.subscribe(lambda event: seen.append(event.value), events="metric", capacity=10)
        for i in range(2_000):
            run.metric("loss", i)
    assert seen == list(range(2_000))
    assert counts_of(run) == [2_000, 0, 0]


def test_a_capacity_of_nothing_is_refused(recorded, caplog):
    with recorded() as run:
        run.subscribe(print, capacity=-1)()
        assert not run.recorder.subscribers.counts()
    assert "1 or more, not -1" in caplog.text


def test_the_events_of_a_batch_that_raises_are_counted(recorded):
    def bad(batch):
        batch.clear()
        raise RuntimeError("no")

    with recorded() as run:
        run.subscribe(bad, events="metric", batch=True)
        for i in range(100):
            run.metric("loss", i)
    assert counts_of(run) == [0, 0, 100]


def test_a_kind_that_no_event_has_is_said(recorded, caplog):
    with recorded() as run:
        run.subscribe(print, events=["metrik", "metric"])
    assert "no event is called 'metrik'" in caplog.text
