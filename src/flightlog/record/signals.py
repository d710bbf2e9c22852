"""Death by SIGTERM or SIGHUP ends a run as interrupted, and the process dies of that signal all the same.

The handlers are set only where the default action stood, so the user's own are never replaced. Python runs
them in the main thread between two instructions; where that thread is inside a long C call, a watching thread
does the work, so that nothing dies later than it would have.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable
from functools import partial
from types import FrameType

from flightlog.core import threads
from flightlog.core.descriptors import Descriptor, is_open, make_pipe
from flightlog.core.threads import in_main_thread

DEADLY = (signal.SIGTERM, signal.SIGHUP)
GRACE_S = 1.0

OnDeath = Callable[[str], None]


class DeathWatch:
    """The one watch of a process: calls everybody concerned, the latest first, before a deadly signal kills
    it.

    Python lets only the main thread change signals. Asked by another thread, the watch begins with the next
    one that the main thread asks for, and goes on, without anybody concerned, until then.

    Python writes the numbers of signals into a pipe, known to it by a bare number. Where the program closes
    the pipe, the watching thread reads its end at once, makes another one under the same number, and where
    that is taken asks the main thread to tell Python another one. What remains: a signal that comes before
    the main thread has done so is written into whatever the program has put there, at the high number of a
    kept descriptor.
    """

    def __init__(self) -> None:
        self._concerned: list[OnDeath] = []
        self._ours: list[signal.Signals] = []
        self._wakeup: tuple[Descriptor, Descriptor] | None = None
        self._armed = -1  # the number that Python was told
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

    def begin_in_main_thread(self, on_death: OnDeath) -> None:
        """The same, from any thread: at once in the main thread, else between two of its instructions.

        Until then the process dies as it would have. One that forks meanwhile leaves its child out.
        """
        if in_main_thread():
            self.begin(on_death)
        else:
            _call_in_main_thread(partial(self._begin_unless_forked, on_death, os.getpid()))

    def _begin_unless_forked(self, on_death: OnDeath, pid: int) -> None:
        if os.getpid() == pid:
            self.begin(on_death)

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
            if found not in (self._armed, -1):
                with contextlib.suppress(OSError, ValueError):  # it is closed by now
                    signal.set_wakeup_fd(found)

    def resume(self) -> None:
        """Handle the signals again, where nobody else does by now."""
        for number in self._ours:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._handle)
        self._arm()

    def _arm(self) -> None:
        """Let Python write into the pipe from now on; where there is none, not into a number that once was
        one.
        """
        if self._wakeup is None and self._armed < 0:
            return
        before, self._armed = self._armed, -1
        if self._wakeup is not None and self._wakeup[1].still_ours():
            self._armed = self._wakeup[1].number
        found = signal.set_wakeup_fd(self._armed, warn_on_full_buffer=False)
        if found not in {before, self._armed, -1}:  # an event loop's: it wakes up for every signal by itself
            with contextlib.suppress(OSError, ValueError):  # it is closed by now
                signal.set_wakeup_fd(found)

    def after_fork(self) -> None:
        """A forked child dies as it would have: it owns no run."""
        self.pause()
        self._concerned, self._ours, self._once = [], [], threads.Lock()
        for one in self._wakeup or ():
            one.close()
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
        self._wakeup = _wakeup_pipe()
        if self._wakeup is not None:
            threads.Thread(target=self._wait, args=(self._wakeup,), name="flightlog-signals").start()

    def _close(self) -> None:
        if self._wakeup is not None:
            wakeup, self._wakeup = self._wakeup, None
            wakeup[1].close()  # the waiting thread reads the end, closes its side and ends

    def _wait(self, pipe: tuple[Descriptor, Descriptor]) -> None:
        waiting: tuple[Descriptor, Descriptor] | None = pipe
        while waiting is not None:
            self._listen(waiting[0])
            waiting = self._renew(waiting) if self._wakeup is waiting and os.getpid() == self._pid else None

    def _listen(self, reader: Descriptor) -> None:
        try:
            while data := os.read(reader.fd, 64):
                deadly = [number for number in self._ours if int(number) in data]
                if deadly:
                    self._die(deadly[0])
        except OSError:
            return
        finally:
            reader.close()

    def _renew(self, lost: tuple[Descriptor, Descriptor]) -> tuple[Descriptor, Descriptor] | None:
        """The program has closed the pipe: another one under the number that Python knows, if nobody has it
        yet.
        """
        lost[1].close()
        fresh = None if is_open(self._armed) else _wakeup_pipe()
        if fresh is None or not fresh[1].take(self._armed):
            _call_in_main_thread(partial(self._begin_again, lost))
            return None
        if self._wakeup is not lost:  # the run has ended meanwhile
            return None
        self._wakeup = fresh
        return fresh

    def _begin_again(self, lost: tuple[Descriptor, Descriptor]) -> None:
        if self._wakeup is lost:
            self._open()
            self._arm()

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


def _wakeup_pipe() -> tuple[Descriptor, Descriptor] | None:
    """A pipe that Python can write into from its signal handler; None where there is none to be had."""
    try:
        reader, writer = make_pipe()
        os.set_blocking(writer.fd, False)
    except OSError:
        return None
    return reader, writer


def _call_in_main_thread(function: Callable[[], None]) -> None:
    """Call it between two instructions of the main thread, the only one that may change signals."""
    import ctypes

    def call(_: int | None) -> int:
        with contextlib.suppress(Exception):
            function()
        return 0

    _calls.append(ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call))
    ctypes.pythonapi.Py_AddPendingCall(_calls[-1], None)


_calls: deque[object] = deque(maxlen=64)
"""What the main thread may have yet to call: it must not be freed before."""


death = DeathWatch()

# Around a fork the default actions stand: a child just forked shares the pipe, and Python throws away signals
# that meet it before it has put itself in order. Forks by other threads than the main one cannot be guarded.


def _before_fork() -> None:
    if in_main_thread():
        death.pause()


def _after_fork_in_parent() -> None:
    if in_main_thread():
        death.resume()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=death.after_fork
)
