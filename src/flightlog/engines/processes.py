"""Processes of workers: launched with `multiprocessing`, with pipes that have an identity; those below a
worker, which its tasks started and which end with it when it is ended by force; and why one ended.

`multiprocessing` knows its pipes, and those to its helper processes, by their numbers alone. A program that
closes all descriptors meanwhile, and opens files of its own, would find lines of a pipe in them, or find them
closed. So its own code runs here with another `os`, whose pipes are Flightlog's: at high numbers, and closed
only while they mean what was opened.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import Any, Literal, TypeVar

from msgspec import Struct

from flightlog.core.descriptors import (
    Descriptor,
    Identity,
    folder_names,
    identify,
    make_pipe,
    means,
    read_bytes,
)
from flightlog.core.text import signal_name
from flightlog.samplers.cgroup import OomKills
from flightlog.samplers.procfs import PROC

T = TypeVar("T")
CONNECTION_CLOSED = 187
"""The exit code of a worker process that found its connection to the engine closed by something in it."""
CLOSED_BY_TASK = "a task closed the connection of this worker to its engine"


class ExitReason(Struct, frozen=True):
    """How a process ended."""

    reason: str
    exit_code: int | None = None
    signal: str | None = None


def describe_exit(exit_code: int | None, oom: OomKills) -> ExitReason:
    """The end of a process from its exit code as `multiprocessing` has it: negative is a signal, None
    unknown.
    """
    if exit_code is None:
        return ExitReason("its process is gone; nobody saw how it ended")
    if exit_code == CONNECTION_CLOSED:
        return ExitReason(CLOSED_BY_TASK, exit_code=exit_code)
    if exit_code >= 0:
        return ExitReason(f"its process ended with exit code {exit_code}", exit_code=exit_code)
    name = signal_name(-exit_code)
    kernel = oom.claim() if name == "SIGKILL" else None
    return ExitReason(f"its process was killed by {name}{f' {kernel}' if kernel else ''}", signal=name)


_INFO_BYTES = 64
_GET_INFO = (3 << 30) | (_INFO_BYTES << 16) | (0xFF << 8) | 11
_WANTS_EXIT = 1 << 3
_EXIT_AT = 60


class WatchedProcess:
    """One process of this host, watched for its end. One thread at a time; `close` it.

    `fd` becomes readable when the process has ended. `OSError` where there is no such process, or no such
    descriptor to be had (another system than Linux, another user's process).
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        if not hasattr(os, "pidfd_open"):
            raise OSError("this system has no descriptors of processes")
        self._descriptor = Descriptor(os.pidfd_open(pid))
        self.fd = self._descriptor.number

    def exit_code(self) -> int | None:
        """The exit code as `multiprocessing` has it, negative for a signal; None while nobody can tell.

        Linux 6.15 and later keep it for whoever holds a descriptor, from the moment the parent has asked for
        it. Before that, and on older kernels, it can be read as long as the parent has not.
        """
        status = self._kept()
        if status is None:
            status = self._of_zombie()
        return None if status is None else os.waitstatus_to_exitcode(status)

    def is_watched(self) -> bool:
        """Whether `fd` still means the process, and not something that the program opened since."""
        return self._descriptor.still_ours()

    def close(self) -> None:
        """Watch no more; again, it does nothing."""
        self._descriptor.close()

    def _kept(self) -> int | None:
        info = bytearray(_INFO_BYTES)
        struct.pack_into("=Q", info, 0, _WANTS_EXIT)
        try:
            fcntl.ioctl(self._descriptor.fd, _GET_INFO, info)
        except OSError:
            return None
        (told,) = struct.unpack_from("=Q", info, 0)
        return struct.unpack_from("=i", info, _EXIT_AT)[0] if told & _WANTS_EXIT else None

    def _of_zombie(self) -> int | None:
        with suppress(OSError, ValueError, IndexError):
            stat = (PROC / str(self.pid) / "stat").read_bytes()
            state, *fields = stat[stat.rindex(b")") + 1 :].split()
            return int(fields[48]) if state == b"Z" else None
        return None


def ask_psutil(question: Callable[[Any], T], otherwise: T) -> T:
    """What `psutil` answers, which the question gets; the other answer where a process is gone or another
    user's.
    """
    import psutil

    try:
        return question(psutil)
    except psutil.Error:
        return otherwise


def descendants(pid: int | None = None) -> list[Any]:
    """The processes below a process, this one by default; each knows by its start whether a number is still
    its own.
    """
    if pid is not None and not _has_children(pid):
        return []
    return ask_psutil(lambda psutil: list(psutil.Process(pid).children(recursive=True)), [])


def end_all(processes: list[Any], deed: Literal["terminate", "kill"]) -> None:
    """Send SIGTERM or SIGKILL to those that are still there."""
    import psutil

    for process in processes:
        with suppress(psutil.Error):
            getattr(process, deed)()


class Leftovers:
    """Processes that outlived the worker they ran below, and when each lot is to be killed."""

    def __init__(self) -> None:
        self._lots: list[tuple[float, list[Any]]] = []

    def __len__(self) -> int:
        return len(self._lots)

    def add(self, by: float, processes: list[Any]) -> None:
        """Let those that still run have until then, on the monotonic clock."""
        if processes:
            self._lots.append((by, processes))

    def review(self, now: float) -> None:
        """Forget those that are gone, and kill those whose time has come."""
        lots = [(by, [process for process in lot if is_running(process)]) for by, lot in self._lots]
        for by, lot in lots:
            if by <= now:
                end_all(lot, "kill")
        self._lots = [(by, lot) for by, lot in lots if lot and by > now]


def process_of(pid: int) -> Any:
    """A process that knows by its start whether the number is still its own; None where it is gone."""
    return ask_psutil(lambda psutil: psutil.Process(pid), None)


def start_of(pid: int) -> float | None:
    """When a process was started, in Unix time, and not after now; None where it is gone."""
    return ask_psutil(lambda psutil: min(float(psutil.Process(pid).create_time()), time.time()), None)


def is_running(process: Any) -> bool:
    """Whether a process of `process_of` or `descendants` still runs."""
    return ask_psutil(
        lambda psutil: bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE), False
    )


