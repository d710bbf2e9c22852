"""A letter box that Ray hosts: how workers on other hosts tell their engine something."""

from __future__ import annotations

import asyncio
from typing import Any

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
