"""Worker processes of this machine: launched with `multiprocessing`, talked to by sockets, watched for their
end.

A program that closes descriptors of the engine's loses what its workers execute just then; the engine goes on
with new workers.
"""

from __future__ import annotations

import logging
import multiprocessing.process
import multiprocessing.util  # its own way of ending must be registered before ours
import os
import select
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, cast

from flightlog.core.descriptors import Descriptor
from flightlog.engines.attempts import Attempt
from flightlog.engines.dispatcher import CLOSED_BY_PROGRAM, Backend, DispatchedWorker, Dispatcher
from flightlog.engines.limits import EngineLimits
from flightlog.engines.processes import (
    Leftovers,
    descendants,
    end_all,
    is_running,
    launch,
    process_of,
    shield_workers_from_ctrl_c,
)
from flightlog.engines.wire import EngineEnd, frame
from flightlog.engines.worker import STOP, encode_order, lane_names, serve
from flightlog.store.liveness import this_host

log = logging.getLogger("flightlog")


class ProcessBackend(Backend):
    """Launches worker processes of `threads` each, and hears of their end."""

    def __init__(self, threads: int, start_method: str, run_path: str | None) -> None:
        self.threads, self.run_path, self.host = threads, run_path, this_host()
        self.context = multiprocessing.get_context(start_method)
        self._workers: dict[WorkerProcess, None] = {}
        self._unseen: set[WorkerProcess] = set()
        """Workers whose death no descriptor will show."""
        self._leftovers = Leftovers()
        self._lingers = False
        self._said_closed = False

    def open(self, dispatcher: Dispatcher) -> None:
        """Begin."""
        super().open(dispatcher)
        shield_workers_from_ctrl_c(self.context.get_start_method())
        self._check_descriptors()

    def can_end(self, _attempt: Attempt) -> bool:
        """Whether an attempt can be ended: with its process, if it is the only one there."""
        return self.threads == 1

    def launch(self) -> WorkerProcess:
        """A new process. `Exception` of any kind: none is to be had, or the main module does not pickle."""
        others = [end for worker in self._workers for end in worker.end.descriptors()]
        worker = WorkerProcess(self, others)
        self._workers[worker] = None
        self._loop.watch(worker.end.number, worker, partial(self._on_message, worker))
        if worker.death_number >= 0:
            self._loop.watch(worker.death_number, worker, partial(self._on_death_shown, worker))
        if not worker.death_is_sure_to_show:
            self._unseen.add(worker)
        return worker

    def has_leftovers(self) -> bool:
        """Whether processes are still there that outlived their worker."""
        return len(self._leftovers) > 0

    def sent(self, worker: WorkerProcess, message: bytes) -> None:
        """Have a message sent to a worker, now or as soon as its socket takes it."""
        try:
            if not worker.end.send(message):
                self._loop.watch(worker.end.number, worker, partial(self._on_message, worker), write=True)
        except OSError as error:
            log.warning("worker %s cannot be sent a task: %s", worker.lanes[0], error)
            self._dispatcher.force(worker, f"it cannot be sent a task: {error}")

    def forget(self, worker: WorkerProcess) -> None:
        """Watch a worker no more."""
        self._workers.pop(worker, None)
        self._unseen.discard(worker)
        self._loop.unwatch(worker.death_number, worker)
        self._loop.unwatch(worker.end.number, worker)

    def give_up(self, worker: WorkerProcess) -> None:
        """The program closed the engine's end of the connection: end the worker, which nothing can be heard
        of any more.
        """
        self._loop.unwatch(worker.end.number, worker)
        if not worker.death_will_show():
            self._watch_by_looking(worker)
        if worker.why_ended is None:
            if not self._said_closed:
                self._said_closed = True
                log.warning(
                    "the program closed connections to workers: what those executed is lost, others follow"
                )
            # It ends when it notices.
            self._dispatcher.stop(worker, CLOSED_BY_PROGRAM, EngineLimits.descriptors_settle_s)
            self._dispatcher.launch_after(EngineLimits.descriptors_settle_s)
        self._linger()

    def _on_message(self, worker: WorkerProcess, events: int) -> None:
        if events & select.POLLOUT and worker.end.flush():
            self._loop.watch(worker.end.number, worker, partial(self._on_message, worker))
        if events & ~select.POLLOUT:
            self._dispatcher.hear(worker, worker.end.receive())
            self._dispatcher.review(worker)
            if worker.end.ended:
                self._loop.unwatch(worker.end.number, worker)

    def _on_death_shown(self, worker: WorkerProcess, _events: int) -> None:
        """The descriptor of a process is readable: the process is over, or the number is the program's
        now.
        """
        if worker.death_will_show():
            self._on_death(worker)
        else:
            self._watch_by_looking(worker)

    def _on_death(self, worker: WorkerProcess) -> None:
        """A process is over: take what it had said, and say so."""
        self._dispatcher.hear(worker, worker.end.receive())
        self._dispatcher.take_back(worker)  # what it had not read had no part in its end
        if not worker.end.still_ours() and worker.why_ended is None:
            worker.why_ended = CLOSED_BY_PROGRAM
        exit_code, below = worker.bury()
        by = time.monotonic() if worker.force_timer is None else worker.force_timer.at
        self._leftovers.add(by, below)
        self._dispatcher.died(worker, exit_code)
        self._linger()

    def _watch_by_looking(self, worker: WorkerProcess) -> None:
        self._loop.unwatch(worker.death_number, worker)
        self._unseen.add(worker)
        self._linger()

    def _check_descriptors(self) -> None:
        """Find out which of them the program has closed, or taken for its own, and who has died unseen."""
        for worker in [*self._workers]:
            if not worker.end.still_ours():
                self._dispatcher.review(worker)
            if worker not in self._unseen and not worker.death_will_show():
                self._watch_by_looking(worker)
        self._look_for_the_dead()
        self._loop.later(EngineLimits.descriptor_check_interval_s, self._check_descriptors)

    def _look_for_the_dead(self) -> None:
        for worker in [*self._unseen]:
            if worker.has_ended():
                self._on_death(worker)

    def _linger(self) -> None:
        """Look more often for as long as there is something that no descriptor shows."""
        if not self._lingers and (self._leftovers or any(worker.end.lost for worker in self._unseen)):
            self._lingers = True
            self._loop.later(EngineLimits.lingering_check_interval_s, self._look_again)

    def _look_again(self) -> None:
        self._lingers = False
        self._look_for_the_dead()
        self._leftovers.review(time.monotonic())
        self._linger()


