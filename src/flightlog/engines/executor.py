"""Attempts on an executor of the program's own: of `concurrent.futures`, `mpi4py.futures`, or any other
`Executor`.

Workers on this host say by a named socket that an attempt began; from other hosts, that is known when it has
ended.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.engines import program
from flightlog.engines.attempts import CLOSED, Attempt
from flightlog.engines.contract import Outcome, PooledEngine, Work, WorkerView, check_counts
from flightlog.engines.dispatcher import ClusterBackend, Dispatcher
from flightlog.engines.execute import Started, execute
from flightlog.engines.limits import EngineLimits
from flightlog.engines.processes import ExitReason
from flightlog.engines.program import main_program, with_main
from flightlog.engines.relay.channel import BEGAN, CHUNK, AttemptStart, ChannelClient, ChannelServer
from flightlog.engines.relay.chunks import ChunkReceiver
from flightlog.engines.relay.recording import SampledFrom, WorkerRecording, sampled_from_here
from flightlog.events import WorkerLaunched, WorkerReady
from flightlog.record.task import lane_name
from flightlog.store.liveness import this_host

dumps = partial(program.dumps, main_is_there=True)
"""Pickles calls for workers, and results for the program."""


class ExecutorEngine(PooledEngine):
    """Runs attempts on an executor; the contract of `Engine`, and thread-safe as that says.

    The executor stays the caller's: it may have other work, and is not shut down when the engine is closed.
    At most `max_workers` attempts run there at once, by default as many as the executor has workers.

    What runs cannot be ended: cancelling does nothing then. A timeout is reported at once, and what the
    worker still does is thrown away; until then the executor has one worker less. An executor that breaks,
    as one of processes does with the first that dies, loses everything that it has.
    """

    dumps = staticmethod(dumps)
    """How calls are pickled for its workers."""

    def __init__(self, executor: Executor, *, max_workers: int | None = None) -> None:
        check_counts(max_workers=max_workers)
        sizes = (max_workers, *(getattr(executor, name, None) for name in ("_max_workers", "num_workers")))
        self._executor, self._size = executor, next((size for size in sizes if size), sys.maxsize)
        super().__init__()

    def _make_pool(self, run_path: str | None) -> Dispatcher:
        return Dispatcher(ExecutorBackend(self._executor, self._size, run_path), 1, 0.0)


class ExecutorOrder(Struct, frozen=True, array_like=True):
    """An attempt on its way to a worker."""

    serial: int
    channel: str
    """Path of the engine's channel, which also tells engines apart."""
    home: SampledFrom
    main: dict[str, str]
    work: Work


encode = msgspec.msgpack.Encoder().encode
_decode_order = msgspec.msgpack.Decoder(ExecutorOrder).decode
_decode_began = msgspec.msgpack.Decoder(AttemptStart).decode
_decode_end = msgspec.msgpack.Decoder(tuple[list[AttemptStart], Outcome]).decode


