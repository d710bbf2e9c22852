"""Subscribers of a run: functions and coroutine functions that are given its events as they happen.

Each follows the files of the run by itself, on a thread of its own. So it hears of all processes of the run,
recording costs no more than without it, and who is slow falls behind without anything waiting in memory.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from flightlog.core import threads
from flightlog.events import kind_of, kinds
from flightlog.record.limits import RecordLimits
from flightlog.record.values import ask, class_name, text_of

if TYPE_CHECKING:
    import asyncio

    from flightlog.store.read.follow import EventStream, Kinds
    from flightlog.store.read.lines import AnyEvent

log = logging.getLogger("flightlog")

Callback = Callable[[Any], Awaitable[object] | object]
"""Takes an event, or a list of events."""


class Subscription:
    """One subscriber, with counts of what it was given and what it missed.

    A callback that raises misses that event alone, or that batch. `loop` is the event loop that a coroutine
    function runs on; without one it has a loop of its own.
    """

    def __init__(
        self,
        stream: EventStream,
        callback: Callback,
        where: Callable[[AnyEvent], object] | None,
        batch: bool,
        capacity: int | None,
    ) -> None:
        self.delivered = self.dropped = self.errors = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self._stream, self._callback, self._where = stream, callback, where
        self._batch, self._capacity = batch, capacity
        self._waiting = self._looks = self._empty_look = 0
        self._closing = self._ended = self._gave_up = False
        self._wake, self._reading = threads.Event(), threads.Lock()
        self._task: object = None
        self._is_coroutine = ask(is_coroutine_function, callback, otherwise=False)
        if self._is_coroutine:
            self.loop = running_loop()
        self._thread = threads.Thread(target=self._run, name=f"flightlog-subscriber-{name_of(callback)}")
        self._thread.start()

    def finish(self) -> None:
        """Take no more events than are recorded by now; these are still delivered."""
        self._closing, self._stream.patient = True, False
        self._wake.set()

    def close(self, until: float, began: float) -> None:
        """Wait until what was recorded is delivered, until then at most, and no longer while nothing is; the
        rest is counted as dropped.

        On the loop that its coroutines run on nobody can wait for them: they go on after that.
        """
        if self._thread.is_current() or (self.loop is not None and running_loop() is self.loop):
            return
        done, since = -1, began
        while self._thread.is_alive():
            if (now := self.delivered + self.errors) != done:
                done, since = now, began if done < 0 else time.monotonic()
            if time.monotonic() >= min(until, since + RecordLimits.stuck_subscriber_s):
                break
            self._thread.join(0.02)
        self._ended = True
        if self._gave_up or self._thread.is_alive():
            self._lose(self._count_rest())

    def is_behind(self, look: int) -> bool:
        """Whether something may be waiting that was recorded before the look of this number."""
        self._wake.set()
        return self._thread.is_alive() and self._empty_look < look

    @property
    def next_look(self) -> int:
        """The number of the first look that begins from now on."""
        return self._looks + 1

    def _run(self) -> None:
        deliver: Callable[[list[Any]], object] = self._call
        private = None
        if self.loop is not None:
            deliver = self._call_on_loop
        elif self._is_coroutine:
            import asyncio

            private = asyncio.new_event_loop()
            run = private.run_until_complete
            deliver = lambda items: run(self._await(items))  # noqa: E731
        try:
            while not self._ended:
                closing = self._closing
                events = self._read()
                self._waiting = len(events)
                if events:
                    deliver([events] if self._batch else events)
                elif closing:
                    break
                if not self._closing and (pause_s := self._stream.pause_s):
                    self._wake.wait(pause_s)
                    self._wake.clear()
        finally:
            if private is not None:
                private.close()

    def _read(self) -> list[AnyEvent]:
        """What is new and wanted; beyond the capacity it is dropped."""
        with self._reading:
            self._looks += 1
            limit, capacity = RecordLimits.max_delivered_together, self._capacity
            found: list[AnyEvent] = []
            try:
                more = True
                while more:
                    new = self._stream.poll(limit)
                    found += filter(self._is_wanted, new)
                    more = capacity is not None and len(new) == limit
                    if capacity is not None and len(found) > capacity:
                        self._lose(len(found) - capacity)
                        del found[capacity:]
            except BaseException:  # noqa: BLE001 - a disk may refuse anything, and the next look may go well
                self._note_error()
            if not found:
                self._empty_look = self._looks
            return found

    def _is_wanted(self, event: AnyEvent) -> bool:
        if self._where is None:
            return True
        try:
            return bool(self._where(event))
        except BaseException:  # noqa: BLE001 - as in `_call`
            self._note_error()
            return False

    def _call(self, items: Sequence[Any]) -> None:
        for item in items:
            if self._ended:
                return
            try:
                self._callback(item)
                self._note_delivered(item)
            except BaseException:  # noqa: BLE001 - a subscriber may raise anything, and is called again
                self._note_error()

    async def _await(self, items: Sequence[Any]) -> None:
        """Call a coroutine function for each, with turns for other coroutines in between."""
        import asyncio

        callback = cast(Callable[[Any], Awaitable[object]], self._callback)
        turn_ends = time.perf_counter() + RecordLimits.loop_turn_s
        for item in items:
            if self._ended:
                return
            try:
                await callback(item)
                self._note_delivered(item)
            except Exception:  # noqa: BLE001 - as in `_call`
                self._note_error()
            if time.perf_counter() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = time.perf_counter() + RecordLimits.loop_turn_s

    def _call_on_loop(self, items: Sequence[Any]) -> None:
        """Have the loop call a coroutine function for each, and wait until it has."""
        loop, done = self.loop, threads.Event()
        assert loop is not None

        async def deliver() -> None:
            try:
                await self._await(items)
            finally:
                done.set()

        def begin() -> None:
            self._task = loop.create_task(deliver())  # a loop keeps its tasks only as long as somebody else

        try:
            loop.call_soon_threadsafe(begin)
            while not done.wait(RecordLimits.stuck_subscriber_s) and not loop.is_closed() and not self._ended:
                pass
        except RuntimeError:  # the loop is closed
            pass
        if loop.is_closed() and not self._ended:
            self._ended = self._gave_up = True
            self._lose(self._waiting)
            self._waiting = 0

    def _note_delivered(self, item: Any) -> None:
        number = len(item) if self._batch else 1
        self.delivered += number
        self._waiting -= number

    def _note_error(self) -> None:
        self.errors += 1
        self._waiting -= not self._batch
        if self.errors == 1:
            log.warning("a subscriber raised; its later errors are only counted", exc_info=True)

    def _lose(self, number: int) -> None:
        if not number:
            return
        if not self.dropped:
            log.warning("a subscriber is too slow: events that it misses are dropped and counted")
        self.dropped += number

    def _count_rest(self) -> int:
        """How many events it was not given, as far as they can be counted in a moment."""
        rest = max(0, self._waiting)
        if self._reading.acquire(timeout=RecordLimits.stuck_subscriber_s / 10):
            until = time.monotonic() + RecordLimits.stuck_subscriber_s / 2
            while time.monotonic() < until and (more := ask(self._stream.poll, otherwise=[])):
                rest += sum(map(self._is_wanted, more))
            self._reading.release()
        return rest


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs on this thread; None where there is none."""
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def is_coroutine_function(callback: Callable[..., object]) -> bool:
    """Whether it is one, or an object with an asynchronous `__call__`."""
    call = getattr(callback, "__call__", None)  # noqa: B004 - the method itself is inspected
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(call)


