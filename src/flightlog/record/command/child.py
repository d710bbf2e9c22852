"""A command as a child process: output and signals passed on unchanged, the last bytes of its output kept,
its end awaited.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import stat
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress

from msgspec import Struct

from flightlog.core import threads
from flightlog.core.descriptors import is_open
from flightlog.core.redaction import redact_text
from flightlog.core.text import signal_name
from flightlog.record.limits import RecordLimits
from flightlog.record.values import encodable

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""The exit codes by which shells say that a command could not be started."""

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_DEADLY = frozenset({signal.SIGTERM, signal.SIGHUP, *_FROM_TERMINAL})

_GONE = select.POLLERR | select.POLLHUP
RESET = [signal.SIGPIPE, signal.SIGXFSZ]
"""Signals that Python ignores, and whose default action a command expects."""


class NotStarted(Exception):  # noqa: N818 - reads as what happened
    """A command that could not be started; `code` is the exit code a shell would give."""

    def __init__(self, program: str, error: OSError) -> None:
        missing = isinstance(error, FileNotFoundError)
        self.code = NOT_FOUND if missing else NOT_EXECUTABLE
        super().__init__(f"{program}: {'command not found' if missing else error.strerror or error}")


class Inbox:
    """Signals sent to this process, kept until read, while it waits for a command; a context manager.

    For the main thread. A signal that is ignored (`nohup`) stays ignored, here and in the command.
    """

    def __init__(self) -> None:
        self._before: list[tuple[int, Callable[..., object] | int | None]] = []

    def __enter__(self) -> Inbox:
        self.fd, self._writer = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._writer, False)
        for number in (*_PASSED_ON, *_FROM_TERMINAL):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._before.append((number, signal.signal(number, lambda _number, _frame: None)))
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # the kernel would throw the exit status away
            self._before.append((signal.SIGCHLD, signal.signal(signal.SIGCHLD, signal.SIG_DFL)))
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, before in self._before:
            signal.signal(number, before)
        os.close(self.fd)
        os.close(self._writer)

    def read(self) -> list[int]:
        """The signals that came since the last call, in order."""
        try:
            return [*os.read(self.fd, 512)]
        except BlockingIOError:
            return []


class Ended(Struct, frozen=True):
    """How a command ended."""

    status: int
    """Its exit code, or minus the number of the signal that ended it."""
    interrupted_by: str | None
    """The signal, sent to this process, that its end is put down to."""
    usage: resource.struct_rusage

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None if a signal ended it."""
        return self.status if self.status >= 0 else None

    @property
    def signal(self) -> str | None:
        """The signal that ended it, if one did."""
        return signal_name(-self.status) if self.status < 0 else None

    @property
    def code(self) -> int:
        """The exit code as a shell has it: 128 and the signal's number where a signal ended it."""
        return self.status if self.status >= 0 else 128 - self.status


class Child:
    """A running command. It has this process's standard input, and its output goes where this process's goes.

    An output that is a terminal is the command's own: its keys, its modes, its size and its job control have
    nobody in between, and nobody sees what is written there. Any other output comes through a pipe and is
    passed on, so that its end can be kept: `passages`, by stream. `unseen` says why for each stream of which
    nothing is known.
    """

    def __init__(
        self, argv: Sequence[str], environ: Mapping[str, str], closed: Set[int] = frozenset()
    ) -> None:
        """Start it, or raise `NotStarted`. Streams in `closed` (see `hold_streams`) are closed to it, too."""
        self.passages: dict[str, OutputTee] = {}
        channels, self.unseen = _channels(closed)
        actions = [(os.POSIX_SPAWN_DUP2, ch.theirs, fd) for ch in channels for fd in ch.fds]
        try:
            self.pid = os.posix_spawnp(argv[0], list(argv), environ, file_actions=actions, setsigdef=RESET)
        except OSError as error:
            for channel in channels:
                os.close(channel.ours)
            raise NotStarted(argv[0], error) from error
        finally:
            for channel in channels:
                os.close(channel.theirs)
        over, self._over = os.pipe()
        for channel in channels:
            self.passages[channel.name] = OutputTee(channel.ours, channel.fds[0], over)
        self._reaped: tuple[int, int, resource.struct_rusage] | None = None
        self._ended, ended = os.pipe()
        threads.Thread(target=self._watch, args=(ended,), name="flightlog-command").start()

    def _watch(self, ended: int) -> None:
        if hasattr(os, "waitid"):
            # Not reaped: signals still find it, and only it.
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._reaped = os.wait4(self.pid, 0)
        os.close(ended)

    def wait(self, inbox: Inbox, at_end: Callable[[], None]) -> Ended:
        """Wait for its end, signals passed on meanwhile; `at_end` is called while its last figures can be
        read.

        All it wrote has been passed on then. What its own children still write later, others pass on.
        """
        received: list[int] = []
        poll = select.poll()
        poll.register(inbox.fd, select.POLLIN)
        poll.register(self._ended, 0)
        ended = given_up = False
        while not ended:
            ended = self._ended in dict(poll.poll())
            # At the end as well: a Ctrl-C is here before the end that it brought about.
            received += [number for number in inbox.read() if self._received(number)]
        at_end()
        os.close(self._over)
        for passage in self.passages.values():
            while not (given_up or passage.wait(0.05)):  # its reader may be slow
                given_up = not _DEADLY.isdisjoint(inbox.read())
            passage.hand_over()
        _, status, usage = self._reaped or os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        # Ctrl-C is what ended it only if it did not end well all the same.
        deadly = (signal_name(number) for number in received if number not in _FROM_TERMINAL or code != 0)
        return Ended(code, next(deadly, None), usage)

    def _received(self, number: int) -> bool:
        """Pass a signal on, unless the terminal has; whether it was one of those that end programs."""
        if number in _PASSED_ON or (number in _FROM_TERMINAL and not _in_foreground()):
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)
        return number in _DEADLY


