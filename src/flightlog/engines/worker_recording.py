"""Recording in a worker: where it records, which samplers run there, and how it leaves the run."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from flightlog.core.locks import FileLock, try_lock
from flightlog.engines.relay.recording import depart, place_here, settle
from flightlog.events import ResourceSample
from flightlog.record.background import Sampling, make_samplers
from flightlog.record.context import RUN
from flightlog.record.joining import join, leave_run
from flightlog.record.run import LiveRun
from flightlog.samplers import Sampler
from flightlog.samplers.process import ProcessSampler
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.liveness import this_host

log = logging.getLogger("flightlog")

SETTLE_S = 30.0
"""How long what was recorded may take to be home before the end of its task is told without waiting for
it."""


class WorkerRecording:
    """The runs of one engine, as one of its worker processes has to do with them. Nothing of it raises.
    Thread-safe.

    `send` carries chunks home, for runs whose folder is not to be seen from here.
    """

    def __init__(self, worker: str, home: SampledFrom, send: Callable[[bytes], None]) -> None:
        self._worker, self._home, self._send = worker, home, send
        self._lock = threading.Lock()
        self._joined: dict[str, tuple[dict[str, str], LiveRun | None, Sampling | None]] = {}
        """Of each run, by its path here: its place, the run, and what samples this worker for it."""
        self._relays = False

    def join(self, place: dict[str, str]) -> LiveRun | None:
        """The run of a place, as it is recorded here; None where it cannot be."""
        here = self.at(place)
        return self._joined[here[RUN]][1] if here.get(RUN) in self._joined else None

    def at(self, place: dict[str, str]) -> dict[str, str]:
        """Where an attempt is to be recorded that belongs to this place; the first one joins the run."""
        here = place_here(place, self._send)
        path = here.get(RUN)
        if path is None:
            return here
        self._relays = self._relays or here != place
        try:
            with self._lock:
                if path not in self._joined:
                    self._joined[path] = here, None, None  # also where joining raises: once is enough
                    run = join(path)
                    sampling = None if run is None else sample_worker(run, self._worker, self._home)
                    self._joined[path] = here, run, sampling
        # Recording never keeps a task from running.
        except Exception as error:  # noqa: BLE001
            log.warning("this worker records nothing: %s: %s", type(error).__name__, error)
        return here

    def settle(self) -> None:
        """Have everything home that was recorded so far, if it has to be carried there."""
        if self._relays:
            settle(SETTLE_S)

    def leave(self, timeout_s: float = 10.0) -> None:
        """Close what this process records into: the last samples are taken, files closed, chunks sent."""
        with self._lock:
            joined, self._joined = self._joined, {}
        for path, (place, _, sampling) in joined.items():
            if sampling is not None:
                sampling.stop()
            depart(place, timeout_s)
            leave_run(path)


class SampledFrom(Struct, frozen=True, kw_only=True):
    """The process that made the run, which samples its host and the processes below it; travels to
    workers.
    """

    host: str
    pid: int
    interval_s: float | None
    """None where nothing is to be sampled."""


UNSAMPLED = SampledFrom(host="", pid=0, interval_s=None)


def sampled_from_here(run_path: str | None) -> SampledFrom:
    """What workers have to know of the sampling of a run, in the process that made it."""
    found = None if run_path is None else read_document(Path(run_path) / layout.RUN, layout.RunInfo).value
    interval_s = None if found is None else found.sample_interval_s
    return SampledFrom(host=this_host(), pid=os.getpid(), interval_s=interval_s)


def sample_worker(run: LiveRun, worker: str, home: SampledFrom) -> Sampling | None:
    """Sample this process and the processes below it from now on, in scope `worker`; stop it before the run
    is left.

    On another host than the run's own the machine is sampled too, by one process of all that record the same
    run there. None where there is nothing to do: nothing is sampled, or the run's own process sees this one
    among those below it.
    """
    if home.interval_s is None or (home.host == this_host() and is_below(home.pid)):
        return None

    def samplers() -> Sequence[Sampler]:
        own = ProcessSampler(worker=worker)
        if home.host == this_host():
            return [own]
        key = hashlib.sha1(run.info.trace_id.encode()).hexdigest()[:16]
        lock = Path(tempfile.gettempdir()) / f"flightlog-{os.getuid()}-{key}.lock"
        return [own, OncePerHost(lambda: _of_the_host(run), lock)]

    return Sampling(samplers, home.interval_s, run.emit, run.recorder.trouble)


def is_below(pid: int) -> bool:
    """Whether this process runs below another one of this host."""
    import psutil

    with suppress(psutil.Error):
        return any(parent.pid == pid for parent in psutil.Process().parents())
    return False


def _of_the_host(run: LiveRun) -> Sequence[Sampler]:
    return [one for one in make_samplers(run, None) if not isinstance(one, ProcessSampler)]


class OncePerHost:
    """Samplers that sample in one process of a host alone: that which holds the lock. It goes over when that
    one ends.
    """

    def __init__(self, make: Callable[[], Sequence[Sampler]], lock: Path) -> None:
        self._make, self._lock = make, lock
        self._held: FileLock | None = None
        self._samplers: list[Sampler] = []

    def sample(self) -> Sequence[ResourceSample]:
        """What the samplers say, if it is for this process to ask them."""
        if (self._held is None or not self._held.still_held()) and not self._take():
            return ()
        return [sample for sampler in self._samplers for sample in sampler.sample()]

    def close(self) -> None:
        """Let another process do it."""
        for sampler in self._samplers:
            close = getattr(sampler, "close", None)
            if close is not None:
                close()
        if self._held is not None and self._held.still_held():
            with suppress(OSError):
                # While it is held: whoever has it open sees that it is not the file any more.
                self._lock.unlink()
            self._held.release()

    def _take(self) -> bool:
        try:
            lock = try_lock(self._lock)
        except OSError:
            return False
        if lock is None or not lock.enforced:
            return False
        self._held = lock
        self._samplers = self._samplers or list(self._make())
        return True