def _has_children(pid: int) -> bool:
    """Whether a process may have children: looking through all processes of the machine takes long."""
    try:
        tasks = PROC / str(pid) / "task"
        return any(read_bytes(tasks / thread / "children") for thread in folder_names(tasks))
    except OSError:
        return True  # this kernel does not tell


Pipes = tuple[Descriptor | None, ...]

_helpers: dict[str, Identity] = {}
"""What the descriptors mean that `multiprocessing` keeps to its helper processes, by the attribute."""
_abandoned: list[int] = []
"""Helper processes that end by themselves, and have not been seen to."""
_kept: dict[int, Descriptor] = {}
"""Descriptors of pipes that `multiprocessing` has got from here, by their number."""


def launch(process: Any, method: str) -> Pipes:
    """Start a process of `multiprocessing`; the pipes it keeps for it, to be closed by the caller, the
    sentinel first.

    The sentinel is None where it was closed meanwhile. Raises whatever `start` raises.
    """
    _forget_lost_helpers()
    if method == "spawn":
        _start_tracker()
        process._Popen = _spawning_popen()
    with _undecided_start_method():
        process.start()
    _note_helpers()
    return _take_over_pipes(process)


@contextmanager
def _undecided_start_method() -> Iterator[None]:
    """Starting a process settles the start method of the whole program, which could not set it afterwards:
    leave it as open as it was.
    """
    from multiprocessing import context

    default: Any = context._default_context
    undecided = default._actual_context is None
    try:
        yield
    finally:
        if undecided and default._actual_context is default._default_context:
            default._actual_context = None


def shield_workers_from_ctrl_c(start_method: str | None) -> None:
    """Let workers launched from this thread begin with SIGINT blocked; they unblock it once they are prepared
    for it.
    """
    if start_method == "forkserver":
        return  # the server is not ours alone
    if start_method == "spawn":
        for _ in range(3):
            _forget_lost_helpers()
            with suppress(OSError):  # the program closes descriptors just now
                _start_tracker()  # nor is this one: it must not begin with anything blocked
                break
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _start_tracker() -> None:
    """Have the resource tracker running, by a pipe of ours if it is not. Raises OSError."""
    from multiprocessing import resource_tracker

    tracker: Any = resource_tracker._resource_tracker
    if tracker._fd is None:
        _with_our_pipes(type(tracker).ensure_running)(tracker)
        number: int = tracker.getfd()
        kept = _kept.pop(number, None) or Descriptor(number, _is_pipe)
        _helpers["_fd"] = kept.identity
        tracker._fd = kept.detach()


