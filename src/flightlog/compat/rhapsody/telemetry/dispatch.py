"""The thread that works events off: tallies, spans, the checkpoint file, and those who listen."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from flightlog.compat.rhapsody.telemetry.checkpoint import (
    CheckpointFile,
    event_line,
    metric_line,
    span_line,
)
from flightlog.compat.rhapsody.telemetry.delivery import Listener
from flightlog.compat.rhapsody.telemetry.events import BaseEvent, SessionStarted
from flightlog.compat.rhapsody.telemetry.instruments import Tallies
from flightlog.compat.rhapsody.telemetry.providers import Providers

log = logging.getLogger(__name__)

BATCH = 500
TOGETHER_S = 0.005
"""How long more events are waited for: every time this thread wakes, the one that emits has to wait."""
POLITE = 4
"""Events after which the user's threads may go on: else each waits for as long as Python lets a thread run, 5
ms."""

Told = tuple[BaseEvent, int, int]
"""An event with its trace and its span."""


class Listeners:
    """Those who listen to one session; thread-safe. Who comes late hears that the session has started all the
    same.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Callable[[BaseEvent], Any]] = []
        self._all: list[Listener] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._first: BaseEvent | None = None

    def add(self, callback: Callable[[BaseEvent], Any]) -> None:
        """Listen from now on, or from the start."""
        with self._lock:
            if self._all is None:
                self._waiting.append(callback)
                return
            listener = Listener(callback, self._loop)
            if self._first is not None:
                listener.tell(self._first)
            self._all.append(listener)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Coroutine functions are run on this loop."""
        with self._lock:
            self._loop, self._all = loop, [Listener(callback, loop) for callback in self._waiting]
            self._waiting = []

    def tell(self, event: BaseEvent) -> None:
        """Give an event to all."""
        with self._lock:
            if isinstance(event, SessionStarted):
                self._first = event
            for listener in self._all or ():
                listener.tell(event)

    async def finish(self) -> None:
        """Wait until all have taken what they were given."""
        with self._lock:
            left = list(self._all or ())
        await asyncio.gather(*(listener.finish() for listener in left))


class Dispatch:
    """Works off what is put into the queue, until None is; `run` is the thread's life.

    Metrics are written to the file every `interval_s` seconds, if that is said, and at the end. Spans are
    written when they have ended, each once.
    """

    def __init__(
        self,
        queue: SimpleQueue[Told | None],
        tallies: Tallies,
        listeners: Listeners,
        file: CheckpointFile | None,
        interval_s: float | None,
    ) -> None:
        self._queue, self._tallies, self._listeners, self._file = queue, tallies, listeners, file
        self._interval_s = interval_s
        self._lines: list[dict[str, Any]] = []
        self._told = False
        self.last_metrics: Any = None
        """The metrics of the end; None before."""

    def span_ended(self, span: Any) -> None:
        """A span has ended, on any thread: it is written with what comes next."""
        if self._file is not None:
            self._lines.append(span_line(span))

    def run(self, otel: Providers) -> None:
        """Work everything off, and end the spans and metrics."""
        due = time.monotonic() + (self._interval_s or 0.0)
        over = False
        while not over:
            batch, over = self._next_batch(due)
            for number, told in enumerate(batch):
                self._take_in(otel, *told)
                if not number % POLITE:
                    time.sleep(0)
            if self._interval_s is not None and time.monotonic() >= due:
                self._go_on_after(lambda: self._lines.append(metric_line(otel.metrics())))
                due = time.monotonic() + self._interval_s
            self._write()
        self._go_on_after(otel.end, time.time())
        self._go_on_after(self._measure_last, otel)
        self._write()
        if self._file is not None:
            self._file.close()
        self._go_on_after(otel.shut_down)

    def _measure_last(self, otel: Providers) -> None:
        self.last_metrics = otel.metrics()
        self._lines.append(metric_line(self.last_metrics))

    def _go_on_after(self, step: Callable[..., None], *args: Any) -> None:
        """Processors and readers of the user's may raise: what is left to do is done all the same."""
        try:
            step(*args)
        except Exception:
            log.warning("a processor or reader of OpenTelemetry's failed", exc_info=True)

    def _next_batch(self, due: float) -> tuple[list[Told], bool]:
        """Events that wait, a bounded number of them; and whether they are the last."""
        batch: list[Told] = []
        timeout = None if self._interval_s is None else max(0.0, due - time.monotonic())
        with suppress(Empty):
            item = self._queue.get(timeout=timeout)
            if item is not None and self._queue.qsize() < BATCH:
                time.sleep(TOGETHER_S)
            while item is not None:
                batch.append(item)
                if len(batch) == BATCH:
                    return batch, False
                item = self._queue.get_nowait()
            return batch, True
        return batch, False

    def _take_in(self, otel: Providers, event: BaseEvent, trace_id: int, span_id: int) -> None:
        try:
            if self._file is not None:
                self._lines.append(event_line(event, trace_id, span_id))
            self._tallies.add(event)
            otel.tasks.add(event)
        except Exception:
            level = (
                logging.DEBUG if self._told else logging.WARNING
            )  # whatever it is, it may be so every time
            self._told = True
            log.log(level, "an event of type %s was not taken in", event.event_type, exc_info=True)
        self._listeners.tell(event)

    def _write(self) -> None:
        if self._file is not None and self._lines:
            lines = self._lines[:]
            del self._lines[: len(lines)]  # others append meanwhile
            self._file.write(lines)
