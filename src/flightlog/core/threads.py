"""Real threads, locks, events and queues for Flightlog's own work.

gevent and eventlet replace what `threading`, `queue`, `time` and `select` hold: a thread becomes a greenlet,
a lock switches to another greenlet. Flightlog's threads wait in the kernel, which would stop every greenlet
for ever, and a switch inside one of its locks would block the next caller. So its threads and locks are built
on a second instance of the C module `_thread`, which monkey patching never sees, whether it happens before or
after this module is imported.

Whoever holds one of these locks must not call anything that may switch: nothing from `threading`, `queue`,
`time.sleep`, `select`, `socket` or `subprocess`.
"""

from __future__ import annotations

import os
import posix
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from types import BuiltinFunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from flightlog.core.descriptors import make_pipe

_originals: dict[str, ModuleType] = {}


SWITCH_S = 1e-4
"""The switch interval while a run ends. Python's own 5 ms is what each busy thread holds the interpreter for
whenever a system call gave it away; much shorter ones are spent on switching."""
_LOWERED_S = 1e-6 * int(1e6 * SWITCH_S)
"""The same as Python tells it, in whole microseconds."""
_switching: list[_Lowered] = []
"""Who needs it lowered now: runs that begin or end, and first samples."""
_HARDLY_S = 0.02


def original(name: str) -> Any:
    """The C module of this name as it was before any monkey patching: a second instance of it, made once."""
    if name not in _originals:
        spec = import_module(name).__spec__
        assert spec is not None
        assert spec.loader is not None
        module = spec.loader.create_module(spec)
        assert module is not None
        spec.loader.exec_module(module)
        _originals[name] = module
    return _originals[name]


if TYPE_CHECKING:
    from contextvars import Context
    from threading import Lock as Lock  # noqa: PLC0414 - for others to import
    from threading import RLock as RLock  # noqa: PLC0414
    from threading import get_ident as get_ident  # noqa: PLC0414
    from threading import local as local  # noqa: PLC0414
else:
    _real = original("_thread")
    Lock, RLock, get_ident, local = _real.allocate_lock, _real.RLock, _real.get_ident, _real._local
_start_new_thread: Callable[[Callable[[], None], tuple[()]], int] = original("_thread").start_new_thread
_leaving = RLock()


def is_patched() -> bool:
    """Whether `threading` deals in green threads by now."""
    return not isinstance(threading.get_ident, BuiltinFunctionType)


@cache
def in_main_interpreter() -> bool:
    """False in a subinterpreter: there are no signals and no forks, and a thread left when it ends aborts the
    process.
    """
    for name in ("_interpreters", "_xxsubinterpreters"):  # since Python 3.13, and before
        with suppress(Exception):  # not there; or a hook of the program's
            interpreters = import_module(name)
            return bool(interpreters.get_current() == interpreters.get_main())
    return True


def in_main_thread() -> bool:
    """Whether this is the thread that may set signal handlers, in whichever greenlet of it."""
    if not in_main_interpreter():
        return False
    if is_patched() and sys.platform == "linux":
        return threading.get_native_id() == os.getpid()
    return threading.current_thread() is threading.main_thread()


def sleep(seconds: float) -> None:
    """Sleep as a thread does, with every greenlet of it."""
    waiting = Lock()
    waiting.acquire()
    waiting.acquire(timeout=max(0.0, seconds))


def hears_of_children() -> bool:
    """Whether the program has a handler for the end of its children: it would hear of ours, and take it for
    its own.
    """
    return signal.getsignal(signal.SIGCHLD) not in (signal.SIG_DFL, signal.SIG_IGN)


