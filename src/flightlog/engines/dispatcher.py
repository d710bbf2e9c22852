"""The one dispatcher of engines: a thread that has workers launched, gives them attempts, hears what they say
and sees to it that each attempt ends.

Queue, prefetch, timeouts, cancellation, retries of what never began, launches with backoff and closing stand
here. A backend launches workers; a worker is sent attempts, asked to stop, and ended. It may be a process
of its own (local, Dragon) or a cluster that schedules attempts itself (Ray).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Literal

import msgspec

from flightlog.core.retry import delay_s
from flightlog.engines.attempts import CLOSED, NOWHERE, STUCK, Attempt, AttemptRegistry, Home
from flightlog.engines.contract import Outcome, Reports, Work, WorkerView, refused
from flightlog.engines.event_loop import EventLoop, Timer
from flightlog.engines.execute import Started
from flightlog.engines.limits import EngineLimits
from flightlog.engines.processes import ExitReason, describe_exit
from flightlog.engines.wire import Frame
from flightlog.engines.worker import ENDED, READY, STARTED, decode_outcome, decode_started
from flightlog.events import WorkerLaunched, WorkerReady
from flightlog.record.clock import monotonic_ns
from flightlog.samplers.cgroup import OomKills

log = logging.getLogger("flightlog")

CLOSED_BY_PROGRAM = "the program closed the connection to this worker"


class DispatchedWorker:
    """Something that executes attempts, as the dispatcher knows it. On the dispatcher's thread alone."""

    slots = 1
    """How many attempts it can be given at once; those of a process are executed at once."""
    prefetches = False
    """Whether the next attempts may be queued with it, unread, and had back."""
    schedules = False
    """Whether it queues attempts itself, and ends each of them alone."""
    stop_s = 5.0
    """How long it may take to end when it was asked to, before it is made to."""
    start_s = 0.0
    """How long it may go on starting when the engine closes, before it is made to end."""
    refuses = "it cannot be sent to a worker"
    """What is said of an attempt that `send` raises for."""
    closed = CLOSED
    """What is said of an attempt that still runs when the time of closing is over."""

    def __init__(self) -> None:
        self.held: dict[int, Attempt] = {}
        """Attempts it was given and has not ended, oldest first."""
        self.facts: list[dict[str, Any]] = []
        """Name, host and process of each worker it is: itself, or each of its threads."""
        self.named = True
        """Whether those are known for good."""
        self.launched_at = time.monotonic()
        self.ready_at: float | None = None
        self.quick = self.relieved = False
        """Whether its last attempt was quick; whether it is seen to that what it has not read does not wait
        for long."""
        self.retiring = False
        """It gets no more attempts; it ends when those that have not been given up are over."""
        self.why_ended: str | None = None
        """Why its engine ends it."""
        self.force: Literal["no", "SIGTERM", "SIGKILL", "hangs"] = "no"
        self.force_timer: Timer | None = None
        """When more force is due."""

    def send(self, attempt: Attempt) -> None:
        """Give it an attempt, which it holds already. Raises where the attempt cannot travel."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ask it to end in good order."""
        raise NotImplementedError

    def signal(self, deed: Literal["terminate", "kill"]) -> None:
        """Send SIGTERM or SIGKILL to it, and to the processes below it, where they are the engine's."""

    def removed(self) -> None:
        """The dispatcher has done with it: let everything go that is kept for it."""

    def end_attempt(self, attempt: Attempt, why: str) -> None:
        """End one attempt alone, where it `schedules` them."""
        raise NotImplementedError

    def asks_whether_over(self, attempt: Attempt) -> bool:  # noqa: ARG002 - for those that ask
        """Whether it sees by itself to an attempt that seems to run over its time: it finds out whether that
        still runs, and only then judges and ends it.
        """
        return False

    def hear(self, message: Frame) -> None:
        """It says something about itself: that it is ready, or whatever is between it and its backend."""

    def recall(self) -> list[Attempt]:
        """Take back what it has not read, oldest first; from now on it does not hold that."""
        return []

    @property
    def lost(self) -> bool:
        """Whether nothing can be heard of it any more, by no fault of its own."""
        return False

    def give_up(self) -> None:
        """It is `lost`."""

    def begun_unheard(self) -> set[int]:
        """Attempts of a `lost` one that have begun, although it could not say so."""
        return set()

    @property
    def home(self) -> Home:
        """Its host and process."""
        return self.facts[0]["host"], self.facts[0]["pid"]

    @property
    def is_idle(self) -> bool:
        """Whether it may be asked to stop."""
        return not self.held

    @property
    def is_leaving(self) -> bool:
        """Whether it gets no more attempts."""
        return self.retiring or self.why_ended is not None

    @property
    def idle_slots(self) -> int:
        """How many attempts it could execute at once beside those it has."""
        return 0 if self.ready_at is None or self.is_leaving else self.slots - len(self.held)

    @property
    def has_room_for_next(self) -> bool:
        """Whether it executes its one attempt and could have another one queued."""
        most = EngineLimits.max_unread_quick_attempts if self.quick else EngineLimits.max_unread_attempts
        if not self.prefetches or not 1 <= len(self.held) <= most or self.is_leaving:
            return False
        return next(iter(self.held.values())).begun is not None

    @property
    def has_next(self) -> bool:
        """Whether an attempt may be queued, unread."""
        return self.prefetches and len(self.held) > 1

    def views(self) -> Iterator[WorkerView]:
        """The workers it is, as they are now; for any thread."""
        for facts in self.facts:
            held = [a for a in list(self.held.values()) if a.worker == facts["worker"] and not a.over]
            yield WorkerView(**facts, running=tuple(attempt.work.task_id for attempt in held))