def _spawning_popen() -> type:
    """`multiprocessing`'s way to spawn a process, with our pipes."""
    from multiprocessing import popen_spawn_posix

    class Popen(popen_spawn_posix.Popen):
        def __init__(self, process: Any) -> None:
            del process._Popen  # what the process has is pickled
            super().__init__(process)

        _launch = _with_our_pipes(popen_spawn_posix.Popen._launch)  # type: ignore[attr-defined]

    return Popen


class _Instead:
    """A module of which some functions are replaced."""

    def __init__(self, module: Any, **functions: Any) -> None:
        self._module = module
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _with_our_pipes(function: Callable[..., Any]) -> Any:
    """The same function of `multiprocessing`, which makes and closes pipes by identity."""
    from multiprocessing import util

    ours = _Instead(os, pipe=_make_pipe, close=_close)
    spawn = _bound_to(util.spawnv_passfds, os=ours)
    names = _Instead(util, spawnv_passfds=spawn, close_fds=_close_all)
    return _bound_to(function, os=ours, open=_Writer, util=names)


def _bound_to(function: Any, **names: Any) -> Any:
    """The same function, with other values for these global names of its module."""
    names = {**function.__globals__, **names}
    return FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )


class _Writer:
    """A pipe of ours as `open` gives it, to be written to; it stays open."""

    def __init__(self, number: int, *_mode: str, **_options: object) -> None:
        self._pipe = _kept[number]

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_error: object) -> None: ...

    def write(self, data: memoryview) -> None:
        while data:
            data = data[self._pipe.write(data) :]


def _make_pipe() -> tuple[int, int]:
    reader, writer = make_pipe()
    _kept[reader.number], _kept[writer.number] = reader, writer
    return reader.number, writer.number


def _close(number: int) -> None:
    kept = _kept.pop(number, None)
    if kept is None:
        os.close(number)
    else:
        kept.close()


def _close_all(*numbers: int) -> None:
    for number in numbers:
        _close(number)


def _take_over_pipes(process: Any) -> Pipes:
    """The pipes that `multiprocessing` keeps for a process, the sentinel first, to be closed by us from now
    on.

    It would close them by their numbers, when its object goes, whatever those mean by then.
    """
    popen = process._popen
    finalizer = getattr(popen, "finalizer", None)
    if finalizer is None or not finalizer.still_active():
        return (None,)
    numbers: Sequence[int] = finalizer._args
    finalizer.cancel()
    taken = {number: _kept.pop(number, None) or _taken(number) for number in numbers}
    sentinel = taken.pop(popen.sentinel, None)
    popen.sentinel = -1 if sentinel is None else sentinel.number
    return (sentinel, *taken.values())


def _taken(number: int) -> Descriptor | None:
    try:
        return Descriptor(number, _is_pipe)
    except OSError:
        return None


def _is_pipe(made: Descriptor) -> bool:
    return stat.S_ISFIFO(os.fstat(made.fd).st_mode)


def _note_helpers() -> None:
    """Remember what the descriptors of helper processes mean, when they are sure to be right."""
    for owner, names in _owners():
        number = getattr(owner, names[0], None)
        if number is not None:
            with suppress(OSError):
                _helpers[names[0]] = identify(number)


def _forget_lost_helpers() -> None:
    """Have `multiprocessing` start its helper processes anew if their descriptors are not what they were.

    It would write into them and close them, by their numbers, whatever those mean by now. A helper whose
    descriptor was closed ends by itself.
    """
    for owner, names in _owners():
        number = getattr(owner, names[0], None)
        if number is None:
            continue
        known = _helpers.get(names[0])
        if known is None:
            with suppress(OSError):
                if stat.S_ISFIFO(os.fstat(number).st_mode):
                    continue  # made by the program, and a pipe as it should be
        elif means(number, known):
            continue
        if (pid := getattr(owner, names[1], None)) is not None:
            _abandoned.append(pid)
        for name in names:
            setattr(owner, name, None)
    for pid in [*_abandoned]:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                _abandoned.remove(pid)
        except OSError:
            _abandoned.remove(pid)


def _owners() -> list[tuple[Any, tuple[str, ...]]]:
    """The objects that keep descriptors of helper processes: the attribute of the descriptor, of the process,
    and others.
    """
    from multiprocessing import forkserver, resource_tracker

    return [
        (resource_tracker._resource_tracker, ("_fd", "_pid")),
        (forkserver._forkserver, ("_forkserver_alive_fd", "_forkserver_pid", "_forkserver_address")),
    ]
