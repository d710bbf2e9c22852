"""Death by SIGTERM or SIGHUP ends a run as interrupted, and the process dies of that signal all the same.

The handlers are set only where the default action stood, so the user's own are never replaced. Python runs them in the
main thread between two instructions; where that thread is inside a long C call, a watching thread does the work, so
that nothing dies later than it would have.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType

from flightlog import threads
from flightlog.threads import in_main_thread

DEADLY = (signal.SIGTERM, signal.SIGHUP)
GRACE_S = 1.0

OnDeath = Callable[[str], None]


class DeathWatch:
    """The one watch of a process: calls everybody concerned, the latest first, before a deadly signal kills it.

    Python lets only the main thread change signals. Asked by another thread, the watch begins with the next one
    that the main thread asks for, and goes on, without anybody concerned, until then.
    """

    def __init__(self) -> None:
        self._concerned: list[OnDeath] = []
        self._ours: list[signal.Signals] = []
        self._wakeup: tuple[int, int] | None = None
        self._once = threads.Lock()
        self._pid = os.getpid()

    def begin(self, on_death: OnDeath) -> None:
        """Call this, with the signal's name, before the process dies."""
        self._concerned.append(on_death)
        if not self._ours and in_main_thread():
            self._pid = os.getpid()
            self._ours = [number for number in DEADLY if signal.getsignal(number) is signal.SIG_DFL]
            if self._ours:
                self._open()
                self.resume()

    def end(self, on_death: OnDeath) -> None:
        """Do not call it any more; after the last one, put the default actions back."""
        with contextlib.suppress(ValueError):
            self._concerned.remove(on_death)
        if not self._concerned and self._ours and in_main_thread():
            self.pause()
            self._ours = []
            self._close()

    def pause(self) -> None:
        """Put the default actions back for now, where nobody has changed them since."""
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
            if found not in (self._wakeup[1], -1):  # an event loop's: it wakes up for every signal by itself
                signal.set_wakeup_fd(found)

    def after_fork(self) -> None:
        """A forked child dies as it would have: it owns no run."""
        self.pause()
        self._concerned, self._ours, self._once = [], [], threads.Lock()
        for fd in self._wakeup or ():
            os.close(fd)
        self._wakeup = None

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._once.acquire(blocking=False):
            self._tell(number)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _tell(self, number: int) -> None:
        for on_death in reversed(tuple(self._concerned)):
            on_death(signal.Signals(number).name)

    def _open(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        self._wakeup = (reader, writer)
        threads.Thread(target=self._wait, args=(reader,), name="flightlog-signals").start()

    def _close(self) -> None:
        if self._wakeup is not None:
            os.close(self._wakeup[1])  # the waiting thread reads the end, closes its side and ends
            self._wakeup = None

    def _wait(self, reader: int) -> None:
        try:
            while data := os.read(reader, 64):
                deadly = [number for number in self._ours if int(number) in data]
                if deadly:
                    self._die(deadly[0])
        except OSError:
            return
        finally:
            with contextlib.suppress(OSError):
                os.close(reader)

    def _die(self, number: int) -> None:
        """Do what the handler would, if the main thread does not come round to it."""
        threads.sleep(GRACE_S)
        if os.getpid() != self._pid or signal.getsignal(number) != self._handle:
            return  # somebody has set a handler since: it is theirs to decide
        if self._once.acquire(blocking=False):
            import ctypes

            self._tell(number)
            ctypes.CDLL(None).signal(int(number), 0)
            os.kill(self._pid, number)


death = DeathWatch()

# Around a fork the default actions stand: a child just forked shares the pipe, and Python throws away signals that
# meet it before it has put itself in order. Forks by other threads than the main one cannot be guarded.


def _before_fork() -> None:
    if in_main_thread():
        death.pause()


def _after_fork_in_parent() -> None:
    if in_main_thread():
        death.resume()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=death.after_fork
)
