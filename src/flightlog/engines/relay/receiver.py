"""Where parcels arrive: the process that sees the run directory."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from os import PathLike
from pathlib import Path

from flightlog.engines.relay.chunk import NoParcel, unpack
from flightlog.engines.relay.received_files import LandedFiles

log = logging.getLogger("flightlog")

BACKLOG_BYTES = 64 << 20
"""Parcels that wait for the disk in memory; what comes while it is full is counted, and lost unless it is
sent again."""
LAST_WORDS_S = 1.0
"""How long a landing that closes waits for writers that have not said that they are done."""
_RETRY_S = 0.2


class Landing:
    """Takes parcels, in any order and however often, and writes them into a run directory.

    `take` only puts a parcel into a queue: a thread of its own writes, so that an event loop may call it.
    Nothing of it raises. Bytes that are no parcel for this run are refused, counted in `refused` and said
    once. Close it before the run is closed: that notes which writers were not heard to their end, and what
    comes later is refused.
    """

    def __init__(self, run_path: str | PathLike[str]) -> None:
        self.taken = 0
        """Parcels that were written, or had been before."""
        self.refused = 0
        """Parcels that were not for this run, or no parcels at all."""
        self.dropped = 0
        """Parcels that came faster than the disk took them, or that it never took."""
        self._files = LandedFiles(Path(run_path))
        self._changed = threading.Condition()
        self._queue: deque[bytes] = deque()
        self._bytes = 0
        self._thread: threading.Thread | None = None
        self._closed = False
        self._told: set[str] = set()

    def take(self, parcel: bytes) -> None:
        """Write a parcel into the run directory, soon."""
        with self._changed:
            if not isinstance(parcel, bytes | bytearray):
                self.refused += 1
                problem = f"a parcel was refused: {type(parcel).__name__} is not bytes"
            elif self._closed:
                self.refused += 1
                problem = "parcels came after the run was closed: what they hold is not in it"
            elif self._bytes + len(parcel) > BACKLOG_BYTES:
                self.dropped += 1
                problem = "parcels of workers come faster than the disk takes them: some are lost"
            else:
                self._queue.append(parcel)
                self._bytes += len(parcel)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="flightlog-landing", daemon=True)
                    self._thread.start()
                self._changed.notify_all()
                return
        self._tell(problem)

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until everything that was taken is written; whether that was so in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue, timeout_s)

    def missing(self) -> dict[str, int]:
        """Bytes that have not come although later ones of the same file have, by file. Empty where nothing is
        missing.
        """
        with self._changed:
            return self._files.missing()

    def close(self, timeout_s: float = 10.0) -> bool:
        """Write what has come and take nothing more; whether every writer was heard to its end, and nothing
        is missing.

        Writers that left a moment ago may have parcels on the way: it waits for `LAST_WORDS_S` for those it
        knows.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: not self._files.unheard or self._closed, min(LAST_WORDS_S, timeout_s)
            )
        self.flush(timeout_s)
        with self._changed:
            if not self._closed:
                self._closed = True
                self.dropped += len(self._queue)
                self._queue.clear()
                self._changed.notify_all()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)
            if thread.is_alive():  # the disk hangs: its files are not to be touched
                return False
        try:
            self._files.end()
        except OSError as error:
            self._tell(f"cannot note which workers were not heard to their end: {error.strerror or error}")
        return not self._files.unheard and not self._files.missing()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                parcel = self._queue[0]
            written = self._write(parcel)
            with self._changed:
                if written and self._queue:
                    self._queue.popleft()
                    self._bytes -= len(parcel)
                    self._changed.notify_all()
            if not written:
                time.sleep(_RETRY_S)

    def _write(self, parcel: bytes) -> bool:
        """Write one; False where the disk refuses it for now."""
        try:
            self._files.write(unpack(parcel))
            self.taken += 1
        except NoParcel as problem:
            self.refused += 1
            self._tell(f"a parcel was refused: {problem}")
        except OSError as error:
            self._tell(f"what workers have recorded cannot be written: {error.strerror or error}")
            return False
        except Exception as error:  # noqa: BLE001 - the thread must go on with the next one
            self.refused += 1
            self._tell(f"a parcel could not be taken: {error!r}")
        return True

    def _tell(self, problem: str) -> None:
        kind = problem.partition(":")[0]
        if kind not in self._told:
            self._told.add(kind)
            log.warning("%s", problem)
