"""Attempts in processes that the Dragon runtime starts, on one node or many. Linux only.

One thread dispatches attempts to the workers, listens to them, and reports those that end.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice, zip_longest
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from flightlog.core.errors import MissingExtra, UsageError
from flightlog.core.retry import delay_s
from flightlog.engines import program
from flightlog.engines.attempts import Attempt, AttemptRegistry, Deadlines
from flightlog.engines.contract import PooledEngine, Reports, Work, WorkerView
from flightlog.engines.execute import Started, execute
from flightlog.engines.exit_reason import Death, OomKills, describe_death
from flightlog.engines.processes import descendants, end_all
from flightlog.engines.program import add_paths, main_program, refuse_while_main_is_imported, with_main
from flightlog.engines.wire import Frame, Frames, frame
from flightlog.engines.worker import (
    ENDED,
    READY,
    STARTED,
    STOP,
    decode_order,
    decode_outcome,
    decode_started,
    encode_order,
    encode_outcome,
    encode_started,
)
from flightlog.engines.worker_recording import SampledFrom, WorkerRecording, sampled_from_here
from flightlog.events import WorkerLaunched, WorkerLost, WorkerReady, WorkerRemoved
from flightlog.record.clock import Clock
from flightlog.record.task import lane_name
from flightlog.store.liveness import this_host

if TYPE_CHECKING:
    from flightlog.engines.relay.chunks import ChunkReceiver

INSIDE = "DRAGON_MY_PUID"
"""The variable that Dragon sets in every process it runs."""


log = logging.getLogger("flightlog")
CLOSED = "the engine was closed"
START_S = STOP_S = 30.0
"""How long a worker may take to be ready, or to end when it was asked to, before it is made to end when the
engine closes.