def run_command(
    arguments: list[str], environ: Mapping[str, str], timeout_s: float
) -> tuple[int | None, bytes, bytes]:
    """Run a program without input, in a process group of its own, to its end: exit code, output and errors.

    Without `subprocess`: gevent's forks this process, from whatever thread, and waits for the child in a hub.
    The exit code is None where somebody else has taken it; it is minus the number of a signal. `TimeoutError`
    after so many seconds.
    """
    deadline = time.monotonic() + timeout_s
    (output, output_writer), (errors, errors_writer) = make_pipe(), make_pipe()
    said = {output: bytearray(), errors: bytearray()}
    try:
        pid = posix.posix_spawnp(
            arguments[0],
            arguments,
            environ,
            setpgroup=0,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output_writer.fd, 1),
                (os.POSIX_SPAWN_DUP2, errors_writer.fd, 2),
            ],
        )
    finally:
        output_writer.close()
        errors_writer.close()
    poll = original("select").poll()
    open_ones = {reader.number: reader for reader in said}
    for number in open_ones:
        poll.register(number)
    while open_ones and (left := deadline - time.monotonic()) > 0:
        for number, _ in poll.poll(1000 * left):
            reader = open_ones[number]
            data = posix.read(reader.number, 1 << 16) if reader.still_ours() else b""
            said[reader] += data
            if not data:
                poll.unregister(number)
                del open_ones[number]
    code = _exit_code(pid, deadline, timeout_s)
    if not (output.still_ours() and errors.still_ours()):
        raise OSError(f"what {arguments[0]} said is lost: the program closed the pipe")
    return code, bytes(said[output]), bytes(said[errors])


def _exit_code(pid: int, deadline: float, timeout_s: float) -> int | None:
    """The exit code of a child that is about to end, and is made to at the deadline."""
    try:
        while (ended := posix.waitpid(pid, os.WNOHANG))[0] == 0:
            if time.monotonic() >= deadline:
                os.killpg(pid, signal.SIGKILL)
                posix.waitpid(pid, 0)
                raise TimeoutError(f"no answer within {timeout_s:g} s")
            sleep(0.001)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(ended[1])


class Condition:
    """As `threading.Condition`."""

    def __init__(self, lock: Any = None) -> None:
        self._lock: Any = RLock() if lock is None else lock
        self._waiting: deque[Any] = deque()
        self.acquire: Callable[..., bool] = self._lock.acquire
        self.release: Callable[[], None] = self._lock.release

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_error: object) -> None:
        self.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Let the lock go until notified, for so many seconds at most; whether it was notified."""
        mine = Lock()
        mine.acquire()
        self._waiting.append(mine)
        depth = self._lock._release_save() if hasattr(self._lock, "_release_save") else self._lock.release()
        notified = False
        try:
            notified = mine.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
            return notified
        finally:
            if depth is None:
                self._lock.acquire()
            else:
                self._lock._acquire_restore(depth)
            if not notified and mine in self._waiting:
                self._waiting.remove(mine)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait until the predicate holds; its last value."""
        by = None if timeout is None else time.monotonic() + timeout
        while not (value := predicate()):
            left = None if by is None else by - time.monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return value

    def notify(self) -> None:
        """Wake one who waits, if there is one; the lock is held."""
        if self._waiting:
            self._waiting.popleft().release()

    def notify_all(self) -> None:
        """Wake everybody who waits; the lock is held."""
        while self._waiting:
            self._waiting.popleft().release()


class Event:
    """As `threading.Event`."""

    def __init__(self) -> None:
        self._condition = Condition(Lock())
        self._set = False

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._set

    def set(self) -> None:
        """It has happened: wake everybody who waits."""
        with self._condition:
            self._set = True
            self._condition.notify_all()

    def clear(self) -> None:
        """It has not happened yet."""
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it, for so many seconds at most; whether it has happened."""
        with self._condition:
            return self._set or bool(self._condition.wait_for(self.is_set, timeout))


class Thread:
    """A real thread that does not keep the process alive, also where `threading.Thread` makes greenlets.

    Where nothing is patched `threading.enumerate` and `threading.current_thread` know it by its name while it
    runs.
    """

    def __init__(
        self, target: Callable[..., object], args: Sequence[Any] = (), name: str = "flightlog"
    ) -> None:
        self.name = name
        self.ident: int | None = None
        self._target, self._args = target, args
        self._pid = -1
        self._running, self._begun = Lock(), Lock()

    def start(self) -> None:
        """Begin; `RuntimeError` where there can be no more threads, as in every subinterpreter."""
        if not in_main_interpreter():
            raise RuntimeError("a subinterpreter is left without threads")
        self._pid = os.getpid()
        self._running.acquire()
        self._begun.acquire()
        try:
            _start_new_thread(self._run, ())
        except BaseException:
            self._running.release()
            raise
        self._begun.acquire()

    def is_alive(self) -> bool:
        """Whether it has begun and not ended; never of a thread of the process that this one was forked
        from.
        """
        return self._pid == os.getpid() and self._running.locked()

    def is_current(self) -> bool:
        """Whether it is the one that asks."""
        return self._pid == os.getpid() and self.ident == get_ident()

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, for so many seconds at most."""
        if self.is_alive() and self._running.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            self._running.release()

    def _run(self) -> None:
        self.ident = get_ident()
        known = not is_patched()
        try:
            try:
                if known:
                    threading.current_thread().name = self.name
            finally:
                self._begun.release()
            if known:
                if (trace := threading.gettrace()) is not None:  # debuggers, and measuring of coverage
                    sys.settrace(trace)
                if (profile := threading.getprofile()) is not None:
                    sys.setprofile(profile)
            self._target(*self._args)
        finally:
            if known:
                getattr(threading, "_active", {}).pop(self.ident, None)
            self._running.release()


