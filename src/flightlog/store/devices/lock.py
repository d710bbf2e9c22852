"""Who writes into a sink folder: one at a time, and the kernel lets go when a writer dies."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

import msgspec

from flightlog.core.descriptors import Descriptor
from flightlog.core.errors import UsageError
from flightlog.store.liveness import process_start, this_host

LOCK = ".lock"


class _Holder(msgspec.Struct):
    pid: int
    host: str
    pid_start: float | None = None


class FolderLock:
    """Held from its making to `release`; raises `UsageError` while somebody else holds it, in this process or
    not.

    A forked child does not hold it, and a lock that is forgotten is let go. Where the file system has no
    locks, a writer that lives on this host holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hold()

    def hold_on(self) -> None:
        """Take it again where the program has closed it; raises `UsageError` if somebody else was faster."""
        if not self._file.still_ours():
            self._hold()

    def release(self) -> None:
        """Let go; may be called again."""
        self._file.close()
        _HELD.discard(self)

    def _hold(self) -> None:
        self._file = Descriptor.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT)
        try:
            self._take()
        except BaseException:
            self.release()
            raise
        os.ftruncate(self._file.fd, 0)
        holder = _Holder(os.getpid(), this_host(), process_start(os.getpid()))
        os.pwrite(self._file.fd, msgspec.json.encode(holder), 0)
        _HELD.add(self)

    def _take(self) -> None:
        holder = _decode(os.pread(self._file.fd, 4096, 0))
        try:
            fcntl.flock(self._file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        except OSError:  # a file system without locks
            if holder is None or holder.host != this_host() or not _lives(holder):
                return
        else:
            return
        who = f"process {holder.pid} on {holder.host}" if holder else "another writer"
        raise UsageError(
            f"{self._folder} is being written by {who}: give every writer a sink folder of its own"
        )


def _decode(text: bytes) -> _Holder | None:
    try:
        return msgspec.json.decode(text, type=_Holder)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _lives(holder: _Holder) -> bool:
    started = process_start(holder.pid)
    return started is not None and (holder.pid_start is None or abs(started - holder.pid_start) <= 0.5)


_HELD: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _let_go_in_child() -> None:
    for lock in list(_HELD):
        lock.release()


os.register_at_fork(after_in_child=_let_go_in_child)
