"""A worker's stay in the runs it records into: where it records, what it samples, and how it leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable

from flightlog.engines.relay import depart, place_here, settle
from flightlog.engines.worker_sampling import SampledFrom, sample_worker
from flightlog.record.carrier import RUN
from flightlog.record.joining import join, leave_run
from flightlog.record.pulse import Sampling

SETTLE_S = 30.0
"""How long what was recorded may take to be home before the end of its task is told without waiting for
it."""


class Stay:
    """The runs of one engine, as one of its worker processes has to do with them. Nothing of it raises.
    Thread-safe.

    `send` carries parcels home, for runs whose folder is not to be seen from here.
    """

    def __init__(self, worker: str, home: SampledFrom, send: Callable[[bytes], None]) -> None:
        self._worker, self._home, self._send = worker, home, send
        self._lock = threading.Lock()
        self._places: dict[str, dict[str, str]] = {}
        self._sampling: dict[str, Sampling | None] = {}
        self._relays = False

    def at(self, place: dict[str, str]) -> dict[str, str]:
        """Where an attempt is to be recorded that belongs to this place; the first one begins the stay."""
        here = place_here(place, self._send)
        path = here.get(RUN)
        if path is None:
            return here
        self._relays = self._relays or here != place
        with self._lock:
            if path not in self._places:
                self._places[path] = here
                run = join(path)
                self._sampling[path] = None if run is None else sample_worker(run, self._worker, self._home)
        return here

    def settle(self) -> None:
        """Have everything home that was recorded so far, if it has to be carried there."""
        if self._relays:
            settle(SETTLE_S)

    def leave(self) -> None:
        """Close what this process records into: the last samples are taken, files closed, parcels sent."""
        with self._lock:
            places, self._places = self._places, {}
            sampling, self._sampling = self._sampling, {}
        for path, place in places.items():
            ticking = sampling.get(path)
            if ticking is not None:
                ticking.stop()
            depart(place)
            leave_run(path)