class _Channel(Struct):
    name: str
    fds: list[int]
    ours: int
    theirs: int


def hold_streams() -> frozenset[int]:
    """Keep the numbers of standard streams that are closed from being given to other files; gives which they
    are.
    """
    # The lowest number that is free is given, and so this one.
    return frozenset(os.open(os.devnull, os.O_RDWR) for fd in range(3) if not is_open(fd))


def _channels(closed: Set[int]) -> tuple[list[_Channel], dict[str, str]]:
    """What the command writes to that is passed on, and why the other streams are not.

    One channel for each output, or one for both where they are the same file.
    """
    found = {"stdout": [1], "stderr": [2]}
    if closed.isdisjoint((1, 2)) and os.path.sameopenfile(1, 2):  # two pipes would mix up the order
        found = {"output": [1, 2]}
    channels: list[_Channel] = []
    unseen: dict[str, str] = {}
    for name, fds in found.items():
        if fds[0] in closed:
            unseen[name] = "was closed"
        elif os.isatty(fds[0]):
            unseen[name] = "went to a terminal, not kept"
        else:
            try:
                channels.append(_Channel(name, fds, *os.pipe()))
            except OSError as error:  # no descriptors left: the command has the stream itself
                unseen[name] = f"went its own way, not kept: {error.strerror}"
    return channels, unseen


def become(argv: Sequence[str]) -> NotStarted:
    """Turn this process into the command; gives the reason where that cannot be."""
    if sys.stdout is not None:  # as it is where standard output is closed
        sys.stdout.flush()
    for number in RESET:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], list(argv))  # noqa: S606 - a command given as words needs no shell
    except OSError as error:
        return NotStarted(argv[0], error)


def _in_foreground() -> bool:
    """Whether the terminal sends its signals to this process group, and so to the command as well."""
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


class OutputTail:
    """The end of a stream of bytes, and how many there were; one thread adds, any reads."""

    def __init__(self, limit: int = 2 * RecordLimits.output_tail_characters) -> None:
        self.total_bytes = 0
        self._limit = limit
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """The next bytes of the stream."""
        self.total_bytes += len(data)
        self._kept += data[-self._limit :]
        if len(self._kept) > 2 * self._limit:
            del self._kept[: -self._limit]

    def text(self, limit: int = RecordLimits.output_tail_characters) -> str:
        """The last characters, redacted, from the beginning of a line; bytes that are no UTF-8 are
        replaced.
        """
        kept = bytes(self._kept)
        if len(kept) < self.total_bytes:  # half a line may hold half a secret, which nothing would recognize
            kept = kept.partition(b"\n")[2] or kept
        text = encodable(redact_text(kept.decode("utf-8", "replace")))
        if len(text) <= limit:
            return text
        return text[-limit:].partition("\n")[2] or text[-limit:]


class OutputTee:
    """Passes on what comes from `source` to `sink`, on a thread of its own, until nobody can write any more.

    A reader of `sink` that goes away closes `source`, so that the command gets its SIGPIPE as it would have.
    `over` is the read end of a pipe that closes when the command has ended: from then on everything it wrote
    is passed on, and if other processes still hold the stream after a moment, `held_open` is set and the
    thread ends.
    """

    def __init__(self, source: int, sink: int, over: int) -> None:
        self.tail = OutputTail()
        self.held_open = False
        self._source, self._sink, self._over = source, sink, over
        self._thread = threads.Thread(target=self._pass_on, name="flightlog-output")
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Whether it has come to its end, waiting this many seconds at most."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def hand_over(self) -> None:
        """Leave a stream that is held open to a `cat` that outlives this process; without one, wait for its
        end.
        """
        if not self.held_open:
            return
        try:
            os.posix_spawnp(
                "cat",
                ["cat"],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, self._source, 0),
                    (os.POSIX_SPAWN_DUP2, self._sink, 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setsigdef=RESET,
            )
        except OSError:
            while self._pass_chunk():
                pass
        os.close(self._source)

    def _pass_on(self) -> None:
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._over, 0)
        if not stat.S_ISREG(os.fstat(self._sink).st_mode):
            poll.register(self._sink, 0)
        owed, until = 0, 0.0
        while True:
            wait_ms = max(0.0, 1000 * (until - time.monotonic())) if until else None
            ready = dict(poll.poll(wait_ms))
            if ready.get(self._sink, 0) & _GONE:
                break
            closed = ready.get(self._source, 0) & select.POLLHUP
            if until and owed <= 0 and not closed and time.monotonic() >= until:
                self.held_open = True
                return
            if self._source in ready:
                passed = self._pass_chunk()
                owed -= passed
                if not passed:
                    break
            elif self._over in ready:
                poll.unregister(self._over)
                owed = _waiting_bytes(self._source)
                until = time.monotonic() + RecordLimits.output_close_wait_s
        os.close(self._source)

    def _pass_chunk(self) -> int:
        """Pass on what there is, waiting for it; 0 at the end, or when nobody takes it any more."""
        data = os.read(self._source, RecordLimits.output_chunk_bytes)
        self.tail.add(data)
        return len(data) if write_all(self._sink, data) else 0


def write_all(fd: int, data: bytes) -> bool:
    """Write every byte, waiting as long as it takes; False where nobody can take them any more."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()
        except OSError:
            return False
    return True


def _waiting_bytes(fd: int) -> int:
    """How many bytes can be read right now."""
    try:
        answer = fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0")
    except OSError:
        return 0
    return int.from_bytes(answer, sys.byteorder)
