"""The one way to open a file of a run for reading: regular files only, and no more of a document than a
limit.

A run directory may come from anywhere. A pipe in it would make a reader wait for ever, a device may have no
end, and a document may be larger than the memory. Links are followed, since people put large files on other
disks, but only to regular files.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader

from flightlog.core.descriptors import read_bytes

DOCUMENT_BYTES = 32 << 20
"""A larger JSON document of a run is not read."""
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """A regular file, opened for reading its bytes; never waits. `OSError` for anything else, which is not
    opened.
    """
    _check(path, os.stat(path))  # noqa: PTH116 - thousands of them
    fd = os.open(path, _FLAGS)
    try:
        _check(path, os.fstat(fd))  # it may have been replaced meanwhile
    except BaseException:
        os.close(fd)
        raise
    return open(fd, "rb")  # noqa: PTH123 - a descriptor, and the caller's to close


def read_regular(path: str | os.PathLike[str], limit: int = DOCUMENT_BYTES) -> bytes:
    """All bytes of a regular file; `OSError` for anything else, and for one of more than `limit` bytes."""
    _check(path, os.stat(path))  # noqa: PTH116 - thousands of them
    return _within(read_bytes(path, _FLAGS, limit + 1), limit)


def read_within(source: BufferedReader, limit: int = DOCUMENT_BYTES) -> bytes:
    """What is left of an open file; `OSError` where it is more than `limit` bytes."""
    size = os.fstat(source.fileno()).st_size
    data = source.read(min(size, limit) + 1)
    while data and size < len(data) <= limit and (more := source.read(limit + 1 - len(data))):
        data += more  # it grows, or the system does not tell its size
    return _within(data, limit)


def _within(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit >> 20} MiB")
    return data


def _check(path: str | os.PathLike[str], found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
