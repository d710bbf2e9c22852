"""One stream of one writer: lines into memory-mapped tails, tails into a file, whatever the disk does."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from pathlib import Path

from flightlog.store import layout
from flightlog.store.tail import SIZE, Tail

ROTATE_BYTES = 1 << 30
BACKLOG_BYTES = 1 << 18
_RETRY_S = 0.2
_NO_MMAP = {errno.ENODEV, errno.EOPNOTSUPP, errno.ENOSYS}


def _refuse(_line: bytes) -> int:
    raise ValueError("no tail is open")


class StreamWriter:
    """Appends lines to one file that nobody else writes.

    The fast path is `put(line)`, without a lock; where it raises ValueError the caller hands the line to
    `overflow(line)`, which never raises. A line either of them took survives `kill -9`. While the disk refuses
    (full, read-only, gone, no file descriptors left) up to `BACKLOG_BYTES` wait in memory, the rest is counted
    in `lost` and `reasons`, and writing goes on as soon as it can. Safe for any number of threads, for signal
    handlers and for finalizers; not across `fork`, where the child makes a writer of its own.
    """

    def __init__(
        self,
        file: Path,
        folder: Path,
        stream: str,
        *,
        rotate_bytes: int = ROTATE_BYTES,
        on_trouble: Callable[[str], None] = lambda _reason: None,
        on_open: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.put: Callable[[bytes], int] = _refuse
        self._numbers = count()
        self.number = self._numbers.__next__
        self.lost = 0
        self.reasons: dict[str, int] = {}
        self.bytes = 0
        self.drain_s = 0.0
        self._file, self._folder, self._stream = file, folder, stream
        self._rotate_bytes, self._rotations = rotate_bytes, 0
        self._on_trouble, self._on_open, self._clock = on_trouble, on_open, clock
        self._lock = threading.RLock()
        self._busy = False
        self._reentered: deque[bytes] = deque()
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._begun = b""
        self._fd: int | None = None
        self._size = 0
        self._tails: tuple[Tail, Tail] | None = None  # the one lines go into, the other one
        self._retry_at = 0.0
        self._closed = False
        self._dirty = False

    @property
    def lines(self) -> int:
        """How many numbers were given out."""
        return int(repr(self._numbers)[6:-1])  # a count shows its next value nowhere else

    def overflow(self, line: bytes) -> None:
        """Take a line that did not fit; drains, opens, retries or counts, and never raises."""
        self._locked(lambda: self._place(line), line)

    def flush(self) -> None:
        """Bring what stands in the tails and the backlog into the file, where the disk allows it."""
        self._locked(self._flush)

    def sync(self) -> None:
        """Flush, and wait until the disk has it; writers go on meanwhile."""
        self.flush()
        with self._lock:
            fd = os.dup(self._fd) if self._fd is not None and self._dirty else None
            self._dirty = False
        if fd is not None:
            try:
                os.fsync(fd)
            except OSError as error:
                self._trouble(error)
            finally:
                os.close(fd)

    def check(self) -> None:
        """Notice that the file was removed under us, and write all of it again in its place."""
        self._locked(self._recover)

    def close(self) -> None:
        """Flush and let go of file and tails; the tails' files go where nothing stands in them any more."""
        self._locked(self._close)

    def abandon(self) -> None:
        """Forget everything without touching the disk: what a forked child does with its parent's writer."""
        self.put = _refuse
        self._closed = True
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    # Everything below runs under the lock, once at a time: a signal handler or finalizer that records while its
    # own thread is in here leaves its line in `_reentered`.

    def _locked(self, work: Callable[[], None], line: bytes | None = None) -> None:
        with self._lock:
            if self._busy:
                if line is not None:
                    self._reentered.append(line)
                return
            self._busy = True
            try:
                work()
                while self._reentered:
                    self._place(self._reentered.popleft())
            except OSError as error:
                self._trouble(error)
            finally:
                self._busy = False

    def _place(self, line: bytes) -> None:
        if self._closed:
            self._lose("recorded after the run had closed")
            return
        if self._fd is None and not self._try_open():
            self._wait(line)
            return
        try:
            self.put(line)
            return
        except ValueError:
            pass
        if self._tails is None or len(line) > SIZE:
            self._append(line)
        elif self._swap():
            self.put(line)
            self._try_drain()
        else:
            self._wait(line)

    def _swap(self) -> bool:
        """Turn the tails round, so that lines go on while the full one is drained; False while the disk refuses."""
        assert self._tails is not None
        current, other = self._tails
        if not other.empty() and not self._try_drain():
            return False
        current.shut()
        self._tails = (other, current)
        self.put = _guarded(other.put, self._lock)
        return True

    def _flush(self) -> None:
        if self._closed or (self._fd is None and not (self._backlog and self._try_open())):
            return
        if self._tails is not None and not self._tails[0].empty():
            self._swap()
        self._try_drain()

    def _append(self, line: bytes) -> None:
        """Write one line straight into the file: no tail is to be had, or the line is larger than one."""
        if self._tails is not None and not self._tails[0].empty():
            self._swap()
        self._backlog.append(line)
        self._backlog_bytes += len(line)
        self._try_drain()
        if self._backlog and self._backlog_bytes > BACKLOG_BYTES:
            self._backlog_bytes -= len(self._backlog.pop())
            self._lose(self._last_reason)

    def _try_drain(self) -> bool:
        """Write what may be written; False while the disk refuses."""
        if self._fd is None or self._clock() < self._retry_at:
            return False
        before = time.perf_counter()
        try:
            self._drain(self._fd)
        except OSError as error:
            self._retry_at = self._clock() + _RETRY_S
            self._trouble(error)
            return False
        finally:
            self.drain_s += time.perf_counter() - before
        if self._size >= self._rotate_bytes:
            self._rotate()
        return True

    def _drain(self, fd: int) -> None:
        """The line that was begun, then the tail that lines do not go into, then the backlog."""
        self._continue(fd)
        if self._tails is not None and not self._tails[1].empty():
            self._note_written(self._tails[1].drain(fd))
        while self._backlog:
            self._begun = self._backlog.popleft()
            self._backlog_bytes -= len(self._begun)
            self._continue(fd)

    def _continue(self, fd: int) -> None:
        """Bring the line that was begun to its end, before anything else is written."""
        while self._begun:
            done = os.write(fd, self._begun)
            self._note_written(done)
            self._begun = self._begun[done:]

    def _wait(self, line: bytes) -> None:
        if self._backlog_bytes + len(line) > BACKLOG_BYTES:
            self._lose(self._last_reason)
            return
        self._backlog.append(line)
        self._backlog_bytes += len(line)

    def _note_written(self, size: int) -> None:
        self._size += size
        self.bytes += size
        self._dirty = True

    def _try_open(self) -> bool:
        if self._clock() < self._retry_at:
            return False
        try:
            self._open()
        except OSError as error:
            self._retry_at = self._clock() + _RETRY_S
            self._trouble(error)
            return False
        self._on_open()
        self._try_drain()
        return True

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._file, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            tails = self._open_tails()
        except OSError:
            os.close(fd)
            raise
        self._fd, self._tails, self._size = fd, tails, os.fstat(fd).st_size
        self.put = _guarded(tails[0].put, self._lock) if tails else _refuse

    def _open_tails(self) -> tuple[Tail, Tail] | None:
        """The two tails, or None where the file system cannot map files: then each line is written by itself."""
        paths = [layout.tail_file(self._folder, self._stream, side) for side in "ab"]
        try:
            return Tail(paths[0]), Tail(paths[1])
        except OSError as error:
            for path in paths:
                path.unlink(missing_ok=True)
            if error.errno in _NO_MMAP:
                return None
            raise

    def _rotate(self) -> None:
        """Put the full file aside; both tails may hold newer lines, which is no matter to a reader."""
        number = self._rotations + 1
        assert self._fd is not None
        try:
            aside = layout.rotated_file(self._folder, self._stream, number)
            self._file.rename(aside)
            fd = os.open(self._file, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self._trouble(error)
            return
        os.fsync(self._fd)
        os.close(self._fd)
        self._fd, self._size, self._rotations = fd, 0, number

    def _recover(self) -> None:
        if self._fd is None or self._closed:
            return
        ours = os.fstat(self._fd)
        try:
            there = self._file.stat()
            if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
                return
        except FileNotFoundError:
            pass
        self._on_trouble(f"{self._file} was removed or replaced while it was written; it is written again")
        old, old_tails = self._fd, self._tails
        self._drain(old)
        for tail in old_tails or ():
            tail.drain(old)
        self.put, self._fd, self._tails = _refuse, None, None
        try:
            self._open()
        except OSError:
            self._fd, self._tails = old, old_tails  # unlinked, but it keeps the lines until we can move them
            if old_tails:
                self.put = _guarded(old_tails[0].put, self._lock)
            raise
        assert self._fd is not None
        offset = 0
        while chunk := os.pread(old, 1 << 20, offset):
            offset += len(chunk)
            view = memoryview(chunk)
            while view:
                view = view[os.write(self._fd, view) :]
        os.close(old)
        for tail in old_tails or ():
            tail.close()

    def _close(self) -> None:
        if self._closed:
            return
        self._retry_at = 0.0
        if self._fd is None and self._backlog:
            self._try_open()
        self.put = _refuse
        if self._fd is not None:
            self._close_files(self._fd)
        for _ in range(len(self._backlog) + bool(self._begun)):
            self._lose(self._last_reason)
        self._backlog.clear()
        self._closed = True

    def _close_files(self, fd: int) -> None:
        tails = (self._tails[1], self._tails[0]) if self._tails else ()
        try:
            self._drain(fd)
            for tail in tails:
                self._note_written(tail.drain(fd))
        except OSError as error:
            self._trouble(error)  # the lines stand in the tails' files, where readers find them
        for tail in tails:
            left = not tail.empty()
            tail.close()
            if not left:
                tail.path.unlink(missing_ok=True)
        os.close(fd)
        self._fd, self._tails = None, None

    def _lose(self, reason: str) -> None:
        self.lost += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    _last_reason = "the disk refused"

    def _trouble(self, error: OSError) -> None:
        self._last_reason = _reason(error)
        self._on_trouble(f"cannot write {self._file}: {self._last_reason}")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _guarded(put: Callable[[bytes], int], lock: threading.RLock) -> Callable[[bytes], int]:
    """`put` as it is under the interpreter lock; under a lock of its own on a free-threaded Python."""
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        return put

    def locked(line: bytes) -> int:
        with lock:
            return put(line)

    return locked
