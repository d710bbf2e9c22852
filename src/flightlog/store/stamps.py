"""What the file system tells of files without opening them, and so whether they stayed as they were."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple


class Stamp(NamedTuple):
    """What the file system tells of a file without opening it; any change to the file changes one of
    these.
    """

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @property
    def changed_ns(self) -> int:
        """When the file changed last, in nanoseconds."""
        return max(self.mtime_ns, self.ctime_ns)


def stamp_at(file: str) -> Stamp | None:
    """The stamp of a file; None where there is none, or it cannot be looked at."""
    try:
        return stamp_of(os.stat(file))  # noqa: PTH116 - thousands of them
    except OSError:
        return None


def stamp_of(found: os.stat_result) -> Stamp:
    """The stamp in what the system says of a file."""
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


class Files(NamedTuple):
    """All files of a run, as one stamp."""

    digest: str
    newest: Stamp


def all_files(path: Path) -> Files:
    """What the file system tells of every file of a run, in one; of a run that vanishes, of what is still
    there.
    """
    digest, newest = hashlib.sha256(), Stamp(0, 0, 0, 0)
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            file = os.path.join(folder, name)  # noqa: PTH118
            stamp = stamp_at(file)
            digest.update(f"{file[len(str(path)) :]}\0{stamp}\0".encode("utf-8", "surrogateescape"))
            newest = max(newest, stamp or newest, key=lambda one: one.changed_ns)
    return Files(digest.hexdigest(), newest)
