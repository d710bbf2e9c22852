"""Clusters that do not give a worker up while its nanny starts it again."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any


def steady(kind: Any) -> Any:
    """A kind of cluster (a `SpecCluster`) that gives a worker up only if nothing was seen of it since it was
    lost.

    Dask looks once, some seconds after the loss, whether a worker of that name is there. One that came back
    and is lost a second time looks the same to it as one that never did: its nanny is closed, or its job
    cancelled, for good.
    """
    from distributed.deploy.cluster import Cluster

    class SteadyCluster(kind):  # type: ignore[misc] # distributed is not typed
        """Counts how often each worker came."""

        def __init__(self, *args: Any, **options: Any) -> None:
            self._arrivals: Counter[Any] = Counter()
            super().__init__(*args, **options)

        def _update_worker_status(self, op: str, msg: Any) -> None:
            if op != "remove":
                self._arrivals.update(info["name"] for info in msg.get("workers", {}).values())
                super()._update_worker_status(op, msg)
                return
            name = self.scheduler_info["workers"][msg]["name"]
            forget: Any = Cluster._update_worker_status
            forget(self, op, msg)
            asyncio.get_running_loop().call_later(_patience_s(), self._give_up, name, self._arrivals[name])

        def _give_up(self, name: Any, arrivals: int) -> None:
            if self._arrivals[name] == arrivals and name in self.workers:
                self._futures.add(asyncio.ensure_future(self.workers.pop(name).close()))

    SteadyCluster.__name__ = SteadyCluster.__qualname__ = kind.__name__
    return SteadyCluster


def _patience_s() -> float:
    """How long a worker may be away: twice what Dask allows, for it may have to wait for CPUs."""
    import dask
    from dask.utils import parse_timedelta

    return 2 * float(parse_timedelta(dask.config.get("distributed.deploy.lost-worker-timeout")))
