"""The engine of one machine: worker processes, or threads of this process."""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from flightlog.core.errors import UsageError
from flightlog.engines.attempts import CLOSED, STUCK, Attempt, AttemptRegistry, End
from flightlog.engines.contract import PooledEngine, Reports, Work, WorkerView, check_counts
from flightlog.engines.event_loop import TimerThread
from flightlog.engines.execute import Started, execute
from flightlog.engines.program import refuse_main_without_a_file, refuse_while_main_is_imported
from flightlog.events import WorkerLaunched, WorkerLost, WorkerReady, WorkerRemoved
from flightlog.samplers.cgroup import cgroup_limits
from flightlog.store.liveness import this_host

if TYPE_CHECKING:
    from flightlog.engines.dispatcher import Dispatcher

START_METHODS = ("spawn", "forkserver", "fork")


log = logging.getLogger("flightlog")


class LocalEngine(PooledEngine):
    """Runs attempts on this machine; the contract of `Engine`, and thread-safe as that says.

    `max_workers` is how many workers there are at most (default: usable CPUs over `threads_per_worker`); they
    are launched as there is work. With `processes` each is a process of `threads_per_worker` threads, else
    there are that many threads of this process for each. `start_method` is that of
    `multiprocessing`.

    A task over its timeout, or cancelled while it runs, is ended with its process and the processes below it:
    SIGTERM, and SIGKILL after `kill_grace_s` seconds. A thread cannot be ended: a timeout is reported at
    once, the thread is written off and replaced, and cancelling does nothing. Nor can one of several tasks of
    a process: it is written off, and its process ends when the tasks beside it have.

    Running tasks may take `timeout_s` seconds more when the engine is closed; those that wait are cancelled
    at once.
    """

    def __init__(
        self,
        *,
        max_workers: int | None = None,
        processes: bool = True,
        threads_per_worker: int = 1,
        start_method: Literal["spawn", "forkserver", "fork"] = "spawn",
        kill_grace_s: float = 2.0,
    ) -> None:
        if threads_per_worker is None:
            raise UsageError("threads_per_worker is None; it must be a whole number, 1 or more")
        check_counts(threads_per_worker=threads_per_worker, max_workers=max_workers)
        if start_method not in START_METHODS:
            raise UsageError(f"start_method is {start_method!r}; it may be {', '.join(START_METHODS)}")
        if not kill_grace_s >= 0:
            raise UsageError(f"kill_grace_s is {kill_grace_s!r}; it must be a number of seconds, 0 or more")
        self._processes, self._start_method, self._grace_s = processes, start_method, kill_grace_s
        self._max_workers = max_workers or max(1, usable_cpus() // threads_per_worker)
        self._threads = threads_per_worker
        super().__init__()

    def _make_pool(self, run_path: str | None) -> Dispatcher | ThreadPool:
        if not self._processes:
            return ThreadPool(self._max_workers * self._threads)
        _refuse_patched_sockets()
        refuse_while_main_is_imported("an engine")
        if self._start_method != "fork":
            refuse_main_without_a_file()
        from flightlog.engines.dispatcher import Dispatcher
        from flightlog.engines.local_processes import ProcessBackend

        backend = ProcessBackend(self._threads, self._start_method, run_path)
        return Dispatcher(backend, self._max_workers, self._grace_s)


def usable_cpus() -> int:
    """CPUs this process may use: by its affinity and by the quota of its cgroup, at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    found = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = cgroup_limits().cpus
    return max(1, found if quota is None else min(found, int(quota)))


def _refuse_patched_sockets() -> None:
    """A `UsageError` where gevent or eventlet patched what worker processes are talked to with."""
    for library, module, asked in (
        ("gevent", "gevent.monkey", "is_module_patched"),
        ("eventlet", "eventlet.patcher", "is_monkey_patched"),
    ):
        is_patched = getattr(sys.modules.get(module), asked, None)
        if is_patched is not None and (is_patched("socket") or is_patched("thread")):
            raise UsageError(
                f"worker processes cannot be used in a program that {library} has patched: "
                "use threads (`processes: false`), or run the session in a program of its own"
            )


class Lane:
    """One thread that executes attempts."""

    def __init__(self, number: int, host: str) -> None:
        thread_name = f"worker-{number}"
        pid = os.getpid()
        self.facts: dict[str, Any] = {"worker": f"{host}:{pid}/{thread_name}", "host": host, "pid": pid}
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
        self._lock = threading.Lock()
        self._lanes: dict[Lane, None] = {}
        self._launched = 0
        self._tickets: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """A True for each attempt that was added, wanted still or not; a False ends a lane."""
        self._timeouts = TimerThread("flightlog-timeouts")
        self._closing = False

    def start(self, reports: Reports) -> None:
        """Begin; threads are launched when there is work."""
        self._attempts = AttemptRegistry(reports)

    def submit(self, work: Work) -> None:
        """Take an attempt."""
        self._attempts.add(work)
        self._tickets.put(True)
        if len(self._lanes) < self._max_workers:
            self._staff()

    def cancel(self, task_id: str, reason: str) -> bool:
        """Give an attempt up, if it is still waiting."""
        return self._attempts.cancel(task_id, reason, running=lambda _: False)[0]

    def workers(self) -> Sequence[WorkerView]:
        """The threads there are."""
        views = []
        for lane in list(self._lanes):
            attempt = lane.attempt
            running = () if attempt is None or attempt.over else (attempt.work.task_id,)
            views.append(WorkerView(**lane.facts, running=running))
        return views

    def close(self, timeout_s: float) -> None:
        """End everything; running attempts get `timeout_s` to finish, and are then written off."""
        by = time.monotonic() + timeout_s
        with self._lock:
            lanes = list(self._lanes)
            tickets, self._closing = (0 if self._closing else len(lanes)), True
        self._timeouts.close()
        self._attempts.shut("cancelled", CLOSED)
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

    def _staff(self) -> None:
        """Launch the lanes that there are attempts for."""
        new: list[Lane] = []
        with self._lock:
            while not self._closing and len(self._lanes) < min(self._max_workers, self._attempts.live):
                self._launched += 1
                lane = Lane(self._launched, self._host)
                self._lanes[lane] = None
                new.append(lane)
        for lane in new:
            self._attempts.worker(WorkerLaunched(**lane.facts))
            lane.thread.run = lambda lane=lane: self._work(lane)  # type: ignore[method-assign,misc]
            try:
                lane.thread.start()
            except RuntimeError as error:
                self._remove(lane)
                self._attempts.worker(WorkerLost(**lane.facts, reason=str(error)))
                log.warning("a worker thread cannot be launched: %s", error)
                if not self._lanes:
                    self._attempts.shut("lost", f"no worker thread can be launched: {error}")

    def _work(self, lane: Lane) -> None:
        """The life of a lane."""
        ready_at = time.monotonic()
        self._attempts.worker(WorkerReady(**lane.facts, launch_s=ready_at - lane.launched_at))
        while self._tickets.get():
            attempt = self._attempts.next()
            if attempt is not None:
                self._execute(lane, attempt)
            if lane.written_off:
                return
        self._remove(lane)
        up_s = time.monotonic() - ready_at
        self._attempts.worker(WorkerRemoved(**lane.facts, reason=CLOSED, uptime_s=up_s))

    def _execute(self, lane: Lane, attempt: Attempt) -> None:
        def begun(started: Started) -> None:
            self._attempts.start(attempt, lane.facts["worker"], started)
            if attempt.work.timeout_s is not None:
                why = f"{attempt.overrun}; {STUCK}"
                write_off = partial(self._write_off, lane, attempt, "timed_out", why)
                attempt.timer = self._timeouts.after(attempt.work.timeout_s, write_off)

        lane.attempt = attempt
        outcome = execute(attempt.work, worker=lane.facts["worker"], alone=False, started=begun)
        with self._lock:
            lane.attempt = None
            if attempt.timer is not None:
                attempt.timer.cancel()
        if not lane.written_off:
            self._attempts.end(attempt, outcome)

    def _remove(self, lane: Lane) -> None:
        with self._lock:
            self._lanes.pop(lane, None)

    def _write_off(self, lane: Lane, attempt: Attempt, end: End, reason: str) -> None:
        """Report an attempt as over although its thread is not, and do without that thread."""
        with self._lock:
            if lane.attempt is not attempt or lane.written_off:
                return  # it came back just now
            lane.written_off = True
            self._lanes.pop(lane, None)
        self._attempts.worker(WorkerLost(**lane.facts, reason=reason))
        outcome = self._attempts.cut_short(attempt, end, reason, (self._host, os.getpid()))
        outcome.thread = lane.thread.ident
        self._attempts.end(attempt, outcome)
        self._staff()
