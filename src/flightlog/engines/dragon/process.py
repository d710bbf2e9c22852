"""A worker process of Dragon's: as its engine sees it (launched on a node, ready, executing an attempt,
ended), and what runs inside it: attempts, one at a time, until it is told to stop.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import Struct

from flightlog.engines import program
from flightlog.engines.attempts import Attempt
from flightlog.engines.contract import WorkerView
from flightlog.engines.execute import Started, execute
from flightlog.engines.process_tree import descendants, end_all
from flightlog.engines.program import add_paths, with_main
from flightlog.engines.wire import Frame, Frames, frame
from flightlog.engines.worker import READY, STOP, decode_order, encode_outcome, encode_started
from flightlog.engines.worker_recording import SampledFrom, WorkerRecording
from flightlog.record.task import lane_name
from flightlog.store.liveness import this_host

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
        if (
            not self._read_to_the_end
        ):  # it died with the queue in its hands: nothing more is to be read from it
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
