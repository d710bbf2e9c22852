"""An attempt inside one of Ray's worker processes: a Ray task that executes it, and says when it began."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.engines import program
from flightlog.engines.contract import Outcome, Work
from flightlog.engines.execute import Started, execute
from flightlog.engines.local_channel import ChannelClient
from flightlog.engines.program import with_main
from flightlog.engines.worker_recording import SampledFrom, WorkerRecording
from flightlog.record.task import lane_name
from flightlog.store.liveness import this_host

BEGAN, CHUNK = b"B", b"P"


class RayWorkerSetup(Struct, frozen=True, kw_only=True):
    """What every attempt of one engine has in common."""

    engine: str
    channel: str | None
    """Path of the engine's local channel, for workers on its host."""
    home: SampledFrom
    main: dict[str, str] = {}
    """Where functions of the main program are found, as `multiprocessing` has it."""


class RayOrder(Struct, frozen=True, array_like=True):
    """An attempt on its way to a worker: all in one, for Ray packs every argument by itself."""

    serial: int
    setup: bytes
    work: Work


class Began(Struct, frozen=True, kw_only=True):
    """An attempt began; also who executes it."""

    serial: int
    started: Started
    worker: str
    host: str
    pid: int
    node: str
    """Ray's own name of the node and of the worker, in hex."""
    ray_worker: str
    process_start: float | None = None
    """Unix time at which the process was started."""


class Done(Struct, frozen=True, kw_only=True):
    """An attempt is over, in the words of the process it ran in."""

    began: Began | None
    outcome: Outcome
    mute: bool
    """Whether its process has no way to the engine but this."""


encode = msgspec.msgpack.Encoder().encode
_decode_order = msgspec.msgpack.Decoder(RayOrder).decode
_decode_setup = msgspec.msgpack.Decoder(RayWorkerSetup).decode
decode_began: Callable[[bytes], Began] = msgspec.msgpack.Decoder(Began).decode
decode_done: Callable[[bytes], Done] = msgspec.msgpack.Decoder(Done).decode

dumps = partial(program.dumps, cloudpickle="ray.cloudpickle", main_is_there=True)
"""Pickles calls for workers, and results for the program."""

_links: dict[bytes, EngineLink] = {}
"""Ways home by engine; a process of Ray serves one program, which may have several engines in a row."""


class EngineLink:
    """How this process tells its engine something: through the local channel on its host, else by a letter
    box that Ray hosts.

    When the engine is over, this process leaves the runs it recorded into for it.
    """

    def __init__(self, setup: RayWorkerSetup) -> None:
        self.setup, self.who = setup, _who()
        self.recording = WorkerRecording(self.who.worker, setup.home, self._send)
        self._channel = None if setup.channel is None else ChannelClient(setup.channel, self.recording.leave)
        self.mailbox: Any = None
        self._attends = False
        self.mute = False
        """Whether nothing could be told last time."""

    def tell(self, kind: bytes, text: bytes) -> None:
        """Say something, so that it is known whatever becomes of this process. `OSError` if there is no
        link.
        """
        if self._channel is not None:
            try:
                self._channel.tell(kind, text)
                return
            except OSError:
                self._channel = None  # another host, or another file system
        self.mute = self.mailbox is None
        if self.mute:
            raise OSError("there is no way to the engine from here")
        import ray

        if not self._attends:
            self._attends = True
            threading.Thread(target=self._attend, name="flightlog-mailbox", daemon=True).start()
        ray.get(self.mailbox.post.remote(kind, text))

    def _send(self, chunk: bytes) -> None:
        self.tell(CHUNK, chunk)

    def _attend(self) -> None:
        import ray

        with suppress(Exception):  # the mailbox is gone: so is the engine, and nobody waits for anything
            ray.get(self.mailbox.attend.remote())
            self.recording.leave()
            ray.get(self.mailbox.leave.remote())


def run_attempt(order: bytes, mailbox: Any = None) -> bytes:
    """Execute an attempt in this process; the whole of a Ray task. Gives a `Done`, and raises nothing of the
    task's.
    """
    serial, setup, work = msgspec.structs.astuple(_decode_order(order))
    link = _links.get(setup)
    if link is None:
        _links.clear()
        link = _links[setup] = EngineLink(_decode_setup(setup))
    work = with_main(work, link.setup.main)
    if mailbox is not None:
        link.mailbox = mailbox
    if work.place:
        work = msgspec.structs.replace(work, place=link.recording.at(work.place))
    said: list[Began] = []

    def begun(started: Started) -> None:
        said.append(msgspec.structs.replace(link.who, serial=serial, started=started))
        try:
            link.tell(BEGAN, encode(said[0]))
        except Exception:  # noqa: BLE001 - the task runs all the same; its start is told with its end
            return

    outcome = execute(work, worker=link.who.worker, alone=True, started=begun, dumps=dumps)
    if not link.mute:
        link.recording.settle()
    return encode(Done(began=said[0] if said else None, outcome=outcome, mute=link.mute))


def _who() -> Began:
    """Who this process is, in what it says of each attempt."""
    import ray

    host, pid, context = this_host(), os.getpid(), ray.get_runtime_context()
    return Began(
        serial=0,
        started=Started("", 0, None),
        worker=lane_name(host, pid, main=True),
        host=host,
        pid=pid,
        node=context.get_node_id(),
        ray_worker=context.get_worker_id(),
        process_start=process_start(),
    )


def process_start() -> float | None:
    """When this process was started, in Unix time."""
    import psutil

    try:
        return float(min(psutil.Process().create_time(), time.time()))
    except psutil.Error:
        return None