It speaks with Dragon's runtime in both. Locks that a process of Dragon's holds when it is killed stay locked,
and if they are the runtime's, nothing in it ever moves again: force is for those that do not get on at all.
"""
ASK_S = 0.1
"""How often Dragon is asked which processes have ended, up to 50 of them; less often the more there are."""
TRIES = 3
"""Launches that may fail in a row, and hand-outs of one attempt that may come to nothing."""


class DragonEngine(PooledEngine):
    """Runs attempts in processes of the Dragon runtime; the contract of `Engine`, and thread-safe as that
    says.

    The program must have been started by Dragon: `dragon prog.py`, or `dragon -s prog.py` on one machine.
    Dragon runs on Linux alone. Anything else is a `UsageError` that says so.

    There are at most `max_workers` worker processes, by default as many as fit: `processes_per_node`
    (default: the CPUs of the node) on each of the first `nodes` nodes (default: all). `policy` fills one node
    after the other (`block`), or deals workers out among them (`spread`). They are launched as there is work,
    and execute one task at a time each.

    A task over its timeout, or cancelled while it runs, is ended with its process and, on this host, the
    processes below it: SIGTERM, and SIGKILL after `kill_grace_s` seconds. Running tasks may take `timeout_s`
    seconds more when the engine is closed; those that wait are cancelled at once. Workers that are about to
    be ready then are ended once they are: Dragon's runtime does not always survive the end of a process that
    speaks with it.
    """

    def __init__(
        self,
        *,
        nodes: int | None = None,
        max_workers: int | None = None,
        processes_per_node: int | None = None,
        policy: Literal["block", "spread"] = "spread",
        kill_grace_s: float = 2.0,
    ) -> None:
        check_runtime(sys.platform, os.environ)
        for name, value in (
            ("nodes", nodes),
            ("max_workers", max_workers),
            ("processes_per_node", processes_per_node),
        ):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise UsageError(f"{name} is {value!r}; it must be a whole number, 1 or more")
        if policy not in ("block", "spread"):
            raise UsageError(f"policy is {policy!r}; it may be block or spread")
        self._nodes, self._max_workers = nodes, max_workers
        self._per_node, self._policy = processes_per_node, policy
        self._grace_s = kill_grace_s
        super().__init__()

    def start(self, run_path: str | None, reports: Reports) -> None:
        """Begin; workers are launched when there is work."""
        self._begin()
        refuse_while_main_is_imported("an engine")
        self._pool = DragonPool(self._slots(), self._grace_s)
        self._pool.start(run_path, reports)
        self._close_at_exit()

    def dumps(self, value: Any) -> bytes:
        """The value as a pickle for workers, which do not import the program."""
        return dumps(value)

    def _slots(self) -> list[int]:
        """The node of each worker that there may be."""
        from dragon.native.machine import Node, System

        with one_at_a_time():
            there: list[int] = list(System().nodes)
            if self._nodes is not None and self._nodes > len(there):
                raise UsageError(f"nodes is {self._nodes}, and Dragon runs on {len(there)}")
            sizes = {node: self._per_node or int(Node(node).num_cpus) for node in there[: self._nodes]}
        return place_workers(sizes, self._policy, self._max_workers)


def place_workers(
    sizes: Mapping[int, int], policy: Literal["block", "spread"], max_workers: int | None
) -> list[int]:
    """The nodes of workers in the order of their launch, for nodes with these numbers of slots.

    More workers than fit go around again: someone who asks for them gets them.
    """
    lots = [[node] * size for node, size in sizes.items()]
    if policy == "block":
        once = list(chain.from_iterable(lots))
    else:
        once = [node for row in zip_longest(*lots) for node in row if node is not None]
    wanted = len(once) if max_workers is None else max_workers
    return list(islice(chain.from_iterable(once for _ in range(wanted)), wanted))


def check_runtime(platform: str, environ: Mapping[str, str]) -> None:
    """A `UsageError` or `MissingExtra` unless this program runs inside Dragon."""
    if platform != "linux":
        raise UsageError("Dragon runs on Linux alone: choose another provider on this machine")
    from importlib.util import find_spec

    if find_spec("dragon") is None:
        raise MissingExtra("the provider 'dragon' needs Dragon: pip install 'flightlog[dragon]'")
    if INSIDE not in environ:
        raise UsageError(
            "this program was not started by Dragon, which has to be there before it: start it with "
            "`dragon prog.py` in place of `python prog.py`, or with `dragon -s prog.py` on a single machine"
        )


class DragonPool:
    """An engine of Dragon's processes, launched as there is work for them, each on the node of a free slot.

    `slots` are nodes by Dragon's number, one for each worker there may be, in the order in which they are
    filled.
    """

    def __init__(self, slots: Sequence[int], grace_s: float) -> None:
        self._free = list(slots)
        self._grace_s = grace_s
        self._oom = OomKills()
        self._clock = Clock()
        self._workers: dict[int, DragonProcess] = {}
        """By Dragon's number of the process."""
        self._told: set[int] = set()
        """Those whose end is known, and their last words are being read."""
        self._inbox: SimpleQueue[tuple[DragonProcess, Frame] | None] = SimpleQueue()
        """What workers say; None is a nudge."""
        self._requests: SimpleQueue[Attempt] = SimpleQueue()
        self._deadlines: Deadlines[Attempt] = Deadlines()
        self._landing: ChunkReceiver | None = None
        self._failures, self._launch_at = 0, 0.0
        self._close_by: float | None = None
        self._closing = False
        self._notified = False
        self._over = threading.Event()
        """Nothing is asked of Dragon any more but for ends."""
        self._thread = threading.Thread(target=self._run, name="flightlog-engine", daemon=True)
        self._joiner = threading.Thread(target=self._join, name="flightlog-joiner", daemon=True)

    # --- from any thread

    def start(self, run_path: str | None, reports: Reports) -> None:
        """Begin; workers are launched when there is work."""
        self._run_path, self._ledger = run_path, AttemptRegistry(reports)
        self._around = DragonWorkerSetup(
            paths=list(sys.path), main=main_program(), home=sampled_from_here(run_path)
        )
        self._thread.start()
        self._joiner.start()

    def submit(self, work: Work) -> None:
        """Take an attempt."""
        self._ledger.add(work)
        self._wake()

    def cancel(self, task_id: str, reason: str) -> bool:
        """Give an attempt up; one that runs is ended with its process."""
        cancelled, attempt = self._ledger.cancel(task_id, reason, running=True)
        if attempt is not None:
            self._requests.put(attempt)
            self._wake()
        return cancelled

    def workers(self) -> Sequence[WorkerView]:
        """The workers there are."""
        return [worker.view() for worker in list(self._workers.values())]

    def close(self, timeout_s: float) -> None:
        """End everything; running attempts get `timeout_s` to finish."""
        by = time.monotonic() + timeout_s
        self._close_by = by if self._close_by is None else min(by, self._close_by)
        self._ledger.shut("cancelled", CLOSED)
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._joiner.join(STUCK_S)  # what the program asks of Dragon next, it asks alone

    def _wake(self) -> None:
        if not self._notified:
            self._notified = True
            self._inbox.put(None)

    # --- the thread that waits for ends

    def _join(self) -> None:
        """Ask Dragon again and again which processes have ended, until the engine has."""
        while not self._over.wait(ASK_S * max(1.0, len(self._workers) / 50)):
            try:
                puids = [puid for puid in list(self._workers) if puid not in self._told]
                if puids:
                    self._ask_for_ends(puids)
                else:
                    wake_who_waits()
            except Exception as error:  # noqa: BLE001 - one of them is unknown to Dragon by now: look again
                log.debug("Dragon did not say which processes have ended: %s", error)

    def _ask_for_ends(self, puids: list[int]) -> None:
        from dragon.globalservices.process import multi_join

        with one_at_a_time():
            ends, _ = multi_join(puids, timeout=0)
        for puid, exit_code in ends or ():
            worker = self._workers.get(puid)
            if worker is not None:
                self._told.add(puid)
                worker.ended(exit_code)

    # --- the thread

    def _run(self) -> None:
        try:
            while not (self._closing and not self._workers):
                self._take_in(self._patience_s())
                self._end_cancelled()
                self._look_at_the_clock()
                self._hand_out()
        except BaseException as error:  # nobody may wait for ever for an end that is never told
            log.exception("the engine failed; its tasks are lost")
            self._abandon(f"the engine failed: {type(error).__name__}: {error}")
        finally:
            self._closing = True
            self._over.set()
            if self._landing is not None:
                self._landing.close()

    def _patience_s(self) -> float | None:
        now = time.monotonic()
        due = [worker.force_at for worker in self._workers.values() if worker.force_at is not None]
        if (first := self._deadlines.first()) is not None:
            due.append(first)
        if self._close_by is not None and any(w.attempt for w in self._workers.values()):
            due.append(self._close_by)
        if self._wants_worker():
            due.append(self._launch_at)
        return max(0.0, min(due) - now) if due else None

    def _take_in(self, patience_s: float | None) -> None:
        """Wait for something to happen, and take what has happened."""
        try:
            item = self._inbox.get(timeout=patience_s)
        except Empty:
            return
        while True:
            if item is None:
                self._notified = False  # before anything is looked at
            else:
                self._hear(*item)
            try:
                item = self._inbox.get_nowait()
            except Empty:
                return

    def _hear(self, worker: DragonProcess, message: Frame) -> None:
        if worker.puid not in self._workers:
            return
        try:
            self._take(worker, message)
        except (ValueError, msgspec.MsgspecError) as error:
            log.warning("worker %s cannot be understood: %s", worker.facts["worker"], error)
            worker.use_force(f"it cannot be understood: {error}", self._grace_s)

    def _take(self, worker: DragonProcess, message: Frame) -> None:
        attempt = worker.attempt
        if message.kind == GONE:
            self._bury(worker)
        elif message.kind == PARCEL:
            self._land(message.body)
        elif message.kind == READY:
            worker.ready(message.head.decode(), message.serial)
            self._failures = 0
            launched = self._clock.iso(int(worker.launched * 1e9) - self._clock.anchor_ns)
            self._ledger.worker(WorkerLaunched(timestamp=launched, **worker.facts))
            launch_s = (worker.ready_at or 0.0) - worker.launched_at
            self._ledger.worker(WorkerReady(launch_s=launch_s, **worker.facts))
        elif attempt is None or attempt.serial != message.serial:
            return
        elif message.kind == STARTED:
            begun, name = decode_started(message)
            self._ledger.start(attempt, name, begun)
            if attempt.work.timeout_s is not None:
                self._deadlines.add(time.monotonic() + attempt.work.timeout_s, attempt.serial, attempt)
        elif message.kind == ENDED:
            self._let_go(worker, attempt)
            self._ledger.end(attempt, decode_outcome(message))

    def _let_go(self, worker: DragonProcess, attempt: Attempt) -> None:
        worker.attempt = attempt.holder = None
        self._deadlines.drop(attempt.serial)

    def _land(self, parcel: bytes) -> None:
        if self._landing is None and self._run_path is not None:
            from flightlog.engines.relay.chunks import ChunkReceiver

            self._landing = ChunkReceiver(self._run_path)
        if self._landing is not None:
            self._landing.take(parcel)

    def _bury(self, worker: DragonProcess) -> None:
        """A process is over, and everything it had said was heard."""
        del self._workers[worker.puid]
        self._told.discard(worker.puid)
        self._free.insert(0, worker.node)
        worker.close()
        expected = worker.why_ended is not None and worker.force != "hangs"
        if worker.force == "hangs":
            death = Death("its process does not end, not even by SIGKILL")
        elif worker.why_ended is not None:
            death = Death(worker.why_ended)
        else:
            death = describe_death(worker.exit_code, self._oom)
        if expected and worker.ready_at is not None:
            up_s = time.monotonic() - worker.ready_at
            self._ledger.worker(WorkerRemoved(reason=death.reason, uptime_s=up_s, **worker.facts))
        elif not expected:
            self._ledger.worker(
                WorkerLost(
                    reason=death.reason, exit_code=death.exit_code, signal=death.signal, **worker.facts
                )
            )
        attempt = worker.attempt
        if attempt is not None:
            self._let_go(worker, attempt)
            if attempt.begun is None and attempt.mishaps < TRIES and attempt.verdict is None:
                attempt.mishaps += 1
                self._ledger.put_back(attempt)  # its function was never called
            else:
                self._ledger.lose(attempt, death, worker.facts["host"], worker.facts["pid"])
        if not expected and worker.ready_at is None:
            self._launch_failed(f"worker processes die before they are ready: {death.reason}")

    # --- handing out

    def _hand_out(self) -> None:
        for worker in list(self._workers.values()):
            while worker.idle and (attempt := self._ledger.next()) is not None:
                self._hand(worker, attempt)
        if self._wants_worker() and time.monotonic() >= self._launch_at:
            self._launch()

    def _hand(self, worker: DragonProcess, attempt: Attempt) -> None:
        try:
            worker.hand(attempt, encode_order(attempt.serial, attempt.work))
        # One attempt that cannot travel must not hold up the others.
        except Exception as error:  # noqa: BLE001
            self._let_go(worker, attempt)
            self._ledger.fail(attempt, error, "it cannot be sent to a worker")

    def _wants_worker(self) -> bool:
        if self._closing or not self._free:
            return False
        coming = sum(w.ready_at is None and w.why_ended is None for w in self._workers.values())
        return self._ledger.waiting > coming

    def _launch(self) -> None:
        node = self._free.pop(0)
        try:
            worker = DragonProcess(node, self._around, lambda worker, frame: self._inbox.put((worker, frame)))
        except Exception as error:  # noqa: BLE001 - whatever Dragon says to it
            self._free.insert(0, node)
            self._launch_failed(f"no worker process can be launched: {type(error).__name__}: {error}")
            return
        self._workers[worker.puid] = worker
        self._wake()  # there may be work for another one

    def _launch_failed(self, reason: str) -> None:
        self._failures += 1
        self._launch_at = time.monotonic() + delay_s(self._failures, 0.1, 12.8)
        log.warning("%s", reason)
        if self._failures >= TRIES and not any(w.ready_at for w in self._workers.values()):
            self._ledger.shut("lost", reason)

    # --- ending

    def _end_cancelled(self) -> None:
        with suppress(Empty):
            while True:
                attempt = self._requests.get_nowait()
                if isinstance(attempt.holder, DragonProcess) and not attempt.over:
                    self._force(attempt.holder, "a task was cancelled")

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        if self._close_by is not None:
            self._close_workers(now)
        for attempt in self._deadlines.take_due(now):
            limit = attempt.work.timeout_s
            reason = f"{attempt.work.task} ran over its timeout of {limit:g} s"
            if isinstance(attempt.holder, DragonProcess) and self._ledger.judge(attempt, "timed_out", reason):
                self._force(attempt.holder, "a task ran over its time")
        for worker in list(self._workers.values()):
            if worker.force_at is not None and worker.force_at <= now:
                worker.use_force(worker.why_ended or CLOSED, self._grace_s)
                if worker.force == "hangs":
                    self._bury(worker)

    def _close_workers(self, now: float) -> None:
        self._closing = True
        assert self._close_by is not None
        for worker in self._workers.values():
            if worker.attempt is None and worker.ready_at is not None:
                worker.stop(CLOSED, STOP_S)
            elif worker.attempt is None:
                worker.expect(START_S)  # it is asked to end once it is ready
            elif now >= self._close_by and worker.why_ended is None:
                self._ledger.judge(worker.attempt, "cancelled", CLOSED)
                self._force(worker, CLOSED)

    def _force(self, worker: DragonProcess, why: str) -> None:
        if worker.force == "no":
            worker.use_force(why, self._grace_s)

    def _abandon(self, reason: str) -> None:
        self._ledger.shut("lost", reason)
        for worker in list(self._workers.values()):
            if worker.attempt is not None:
                self._ledger.end(worker.attempt, self._ledger.cut_short(worker.attempt, "lost", reason))
            for _ in ("SIGTERM", "SIGKILL"):
                worker.use_force(reason, 0.0)
        self._workers.clear()


