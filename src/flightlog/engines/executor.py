"""Attempts on an executor of the program's own: of `concurrent.futures`, `mpi4py.futures`, or any other
`Executor`.

Workers on this host say by a named socket that an attempt began; from other hosts, that is known when it has
ended.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Struct

from flightlog.core.settings import parse_traceparent
from flightlog.engines import program
from flightlog.engines.attempts import CLOSED, Attempt
from flightlog.engines.contract import Outcome, PooledEngine, Work, WorkerView, check_counts
from flightlog.engines.dispatcher import ClusterBackend, Dispatcher
from flightlog.engines.limits import EngineLimits
from flightlog.engines.processes import ExitReason, start_of
from flightlog.engines.program import main_program, with_main
from flightlog.engines.relay.channel import (
    BEGAN,
    CHUNK,
    AttemptStart,
    ChannelClient,
    ChannelServer,
    encode,
    execute_and_tell,
)
from flightlog.engines.relay.chunks import ChunkReceiver
from flightlog.engines.relay.recording import SampledFrom, WorkerRecording, is_seen, sampled_from_here
from flightlog.events import WorkerLaunched, WorkerReady
from flightlog.record.background import is_over
from flightlog.record.clock import Clock
from flightlog.record.context import RUN, TRACEPARENT
from flightlog.record.task import lane_name
from flightlog.store.liveness import this_host

HELLO = b"H"
_WHO = ("worker", "host", "pid")
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

    provider = "executor"
    """What a run is said to have run on, whatever the target of its manifest."""
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
    engine: str
    channel: str | None
    """Path of the engine's channel, where there is one."""
    home: SampledFrom
    main: dict[str, str]
    work: Work


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
        self._gone: set[int] = set()
        """Processes of this host whose connection was closed, as it is when they end."""
        self._receiver = ChunkReceiver(run_path)
        self._channel = ChannelServer(self._hear, self._on_gone)
        self._clock, self._opened = Clock(), time.time()

    def can_end(self, attempt: Attempt) -> bool:
        """Whether the executor can still let it go."""
        future = self._futures.get(attempt.serial)
        return attempt.begun is None and (future is None or not future.running())

    def views(self) -> Iterator[WorkerView]:
        """The workers that have executed attempts."""
        for name, facts in list(self._workers.items()):
            yield WorkerView(**facts, running=tuple(one.work.task_id for one in self._running_on(name)))

    def open(self, dispatcher: Dispatcher) -> None:
        """Begin. Without a channel, starts are told with the ends."""
        super().open(dispatcher)
        self._channel.watch(self._loop, self)
        self._setup = uuid4().hex, self._channel.path, sampled_from_here(self._run_path), main_program()

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
        self._end_workers(list(self._workers), ExitReason(CLOSED), expected=True)
        self._channel.dismiss(EngineLimits.leave_timeout_s)
        super().stop()

    def close(self) -> None:
        """All is over."""
        self._channel.close()
        self._receiver.close()

    def _home_of(self, attempt: Attempt) -> tuple[str | None, int | None]:
        facts = self._workers.get(attempt.worker or "", {})
        return facts.get("host"), facts.get("pid")

    def _running_on(self, name: str) -> list[Attempt]:
        return [one for one in list(self.held.values()) if one.worker == name and not one.over]

    def _hear(self, _pid: int, kind: bytes, text: bytes) -> None:
        if kind == BEGAN:
            with suppress(msgspec.MsgspecError):  # of another version: it is told with the end
                self._begun(_decode_began(text))
        elif kind == CHUNK:
            self._receiver.take(text)

    def _begun(self, began: AttemptStart) -> None:
        attempt = self.held.get(began.serial)
        if attempt is None or attempt.begun is not None:
            return
        launched, ready, *facts = (began.facts[name] for name in ("launched", "ready", *_WHO))
        who = dict(zip(_WHO, facts, strict=True))
        self._gone.discard(who["pid"])
        if who["worker"] not in self._workers:
            self._workers[who["worker"]] = who
            tell, moments = self._dispatcher.attempts.worker, (max(launched, self._opened), ready)
            tell(WorkerLaunched(timestamp=self._timestamp(min(moments)), **who))
            tell(WorkerReady(timestamp=self._timestamp(ready), launch_s=ready - min(moments), **who))
        self._dispatcher.started(attempt, who["worker"], began.started)

    def _timestamp(self, moment: float) -> str:
        return self._clock.iso(int(moment * 1e9) - self._clock.anchor_ns)

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
            if isinstance(error, BrokenExecutor):
                self._end_workers(list(self._workers), death, expected=False)
        else:
            for began in starts:
                self._begun(began)
            self.end(attempt, outcome)
            self._on_gone(None)

    def _on_gone(self, pid: int | None) -> None:
        """A process of this host closed its connection: workers there that execute nothing are over."""
        self._gone |= {pid} if pid else set()
        ended = [
            name
            for name, facts in self._workers.items()
            if facts["pid"] in self._gone and facts["host"] == this_host() and not self._running_on(name)
        ]
        self._end_workers(ended, ExitReason("its connection was closed"), expected=True)

    def _end_workers(self, names: list[str], death: ExitReason, *, expected: bool) -> None:
        for name in names:
            facts = self._workers.pop(name)
            self._dispatcher.attempts.worker_ended(facts, death, expected=expected, uptime_s=None)


