"""Places for a bounded number of bundles in a run, shared by all processes that write into it."""

from __future__ import annotations

import os
import re
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from flightlog.core.descriptors import folder_names
from flightlog.store import layout

MAX_BUNDLES = 5
MAX_BYTES = 64 << 20

_BUNDLE = re.compile(r"(\d+)-\d{8}T\d{6}Z")


class Slot:
    """A place for one bundle: fill `folder`, then `keep` it or `give_up`. Nobody sees a bundle before it is
    kept.
    """

    def __init__(self, folder: Path, number: int, left: int) -> None:
        self.folder, self.number, self.left = folder, number, left

    def keep(self, stamp: str) -> Path:
        """Make it a bundle, in one step; `stamp` is its time, as `20261115T151200Z`. Raises OSError."""
        kept = self.folder.with_name(f"{self.number}-{stamp}")
        self.folder.rename(kept)
        return kept

    def give_up(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.folder, ignore_errors=True)


def bundles(run: Path) -> list[Path]:
    """The bundles of a run, first one first."""
    found = []
    try:
        names = folder_names(run / layout.OOM)
    except OSError:
        return []
    for name in names:
        matched = _BUNDLE.fullmatch(name)
        if matched is not None:
            found.append((int(matched[1]), run / layout.OOM / name))
    return [path for _, path in sorted(found)]


def take_slot(run: Path, *, reserve: int = 0) -> Slot | None:
    """A place for the next bundle; None where the run has as many, or as large ones, as it may have.

    `reserve` places are left for others. The oldest bundles stay: the first out of memory matters most.
    Raises OSError.
    """
    home = run / layout.OOM
    home.mkdir(parents=True, exist_ok=True)
    for number in range(1, MAX_BUNDLES - reserve + 1):
        if number in _numbers(run):
            continue
        folder = home / f".{number}"
        try:
            folder.mkdir()
        except FileExistsError:  # another process fills it just now
            continue
        if number in _numbers(run):  # it was kept between our look and our step
            folder.rmdir()
            continue
        left = MAX_BYTES - size_of(home)
        if left <= 0:
            folder.rmdir()
            return None
        return Slot(folder, number, left)
    return None


def _numbers(run: Path) -> set[int]:
    return {int(path.name.partition("-")[0]) for path in bundles(run)}


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder, however many of them others rename or remove meanwhile."""
    total = 0
    with suppress(OSError):  # it is no longer there
        for name in folder_names(folder):
            with suppress(OSError):
                found = os.lstat(folder / name)
                total += size_of(folder / name) if stat.S_ISDIR(found.st_mode) else found.st_size
    return total
