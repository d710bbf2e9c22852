"""An attempt on a Dask worker: a coroutine of the worker's event loop, which waits for a thread that executes
it.

Not the worker's own threads: nothing can end a thread, and one of those that never comes back takes a slot of
the worker with it. Here an attempt can be written off: the coroutine returns, the worker takes the next one,
and what the thread still does is thrown away.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import re
import struct
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from flightlog.core.descriptors import Descriptor, map_file
from flightlog.engines.contract import Outcome, Work
from flightlog.engines.dask.messages import hand_over, topics, watch_name
from flightlog.engines.execute import Started, execute
from flightlog.engines.limits import DaskLimits
from flightlog.engines.processes import descendants, end_all, is_running
from flightlog.engines.program import dumps
from flightlog.engines.relay.recording import UNSAMPLED, WorkerRecording
from flightlog.record.span import current
from flightlog.store.liveness import this_host

log = logging.getLogger("flightlog")


class DaskOrder(Struct, frozen=True, array_like=True):
    """An attempt as it travels to a worker."""

    engine: str
    serial: int
    work: Work
    """Without the arguments as recorded: the call has the real ones."""


class Note(Struct, array_like=True, omit_defaults=True):
    """What happened to an attempt."""

    serial: int
    started: Started | None = None
    outcome: Outcome | None = None
    kept: bool = False
    """The result waits on the worker, as Dask's result of the attempt."""


class WorkerNotes(Struct, array_like=True):
    """Notes on their way home, and who sends them."""

    worker: str
    host: str
    pid: int
    alone: bool
    """The worker is a process with a nanny that executes one task at a time."""
    notes: list[Note]


encode = msgspec.msgpack.Encoder().encode
decode_notes = msgspec.msgpack.Decoder(WorkerNotes).decode
_decode_order = msgspec.msgpack.Decoder(DaskOrder).decode
_decode_started = msgspec.msgpack.Decoder(Started).decode


async def run_attempt(order: bytes) -> bytes | None:
    """Run an attempt on this worker and send home what becomes of it; the result itself is given if it is
    large.
    """
    from distributed import get_worker

    wanted = _decode_order(order)
    return await station_of(get_worker(), wanted.engine).run(wanted)


