"""The event bus: in order, off the user's threads, bounded, and never at the cost of data."""

from __future__ import annotations

import asyncio
import threading

from builders.runs import finished

import flightlog
from flightlog.events import define_event, kind_of
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
        run.subscribe(subscriber, events=flightlog_metric())
        for i in range(300):
            run.metric("loss", i)
    assert seen == list(range(300))


def flightlog_metric():
    from flightlog.events import Metric

    return Metric


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
    assert 10 <= len(seen) <= 12
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
