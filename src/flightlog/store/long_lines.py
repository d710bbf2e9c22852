"""Lines that are too long to be an event: the recorder's are bounded far below, and DuckDB gives up on a file
that has one.
"""

from __future__ import annotations

import os
from pathlib import Path

MAX_LINE_BYTES = 16 << 20
_BLOCK = 1 << 16


def has_long_line(path: Path, longest: int = MAX_LINE_BYTES) -> bool:
    """Whether a line of a file has more bytes than that, its newline not counted. Raises OSError.

    Not all of the file is read: it is enough to find one newline in each stretch of so many bytes.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        begun, end = 0, os.fstat(fd).st_size
        while end - begun > longest:
            newline = _last_newline(fd, begun, begun + longest + 1)
            if newline is None:
                return True
            begun = newline + 1
        return False
    finally:
        os.close(fd)


def _last_newline(fd: int, since: int, until: int) -> int | None:
    """Where the last newline stands in these bytes of a file, read from their end."""
    while until > since:
        begun = max(since, until - _BLOCK)
        found = os.pread(fd, until - begun, begun).rfind(b"\n")
        if found >= 0:
            return begun + found
        until = begun
    return None
