"""An attempt inside one of Ray's worker processes, and how it reports to its engine: by a local socket on the
engine's host, from others by a mailbox that Ray hosts.

Messages survive the death of the worker that sent them: the kernel keeps what was written into a socket, and
the mailbox is an actor of its own. Other ways home pass through the worker's threads, and are lost with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Struct

from flightlog.engines import program
from flightlog.engines.contract import Outcome, Work
from flightlog.engines.event_loop import EventLoop
from flightlog.engines.execute import Started
from flightlog.engines.limits import EngineLimits, RayLimits
from flightlog.engines.processes import start_of
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
from flightlog.engines.relay.recording import SampledFrom, WorkerRecording, sampled_from_here
from flightlog.record.task import lane_name
from flightlog.store.liveness import this_host


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


class Began(AttemptStart, frozen=True):
    """An attempt began; also which of Ray's workers executes it."""

    ray_worker: str
    """Ray's own name of the worker, in hex."""
    process_start: float | None = None
    """Unix time at which the process was started."""
    ready: float | None = None
    """Unix time at which it had imported what executes attempts."""


class Done(Struct, frozen=True, kw_only=True):
    """An attempt is over, in the words of the process it ran in."""

    began: Began | None
    outcome: Outcome
    mute: bool
    """Whether its process has no way to the engine but this."""


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
        self.worker: str = self.who.facts["worker"]
        self.recording = WorkerRecording(self.worker, setup.home, partial(self.tell, CHUNK))
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
    if mailbox is not None:
        link.mailbox = mailbox
    work = link.recording.placed(with_main(work, link.setup.main))
    start = partial(msgspec.structs.replace, link.who, serial=serial)
    said, outcome = execute_and_tell(
        work,
        worker=link.worker,
        alone=True,
        dumps=dumps,
        start=lambda started: start(started=started),
        tell=link.tell,
    )
    if not link.mute:
        link.recording.settle()
    return encode(Done(began=said[0] if said else None, outcome=outcome, mute=link.mute))


def _who() -> Began:
    """Who this process is, in what it says of each attempt."""
    import ray

    host, pid = this_host(), os.getpid()
    facts = {"worker": lane_name(host, pid, main=True), "host": host, "pid": pid}
    ray_worker = ray.get_runtime_context().get_worker_id()
    return Began(0, Started("", 0, None), facts, ray_worker, start_of(pid), time.time())


log = logging.getLogger("flightlog")


class RayHome:
    """Takes what workers tell: starts of attempts, and chunks of what they recorded for the run.

    `begun` gets the starts, and whether the worker is a process of this host that can be seen.

    Everything on one thread, but a thread of Ray's brings what is in the mailbox: it is kept until `listen`.
    """

    def __init__(self, ray: Any, run_path: str | None, begun: Callable[[Began, bool], None]) -> None:
        self._ray, self._run_path, self._begun = ray, run_path, begun
        self._receiver = ChunkReceiver(run_path)
        self._channel = ChannelServer(self._hear)
        self.mailbox: Any = None
        """The mailbox, where there are workers on other hosts."""
        self._messages_asked: Any = None
        self._wake: Callable[[], None] = lambda: None

    def open(self, loop: EventLoop, owner: object) -> None:
        """Open the local channel; where that is not possible, workers say all they have to say with the end
        of each task.
        """
        self._wake = partial(loop.post, self.listen)
        self._channel.watch(loop, owner)
        home, main, path = sampled_from_here(self._run_path), main_program(), self._channel.path
        self.setup = encode(RayWorkerSetup(engine=uuid4().hex, channel=path, home=home, main=main))

    def reach_far(self) -> None:
        """See to it that workers which cannot use the local channel have a way home from their next task
        on.
        """
        if self.mailbox is None:
            self.mailbox = make_mailbox(self._ray)
            self._ask()

    def listen(self) -> None:
        """Take everything that has been said, without waiting."""
        self._channel.listen()
        asked = self._messages_asked
        if asked is not None and asked.done():
            self._messages_asked = None
            try:
                messages = asked.result()
            except Exception as error:  # noqa: BLE001 - the mailbox is gone with its node: another is made
                log.warning("what workers on other hosts say is lost for a moment: %s", error)
                self.mailbox = None
                return
            for kind, text in messages:
                self._hear(0, kind, text)
            self._ask()

    def dismiss(self) -> None:
        """Have all workers leave the run, and take the last of what they have to say."""
        wait_s = EngineLimits.leave_timeout_s
        self._channel.dismiss(wait_s)
        if self.mailbox is not None:
            with suppress(Exception):  # the cluster may be gone: what came, came
                self._ray.get(self.mailbox.dismiss.remote(wait_s), timeout=2 * wait_s)
                self.listen()
                for kind, text in self._ray.get(self.mailbox.rest.remote(), timeout=wait_s):
                    self._hear(0, kind, text)
        self.listen()

    def close(self) -> None:
        """Hear no more; what came is written."""
        self._receiver.close()
        self._channel.close()
        if self.mailbox is not None:
            with suppress(Exception):  # it ends with this program at the latest
                self._ray.kill(self.mailbox)

    def _ask(self) -> None:
        self._messages_asked = self.mailbox.take.remote().future()
        self._messages_asked.add_done_callback(lambda _done: self._wake())

    def _hear(self, pid: int, kind: bytes, text: bytes) -> None:
        if kind == BEGAN:
            try:
                began = decode_began(text)
            except msgspec.MsgspecError as error:
                log.warning("a worker cannot be understood: %s", error)
                return
            self._begun(began, pid == began.facts["pid"])  # in a container, numbers mean other processes
        elif kind == CHUNK:
            self._receiver.take(text)


class Mailbox:
    """An actor on the engine's node: workers post, the engine takes. What was posted outlives the worker that
    did.
    """

    def __init__(self) -> None:
        self._box: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue(
            maxsize=16 * RayLimits.max_messages_taken
        )
        self._over = asyncio.Event()
        self._attending = 0
        self._changed = asyncio.Event()

    async def post(self, kind: bytes, text: bytes) -> None:
        """Leave a message; waits while the box is full."""
        await self._box.put((kind, text))

    async def take(self) -> list[tuple[bytes, bytes]]:
        """What has been posted, in order; waits for a first one."""
        messages = [await self._box.get()]
        while not self._box.empty() and len(messages) < RayLimits.max_messages_taken:
            messages.append(self._box.get_nowait())
        return messages

    async def attend(self) -> None:
        """A worker waits for the end of its engine, after which it has something to do and then calls
        `leave`.
        """
        self._attending += 1
        await self._over.wait()

    async def leave(self) -> None:
        """A worker has done what it had to."""
        self._attending -= 1
        self._changed.set()

    async def dismiss(self, timeout_s: float) -> None:
        """Tell all workers that it is over, and wait until each has left, so long at most."""
        self._over.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._attending > 0:
                    self._changed.clear()
                    await self._changed.wait()

    async def rest(self) -> list[tuple[bytes, bytes]]:
        """What nobody has taken."""
        return [self._box.get_nowait() for _ in range(self._box.qsize())]


def make_mailbox(ray: Any) -> Any:
    """A mailbox on this node, that takes no CPU from tasks and goes with this program."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    actor = ray.remote(num_cpus=0, max_restarts=0, max_concurrency=1000)(Mailbox)
    return actor.options(scheduling_strategy=here).remote()
