"""Advisory locks on files and folders, between processes: the kernel releases them when their holder ends.

On a file system without locks a lock is granted to everybody: one process at a time is then a matter of
custom.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flightlog.core.descriptors import Descriptor
from flightlog.core.threads import sleep

_PAUSE_S = 0.05


class FileLock:
    """A lock that this process holds until `release`. Taken by `try_lock`; a program that closes all
    descriptors loses it.
    """

    def __init__(self, file: Descriptor, *, enforced: bool) -> None:
        self._file = file
        self.enforced = enforced
        """False on a file system without locks, where others may hold it, too."""

    def still_held(self) -> bool:
        """Whether the program has not closed it meanwhile."""
        return self._file.still_ours()

    def write(self, holder: bytes) -> None:
        """Make this the whole content of the locked file, for those who want to know who holds it; raises
        OSError.
        """
        os.ftruncate(self._file.fd, 0)
        os.pwrite(self._file.fd, holder, 0)

    def release(self) -> None:
        """Let others take it; may be called again."""
        self._file.close()


def try_lock(
    path: Path,
    *,
    wait_s: float | None = 0.0,
    shared: bool = False,
    create: bool = True,
    of_process: bool = False,
    mode: int = 0o600,
) -> FileLock | None:
    """Lock a file or a folder; None while another holder has it, after waiting `wait_s` (None: for ever).

    `create` makes the file where it is missing, with `mode`, and follows no link; without it the file or
    folder is only opened. `of_process` takes a lock that belongs to this process and that forked children do
    not share, instead of one that belongs to the open file. A file that was removed or replaced while it was
    being locked counts as another holder's. Raises OSError where the file cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW if create else os.O_RDONLY
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    take = fcntl.lockf if of_process else fcntl.flock
    deadline = None if wait_s is None else time.monotonic() + wait_s
    while True:
        file = Descriptor.open(path, flags, mode)
        try:
            take(file.fd, how)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK):
                return FileLock(file, enforced=False)
        else:
            with suppress(OSError):
                there = path.stat()
                if (there.st_dev, there.st_ino) == file.file:
                    return FileLock(file, enforced=True)
        file.close()
        if deadline is not None and time.monotonic() >= deadline:
            return None
        sleep(_PAUSE_S)


@contextmanager
def locked(path: Path, *, wait_s: float | None = 0.0, create: bool = True) -> Iterator[bool]:
    """Hold the lock of a file or folder inside the block; gives whether it is held, after waiting
    `wait_s`.
    """
    lock = try_lock(path, wait_s=wait_s, create=create)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


@contextmanager
def sole_holder(path: Path, us: str, *, wait_s: float = 0.0) -> Iterator[str | None]:
    """Keep other processes from what a file stands for; gives None, or what the holder says of itself, which
    may be nothing. `us` is what others are told.

    The folder is made where it is missing. One that cannot be written guards nothing.
    """
    try:
        path.parent.mkdir(exist_ok=True)
        lock = try_lock(path, wait_s=wait_s, mode=0o644)
    except OSError:
        yield None
        return
    if lock is None:
        yield holder_of(path, 200)
        return
    try:
        lock.write(us.encode())
        yield None
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock of a file, without keeping anybody from it; False where there is no
    file.
    """
    try:
        lock = try_lock(path, shared=True, create=False)
    except OSError:
        return False
    if lock is None:
        return True
    lock.release()
    return False


def holder_of(path: Path, most: int) -> str:
    """What the holder of a lock wrote into its file, up to `most` bytes; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace").strip()
    except OSError:
        return ""
