"""Attempts in a pool of worker processes: one thread launches workers, dispatches attempts to them, listens
to them and handles those that died.
"""

from __future__ import annotations

import logging
import multiprocessing.process
import multiprocessing.util  # its own way of ending must be registered before ours
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.context import BaseContext
from typing import Any, Literal, cast

import msgspec

from flightlog.core.descriptors import Descriptor, make_pipe
from flightlog.core.retry import delay_s
from flightlog.engines.attempts import Attempt, AttemptRegistry, Deadlines
from flightlog.engines.contract import Reports, Work, WorkerView
from flightlog.engines.exit_reason import Death, OomKills, describe_death
from flightlog.engines.processes import (
    Leftovers,
    descendants,
    end_all,
    is_running,
    launch,
    process_of,
    shield_workers_from_ctrl_c,
)
from flightlog.engines.wire import SHORT, EngineEnd, Frame, frame
from flightlog.engines.worker import (
    ENDED,
    READY,
    STARTED,
    STOP,
    decode_outcome,
    decode_started,
    encode_order,
    lane_names,
    serve,
)
from flightlog.events import WorkerLaunched, WorkerLost, WorkerReady, WorkerRemoved
from flightlog.store.liveness import this_host

log = logging.getLogger("flightlog")

STOP_S = 5.0
"""How long a worker that was asked to end may take, before it is made to."""
LOOK_S = 1.0
"""How often to look whether all descriptors are still ours, and for dead workers where the kernel does not
tell by itself."""
LINGER_S = 0.05
"""How often to look whether processes are gone that outlived their worker, or whose descriptor was closed."""
SETTLE_S = 0.25
"""How long nothing is started or looked up after the program closed descriptors: it may be about to open
files of its own, and what is open for a moment only has a low number."""
TRIES = 3
"""Launches that may fail in a row, and hand-outs of one attempt that may come to nothing."""
CLOSED = "the engine was closed"
CLOSED_BY_PROGRAM = "the program closed the connection to this worker"


QUEUED = 2
"""Attempts that may wait unread in a worker's socket: on a busy machine the engine's thread is not always
there in time."""
WRITE_OFF_S = 5.0
"""A process that has not ended this long after SIGKILL hangs in the kernel, and is written off."""


