"""A worker process: executes the attempts its engine sends, one at a time or in threads, until it is told to
stop.

It is told to stop by a message, or by the end of its engine: then what it executes is of no use to anybody,
and it ends at once with all processes below it. A worker whose task closed its connection lets what it
executes run to its end, and ends with an exit code that tells the engine so.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
from collections.abc import Sequence
from queue import SimpleQueue

import msgspec

from flightlog.core.descriptors import Descriptor
from flightlog.engines.contract import Outcome, Work
from flightlog.engines.execute import Started, execute
from flightlog.engines.limits import EngineLimits
from flightlog.engines.processes import CLOSED_BY_TASK, CONNECTION_CLOSED, descendants, end_all
from flightlog.engines.wire import Frame, WorkerEnd, frame
from flightlog.record.joining import join
from flightlog.record.task import lane_name
from flightlog.store.liveness import this_host

log = logging.getLogger("flightlog")

READY, ORDER, STARTED, ENDED, STOP = b"R", b"O", b"S", b"E", b"Q"

_encode = msgspec.msgpack.Encoder().encode
_decode_work = msgspec.msgpack.Decoder(Work).decode
_decode_started = msgspec.msgpack.Decoder(Started).decode
_decode_outcome = msgspec.msgpack.Decoder(Outcome).decode


def encode_order(serial: int, work: Work) -> bytes:
    """The message that hands over an attempt. Arguments as recorded stay behind: the worker has the real
    ones.
    """
    return frame(ORDER, serial, _encode(msgspec.structs.replace(work, call=b"", args={})), work.call)


def decode_order(message: Frame) -> Work:
    """The attempt that was handed over."""
    return msgspec.structs.replace(_decode_work(message.head), call=message.body)


def encode_started(serial: int, started: Started, worker: str) -> bytes:
    """The message that an attempt began."""
    return frame(STARTED, serial, _encode(started), worker.encode())


def decode_started(message: Frame) -> tuple[Started, str]:
    """When an attempt began, and the worker's name."""
    return _decode_started(message.head), message.body.decode()


def encode_outcome(serial: int, outcome: Outcome) -> bytes:
    """The message that an attempt is over."""
    result, outcome.result = outcome.result, None
    return frame(ENDED, serial, _encode(outcome), result or b"")


def decode_outcome(message: Frame) -> Outcome:
    """What became of an attempt."""
    outcome = _decode_outcome(message.head)
    outcome.result = message.body or None
    return outcome


def lane_names(host: str, pid: int, threads: int) -> tuple[str, ...]:
    """What the workers of one process are called: the process itself, or each of its threads."""
    base = f"{host}:{pid}"
    return (base,) if threads == 1 else tuple(f"{base}/thread-{number}" for number in range(1, threads + 1))


def serve(end: WorkerEnd, threads: int, run_path: str | None, inherited: Sequence[Descriptor]) -> None:
    """Execute what comes until told to stop: the whole life of a worker process.

    `inherited` are sockets that a fork left here; they would keep this worker and others from noticing the
    end of the engine.
    """
    # A handler that does nothing, and not SIG_IGN: programs that tasks start begin with the default action.
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for other in inherited:
        other.close()
    if run_path is not None:
        join(run_path)
    end.arrived()
    orphanhood = Orphanhood(end)
    end.send(frame(READY))
    if threads == 1:
        _serve_alone(end, orphanhood)
    else:
        _serve_in_threads(end, orphanhood, threads)
    if end.lost:
        log.warning(
            "%s: what it executed cannot be reported, and another worker takes its place", CLOSED_BY_TASK
        )
        raise SystemExit(CONNECTION_CLOSED)


class Orphanhood:
    """Watches for the end of the engine, which ends a process in the middle of a task."""

    def __init__(self, end: WorkerEnd) -> None:
        self.busy = 0
        self.orphaned = False
        self._end = end
        threading.Thread(target=self._watch, name="flightlog-orphanhood", daemon=True).start()

    def _watch(self) -> None:
        poll = select.poll()
        if (number := self._end.number) < 0:
            return
        poll.register(number, 0)  # nothing but the hang-up
        # The kernel goes on watching the connection when its number is closed, or means something else,
        # meanwhile.
        if not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
            return  # it was closed before: the worker finds out itself
        self.orphaned = True
        if self.busy:
            end_all(descendants(), "kill")
            os._exit(1)


def _serve_alone(end: WorkerEnd, orphanhood: Orphanhood) -> None:
    """One attempt at a time, on the main thread.

    An outcome is kept back for as long as it takes to see that the next attempt is here already, and to
    record its start: then both travel together.
    """
    name = lane_name(this_host(), os.getpid(), main=True)
    kept = b""
    while True:
        message = end.receive(wait=not kept)
        if message is None and kept:
            if not end.send(kept):
                return
            kept = b""
            continue
        if message is None or message.kind == STOP:
            end.send(kept)
            return
        serial, before = message.serial, kept

        def begun(started: Started, serial: int = serial, before: bytes = before) -> None:
            end.note(serial)
            end.send(before + encode_started(serial, started, name))

        orphanhood.busy = 1
        if orphanhood.orphaned:
            return
        outcome = execute(decode_order(message), worker=name, alone=True, started=begun)
        del message
        orphanhood.busy = 0
        kept = encode_outcome(serial, outcome)
        del outcome
        if len(kept) > EngineLimits.max_revocable_frame_bytes:
            if not end.send(kept):
                return
            kept = b""


def _serve_in_threads(end: WorkerEnd, orphanhood: Orphanhood, threads: int) -> None:
    """As many attempts at once as there are threads; the main thread hands them out."""
    orders: SimpleQueue[Frame | None] = SimpleQueue()
    sending = threading.Lock()

    def send(message: bytes) -> None:
        with sending:
            end.send(message)

    def work(lane: int) -> None:
        name = lane_name(this_host(), os.getpid())
        while (message := orders.get()) is not None and not end.lost:
            serial = message.serial

            def begun(started: Started, serial: int = serial) -> None:
                end.note(serial, lane)
                send(encode_started(serial, started, name))

            outcome = execute(decode_order(message), worker=name, alone=False, started=begun)
            send(encode_outcome(serial, outcome))
            del message, outcome

    orphanhood.busy = 1  # nobody waits for threads that may never end
    lanes = [
        threading.Thread(target=work, args=(lane,), name=f"thread-{lane + 1}", daemon=True)
        for lane in range(threads)
    ]
    for lane in lanes:
        lane.start()
    while (message := end.receive()) is not None and message.kind != STOP:
        orders.put(message)
    for _ in lanes:
        orders.put(None)
    for lane in lanes:
        lane.join()
    orphanhood.busy = 0