# --- on a worker

_links: dict[tuple[int, str], EngineLink] = {}
"""By this process and the engine."""
_making: dict[tuple[int, str], threading.Lock] = {}
"""Held while one of them is made, so that two threads make one; a forked process has others."""


class EngineLink:
    """What one process has to do with an engine: the way to it, what is recorded for it, and its lanes, which
    are the workers of a process that executes several attempts at once.
    """

    def __init__(self, order: ExecutorOrder) -> None:
        self.host, self.pid, home = this_host(), os.getpid(), order.home
        self._key = self.pid, order.engine
        self.name = lane_name(self.host, self.pid, main=True)
        self.is_program = (self.host, self.pid) == (home.host, home.pid)
        self.ready = time.time()
        self.launched = (None if self.is_program else start_of(self.pid)) or self.ready
        """Unix times at which the process was started, and could execute attempts."""
        self._busy: set[int] = set()
        self._lock = threading.Lock()
        self._waits_for: Path | None = None
        self.tell = ChannelClient(order.channel, self.leave).tell
        self.recording = WorkerRecording(self.name, home, partial(self.tell, CHUNK))
        self.reaches = False
        with suppress(Exception):  # on another host: all is told with the ends
            self.tell(HELLO, b"")
            self.reaches = True

    def placed(self, work: Work) -> Work:
        """An attempt with the place where it is recorded: nowhere, where neither the run directory nor the
        engine can be reached.
        """
        ids = parse_traceparent(work.place.get(TRACEPARENT))
        if self.reaches or self.is_program or ids is None:
            return self.recording.placed(work)
        if not is_seen(work.place[RUN], ids[0]):
            return msgspec.structs.replace(work, place={})
        with self._lock:
            if self._waits_for is None:
                self._waits_for = Path(work.place[RUN])
                threading.Thread(target=self._wait, name="flightlog-executor", daemon=True).start()
        return self.recording.placed(work)

    def _wait(self) -> None:
        """Leave the run when it is over, which nobody here is told."""
        assert self._waits_for is not None
        while self._waits_for.exists() and not is_over(self._waits_for):
            time.sleep(EngineLimits.run_check_interval_s)
        self.leave()

    def leave(self) -> None:
        """The engine is over: leave the run, unless this is the program itself."""
        _links.pop(self._key, None)
        _making.pop(self._key, None)
        if not self.is_program:
            self.recording.leave()

    @contextmanager
    def lane(self) -> Iterator[str]:
        """The name of the worker that this thread is meanwhile."""
        if threading.current_thread() is threading.main_thread():
            yield self.name
            return
        with self._lock:
            number = next(number for number in count(1) if number not in self._busy)
            self._busy.add(number)
        try:
            yield f"{self.name}/worker-{number}"
        finally:
            self._busy.discard(number)


def run_attempt(order: bytes) -> bytes:
    """Execute an attempt here; gives its start and its outcome, and raises nothing of the task's."""
    wanted = _decode_order(order)
    key = os.getpid(), wanted.engine
    with _making.setdefault(key, threading.Lock()):
        link = _links.get(key) or _links.setdefault(key, EngineLink(wanted))
    with link.lane() as name:
        facts = {"worker": name, "host": link.host, "pid": link.pid}
        facts |= {"launched": link.launched, "ready": link.ready}
        work = link.placed(wanted.work if link.is_program else with_main(wanted.work, wanted.main))
        said, outcome = execute_and_tell(
            work,
            worker=name,
            alone=name == link.name,
            dumps=dumps,
            start=lambda started: AttemptStart(wanted.serial, started, facts),
            tell=link.tell,
        )
    if link.reaches:
        link.recording.settle()
    return encode((said, outcome))
