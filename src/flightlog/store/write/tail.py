"""A small memory-mapped file that lines are written into, one C call a line.

The pages belong to the kernel, so what was written survives `kill -9` without a system call. The blocks are
reserved before they are mapped: a full disk is an error here, never a SIGBUS later.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path

from flightlog.core.descriptors import Descriptor, map_file

SIZE = 1 << 17
_ZEROS = bytes(SIZE)
_NO_FALLOCATE = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class MappedTail:
    """Whole lines from offset 0 up to the first NUL.

    `put` takes one line, and is atomic under the interpreter lock; a line that does not fit raises ValueError
    and changes nothing. Everything else is for the owner's lock.
    """

    def __init__(self, path: Path) -> None:
        self._map = map_reserved(path, SIZE)
        self.put = self._map.write
        self.path = path
        self._shut_at: int | None = None
        self._drained = 0

    def shut(self) -> None:
        """Make every later `put` raise ValueError until the tail has been drained."""
        if self._shut_at is None:
            self._shut_at = self._map.tell()
            self._map.seek(0, os.SEEK_END)

    def reopen(self) -> None:
        """Let lines in again, if the tail was shut with nothing in it."""
        if self._shut_at is not None and self.empty():
            self._drained, self._shut_at = 0, None
            self._map.seek(0)

    def empty(self) -> bool:
        """Whether nothing stands in it."""
        return self._map[0] == 0

    def drain(self, write: Callable[[memoryview], int]) -> None:
        """Append the lines to a file and open the tail again; `write` gives how many bytes it took.

        Shuts it first. An OSError leaves it shut, with what is still to be written: calling again goes on at
        the very byte, so a line torn by a full disk is completed in place.
        """
        self.shut()
        end = self._map.find(
            b"\0", self._shut_at or 0
        )  # a put between the two calls of `shut` lies behind it
        end = SIZE if end < 0 else end
        with memoryview(self._map) as view:
            while self._drained < end:
                with view[self._drained : end] as rest:
                    self._drained += write(rest)
        self._map[:end] = _ZEROS[:end]
        self._drained, self._shut_at = 0, None
        self._map.seek(0)

    def close(self) -> None:
        """Unmap; a later `put` raises ValueError."""
        self._map.close()


def map_reserved(path: Path, size: int) -> mmap.mmap:
    """A new file of zeros, in the place of any older one, mapped; its blocks are reserved, so that writing
    cannot fail.

    No descriptor is kept: a program that closes descriptors changes nothing in it.

    Raises OSError where the disk refuses.
    """
    path.unlink(missing_ok=True)  # never truncate: a mapping of the old file may be in use
    file = Descriptor.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    try:
        _reserve(file.fd, size)
        return map_file(file.fd, size)
    finally:
        file.close()


def _reserve(fd: int, size: int) -> None:
    try:
        os.posix_fallocate(fd, 0, size)
    except AttributeError:  # macOS has none
        os.write(fd, bytes(size))
    except OSError as error:
        if error.errno not in _NO_FALLOCATE:
            raise
        os.write(fd, bytes(size))
