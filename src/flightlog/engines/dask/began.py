"""What a worker process was executing when it died: a small file that outlives it.

A message may still be on its way out when a process ends in the middle of a task. The file is written through
shared memory, a few microseconds an attempt, and read by somebody on the same host: the worker's nanny,
mostly.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import struct
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from flightlog.core.descriptors import Descriptor, map_file
from flightlog.engines.execute import Started

SLOTS = 256
"""Attempts that can be noted at once; more are executed all the same, and are not known to have begun."""
_SLOT = struct.Struct("<Qqd32s")
"""The attempt's number, 0 where the slot is free; then when it began. NaN is an unknown wait."""
_SERIAL = struct.Struct("<Q")


class BeganFile:
    """The attempts that this process executes for one engine; thread-safe. Where there is no room for a file,
    it does nothing.
    """

    def __init__(self, engine: str, worker: str, folder: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._free = list(range(SLOTS))
        self._slots: dict[int, int] = {}
        self._path = began_path(engine, worker, folder)
        self._map: mmap.mmap | None = None
        with suppress(OSError):
            self._map = _make(self._path)

    def begin(self, serial: int, started: Started) -> None:
        """An attempt began."""
        with self._lock:
            if self._map is None or not self._free:
                return
            slot = self._slots[serial] = self._free.pop()
            waited = float("nan") if started.queue_s is None else started.queue_s
            at = slot * _SLOT.size
            body = _SLOT.pack(0, started.monotonic_ns, waited, started.timestamp.encode())
            self._map[at : at + _SLOT.size] = body
            self._map[at : at + _SERIAL.size] = _SERIAL.pack(serial)

    def end(self, serial: int) -> None:
        """It is over."""
        with self._lock:
            slot = self._slots.pop(serial, None)
            if slot is None or self._map is None:
                return
            at = slot * _SLOT.size
            self._map[at : at + _SERIAL.size] = _SERIAL.pack(0)
            self._free.append(slot)

    def close(self) -> None:
        """Remove the file: nobody will ask."""
        with self._lock:
            if self._map is not None:
                self._map.close()
                self._map = None
                with suppress(OSError):
                    self._path.unlink()


def read_began(engine: str, worker: str, folder: Path | None = None) -> dict[int, Started]:
    """What a process that is gone had begun and not ended, by the attempts' numbers. Reading it removes it.

    The file is there from the first attempt that a worker takes: without one, it began none.
    """
    path = began_path(engine, worker, folder)
    try:
        content = path.read_bytes()
        path.unlink()
    except OSError:
        return {}
    found = {}
    for serial, monotonic_ns, waited, text in _SLOT.iter_unpack(
        content[: len(content) // _SLOT.size * _SLOT.size]
    ):
        if serial:
            timestamp = text.rstrip(b"\0").decode(errors="replace")
            found[serial] = Started(timestamp, monotonic_ns, None if math.isnan(waited) else waited)
    return found


def forget_began(engine: str, folder: Path | None = None) -> None:
    """Remove the files of an engine on this host: of workers that died while they had nothing to do."""
    for path in began_path(engine, "", folder).parent.glob(f"flightlog-began-{os.getuid()}-{engine}-*"):
        with suppress(OSError):
            path.unlink()


def began_path(engine: str, worker: str, folder: Path | None = None) -> Path:
    """Where the file of a worker lies on its host."""
    folder = folder or Path(tempfile.gettempdir())
    name = re.sub(r"[^A-Za-z0-9.]+", "-", worker)
    return folder / f"flightlog-began-{os.getuid()}-{engine}-{name}"


def _make(path: Path) -> mmap.mmap:
    size = SLOTS * _SLOT.size
    with suppress(OSError):
        path.unlink()  # of a worker before, at the same address
    file = Descriptor.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.posix_fallocate(file.fd, 0, size)  # a full disk is an error here, and not a signal later
        return map_file(file.fd, size)
    finally:
        file.close()
