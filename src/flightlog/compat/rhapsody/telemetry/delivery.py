"""Events to those who listen, off the user's event loop; what is async runs there, for it may belong
there.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from flightlog.compat.rhapsody.telemetry.events import BaseEvent

log = logging.getLogger(__name__)

PATIENCE_S = 30.0
"""How long the end of telemetry waits for a listener."""


class Listener:
    """Calls one function with every event, in order, on a thread of its own; a coroutine function on the
    event loop.

    A slow one delays nobody, and gets everything all the same. One that raises misses that event.
    """

    def __init__(self, callback: Callable[[BaseEvent], Any], loop: asyncio.AbstractEventLoop | None) -> None:
        self._callback, self._loop = callback, loop
        self._async = inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
            getattr(callback, "__call__", None)  # noqa: B004 - an object with an async `__call__`
        )
        self._pending: set[asyncio.Task[None]] = set()
        self._queue: SimpleQueue[BaseEvent | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._deliver, name="telemetry-listener", daemon=True)
        self._thread.start()

    def tell(self, event: BaseEvent) -> None:
        """Queue an event; never waits."""
        self._queue.put(event)

    async def finish(self) -> None:
        """Deliver what is waiting, and then nothing more."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join, PATIENCE_S)
        await asyncio.sleep(0)  # what the thread has handed to the loop begins
        if self._pending:
            await asyncio.wait(set(self._pending), timeout=PATIENCE_S)
        left = self._queue.qsize() + len(self._pending)
        if left:
            log.warning("a subscriber is too slow: it did not take %d events in %g s", left, PATIENCE_S)

    def _deliver(self) -> None:
        while (event := self._queue.get()) is not None:
            try:
                if self._async:
                    self._hand_over(event)
                else:
                    self._callback(event)
            except Exception:
                log.debug("a subscriber raised", exc_info=True)

    def _hand_over(self, event: BaseEvent) -> None:
        if self._loop is None:
            asyncio.run(self._callback(event))
            return
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._begin, event)

    def _begin(self, event: BaseEvent) -> None:
        task = asyncio.ensure_future(self._call(event))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _call(self, event: BaseEvent) -> None:
        try:
            await self._callback(event)
        except Exception:
            log.debug("a subscriber raised", exc_info=True)


def in_a_thread(work: Callable[[], None], name: str) -> Future[None]:
    """Do something on a thread that does not keep the program from ending; the future is done when that is
    over.
    """
    future: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