class JobThreads:
    """Threads that run jobs at once, one more wherever all are busy; none keeps a program from ending."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = self._launched = 0

    def run(self, job: Callable[[], None]) -> None:
        """Run a job, which must not raise, on a thread that has nothing to do."""
        self._jobs.put(job)
        with self._lock:
            if self._idle:
                self._idle -= 1
                return
            self._launched += 1
            name = f"flightlog-task-{self._launched}"
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while True:
            self._jobs.get()()
            with self._lock:
                self._idle += 1


_job_threads = JobThreads()
_stations: WeakKeyDictionary[Any, dict[str, Station]] = WeakKeyDictionary()


def station_of(worker: Any, engine: str) -> Station:
    """What a worker knows of an engine."""
    stations = _stations.setdefault(worker, {})
    if engine not in stations:
        stations[engine] = Station(worker, engine)
    return stations[engine]


class Station:
    """An engine's attempts on one worker. On the worker's event loop alone, but for what its threads note."""

    def __init__(self, worker: Any, engine: str) -> None:
        self._worker, self._engine = worker, engine
        self._name = watch_name(engine)
        self._alone = bool(worker.nanny) and worker.state.nthreads == 1
        self._began = BeganFile(engine, worker.address) if worker.nanny else None
        self._loop = asyncio.get_running_loop()
        self._notes: deque[Note] = deque()
        self._flushing = False
        self._to_begin: dict[int, None] = {}
        """Attempts whose thread has still to say that it began."""
        self._runs: dict[int, asyncio.Future[Outcome | None]] = {}
        self._doomed: set[int] = set()
        """Attempts that the process is ended for; nothing more is told of them."""
        self._ending: asyncio.Task[None] | None = None
        # The observer's plugin samples this worker.
        self.recording = WorkerRecording(worker.address, UNSAMPLED, self._send_home)

    async def run(self, order: DaskOrder) -> bytes | None:
        """One attempt, from its thread's start to its end or until it is written off."""
        serial = order.serial
        over: asyncio.Future[Outcome | None] = self._loop.create_future()
        self._runs[serial] = over
        self._to_begin[serial] = None
        context = copy_context()
        context.run(current.set, None)
        _job_threads.run(lambda: self._execute(order, over, context))
        self._flush_soon()
        try:
            outcome = await over  # cancelled when the worker closes: then it stays noted as begun
        finally:
            self._runs.pop(serial, None)
        if serial in self._doomed:
            await self._loop.create_future()  # the worker takes no other one before it is ended
        if self._began is not None:
            self._began.end(serial)
        if outcome is None:
            return None
        kept, result = False, outcome.result
        if result is not None and len(result) > DaskLimits.max_result_bytes_in_note:
            outcome.result, kept = None, True
        self._notes.append(Note(serial, None, outcome, kept))
        self._flush_soon()
        return result if kept else None

    def end_process(self, serials: list[int], grace_s: float) -> bool:
        """Begin to end this process if one of these runs here; whether one does."""
        running = [serial for serial in serials if serial in self._runs and not self._runs[serial].done()]
        self._doomed.update(running)
        if running and self._ending is None:
            self._ending = self._loop.create_task(_end_this_process(grace_s))
        return bool(running)

    def give_up(self, serials: list[int]) -> None:
        """Wait no more for these; nothing is told of them."""
        for serial in serials:
            over = self._runs.get(serial)
            if over is not None and not over.done():
                over.set_result(None)

    def close(self) -> None:
        """The engine is gone."""
        self.give_up(list(self._runs))
        self.flush()
        if self._began is not None:
            self._began.close()

    def flush(self) -> None:
        """Send what was noted; on the event loop."""
        self._flushing = False
        while self._notes:
            count = min(DaskLimits.max_notes_per_message, len(self._notes))
            notes = [self._notes.popleft() for _ in range(count)]
            said = WorkerNotes(self._worker.address, this_host(), os.getpid(), self._alone, notes)
            self._worker.log_event(self._name, encode(said))
        if self._to_begin:
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_later(DaskLimits.note_flush_s, self.flush)

    # --- on a thread

    def _execute(self, order: DaskOrder, over: asyncio.Future[Outcome | None], context: Context) -> None:
        work = order.work

        def begun(started: Started) -> None:
            if self._began is not None:
                self._began.begin(order.serial, started)
            self._notes.append(Note(order.serial, started))  # sent by the flush that waits for it
            self._to_begin.pop(order.serial, None)

        how = {"worker": self._worker.address, "alone": self._alone, "started": begun, "dumps": dumps}
        outcome: Outcome = context.run(partial(execute, self.recording.placed(work), **how))
        self.recording.settle()  # what it recorded arrives before its end does
        try:
            self._loop.call_soon_threadsafe(_settle, over, outcome)
        except RuntimeError:
            log.info("a task ended after its worker had: %s", work.task)  # the loop is closed: nobody listens

    def _send_home(self, chunk: bytes) -> None:
        """Hand a chunk to the scheduler, which passes it on; waits for that. On the relay's own thread."""
        hand_over(self._worker, topics(self._name)[2], chunk)


def _settle(over: asyncio.Future[Outcome | None], outcome: Outcome) -> None:
    if not over.done():
        over.set_result(outcome)


# --- what the engine asks of a worker, by `Client.run`


def give_up(engine: str, serials: list[int], dask_worker: Any = None) -> None:
    """Write attempts off that may be running here."""
    if engine in _stations.get(dask_worker, {}):
        station_of(dask_worker, engine).give_up(serials)


async def leave(engine: str, timeout_s: float, dask_worker: Any = None) -> None:
    """The engine closes: send everything that is recorded here home, and forget it."""
    station = _stations.get(dask_worker, {}).pop(engine, None)
    if station is not None:
        station.close()
        await asyncio.to_thread(station.recording.leave, timeout_s)


