"""Death by SIGTERM or SIGHUP ends a run as interrupted, and the process dies of that signal all the same.

The handlers are set only where the default action stood, so the user's own are never replaced. Python runs them in the
main thread between two instructions; where that thread is inside a long C call, a watching thread does the work, so
that nothing dies later than it would have.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

DEADLY = (signal.SIGTERM, signal.SIGHUP)
GRACE_S = 1.0


class DeathWatch:
    """Calls `on_death(signal name)` before the process dies of a deadly signal; only in the main thread."""

    def __init__(self, on_death: Callable[[str], None]) -> None:
        self._on_death = on_death
        self._pid = os.getpid()
        self._ours: list[signal.Signals] = []
        self._once = threading.Lock()
        self._wakeup: tuple[int, int] | None = None
        if threading.current_thread() is threading.main_thread():
            self._ours = [number for number in DEADLY if signal.getsignal(number) is signal.SIG_DFL]
        if self._ours:
            self._watch()
            self.resume()
            _watching.append(self)

    def stop(self) -> None:
        """Put the default actions back, where nobody has changed them since."""
        if self not in _watching:
            return
        _watching.remove(self)
        if threading.current_thread() is threading.main_thread():
            self.pause()
        self._ours = []
        if self._wakeup is not None:
            os.close(self._wakeup[1])  # the waiting thread reads the end, closes its side and ends
            self._wakeup = None

    def after_fork(self) -> None:
        """A forked child dies as it would have: it is not the run's owner."""
        if self not in _watching:
            return
        _watching.remove(self)
        self.pause()
        self._ours = []
        for fd in self._wakeup or ():
            os.close(fd)
        self._wakeup = None

    def pause(self) -> None:
        """Put the default actions back for now."""
        for number in self._ours:
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL)
        if self._wakeup is not None:
            found = signal.set_wakeup_fd(-1)
            if found not in (self._wakeup[1], -1):
                signal.set_wakeup_fd(found)

    def resume(self) -> None:
        """Handle the signals again, where nobody else does by now."""
        for number in self._ours:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._handle)
        if self._wakeup is not None:
            found = signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)
            if found not in (
                self._wakeup[1],
                -1,
            ):  # an event loop has it: it wakes up for every signal by itself
                signal.set_wakeup_fd(found)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._once.acquire(blocking=False):
            self._on_death(signal.Signals(number).name)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _watch(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        self._wakeup = (reader, writer)
        threading.Thread(target=self._wait, args=(reader,), name="flightlog-signals", daemon=True).start()

    def _wait(self, reader: int) -> None:
        deadly = {int(number) for number in DEADLY}
        try:
            while data := os.read(reader, 64):
                number = next((byte for byte in data if byte in deadly), None)
                if number is not None and signal.Signals(number) in self._ours:
                    self._die(number)
        except OSError:
            return
        finally:
            with contextlib.suppress(OSError):
                os.close(reader)

    def _die(self, number: int) -> None:
        """Do what the handler would, if the main thread does not come round to it."""
        threading.Event().wait(GRACE_S)
        if os.getpid() == self._pid and self._once.acquire(blocking=False):
            import ctypes

            self._on_death(signal.Signals(number).name)
            ctypes.CDLL(None).signal(number, 0)
            os.kill(self._pid, number)


_watching: list[DeathWatch] = []

# Around a fork the default actions stand: a child just forked shares the pipe, and Python throws away signals that
# meet it before it has put itself in order. Forks by other threads than the main one cannot be guarded, for Python
# lets only that one change signals.


def _before_fork() -> None:
    if threading.current_thread() is threading.main_thread():
        for watch in _watching:
            watch.pause()


def _after_fork_in_parent() -> None:
    if threading.current_thread() is threading.main_thread():
        for watch in _watching:
            watch.resume()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
