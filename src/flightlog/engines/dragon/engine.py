"""Attempts in processes that the Dragon runtime starts, on one node or many. Linux only."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice, zip_longest
from typing import Any, Literal

from msgspec import Struct

from flightlog.core.errors import MissingExtra, UsageError
from flightlog.engines import program
from flightlog.engines.attempts import Attempt
from flightlog.engines.contract import PooledEngine, check_counts
from flightlog.engines.dispatcher import Backend, DispatchedWorker, Dispatcher
from flightlog.engines.execute import Started, execute
from flightlog.engines.limits import EngineLimits
from flightlog.engines.processes import descendants, end_all
from flightlog.engines.program import add_paths, main_program, refuse_while_main_is_imported, with_main
from flightlog.engines.relay.chunks import ChunkReceiver
from flightlog.engines.relay.recording import SampledFrom, WorkerRecording, sampled_from_here
from flightlog.engines.wire import Frame, Frames, frame
from flightlog.engines.worker import READY, STOP, decode_order, encode_order, encode_outcome, encode_started
from flightlog.record.task import lane_name
from flightlog.store.liveness import this_host

INSIDE = "DRAGON_MY_PUID"
"""The variable that Dragon sets in every process it runs."""

log = logging.getLogger("flightlog")

dumps = partial(program.dumps, main_is_there=True)
"""Pickles calls for workers, and results for the program."""


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

    dumps = staticmethod(dumps)
    """How calls are pickled for its workers, which do not import the program."""

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
        check_counts(nodes=nodes, max_workers=max_workers, processes_per_node=processes_per_node)
        if policy not in ("block", "spread"):
            raise UsageError(f"policy is {policy!r}; it may be block or spread")
        self._nodes, self._max_workers = nodes, max_workers
        self._per_node, self._policy = processes_per_node, policy
        self._grace_s = kill_grace_s
        super().__init__()

    def _make_pool(self, run_path: str | None) -> Dispatcher:
        refuse_while_main_is_imported("an engine")
        slots = self._slots()
        return Dispatcher(DragonBackend(slots, run_path), len(slots), self._grace_s)

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


class DragonBackend(Backend):
    """Launches processes of Dragon's, each on the node of a free slot, and hears of their end.

    `slots` are nodes by Dragon's number, one for each worker there may be, in the order in which they are
    filled.
    """

    def __init__(self, slots: Sequence[int], run_path: str | None) -> None:
        self.free = list(slots)
        self._run_path = run_path
        self.workers: dict[int, DragonProcess] = {}
        """By Dragon's number of the process."""
        self._told: set[int] = set()
        """Those whose end is known, and their last words are being read."""
        self.receiver = ChunkReceiver(run_path)
        self._over = threading.Event()
        """Nothing is asked of Dragon any more but for ends."""
        self._joiner = threading.Thread(target=self._join, name="flightlog-joiner", daemon=True)

    def open(self, dispatcher: Dispatcher) -> None:
        """Begin."""
        super().open(dispatcher)
        self.setup = DragonWorkerSetup(
            paths=list(sys.path), main=main_program(), home=sampled_from_here(self._run_path)
        )
        self._joiner.start()

    def has_room(self) -> bool:
        """Whether a slot is free: that of a process that is being ended is its own until it is gone."""
        return bool(self.free)

    def launch(self) -> DragonProcess:
        """A new process. `Exception` of any kind: whatever Dragon says to it."""
        worker = DragonProcess(self, self.free[0])
        self.free.pop(0)
        self.workers[worker.puid] = worker
        return worker

    def close(self) -> None:
        """All workers are gone."""
        self._over.set()
        if self._joiner.ident is not None:
            # What the program asks of Dragon next, it asks alone.
            self._joiner.join(EngineLimits.dragon_request_s)
        self.receiver.close()

    def forget(self, worker: DragonProcess) -> None:
        """A worker is gone: its slot is free again."""
        del self.workers[worker.puid]
        self._told.discard(worker.puid)
        self.free.insert(0, worker.node)

    def post(self, worker: DragonProcess, message: Frame) -> None:
        """A worker says something; from any thread."""
        self._loop.post(self._hear, worker, message)

    def _hear(self, worker: DragonProcess, message: Frame) -> None:
        if message.kind == GONE:
            self._dispatcher.died(worker, worker.exit_code)
        else:
            self._dispatcher.hear(worker, [message])
            self._dispatcher.review(worker)

    # --- the thread that waits for ends

    def _join(self) -> None:
        """Ask Dragon again and again which processes have ended, until the engine has."""
        while not self._over.wait(EngineLimits.dragon_poll_interval_s * max(1.0, len(self.workers) / 50)):
            try:
                puids = [puid for puid in list(self.workers) if puid not in self._told]
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
            worker = self.workers.get(puid)
            if worker is not None:
                self._told.add(puid)
                worker.ended(exit_code)


_turn = threading.RLock()
CHUNK, GONE = b"P", b"G"