async def end_process(engine: str, serials: list[int], grace_s: float, dask_worker: Any = None) -> bool:
    """Have this worker process end with the processes below it: those get SIGTERM, and SIGKILL after so many
    seconds. False, and nothing is ended, where none of these attempts runs here any more.
    """
    return station_of(dask_worker, engine).end_process(serials, grace_s)


async def _end_this_process(grace_s: float) -> None:
    import signal

    below = descendants()
    end_all(below, "terminate")
    by = time.monotonic() + grace_s
    while below and time.monotonic() < by and any(is_running(process) for process in below):
        await asyncio.sleep(0.02)
    end_all(below, "kill")
    os.kill(os.getpid(), signal.SIGKILL)


_SLOT = struct.Struct("<Q64p")
"""The attempt's number, 0 where the slot is free; then when it began, as `Started` is encoded."""
_SERIAL = struct.Struct("<Q")


class BeganFile:
    """The attempts that this process executes for one engine; thread-safe. Where there is no room for a file,
    it does nothing.
    """

    def __init__(self, engine: str, worker: str, folder: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._free = list(range(DaskLimits.max_noted_attempts))
        self._slots: dict[int, int] = {}
        self._path = began_path(engine, worker, folder)
        self._map: mmap.mmap | None = None
        with suppress(OSError):
            self._map = _make(self._path)

    def begin(self, serial: int, started: Started) -> None:
        """An attempt began."""
        with self._lock:
            if self._map is None or not self._free:
                return
            slot = self._slots[serial] = self._free.pop()
            at = slot * _SLOT.size
            self._map[at : at + _SLOT.size] = _SLOT.pack(0, encode(started))
            self._map[at : at + _SERIAL.size] = _SERIAL.pack(serial)

    def end(self, serial: int) -> None:
        """It is over."""
        with self._lock:
            slot = self._slots.pop(serial, None)
            if slot is None or self._map is None:
                return
            at = slot * _SLOT.size
            self._map[at : at + _SERIAL.size] = _SERIAL.pack(0)
            self._free.append(slot)

    def close(self) -> None:
        """Remove the file: nobody will ask."""
        with self._lock:
            if self._map is not None:
                self._map.close()
                self._map = None
                with suppress(OSError):
                    self._path.unlink()


def read_began(engine: str, worker: str, folder: Path | None = None) -> dict[int, Started]:
    """What a process that is gone had begun and not ended, by the attempts' numbers. Reading it removes it.

    The file is there from the first attempt that a worker takes: without one, it began none.
    """
    path = began_path(engine, worker, folder)
    try:
        content = path.read_bytes()
        path.unlink()
    except OSError:
        return {}
    noted = _SLOT.iter_unpack(content[: len(content) // _SLOT.size * _SLOT.size])
    return {serial: _decode_started(started) for serial, started in noted if serial}


def forget_began(engine: str, folder: Path | None = None) -> None:
    """Remove the files of an engine on this host: of workers that died while they had nothing to do."""
    for path in began_path(engine, "", folder).parent.glob(f"flightlog-began-{os.getuid()}-{engine}-*"):
        with suppress(OSError):
            path.unlink()


def began_path(engine: str, worker: str, folder: Path | None = None) -> Path:
    """Where the file of a worker lies on its host."""
    folder = folder or Path(tempfile.gettempdir())
    name = re.sub(r"[^A-Za-z0-9.]+", "-", worker)
    return folder / f"flightlog-began-{os.getuid()}-{engine}-{name}"


def _make(path: Path) -> mmap.mmap:
    size = DaskLimits.max_noted_attempts * _SLOT.size
    with suppress(OSError):
        path.unlink()  # of a worker before, at the same address
    file = Descriptor.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.posix_fallocate(file.fd, 0, size)  # a full disk is an error here, and not a signal later
        return map_file(file.fd, size)
    finally:
        file.close()