class Backend:
    """Where workers come from. On the dispatcher's thread alone."""

    def can_end(self, attempt: Attempt) -> bool:  # noqa: ARG002 - for those that cannot end every one
        """Whether an attempt that a worker has can be ended; from any thread."""
        return True

    def open(self, dispatcher: Dispatcher) -> None:
        """Begin. What it raises is in `Dispatcher.opened`, and the reason that all attempts are lost."""
        self._dispatcher, self._loop = dispatcher, dispatcher.loop

    def has_room(self) -> bool:
        """Whether another worker can be launched now: one that is leaving may hold its place until it is
        gone.
        """
        return True

    def launch(self) -> DispatchedWorker:
        """Another worker. It is ready when it says so, or has set `ready_at`. Raises where there is none."""
        raise NotImplementedError

    def has_leftovers(self) -> bool:
        """Whether there is still something to do when all workers are gone."""
        return False

    def close(self) -> None:
        """All is over; what was said last is heard."""


class ClusterBackend(DispatchedWorker, Backend):
    """A cluster that schedules attempts itself: backend of the dispatcher, and its one worker. Its processes
    are left to it.
    """

    schedules = True

    def launch(self) -> DispatchedWorker:
        """The cluster, which is there."""
        self.ready_at = time.monotonic()
        return self

    def stop(self) -> None:
        """There is nothing more to do."""
        self._dispatcher.remove(self)

    def release(self, attempt: Attempt) -> None:
        """The cluster has an attempt no more."""
        self._dispatcher.release(attempt)

    def end(self, attempt: Attempt, outcome: Outcome) -> None:
        """An attempt is over."""
        self.release(attempt)
        self._dispatcher.attempts.end(attempt, outcome)
        self._dispatcher.review(self)

    def lose(
        self, attempt: Attempt, death: ExitReason, home: Home = NOWHERE, at_ns: int | None = None
    ) -> None:
        """An attempt is lost, as `AttemptRegistry.lose` says."""
        self.release(attempt)
        self._dispatcher.attempts.lose(attempt, death, home, at_ns)
        self._dispatcher.review(self)


