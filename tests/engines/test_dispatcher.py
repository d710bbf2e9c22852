"""What the dispatcher promises whatever the backend: attempts that never began are retried, launches that
fail are few, and nothing is waited for without end.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager

import pytest

from flightlog.engines.contract import Outcome
from flightlog.engines.dispatcher import DispatchedWorker, Dispatcher
from flightlog.engines.execute import Started
from flightlog.engines.limits import EngineLimits
from flightlog.events import WorkerLaunched, WorkerLost, WorkerRemoved
from flightlog.record.clock import monotonic_ns
from flightlog.testing.engines import Reported, make_work


class FakeWorker(DispatchedWorker):
    """Gives what it is sent to its backend, and is over as soon as it is asked to be."""

    def __init__(self, backend, number):
        super().__init__()
        self.backend = backend
        self.facts = [{"worker": f"here:{number}", "host": "here", "pid": number}]
        self.ready_at = time.monotonic()

    def send(self, attempt):
        self.backend.sent.append(attempt.work.task_id)
        self.backend.on_sent(self, attempt)

    def stop(self):
        self.backend.dispatcher.loop.post(self.backend.dispatcher.died, self, 0)

    def signal(self, deed):
        self.backend.signals.append(deed)

    def removed(self):
        self.backend.removed.append(self)


class FakeBackend:
    def __init__(self):
        self.sent, self.signals, self.removed, self.launches = [], [], [], 0
        self.launch_error, self.places = None, 100

    def has_room(self):
        return self.launches - len(self.removed) < self.places

    def can_end(self, attempt):
        return True

    def open(self, dispatcher):
        self.dispatcher = dispatcher

    def launch(self):
        self.launches += 1
        if self.launch_error is not None:
            raise self.launch_error
        return FakeWorker(self, self.launches)

    def on_sent(self, worker, attempt):
        self.dispatcher.ended(attempt, Outcome(end="completed"))

    def has_leftovers(self):
        return False

    def close(self):
        pass


@contextmanager
def running(backend, size=1):
    dispatcher, reported = Dispatcher(backend, size, grace_s=0.0), Reported()
    dispatcher.start(reported)
    try:
        yield dispatcher, reported
    finally:
        dispatcher.close(0.0)


def test_a_worker_is_launched_for_the_first_attempt_and_removed_at_the_close():
    backend = FakeBackend()
    with running(backend) as (dispatcher, reported):
        work = make_work(abs, 1)
        dispatcher.submit(work)
        assert reported.outcome(work).end == "completed"
        assert [view.worker for view in dispatcher.workers()] == ["here:1"]
    events = [report.event for report in reported.reports if report.kind == "worker"]
    assert [type(event) for event in events] == [WorkerLaunched, WorkerRemoved]
    assert events[-1].reason == "the engine was closed"


def test_an_attempt_whose_worker_dies_before_it_began_is_given_to_another_one_a_few_times_only():
    backend = FakeBackend()
    backend.on_sent = lambda worker, _attempt: backend.dispatcher.loop.post(
        backend.dispatcher.died, worker, -9
    )
    with running(backend) as (dispatcher, reported):
        work = make_work(abs, 1)
        dispatcher.submit(work)
        outcome = reported.outcome(work)
    assert (outcome.end, outcome.signal, outcome.pid) == ("lost", "SIGKILL", EngineLimits.max_handouts + 1)
    assert backend.sent == [work.task_id] * (EngineLimits.max_handouts + 1)
    assert [r.event.signal for r in reported.reports if isinstance(r.event, WorkerLost)] == ["SIGKILL"] * 4


def test_what_waits_while_a_worker_that_is_ended_holds_its_place_is_not_lost():
    backend = FakeBackend()
    backend.places = 1
    backend.on_sent = lambda worker, attempt: backend.held.append((worker, attempt))
    backend.held = []
    with running(backend) as (dispatcher, reported):
        first, second = make_work(abs, 1), make_work(abs, 2)
        dispatcher.submit(first)
        deadline = time.monotonic() + 30
        while not backend.held and time.monotonic() < deadline:
            time.sleep(0.01)
        dispatcher.submit(second)
        dispatcher.cancel(first.task_id, "because")
        time.sleep(0.6)  # three launches would have failed by now
        assert backend.launches == 1
        [(worker, _)] = backend.held
        backend.on_sent = lambda _worker, attempt: dispatcher.ended(attempt, Outcome(end="completed"))
        dispatcher.loop.post(dispatcher.died, worker, -9)
        assert reported.outcome(second).end == "completed"
        assert reported.outcome(first).end == "cancelled"


@pytest.mark.parametrize(("ends", "end"), [(True, "completed"), (False, "timed_out")])
def test_an_attempt_whose_timeout_is_looked_at_late_has_a_second_to_be_heard_of(ends, end):
    def stall(worker, attempt):
        dispatcher.started(attempt, "here:1", Started("2026-05-20T03:52:00.000001Z", monotonic_ns(), None))
        time.sleep(0.3)  # on the engine's thread
        if ends:
            done = (dispatcher.ended, attempt, Outcome(end="completed"))
            threading.Timer(0.1, dispatcher.loop.post, done).start()
        else:
            worker.signal = lambda _deed: dispatcher.loop.post(dispatcher.died, worker, -15)

    backend = FakeBackend()
    backend.on_sent = stall
    with running(backend) as (dispatcher, reported):
        work = make_work(abs, 1, timeout_s=0.1)
        dispatcher.submit(work)
        assert reported.outcome(work).end == end


def test_when_no_worker_can_be_launched_a_few_times_in_a_row_what_waits_is_lost(caplog):
    caplog.set_level(logging.CRITICAL, "flightlog")
    backend = FakeBackend()
    backend.launch_error = OSError("no more processes")
    with running(backend) as (dispatcher, reported):
        work = make_work(abs, 1)
        dispatcher.submit(work)
        outcome = reported.outcome(work)
    assert (outcome.end, backend.launches) == ("lost", EngineLimits.max_failed_launches)
    assert outcome.reason == "no worker process can be launched: OSError: no more processes"


def test_an_attempt_that_cannot_travel_fails_and_the_next_one_is_sent():
    def refuse(_worker, attempt):
        if attempt.work.task == "abs":
            raise TypeError("not to be packed")
        backend.dispatcher.ended(attempt, Outcome(end="completed"))

    backend = FakeBackend()
    backend.on_sent = refuse
    with running(backend) as (dispatcher, reported):
        works = [make_work(abs, 1), make_work(len, "")]
        for work in works:
            dispatcher.submit(work)
        first, second = map(reported.outcome, works)
    assert (first.end, first.error_message) == ("failed", "it cannot be sent to a worker: not to be packed")
    assert second.end == "completed"


def test_a_backend_that_fails_ends_all_attempts_as_lost_with_its_error(caplog):
    caplog.set_level(logging.CRITICAL + 1, "flightlog")
    backend = FakeBackend()
    backend.on_sent = lambda _worker, _attempt: backend.dispatcher.loop.post(lambda: 1 / 0)
    with running(backend) as (dispatcher, reported):
        works = [make_work(abs, 1), make_work(abs, 2)]
        for work in works:
            dispatcher.submit(work)
        ends = [(outcome.end, outcome.reason) for outcome in map(reported.outcome, works)]
        dispatcher.submit(late := make_work(abs, 3))
        assert reported.outcome(late).end == "lost"
    assert ends == [("lost", "the engine failed: ZeroDivisionError: division by zero")] * 2
    assert backend.signals == ["terminate", "kill"]


def test_a_process_that_ends_by_no_signal_is_written_off(monkeypatch):
    monkeypatch.setattr(EngineLimits, "kill_timeout_s", 0.0)
    backend = FakeBackend()
    backend.on_sent = lambda worker, _attempt: backend.dispatcher.force(worker, "it must go")
    with running(backend) as (dispatcher, reported):
        work = make_work(abs, 1)
        dispatcher.submit(work)
        outcome = reported.outcome(work)
    assert (outcome.end, outcome.reason) == ("lost", "its process does not end, not even by SIGKILL")
    assert backend.signals == ["terminate", "kill"] * (EngineLimits.max_handouts + 1)


class Prefetching(FakeWorker):
    """Has not read what has not begun."""

    prefetches = True

    def recall(self):
        unread = [attempt for attempt in self.held.values() if attempt.begun is None]
        for attempt in unread:
            del self.held[attempt.serial]
            attempt.holder = None
        return unread


def test_more_attempts_are_queued_behind_quick_ones_and_had_back_from_behind_a_slow_one():
    backend = FakeBackend()
    backend.launch = lambda: workers[0]
    workers = [Prefetching(backend, 1)]
    begin = threading.Event()

    def on_sent(worker, attempt):
        if attempt.work.task_id == quick.task_id:
            backend.dispatcher.started(attempt, "here:1", Started("", monotonic_ns(), 0.0))
            backend.dispatcher.ended(attempt, Outcome(end="completed", duration_s=1e-5))
        elif attempt.work.task_id == slow.task_id:
            assert begin.wait(60)  # until the others wait
            backend.dispatcher.started(attempt, "here:1", Started("", monotonic_ns(), 0.0))

    backend.on_sent = on_sent
    quick, slow, *others = (make_work(abs, 1) for _ in range(32))
    with running(backend) as (dispatcher, reported):
        dispatcher.submit(quick)
        assert reported.outcome(quick).end == "completed"
        for work in (slow, *others):
            dispatcher.submit(work)
        begin.set()
        held, until = [], time.monotonic() + 60
        while not held or held[-1] != 1 + EngineLimits.max_unread_attempts:
            assert time.monotonic() < until
            held.append(len(workers[0].held))
            time.sleep(0.001)
        assert max(held) == 1 + EngineLimits.max_unread_quick_attempts
        in_order = [one.work.task_id for one in workers[0].held.values()]
        assert in_order == [work.task_id for work in (slow, *others[: EngineLimits.max_unread_attempts])]
