"""The file that one stream of one writer goes into: opened, put aside when full, written again when
removed.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from flightlog.core.descriptors import Descriptor
from flightlog.store import layout

_TRIES = 5
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
        for tries_left in reversed(range(_TRIES)):
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
