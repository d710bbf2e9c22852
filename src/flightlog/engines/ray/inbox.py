"""Receives messages of workers on Ray: by the local channel on this host, by Ray actor calls from others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from flightlog.engines.local_channel import ChannelServer
from flightlog.engines.program import main_program
from flightlog.engines.ray.worker import (
    BEGAN,
    PARCEL,
    Began,
    RayWorkerSetup,
    decode_began,
    encode_surroundings,
)
from flightlog.engines.worker_recording import sampled_from_here

if TYPE_CHECKING:
    from flightlog.engines.relay.recording import ChunkReceiver

log = logging.getLogger("flightlog")

LEAVE_S = 5.0
"""How long workers may take to leave the run."""


class RayHome:
    """Takes what workers tell: starts of attempts, and parcels of what they recorded for the run.

    `begun` gets the starts, and whether the worker is a process of this host that can be seen.

    Everything on one thread but letters, which a thread of Ray's brings: they are kept until `listen`.
    """

    def __init__(self, ray: Any, run_path: str | None, begun: Callable[[Began, bool], None]) -> None:
        self._ray, self._run_path, self._begun = ray, run_path, begun
        self._landing: ChunkReceiver | None = None
        self._door: ChannelServer | None = None
        self.letters: Any = None
        """The letter box, where there are workers on other hosts."""
        self._letters_asked: Any = None
        self._wake: Callable[[], None] = lambda: None

    def open(self, wake: Callable[[], None]) -> None:
        """Open the local channel; where that is not possible, workers say all they have to say with the end
        of each task.

        `wake`, called from any thread, sees to it that `listen` is called soon.
        """
        self._wake = wake
        try:
            self._door = ChannelServer(self._hear)
        except OSError as error:
            log.warning("no socket for workers can be made (%s): starts of tasks are told late", error)
        around = RayWorkerSetup(
            engine=uuid4().hex,
            door=None if self._door is None else self._door.path,
            home=sampled_from_here(self._run_path),
            main=main_program(),
        )
        self.surroundings = encode_surroundings(around)

    @property
    def fd(self) -> int | None:
        """Readable when there is something for `listen`; None without a local channel."""
        return None if self._door is None else self._door.fd

    def reach_far(self) -> None:
        """See to it that workers which cannot use the local channel have a way home from their next task
        on.
        """
        if self.letters is None:
            self.letters = make_letters(self._ray)
            self._ask()

    def listen(self) -> None:
        """Take everything that has been said, without waiting."""
        if self._door is not None:
            self._door.listen()
        asked = self._letters_asked
        if asked is not None and asked.done():
            self._letters_asked = None
            try:
                letters = asked.result()
            except Exception as error:  # noqa: BLE001 - the letter box is gone with its node: another is made
                log.warning("what workers on other hosts say is lost for a moment: %s", error)
                self.letters = None
                return
            for kind, text in letters:
                self._hear(0, kind, text)
            self._ask()

    def dismiss(self) -> None:
        """Have all workers leave the run, and take the last of what they have to say."""
        if self._door is not None:
            self._door.dismiss(LEAVE_S)
        if self.letters is not None:
            with suppress(Exception):  # the cluster may be gone: what came, came
                self._ray.get(self.letters.dismiss.remote(LEAVE_S), timeout=2 * LEAVE_S)
                self.listen()
                for kind, text in self._ray.get(self.letters.rest.remote(), timeout=LEAVE_S):
                    self._hear(0, kind, text)
        self.listen()

    def close(self) -> None:
        """Hear no more; what came is written."""
        if self._landing is not None:
            self._landing.close()
        if self._door is not None:
            self._door.close()
        if self.letters is not None:
            with suppress(Exception):  # it ends with this program at the latest
                self._ray.kill(self.letters)

    def _ask(self) -> None:
        self._letters_asked = self.letters.take.remote().future()
        self._letters_asked.add_done_callback(lambda _done: self._wake())

    def _hear(self, pid: int, kind: bytes, text: bytes) -> None:
        if kind == BEGAN:
            try:
                began = decode_began(text)
            except msgspec.MsgspecError as error:
                log.warning("a worker cannot be understood: %s", error)
                return
            self._begun(began, pid == began.pid)  # in a container, numbers mean other processes
        elif kind == PARCEL and self._run_path is not None:
            self._land(self._run_path, text)

    def _land(self, run_path: str, parcel: bytes) -> None:
        try:
            if self._landing is None:
                from flightlog.engines.relay.recording import ChunkReceiver

                self._landing = ChunkReceiver(run_path)
            self._landing.take(parcel)
        except Exception:
            log.warning("a parcel of what was recorded elsewhere was not taken", exc_info=True)


MANY = 256
"""Letters taken at once."""


class Letters:
    """An actor on the engine's node: workers post, the engine takes. What was posted outlives the worker that
    did.
    """

    def __init__(self) -> None:
        self._box: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue(maxsize=16 * MANY)
        self._over = asyncio.Event()
        self._attending = 0
        self._changed = asyncio.Event()

    async def post(self, kind: bytes, text: bytes) -> None:
        """Leave a letter; waits while the box is full."""
        await self._box.put((kind, text))

    async def take(self) -> list[tuple[bytes, bytes]]:
        """What has been posted, in order; waits for a first letter."""
        letters = [await self._box.get()]
        while not self._box.empty() and len(letters) < MANY:
            letters.append(self._box.get_nowait())
        return letters

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

    async def dismiss(self, timeout_s: float) -> bool:
        """Tell all workers that it is over, and wait until each has left; whether all did in time."""
        self._over.set()
        try:
            async with asyncio.timeout(timeout_s):
                while self._attending > 0:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def rest(self) -> list[tuple[bytes, bytes]]:
        """What nobody has taken."""
        return [self._box.get_nowait() for _ in range(self._box.qsize())]


def make_letters(ray: Any) -> Any:
    """A letter box on this node, that takes no CPU from tasks and goes with this program."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    actor = ray.remote(num_cpus=0, max_restarts=0, max_concurrency=1000)(Letters)
    return actor.options(scheduling_strategy=here).remote()