class ExecutorBackend(ClusterBackend):
    """An executor, which schedules attempts itself. Everything on the dispatcher's thread."""

    refuses = "the executor does not take it"

    def __init__(self, executor: Executor, size: int, run_path: str | None) -> None:
        super().__init__()
        self._executor, self._run_path = executor, run_path
        self.slots = size
        self._futures: dict[int, Future[bytes]] = {}
        self._workers: dict[str, dict[str, Any]] = {}
        """Name, host and process of those that have executed attempts, by their name."""
        self._receiver = ChunkReceiver(run_path)

    def can_end(self, attempt: Attempt) -> bool:
        """Whether it has not begun."""
        return attempt.begun is None

    def views(self) -> Iterator[WorkerView]:
        """The workers that have executed attempts."""
        running = [attempt for attempt in list(self.held.values()) if not attempt.over]
        for name, facts in list(self._workers.items()):
            tasks = tuple(attempt.work.task_id for attempt in running if attempt.worker == name)
            yield WorkerView(**facts, running=tasks)

    def open(self, dispatcher: Dispatcher) -> None:
        """Begin."""
        super().open(dispatcher)
        self._channel = ChannelServer(self._hear)
        self._loop.watch(self._channel.fd, self, lambda _events: self._channel.listen())
        self._setup = self._channel.path, sampled_from_here(self._run_path), main_program()

    def send(self, attempt: Attempt) -> None:
        """Hand an attempt to the executor. Raises whatever that raises."""
        work = msgspec.structs.replace(attempt.work, args={})
        future = self._executor.submit(run_attempt, encode(ExecutorOrder(attempt.serial, *self._setup, work)))
        self._futures[attempt.serial] = future
        future.add_done_callback(lambda done: self._loop.post(self._answered, attempt, done))

    def end_attempt(self, attempt: Attempt, why: str) -> None:  # noqa: ARG002 - the verdict says it
        """Take an attempt that was judged from the executor, or wait for it no more."""
        self._futures[attempt.serial].cancel()
        self.lose(attempt, ExitReason(CLOSED), self._home_of(attempt))

    def release(self, attempt: Attempt) -> None:
        """The executor has an attempt no more."""
        super().release(attempt)
        self._futures.pop(attempt.serial, None)

    def stop(self) -> None:
        """Have all workers leave the run; they go on."""
        self._channel.dismiss(EngineLimits.leave_timeout_s)
        self._lose_workers(ExitReason(CLOSED), expected=True)
        super().stop()

    def close(self) -> None:
        """All is over."""
        self._channel.close()
        self._receiver.close()

    def _home_of(self, attempt: Attempt) -> tuple[str | None, int | None]:
        facts = self._workers.get(attempt.worker or "", {})
        return facts.get("host"), facts.get("pid")

    def _hear(self, _pid: int, kind: bytes, text: bytes) -> None:
        if kind == BEGAN:
            self._begun(_decode_began(text))
        else:
            self._receiver.take(text)

    def _begun(self, began: AttemptStart) -> None:
        attempt = self.held.get(began.serial)
        if attempt is None or attempt.begun is not None:
            return
        name = began.facts["worker"]
        if name not in self._workers:
            self._workers[name] = began.facts
            for event in (WorkerLaunched, WorkerReady):
                self._dispatcher.attempts.worker(event(timestamp=began.started.timestamp, **began.facts))
        self._dispatcher.started(attempt, name, began.started)

    def _answered(self, attempt: Attempt, answer: Future[bytes]) -> None:
        """The executor says what became of an attempt."""
        self._channel.listen()  # what its worker said itself comes first
        if attempt.over:
            return
        try:
            starts, outcome = _decode_end(answer.result())
        except Exception as error:  # noqa: BLE001 - whatever befell the executor
            death = ExitReason(f"the executor lost it: {type(error).__name__}: {error}")
            self.lose(attempt, death, self._home_of(attempt))
            self._lose_workers(death, expected=False)
        else:
            for began in starts:
                self._begun(began)
            self.end(attempt, outcome)

    def _lose_workers(self, death: ExitReason, *, expected: bool) -> None:
        while self._workers:
            _, facts = self._workers.popitem()
            self._dispatcher.attempts.worker_ended(facts, death, expected=expected, uptime_s=None)


# --- on a worker

_links: dict[tuple[int, str], tuple[ChannelClient, WorkerRecording]] = {}
"""The way to an engine, and what is recorded for it, by this process and the engine's channel."""


def run_attempt(order: bytes) -> bytes:
    """Execute an attempt here; gives its start and its outcome, and raises nothing of the task's."""
    serial, path, home, main, work = msgspec.structs.astuple(_decode_order(order))
    host, pid = this_host(), os.getpid()
    name = lane_name(host, pid)
    if (pid, path) not in _links:
        channel = ChannelClient(path, partial(_leave, pid, path))
        recording = WorkerRecording(lane_name(host, pid, main=True), home, partial(channel.tell, CHUNK))
        _links.setdefault((pid, path), (channel, recording))
    channel, recording = _links[pid, path]
    said: list[AttemptStart] = []

    def begun(started: Started) -> None:
        said.append(AttemptStart(serial, started, {"worker": name, "host": host, "pid": pid}))
        with suppress(OSError):  # on another host: it is told with the end
            channel.tell(BEGAN, encode(said[0]))

    is_program = (host, pid) == (home.host, home.pid)
    placed = recording.placed(work if is_program else with_main(work, main))
    alone = name == lane_name(host, pid, main=True)
    outcome = execute(placed, worker=name, alone=alone, started=begun, dumps=dumps)
    recording.settle()
    return encode((said, outcome))


def _leave(pid: int, path: str) -> None:
    """The engine is over."""
    _, recording = _links.pop((pid, path))
    recording.leave()
