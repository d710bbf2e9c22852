"""What an engine's thread waits for: descriptors, moments, and calls that other threads ask for.

Not `asyncio`, for the engine lives in the user's process: a program that closes all descriptors takes the
event loop of `asyncio` with it. This one waits with `poll`, which needs no descriptor of its own, knows the
pipe that wakes it by identity, and makes another one where the program has closed it.
"""

from __future__ import annotations

import heapq
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from flightlog.core.descriptors import make_pipe
from flightlog.engines.limits import EngineLimits


class Timer:
    """A call at a moment on the monotonic clock, unless it is cancelled before."""

    __slots__ = ("_call", "at")

    def __init__(self, at: float, call: Callable[[], object]) -> None:
        self.at = at
        self._call: Callable[[], object] | None = call

    def cancel(self) -> None:
        """Do not call; what would have been called is let go at once."""
        self._call = None

    def run(self) -> None:
        """Make the call, once."""
        call, self._call = self._call, None
        if call is not None:
            call()


class Timers:
    """Calls by their moment. One thread at a time."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = count()

    def at(self, moment: float, call: Callable[[], object]) -> Timer:
        """Have something called at a moment on the monotonic clock."""
        timer = Timer(moment, call)
        heapq.heappush(self._heap, (moment, next(self._numbers), timer))
        return timer

    def first(self) -> float | None:
        """The next moment at which something may be due."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> list[Timer]:
        """The calls whose moment has come, in order."""
        due: list[Timer] = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        return due


class TimerThread:
    """Calls functions later, each once, in order of their times; thread-safe. A thread of this name is
    started when needed.

    The functions must not raise and must be short. What is still waiting at `close` is never called.
    """

    def __init__(self, name: str) -> None:
        self._name, self._timers, self._changed = name, Timers(), threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def after(self, seconds: float, action: Callable[[], object]) -> Timer:
        """Call the function after this many seconds."""
        with self._changed:
            timer = self._timers.at(time.monotonic() + seconds, action)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()
        return timer

    def close(self) -> None:
        """Call nothing any more; a function that runs now is waited for."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while not self._closed:
            with self._changed:
                due = self._timers.take_due(time.monotonic())
                if not due and not self._closed:
                    first = self._timers.first()
                    self._changed.wait(None if first is None else max(0.0, first - time.monotonic()))
            for timer in due:
                if not self._closed:
                    timer.run()


class EventLoop:
    """Calls what is due, on the thread that calls `turn`; `post` and `wake` are for any thread.

    A callback of a watched descriptor finds out by itself whether that is still what it was.
    """

    def __init__(self) -> None:
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._timers = Timers()
        self._notified = False

    def open(self) -> None:
        """Make what it wakes up by; `OSError` where there is no descriptor to be had."""
        self._poll = select.poll()
        self._watched: dict[int, tuple[object, Callable[[int], None]]] = {}
        self._wake_number = -1
        self._make_wake_pipe()
        self._check()

    # --- from any thread

    def post(self, call: Callable[..., object], *args: Any) -> None:
        """Have something called soon."""
        self._calls.append((call, args))
        self.wake()

    def wake(self) -> None:
        """Let `turn` return soon."""
        if not self._notified:
            self._notified = True
            try:
                self._wake_writer.write(b"x")
            except OSError:
                return  # awake already, or over; or the program closed it, which is noticed by itself

    # --- on the thread

    def later(self, delay_s: float, call: Callable[[], object]) -> Timer:
        """Have something called after a while."""
        return self._timers.at(time.monotonic() + delay_s, call)

    def watch(self, number: int, owner: object, call: Callable[[int], None], *, write: bool = False) -> None:
        """Have `call` called with what happens at a descriptor of the owner's."""
        # Where it is watched for another owner, that one has lost it, and finds out.
        self._poll.register(number, select.POLLIN | (select.POLLOUT if write else 0))
        self._watched[number] = owner, call

    def unwatch(self, number: int, owner: object) -> None:
        """Watch a descriptor no more, if it is still watched for this owner."""
        if number in self._watched and self._watched[number][0] is owner:
            del self._watched[number]
            self._poll.unregister(number)

    def turn(self) -> None:
        """Wait until something happens or is due, and make all calls for it."""
        patience_s = max(0.0, (self._timers.first() or 0.0) - time.monotonic())
        for number, events in self._poll.poll(patience_s * 1000):
            if number in self._watched:
                self._watched[number][1](events)
        self.run_posted()
        for timer in self._timers.take_due(time.monotonic()):
            timer.run()

    def run_posted(self) -> None:
        """Make the calls that were posted so far."""
        while self._calls:
            call, args = self._calls.popleft()
            call(*args)

    def close(self) -> None:
        """It turns no more."""
        self._wake_reader.close()
        self._wake_writer.close()

    def _check(self) -> None:
        if not (self._wake_reader.still_ours() and self._wake_writer.still_ours()):
            self._remake_wake_pipe()
        self.later(EngineLimits.pipe_check_interval_s, self._check)

    def _make_wake_pipe(self) -> None:
        self.unwatch(self._wake_number, self)
        self._wake_reader, self._wake_writer = make_pipe()
        for end in (self._wake_reader, self._wake_writer):
            os.set_blocking(end.fd, False)
        self._wake_number = self._wake_reader.number
        self.watch(self._wake_number, self, self._on_wake)
        self._notified = False

    def _remake_wake_pipe(self) -> None:
        try:
            self._make_wake_pipe()
        except OSError:
            self._notified = False  # the next look tries again, a second later at most

    def _on_wake(self, _events: int) -> None:
        try:
            is_ours = os.read(self._wake_reader.fd, 4096) != b""
        except BlockingIOError:
            is_ours = True
        except OSError:
            is_ours = False
        if not is_ours:  # the program closed one of the ends
            self._remake_wake_pipe()
        self._notified = False  # before anything is looked at