WRITE_OFF_S = 5.0
"""A process that has not ended this long after SIGKILL hangs in the kernel, and is written off."""
DRAIN_S = 2.0
"""A process that has ended has been read to its end when nothing more came for this long."""


STUCK_S = 2.0
"""A request without an answer for this long may have lost it."""
_turn = threading.RLock()
PARCEL, GONE = b"P", b"G"
dumps = partial(program.dumps, main_is_there=True)
"""Pickles calls for workers, and results for the program."""


class DragonProcess:
    """One process that Dragon runs on a node. `Exception` of any kind where it cannot be launched.

    `hear` is called, on a thread of its own, with every message and in the end with a frame of kind `GONE`.
    Each worker has two queues of its own: one that died in the middle of a message leaves those of the others
    alone.
    """

    def __init__(
        self, node: int, around: DragonWorkerSetup, hear: Callable[[DragonProcess, Frame], None]
    ) -> None:
        from dragon.infrastructure.policy import Policy
        from dragon.native.process import Process
        from dragon.native.queue import Queue

        self.node = node
        self.attempt: Attempt | None = None
        self.launched_at, self.launched = time.monotonic(), time.time()
        self.ready_at: float | None = None
        self.why_ended: str | None = None
        self.force: Literal["no", "SIGTERM", "SIGKILL", "hangs"] = "no"
        self.force_at: float | None = None
        self.exit_code: int | None = None
        self._killed_idle = self._read_to_the_end = False
        self._messages = 0
        self._kin: list[Any] = []
        with one_at_a_time():
            self._orders, self._answers = Queue(), Queue()
            self._process = Process(
                target=serve,
                args=(self._orders, self._answers, around),
                policy=Policy(placement=Policy.Placement.HOST_ID, host_id=node),
            )
            self._process.start()
        self.puid: int = self._process.puid
        self.facts: dict[str, Any] = {"worker": f"dragon:{self.puid}", "host": None, "pid": None}
        self._hear = hear
        self._reader = threading.Thread(target=self._read, name="flightlog-reader", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                message = one_frame(self._answers.get())
            except Exception:  # noqa: BLE001 - the queue is gone, or what a dying process wrote is no message
                message = Frame(GONE, 0, b"", b"")
            self._messages += 1
            self._read_to_the_end = message.kind == GONE
            self._hear(self, message)
            if message.kind == GONE:
                return

    def ready(self, host: str, pid: int) -> None:
        """It can take attempts."""
        self.ready_at = time.monotonic()
        self.facts = {"worker": f"{host}:{pid}", "host": host, "pid": pid}

    @property
    def idle(self) -> bool:
        """Whether it could execute an attempt now."""
        return self.ready_at is not None and self.attempt is None and self.why_ended is None

    def view(self) -> WorkerView:
        """The worker as it is now."""
        attempt = self.attempt
        running = () if attempt is None or attempt.begun is None else (attempt.work.task_id,)
        return WorkerView(**self.facts, running=running)

    def hand(self, attempt: Attempt, message: bytes) -> None:
        """Give it an attempt."""
        self.attempt, attempt.holder = attempt, self
        self._orders.put(message)

    def expect(self, patience_s: float) -> None:
        """It may go on starting; if it is not ready after `patience_s`, force is due."""
        if self.force_at is None:
            self.force_at = time.monotonic() + patience_s

    def stop(self, why: str, patience_s: float) -> None:
        """Ask it to end in good order; if it does not, force is due after `patience_s`."""
        if self.why_ended is None:
            self.why_ended, self.force_at = why, time.monotonic() + patience_s
            self._orders.put(frame(STOP))

    def use_force(self, why: str, grace_s: float) -> None:
        """End it and, on this host, the processes below it: SIGTERM now, the next time SIGKILL."""
        self.why_ended = self.why_ended or why
        if self.force == "no":
            self._killed_idle = self.attempt is None
            self.force, self.force_at = "SIGTERM", time.monotonic() + grace_s
            self._signal("terminate")
        elif self.force == "SIGTERM":
            self.force, self.force_at = "SIGKILL", time.monotonic() + WRITE_OFF_S
            self._signal("kill")
        else:
            self.force, self.force_at = "hangs", None

    def ended(self, exit_code: int | None) -> None:
        """Its process is over: what it had said is read to the end, which is then heard as `GONE`."""
        self.exit_code = exit_code
        end_all(self._kin, "kill")
        threading.Thread(target=self._say_gone, name="flightlog-gone", daemon=True).start()
        before = -1
        while self._reader.is_alive() and self._messages != before:
            before = self._messages
            self._reader.join(DRAIN_S)
        # It died with the queue in its hands: nothing more is to be read from it.
        if not self._read_to_the_end:
            self._hear(self, Frame(GONE, 0, b"", b""))

    def _say_gone(self) -> None:
        """Put the last message. Where the process died with a lock of the queue, this never returns, timeout
        or not.
        """
        with suppress(Exception):
            self._answers.put(frame(GONE), timeout=DRAIN_S)

    def close(self) -> None:
        """Give its queues back to Dragon, unless it died while it spoke with Dragon rather than worked.

        It may have left a lock in them, for which the whole runtime would wait for ever. Dragon
        then leaves a file in /dev/shm when it ends, and says so; `dragon-cleanup` removes it.
        """
        died_speaking = self._killed_idle or (self.ready_at is None and self.exit_code != 0)
        if died_speaking or not self._read_to_the_end:
            for queue in (self._orders, self._answers):
                # Dragon would give one back that is garbage, at the exit of the program at the latest.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(queue))
            return
        for queue in (self._orders, self._answers):
            with suppress(Exception), one_at_a_time():  # they go with the runtime at the latest
                queue.destroy()

    def _signal(self, deed: Literal["terminate", "kill"]) -> None:
        if self.facts["host"] == this_host():
            self._kin += [kin for kin in descendants(self.facts["pid"]) if kin not in self._kin]
            end_all(self._kin, deed)
        with suppress(Exception), one_at_a_time():  # it has ended already
            getattr(self._process, deed)()


@contextmanager
def one_at_a_time(patience_s: float = STUCK_S) -> Iterator[None]:
    """Whatever makes Dragon ask its global services: a queue or a process made, ended, destroyed, looked
    for.
    """
    mine = _turn.acquire(timeout=patience_s)
    try:
        yield
    finally:
        if mine:
            _turn.release()


def wake_who_waits(ask: Callable[[], object] | None = None, patience_s: float = STUCK_S) -> None:
    """Ask Dragon anything if a question of someone else has been waiting for its answer for long; else do
    nothing.

    Takes up to `patience_s` seconds to see which.
    """
    if _turn.acquire(timeout=patience_s):
        _turn.release()
        return
    (ask or _ask_anything)()


def _ask_anything() -> None:
    from dragon.globalservices.process import query
    from dragon.infrastructure.parameters import this_process

    query(this_process.my_puid)


class DragonWorkerSetup(Struct, frozen=True, kw_only=True):
    """What every worker of one engine is given."""

    paths: list[str]
    """Where the program looks for modules."""
    main: dict[str, str]
    """Where functions of the main program are found."""
    home: SampledFrom


def one_frame(message: bytes) -> Frame:
    """The message that came as these bytes."""
    (found,) = Frames().feed(message)
    return found


def serve(orders: Any, answers: Any, around: DragonWorkerSetup) -> None:
    """The whole life of a worker. `orders` and `answers` are Dragon's queues, which nobody else reads or
    fills.

    What was put into a queue is there when this process has died, so a start that was told stays told.
    """
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    add_paths(around.paths)
    host, pid = this_host(), os.getpid()
    name = lane_name(host, pid, main=True)
    stay = WorkerRecording(name, around.home, lambda parcel: answers.put(frame(PARCEL, 0, b"", parcel)))
    answers.put(frame(READY, pid, host.encode()))
    while (message := one_frame(orders.get())).kind != STOP:
        work = with_main(decode_order(message), around.main)
        if work.place:
            work = msgspec.structs.replace(work, place=stay.at(work.place))

        def begun(started: Started, serial: int = message.serial) -> None:
            answers.put(encode_started(serial, started, name))

        outcome = execute(work, worker=name, alone=True, started=begun, dumps=dumps)
        del work
        stay.settle()
        answers.put(encode_outcome(message.serial, outcome))
        del message, outcome
    stay.leave()
