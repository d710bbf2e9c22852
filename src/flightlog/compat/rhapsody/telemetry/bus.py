"""Queues of events for subscribers, each with a thread of its own."""

from __future__ import annotations

import logging
import time
from _queue import SimpleQueue  # the C type itself: gevent and eventlet replace the name in `queue`
from collections.abc import Callable
from typing import Any

from flightlog.core import threads
from flightlog.record.subscribers import name_of

log = logging.getLogger("flightlog")

_END = object()


class EventQueue:
    """What waits for one subscriber, which is called in the order of `offer`, on a thread of its own. A
    callback that raises misses that event alone.
    """

    def __init__(self, callback: Callable[[Any], object]) -> None:
        self.dropped = 0
        self._callback, self._raised, self._ended = callback, False, False
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._thread = threads.Thread(target=self._deliver, name=f"flightlog-subscriber-{name_of(callback)}")
        self._thread.start()

    def offer(self, event: Any) -> None:
        """Queue an event; never waits."""
        self._queue.put(event)

    def close(self, timeout_s: float) -> None:
        """Deliver what is queued, for so long; the rest is counted as dropped."""
        if not self._thread.is_current():
            self._thread.join(max(timeout_s, 0))
        self._ended = True
        if self._thread.is_alive():
            self.dropped += max(self._queue.qsize() - 1, 0)

    def _deliver(self) -> None:
        while (event := self._queue.get()) is not _END and not self._ended:
            try:
                self._callback(event)
            # A subscriber may raise anything; it must not end its delivery.
            except BaseException:
                if not self._raised:
                    log.warning("a subscriber raised; its later errors are not said", exc_info=True)
                self._raised = True


class Bus:
    """The subscribers of one session."""

    def __init__(self) -> None:
        self.subscriptions: tuple[EventQueue, ...] = ()
        self._lock = threads.RLock()

    def subscribe(self, callback: Callable[[Any], object]) -> EventQueue:
        """Deliver all later events to a function."""
        subscription = EventQueue(callback)
        with self._lock:
            self.subscriptions = (*self.subscriptions, subscription)
        return subscription

    def publish(self, event: Any) -> None:
        """Queue an event for every subscriber; never waits, never raises."""
        for subscription in self.subscriptions:
            subscription.offer(event)

    def close(self, timeout_s: float) -> int:
        """Deliver what is queued and end every subscription, all of them within so long; gives how many
        events were dropped.
        """
        with self._lock:
            closing, self.subscriptions = self.subscriptions, ()
        for subscription in closing:
            subscription.offer(_END)
        deadline = time.monotonic() + timeout_s
        for subscription in closing:
            subscription.close(deadline - time.monotonic())
        return sum(subscription.dropped for subscription in closing)
