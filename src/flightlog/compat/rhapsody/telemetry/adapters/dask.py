"""Samples of the workers of a Dask cluster, as its scheduler knows them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, cast

from flightlog.compat.limits import CompatLimits
from flightlog.compat.rhapsody.telemetry.adapters.base import EmittingAdapter
from flightlog.store.liveness import this_host

log = logging.getLogger(__name__)


class DaskTelemetryAdapter(EmittingAdapter):
    """CPU, memory and disk of every Dask worker: one sample at once, then one every `interval` seconds.

    `node_id` is the name of the worker's host, as in the events of tasks; the host in its address where the
    worker does not tell. `attributes["worker"]` is its address. CPU and memory are those of the worker
    process, relative to its threads and its memory limit. Dask reports no network and no GPUs.
    """

    def __init__(self, client: Any, session_id: str, backend_name: str, interval: float = 10.0) -> None:
        super().__init__(session_id, backend_name, interval)
        self._client = client
        self._task: asyncio.Task[None] | None = None
        self._before: dict[str, tuple[float, float]] = {}
        self._hosts: dict[str, str | None] = {}

    def start(self) -> None:
        """Start sampling, on the running event loop."""
        self._task = asyncio.create_task(self._sample(), name="telemetry-dask-adapter")

    def stop(self) -> None:
        """Stop sampling."""
        if self._task is not None and not self._task.done():
            self._task.cancel()

    async def _sample(self) -> None:
        while True:
            try:
                workers = await self._workers()
                await self._ask_hosts(address for address in workers if address not in self._hosts)
                for address, worker in workers.items():
                    self._emit_sample(address, worker)
            except Exception:
                log.debug("a sample of the Dask workers is missing", exc_info=True)
            await asyncio.sleep(self._interval)

    async def _workers(self) -> Mapping[str, Any]:
        """All workers, from the scheduler: an asynchronous client may not know them."""
        found: Mapping[str, Any] = self._client.scheduler_info()
        if not found.get("workers") and getattr(self._client, "asynchronous", False):
            found = await self._client.scheduler.identity()
        return cast("Mapping[str, Any]", found.get("workers", {}))

    async def _ask_hosts(self, addresses: Iterable[str]) -> None:
        """Ask new workers for the names of their hosts; of one that does not answer it stays unknown."""
        new = list(addresses)
        if not new:
            return
        self._hosts |= dict.fromkeys(new)
        try:
            asked = self._client.run(this_host, workers=new, on_error="ignore")
            self._hosts |= await asyncio.wait_for(asked, CompatLimits.host_names_timeout_s)
        except Exception:
            log.debug("Dask workers did not tell the names of their hosts", exc_info=True)

    def _emit_sample(self, address: str, worker: Mapping[str, Any]) -> None:
        metrics, limit = worker.get("metrics", {}), worker.get("memory_limit")
        memory, cpu = metrics.get("memory"), metrics.get("cpu")
        threads = worker.get("nthreads") or 1
        read, written = self._since(address, metrics)
        self._emit(
            node_id=self._hosts.get(address) or worker.get("host") or address,
            cpu_percent=None if cpu is None else min(100.0, float(cpu) / threads),
            memory_percent=100.0 * memory / limit if memory is not None and limit else None,
            disk_read_bytes=read,
            disk_write_bytes=written,
            attributes={"worker": address},
        )

    def _since(self, address: str, metrics: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """Bytes read and written since the last call; None is unknown.

        Older versions of Dask count `read_bytes` from the worker's start, newer ones have `host_disk_io`.
        """
        disk = metrics.get("host_disk_io") or {}
        if "read_bps" in disk:
            return float(disk["read_bps"]) * self._interval, float(disk["write_bps"]) * self._interval
        if metrics.get("read_bytes") is None or metrics.get("write_bytes") is None:
            return None, None
        now = (float(metrics["read_bytes"]), float(metrics["write_bytes"]))
        before, self._before[address] = self._before.get(address), now
        if before is None:
            return None, None
        return max(0.0, now[0] - before[0]), max(0.0, now[1] - before[1])
