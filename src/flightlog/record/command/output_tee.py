"""A command's output on its way: read, passed on at once and unchanged, with its last bytes kept."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import stat
import sys
import termios
import time

from flightlog.core import threads
from flightlog.core.redaction import redact_text
from flightlog.record.values import encodable

TAIL_CHARACTERS = 8192
"""How much of the end of a stream a run keeps."""
_CHUNK = 1 << 16
_GRACE_S = 0.1
"""How long the last writer may take to close a stream after the command ended, before others pass it on."""
_GONE = select.POLLERR | select.POLLHUP


class Tail:
    """The end of a stream of bytes, and how many there were; one thread adds, any reads."""

    def __init__(self, limit: int = 2 * TAIL_CHARACTERS) -> None:
        self.total_bytes = 0
        self._limit = limit
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """The next bytes of the stream."""
        self.total_bytes += len(data)
        self._kept += data[-self._limit :]
        if len(self._kept) > 2 * self._limit:
            del self._kept[: -self._limit]

    def text(self, limit: int = TAIL_CHARACTERS) -> str:
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


class Passage:
    """Passes on what comes from `source` to `sink`, on a thread of its own, until nobody can write any more.

    A reader of `sink` that goes away closes `source`, so that the command gets its SIGPIPE as it would have.
    `over` is the read end of a pipe that closes when the command has ended: from then on everything it wrote
    is passed on, and if other processes still hold the stream after a moment, `held_open` is set and the
    thread ends.
    """

    def __init__(self, source: int, sink: int, over: int) -> None:
        self.tail = Tail()
        self.held_open = False
        self._source, self._sink, self._over = source, sink, over
        self._thread = threads.Thread(target=self._pass_on, name="flightlog-output")
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Whether it has come to its end, after so many seconds at the most."""
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
                owed, until = _waiting_bytes(self._source), time.monotonic() + _GRACE_S
        os.close(self._source)

    def _pass_chunk(self) -> int:
        """Pass on what there is, waiting for it; 0 at the end, or when nobody takes it any more."""
        data = os.read(self._source, _CHUNK)
        self.tail.add(data)
        return len(data) if write_all(self._sink, data) else 0


RESET = [signal.SIGPIPE, signal.SIGXFSZ]
"""Signals that Python ignores, and whose default action a command expects."""


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