class WorkerProcess(DispatchedWorker):
    """One process. `Exception` of any kind where it cannot be launched."""

    def __init__(self, backend: ProcessBackend, inherited: Sequence[Descriptor]) -> None:
        super().__init__()
        self._backend = backend
        threads = self.slots = backend.threads
        self.end = EngineEnd(threads)
        self.prefetches = threads == 1 and self.end.packets
        self._below: list[Any] = []
        """Processes below it, since force was used."""
        method = backend.context.get_start_method()
        forked = (*inherited, self.end.descriptors()[0]) if method == "fork" else ()
        args = (self.end.worker_end(), threads, backend.run_path, forked)
        process = cast("Any", backend.context).Process(target=serve, args=args, name="flightlog-worker")
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
        self.lanes = lane_names(backend.host, self.pid, threads)
        self.facts = [{"worker": lane, "host": backend.host, "pid": self.pid} for lane in self.lanes]
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

    def send(self, attempt: Attempt) -> None:
        """Give it an attempt. Raises where that does not pack."""
        message = encode_order(attempt.serial, attempt.work)
        attempt.recallable = self.end.can_take_back(message)
        self._backend.sent(self, message)

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

    def stop(self) -> None:
        """Ask it to end in good order."""
        self.end.send(frame(STOP))

    def signal(self, deed: Literal["terminate", "kill"]) -> None:
        """Send SIGTERM or SIGKILL to it, and to the processes below it."""
        self._below += [one for one in descendants(self.pid) if one not in self._below]
        end_all(self._below, deed)
        if not self._tells_exit_code():
            end_all([] if self._seen is None else [self._seen], deed)
            return
        with suppress(OSError, ValueError):
            getattr(self.process, deed)()

    def removed(self) -> None:
        """It is watched no more."""
        self._backend.forget(self)

    @property
    def lost(self) -> bool:
        """Whether the program closed the engine's end of the connection to it."""
        return self.end.lost

    def give_up(self) -> None:
        """It is `lost`: end it."""
        self._backend.give_up(self)

    def begun_unheard(self) -> set[int]:
        """Attempts that it noted to have begun."""
        return self.end.begun([*self.held])

    def death_will_show(self) -> bool:
        """Whether `death_number` still means what it did."""
        return self._death is not None and self._death.still_ours()

    def has_ended(self) -> bool:
        """Whether the process is over; needs no descriptor."""
        if not self._tells_exit_code():
            try:
                os.kill(self.pid, 0)
            except (ProcessLookupError, PermissionError):  # or another process has its number
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
        return exit_code, self._below

    def _tells_exit_code(self) -> bool:
        """Whether `multiprocessing` can be asked: the fork server's answers come by a descriptor that it
        knows by number.
        """
        return not self._is_served or (self._sentinel is not None and self._sentinel.still_ours())


def _pidfd(pid: int) -> Descriptor | None:
    try:
        return Descriptor(os.pidfd_open(pid))
    except (AttributeError, OSError):
        return None
