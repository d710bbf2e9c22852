"""The Dask cluster that an engine works on: one that it starts and ends, or one that runs and goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.core.settings import expanded
from flightlog.engines.limits import DaskLimits


class Connection(Struct):
    """A client of our own on a cluster, and the cluster if it is ours to end."""

    client: Any
    cluster: Any = None

    def close(self, timeout_s: float) -> None:
        """Leave the cluster; end it if it is ours."""
        with suppress(TimeoutError, OSError):
            self.client.close(timeout=timeout_s)
        if self.cluster is not None:
            with suppress(TimeoutError, OSError):
                self.cluster.close(timeout=timeout_s)


def connect(where: Any, security: Any = None, *, timeout_s: float = DaskLimits.connect_timeout_s) -> Any:
    """A synchronous client on a cluster, an address or what `Client` takes; it becomes nobody's default.

    A `UsageError` where nobody answers, or what answers is no Dask scheduler.
    """
    from distributed import Client

    name = getattr(where, "scheduler_address", where)
    make: Any = Client
    try:
        if isinstance(where, str) and not where.startswith("inproc:"):
            asyncio.run(_ask_who_is_there(where, security, timeout_s))
        ours = {"name": "flightlog", "set_as_default": False, "asynchronous": False}
        return make(where, timeout=timeout_s, security=security, **ours)
    except (OSError, TimeoutError, ValueError) as error:
        why = str(error) or f"nobody answered within {timeout_s:g} s"
        raise UsageError(
            f"no Dask scheduler can be reached at {name}: {why}. Is it running, and is the address right?"
        ) from error


async def _ask_who_is_there(address: str, security: Any, timeout_s: float) -> None:
    """Let somebody answer in time, or raise: a client that gets no answer may wait for ever, and once more
    when it is let go.
    """
    from distributed.core import rpc
    from distributed.security import Security

    known: Any = security if security is not None else Security()  # type: ignore[no-untyped-call]
    options = known.get_connection_args("client")
    asked: Any = rpc(address, timeout=timeout_s, connection_args=options)  # type: ignore[no-untyped-call]
    async with asked:
        await asyncio.wait_for(asked.identity(), timeout_s)


def scheduler_of(client: Any) -> tuple[Any, Any]:
    """Address and security of the cluster that a client of the user's, synchronous or not, is on."""
    scheduler = getattr(client, "scheduler", None)
    if scheduler is None or not hasattr(scheduler, "address"):
        raise UsageError(
            f"the Dask client {client!r} is not connected to a scheduler: await it, or do not close it"
        )
    return scheduler.address, client.security


def address_in(scheduler_file: str) -> str:
    """The address that a scheduler wrote into its file."""
    import json

    try:
        return str(json.loads(expanded(scheduler_file).read_text())["address"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"scheduler_file {scheduler_file} names no scheduler: {type(error).__name__}: {error}. "
            "`dask scheduler --scheduler-file` writes such a file"
        ) from error


def local_cluster(options: Mapping[str, Any]) -> Any:
    """A cluster of this machine; its dashboard, where it can have one, listens at a free port unless one is
    named. Options that are None are left out.
    """
    from distributed import LocalCluster

    given = {name: value for name, value in options.items() if value is not None}
    try:
        return steady(LocalCluster)(**{"dashboard_address": ":0", **given})
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise UsageError(f"no Dask cluster can be started here: {type(error).__name__}: {error}") from error


def adapt(cluster: Any, fewest: int | None, most: int | None) -> None:
    """Let a cluster grow and shrink with its work, where a bound says so."""
    if fewest is not None or most is not None:
        bounds = {"minimum": fewest or 0, **({} if most is None else {"maximum": most})}
        cluster.adapt(**bounds)


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
