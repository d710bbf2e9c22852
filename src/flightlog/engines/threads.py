"""Attempts in threads of this process: cheap, sharing everything; and nothing can end a thread but itself."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

from flightlog.engines.attempts import Attempt, Deadlines, End, Ledger
from flightlog.engines.contract import Reports, Work, WorkerView
from flightlog.engines.execute import Started, execute
from flightlog.events import WorkerLaunched, WorkerLost, WorkerReady, WorkerRemoved
from flightlog.store.liveness import this_host

log = logging.getLogger("flightlog")

CLOSED = "the engine was closed"
STUCK = "its thread cannot be ended and is written off"


class Lane:
    """One thread that executes attempts."""

    def __init__(self, number: int, host: str) -> None:
        thread_name = f"worker-{number}"
        self.facts: dict[str, Any] = {
            "worker": f"{host}:{os.getpid()}/{thread_name}",
            "host": host,
            "pid": os.getpid(),
        }
        self.thread = threading.Thread(name=thread_name, daemon=True)
        self.launched_at = time.monotonic()
        self.attempt: Attempt | None = None
        self.written_off = False
        """Nobody waits for it any more."""


class ThreadPool:
    """An engine of threads, launched as there is work for them.

    Where gevent or eventlet patched the standard library its threads, locks and queue are green ones, as the
    program's own are: all are made when the engine is, none when this module is imported.

    An attempt that runs cannot be cancelled. One that runs over its timeout is reported at once, its thread
    is written off and another one takes its place; what it still does is thrown away when it comes back.
    """

    def __init__(self, max_workers: int) -> None:
        self._max_workers = max_workers
        self._host = this_host()
        self._changed = threading.Condition()
        self._lanes: dict[Lane, None] = {}
        self._launched = 0
        self._tickets: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """A True for each attempt that was added, wanted still or not; a False ends a lane."""
        self._deadlines: Deadlines[tuple[Lane, Attempt]] = Deadlines()
        self._clock: threading.Thread | None = None
        self._closing = False

    def start(self, run_path: str | None, reports: Reports) -> None:  # noqa: ARG002 - this process records already
        """Begin; threads are launched when there is work."""
        self._ledger = Ledger(reports)

    def submit(self, work: Work) -> None:
        """Take an attempt."""
        self._ledger.add(work)
        self._tickets.put(True)
        if len(self._lanes) < self._max_workers:
            self._staff()

    def cancel(self, task_id: str, reason: str) -> bool:
        """Give an attempt up, if it is still waiting."""
        return self._ledger.cancel(task_id, reason, running=False)[0]

    def workers(self) -> Sequence[WorkerView]:
        """The threads there are."""
        views = []
        for lane in list(self._lanes):
            attempt = lane.attempt
            running = () if attempt is None or attempt.over else (attempt.work.task_id,)
            views.append(WorkerView(**lane.facts, running=running))
        return views

    def close(self, timeout_s: float) -> None:
        """End everything; what runs may go on for so many seconds, and is then written off."""
        by = time.monotonic() + timeout_s
        with self._changed:
            lanes = list(self._lanes)
            tickets, self._closing = (0 if self._closing else len(lanes)), True
            self._changed.notify_all()
        self._ledger.shut("cancelled", CLOSED)
        for _ in range(tickets):
            self._tickets.put(False)
        others = [lane for lane in lanes if lane.thread is not threading.current_thread()]
        for lane in others:
            lane.thread.join(max(0.0, by - time.monotonic()))
        for lane in others:
            while lane.thread.is_alive() and not lane.written_off:
                if (attempt := lane.attempt) is not None:
                    self._write_off(lane, attempt, "cancelled", f"{CLOSED}; {STUCK}")
                else:
                    lane.thread.join(0.01)  # about to end, unless it has taken an attempt just now
        clock = self._clock
        if clock is not None and clock is not threading.current_thread():
            clock.join()

    def _staff(self) -> None:
        """Launch the lanes that there are attempts for."""
        new: list[Lane] = []
        with self._changed:
            while not self._closing and len(self._lanes) < min(self._max_workers, self._ledger.live):
                self._launched += 1
                lane = Lane(self._launched, self._host)
                self._lanes[lane] = None
                new.append(lane)
        for lane in new:
            self._ledger.worker(WorkerLaunched(**lane.facts))
            lane.thread.run = lambda lane=lane: self._work(lane)  # type: ignore[method-assign,misc]
            try:
                lane.thread.start()
            except RuntimeError as error:
                self._remove(lane)
                self._ledger.worker(WorkerLost(**lane.facts, reason=str(error)))
                log.warning("a worker thread cannot be launched: %s", error)
                if not self._lanes:
                    self._ledger.shut("lost", f"no worker thread can be launched: {error}")

    def _work(self, lane: Lane) -> None:
        """The life of a lane."""
        ready_at = time.monotonic()
        self._ledger.worker(WorkerReady(**lane.facts, launch_s=ready_at - lane.launched_at))
        while self._tickets.get():
            attempt = self._ledger.next()
            if attempt is not None:
                self._execute(lane, attempt)
            if lane.written_off:
                return
        self._remove(lane)
        up_s = time.monotonic() - ready_at
        self._ledger.worker(WorkerRemoved(**lane.facts, reason=CLOSED, uptime_s=up_s))

    def _execute(self, lane: Lane, attempt: Attempt) -> None:
        def begun(started: Started) -> None:
            self._ledger.start(attempt, lane.facts["worker"], started)
            if attempt.work.timeout_s is not None:
                self._watch(time.monotonic() + attempt.work.timeout_s, lane, attempt)

        lane.attempt = attempt
        outcome = execute(attempt.work, worker=lane.facts["worker"], alone=False, started=begun)
        with self._changed:
            lane.attempt = None
            self._deadlines.drop(attempt.serial)
        if not lane.written_off:
            self._ledger.end(attempt, outcome)

    def _remove(self, lane: Lane) -> None:
        with self._changed:
            self._lanes.pop(lane, None)

    def _write_off(self, lane: Lane, attempt: Attempt, end: End, reason: str) -> None:
        """Report an attempt as over although its thread is not, and do without that thread."""
        with self._changed:
            if lane.attempt is not attempt or lane.written_off:
                return  # it came back just now
            lane.written_off = True
            self._lanes.pop(lane, None)
        self._ledger.worker(WorkerLost(**lane.facts, reason=reason))
        outcome = self._ledger.cut_short(attempt, end, reason)
        outcome.host, outcome.pid, outcome.thread = self._host, os.getpid(), lane.thread.ident
        self._ledger.end(attempt, outcome)
        self._staff()

    # --- timeouts: one thread for all of them, launched with the first

    def _watch(self, by: float, lane: Lane, attempt: Attempt) -> None:
        with self._changed:
            self._deadlines.add(by, attempt.serial, (lane, attempt))
            if self._clock is None and not self._closing:
                self._clock = threading.Thread(target=self._tell_time, name="flightlog-timeouts", daemon=True)
                self._clock.start()
            self._changed.notify_all()

    def _tell_time(self) -> None:
        while True:
            with self._changed:
                while not self._closing and not (due := self._deadlines.take_due(time.monotonic())):
                    first = self._deadlines.first()
                    self._changed.wait(None if first is None else max(0.0, first - time.monotonic()))
                if self._closing:
                    return
            for lane, attempt in due:
                reason = f"{attempt.work.task} ran over its timeout of {attempt.work.timeout_s:g} s; {STUCK}"
                self._write_off(lane, attempt, "timed_out", reason)
