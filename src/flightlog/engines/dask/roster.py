"""The workers of a Dask cluster, as its engine knows them: from what watches the cluster, and from their own
notes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from flightlog.engines.contract import WorkerView
from flightlog.engines.dask.attempt import Parcel
from flightlog.engines.dask.launch import with_launch
from flightlog.engines.ledger import Attempt
from flightlog.events import WorkerEvent, WorkerLost, WorkerRemoved


class Roster:
    """Workers by address. One thread changes it; `views` and `is_endable` are for any.

    `opened`, Unix time, is when a cluster that the engine starts was begun; None where it finds one running.
    """

    def __init__(self) -> None:
        self.opened: float | None = None
        self.ended: dict[str, str] = {}
        """Workers that the engine ends itself, and why."""
        self._homes: dict[str, tuple[str | None, int | None]] = {}
        """Host and process of every worker that was heard of."""
        self._ready: dict[str, float] = {}
        """When each that is there was ready, on the monotonic clock."""
        self._departed: set[str] = set()
        self._endable: dict[str, bool] = {}

    def note(self, parcel: Parcel) -> None:
        """A worker has written."""
        self._endable[parcel.worker] = parcel.endable
        self._homes[parcel.worker] = (parcel.host, parcel.pid)

    def take(self, event: WorkerEvent) -> WorkerEvent:
        """What is to be told of something that happened to a worker: the loss of one that was ended is no
        loss.
        """
        address = event.worker
        if not isinstance(event, WorkerLost | WorkerRemoved):
            self._homes[address] = (event.host, event.pid)
            self._ready[address] = time.monotonic()
            self._departed.discard(address)
            return event if self.opened is None else with_launch(event, self.opened)
        ready = self._ready.pop(address, None)
        self._departed.add(address)
        if isinstance(event, WorkerRemoved) or address not in self.ended:
            return event
        up_s = None if ready is None else time.monotonic() - ready
        return WorkerRemoved(
            timestamp=event.timestamp,
            worker=address,
            host=event.host,
            pid=event.pid,
            reason=self.ended[address],
            uptime_s=up_s,
        )

    def dismiss(self, reason: str) -> list[WorkerEvent]:
        """The end of all that are there, as far as the engine is concerned."""
        now, told = time.monotonic(), []
        for address, ready in list(self._ready.items()):
            host, pid = self._homes[address]
            removed = WorkerRemoved(worker=address, host=host, pid=pid, reason=reason, uptime_s=now - ready)
            told.append(self.take(removed))
        self._departed.update(self._homes)
        return told

    def home(self, address: str | None) -> tuple[str | None, int | None]:
        """Host and process of a worker; None where they are not known."""
        return self._homes.get(address or "", (None, None))

    def is_there(self, address: str) -> bool:
        """Whether it is up, as far as known."""
        return address in self._ready

    def is_endable(self, address: str | None) -> bool:
        """Whether it is a process that may be ended with the task it executes."""
        return self._endable.get(address or "", False)

    def views(self, attempts: Iterable[Attempt]) -> list[WorkerView]:
        """The workers there are, and which of these attempts each executes."""
        running: dict[str, list[str]] = {}
        for attempt in attempts:
            if attempt.worker is not None and not attempt.over:
                running.setdefault(attempt.worker, []).append(attempt.work.task_id)
        return [
            WorkerView(worker=address, host=host, pid=pid, running=tuple(running.get(address, ())))
            for address, (host, pid) in list(self._homes.items())
            if address not in self._departed
        ]
