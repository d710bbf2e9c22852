"""The engine over Dask: a cluster of this machine, one that runs somewhere, or that of a client that is
given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import distributed  # noqa: F401 - what this engine needs: without it, it is said what to install

from flightlog.core.errors import UsageError
from flightlog.engines import program
from flightlog.engines.contract import PooledEngine, Reports
from flightlog.engines.dask.cluster import Connection, adapt, address_in, connect, local_cluster, scheduler_of
from flightlog.engines.dask.pool import DaskCluster
from flightlog.engines.dispatcher import Dispatcher
from flightlog.engines.local import usable_cpus
from flightlog.engines.program import refuse_while_main_is_imported


class DaskEngine(PooledEngine):
    """Runs attempts on a Dask cluster; the contract of `Engine`, and thread-safe as that says.

    The cluster is that of a `client` (synchronous or asynchronous, which stays the caller's alone: the engine
    opens one of its own), that at an `address` or of a `scheduler_file`; else one is started on this machine,
    with `n_workers` workers (default: usable CPUs over threads) of `threads_per_worker` tasks at once
    (default: 1), each a process unless `processes` is false. With `min_workers` or `max_workers` it grows and
    shrinks with the work.

    Each attempt is one Dask task, which Dask never runs a second time: the loss of its worker is its end,
    with what Dask, the nanny and the kernel say of it. One that its worker had not begun is handed out again.

    What runs can be ended where its worker is a process with a nanny, executes one task at a time, and
    belongs to a cluster that this engine started, or `end_workers` says that it may: the process and those
    below it are ended, and the nanny starts another. Elsewhere nothing can be ended: a timeout is reported at
    once, the thread is written off, and the worker takes the next task while the thread still runs;
    cancelling does nothing.

    A cluster that the engine did not start is left running, as it was found. Several engines may share one.
    On the thread whose event loop the cluster lives on, nothing can end while the engine closes: close it
    from another thread (`async with` does).
    """

    dumps = staticmethod(program.dumps)
    """How calls are pickled for its workers, which do not import the program."""

    def __init__(
        self,
        *,
        address: str | None = None,
        scheduler_file: str | None = None,
        n_workers: int | None = None,
        min_workers: int | None = None,
        max_workers: int | None = None,
        threads_per_worker: int | None = None,
        processes: bool | None = None,
        memory_limit_bytes: int | None = None,
        local_directory: str | None = None,
        interface: str | None = None,
        protocol: str | None = None,
        dashboard_address: str | None = None,
        client: Any = None,
        end_workers: bool | None = None,
        kill_grace_s: float = 2.0,
    ) -> None:
        named = {"address": address, "scheduler_file": scheduler_file, "client": client}
        given = [name for name, value in named.items() if value is not None]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} name one cluster each: give one of them")
        cluster: dict[str, Any] = {
            "n_workers": n_workers,
            "min_workers": min_workers,
            "max_workers": max_workers,
            "threads_per_worker": threads_per_worker,
            "processes": processes,
            "memory_limit_bytes": memory_limit_bytes,
            "local_directory": local_directory,
            "interface": interface,
            "protocol": protocol,
            "dashboard_address": dashboard_address,
        }
        asked = [name for name, value in cluster.items() if value is not None]
        if given and asked:
            raise UsageError(
                f"{asked[0]} is for a cluster that is started here; {given[0]} names one that runs: leave "
                "one of them out"
            )
        self._where, self._cluster_options = named, cluster
        self._end_workers = end_workers if end_workers is not None else not given
        self._grace_s = kill_grace_s
        super().__init__()

    def start(self, run_path: str | None, reports: Reports) -> None:
        """Connect to the cluster, or start it: seconds. A `UsageError` where that cannot be done.

        On a thread that runs an event loop it does not wait: the cluster may live on that loop. What goes
        wrong then is the reason that all attempts are lost.
        """
        super().start(run_path, reports)
        if not _in_event_loop():
            self._pool.opened.result()

    def _make_pool(self, run_path: str | None) -> Dispatcher:
        refuse_while_main_is_imported("an engine")
        self._backend = DaskCluster(
            self._open,
            run_path,
            may_end=self._end_workers,
            grace_s=self._grace_s,
            job_of=self._job_finder(),
        )
        return Dispatcher(self._backend, 1, self._grace_s)

    def _job_finder(self) -> Callable[[str], str | None] | None:
        """What gives the batch job that a worker was started in, on the engine's thread; None if they live in
        no jobs.
        """
        return None

    def _open(self) -> Connection:
        if self._where["client"] is not None:
            return Connection(connect(*scheduler_of(self._where["client"])))
        address = self._where["address"]
        if self._where["scheduler_file"] is not None:
            address = address_in(self._where["scheduler_file"])
        if address is not None:
            return Connection(connect(address))
        return self._started(self._make_cluster())

    def _started(self, cluster: Any) -> Connection:
        """A connection to a cluster that was started here; it ends with the connection, also with one that
        fails.
        """
        try:
            return Connection(connect(cluster), cluster)
        except BaseException:
            cluster.close(timeout=5.0)
            raise

    def _make_cluster(self) -> Any:
        options = dict(self._cluster_options)
        fewest, most = options.pop("min_workers"), options.pop("max_workers")
        threads = options["threads_per_worker"] = options["threads_per_worker"] or 1
        if options["n_workers"] is None:
            adapts = fewest is not None or most is not None
            options["n_workers"] = (fewest or 0) if adapts else max(1, usable_cpus() // threads)
        options["memory_limit"] = options.pop("memory_limit_bytes")
        cluster = local_cluster(options)
        adapt(cluster, fewest, most)
        return cluster


def _in_event_loop() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
