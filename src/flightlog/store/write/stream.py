"""One stream of one writer: lines go into memory-mapped tails, and tails into a segment file.

No error of the disk reaches the caller. The file is rotated when it is full, and made again when somebody
removes it.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType

from flightlog.core import threads
from flightlog.core.descriptors import Descriptor
from flightlog.core.interruption import HandlersWait, pass_interruption
from flightlog.store import layout
from flightlog.store.limits import StoreLimits
from flightlog.store.write.tail import SIZE, MappedTail

_NO_MMAP = {errno.ENODEV, errno.EOPNOTSUPP, errno.ENOSYS}


def _refuse(_line: bytes) -> int:
    raise ValueError("no tail is open")


class StreamWriter:
    """Appends lines to one file that nobody else writes.

    The fast path is `put(line)`, without a lock; where it raises ValueError the caller hands the line to
    `overflow(line)`, which raises nothing of its own. A line either of them took survives `kill -9`. While
    the disk refuses (full, read-only, gone, no file descriptors left) or is slow, up to `max_backlog_bytes`
    wait in memory, the rest is counted in `lost` and `reasons`, and writing goes on as soon as it can. Safe
    for any number of threads, for signal handlers, for exceptions that these raise, and for finalizers; not
    across `fork`, where the child makes a writer of its own. `on_trouble` is called without any lock held,
    and so is `on_count`: each time lines were lost or wait in memory, where a kill would take them away.
    `before_open` is called before the file is made.
    """

    def __init__(
        self,
        file: Path,
        folder: Path,
        stream: str,
        *,
        rotate_bytes: int = StoreLimits.rotate_bytes,
        slow_s: float = StoreLimits.slow_disk_s,
        on_trouble: Callable[[str, str], None] = lambda _kind, _message: None,
        on_open: Callable[[], None] = lambda: None,
        before_open: Callable[[], object] = lambda: None,
        on_count: Callable[[StreamWriter], None] = lambda _stream: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.put: Callable[[bytes], int] = _refuse
        self._numbers = count()
        self.number = self._numbers.__next__
        self.lost = 0
        self.reasons: dict[str, int] = {}
        self.drain_s = 0.0
        self._segment = SegmentFile(file, folder, stream, rotate_bytes)
        self._folder, self.name = folder, stream
        self._on_trouble, self._on_open, self._clock = on_trouble, on_open, clock
        self._before_open, self._on_count = before_open, on_count
        self._lost_told = 0
        self._slow_s = slow_s
        self._lock = threads.RLock()
        self._busy: FrameType | None = None  # who is in here; one that an exception has thrown out is not
        self._waiting: deque[bytes] = deque()  # lines that met a lock: a signal handler's, or a slow disk's
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._begun = b""
        self._tails: tuple[MappedTail, MappedTail] | None = None  # the one lines go into, the other one
        self._retry_at = 0.0
        self._slow = False
        self._closed = False
        self._last_reason = "the disk refused"
        self._troubles: deque[tuple[str, str]] = deque(maxlen=16)

    @property
    def lines(self) -> int:
        """How many numbers were given out."""
        return int(repr(self._numbers)[6:-1])  # a count shows its next value nowhere else

    @property
    def waiting_for(self) -> str | None:
        """Why lines wait in memory; None where none do, or the disk is merely slow."""
        return self._last_reason if self._backlog or self._begun else None

    @property
    def written(self) -> int:
        """How much was appended to files."""
        return self._segment.written

    def overflow(self, line: bytes) -> None:
        """Take a line that did not fit: drain, open, retry, wait or count."""
        self._locked(lambda: self._place(line), line)

    def flush(self) -> None:
        """Bring what stands in the tails and the backlog into the file, where the disk allows it."""
        self._locked(self._flush)

    def sync(self) -> None:
        """Flush, and wait until the disk has it; writers go on meanwhile."""
        self.flush()
        duplicate = None
        try:
            with self._lock:
                duplicate = self._segment.duplicate()
            self._segment.sync(duplicate)
        except OSError as error:
            self._trouble(error)
        finally:
            if duplicate is not None:
                duplicate.close()
        self._report()

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
        self._segment.close()

    # Everything below runs under the lock, once at a time. A signal handler or finalizer that records while
    # its own thread is in here, and a thread that has waited for a slow disk for long enough, leave their
    # line in `_waiting`.

    def _locked(self, work: Callable[[], None], line: bytes | None = None) -> None:
        with HandlersWait():  # nothing of a file, a tail or the lock is left half done
            self._lock_and_work(work, line)
        self._report()

    def _lock_and_work(self, work: Callable[[], None], line: bytes | None) -> None:
        held = False
        try:
            held = self._lock.acquire(timeout=self._slow_s if line is not None else -1)
            if not held:
                self._slow = True
            if not held or _is_running(self._busy):
                self._set_aside(line or b"")
                return
            try:
                self._busy = sys._getframe()
                work()
                while self._waiting:
                    self._place(self._waiting.popleft())
            except OSError as error:
                self._trouble(error)
            finally:
                self._busy = None
        finally:
            if held:
                self._lock.release()
            self._release_what_was_left(sys._getframe())
            self._tell_counts()

    def _tell_counts(self) -> None:
        if self.lost != self._lost_told or self._backlog or self._waiting or self._begun:
            self._lost_told = self.lost
            self._on_count(self)

    def _release_what_was_left(self, here: FrameType) -> None:
        """An exception of a signal handler may strike just behind an `acquire`: the lock must not stay taken.

        Unless this is the handler's own call, and the one it came in on still holds the lock.
        """
        while self._lock._is_owned() and not self._is_called_from(here.f_back):  # type: ignore[attr-defined]
            self._lock.release()

    def _is_called_from(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code is StreamWriter._lock_and_work.__code__ and frame.f_locals.get("self") is self:
                return True
            frame = frame.f_back
        return False

    def _set_aside(self, line: bytes) -> None:
        if not line:
            return
        if len(self._waiting) * len(line) > StoreLimits.max_backlog_bytes:
            self._lose("the disk was too slow", line)
        else:
            self._waiting.append(line)

    def _place(self, line: bytes) -> None:
        if self._closed:
            self._lose("recorded after the run had closed", line)
            return
        if not self._segment.is_open and not self._try_open():
            self._wait(line)
            return
        try:
            self.put(line)
            return
        except ValueError:
            pass
        if self._tails is None or len(line) > SIZE:
            self._append(line)
        elif not self._swap():
            self._wait(line)
        else:
            try:
                self.put(line)
            except ValueError:
                self._append(line)
            if not self._slow:
                self._try_drain()

    def _swap(self) -> bool:
        """Turn the tails round, so that lines go on while the full one is drained; False while the disk
        refuses.

        An exception may strike between any two steps (a handler's, Ctrl-C): each step leaves a state to go on
        from.
        """
        assert self._tails is not None
        current, other = self._tails
        if not other.empty() and (self._slow or not self._try_drain()):
            return False
        other.reopen()
        self.put = _guarded(other.put, self._lock)
        self._tails = (other, current)
        current.shut()
        return True

    def _flush(self) -> None:
        if self._closed or not (self._segment.is_open or (self._backlog and self._try_open())):
            return
        self._slow = False
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
        if self._backlog and self._backlog_bytes > StoreLimits.max_backlog_bytes:
            last = self._backlog.pop()
            self._backlog_bytes -= len(last)
            self._lose(self._last_reason, last)

    def _try_drain(self) -> bool:
        """Write what may be written; False while the disk refuses."""
        if not self._segment.is_open or self._clock() < self._retry_at:
            return False
        before = time.perf_counter()
        try:
            self._segment.restore()
            self._drain()
            self._segment.rotate()
        except OSError as error:
            self._retry_at = self._clock() + StoreLimits.disk_retry_s
            self._trouble(error)
            return False
        finally:
            spent = time.perf_counter() - before
            self.drain_s += spent
            self._slow = spent > self._slow_s
        return True

    def _drain(self) -> None:
        """The line that was begun, then the tail that lines do not go into, then the backlog."""
        self._continue()
        if self._tails is not None and not self._tails[1].empty():
            self._tails[1].drain(self._segment.write)
        while self._backlog:
            self._begun = self._backlog.popleft()
            self._backlog_bytes -= len(self._begun)
            self._continue()

    def _continue(self) -> None:
        """Bring the line that was begun to its end, before anything else is written."""
        while self._begun:
            self._begun = self._begun[self._segment.write(self._begun) :]

    def _wait(self, line: bytes) -> None:
        if self._backlog_bytes + len(line) > StoreLimits.max_backlog_bytes:
            self._lose(self._last_reason, line)
            return
        self._backlog.append(line)
        self._backlog_bytes += len(line)

    def _try_open(self) -> bool:
        if self._clock() < self._retry_at:
            return False
        self._before_open()
        try:
            self._segment.open()
            self._open_tails()
        except OSError as error:
            self._segment.close()
            self._retry_at = self._clock() + StoreLimits.disk_retry_s
            self._trouble(error)
            return False
        self._on_open()
        self._try_drain()
        return True

    def _open_tails(self) -> None:
        """Two tails; none where the file system cannot map files: then each line is written by itself."""
        paths = [layout.tail_file(self._folder, self.name, side) for side in "ab"]
        try:
            self._tails = MappedTail(paths[0]), MappedTail(paths[1])
            self.put = _guarded(self._tails[0].put, self._lock)
        except OSError as error:
            self._tails, self.put = None, _refuse
            for path in paths:
                path.unlink(missing_ok=True)
            if error.errno not in _NO_MMAP:
                raise

    def _recover(self) -> None:
        if self._closed or not self._segment.vanished():
            return
        self._troubles.append(
            ("removed", f"{self._segment.file} was removed while it was written; it is written again")
        )
        old, self.put = self._tails, _refuse
        for tail in old or ():
            tail.shut()
        if self._segment.is_open and self._tails is not None:
            self._drain()  # into the removed file, which is copied as a whole
            self._tails[0].drain(self._segment.write)
        self._segment.replace()
        self._open_tails()
        for tail in old or ():
            tail.close()
        self._try_drain()

    def _close(self) -> None:
        if self._closed:
            return
        self._retry_at, self._slow = 0.0, False
        if not self._segment.is_open and self._backlog:
            self._try_open()
        self.put = _refuse
        self._close_tails()
        self._segment.close()
        for line in (*self._backlog, *([self._begun] if self._begun else [])):
            self._lose(self._last_reason, line)
        self._backlog.clear()
        self._closed = True

    def _close_tails(self) -> None:
        tails = (self._tails[1], self._tails[0]) if self._tails else ()
        for tail in tails:
            tail.shut()
        try:
            if self._segment.is_open:
                self._segment.restore()
                self._drain()
                for tail in tails:
                    tail.drain(self._segment.write)
        except OSError as error:
            self._trouble(error)  # the lines stand in the tails' files, where readers find them
        for tail in tails:
            left = not tail.empty()
            tail.close()
            if not left:
                tail.path.unlink(missing_ok=True)
        self._tails = None

    def _lose(self, reason: str, lines: bytes) -> None:
        number = max(lines.count(b"\n"), 1)
        self.lost += number
        self.reasons[reason] = self.reasons.get(reason, 0) + number

    def _trouble(self, error: OSError) -> None:
        pass_interruption(error)  # a TimeoutError of a signal handler is no word of the disk's
        self._last_reason = error.strerror or str(error)
        self._troubles.append((self._last_reason, f"cannot write {self._segment.file}: {self._last_reason}"))

    def _report(self) -> None:
        """Say what went wrong, now that no lock is held: a log handler may record, too."""
        while self._troubles:
            self._on_trouble(*self._troubles.popleft())


def _is_running(frame: FrameType | None) -> bool:
    """Whether a call is still on this thread's stack."""
    here: FrameType | None = sys._getframe() if frame is not None else None
    while here is not None and here is not frame:
        here = here.f_back
    return here is not None


def _guarded(put: Callable[[bytes], int], lock: threads.RLock) -> Callable[[bytes], int]:
    """`put` as it is under the interpreter lock; under a lock of its own on a free-threaded Python."""
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        return put

    def locked(line: bytes) -> int:
        with lock:
            return put(line)

    return locked


_FLAGS = os.O_CREAT | os.O_RDWR | os.O_APPEND


class SegmentFile:
    """A file that nobody else writes; raises OSError where the disk refuses. For its owner's lock.

    Where the program has closed its descriptor, it is opened again by its path, and writing goes on.
    """

    def __init__(self, file: Path, folder: Path, stream: str, rotate_bytes: int) -> None:
        self.file = file
        self.is_open = False
        self.written = 0
        self._folder, self._stream = folder, stream
        self._rotate_bytes = rotate_bytes
        self._size = 0
        self._out: Descriptor | None = None
        self._retired: list[Descriptor] = []  # put aside, not yet known to be on the disk
        self._removed: tuple[Descriptor, int] | None = None  # removed under us, and how much of it is copied
        self._dirty = False

    def open(self) -> None:
        """Open the file, and make the folders it stands in."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self._out = Descriptor.open(self.file, _FLAGS)
        self._size = os.fstat(self._out.fd).st_size
        self.is_open = True

    def write(self, data: bytes | memoryview) -> int:
        """Append; gives the bytes that were written, which may be fewer."""
        for tries_left in reversed(range(StoreLimits.open_file_attempts)):
            try:
                if self._out is None or self._out.number < 0:  # known to be lost
                    self.open()
                assert self._out is not None
                count = self._out.write(data)
                break
            except OSError as error:
                if error.errno != errno.EBADF or not tries_left:
                    raise  # EBADF: closed by the program between two steps of ours
        self._size += count
        self.written += count
        self._dirty = True
        return count

    def rotate(self) -> None:
        """Put a file that has grown to its full size aside, under a name that is not taken."""
        if self._out is None or self._size < self._rotate_bytes or self._removed is not None:
            return
        number = 1
        while (aside := layout.rotated_file(self._folder, self._stream, number)).exists():
            number += 1
        self.file.rename(aside)
        self._retired.append(self._out)
        self._out = None
        self.open()

    def vanished(self) -> bool:
        """Whether the file was removed or replaced while it was written."""
        if self._out is None:
            return False
        try:
            there = self.file.stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        return (there.st_dev, there.st_ino) != self._out.file

    def replace(self) -> None:
        """Open the file anew in its place; what stood in the removed one follows by `restore`."""
        removed = self._out
        self.open()
        if removed is None or not removed.still_ours() or self._out is None or removed.file == self._out.file:
            return  # nothing can be read from it any more, or it is the new one
        if self._removed is not None:  # removed again while it was restored: the older one is the whole one
            removed.close()
            self._removed = (self._removed[0], 0)
        else:
            self._removed = (removed, 0)

    def restore(self) -> None:
        """Copy what stood in a removed file, going on at the very byte where an error had stopped it."""
        if self._removed is None:
            return
        source, done = self._removed
        while source.still_ours() and (chunk := os.pread(source.number, 1 << 20, done)):
            done += self.write(chunk)
            self._removed = (source, done)
        self._removed = None
        source.close()

    def sync(self, duplicate: Descriptor | None) -> None:
        """Wait until the disk has what was written; by a duplicate, so that writing may go on."""
        for one in [*self._retired, *([duplicate] if duplicate is not None else [])]:
            if one.still_ours():
                os.fsync(one.number)
            if one in self._retired:
                self._retired.remove(one)
                one.close()

    def duplicate(self) -> Descriptor | None:
        """A descriptor to sync by, where anything was written since the last one."""
        if not self._dirty or self._out is None or not self._out.still_ours():
            return None
        self._dirty = False
        return self._out.duplicate()

    def close(self) -> None:
        """Let go of every descriptor."""
        for one in (self._out, *self._retired, self._removed[0] if self._removed else None):
            if one is not None:
                one.close()
        self._out, self._retired, self._removed = None, [], None
        self.is_open = False
