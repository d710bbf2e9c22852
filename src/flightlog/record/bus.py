"""The event bus: subscribers see events as they are recorded, off the user's threads and loops."""

from __future__ import annotations

import inspect
import logging
import time
from _queue import SimpleQueue  # the C type itself: gevent and eventlet replace the name in `queue`
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

from flightlog.core import threads
from flightlog.events import Event, kind_of, kinds
from flightlog.record.limits import RecordLimits
from flightlog.record.values import ask, class_name, text_of

log = logging.getLogger("flightlog")

Callback = Callable[[Event], Awaitable[None] | None]


class Subscription:
    """One subscriber: a thread of its own, a bounded queue, and counts of what it missed.

    Events arrive in the order they were recorded in. A callback that raises misses that event alone; one that
    is too slow misses the events that did not fit into its queue. Neither touches the files or the user's
    time.
    """

    def __init__(self, callback: Callback, kinds: frozenset[str] | None, capacity: int) -> None:
        self.delivered = self.dropped = self.errors = 0
        self._callback, self._kinds, self._capacity = callback, kinds, capacity
        self._queue: SimpleQueue[Event | None] = SimpleQueue()
        self._ended = False
        name = ask(getattr, callback, "__name__", otherwise=None)
        name = name if type(name) is str else class_name(type(callback))
        self._thread = threads.Thread(target=self._deliver, name=f"flightlog-subscriber-{name}")
        self._thread.start()

    def offer(self, event: Event) -> None:
        """Queue an event; never waits."""
        if self._kinds is not None and kind_of(event) not in self._kinds:
            return
        if self._ended or self._queue.qsize() >= self._capacity:
            self.dropped += 1
            if self.dropped == 1:
                log.warning("a subscriber is too slow: events it has no room for are dropped and counted")
            return
        self._queue.put(event)

    def finish(self) -> None:
        """Take no more events; those that are queued are still delivered."""
        self._queue.put(None)

    def close(self, timeout_s: float) -> None:
        """Deliver what is queued, for so long; the rest is counted as dropped."""
        self.finish()
        if not self._thread.is_current():
            self._thread.join(max(timeout_s, 0))
        self._ended = True
        if self._thread.is_alive():
            self.dropped += max(self._queue.qsize() - 1, 0)

    def _deliver(self) -> None:
        if ask(is_coroutine_function, self._callback, otherwise=False):
            import asyncio

            loop = asyncio.new_event_loop()
            try:
                callback: Any = self._callback
                self._deliver_all(lambda event: loop.run_until_complete(callback(event)))
            finally:
                loop.close()
        else:
            self._deliver_all(self._callback)

    def _deliver_all(self, call: Callable[[Event], object]) -> None:
        while (event := self._queue.get()) is not None and not self._ended:
            try:
                call(event)
                self.delivered += 1
            # A subscriber may raise anything; it must not end its delivery.
            except BaseException:
                self.errors += 1
                if self.errors == 1:
                    log.warning("a subscriber raised; its later errors are only counted", exc_info=True)


def is_coroutine_function(callback: Callable[..., object]) -> bool:
    """Whether it is one, or an object with an asynchronous `__call__`."""
    call = getattr(callback, "__call__", None)  # noqa: B004 - the method itself is inspected
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(call)


class Bus:
    """The subscribers of one run in this process; while `subscriptions` is empty there is nobody to publish
    to.
    """

    def __init__(self) -> None:
        self.subscriptions: tuple[Subscription, ...] = ()
        self._ended: list[Subscription] = []
        self._lock = threads.RLock()

    def subscribe(
        self,
        callback: Callback,
        events: Iterable[str | type[Event]] | str | type[Event] | None,
        capacity: int,
    ) -> Callable[[], None]:
        """Deliver events of these kinds, or all, to a function or coroutine function; gives the
        unsubscribe.
        """
        if issubclass(type(events), str | type):
            events = [cast(str, events)]
        wanted = None
        if events is not None:
            names = (
                text_of(e) if issubclass(type(e), str) else kind_of(cast(Any, e)) for e in cast(Any, events)
            )
            wanted = frozenset(names)
        for unheard in sorted((wanted or frozenset()) - kinds().keys()):
            log.warning("a subscriber waits for %r, which no event is called", unheard)
        if type(capacity) is not int:
            capacity = ask(int, capacity, otherwise=RecordLimits.max_queued_events)
        subscription = Subscription(callback, wanted, capacity)
        with self._lock:
            self.subscriptions = (*self.subscriptions, subscription)

        def unsubscribe() -> None:
            with self._lock:
                if subscription not in self.subscriptions:
                    return
                self.subscriptions = tuple(s for s in self.subscriptions if s is not subscription)
                self._ended.append(subscription)
            subscription.close(timeout_s=2.0)

        return unsubscribe

    def publish(self, event: Event) -> None:
        """Offer an event to every subscriber; never waits, never raises."""
        for subscription in self.subscriptions:
            subscription.offer(event)

    def close(self, timeout_s: float = 1.0) -> None:
        """Deliver what is queued and end every subscription, all of them within so long."""
        with self._lock:
            closing, self.subscriptions = self.subscriptions, ()
            self._ended.extend(closing)
        for subscription in closing:
            subscription.finish()
        deadline = time.monotonic() + timeout_s
        for subscription in closing:
            subscription.close(deadline - time.monotonic())

    def counts(self) -> dict[str, int]:
        """What subscribers got and missed, over the life of the run."""
        every = [*self.subscriptions, *self._ended]
        if not every:
            return {}
        counted = ("delivered", "dropped", "errors")
        totals = {f"subscriber_{name}": sum(getattr(one, name) for one in every) for name in counted}
        return {"subscribers": len(every), **totals}
