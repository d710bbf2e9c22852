"""Sessions in an event loop: calls that would block it run on threads, what takes long is done in slices, and
ends of tasks wake it once for all that came meanwhile.

Imported when a session is first used in an event loop: `asyncio` takes long to import.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from flightlog.core import threads
from flightlog.session.limits import SessionLimits

T = TypeVar("T")
F = TypeVar("F", bound=Future[Any])


class LoopCalls:
    """Calls on an event loop that other threads ask for. The loop is woken once for all that come until it
    gets to them, and has a turn of its own after a slice of them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._post = partial(loop.call_soon_threadsafe, self._run)
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False

    def post(self, call: Callable[..., object], *args: Any) -> None:
        """Have something called on the loop soon, from any thread; nothing where the loop is closed."""
        self._calls.append((call, args))
        if not self._woken:
            self._wake()

    def _wake(self) -> None:
        self._woken = True
        with suppress(RuntimeError):  # the loop is closed
            self._post()

    def _run(self) -> None:
        self._woken = False  # before anything is looked at
        until = time.monotonic() + SessionLimits.loop_slice_s
        while self._calls:
            call, args = self._calls.popleft()
            call(*args)
            if time.monotonic() > until:
                self._wake()
                return


# By the id of the loop. They hold it, so that no other loop has that id while they are here.
_calls: WeakValueDictionary[int, LoopCalls] = WeakValueDictionary()


def loop_calls() -> LoopCalls:
    """Those of the loop that runs in this thread."""
    loop = asyncio.get_running_loop()
    found = _calls.get(id(loop))
    if found is None:
        found = _calls[id(loop)] = LoopCalls(loop)
    return found


class Signal:
    """Something to be awaited on the loop that runs here; any thread calls it when it has happened."""

    def __init__(self) -> None:
        self.happened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._post = loop_calls().post

    def __call__(self, *_told: object) -> None:
        """It has happened."""
        self._post(self._set)

    def _set(self) -> None:
        if not self.happened.done():
            self.happened.set_result(None)


class OwnThread:
    """A thread for calls that would block an event loop; `end` it.

    It lives on between them: the processes that a call starts may be made to end with the thread that started
    them, as those of Ray are. And the threads of the loop's own executor may all be busy, with tasks of the
    very session that is to be closed.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threads.Thread(target=self._run, name="flightlog-async").start()

    def end(self) -> None:
        """There are no more calls."""
        self._calls.put(None)

    async def run(self, call: Callable[..., T], *args: Any) -> T:
        """What the call gives. What it sets in its context is set here, then.

        Where this is cancelled, the end of the call is waited for all the same.
        """
        before, result, over = copy_context(), Future[T](), Signal()
        context = before.copy()

        def make_call() -> None:
            try:
                result.set_result(context.run(call, *args))
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                result.set_exception(error)
            over()

        self._calls.put(make_call)
        cancelled: asyncio.CancelledError | None = None
        while not over.happened.done():
            try:
                await asyncio.wait((over.happened,))
            except asyncio.CancelledError as error:
                cancelled = error
        threads.keep_changes(before, context)
        if cancelled is not None and result.exception() is None:
            raise cancelled
        return result.result()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """The items; every few milliseconds the loop has a turn."""
    until = time.monotonic() + SessionLimits.loop_slice_s
    for item in items:
        yield item
        if time.monotonic() > until:
            await asyncio.sleep(0)
            until = time.monotonic() + SessionLimits.loop_slice_s


async def each_when_done(futures: Sequence[F], timeout: float | None) -> AsyncIterator[F]:
    """The futures, each once, when it is done. A `TimeoutError` where that takes longer than so many
    seconds.
    """
    waiting = dict.fromkeys(futures)
    by = None if timeout is None else time.monotonic() + timeout
    done: asyncio.Queue[F] = asyncio.Queue()
    told = partial(loop_calls().post, done.put_nowait)
    async for future in in_slices(waiting):
        if future.done():
            done.put_nowait(future)
        else:
            future.add_done_callback(told)
    async for left in in_slices(range(len(waiting), 0, -1)):
        try:
            left_s = None if by is None else max(0.0, by - time.monotonic())
            yield done.get_nowait() if done.qsize() else await asyncio.wait_for(done.get(), left_s)
        except TimeoutError:
            raise TimeoutError(f"{left} (of {len(waiting)}) futures unfinished") from None