class ProcessPool:
    """An engine of worker processes, launched as there is work for them.

    An idle worker gets an attempt at once. A busy one may have a few more queued unread in its socket, which
    are taken back when another worker is idle first, when one of them is cancelled, or when the worker dies.

    A program that closes descriptors of the engine's loses what its workers execute just then; the engine
    goes on with new workers. It waits with `poll`, which needs no descriptor of its own, and never for longer
    than `LOOK_S`.
    """

    def __init__(self, max_workers: int, threads: int, start_method: str, grace_s: float) -> None:
        self._threads, self._grace_s = threads, grace_s
        self._context = multiprocessing.get_context(start_method)
        self._oom = OomKills()
        self._host = this_host()
        self._run_path: str | None = None
        self._workers = WorkerSet(max_workers)
        self._look_at = 0.0
        self._unseen: set[WorkerProcess] = set()
        """Workers whose death no descriptor will show."""
        self._requests: deque[Attempt] = deque()
        self._deadlines: Deadlines[Attempt] = Deadlines()
        self._leftovers = Leftovers()
        self._failures = 0
        self._launch_at = 0.0
        self._close_by: float | None = None
        self._closing = False
        self._notified = False
        self._said_closed = False
        self._thread = threading.Thread(target=self._run, name="flightlog-engine", daemon=True)

    # --- from any thread

    def start(self, run_path: str | None, reports: Reports) -> None:
        """Begin; workers are launched when there is work."""
        self._run_path, self._ledger = run_path, AttemptRegistry(reports)
        self._poll = select.poll()
        self._watched: dict[int, tuple[object, Callable[[int], None]]] = {}
        self._wake_number = -1
        self._make_wake_pipe()
        self._thread.start()

    def submit(self, work: Work) -> None:
        """Take an attempt."""
        self._ledger.add(work)
        self._wake()

    def cancel(self, task_id: str, reason: str) -> bool:
        """Give an attempt up; one that runs is ended with its process, if it is the only one there."""
        cancelled, attempt = self._ledger.cancel(task_id, reason, running=self._threads == 1)
        if attempt is not None:
            self._requests.append(attempt)
            self._wake()
        return cancelled

    def workers(self) -> Sequence[WorkerView]:
        """The workers there are: processes, or threads of processes."""
        return [view for worker in self._workers for view in worker.views()]

    def close(self, timeout_s: float) -> None:
        """End everything; running attempts get `timeout_s` to finish, the shortest of all calls."""
        by = time.monotonic() + timeout_s
        self._close_by = by if self._close_by is None else min(by, self._close_by)
        self._ledger.shut("cancelled", CLOSED)
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _wake(self) -> None:
        if not self._notified:
            self._notified = True
            try:
                self._wake_writer.write(b"x")
            except OSError:
                return  # awake already, or over; or the program closed it, which is noticed by itself

    # --- the thread

    def _run(self) -> None:
        try:
            shield_workers_from_ctrl_c(self._context.get_start_method())
            while not self._is_over():
                for number, events in self._poll.poll(self._patience_s() * 1000):
                    if number in self._watched:
                        self._watched[number][1](events)
                self._end_cancelled()
                self._look_at_the_clock()
                self._hand_out()
        except BaseException as error:  # nobody may wait for ever for an end that is never told
            log.exception("the engine failed; its tasks are lost")
            self._abandon(f"the engine failed: {type(error).__name__}: {error}")
        finally:
            self._wake_reader.close()
            self._wake_writer.close()

    def _make_wake_pipe(self) -> None:
        self._unwatch(self._wake_number, self)
        self._wake_reader, self._wake_writer = make_pipe()
        for end in (self._wake_reader, self._wake_writer):
            os.set_blocking(end.fd, False)
        self._wake_number = self._wake_reader.number
        self._watch(self._wake_number, self, self._on_wake)
        self._notified = False

    def _remake_wake_pipe(self) -> None:
        try:
            self._make_wake_pipe()
        except OSError:
            self._notified = False  # the next look tries again, a second later at most

    def _watch(self, number: int, owner: object, call: Callable[[int], None], *, write: bool = False) -> None:
        """Have `call` called with what happens at a descriptor of the owner's."""
        # Where it is watched for another owner, that one has lost it, and finds out.
        self._poll.register(number, select.POLLIN | (select.POLLOUT if write else 0))
        self._watched[number] = owner, call

    def _unwatch(self, number: int, owner: object) -> None:
        """Watch a descriptor no more, if it is still watched for this owner."""
        if number in self._watched and self._watched[number][0] is owner:
            del self._watched[number]
            self._poll.unregister(number)

    def _is_over(self) -> bool:
        return self._closing and not self._workers and not self._leftovers

    def _patience_s(self) -> float:
        """How long nothing is due, unless something happens."""
        now = time.monotonic()
        due = [self._look_at]
        if self._leftovers or any(worker.end.lost for worker in self._unseen):
            due.append(now + LINGER_S)
        due += [worker.force_at for worker in self._workers.leaving() if worker.force_at is not None]
        if (first := self._deadlines.first()) is not None:
            due.append(first)
        if self._close_by is not None and any(w.held and w.why_ended is None for w in self._workers):
            due.append(self._close_by)
        if self._wants_worker():
            due.append(self._launch_at)
        return max(0.0, min(due) - now)

    def _on_wake(self, _events: int) -> None:
        try:
            is_ours = os.read(self._wake_reader.fd, 4096) != b""
        except BlockingIOError:
            is_ours = True
        except OSError:
            is_ours = False
        if not is_ours:  # the program closed one of the ends
            self._remake_wake_pipe()
        self._notified = False  # before anything is looked at

    def _on_message(self, worker: WorkerProcess, events: int) -> None:
        if worker not in self._workers:
            return
        if events & select.POLLOUT and worker.end.flush():
            self._watch(worker.end.number, worker, partial(self._on_message, worker))
        if events & ~select.POLLOUT:
            self._listen(worker)
            self._review(worker)
            if worker.end.ended:
                self._unwatch(worker.end.number, worker)

    def _listen(self, worker: WorkerProcess) -> None:
        """Take what a worker has said so far; one that cannot be understood is ended."""
        try:
            for message in worker.end.receive():
                self._take(worker, message)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            log.warning("worker %s cannot be understood: %s", worker.lanes[0], error)
            self._force(worker, f"it cannot be understood: {error}")

    def _take(self, worker: WorkerProcess, message: Frame) -> None:
        if message.kind == ENDED:
            attempt = worker.held.pop(message.serial, None)
            if attempt is not None:
                self._let_go(attempt)
                self._ledger.end(attempt, decode_outcome(message))
        elif message.kind == STARTED:
            attempt = worker.held.get(message.serial)
            if attempt is not None:
                begun, lane = decode_started(message)
                self._ledger.start(attempt, lane, begun)
                if attempt.work.timeout_s is not None:
                    self._deadlines.add(time.monotonic() + attempt.work.timeout_s, attempt.serial, attempt)
        elif message.kind == READY:
            worker.ready_at, self._failures = time.monotonic(), 0
            launch_s = worker.ready_at - worker.launched_at
            for facts in worker.facts:
                self._ledger.worker(WorkerReady(launch_s=launch_s, **facts))

    def _let_go(self, attempt: Attempt) -> None:
        attempt.holder = None
        self._deadlines.drop(attempt.serial)

    def _review(self, worker: WorkerProcess) -> None:
        """Keep the books on what a worker could take; end it if it has nothing left to do, or cannot be
        reached.
        """
        if worker.end.lost:
            self._give_up(worker)
        elif worker.why_ended is None:
            if self._closing and not worker.held and worker.ready_at is not None:
                worker.stop(CLOSED, STOP_S)
            elif self._closing and not worker.held:
                self._force(worker, CLOSED)
            elif worker.retiring and all(attempt.over for attempt in worker.held.values()):
                self._force(worker, "a task ran over its time")
        self._workers.review(worker)

    def _give_up(self, worker: WorkerProcess) -> None:
        """The program closed the engine's end of the connection: end the worker, which nothing can be heard
        of any more.
        """
        self._unwatch(worker.end.number, worker)
        if not worker.death_will_show():
            self._watch_by_looking(worker)
        if worker.why_ended is None:
            if not self._said_closed:
                self._said_closed = True
                log.warning(
                    "the program closed connections to workers: what those executed is lost, others follow"
                )
            worker.stop(CLOSED_BY_PROGRAM, SETTLE_S)  # it ends when it notices
            self._launch_at = max(self._launch_at, time.monotonic() + SETTLE_S)
            self._workers.review(worker)

    def _on_death_shown(self, worker: WorkerProcess, _events: int) -> None:
        """The descriptor of a process is readable: the process is over, or the number is the program's
        now.
        """
        if worker.death_will_show():
            self._on_death(worker)
        else:
            self._watch_by_looking(worker)

    def _on_death(self, worker: WorkerProcess) -> None:
        """A process is over: take what it had said, say what became of it, and go on."""
        if worker not in self._workers:
            return
        self._listen(worker)
        if not worker.end.still_ours() and worker.why_ended is None:
            worker.why_ended = CLOSED_BY_PROGRAM
        self._forget(worker)
        exit_code, kin = worker.bury()
        self._leftovers.add(worker.force_at or time.monotonic(), kin)
        death = describe_death(exit_code, self._oom) if worker.why_ended is None else Death(worker.why_ended)
        self._tell_of_death(worker, death)

    def _tell_of_death(self, worker: WorkerProcess, death: Death) -> None:
        expected = worker.why_ended not in (None, CLOSED_BY_PROGRAM) and worker.force != "hangs"
        up_s = None if worker.ready_at is None else time.monotonic() - worker.ready_at
        for facts in worker.facts:
            self._ledger.worker(
                WorkerRemoved(reason=death.reason, uptime_s=up_s, **facts)
                if expected
                else WorkerLost(reason=death.reason, exit_code=death.exit_code, signal=death.signal, **facts)
            )
        unheard = worker.end.begun([*worker.held]) if worker.end.lost else set()
        for attempt in reversed(list(worker.held.values())):  # those put back keep their order
            self._let_go(attempt)
            has_begun = attempt.begun is not None or attempt.serial in unheard
            if not has_begun and attempt.mishaps < TRIES and attempt.verdict is None:
                attempt.mishaps += not worker.end.lost
                self._ledger.put_back(attempt)  # its function was never called
                continue
            self._ledger.lose(attempt, death, worker.host, worker.pid)
        if not expected and worker.ready_at is None and not worker.end.lost:
            self._launch_failed(f"worker processes die before they are ready: {death.reason}")

    def _forget(self, worker: WorkerProcess) -> None:
        self._workers.remove(worker)
        self._unseen.discard(worker)
        self._unwatch(worker.death_number, worker)
        self._unwatch(worker.end.number, worker)

    # --- handing out

    def _hand_out(self) -> None:
        crew, ledger = self._workers, self._ledger
        while (idle := crew.idle()) is not None and (attempt := ledger.next()) is not None:
            self._hand(idle, attempt)
        if idle is not None:
            for neighbour in crew.with_next():
                self._take_back(neighbour)
                self._review(neighbour)
                if (waiting := ledger.next()) is not None:
                    self._hand(idle, waiting)
                if (idle := crew.idle()) is None:
                    break
        if self._wants_worker() and time.monotonic() >= self._launch_at:
            self._launch()
        while (roomy := crew.roomy()) is not None and (
            attempt := ledger.next(longest=SHORT // 2)
        ) is not None:
            self._hand(roomy, attempt)

    def _take_back(self, worker: WorkerProcess) -> None:
        """Let what a worker has not read wait again, in its order."""
        for attempt in reversed(worker.recall()):
            self._ledger.put_back(attempt)

    def _hand(self, worker: WorkerProcess, attempt: Attempt) -> None:
        try:
            message = encode_order(attempt.serial, attempt.work)
        # One attempt that cannot travel must not hold up the others.
        except Exception as error:  # noqa: BLE001
            self._ledger.fail(attempt, error, "it cannot be sent to a worker")
            return
        try:
            done = worker.hand(attempt, message)
        except OSError as error:
            log.warning("worker %s cannot be sent a task: %s", worker.lanes[0], error)
            self._force(worker, f"it cannot be sent a task: {error}")
            done = True
        if not done:
            self._watch(worker.end.number, worker, partial(self._on_message, worker), write=True)
        self._review(worker)

    def _wants_worker(self) -> bool:
        return not self._closing and self._workers.wants(self._ledger.waiting)

    def _launch(self) -> None:
        try:
            others = [end for worker in self._workers for end in worker.end.descriptors()]
            worker = WorkerProcess(self._context, self._threads, self._run_path, self._host, others)
        except Exception as error:  # noqa: BLE001 - no process to be had, or the main module does not pickle
            self._launch_failed(f"no worker process can be launched: {type(error).__name__}: {error}")
            return
        self._workers.add(worker)
        self._watch(worker.end.number, worker, partial(self._on_message, worker))
        if worker.death_number >= 0:
            self._watch(worker.death_number, worker, partial(self._on_death_shown, worker))
        if not worker.death_is_sure_to_show:
            self._unseen.add(worker)
        for facts in worker.facts:
            self._ledger.worker(WorkerLaunched(**facts))

    def _launch_failed(self, reason: str) -> None:
        self._failures += 1
        self._launch_at = time.monotonic() + delay_s(self._failures, 0.1, 12.8)
        log.warning("%s", reason)
        if self._failures >= TRIES and not self._workers.has_ready():
            self._ledger.shut("lost", reason)

    # --- ending

    def _end_cancelled(self) -> None:
        while self._requests:
            attempt = self._requests.popleft()
            if isinstance(attempt.holder, WorkerProcess) and not attempt.over:
                self._end_attempt(attempt.holder, attempt, "a task was cancelled")

    def _end_attempt(self, worker: WorkerProcess, attempt: Attempt, why: str) -> None:
        """End one attempt that a worker holds, and as little else as possible."""
        self._take_back(worker)  # where it ends, if it is the one
        if attempt.serial in worker.held and worker.threads == 1 and len(worker.held) == 1:
            self._force(worker, why)
        # Otherwise it never was read, or the worker has read the next one and this one's outcome is on its
        # way.
        self._review(worker)

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        if self._close_by is not None:
            self._close_workers(now)
        for attempt in self._deadlines.take_due(now):
            if isinstance(attempt.holder, WorkerProcess):
                self._time_out(attempt.holder, attempt)
        for worker in self._workers.leaving():
            if worker.force_at is not None and worker.force_at <= now:
                worker.use_force(worker.why_ended or "", self._grace_s)
                if worker.force == "hangs":
                    self._forget(worker)
                    self._tell_of_death(worker, Death("its process does not end, not even by SIGKILL"))
        if self._look_at <= now:
            self._look_at = now + LOOK_S
            self._check_descriptors()
        for worker in [*self._unseen]:
            if worker.has_ended():
                self._on_death(worker)
        if self._leftovers:
            self._leftovers.review(now)

    def _check_descriptors(self) -> None:
        """Find out which of them the program has closed, or taken for its own."""
        if not (self._wake_reader.still_ours() and self._wake_writer.still_ours()):
            self._remake_wake_pipe()
        for worker in self._workers:
            if not worker.end.still_ours():
                self._review(worker)
            if worker not in self._unseen and not worker.death_will_show():
                self._watch_by_looking(worker)

    def _watch_by_looking(self, worker: WorkerProcess) -> None:
        self._unwatch(worker.death_number, worker)
        self._unseen.add(worker)

    def _time_out(self, worker: WorkerProcess, attempt: Attempt) -> None:
        reason = f"{attempt.work.task} ran over its timeout of {attempt.work.timeout_s:g} s"
        if worker.threads == 1:
            if self._ledger.judge(attempt, "timed_out", reason):
                self._end_attempt(worker, attempt, "a task ran over its time")
            return
        # The tasks beside it may go on to their end; then the process goes, and the stuck thread with it.
        reason = f"{reason}; its thread cannot be ended by itself and is written off"
        outcome = self._ledger.cut_short(attempt, "timed_out", reason)
        outcome.host, outcome.pid = worker.host, worker.pid
        if self._ledger.end(attempt, outcome):
            worker.retiring = True
            self._review(worker)

    def _close_workers(self, now: float) -> None:
        if not self._closing:
            self._closing = True
            for worker in self._workers:
                self._take_back(worker)
                self._review(worker)
        assert self._close_by is not None
        if now >= self._close_by:
            for worker in self._workers:
                if worker.held and worker.why_ended is None:
                    for attempt in worker.held.values():
                        self._ledger.judge(attempt, "cancelled", CLOSED)
                    self._force(worker, CLOSED)

    def _force(self, worker: WorkerProcess, why: str) -> None:
        if worker.force == "no":
            worker.use_force(why, self._grace_s)
        self._workers.review(worker)

    def _abandon(self, reason: str) -> None:
        self._closing = True
        self._ledger.shut("lost", reason)
        for worker in self._workers:
            for attempt in list(worker.held.values()):
                self._ledger.end(attempt, self._ledger.cut_short(attempt, "lost", reason))
            for _ in ("SIGTERM", "SIGKILL"):
                worker.use_force(reason, 0.0)
            self._workers.remove(worker)


class WorkerSet:
    """Worker processes in the order they were launched. One thread changes it; any thread may iterate.

    Whatever changes a worker calls `review` with it, so that nobody has to look at all of them for each
    attempt.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._all: dict[WorkerProcess, None] = {}
        self._idle: dict[WorkerProcess, None] = {}
        self._roomy: dict[WorkerProcess, None] = {}
        self._queued: dict[WorkerProcess, None] = {}
        self._leaving: dict[WorkerProcess, None] = {}
        self._coming: dict[WorkerProcess, None] = {}

    def __iter__(self) -> Iterator[WorkerProcess]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, worker: WorkerProcess) -> bool:
        return worker in self._all

    def add(self, worker: WorkerProcess) -> None:
        """A worker that was launched."""
        self._all[worker] = None
        self.review(worker)

    def remove(self, worker: WorkerProcess) -> None:
        """A worker that is gone."""
        for books in (self._all, self._idle, self._roomy, self._queued, self._leaving, self._coming):
            books.pop(worker, None)

    def review(self, worker: WorkerProcess) -> None:
        """Bring the books up to date on one worker."""
        leaving = worker.retiring or worker.why_ended is not None
        _keep(self._idle, worker, worker.idle_slots > 0)
        _keep(self._roomy, worker, worker.has_room_for_next)
        _keep(self._queued, worker, worker.has_next)
        _keep(self._leaving, worker, leaving)
        _keep(self._coming, worker, not leaving and worker.ready_at is None)

    def idle(self) -> WorkerProcess | None:
        """A worker that has nothing to do."""
        return next(iter(self._idle), None)

    def roomy(self) -> WorkerProcess | None:
        """A worker that is busy, and could have the next attempt queued in its socket.

        None while others are coming: what waited there behind a long attempt would be overtaken by later
        ones.
        """
        return None if self._coming else next(iter(self._roomy), None)

    def with_next(self) -> list[WorkerProcess]:
        """Workers that may have an unread attempt queued."""
        return list(self._queued)

    def leaving(self) -> list[WorkerProcess]:
        """Workers that get no more attempts and are still there."""
        return list(self._leaving)

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
        return waiting > sum(worker.threads for worker in self._coming)


def _keep(books: dict[WorkerProcess, None], worker: WorkerProcess, belongs: bool) -> None:
    if belongs:
        books[worker] = None
    else:
        books.pop(worker, None)


class WorkerProcess:
    """One process. `Exception` of any kind where it cannot be launched. One thread at a time."""

    def __init__(
        self,
        context: BaseContext,
        threads: int,
        run_path: str | None,
        host: str,
        inherited: Sequence[Descriptor],
    ) -> None:
        self.threads, self.host = threads, host
        self.end = EngineEnd(threads)
        self.held: dict[int, Attempt] = {}
        """Attempts it was given and has not ended, oldest first."""
        self.launched_at = time.monotonic()
        self.ready_at: float | None = None
        self.retiring = False
        """It gets no more attempts; it ends when those that have not been given up are over."""
        self.why_ended: str | None = None
        """Why its engine ends it."""
        self.force: Literal["no", "SIGTERM", "SIGKILL", "hangs"] = "no"
        self.force_at: float | None = None
        """When more force is due."""
        self._kin: list[Any] = []
        method = context.get_start_method()
        process = cast("Any", context).Process(
            target=serve,
            args=(
                self.end.worker_end(),
                threads,
                run_path,
                (*inherited, self.end.descriptors()[0]) if method == "fork" else (),
            ),
            name="flightlog-worker",
        )
        try:
            sentinel, *self._pipes = launch(process, method)
        except BaseException:
            self.end.close()
            raise
        self.end.worker_has_it()
        # The engine ends its workers itself. Whatever else goes through all children (a program's own code,
        # or the exit of a child that it forked, which would complain of them) has no business with these.
        getattr(multiprocessing.process, "_children", set()).discard(process)
        self.process = process
        self.pid: int = process.pid
        self.lanes = lane_names(host, self.pid, threads)
        self.facts: list[dict[str, Any]] = [
            {"worker": lane, "host": host, "pid": self.pid} for lane in self.lanes
        ]
        pidfd = _pidfd(self.pid) if method != "forkserver" else None
        self._death = pidfd or sentinel
        self.death_number = -1 if self._death is None else self._death.number
        """The descriptor that is readable when the process has ended; -1 where there is none."""
        self.death_is_sure_to_show = pidfd is not None or method == "forkserver"
        """Whether that is so also while a process that it forked lives on."""
        self._sentinel = sentinel
        self._is_served = method == "forkserver"
        """Whether it is a child of the fork server: its exit code comes by the sentinel, and not from the
        kernel."""
        self._seen = process_of(self.pid) if self._is_served else None

    @property
    def idle_slots(self) -> int:
        """How many attempts it could execute at once beside those it has."""
        if self.ready_at is None or self.retiring or self.why_ended is not None:
            return 0
        return self.threads - len(self.held)

    @property
    def has_room_for_next(self) -> bool:
        """Whether it executes its one attempt and could have another one queued."""
        if (
            self.threads != 1
            or not 1 <= len(self.held) <= QUEUED
            or self.retiring
            or self.why_ended is not None
        ):
            return False
        return self.end.packets and next(iter(self.held.values())).begun is not None

    @property
    def has_next(self) -> bool:
        """Whether an attempt may be queued, unread."""
        return self.threads == 1 and len(self.held) > 1

    def views(self) -> Iterator[WorkerView]:
        """The workers it is: itself, or each of its threads."""
        for facts in self.facts:
            held = [a for a in list(self.held.values()) if a.worker == facts["worker"] and not a.over]
            yield WorkerView(**facts, running=tuple(attempt.work.task_id for attempt in held))

    def hand(self, attempt: Attempt, message: bytes) -> bool:
        """Give it an attempt, as `encode_order` has it; whether nothing is left to be flushed."""
        attempt.holder, attempt.recallable = self, self.end.can_take_back(message)
        self.held[attempt.serial] = attempt
        return self.end.send(message)

    def recall(self) -> list[Attempt]:
        """Take back what it has not read, oldest first; from now on it does not hold that."""
        unread = [attempt for attempt in self.held.values() if attempt.begun is None]
        if not all(attempt.recallable for attempt in unread):
            return []  # the parts of a long message must not be torn apart
        taken = []
        while unread and (serial := self.end.take_back()) is not None:
            attempt = self.held.pop(serial, None)
            if attempt is not None:
                attempt.holder = None
                taken.append(attempt)
        return taken

    def stop(self, why: str, patience_s: float) -> None:
        """Ask it to end in good order; if it does not, force is due after `patience_s`."""
        if self.why_ended is None:
            self.why_ended = why
            self.force_at = time.monotonic() + patience_s
            self.end.send(frame(STOP))

    def use_force(self, why: str, grace_s: float) -> None:
        """End it and the processes below it: SIGTERM now, the next time SIGKILL."""
        self.why_ended = self.why_ended or why
        if self.force == "no":
            self.force, self.force_at = "SIGTERM", time.monotonic() + grace_s
            self._signal("terminate")
        elif self.force == "SIGTERM":
            self.force, self.force_at = "SIGKILL", time.monotonic() + WRITE_OFF_S
            self._signal("kill")
        else:
            self.force, self.force_at = "hangs", None

    def death_will_show(self) -> bool:
        """Whether `death_number` still means what it did."""
        return self._death is not None and self._death.still_ours()

    def has_ended(self) -> bool:
        """Whether the process is over; needs no descriptor."""
        if not self._tells_exit_code():
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return True
            except PermissionError:  # another process has its number
                return True
            return self.force != "no" and (self._seen is None or not is_running(self._seen))
        return self.process.exitcode is not None

    def bury(self) -> tuple[int | None, list[Any]]:
        """The process is over: its exit code, None if it is not to be had, and the processes below it when
        force was used.
        """
        exit_code = self.process.exitcode if self._tells_exit_code() else None
        self.end.close()
        for one in (self._death, self._sentinel, *self._pipes):
            if one is not None:
                one.close()
        if exit_code is not None:
            self.process.close()
        return exit_code, self._kin

    def _tells_exit_code(self) -> bool:
        """Whether `multiprocessing` can be asked: the fork server's answers come by a descriptor that it
        knows by number.
        """
        return not self._is_served or (self._sentinel is not None and self._sentinel.still_ours())

    def _signal(self, deed: Literal["terminate", "kill"]) -> None:
        self._kin += [kin for kin in descendants(self.pid) if kin not in self._kin]
        end_all(self._kin, deed)
        if not self._tells_exit_code():
            end_all([] if self._seen is None else [self._seen], deed)
            return
        with suppress(OSError, ValueError):
            getattr(self.process, deed)()


def _pidfd(pid: int) -> Descriptor | None:
    try:
        return Descriptor(os.pidfd_open(pid))
    except (AttributeError, OSError):
        return None
