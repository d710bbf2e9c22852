"""A spool: just enough of a run directory, on a host that does not see the real one, to record into as ever.

    <temporary folder>/flightlog-spool-<user>/<trace id>/<16 hex>/
      lock                   held by the process that sends it; free when that process is gone
      run-…-a1b2c3d4/        what writers take for the run directory

All writers on the host that were given this spool write here: the process that made it, and its children.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from flightlog.core.locks import FileLock, try_lock
from flightlog.store import layout
from flightlog.store.documents import read_document, write_document

LOCK = "lock"
_TRIES = 5
_ABANDONED_S = 600.0


class Spool:
    """A spool that this process holds, and nobody else. Made by `make_spool` or `take_orphans`."""

    def __init__(self, home: Path, run: Path, trace_id: str, lock: FileLock) -> None:
        self.home, self.run, self.trace_id = home, run, trace_id
        self.name = home.name
        self._lock = lock

    def hold_on(self) -> None:
        """Take the lock again if the program has closed its descriptor, and nobody else has taken it since.

        Where another process has, both send the spool: what arrives twice is taken once.
        """
        if not self._lock.still_held():
            self._lock = _hold(self.home) or self._lock

    def let_go(self) -> None:
        """Leave it to whoever wants to send it."""
        self._lock.release()

    def remove(self) -> None:
        """All of it has landed: leave nothing of it behind. Raises nothing."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.let_go()
        with contextlib.suppress(OSError):  # others have spools of the run there
            self.home.parent.rmdir()


def spool_root() -> Path:
    """The folder of this user's spools on this host: private, in the temporary folder. Raises OSError."""
    root = Path(tempfile.gettempdir()) / f"flightlog-spool-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{root} is not a folder that only this user can write into")
    return root


def make_spool(root: Path, run_id: str, trace_id: str, span_id: str) -> Spool:
    """A new spool for a run, held by this process; `span_id` stands in for the run's own span. Raises
    OSError.
    """
    for _ in range(_TRIES):
        home = root / trace_id / os.urandom(8).hex()
        with contextlib.suppress(
            FileNotFoundError
        ):  # the last spool there was removed between two steps of ours
            home.mkdir(mode=0o700, parents=True)
            lock = _hold(home)
            if lock is not None:  # nobody has looked into it between two steps of ours
                break
    else:
        raise BlockingIOError(f"no spool can be made in {root / trace_id}")
    run = home / run_id
    run.mkdir()
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    write_document(
        run / layout.RUN,
        layout.RunInfo(
            run_id=run_id,
            project=run_id,
            status="running",
            start_time=now,
            trace_id=trace_id,
            span_id=span_id,
        ),
    )
    return Spool(home, run, trace_id, lock)


def take_orphans(root: Path, trace_id: str, own: Collection[str]) -> list[Spool]:
    """The spools of a run on this host whose process is gone, held by this process from now on.

    `own` are the names of those it holds already: a lock is a process's, so looking at them would let them
    go.
    """
    taken = []
    for home in _folders(root / trace_id):
        if home.name in own:
            continue
        lock = _hold(home)
        if lock is None:
            continue
        run = next((one for one in _folders(home) if (one / layout.RUN).exists()), None)
        info = read_document(run / layout.RUN, layout.RunInfo).value if run is not None else None
        if (
            run is None or info is None or info.trace_id != trace_id
        ):  # it is being made, or was and nobody came back
            if time.time() - home.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(home, ignore_errors=True)
            lock.release()
            continue
        taken.append(Spool(home, run, trace_id, lock))
    return taken


def _hold(home: Path) -> FileLock | None:
    """The lock of a spool, which goes with this process and not to its children; None where another process has
    it, and where the file system has no locks.
    """
    try:
        lock = try_lock(home / LOCK, of_process=True)
    except OSError:
        return None
    return lock if lock is not None and lock.enforced else None


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if entry.is_dir())
    except OSError:
        return []