class DragonProcess(DispatchedWorker):
    """One process that Dragon runs on a node. `Exception` of any kind where it cannot be launched.

    What it says is posted by a thread of its own, and in the end a frame of kind `GONE`. Each worker has two
    queues of its own: one that died in the middle of a message leaves those of the others alone.
    """

    start_s, stop_s = EngineLimits.dragon_start_timeout_s, EngineLimits.dragon_stop_timeout_s

    def __init__(self, backend: DragonBackend, node: int) -> None:
        from dragon.infrastructure.policy import Policy
        from dragon.native.process import Process
        from dragon.native.queue import Queue

        super().__init__()
        self._backend, self.node = backend, node
        self.named = False
        self.exit_code: int | None = None
        self._killed_idle = self._read_to_the_end = False
        self._messages = 0
        self._below: list[Any] = []
        """Processes below it, since force was used."""
        with one_at_a_time():
            self._orders, self._answers = Queue(), Queue()
            self._process = Process(
                target=serve,
                args=(self._orders, self._answers, backend.setup),
                policy=Policy(placement=Policy.Placement.HOST_ID, host_id=node),
            )
            self._process.start()
        self.puid: int = self._process.puid
        self.facts = [{"worker": f"dragon:{self.puid}", "host": None, "pid": None}]
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
            self._backend.post(self, message)
            if message.kind == GONE:
                return

    def hear(self, message: Frame) -> None:
        """It can take attempts, or sends what it recorded."""
        if message.kind == READY:
            host, pid = message.head.decode(), message.serial
            self.facts = [{"worker": f"{host}:{pid}", "host": host, "pid": pid}]
        elif message.kind == CHUNK:
            self._backend.receiver.take(message.body)

    def send(self, attempt: Attempt) -> None:
        """Give it an attempt."""
        self._orders.put(encode_order(attempt.serial, attempt.work))

    def stop(self) -> None:
        """Ask it to end in good order."""
        self._orders.put(frame(STOP))

    def signal(self, deed: Literal["terminate", "kill"]) -> None:
        """Send SIGTERM or SIGKILL to it and, on this host, to the processes below it."""
        if deed == "terminate":
            self._killed_idle = not self.held
        (facts,) = self.facts
        if facts["host"] == this_host():
            self._below += [one for one in descendants(facts["pid"]) if one not in self._below]
            end_all(self._below, deed)
        with suppress(Exception), one_at_a_time():  # it has ended already
            getattr(self._process, deed)()

    def ended(self, exit_code: int | None) -> None:
        """Its process is over: what it had said is read to the end, which is then heard as `GONE`."""
        self.exit_code = exit_code
        end_all(self._below, "kill")
        threading.Thread(target=self._say_gone, name="flightlog-gone", daemon=True).start()
        before = -1
        while self._reader.is_alive() and self._messages != before:
            before = self._messages
            self._reader.join(EngineLimits.dragon_drain_s)
        # It died with the queue in its hands: nothing more is to be read from it.
        if not self._read_to_the_end:
            self._backend.post(self, Frame(GONE, 0, b"", b""))

    def _say_gone(self) -> None:
        """Put the last message. Where the process died with a lock of the queue, this never returns, timeout
        or not.
        """
        with suppress(Exception):
            self._answers.put(frame(GONE), timeout=EngineLimits.dragon_drain_s)

    def removed(self) -> None:
        """Give its queues back to Dragon, unless it died while it spoke with Dragon rather than worked.

        It may have left a lock in them, for which the whole runtime would wait for ever. Dragon
        then leaves a file in /dev/shm when it ends, and says so; `dragon-cleanup` removes it.
        """
        self._backend.forget(self)
        died_speaking = self._killed_idle or (self.ready_at is None and self.exit_code != 0)
        if died_speaking or not self._read_to_the_end:
            for queue in (self._orders, self._answers):
                # Dragon would give one back that is garbage, at the exit of the program at the latest.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(queue))
            return
        for queue in (self._orders, self._answers):
            with suppress(Exception), one_at_a_time():  # they go with the runtime at the latest
                queue.destroy()


@contextmanager
def one_at_a_time(patience_s: float = EngineLimits.dragon_request_s) -> Iterator[None]:
    """Whatever makes Dragon ask its global services: a queue or a process made, ended, destroyed, looked
    for.
    """
    mine = _turn.acquire(timeout=patience_s)
    try:
        yield
    finally:
        if mine:
            _turn.release()


def wake_who_waits(
    ask: Callable[[], object] | None = None, patience_s: float = EngineLimits.dragon_request_s
) -> None:
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


def serve(orders: Any, answers: Any, setup: DragonWorkerSetup) -> None:
    """The whole life of a worker. `orders` and `answers` are Dragon's queues, which nobody else reads or
    fills.

    What was put into a queue is there when this process has died, so a start that was told stays told.
    """
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    add_paths(setup.paths)
    host, pid = this_host(), os.getpid()
    name = lane_name(host, pid, main=True)
    recording = WorkerRecording(name, setup.home, lambda chunk: answers.put(frame(CHUNK, 0, b"", chunk)))
    answers.put(frame(READY, pid, host.encode()))
    while (message := one_frame(orders.get())).kind != STOP:
        work = recording.placed(with_main(decode_order(message), setup.main))

        def begun(started: Started, serial: int = message.serial) -> None:
            answers.put(encode_started(serial, started, name))

        outcome = execute(work, worker=name, alone=True, started=begun, dumps=dumps)
        del work
        recording.settle()
        answers.put(encode_outcome(message.serial, outcome))
        del message, outcome
    recording.leave()