def name_of(callback: object) -> str:
    """What a callback is called."""
    name = ask(getattr, callback, "__name__", otherwise=None)
    return name if type(name) is str else class_name(type(callback))


class Subscribers:
    """The subscribers of one run in this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._subscriptions: list[Subscription] = []
        self._ended: list[Subscription] = []
        self._closed = False
        self._lock = threads.RLock()

    def add(
        self,
        callback: Callback,
        events: Kinds | None,
        where: Callable[[AnyEvent], object] | None,
        batch: bool,
        capacity: int | None,
    ) -> Callable[[], None]:
        """Deliver events of these kinds, or all, that any process records from now on; gives the
        unsubscribe.
        """
        if self._closed:  # nothing more is recorded
            return lambda: None
        from flightlog.store.read.follow import EventStream

        wanted = None if events is None else self._known_kinds(events)
        if capacity is not None and type(capacity) is not int:
            capacity = ask(int, capacity, otherwise=None)
        stream = EventStream(self._path, events=wanted, from_now=True, is_over=lambda: False, learn=False)
        subscription = Subscription(stream, callback, where, batch is True, capacity)
        with self._lock:
            self._subscriptions.append(subscription)

        def unsubscribe() -> None:
            with self._lock:
                if subscription not in self._subscriptions:
                    return
                self._subscriptions.remove(subscription)
                self._ended.append(subscription)
            self._end([subscription])

        return unsubscribe

    def _known_kinds(self, events: Any) -> list[str]:
        """The names of kinds; one that no event has is said, and left out."""
        given = [events] if issubclass(type(events), str | type) else events
        names = {text_of(one) if issubclass(type(one), str) else kind_of(one) for one in given}
        for unheard in sorted(names - kinds().keys()):
            log.warning("a subscriber waits for %r, which no event is called", unheard)
        return [name for name in names if "." in name or name in kinds()]

    def close(self) -> None:
        """Deliver what was recorded and end every subscription, within some seconds."""
        with self._lock:
            closing, self._subscriptions, self._closed = self._subscriptions, [], True
            self._ended += closing
        self._end(closing)

    def _end(self, closing: Sequence[Subscription]) -> None:
        began = time.monotonic()
        for subscription in closing:
            subscription.finish()
        for subscription in closing:
            subscription.close(began + RecordLimits.subscribers_end_s, began)

    async def settle(self) -> None:
        """Wait until coroutine functions on this loop were given what was recorded, within some seconds."""
        import asyncio

        loop, until = running_loop(), time.monotonic() + RecordLimits.stuck_subscriber_s
        here = [one for one in (*self._subscriptions, *self._ended) if one.loop is loop]
        looks = [one.next_look for one in here]
        while time.monotonic() < until and any(map(Subscription.is_behind, here, looks)):
            await asyncio.sleep(RecordLimits.loop_turn_s)

    def counts(self) -> dict[str, int]:
        """What subscribers got and missed, over the life of the run."""
        every = [*self._subscriptions, *self._ended]
        if not every:
            return {}
        counted = ("delivered", "dropped", "errors")
        totals = {f"subscriber_{name}": sum(getattr(one, name) for one in every) for name in counted}
        return {"subscribers": len(every), **totals}
