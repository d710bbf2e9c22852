"""The file that one stream of one writer goes into: opened, put aside when full, written again when removed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from flightlog.store import layout

_FLAGS = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


class SegmentFile:
    """A file that nobody else writes; raises OSError where the disk refuses. For its owner's lock."""

    def __init__(self, file: Path, folder: Path, stream: str, rotate_bytes: int) -> None:
        self.file = file
        self.fd: int | None = None
        self.written = 0
        self._folder, self._stream = folder, stream
        self._rotate_bytes = rotate_bytes
        self._size = 0
        self._retired: list[int] = []  # put aside, not yet known to be on the disk
        self._removed: tuple[int, int] | None = None  # a file removed under us, and how much of it is copied
        self._dirty = False

    def open(self) -> None:
        """Open the file, and make the folders it stands in."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.fd = os.open(self.file, _FLAGS, 0o644)
        self._size = os.fstat(self.fd).st_size

    def note(self, size: int) -> None:
        """So much was appended."""
        self._size += size
        self.written += size
        self._dirty = True

    def rotate(self) -> None:
        """Put a file that has grown to its full size aside, under a name that is not taken."""
        if self.fd is None or self._size < self._rotate_bytes or self._removed is not None:
            return
        number = 1
        while (aside := layout.rotated_file(self._folder, self._stream, number)).exists():
            number += 1
        self.file.rename(aside)
        self._retired.append(self.fd)
        self.fd = None
        self.open()

    def vanished(self) -> bool:
        """Whether the file was removed or replaced while it was written."""
        if self.fd is None:
            return False
        ours = os.fstat(self.fd)
        try:
            there = self.file.stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)

    def replace(self) -> None:
        """Open the file anew in its place; what stood in the removed one follows by `restore`."""
        removed = self.fd
        self.open()
        if removed is not None:
            if (
                self._removed is not None
            ):  # removed again while it was restored: the older one is the whole one
                os.close(removed)
                self._removed = (self._removed[0], 0)
            else:
                self._removed = (removed, 0)

    def restore(self) -> None:
        """Copy what stood in a removed file, going on at the very byte where an error had stopped it."""
        if self._removed is None or self.fd is None:
            return
        source, done = self._removed
        while chunk := os.pread(source, 1 << 20, done):
            count = os.write(self.fd, chunk)
            self.note(count)
            done += count
            self._removed = (source, done)
        self._removed = None
        os.close(source)

    def sync(self, fd: int | None) -> None:
        """Wait until the disk has what was written; `fd` is a duplicate, so that writing may go on."""
        for one in [*self._retired, *([fd] if fd is not None else [])]:
            os.fsync(one)
            if one in self._retired:
                self._retired.remove(one)
                os.close(one)

    def duplicate(self) -> int | None:
        """A descriptor to sync by, where anything was written since the last one."""
        if self.fd is None or not self._dirty:
            return None
        self._dirty = False
        return os.dup(self.fd)

    def close(self) -> None:
        """Let go of every descriptor."""
        for fd in (self.fd, *self._retired, self._removed[0] if self._removed else None):
            if fd is not None:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self.fd, self._retired, self._removed = None, [], None