class _Lowered:
    """The switch interval as it was, and as it is for somebody."""

    def __init__(self, before: float) -> None:
        self.before, self.lowered = before, min(before, _LOWERED_S)


@contextmanager
def quick_handovers() -> Iterator[None]:
    """Threads get the interpreter back soon, inside; after the last of those who are inside at once it is as
    before the first, unless somebody else has set it meanwhile.
    """
    mine = _Lowered(sys.getswitchinterval())
    _switching.append(mine)  # for as long as it is lowered: other threads may fork at any moment
    try:
        if mine.before > SWITCH_S:
            sys.setswitchinterval(SWITCH_S)
        yield
    finally:
        with _leaving:
            if mine in _switching:  # a child that was forked inside has put it back already
                others = [one for one in _switching if one is not mine]
                if others:
                    others[0].before = max(others[0].before, mine.before)
                else:
                    _put_back(mine.before, mine.lowered)
                _switching.remove(mine)


def _put_back(before: float, lowered: float) -> None:
    if sys.getswitchinterval() == lowered != before:
        sys.setswitchinterval(before + 0.5e-6)  # it cuts off what is less than a microsecond


def _after_fork() -> None:
    global _leaving
    _leaving = RLock()  # a thread that is not in the child may have held it
    if _switching:
        _put_back(max(one.before for one in _switching), _switching[-1].lowered)
        _switching.clear()


os.register_at_fork(after_in_child=_after_fork)


class ForkGate:
    """Around what a child could not go on after: any number at once, and none begins while the process forks.

    A fork waits for those inside, for `waits_s` at most; what takes longer is its own risk. Once that was in
    vain, as where something inside hangs, later forks hardly wait. Gates are for the life of the process.
    """

    def __init__(self, waits_s: float) -> None:
        self._waits_s = waits_s
        self._gate, self._inside = Condition(), 0
        self._forking = local()
        os.register_at_fork(
            before=self._before, after_in_parent=self._after_in_parent, after_in_child=self._after_in_child
        )

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Inside until the block ends."""
        with self._gate:
            self._inside += 1
        try:
            yield
        finally:
            with self._gate:
                self._inside -= 1
                self._gate.notify_all()

    def _before(self) -> None:
        gate = self._gate
        self._forking.held = gate if gate.acquire(timeout=self._waits_s) else None
        if self._forking.held is None or not gate.wait_for(lambda: self._inside <= 0, self._waits_s):
            self._waits_s = min(self._waits_s, _HARDLY_S)

    def _after_in_parent(self) -> None:
        held, self._forking.held = getattr(self._forking, "held", None), None
        if held is not None:
            held.release()

    def _after_in_child(self) -> None:
        self._gate, self._inside = Condition(), 0
        self._forking.held = None


def keep_changes(before: Context, after: Context) -> None:
    """Set here the context variables that a call on another thread has changed: `after` is the copy of
    `before` that it ran in.
    """
    for variable, value in after.items():
        if before.get(variable, before) is not value:
            variable.set(value)
