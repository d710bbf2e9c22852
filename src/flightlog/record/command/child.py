"""A command as a child process: its output passed on, signals passed on, its end awaited. Nothing is recorded
here.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from types import TracebackType

from msgspec import Struct

from flightlog.core import threads
from flightlog.core.text import signal_name
from flightlog.record.command.output_tee import RESET, Passage

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""The exit codes by which shells say that a command could not be started."""

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_DEADLY = frozenset({signal.SIGTERM, signal.SIGHUP, *_FROM_TERMINAL})


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        self.passages: dict[str, Passage] = {}
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
            self.passages[channel.name] = Passage(channel.ours, channel.fds[0], over)
        self._reaped: tuple[int, int, resource.struct_rusage] | None = None
        self._ended, ended = os.pipe()
        threads.Thread(target=self._watch, args=(ended,), name="flightlog-command").start()

    def _watch(self, ended: int) -> None:
        if hasattr(os, "waitid"):
            os.waitid(
                os.P_PID, self.pid, os.WEXITED | os.WNOWAIT
            )  # not reaped: signals still find it, and only it
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
            for number in inbox.read():
                received += [number] if self._received(number) else []
        at_end()
        os.close(self._over)
        for passage in self.passages.values():
            while not (given_up or passage.wait(0.05)):  # its reader may be slow
                given_up = not _DEADLY.isdisjoint(inbox.read())
            passage.hand_over()
        _, status, usage = self._reaped or os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return Ended(code, _interruption(received, code), usage)

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
    closed = set()
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            closed.add(os.open(os.devnull, os.O_RDWR))  # the lowest number that is free, so this one
    return frozenset(closed)


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


def _interruption(received: Sequence[int], code: int) -> str | None:
    """The signal that the command's end is put down to: Ctrl-C only if it did not end well all the same."""
    for number in received:
        if number not in _FROM_TERMINAL or code != 0:
            return signal_name(number)
    return None


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