class Dispatcher:
    """Attempts in, reports out. `size` is how many workers there are at most, launched as there is work.

    An idle worker gets an attempt at once. A busy one that prefetches may have a few more queued, which are
    taken back when another worker is idle first, when one of them is cancelled, or when the worker dies.
    """

    def __init__(self, backend: Backend, size: int, grace_s: float) -> None:
        self._backend, self._grace_s = backend, grace_s
        self._workers = WorkerSet(size)
        self._oom = OomKills()
        self.loop = EventLoop()
        self._failures = 0
        self.launch_at = 0.0
        """No worker is launched before."""
        self._closing = False
        self.opened: Future[None] = Future()
        """Done when the backend has begun, or could not."""
        self._thread = threading.Thread(target=self._run, name="flightlog-engine", daemon=True)

    # --- from any thread

    def start(self, reports: Reports) -> None:
        """Begin; workers are launched when there is work."""
        self.attempts = AttemptRegistry(reports)
        self.loop.open()
        self._thread.start()

    def submit(self, work: Work) -> None:
        """Take an attempt."""
        self.attempts.add(work)
        self.loop.wake()

    def cancel(self, task_id: str, reason: str) -> bool:
        """Give an attempt up; one that runs is ended with its process, if it is the only one there."""
        cancelled, attempt = self.attempts.cancel(task_id, reason, running=self._backend.can_end)
        if attempt is not None:
            self.loop.post(self._end_attempt, attempt, "a task was cancelled")
        return cancelled

    def workers(self) -> Sequence[WorkerView]:
        """The workers there are."""
        return [view for worker in self._workers for view in worker.views()]

    def close(self, timeout_s: float) -> None:
        """End everything; running attempts get `timeout_s` to finish, the shortest of all calls."""
        self.attempts.shut("cancelled", CLOSED)
        self.loop.post(self._close, time.monotonic() + timeout_s)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether it has been started, and is not over."""
        return self._thread.is_alive()

    # --- the thread

    def _run(self) -> None:
        try:
            self._backend.open(self)
        except BaseException as error:  # noqa: BLE001 - whoever waits for `opened` gets it
            self._closing = True
            self.attempts.shut("lost", f"the engine could not begin: {error}")
            self.opened.set_exception(error)
        else:
            self.opened.set_result(None)
        try:
            while not (self._closing and not self._workers and not self._backend.has_leftovers()):
                self.loop.turn()
                self._hand_out()
        except BaseException as error:  # nobody may wait for ever for an end that is never told
            log.exception("the engine failed; its tasks are lost")
            self._abandon(f"the engine failed: {type(error).__name__}: {error}")
        finally:
            self._backend.close()
            self.loop.close()

    # --- what workers say

    def hear(self, worker: DispatchedWorker, messages: Iterable[Frame]) -> None:
        """Take what a worker has said; one that cannot be understood is ended. `review` it then."""
        if worker not in self._workers:
            return
        try:
            for message in messages:
                self._take(worker, message)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            log.warning("worker %s cannot be understood: %s", worker.facts[0]["worker"], error)
            self.force(worker, f"it cannot be understood: {error}")

    def _take(self, worker: DispatchedWorker, message: Frame) -> None:
        attempt = worker.held.get(message.serial)
        if message.kind == STARTED:
            if attempt is not None:
                begun, name = decode_started(message)
                self.started(attempt, name, begun)
        elif message.kind == ENDED:
            if attempt is not None:
                self.ended(attempt, decode_outcome(message))
        else:
            worker.hear(message)
            if message.kind == READY:
                self._on_ready(worker)

    def _on_ready(self, worker: DispatchedWorker) -> None:
        worker.ready_at, self._failures = time.monotonic(), 0
        if not worker.named:
            worker.named = True
            launched = self.attempts.timestamp(worker.launched_at)
            for facts in worker.facts:
                self.attempts.worker(WorkerLaunched(timestamp=launched, **facts))
        launch_s = worker.ready_at - worker.launched_at
        for facts in worker.facts:
            self.attempts.worker(WorkerReady(launch_s=launch_s, **facts))

    def started(self, attempt: Attempt, worker: str, begun: Started) -> None:
        """A worker of this name executes an attempt."""
        self.attempts.start(attempt, worker, begun)
        if attempt.work.timeout_s is not None:
            attempt.timer = self.loop.later(attempt.work.timeout_s, partial(self._time_out, attempt))

    def ended(self, attempt: Attempt, outcome: Outcome) -> None:
        """An attempt is over."""
        if isinstance(attempt.holder, DispatchedWorker):
            attempt.holder.quick = (outcome.duration_s or 1.0) < EngineLimits.quick_attempt_s
        self.release(attempt)
        self.attempts.end(attempt, outcome)

    def release(self, attempt: Attempt) -> None:
        """No worker holds an attempt any more."""
        worker, attempt.holder = attempt.holder, None
        if isinstance(worker, DispatchedWorker):
            worker.held.pop(attempt.serial, None)
        if attempt.timer is not None:
            attempt.timer.cancel()
            attempt.timer = None

    def died(self, worker: DispatchedWorker, exit_code: int | None = None) -> None:
        """A worker is over, and everything it had said was heard: say what became of it, and go on."""
        if worker not in self._workers:
            return
        self.remove(worker)
        if worker.force == "hangs":
            death = ExitReason("its process does not end, not even by SIGKILL")
        elif worker.why_ended is not None:
            death = ExitReason(worker.why_ended)
        else:
            death = describe_exit(exit_code, self._oom)
        expected = worker.why_ended not in (None, CLOSED_BY_PROGRAM) and worker.force != "hangs"
        if worker.named or not expected:  # else nobody has heard of it
            up_s = None if worker.ready_at is None else time.monotonic() - worker.ready_at
            for facts in worker.facts:
                self.attempts.worker_ended(facts, death, expected=expected, uptime_s=up_s)
        unheard = worker.begun_unheard() if worker.lost else set()
        for attempt in reversed(list(worker.held.values())):  # those put back keep their order
            self.release(attempt)
            if attempt.may_be_retried and attempt.serial not in unheard:
                attempt.mishaps += not worker.lost
                self.attempts.put_back(attempt)  # its function was never called
                continue
            self.attempts.lose(attempt, death, worker.home)
        if not expected and worker.ready_at is None and not worker.lost:
            self._launch_failed(f"worker processes die before they are ready: {death.reason}")

    def remove(self, worker: DispatchedWorker) -> None:
        """A worker is gone."""
        self._workers.remove(worker)
        self._more_force_after(worker, None)
        worker.removed()

    def review(self, worker: DispatchedWorker) -> None:
        """Keep the books on what a worker could take; end it if it has nothing left to do, or cannot be
        reached.
        """
        if worker not in self._workers:
            return
        if worker.lost:
            worker.give_up()
        elif worker.why_ended is None:
            if self._closing and worker.is_idle:
                if worker.ready_at is not None:
                    self.stop(worker, CLOSED, worker.stop_s)
                elif not worker.start_s:
                    self.force(worker, CLOSED)
                elif worker.force_timer is None:
                    self._more_force_after(worker, worker.start_s)  # it is asked to end once it is ready
            elif worker.retiring and all(attempt.over for attempt in worker.held.values()):
                self.force(worker, "a task ran over its time")
        self._workers.review(worker)

    # --- handing out

    def _hand_out(self) -> None:
        workers, attempts = self._workers, self.attempts
        while (idle := workers.idle()) is not None and (attempt := attempts.next()) is not None:
            self._hand(idle, attempt)
        if idle is not None:
            for neighbour in workers.with_next():
                self.take_back(neighbour)
                self.review(neighbour)
                if (waiting := attempts.next()) is not None:
                    self._hand(idle, waiting)
                if (idle := workers.idle()) is None:
                    break
        wanted = not self._closing and workers.wants(attempts.waiting) and self._backend.has_room()
        if wanted and time.monotonic() >= self.launch_at:
            self.launch()
        while (roomy := workers.roomy()) is not None:
            deep = len(roomy.held) > EngineLimits.max_unread_attempts
            longest = EngineLimits.max_revocable_frame_bytes // 2
            attempt = attempts.next(longest=EngineLimits.max_quick_frame_bytes if deep else longest)
            if attempt is None:
                break
            self._hand(roomy, attempt)
            if deep and not roomy.relieved:
                self._relieve_later(roomy)

    def take_back(self, worker: DispatchedWorker) -> None:
        """Let what a worker has not read wait again, in its order."""
        for attempt in reversed(worker.recall()):
            self.attempts.put_back(attempt)

    def _relieve_later(self, worker: DispatchedWorker) -> None:
        worker.relieved = True
        self.loop.later(EngineLimits.slow_attempt_s, partial(self._relieve, worker))

    def _relieve(self, worker: DispatchedWorker) -> None:
        """Have back what waits behind an attempt that takes long, though those before it were quick."""
        worker.relieved = False
        if worker not in self._workers or len(worker.held) <= EngineLimits.max_unread_attempts + 1:
            return
        begun = next(iter(worker.held.values())).begun
        if begun is not None and monotonic_ns() - begun.monotonic_ns > EngineLimits.slow_attempt_s * 1e9:
            worker.quick = False
            self.take_back(worker)
            self.review(worker)
        else:
            self._relieve_later(worker)

    def _hand(self, worker: DispatchedWorker, attempt: Attempt) -> None:
        worker.held[attempt.serial], attempt.holder = attempt, worker
        try:
            worker.send(attempt)
        # One attempt that cannot travel must not hold up the others.
        except Exception as error:  # noqa: BLE001
            self.release(attempt)
            self.attempts.end(attempt, refused(error, worker.refuses))
        self.review(worker)

    def launch(self) -> None:
        """Have another worker."""
        try:
            worker = self._backend.launch()
        except Exception as error:  # noqa: BLE001 - whatever the backend says to it
            self._launch_failed(f"no worker process can be launched: {type(error).__name__}: {error}")
            return
        self._workers.add(worker)
        if worker.named:
            for facts in worker.facts:
                self.attempts.worker(WorkerLaunched(**facts))
        self.loop.wake()  # there may be work for it, or for another one

    def _launch_failed(self, reason: str) -> None:
        self._failures += 1
        self.launch_after(delay_s(self._failures, 0.1, 12.8))
        log.warning("%s", reason)
        if self._failures >= EngineLimits.max_failed_launches and not self._workers.has_ready():
            self.attempts.shut("lost", reason)

    def launch_after(self, delay_s: float) -> None:
        """Launch no worker for a while."""
        self.launch_at = max(self.launch_at, time.monotonic() + delay_s)
        self.loop.later(delay_s, self._hand_out)

    # --- ending

    def _end_attempt(self, attempt: Attempt, why: str) -> None:
        """End one attempt that a worker holds, and as little else as possible."""
        worker = attempt.holder
        if attempt.over or not isinstance(worker, DispatchedWorker):
            return
        self.take_back(worker)  # where it ends, if it is the one
        if worker.schedules and attempt.serial in worker.held:
            worker.end_attempt(attempt, why)
        elif attempt.serial in worker.held and worker.slots == 1 and len(worker.held) == 1:
            self.force(worker, why)
        # Otherwise it never was read, or the worker has read the next one and this one's outcome is on its
        # way.
        self.review(worker)

    def _time_out(self, attempt: Attempt, held_up: bool = False) -> None:
        worker, reason, timer = attempt.holder, attempt.overrun, attempt.timer
        if not isinstance(worker, DispatchedWorker) or attempt.over:
            return
        if timer is not None and not held_up and time.monotonic() - timer.at > EngineLimits.late_timeout_s:
            # The program stalled: the attempt may have ended in time, and that is still to be heard.
            attempt.timer = self.loop.later(
                EngineLimits.catch_up_s, partial(self._time_out, attempt, held_up=True)
            )
            return
        if worker.asks_whether_over(attempt):
            return
        if worker.schedules or worker.slots == 1:
            if not self._backend.can_end(attempt):
                reason = f"{reason}; {STUCK}"
            if self.attempts.judge(attempt, "timed_out", reason):
                self._end_attempt(attempt, "a task ran over its time")
            return
        # The tasks beside it may go on to their end; then the process goes, and the stuck thread with it.
        reason = f"{reason}; its thread cannot be ended by itself and is written off"
        if self.attempts.end(attempt, self.attempts.cut_short(attempt, "timed_out", reason, worker.home)):
            worker.retiring = True
            self.review(worker)

    def _close(self, by: float) -> None:
        if not self._closing:
            self._closing = True
            for worker in self._workers:
                self.take_back(worker)
                if worker.schedules:
                    unbegun = [
                        each
                        for each in worker.held.values()
                        if each.begun is None and self._backend.can_end(each)
                    ]
                    self._end_held(worker, unbegun, CLOSED)
                self.review(worker)
        self.loop.later(by - time.monotonic(), self._end_running)

    def _end_running(self) -> None:
        for worker in self._workers:
            if worker.why_ended is None:
                self._end_held(worker, list(worker.held.values()), worker.closed)

    def _end_held(self, worker: DispatchedWorker, attempts: Sequence[Attempt], reason: str) -> None:
        """Cancel these attempts: one by one, or with the process that holds them."""
        for attempt in attempts:
            if self.attempts.judge(attempt, "cancelled", reason) and worker.schedules:
                worker.end_attempt(attempt, CLOSED)
        if attempts and not worker.schedules:
            self.force(worker, CLOSED)

    def stop(self, worker: DispatchedWorker, why: str, patience_s: float) -> None:
        """Ask a worker to end in good order; if it does not, force is due after `patience_s`."""
        if worker.why_ended is None:
            worker.why_ended = why
            self._more_force_after(worker, patience_s)
            worker.stop()

    def force(self, worker: DispatchedWorker, why: str) -> None:
        """End a worker with what it executes: SIGTERM now, and SIGKILL if that is not enough."""
        if worker.force == "no":
            self._use_more_force(worker, why)

    def _use_more_force(self, worker: DispatchedWorker, why: str) -> None:
        worker.why_ended = worker.why_ended or why
        if worker.force == "no":
            worker.force = "SIGTERM"
            worker.signal("terminate")
            self._more_force_after(worker, self._grace_s)
        elif worker.force == "SIGTERM":
            worker.force = "SIGKILL"
            worker.signal("kill")
            self._more_force_after(worker, EngineLimits.kill_timeout_s)
        else:
            worker.force = "hangs"
            self.died(worker)
        self._workers.review(worker)

    def _more_force_after(self, worker: DispatchedWorker, patience_s: float | None) -> None:
        if worker.force_timer is not None:
            worker.force_timer.cancel()
            worker.force_timer = None
        if patience_s is not None:
            more = partial(self._use_more_force, worker, CLOSED)
            worker.force_timer = self.loop.later(patience_s, more)

    def _abandon(self, reason: str) -> None:
        self._closing = True
        self.attempts.shut("lost", reason)
        for worker in self._workers:
            for attempt in list(worker.held.values()):
                self.attempts.end(attempt, self.attempts.cut_short(attempt, "lost", reason))
            worker.signal("terminate")
            worker.signal("kill")
            self._workers.remove(worker)


class WorkerSet:
    """Workers in the order they were launched. One thread changes it; any thread may iterate.

    Whatever changes a worker calls `review` with it, so that nobody has to look at all of them for each
    attempt.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._all: dict[DispatchedWorker, None] = {}
        self._idle: dict[DispatchedWorker, None] = {}
        self._roomy: dict[DispatchedWorker, None] = {}
        self._queued: dict[DispatchedWorker, None] = {}
        self._leaving: dict[DispatchedWorker, None] = {}
        self._coming: dict[DispatchedWorker, None] = {}

    def __iter__(self) -> Iterator[DispatchedWorker]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, worker: DispatchedWorker) -> bool:
        return worker in self._all

    def add(self, worker: DispatchedWorker) -> None:
        """A worker that was launched."""
        self._all[worker] = None
        self.review(worker)

    def remove(self, worker: DispatchedWorker) -> None:
        """A worker that is gone."""
        for books in (self._all, self._idle, self._roomy, self._queued, self._leaving, self._coming):
            books.pop(worker, None)

    def review(self, worker: DispatchedWorker) -> None:
        """Bring the books up to date on one worker."""
        if worker in self._all:
            leaving = worker.is_leaving
            for books, belongs in (
                (self._idle, worker.idle_slots > 0),
                (self._roomy, worker.has_room_for_next),
                (self._queued, worker.has_next),
                (self._leaving, leaving),
                (self._coming, not leaving and worker.ready_at is None),
            ):
                if belongs:
                    books[worker] = None
                else:
                    books.pop(worker, None)

    def idle(self) -> DispatchedWorker | None:
        """A worker that has nothing to do."""
        return next(iter(self._idle), None)

    def roomy(self) -> DispatchedWorker | None:
        """A worker that is busy, and could have the next attempt queued in its socket.

        None while others are coming: what waited there behind a long attempt would be overtaken by later
        ones.
        """
        return None if self._coming else next(iter(self._roomy), None)

    def with_next(self) -> list[DispatchedWorker]:
        """Workers that may have an unread attempt queued."""
        return list(self._queued)

    def has_ready(self) -> bool:
        """Whether there is a worker that can take attempts now or later."""
        return len(self._all) > len(self._leaving) + len(self._coming)

    def wants(self, waiting: int) -> bool:
        """Whether another worker should be launched while so many attempts wait, and others are queued
        at busy ones.
        """
        if len(self._all) - len(self._leaving) >= self._size:
            return False
        waiting += sum(len(worker.held) - 1 for worker in self._queued)
        return waiting > sum(worker.slots for worker in self._coming)
