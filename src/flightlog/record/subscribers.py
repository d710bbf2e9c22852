"""Subscribers of a run: functions and coroutine functions that are given its events as they happen.

One thread reads the files of the run for all of them, so that they hear of all processes and each event is
decoded once. Each is called on a thread of its own, or on its event loop. One that falls far behind reads the
files by itself from there, so that little waits in memory.
"""

from __future__ import annotations

import inspect
import logging
import math
import os
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from flightlog.core import threads
from flightlog.core.errors import UsageError
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
Where = Callable[[Any], object]

TOO_SLOW = "a subscriber is too slow"
LOOP_CLOSED = "the event loop of a subscriber has closed"
CANCELLED = "what a subscriber does on its event loop was cancelled"


class Subscription:
    """One subscriber, with counts of the events that it was given, missed, or raised at.

    A callback that raises misses that event alone, or that batch. `loop` is the event loop that its
    coroutines run on; without one they have a loop of their own.
    """

    def __init__(
        self,
        path: Path,
        callback: Callback,
        kind_names: frozenset[str] | None,
        where: Where | None,
        batch: bool,
        capacity: int | None,
    ) -> None:
        self.kinds = kind_names
        self.delivered = self.errors = 0
        self._path, self._callback, self._where = path, callback, where
        self._batch, self._capacity = batch, capacity
        self._offered = self._refused = self._unwanted = self._lost = 0
        self._queue: deque[AnyEvent] = deque()
        self._position: str | None = None
        self._own: EventStream | None = None
        self._slow = self._ended = self._gave_up = self._said = False
        self._moved_at = 0.0
        self._wake, self._room, self._no_more = threads.Event(), threads.Event(), threads.Event()
        self._task: object = None
        self._private: asyncio.AbstractEventLoop | None = None
        self._is_coroutine = ask(is_coroutine_function, callback, otherwise=False)
        self.home = running_loop()
        """The event loop on which it subscribed."""
        self.loop = self.home if self._is_coroutine else None
        self._thread = threads.Thread(target=self._run, name=f"flightlog-subscriber-{name_of(callback)}")
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Events that it missed."""
        return self._refused + self._lost

    @property
    def left(self) -> int:
        """Events that wait for it, or that it is at."""
        return self._offered - self._done

    @property
    def _done(self) -> int:
        return self.delivered + self.errors + self._unwanted + self._lost

    def may_hold_up(self) -> bool:
        """Whether `offer` may wait."""
        return self._capacity is not None

    def offer(self, events: Sequence[AnyEvent]) -> None:
        """Let it have more events, on the thread that reads. Where its capacity is used up it is waited for a
        moment; after that was in vain not again before it is through with what it has.
        """
        capacity = self._capacity
        while capacity is not None and len(events) > (room := capacity - self.left):
            self._slow = self._slow and room < capacity
            self._accept(events[:room])
            events = events[room:]
            self._room.clear()
            if self.left >= capacity and (self._slow or not self._room.wait(RecordLimits.room_wait_s)):
                self._slow = True
                self._refused += len(events)
                self._say(TOO_SLOW)
                return
        self._accept(events)

    def _accept(self, events: Sequence[AnyEvent]) -> None:
        self._offered += len(events)
        if events and self._position is None and not self._gave_up:
            self._queue.extend(events)
            self._wake.set()

    def leave_behind(self, stream: EventStream) -> None:
        """Where too much waits for it, also after a moment, have it read by itself what the stream has not
        given yet.
        """
        if self._capacity is not None or self._position is not None:
            return
        self._room.clear()
        by = time.monotonic() + RecordLimits.room_wait_s
        while (too_many := len(self._queue) >= RecordLimits.max_waiting_events) and (
            self._room.wait(by - time.monotonic())
        ):
            self._room.clear()
        if too_many:
            self._position = stream.position

    def finish(self) -> None:
        """It was offered everything that it is to get."""
        self._no_more.set()
        self._wake.set()

    def close(self, until: float, began: float) -> None:
        """Wait until what it was offered is delivered, until then at most, and no longer while nothing is;
        the rest is counted as dropped.

        On the loop that its coroutines run on nobody can wait for them: they go on after that.
        """
        if self._thread.is_current() or (self.loop is not None and running_loop() is self.loop):
            return
        self._no_more.wait(until - time.monotonic())
        while self._thread.is_alive() and time.monotonic() < min(
            until, max(began, self._moved_at) + RecordLimits.stuck_subscriber_s
        ):
            self._thread.join(0.02)
        self._ended = True
        self._wake.set()
        self._lose(self.left, TOO_SLOW)

    def _run(self) -> None:
        try:
            while not (self._ended or self._gave_up):
                over = self._no_more.is_set()
                self._wake.clear()
                events = self._take(over)
                if events:
                    self._deliver(events)
                elif over:
                    break
                else:
                    self._wake.wait(None if self._own is None else self._own.pause_s)
        finally:
            if self._private is not None:
                self._private.close()

    def _take(self, over: bool) -> Sequence[AnyEvent]:
        """Some events that wait for it."""
        limit, position = RecordLimits.max_delivered_together, self._position
        if self._queue or position is None:
            return [self._queue.popleft() for _ in range(min(len(self._queue), limit))]
        try:
            if self._own is None:
                self._own = open_stream(self._path, self.kinds, since=position)
            self._own.patient = not over
            self._moved_at = math.inf  # it is not stuck while it reads
            return self._own.poll(min(limit, max(0, self.left)) if over else limit)
        except BaseException:  # a disk may refuse anything, and the next look may go well
            log.debug("a subscriber cannot read the run", exc_info=True)
            return []
        finally:
            self._moved_at = time.monotonic()

    def _deliver(self, events: Sequence[AnyEvent]) -> None:
        to_do = self._done + len(events)
        wanted = events if self._where is None else list(filter(self._is_wanted, events))
        items: Sequence[Any] = [wanted] if self._batch and wanted else wanted
        try:
            if self._is_coroutine:
                self._await_all(items, cast("Callable[[Any], Awaitable[object]]", self._callback))
            else:
                self._call(items)
        except BaseException:  # noqa: BLE001 - a coroutine may raise what ends an event loop
            self._note_error(1)
        if not self._ended:
            self._lose(to_do - self._done, LOOP_CLOSED if self._gave_up else CANCELLED)
        self._room.set()

    def _is_wanted(self, event: AnyEvent) -> bool:
        assert self._where is not None
        try:
            wanted = bool(self._where(event))
        except BaseException:  # noqa: BLE001 - as in `_call`
            self._note_error(1)
            return False
        self._unwanted += not wanted
        return wanted

    def _call(self, items: Sequence[Any]) -> None:
        for item in items:
            if self._ended or self._gave_up:
                return
            number = self._size(item)
            try:
                result = self._callback(item)
            except BaseException:  # noqa: BLE001 - a subscriber may raise anything, and is called again
                self._note_error(number)
                continue
            if result is not None and ask(inspect.isawaitable, result, otherwise=False):
                self.loop = self.home
                self._await_all([item], partial(_given, result))
            else:
                self._note_delivered(number)

    def _size(self, item: Any) -> int:
        """How many events it is: asked before a callback changes its batch."""
        return len(item) if self._batch else 1

    def _await_all(self, items: Sequence[Any], callback: Callable[[Any], Awaitable[object]]) -> None:
        """Have an event loop call a coroutine function for each, and wait until it has."""
        import asyncio

        if self.loop is not None:
            self._await_on(self.loop, items, callback)
            return
        if self._private is None:
            self._private = asyncio.new_event_loop()
        self._private.run_until_complete(self._await(items, callback))

    async def _await(self, items: Sequence[Any], callback: Callable[[Any], Awaitable[object]]) -> None:
        """Call a coroutine function for each, with turns for other coroutines in between."""
        import asyncio

        task = asyncio.current_task()
        turn_ends = time.perf_counter() + RecordLimits.loop_turn_s
        for item in items:
            if self._ended:
                return
            number = self._size(item)
            try:
                await callback(item)
                self._note_delivered(number)
            except (Exception, asyncio.CancelledError):  # as in `_call`
                if task is not None and task.cancelling():  # not what it waits for, but the delivery itself
                    raise
                self._note_error(number)
            if time.perf_counter() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = time.perf_counter() + RecordLimits.loop_turn_s

    def _await_on(
        self,
        loop: asyncio.AbstractEventLoop,
        items: Sequence[Any],
        callback: Callable[[Any], Awaitable[object]],
    ) -> None:
        done = threads.Event()

        async def deliver() -> None:
            try:
                await self._await(items, callback)
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
        self._gave_up = loop.is_closed()

    def _note_delivered(self, number: int) -> None:
        self.delivered += number
        self._moved_at = time.monotonic()

    def _note_error(self, number: int) -> None:
        if not self.errors:
            log.warning("a subscriber raised; its later errors are only counted", exc_info=True)
        self.errors += number
        self._moved_at = time.monotonic()

    def _lose(self, number: int, why: str) -> None:
        if number > 0:
            self._lost += number
            self._say(why)

    def _say(self, why: str) -> None:
        if not self._said:
            self._said = True
            log.warning("%s: events that it misses are dropped and counted", why)


def _given(result: Any, _item: object) -> Awaitable[object]:
    return cast(Awaitable[object], result)


def open_stream(
    path: Path, kind_names: Kinds | None, *, since: str | None = None, from_now: bool = False
) -> EventStream:
    """The events of a run, from inside of it."""
    from flightlog.store.read.follow import EventStream

    return EventStream(
        path, events=kind_names, since=since, from_now=from_now, is_over=lambda: False, learn=False
    )


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs on this thread; None where there is none."""
    if "asyncio" not in sys.modules:
        return None
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
    """The subscribers of one run in this process, and the thread that reads for them: from the first
    subscriber to the last.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._pid = path, os.getpid()
        self._subscriptions: list[Subscription] = []  # replaced, never changed: the thread goes through it
        self._leaving: list[Subscription] = []
        self._ended: list[Subscription] = []
        self._stream: EventStream | None = None
        self._closed = self._failed = False
        self._wake, self._lock = threads.Event(), threads.RLock()

    def add(
        self,
        callback: Callback,
        events: Kinds | None,
        where: Where | None,
        batch: bool,
        capacity: int | None,
    ) -> Callable[[], None]:
        """Deliver events of these kinds, or all, that any process records from now on; gives the
        unsubscribe.
        """
        if self._closed:  # nothing more is recorded
            return lambda: None
        wanted = None if events is None else self._known_kinds(events)
        if capacity is not None and type(capacity) is not int:
            capacity = ask(int, capacity, otherwise=None)
        if capacity is not None and capacity < 1:
            raise UsageError(f"capacity is how many events may wait: 1 or more, not {capacity}")
        with self._lock:
            stream = self._stream
            if stream is None:
                stream = open_stream(self._path, wanted, from_now=True)
            else:
                stream.widen(wanted)
            subscription = Subscription(self._path, callback, wanted, where, batch is True, capacity)
            before, self._subscriptions = self._subscriptions, [*self._subscriptions, subscription]
            if self._stream is None:
                self._stream = stream
                try:
                    threads.Thread(target=self._read, args=(stream,), name="flightlog-subscribers").start()
                except BaseException:
                    self._stream, self._subscriptions = None, before
                    subscription.finish()
                    raise

        def unsubscribe() -> None:
            if os.getpid() == self._pid:
                self._end([subscription])

        return unsubscribe

    def _known_kinds(self, events: Any) -> frozenset[str]:
        """The names of kinds; one that no event has is said, and left out."""
        given = [events] if issubclass(type(events), str | type) else events
        names = {text_of(one) if issubclass(type(one), str) else kind_of(one) for one in given}
        for unknown in sorted(names - kinds().keys()):
            log.warning("no event is called %r: a subscriber waits for it in vain so far", unknown)
        return frozenset(name for name in names if "." in name or name in kinds())

    def close(self) -> None:
        """Deliver what was recorded and end every subscription, within some seconds."""
        self._closed = True
        self._end(self._subscriptions)

    def _end(self, closing: Sequence[Subscription]) -> None:
        """End subscriptions after one more look at the files: what is recorded by now is still delivered."""
        began = time.monotonic()
        with self._lock:
            closing = [one for one in closing if one in self._subscriptions and one not in self._leaving]
            self._leaving = [*self._leaving, *closing]
        self._wake.set()
        for subscription in closing:
            subscription.close(began + RecordLimits.subscribers_end_s, began)

    def _read(self, stream: EventStream) -> None:
        """Look at the files again and again, until the last subscriber has left."""
        while True:
            self._wake.clear()
            leaving = self._leaving
            stream.patient = len(leaving) < len(self._subscriptions)
            try:
                self._pass_on(stream)
            except BaseException:  # a disk may refuse anything, and the next look may go well
                if not self._failed:
                    log.warning("subscribers miss events: the files of the run cannot be read", exc_info=True)
                self._failed = True
            with self._lock:
                self._leaving = [one for one in self._leaving if one not in leaving]
                self._subscriptions = [one for one in self._subscriptions if one not in leaving]
                self._ended += leaving
                if not self._subscriptions:
                    self._stream = None
            for one in leaving:
                one.finish()
            if self._stream is not stream:
                return
            self._wake.wait(stream.pause_s)

    def _pass_on(self, stream: EventStream) -> None:
        """Offer what one look finds to everybody who wants it; those that may be waited for come last."""
        from flightlog.store.read.follow import kind_name

        more = True
        while more:
            for one in self._subscriptions:
                one.leave_behind(stream)
            events = stream.poll(RecordLimits.max_delivered_together)
            by_kinds: dict[frozenset[str] | None, Sequence[AnyEvent]] = {None: events}
            # Who subscribed meanwhile is among them: what was recorded then may be in these events.
            for one in sorted(self._subscriptions, key=Subscription.may_hold_up):
                if one.kinds is not None and one.kinds not in by_kinds:
                    by_kinds[one.kinds] = [event for event in events if kind_name(event) in one.kinds]
                one.offer(by_kinds[one.kinds])
            more = stream.has_more

    def need_this_loop(self) -> bool:
        """Whether the event loop that runs here may have to go on for somebody to be given events."""
        loop = running_loop()
        return loop is not None and any(one.home is loop for one in self._subscriptions)

    def counts(self) -> dict[str, int]:
        """What subscribers got and missed, over the life of the run."""
        with self._lock:
            every = [*self._subscriptions, *self._ended]
        if not every:
            return {}
        counted = ("delivered", "dropped", "errors")
        totals = {f"subscriber_{name}": sum(getattr(one, name) for one in every) for name in counted}
        return {"subscribers": len(every), **totals}
